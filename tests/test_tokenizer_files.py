"""A checkpoint's tokenizer comes along, or is named; weights never wait for it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, BertTokenizer, RobertaConfig, RobertaModel, XLMRobertaConfig, XLMRobertaModel

from hf_ffn import FFNTextModel, convert, export_pretrained, tokenizer_files
from hf_ffn.conversion import model_class_for
from hf_ffn.hub import stage as staging
from hf_ffn.hub.stage import stage

from tiny import telling_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", ","]
SIZES = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
         "intermediate_size": 64, "max_position_embeddings": 40}  # fmt: skip
Save = Callable[..., Path]

# By model type, a model and its configuration.
MODELS: dict[str, tuple[Any, Any]] = {
    "roberta": (RobertaModel, RobertaConfig),
    "xlm-roberta": (XLMRobertaModel, XLMRobertaConfig),
}


@pytest.fixture
def source(save_source: Save, tmp_path: Path) -> Callable[..., Path]:
    """Save a model with these files beside it."""

    def save(kind: str, files: dict[str, str]) -> Path:
        folder = tmp_path / "source"
        if kind == "bert":
            save_source("BertModel")
        else:
            model_class, config_class = MODELS[kind]
            telling_model(model_class, config_class(**SIZES)).save_pretrained(folder)
        for name, content in files.items():
            (folder / name).write_text(content)
        return folder

    return save


@pytest.fixture
def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staging starts no process of its own."""
    monkeypatch.setattr(staging, "isolated", lambda scratch, how, *command: None)


def tokenizer_files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} & {*tokenizer_files.TOKENIZER_FILES}


