"""What tests of training share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from transformers import BertTokenizer, PreTrainedTokenizerBase

from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import TaskData, load_text_data

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "good",
    "bad",
    "film",
    "very",
    "un",
    "##likely",
    "##s",
    ".",
    "na",
]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`datasets` caches in the test's own folder, and shows no progress."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


@pytest.fixture
def tokenizer(tmp_path: Path) -> PreTrainedTokenizerBase:
    """A small one."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    return BertTokenizer(str(tmp_path / "vocab.txt"))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], str]:
    """Write rows as JSON lines, or a text as it is, and return the path."""

    def write(name: str, content: Any) -> str:
        text = content if isinstance(content, str) else "\n".join(json.dumps(row) for row in content)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


@pytest.fixture
def load(
    tokenizer: PreTrainedTokenizerBase, write: Callable[[str, Any], str], own_cache: None
) -> Callable[..., TaskData]:
    """Load texts from rows to train on and, if given, rows to evaluate on."""

    def load(train: Any, validation: Any = None, *, name: str = "train.jsonl", **args: Any) -> TaskData:
        if validation is not None:
            args["validation_file"] = write("validation" + Path(name).suffix, validation)
        return load_text_data(DataArguments(train_file=write(name, train), **args), tokenizer, seed=1)

    return load
