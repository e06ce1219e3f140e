"""Saving in the native format, and failing to."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, BertForMaskedLM, BertForSequenceClassification

from hf_ffn import (
    FeedForward,
    FFNForImageClassification,
    FFNForMaskedLM,
    FFNForSequenceClassification,
    FFNTextConfig,
    FFNTextModel,
    FFNVisionConfig,
    FFNVisionModel,
)

from tiny import (
    BERT_CLASSES,
    VIT_CLASSES,
    bert_config,
    inputs_for,
    our_class,
    telling_model,
    vit_config,
)

Save = Callable[..., Path]


@pytest.mark.parametrize("theirs", [*BERT_CLASSES, *VIT_CLASSES])
def test_saving_and_loading_changes_no_byte_of_the_weights(save_source: Save, tmp_path: Path, theirs: str) -> None:
    model_class = our_class(theirs)
    model_class.from_pretrained(save_source(theirs)).save_pretrained(tmp_path / "once")
    model_class.from_pretrained(tmp_path / "once").save_pretrained(tmp_path / "twice")
    once, twice = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("once", "twice"))
    assert once == twice
    names = load_file(tmp_path / "once" / "model.safetensors")
    assert all("layers." in name for name in names if "encoder" in name and "norm." not in name)


@pytest.mark.parametrize("theirs", [*BERT_CLASSES, *VIT_CLASSES])
def test_the_tasks_auto_class_loads_a_native_folder(save_source: Save, tmp_path: Path, theirs: str) -> None:
    model_class = our_class(theirs)
    model_class.from_pretrained(save_source(theirs)).save_pretrained(tmp_path / "native")
    auto_class = getattr(transformers, model_class._auto_class)
    assert type(auto_class.from_pretrained(tmp_path / "native")) is model_class
    base = FFNVisionModel if "ViT" in theirs else FFNTextModel
    assert type(AutoModel.from_pretrained(tmp_path / "native")) is base


@pytest.mark.parametrize("theirs", ["BertForMaskedLM", "ViTForImageClassification"])
def test_a_saved_folder_is_self_sufficient(save_source: Save, tmp_path: Path, theirs: str) -> None:
    native = tmp_path / "native"
    our_class(theirs).from_pretrained(save_source(theirs)).save_pretrained(native)
    config = json.loads((native / "config.json").read_text())
    assert config["model_type"].startswith("hf_ffn_")
    for auto_class, target in config["auto_map"].items():
        module, _, class_name = target.partition(".")
        source = (native / f"{module}.py").read_text()
        assert f"class {class_name}(" in source, auto_class
        for line in source.splitlines():
            if line.startswith("from ."):
                imported = line.split()[1].removeprefix(".")
                assert (native / f"{imported}.py").exists(), line


WITHOUT_HF_FFN = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hf_ffn":
            raise ModuleNotFoundError("hf_ffn is not installed here", name="hf_ffn")

sys.meta_path.insert(0, Blocked())
import torch, transformers
from safetensors.torch import load_file
folder, case, auto_class, again = sys.argv[1:]
model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
case = load_file(case)
expected = case.pop("expected")
with torch.no_grad():
    found = model(**case)[0]
assert "hf_ffn" not in sys.modules
assert type(model).__module__.startswith("transformers_modules.")
assert torch.equal(found, expected), (found - expected).abs().max()
model.save_pretrained(again)  # saved again by somebody without hf_ffn, it is still whole
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "auto_class"),
    [
        ("BertModel", "AutoModel"),
        ("BertForMaskedLM", "AutoModelForMaskedLM"),
        ("BertForSequenceClassification", "AutoModelForSequenceClassification"),
        ("BertForTokenClassification", "AutoModelForTokenClassification"),
        ("BertForQuestionAnswering", "AutoModelForQuestionAnswering"),
        ("ViTModel", "AutoModel"),
        ("ViTForImageClassification", "AutoModelForImageClassification"),
    ],
)
def test_a_folder_loads_with_trust_remote_code_where_hf_ffn_is_not_importable(
    save_source: Save, tmp_path: Path, theirs: str, auto_class: str
) -> None:
    model = our_class(theirs).from_pretrained(save_source(theirs))
    model.save_pretrained(tmp_path / "native")
    case = inputs_for(model.config)
    with torch.no_grad():
        case["expected"] = model(**case)[0].contiguous()
    save_file(case, tmp_path / "case.safetensors")
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_HF_FFN, tmp_path / "native", tmp_path / "case.safetensors", auto_class,
         tmp_path / "again"],
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    first, again = (sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("native", "again"))
    assert first == again
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("native", "again")]
    assert weights[0] == weights[1]
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("native", "again")]
    assert configs[0] == configs[1]


def test_tied_weights_are_saved_once_and_are_one_after_loading(save_source: Save, tmp_path: Path) -> None:
    FFNForMaskedLM.from_pretrained(save_source("BertForMaskedLM")).save_pretrained(tmp_path / "native")
    names = load_file(tmp_path / "native" / "model.safetensors")
    assert "lm_head.decoder.weight" not in names
    again = FFNForMaskedLM.from_pretrained(tmp_path / "native")
    assert again.lm_head.decoder.weight is again.model.embeddings.word_embeddings.weight
    assert again.lm_head.decoder.bias is again.lm_head.bias


def test_untied_weights_stay_two(tmp_path: Path) -> None:
    source = telling_model(BertForMaskedLM, bert_config(tie_word_embeddings=False))
    source.save_pretrained(tmp_path / "source")
    model = FFNForMaskedLM.from_pretrained(tmp_path / "source")
    assert torch.equal(model.lm_head.decoder.weight, source.cls.predictions.decoder.weight)
    assert not torch.equal(model.lm_head.decoder.weight, model.model.embeddings.word_embeddings.weight)
    model.save_pretrained(tmp_path / "native")
    again = FFNForMaskedLM.from_pretrained(tmp_path / "native").state_dict()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again[name]), name


def test_layers_of_different_widths_are_saved_and_loaded(tmp_path: Path) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = FFNTextConfig(**sizes, intermediate_size=64, per_layer_config={1: {"intermediate_size": 40}})
    model = telling_model(FFNTextModel, config)
    assert [layer.ffn.linear_1.out_features for layer in model.encoder.layers] == [64, 40, 64]
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    inputs = {"input_ids": torch.arange(10).view(2, 5) + 1}
    assert torch.equal(again(**inputs).last_hidden_state, model(**inputs).last_hidden_state)
    assert FeedForward.from_pretrained(tmp_path, layer=1).linear_1.out_features == 40


def test_initialising_after_loading_overwrites_nothing(tmp_path: Path) -> None:
    model = FFNVisionModel(FFNVisionConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=2,
                                           intermediate_size=64, image_size=16, patch_size=8,
                                           layer_scale_init_value=0.1))  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    model.save_pretrained(tmp_path)
    for name, tensor in FFNVisionModel.from_pretrained(tmp_path).state_dict().items():
        assert torch.equal(tensor, torch.full_like(tensor, 0.5)), name


def test_a_failed_save_leaves_what_was_there(
    save_source: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"))
    native = tmp_path / "native"
    model.save_pretrained(native)
    before = {path.name: path.read_bytes() for path in native.iterdir()}

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transformers.modeling_utils, "safe_save_file", full_disk)
    nn.init.zeros_(model.pooler.dense.weight)
    with pytest.raises(OSError, match="no space is left in"):
        model.save_pretrained(native)
    assert {path.name: path.read_bytes() for path in native.iterdir()} == before
    with pytest.raises(OSError, match="no space is left in"):
        model.save_pretrained(tmp_path / "fresh")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["native", "source"]


def test_saving_over_another_number_of_shards_leaves_no_stale_weights(save_source: Save, tmp_path: Path) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"))
    native = tmp_path / "native"
    for size in ("20KB", "5GB", "30KB"):
        nn.init.constant_(model.pooler.dense.bias, float(size[0]))
        model.save_pretrained(native, max_shard_size=size)
        (native / "vocab.txt").write_text("kept")
        assert torch.equal(FFNTextModel.from_pretrained(native).pooler.dense.bias, model.pooler.dense.bias)
    assert not (native / "model.safetensors").exists()
    assert (native / "vocab.txt").read_text() == "kept"


def test_saving_onto_a_file_is_refused(save_source: Save, tmp_path: Path) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file"):
        model.save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_trained_classifier_loads_into_transformers_trainer_layout(save_source: Save, tmp_path: Path) -> None:
    """`Trainer` resumes with a raw, non-strict `load_state_dict`, which forgets whatever has another name."""
    model = FFNForSequenceClassification.from_pretrained(save_source("BertForSequenceClassification"))
    model.save_pretrained(tmp_path / "checkpoint")
    result = model.load_state_dict(load_file(tmp_path / "checkpoint" / "model.safetensors"), strict=False)
    assert result.missing_keys == []
    assert result.unexpected_keys == []
    assert isinstance(telling_model(BertForSequenceClassification, bert_config()), BertForSequenceClassification)


def test_a_native_checkpoint_without_head_takes_a_new_one(tmp_path: Path) -> None:
    config = FFNVisionConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=64,
                             image_size=16, patch_size=8)  # fmt: skip
    FFNVisionModel(config).save_pretrained(tmp_path)
    model = FFNForImageClassification.from_pretrained(tmp_path, id2label={0: "cat", 1: "dog"})
    assert model.loading_report.new == ["classifier"]
    assert model.config.label2id == {"cat": 0, "dog": 1}
    assert vit_config().image_size == 32