VOCABULARY = json.dumps({"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "h": 5, "e": 6, "he": 7})


@pytest.mark.parametrize(
    ("kind", "files", "text"),
    [
        ("bert", {"vocab.txt": "\n".join(WORDS)}, "hello, worlds"),
        ("bert", {"vocab.txt": "\n".join(WORDS), "added_tokens.json": '{"[new]": 9}'}, "hello [new]"),
        ("roberta", {"vocab.json": VOCABULARY, "merges.txt": "#version: 0.2\nh e\n"}, "hehe"),
    ],
)
def test_the_files_of_old_folders_are_read_as_they_were_meant(
    source: Callable[..., Path], tmp_path: Path, kind: str, files: dict[str, str], text: str
) -> None:
    folder = source(kind, files)
    expected = AutoTokenizer.from_pretrained(folder)(text)["input_ids"]
    convert(folder, tmp_path / "out", check=False)
    export_pretrained(FFNTextModel.from_pretrained(tmp_path / "out"), tmp_path / "back")
    for name in ("out", "back"):
        assert AutoTokenizer.from_pretrained(tmp_path / name)(text)["input_ids"] == expected


CUSTOM = json.dumps({"tokenizer_class": "MyTokenizer", "auto_map": {"AutoTokenizer": ["my_code.MyTokenizer", None]}})


@pytest.mark.parametrize(
    ("kind", "files", "says"),
    [
        ("bert", {"tokenizer_config.json": '{"do_lower_case": true}'}, "tokenizer_config.json without a vocabulary"),
        (
            "bert",
            {"added_tokens.json": '{"x": 9}', "special_tokens_map.json": "{}"},
            "tokens.json without a vocab",
        ),
        ("roberta", {"merges.txt": "#version: 0.2\nh e\n"}, "merges.txt without a vocabulary"),
        ("roberta", {"bpe.codes": "h e 1\n"}, "bpe.codes without a vocabulary"),
        ("roberta", {"vocab.json": VOCABULARY}, "stays behind: "),
        (
            "roberta",
            {"vocab.txt": "hello\n"},
            "RobertaTokenizer reads merges.txt or tokenizer.json or vocab.json",
        ),
        (
            "bert",
            {"vocab.txt": "hello", "tokenizer_config.json": '{"tokenizer_class": "KoBert"}'},
            "stays behind",
        ),
        ("bert", {"vocab.txt": "hello", "tokenizer_config.json": CUSTOM}, "it runs code of somebody's own"),
        ("bert", {"tokenizer.json": "{"}, "stays behind: "),
        ("bert", {"tokenizer.json": "{}"}, "stays behind: "),
        ("bert", {"piece.model": "x", "x.vocab": "y"}, "piece.model, x.vocab may be a tokenizer's"),
    ],
)
def test_what_is_no_whole_tokenizer_stays_behind_and_is_named(
    source: Callable[..., Path],
    tmp_path: Path,
    messages: pytest.LogCaptureFixture,
    kind: str,
    files: dict[str, str],
    says: str,
) -> None:
    convert(source(kind, files), tmp_path / "out", check=False)
    assert (tmp_path / "out" / "model.safetensors").exists()
    assert not tokenizer_files_in(tmp_path / "out")
    assert says in messages.text


@pytest.mark.parametrize(
    ("kind", "files", "package", "class_name"),
    [
        ("xlm-roberta", {"sentencepiece.bpe.model": "pieces"}, "sentencepiece", "XLMRobertaTokenizer"),
        (
            "bert",
            {"spm.model": "pieces", "tokenizer_config.json": '{"tokenizer_class": "DebertaV2Tokenizer"}'},
            *("sentencepiece", "DebertaV2Tokenizer"),
        ),
        (
            "bert",
            {"vocab.txt": "\n".join(WORDS), "tokenizer_config.json": '{"tokenizer_class": "BertJapaneseTokenizer"}'},
            *("fugashi", "BertJapaneseTokenizer"),
        ),
    ],
)
def test_a_tokenizer_that_needs_a_missing_package_comes_along_unread_and_names_it(
    source: Callable[..., Path],
    tmp_path: Path,
    messages: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    unproven: None,
    kind: str,
    files: dict[str, str],
    package: str,
    class_name: str,
) -> None:
    monkeypatch.setattr(tokenizer_files, "is_sentencepiece_available", lambda: False)
    folder = source(kind, files)
    if class_name == "BertJapaneseTokenizer":
        config = {"tokenizer_class": class_name, "word_tokenizer_type": "mecab"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        monkeypatch.setitem(sys.modules, "fugashi", None)
    convert(folder, tmp_path / "out", check=False)
    export_pretrained(model_class_for(tmp_path / "out").from_pretrained(tmp_path / "out"), tmp_path / "back")
    name = next(iter(files))
    for place in ("out", "back"):
        assert (tmp_path / place / name).read_bytes() == (folder / name).read_bytes()
        assert json.loads((tmp_path / place / "tokenizer_config.json").read_text())["tokenizer_class"] == class_name
    assert messages.text.count("come along as they are, unread") == 2
    assert package in messages.text
    # What is published is proven, and this cannot be.
    stage(tmp_path / "out", tmp_path / "ready")
    assert not tokenizer_files_in(tmp_path / "ready")
    assert "stays behind" in messages.text


def with_tokenizer(folder: Path, words: list[str]) -> Path:
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_a_tokenizer_with_more_tokens_than_embeddings_is_named(
    save_source: Save, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    folder = with_tokenizer(save_source("BertModel", vocab_size=9), [*WORDS, "more", "and"])
    convert(folder, tmp_path / "out", check=False)
    assert "has 11 tokens, and the model embeddings for 9" in messages.text


@pytest.mark.parametrize("vocab_size", [9, 16])
def test_a_tokenizer_that_fits_is_no_matter(
    save_source: Save, tmp_path: Path, messages: pytest.LogCaptureFixture, vocab_size: int
) -> None:
    # Embeddings are often padded to a round number.
    folder = with_tokenizer(save_source("BertModel", vocab_size=vocab_size), WORDS)
    convert(folder, tmp_path / "out", check=False)
    assert "tokenizer" not in messages.text


def test_embeddings_that_were_resized_are_exported_with_a_warning_of_the_old_tokenizer(
    save_source: Save, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    folder = with_tokenizer(save_source("BertModel", vocab_size=9), WORDS)
    model = FFNTextModel.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["[new]", "[newer]"])
    model.resize_token_embeddings(len(tokenizer))
    export_pretrained(model, tmp_path / "back")
    said = f"resized from 9 to 11 after it was loaded from '{folder}', whose tokenizer of 9 tokens comes along"
    assert said in messages.text
    messages.clear()
    # Saved where the model's own folder is, the new tokenizer is the one that comes along.
    model.save_pretrained(tmp_path / "own")
    tokenizer.save_pretrained(tmp_path / "own")
    export_pretrained(FFNTextModel.from_pretrained(tmp_path / "own"), tmp_path / "again")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "again")) == 11
    assert "tokenizer" not in messages.text
