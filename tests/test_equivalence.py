"""The proof: it passes what is equal, and blames what is not on the right place."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

import hf_ffn
from hf_ffn import FFNTextModel, FFNVisionModel, verify
from hf_ffn.modeling_ffn import FFNPreTrainedModel

from tiny import BERT_CLASSES, VIT_CLASSES

Save = Callable[..., Path]
BASES: list[tuple[str, type[FFNPreTrainedModel]]] = [("BertModel", FFNTextModel), ("ViTModel", FFNVisionModel)]


@pytest.mark.parametrize("theirs", [*BERT_CLASSES, *VIT_CLASSES])
def test_a_faithful_conversion_passes(save_source: Save, theirs: str) -> None:
    report = verify(save_source(theirs), dtypes=("float32", "bfloat16"))
    assert report.ok, report
    assert report.first_departure is None
    kinds = {check.kind for check in report.checks}
    assert kinds == {"config", "tensor", "layer", "output", "round trip"}
    in_float32 = [check for check in report.checks if check.run.startswith("float32")]
    packed = [check for check in in_float32 if check.name == "padding left out"]
    assert len(packed) == (2 if theirs in BERT_CLASSES else 0)
    assert all(check.error < 1e-5 for check in packed)
    assert all(check.error == 0 for check in in_float32 if check not in packed)
    assert {check.run for check in report.checks if check.run} == {
        "float32 eager", "float32 sdpa", "bfloat16 eager", "bfloat16 sdpa"
    }  # fmt: skip


# Each spoils one thing in layer 1, whose blame is "layer 1".


def other_activation(model: FFNPreTrainedModel) -> None:
    model.encoder.layers[1].ffn.activation = ACT2FN["gelu_new"]


def other_eps(model: FFNPreTrainedModel) -> None:
    model.encoder.layers[1].norm_2.eps = 1e-5


def swapped_norm_order(model: FFNPreTrainedModel) -> None:
    model.encoder.layers[1].pre_norm = not model.encoder.layers[1].pre_norm


def one_number_perturbed(model: FFNPreTrainedModel) -> None:
    with torch.no_grad():
        weight = model.encoder.layers[1].attention.v_proj.weight
        weight[3, 4] = torch.nextafter(weight[3, 4], torch.tensor(9.0))


def dropped_ffn_bias(model: FFNPreTrainedModel) -> None:
    model.encoder.layers[1].ffn.linear_1.bias = None


def dropped_attention_bias(model: FFNPreTrainedModel) -> None:
    model.encoder.layers[1].attention.q_proj.bias = None


def other_scaling(model: FFNPreTrainedModel) -> None:
    model.encoder.layers[1].attention.scaling *= 1.001


def swapped_projections(model: FFNPreTrainedModel) -> None:
    attention = model.encoder.layers[1].attention
    attention.q_proj, attention.k_proj = attention.k_proj, attention.q_proj


SPOILT = [
    other_activation,
    other_eps,
    swapped_norm_order,
    one_number_perturbed,
    dropped_ffn_bias,
    dropped_attention_bias,
    other_scaling,
    swapped_projections,
]


@pytest.mark.parametrize("spoil", SPOILT)
@pytest.mark.parametrize(("theirs", "ours"), BASES)
def test_a_spoilt_layer_is_caught_and_blamed(
    save_source: Save, theirs: str, ours: type[FFNPreTrainedModel], spoil: Callable
) -> None:
    folder = save_source(theirs)
    model = ours.from_pretrained(folder)
    spoil(model)
    report = verify(folder, model)
    assert not report.ok
    assert report.first_departure == "layer 1"
    spared = [c for c in report.checks if c.kind in ("layer", "tensor") and c.layer in (0, 2)]
    assert spared
    assert all(check.ok for check in spared)


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_act", "gelu_new"), ("layer_norm_eps", 1e-5), ("num_attention_heads", 8)],
)
@pytest.mark.parametrize(("theirs", "ours"), BASES)
def test_a_spoilt_field_is_caught_and_blamed(
    save_source: Save, theirs: str, ours: type[FFNPreTrainedModel], field: str, value: float | str
) -> None:
    folder = save_source(theirs)
    report = verify(folder, ours.from_pretrained(folder, **{field: value}))
    assert not report.ok
    assert report.first_departure is not None
    assert report.first_departure.startswith(f"config field {field}: ")
    assert repr(value) in report.first_departure


@pytest.mark.parametrize(("theirs", "ours"), BASES)
def test_spoilt_embeddings_are_blamed(save_source: Save, theirs: str, ours: type[FFNPreTrainedModel]) -> None:
    folder = save_source(theirs)
    model = ours.from_pretrained(folder)
    nn.init.zeros_(next(model.embeddings.parameters()))
    report = verify(folder, model)
    assert not report.ok
    assert report.first_departure is not None
    assert report.first_departure.startswith("embeddings")


@pytest.mark.parametrize("theirs", ["BertForSequenceClassification", "ViTForImageClassification"])
def test_a_spoilt_head_is_blamed(save_source: Save, theirs: str) -> None:
    folder = save_source(theirs)
    model = getattr(hf_ffn, {**BERT_CLASSES, **VIT_CLASSES}[theirs]).from_pretrained(folder)
    nn.init.zeros_(model.classifier.bias)
    report = verify(folder, model)
    assert report.first_departure == "tensor classifier.bias"
    assert [check.name for check in report.failures if check.kind == "output"] == ["logits", "logits"]


def test_a_spoilt_activation_shows_at_initialisation_weights_too(tmp_path: Path) -> None:
    """There, outputs differ by less than 1e-5, which a tolerance would let pass."""
    from transformers import BertModel

    from tiny import bert_config

    BertModel(bert_config()).save_pretrained(tmp_path)
    model = FFNTextModel.from_pretrained(tmp_path)
    other_activation(model)
    report = verify(tmp_path, model)
    assert not report.ok
    assert report.first_departure == "layer 1"


def test_verify_leaves_the_model_as_it_was(save_source: Save) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder, attn_implementation="sdpa").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert verify(folder, model, dtypes=("bfloat16",), attn_implementations=("eager",)).ok
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert model.config.unpad == "auto"
    assert model.dtype == torch.float32
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_the_report_prints_stores_and_draws(save_source: Save, tmp_path: Path) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder)
    other_activation(model)
    report = verify(folder, model)
    text = str(report)
    assert "NOT equivalent; they part at layer 1" in text
    assert any(line.split()[:2] == ["layer", "1"] and "!" in line for line in text.splitlines())
    assert any(line.split()[:2] == ["layer", "2"] and "!" not in line for line in text.splitlines())
    stored = json.loads(report.to_json())
    assert (stored["ok"], stored["first_departure"]) == (False, "layer 1")
    assert len(stored["checks"]) == len(report.checks)
    report.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")


def test_a_report_without_checks_is_not_ok() -> None:
    assert not hf_ffn.EquivalenceReport("nowhere", "BertModel", "FFNTextModel").ok


def test_a_native_folder_has_nothing_to_be_compared_with(save_source: Save, tmp_path: Path) -> None:
    FFNTextModel.from_pretrained(save_source("BertModel")).save_pretrained(tmp_path / "native")
    with pytest.raises(ValueError, match="one of ours already"):
        verify(tmp_path / "native")


def test_a_report_names_a_folder_by_its_whole_path(
    save_source: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_source("BertModel")
    monkeypatch.chdir(folder.parent)
    assert verify(folder.name, attn_implementations=("sdpa",)).source == str(folder.resolve())
