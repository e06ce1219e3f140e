"""Whole folders: converted, exported, and left alone where that fails."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import nn
from transformers import AutoTokenizer, BertForPreTraining, BertTokenizer

import hf_ffn
from hf_ffn import (
    FFNForMaskedLM,
    FFNForSequenceClassification,
    FFNTextConfig,
    FFNTextModel,
    FFNVisionModel,
    convert,
    export_pretrained,
)
from hf_ffn.conversion import model_class_for

from tiny import BERT_CLASSES, VIT_CLASSES, bert_config, inputs_for, telling_model

Save = Callable[..., Path]
ALL_CLASSES = [*BERT_CLASSES.items(), *VIT_CLASSES.items()]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("theirs", "ours"), ALL_CLASSES)
def test_the_way_back_gives_the_file_we_started_from(
    save_source: Save, tmp_path: Path, theirs: str, ours: str
) -> None:
    folder = save_source(theirs)
    export_pretrained(getattr(hf_ffn, ours).from_pretrained(folder), tmp_path / "back")
    assert (folder / "model.safetensors").read_bytes() == (tmp_path / "back" / "model.safetensors").read_bytes()
    before, after = (json.loads((place / "config.json").read_text()) for place in (folder, tmp_path / "back"))
    assert before == after


@pytest.mark.parametrize(("theirs", "ours"), ALL_CLASSES)
def test_the_originals_class_loads_an_export_with_nothing_missing_or_unexpected(
    save_source: Save, tmp_path: Path, theirs: str, ours: str
) -> None:
    folder = save_source(theirs)
    export_pretrained(getattr(hf_ffn, ours).from_pretrained(folder), tmp_path / "back")
    source_class = getattr(transformers, theirs)
    again, info = source_class.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert {name: value for name, value in info.items() if value} == {}
    original = source_class.from_pretrained(folder)
    inputs = inputs_for(original.config)
    with torch.no_grad():
        assert torch.equal(again(**inputs)[0], original(**inputs)[0])


def test_a_trained_native_model_goes_back_through_a_folder(save_source: Save, tmp_path: Path) -> None:
    model = FFNForSequenceClassification.from_pretrained(save_source("BertForSequenceClassification"))
    nn.init.constant_(model.model.encoder.layers[1].ffn.linear_1.bias, 0.25)
    model.save_pretrained(tmp_path / "native")
    export_pretrained(FFNForSequenceClassification.from_pretrained(tmp_path / "native"), tmp_path / "back")
    bias = load_file(tmp_path / "back" / "model.safetensors")["bert.encoder.layer.1.intermediate.dense.bias"]
    assert torch.equal(bias, torch.full((64,), 0.25))


def test_a_base_model_without_pooler_goes_back(save_source: Save, tmp_path: Path) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertForMaskedLM"))
    export_pretrained(model, tmp_path / "back")
    assert not [name for name in load_file(tmp_path / "back" / "model.safetensors") if "pooler" in name]


def test_exporting_does_not_change_or_copy_the_model(save_source: Save, tmp_path: Path) -> None:
    model = FFNForMaskedLM.from_pretrained(save_source("BertForMaskedLM"))
    before = {name: (tensor.data_ptr(), tensor.clone()) for name, tensor in model.state_dict().items()}
    export_pretrained(model, tmp_path / "back", max_shard_size="20KB")
    assert len(list((tmp_path / "back").glob("model-*.safetensors"))) > 2
    for name, tensor in model.state_dict().items():
        assert before[name][0] == tensor.data_ptr()
        assert torch.equal(before[name][1], tensor)
    assert model.config.model_type == "hf_ffn_text"


SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 64, "max_position_embeddings": 16}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm_order", "pre"),
        ("gated", True),
        ("ffn_bias", False),
        ("qkv_bias", False),
        ("attention_bias", False),
        ("layer_scale_init_value", 0.1),
    ],
)
def test_what_bert_cannot_express_is_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    model = FFNTextModel(FFNTextConfig(**SIZES, **{"norm_order": "post", field: value}))
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=f"bert cannot express {field}={value!r}"):
        export_pretrained(model, tmp_path / "back", family="bert")
    assert contents(tmp_path / "back") == {"notes.txt": b"mine"}


def test_layers_of_different_widths_cannot_go_to_bert(tmp_path: Path) -> None:
    config = FFNTextConfig(**SIZES, norm_order="post", per_layer_config={1: {"intermediate_size": 40}})
    with pytest.raises(ValueError, match="intermediate_size"):
        export_pretrained(FFNTextModel(config), tmp_path / "back", family="bert")


def test_a_model_from_scratch_goes_to_a_family_on_request(tmp_path: Path) -> None:
    model = telling_model(FFNForMaskedLM, FFNTextConfig(**SIZES, norm_order="post"))
    with pytest.raises(ValueError, match="was not converted"):
        export_pretrained(model, tmp_path / "back")
    export_pretrained(model, tmp_path / "back", family="bert")
    again = transformers.BertForMaskedLM.from_pretrained(tmp_path / "back")
    inputs = {"input_ids": torch.arange(10).view(2, 5) + 1}
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("family", ["vit", "gpt2"])
def test_a_family_that_does_not_fit_is_refused(tmp_path: Path, family: str) -> None:
    model = FFNTextModel(FFNTextConfig(**SIZES, norm_order="post"))
    with pytest.raises(ValueError, match=family):
        export_pretrained(model, tmp_path / "back", family=family)


def test_a_checkpoint_is_not_overwritten_by_its_own_conversion(save_source: Save) -> None:
    folder = save_source("BertModel")
    before = contents(folder)
    with pytest.raises(ValueError, match="write to another folder"):
        convert(folder, folder)
    with pytest.raises(ValueError, match="write to another folder"):
        export_pretrained(FFNTextModel.from_pretrained(folder), folder)
    assert contents(folder) == before


# ---- convert -------------------------------------------------------------------------------------------------


def add_tokenizer(folder: Path) -> None:
    """Save a small BERT tokenizer into a folder."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s", ","]
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


