"""Looking through a staged folder: does its code hold together, and does no file tell what is nobody's business?"""

import ast
import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .card import escaped, template

# Weights, pictures and tokenizers of a format of their own; whatever else a folder has is taken for text.
BINARY_ENDINGS = (".safetensors", ".png", ".model")
# Files in which transformers looks for code to run.
AUTO_MAP_FILES = ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json")
# Lists of words, which may be anybody's name or look like a path.
VOCABULARIES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "bpe.codes",
    "dict.txt",
)

SECRETS = {
    "a token of the Hugging Face Hub": r"\bhf_[A-Za-z0-9]{20,}",
    "a token of GitHub": r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})",
    "a key of AWS": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a key of an AI service": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@",
}
# Of any machine: Unix, macOS, Windows.
PATHS = (
    r"(?:(?<![\w./-])|(?<=file://))/(home|root|Users|Volumes|tmp|work|workspace|content|kaggle|mnt|media|data|var|opt"
    r"|srv|private|scratch|gpfs|lustre|nfs)/[\w.-]+"
    # As text, or as JSON writes it; not `Q:\n`, which prompts have.
    r"|\b[A-Za-z]:(/|\\\\?)(Users|Documents|Windows|Temp|home|work|data|code|projects?)(/|\\\\?)[\w.-]+"
)
# Accounts that many machines have, which tell nothing.
COMMON_USERS = {"root", "user", "admin", "ubuntu", "runner", "jovyan", "nobody", "docker", "vscode", "codespace"}


def inspect_folder(folder: Path, public_names: set[str]) -> list[str]:
    """Everything that speaks against publishing a folder, one sentence each; empty where nothing does.

    Args:
        folder: the staged one.
        public_names: user names that are meant to be seen, such as the repository's owner.
    """
    return [*broken_imports(folder), *broken_auto_map(folder), *private_matters(folder, public_names)]


def broken_imports(folder: Path) -> Iterator[str]:
    """Relative imports of the folder's code that lead out of it."""
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError) as error:
            yield f"{path.name}: is no Python ({error})"
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                for name in names:
                    if node.level > 1 or not (folder / f"{name}.py").is_file():
                        yield f"{path.name}, line {node.lineno}: imports .{name}, which is not in the folder"


def broken_auto_map(folder: Path) -> Iterator[str]:
    """Entries of an auto_map that name another repository, or a class that is not in the folder."""
    for name in AUTO_MAP_FILES:
        if not (folder / name).is_file():
            continue
        auto_map = json.loads((folder / name).read_text(encoding="utf-8")).get("auto_map") or {}
        for needed in ("AutoConfig", "AutoModel") if name == "config.json" else ():
            if needed not in auto_map:
                yield f"{name}: auto_map lacks {needed}"
        for auto, targets in auto_map.items():
            # A tokenizer has two, of which one may be null.
            for target in targets if isinstance(targets, list) else [targets]:
                problem = broken_target(folder, target)
                if problem:
                    yield f"{name}: auto_map's {auto} is '{target}', which {problem}"


def broken_target(folder: Path, target: Any) -> str | None:
    """What is wrong with an auto_map's "file.Class", if anything."""
    match = re.fullmatch(r"(\w+)\.(\w+)", str(target))
    if target is None:
        return None
    if match is None:
        return "leads to another repository"
    module = folder / f"{match[1]}.py"
    found = module.is_file() and re.search(rf"^class {match[2]}\b", module.read_text(encoding="utf-8"), re.MULTILINE)
    return None if found else "is not in the folder"


def private_matters(folder: Path, public_names: set[str]) -> Iterator[str]:
    """Tokens, paths of a machine and the user's name, in any text file; labels of the model's are neither of these."""
    user = telling_user(public_names)
    labels = labels_as_written(folder)
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix in BINARY_ENDINGS:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        where = path.relative_to(folder).as_posix()
        for what, pattern in SECRETS.items():
            found = re.search(pattern, text)
            if found:
                yield f"{where}, line {line_of(text, found)}: looks like {what}"
        if path.name in VOCABULARIES:
            continue
        text = re.sub(labels, blank, text) if labels else text
        found = re.search(PATHS, text)
        if found:
            yield f"{where}, line {line_of(text, found)}: a path of this machine ('{found[0]}')"
        found = re.search(word(user), text) if user else None
        if found:
            yield f"{where}, line {line_of(text, found)}: your user name ('{user}')"


def labels_as_written(folder: Path) -> str | None:
    """The pattern of the model's labels, which may look like paths, as JSON and the card write them; None without any.

    A label is whole: what goes on after it, as a path does, is another thing.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    names = {str(name) for name in (config.get("id2label") or {}).values()}
    # Figures of entities go by their type alone.
    names |= {name[2:] for name in names if name.startswith(("B-", "I-"))}
    in_json = {json.dumps(name, ensure_ascii=ascii)[1:-1] for name in names for ascii in (True, False)}
    forms = sorted((names | in_json | {escaped(name) for name in names}) - {""}, key=len, reverse=True)
    return rf"(?<![\w/.\\-])(?:{'|'.join(map(re.escape, forms))})(?![\w/\\-]|\.\w)" if forms else None


def blank(found: re.Match) -> str:
    """As much of nothing, so that lines and places stay."""
    return re.sub(r"[^\n]", " ", found[0])


def telling_user(public_names: set[str]) -> str | None:
    """The name of who is signed in here; None where it tells nothing, or is meant to be seen.

    It tells nothing where it is an ordinary word, such as those of every card and of the code ("will", "max"), which
    would be found in every folder.
    """
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container's user may have a number and no name
        return None
    if len(user) < 3 or user.lower() in COMMON_USERS or user in public_names:
        return None
    ours = [template(), *(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].glob("*.py"))]
    return None if any(re.search(word(user), text) for text in ours) else user


def word(name: str) -> str:
    """The pattern of a name that stands for itself."""
    return rf"(?<!\w){re.escape(name)}(?!\w)"


def line_of(text: str, found: re.Match) -> int:
    """The line of a match, from 1."""
    return text.count("\n", 0, found.start()) + 1
