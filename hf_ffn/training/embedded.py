"""Data that every installation has, so that fine-tuning can be tried with nothing to download.

`docstrings`: which library does a piece of documentation come from? `digits`: handwritten digits, of scikit-learn.
"""

import ast
import hashlib
import importlib.util
import re
import sysconfig
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset, Features, Image, Value

# torch and transformers bring all of these along; "python" is the standard library.
LIBRARIES = ("networkx", "numpy", "python", "sympy", "torch", "transformers")
TRAIN_PER_LIBRARY = 500
EVAL_PER_LIBRARY = 100

# No module is to speak for its whole library, and very long files take long to read.
TEXTS_PER_FILE = 30
LARGEST_FILE = 100_000
WORDS = (8, 60)

# Tests quote other libraries, and what is vendored is another library.
NO_SOURCES = re.compile(r"(^|/)(.*test.*|site-packages|dist-packages|_?vendor(ed)?|externals|idlelib)(/|\.py$)")
# The libraries' names and the abbreviations that they are imported by, with all of a dotted path around them.
GIVES_AWAY = re.compile(
    rf"[\w.]*({'|'.join(LIBRARIES)}|hugging ?face|\bnx\b|\bnp\b|\bhf\b)[\w.]*(?<!\.)", re.IGNORECASE
)
# Where the prose ends: code, markup, an underline, or the title of a section.
END_OF_PROSE = re.compile(
    r"^\s*(>>>|```|\.\. |:\w|@\w|[-=~^]{3}"
    r"|(parameters|args|arguments|attributes|returns?|yields|raises|examples?|notes?|explanation|see also)\s*:*\s*$)",
    re.IGNORECASE | re.MULTILINE,
)


def docstrings() -> tuple[Dataset, Dataset]:
    """Docstrings and the library that each comes from, with the libraries' names taken out.

    Read from the installed source files, which are not imported; the same for the same versions. Training and
    evaluation share no file, and no text that begins alike.

    Returns:
        3,000 samples to train on and 600 to evaluate on, as many of each library; columns `text` and `label`.

    Raises:
        ValueError: a library is not installed, or has too few docstrings (as with stripped sources).
    """
    evaluation, train = docstring_parts(EVAL_PER_LIBRARY, TRAIN_PER_LIBRARY)
    return train, evaluation


def docstring_parts(*numbers: int) -> list[Dataset]:
    """Data sets of so many docstrings of each library, which have no file in common; see `docstrings`."""
    parts: list[list[tuple[str, str]]] = [[] for _ in numbers]
    seen: set[str] = set()
    for library in LIBRARIES:
        texts = texts_by_file(library_folder(library), seen)
        for part, number in zip(parts, numbers, strict=True):
            # Each part goes on to the end of a file, and leaves out what is too much.
            found: list[str] = []
            while len(found) < number:
                try:
                    found += next(texts)
                except StopIteration:
                    raise ValueError(
                        f"dataset 'docstrings': the sources of {library} have too few docstrings on this machine"
                    ) from None
            part += [(text, library) for text in found[:number]]
    features = Features({"text": Value("string"), "label": ClassLabel(names=list(LIBRARIES))})

    def as_dataset(part: list[tuple[str, str]]) -> Dataset:
        texts, labels = zip(*part, strict=True)
        return Dataset.from_dict({"text": texts, "label": labels}, features)

    return [as_dataset(part) for part in parts]


def library_folder(library: str) -> Path:
    """Where a library's source files lie."""
    if library == "python":
        return Path(sysconfig.get_paths()["stdlib"])
    spec = importlib.util.find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"dataset 'docstrings' needs {library}: pip install {library}")
    return Path(next(iter(spec.submodule_search_locations)))


def texts_by_file(folder: Path, seen: set[str]) -> Iterator[list[str]]:
    """The texts of each source file, files in an order that is random and always the same."""
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.py")]
    names = [name for name in names if not NO_SOURCES.search(name)]
    for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
        if (folder / name).stat().st_size <= LARGEST_FILE:
            yield list(islice(new_texts((folder / name).read_bytes(), seen), TEXTS_PER_FILE))


def new_texts(source: bytes, seen: set[str]) -> Iterator[str]:
    """The prose of a file's docstrings, without those that begin like one seen before, which are added to `seen`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return  # a template, or a file for another version of Python
    for docstring in docstrings_in(tree):
        text = prose(docstring)
        beginning = like_beginning(text)
        if len(text.split()) >= WORDS[0] and beginning not in seen:
            seen.add(beginning)
            yield text


def docstrings_in(node: ast.Module | ast.ClassDef) -> Iterator[str]:
    """The docstrings of a module or class, its classes and its functions, not of functions in functions."""
    yield ast.get_docstring(node) or ""
    for child in node.body:
        if isinstance(child, ast.ClassDef):
            yield from docstrings_in(child)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(child) or ""


def prose(docstring: str) -> str:
    """A docstring's first sentences, without what gives its library away."""
    text = END_OF_PROSE.split(docstring, maxsplit=1)[0]
    return " ".join(GIVES_AWAY.sub("…", text).split()[: WORDS[1]])


def like_beginning(text: str) -> str:
    """The first words in small letters, without NamesLikeThis: equal for texts that are copied from class to class."""
    words = [word for word in re.findall(r"[A-Za-z]+", text) if not re.search("[a-z][A-Z]|[A-Z]{2}", word)]
    return " ".join(words[:8]).lower()


def digits() -> tuple[Dataset, Dataset]:
    """Handwritten digits of 8 × 8 pixels.

    Returns:
        1,437 samples to train on and 360 to evaluate on, stratified; columns `image` and `label`.

    Raises:
        ValueError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split
    except ImportError:
        raise ValueError("dataset 'digits' needs scikit-learn: pip install scikit-learn") from None
    from PIL.Image import fromarray

    images, labels = load_digits(return_X_y=True)
    # Its brightness goes from 0 to 16.
    pictures = (images.reshape(-1, 8, 8) * 255 / 16).round().astype(np.uint8)
    features = Features({"image": Image(), "label": ClassLabel(names=[str(digit) for digit in range(10)])})

    def as_dataset(part: np.ndarray) -> Dataset:
        return Dataset.from_dict({"image": [fromarray(pictures[i]) for i in part], "label": labels[part]}, features)

    train, evaluation = train_test_split(np.arange(len(labels)), test_size=0.2, random_state=0, stratify=labels)
    return as_dataset(train), as_dataset(evaluation)


EMBEDDED = {"docstrings": docstrings, "digits": digits}