@pytest.mark.parametrize(("theirs", "ours"), ALL_CLASSES)
def test_a_folder_converts_to_its_own_task_with_the_proof(
    save_source: Save, tmp_path: Path, theirs: str, ours: str
) -> None:
    model, report = convert(save_source(theirs), tmp_path / "out")
    assert type(model).__name__ == ours
    assert report is not None
    assert report.ok, report
    assert json.loads((tmp_path / "out" / "equivalence.json").read_text())["ok"] is True
    assert json.loads((tmp_path / "out" / "config.json").read_text())["architectures"] == [ours]


def test_the_tokenizer_comes_along_both_ways(save_source: Save, tmp_path: Path) -> None:
    folder = save_source("BertModel")
    add_tokenizer(folder)
    expected = AutoTokenizer.from_pretrained(folder)("hello, worlds")["input_ids"]
    assert len(set(expected)) > 4
    convert(folder, tmp_path / "out")
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("hello, worlds")["input_ids"] == expected
    export_pretrained(FFNTextModel.from_pretrained(tmp_path / "out"), tmp_path / "back")
    assert AutoTokenizer.from_pretrained(tmp_path / "back")("hello, worlds")["input_ids"] == expected


def test_a_model_whose_folder_is_gone_is_exported_without_what_lay_beside(
    save_source: Save, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    folder = save_source("BertModel")
    add_tokenizer(folder)
    model = FFNTextModel.from_pretrained(folder)
    shutil.rmtree(folder)
    export_pretrained(model, tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").exists()
    assert f"'{folder}' is there no more" in messages.text


def test_a_folder_that_is_gone_is_not_looked_for_on_the_hub(
    save_source: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: pytest.LogCaptureFixture
) -> None:
    add_tokenizer(save_source("BertModel", "runs/best"))
    monkeypatch.chdir(tmp_path)
    model = FFNTextModel.from_pretrained("runs/best")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    export_pretrained(model, tmp_path / "back")
    assert (tmp_path / "back" / "model.safetensors").exists()
    assert "'runs/best' is there no more" in messages.text


def test_the_image_processor_comes_along_both_ways(save_source: Save, tmp_path: Path) -> None:
    folder = save_source("ViTModel")
    settings = {"image_processor_type": "ViTImageProcessor", "image_mean": [0.1, 0.2, 0.3], "size": {"height": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    convert(folder, tmp_path / "out")
    export_pretrained(FFNVisionModel.from_pretrained(tmp_path / "out"), tmp_path / "back")
    for name in ("out", "back"):
        assert json.loads((tmp_path / name / "preprocessor_config.json").read_text()) == settings


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_folder_converts_in_another_dtype(save_source: Save, tmp_path: Path, dtype: str) -> None:
    _, report = convert(save_source("BertModel"), tmp_path / "out", dtype=dtype)
    assert report is not None
    assert report.ok, report
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {getattr(torch, dtype)}


def test_a_task_can_be_chosen(save_source: Save, tmp_path: Path) -> None:
    folder = save_source("BertForMaskedLM")
    model, report = convert(folder, tmp_path / "out", task="base")
    assert type(model) is FFNTextModel
    assert report is not None
    assert report.ok, report
    with pytest.raises(ValueError, match="cannot do the task 'image-classification'; it can do: base, masked-lm"):
        convert(folder, tmp_path / "other", task="image-classification")
    assert not (tmp_path / "other").exists()


def test_the_class_for_a_checkpoint_is_found(tmp_path: Path) -> None:
    telling_model(BertForPreTraining, bert_config()).save_pretrained(tmp_path / "source")
    assert model_class_for(tmp_path / "source") is FFNForMaskedLM
    FFNForMaskedLM.from_pretrained(tmp_path / "source").save_pretrained(tmp_path / "native")
    assert model_class_for(tmp_path / "native") is FFNForMaskedLM


def test_a_conversion_that_fails_its_proof_writes_nothing(
    save_source: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_source("BertModel")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    monkeypatch.setattr(hf_ffn.modeling_ffn.FeedForward, "forward", lambda self, x: self.linear_2(self.linear_1(x)))
    with pytest.raises(hf_ffn.conversion.NotEquivalentError, match="part at layer 0"):
        convert(folder, tmp_path / "out")
    assert contents(tmp_path / "out") == {"notes.txt": b"mine"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_a_full_disk_leaves_what_was_there(save_source: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_source("BertModel")
    convert(folder, tmp_path / "out", check=False)
    export_pretrained(FFNTextModel.from_pretrained(folder), tmp_path / "back")
    before = [contents(tmp_path / name) for name in ("out", "back")]

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transformers.modeling_utils, "safe_save_file", full_disk)
    with pytest.raises(OSError, match="no space is left"):
        convert(folder, tmp_path / "out", check=False)
    with pytest.raises(OSError, match="no space is left"):
        export_pretrained(FFNTextModel.from_pretrained(folder), tmp_path / "back")
    assert [contents(tmp_path / name) for name in ("out", "back")] == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "out", "source"]
