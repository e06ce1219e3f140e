"""Old folders: what a config.json without `model_type` is of."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import hf_ffn
import hf_ffn_cli
from hf_ffn import (
    FeedForward,
    FFNConfig,
    FFNForSequenceClassification,
    FFNTextModel,
    convert,
    export_pretrained,
    verify,
)
from hf_ffn.conversion import model_class_for

from families import ROWS, Row
from families.rows import source_class
from tiny import rewrite_config, telling_model, to_bin

FIRST_ROWS = {row.name: row for row in reversed(ROWS)}


def save_old(name: str, theirs: str, folder: Path, *, architectures: bool = False, prefix: str | None = None) -> Row:
    """Save a family's model as a folder of 2019: a `.bin` with gamma and beta, and a config.json of hardly more than
    sizes."""
    row = FIRST_ROWS[name]
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    if prefix is not None:
        tensors = {key.removeprefix(prefix): tensor for key, tensor in tensors.items()}
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for key, tensor in tensors.items()
    }
    torch.save(old, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    config = {**row.config, "architectures": [theirs]} if architectures else row.config
    (folder / "config.json").write_text(json.dumps(config))
    return row


@pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=str)
def test_the_class_under_architectures_tells_the_family(tmp_path: Path, row: Row) -> None:
    ours, theirs = row.pairs[-1]
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(tmp_path)
    before = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    assert model.config.source_family == row.name
    assert model.config.to_dict() == before.config.to_dict()
    for name, tensor in before.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("bert", "BertForSequenceClassification"),
        ("bert", "BertForMaskedLM"),
        ("distilbert", "DistilBertModel"),
        ("distilbert", "DistilBertForTokenClassification"),
        ("albert", "AlbertForSequenceClassification"),
        ("electra", "ElectraForMaskedLM"),
        ("esm", "EsmModel"),
        ("modernbert", "ModernBertForSequenceClassification"),
        ("beit", "BeitForImageClassification"),
        ("dinov2", "Dinov2Model"),
        ("clip", "CLIPVisionModel"),
        ("vit", "ViTModel"),
        ("audio-spectrogram-transformer", "ASTForAudioClassification"),
    ],
)
def test_the_tensors_of_one_family_tell_it(tmp_path: Path, name: str, theirs: str) -> None:
    row = save_old(name, theirs, tmp_path)
    ours = {its: each for each, its in row.pairs}[theirs]
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    assert model.config.source_family == name
    assert model.loading_report.new == []
    report = verify(tmp_path, model, attn_implementations=("eager",))
    assert report.ok, report


def test_families_that_compute_alike_are_one_and_the_report_names_them(
    tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    save_old("xlm-roberta", "XLMRobertaForSequenceClassification", tmp_path)
    model = FFNForSequenceClassification.from_pretrained(tmp_path)
    assert model.config.positions_after_padding
    assert "are those of roberta (or of xlm-roberta, camembert" in messages.text
    again = FFNForSequenceClassification.from_pretrained(tmp_path, family="xlm-roberta")
    assert again.config.source_family == "xlm-roberta"
    assert torch.equal(model.classifier.weight, again.classifier.weight)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_tensors_of_several_families_are_refused_until_the_family_is_said(tmp_path: Path, name: str) -> None:
    theirs = {"bert": "BertModel", "roberta": "RobertaModel"}[name]
    row = save_old(name, theirs, tmp_path)
    for read in (FFNTextModel.from_pretrained, lambda folder: FeedForward.from_pretrained(folder, 0), verify):
        with pytest.raises(ValueError, match=r"could be those of bert, .*roberta.*: pass family="):
            read(tmp_path)
    model, report = convert(tmp_path, tmp_path / "out", family=name)
    assert report is not None
    assert report.ok, report
    assert model.config.source_family == name
    assert FFNConfig.from_pretrained(tmp_path, family=name).source_family == name
    block = FeedForward.from_pretrained(tmp_path, 1, family=name)
    assert torch.equal(block.linear_1.weight, model.encoder.layers[1].ffn.linear_1.weight)
    inputs = row.inputs(model.config, True)
    with torch.no_grad():
        original = source_class(theirs).from_pretrained(tmp_path).eval()(**inputs)[0]
        assert torch.equal(
            FFNTextModel.from_pretrained(tmp_path, family=name).eval()(**inputs, unpad="never")[0], original
        )


def test_the_command_takes_the_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_old("bert", "BertModel", tmp_path / "source")
    for command in (
        ["convert", str(tmp_path / "source"), str(tmp_path / "out")],
        ["verify", str(tmp_path / "source")],
    ):
        monkeypatch.setattr(sys, "argv", ["hf-ffn", *command, "--family", "bert"])
        with pytest.raises(SystemExit) as ended:
            hf_ffn_cli.main()
        assert not ended.value.code


def test_a_family_that_is_none_or_another_than_the_stated_is_refused(tmp_path: Path, save_source: Any) -> None:
    save_old("bert", "BertModel", tmp_path / "old")
    with pytest.raises(ValueError, match=r"family='berd' is not a family .*; it knows albert, "):
        FFNTextModel.from_pretrained(tmp_path / "old", family="berd")
    source = save_source("BertModel")
    assert FFNTextModel.from_pretrained(source, family="bert").config.source_family == "bert"
    with pytest.raises(ValueError, match=r"family='roberta': .*states model_type='bert'.*leave family out"):
        FFNTextModel.from_pretrained(source, family="roberta")


def test_tensors_of_no_family_are_refused(tmp_path: Path) -> None:
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    transformers.GPT2Model(transformers.GPT2Config(**sizes)).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    with pytest.raises(ValueError, match=r"are of no family that is known here: pass family="):
        FFNTextModel.from_pretrained(to_bin(tmp_path))


def test_a_config_json_alone_does_not_tell(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(FIRST_ROWS["bert"].config))
    with pytest.raises(ValueError, match="there are no weights to tell by: pass family="):
        FFNConfig.from_pretrained(tmp_path)
    assert FFNConfig.from_pretrained(tmp_path, family="bert").hidden_size == 32


def test_one_block_of_a_family_that_does_not_convert_whole(tmp_path: Path) -> None:
    config = transformers.DebertaConfig(**FIRST_ROWS["bert"].config)
    transformers.DebertaModel(config).save_pretrained(tmp_path)
    rewrite_config(tmp_path, model_type=None)
    by_class = FeedForward.from_pretrained(tmp_path, 1)
    rewrite_config(tmp_path, architectures=None)
    by_name = FeedForward.from_pretrained(tmp_path, 1, family="deberta")
    assert torch.equal(by_class.linear_1.weight, by_name.linear_1.weight)


def test_one_of_ours_is_known_by_its_code(tmp_path: Path) -> None:
    row = FIRST_ROWS["vit"]
    telling_model(source_class("ViTModel"), row.source_config()).save_pretrained(tmp_path / "source")
    hf_ffn.FFNVisionModel.from_pretrained(tmp_path / "source").save_pretrained(tmp_path / "native")
    config = json.loads((tmp_path / "native" / "config.json").read_text())
    del config["model_type"]
    (tmp_path / "native" / "config.json").write_text(json.dumps(config))
    assert hf_ffn.FFNVisionModel.from_pretrained(tmp_path / "native").loading_report.family is None


# Heads that a family calls alike, so that their tensors do not tell them apart.
CLASSIFIERS = {"FFNForSequenceClassification", "FFNForTokenClassification"}
ALIKE = {
    **dict.fromkeys(("bert", "ernie", "albert"), CLASSIFIERS),
    "modernbert": {*CLASSIFIERS, "FFNForQuestionAnswering"},
}


@pytest.mark.parametrize("row", FIRST_ROWS.values(), ids=str)
def test_the_tensors_tell_the_task_where_no_class_is_named(tmp_path: Path, row: Row) -> None:
    for ours, theirs in row.pairs:
        telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(tmp_path / theirs)
        rewrite_config(tmp_path / theirs, architectures=None)
        if ours in ALIKE.get(row.name, ()):
            with pytest.raises(ValueError, match=r"several tasks: pass task= .*sequence-classification, token"):
                model_class_for(tmp_path / theirs)
            assert model_class_for(tmp_path / theirs, "sequence-classification") is FFNForSequenceClassification
        else:
            assert model_class_for(tmp_path / theirs).__name__ == ours


def test_an_old_folder_with_a_head_converts_whole(tmp_path: Path) -> None:
    save_old("roberta", "RobertaForSequenceClassification", tmp_path / "source")
    model, report = convert(tmp_path / "source", tmp_path / "out")
    assert report is not None
    assert report.ok, report
    assert type(model) is FFNForSequenceClassification
    assert (model.loading_report.new, model.loading_report.unused) == ([], {})


@pytest.mark.parametrize("family", [None, "bert"])
def test_an_old_folders_tokenizer_comes_along(tmp_path: Path, family: str | None) -> None:
    theirs = "BertModel" if family else "BertForMaskedLM"
    save_old("bert", theirs, tmp_path / "source")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s"]
    (tmp_path / "source" / "vocab.txt").write_text("\n".join(words))
    convert(tmp_path / "source", tmp_path / "out", family=family)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("hello worlds")["input_ids"] == [2, 5, 6, 7, 3]
    export_pretrained(hf_ffn.FFNTextModel.from_pretrained(tmp_path / "out"), tmp_path / "back")
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "back")("world")["input_ids"] == [2, 6, 3]
