"""The data that need no download."""

import re
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from hf_ffn.training import embedded
from hf_ffn.training.embedded import (
    LIBRARIES,
    digits,
    docstrings,
    library_folder,
    like_beginning,
    prose,
    texts_by_file,
)


@pytest.fixture(scope="module")
def both() -> tuple[Dataset, Dataset]:
    """The docstring task: to train and to evaluate on."""
    return docstrings()


def test_docstrings_are_balanced(both: tuple[Dataset, Dataset]) -> None:
    for part, number in zip(both, (500, 100), strict=True):
        assert Counter(part["label"]) == dict.fromkeys(range(len(LIBRARIES)), number)
        assert part.features["label"].names == list(LIBRARIES)


def test_docstrings_do_not_say_which_library_they_are_of(both: tuple[Dataset, Dataset]) -> None:
    for part in both:
        for text in part["text"]:
            assert not re.search(
                r"networkx|numpy|python|sympy|torch|transformers|\bnp\.|\bnx\.|>>>", text, re.IGNORECASE
            )
            assert 8 <= len(text.split()) <= 60


def test_docstrings_of_evaluation_were_not_trained_on(both: tuple[Dataset, Dataset]) -> None:
    train, evaluation = ({like_beginning(text) for text in part["text"]} for part in both)
    assert len(train) == 3000
    assert len(evaluation) == 600
    assert not train & evaluation


def test_docstrings_are_the_same_each_time(both: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "EVAL_PER_LIBRARY", 10)
    monkeypatch.setattr(embedded, "TRAIN_PER_LIBRARY", 5)
    _, few = docstrings()
    first = [text for library in range(len(LIBRARIES)) for text in both[1]["text"][library * 100 :][:10]]
    assert few["text"][:] == first


def test_sources_are_read_and_not_imported(tmp_path: Path) -> None:
    words = "one two three four five six seven eight nine"
    (tmp_path / "good.py").write_text(f'"""{words}"""\nraise SystemExit\nclass A:\n    """Class {words}"""\n')
    (tmp_path / "template.py").write_text('"""{{ not }} python"""\n{{ code }}')
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(f'"""Test {words}"""\n')
    assert sorted(chain(*texts_by_file(tmp_path, set()))) == [f"Class {words}", words]


def test_prose_ends_where_code_and_sections_begin() -> None:
    for end in (
        "Parameters\n----------\nx : int",
        ">>> f(1)",
        "Args:\n    x: a number",
        "```python\nf()",
        ":param x: it",
    ):
        assert prose(f"Compute it.\n\nWith np.sum and PyTorch.\n\n{end}") == "Compute it. With … and …."


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="needs no_such_library: pip install no_such_library"):
        library_folder("no_such_library")
    monkeypatch.setattr(embedded, "library_folder", lambda library: Path("/no/such/folder"))
    with pytest.raises(ValueError, match="sources of networkx have too few docstrings"):
        docstrings()


def test_digits_are_scikit_learns_in_full_range_and_stratified() -> None:
    from sklearn.datasets import load_digits

    train, evaluation = digits()
    assert (len(train), len(evaluation)) == (1437, 360)
    counts = Counter(evaluation["label"])
    assert set(counts) == set(range(10))
    assert max(counts.values()) - min(counts.values()) <= 2

    def key(image: np.ndarray, label: int) -> tuple[bytes, int]:
        return image.astype(np.uint8).tobytes(), label

    original = load_digits()
    expected = Counter(key((i * 255 / 16).round(), t) for i, t in zip(original.images, original.target, strict=True))
    assert (
        Counter(key(np.array(row["image"]), row["label"]) for part in (train, evaluation) for row in part) == expected
    )
