"""Classes that others derive from ours: what they add begins as they say, and is named in the report."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hf_ffn import FFNForSequenceClassification, FFNTextConfig, FFNTextModel, FFNVisionModel
from hf_ffn.modeling_ffn_text import FFNTextPreTrainedModel

from families import ROWS
from families.rows import source_class
from tiny import drop, rewrite, telling_model

Save = Callable[..., Path]


class Scaled(nn.Linear):
    """A linear layer with a factor that is never saved."""

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__(size, outputs)
        self.register_buffer("factor", torch.full((outputs,), 8.0), persistent=False)


class WithHead(FFNForSequenceClassification):
    """A second head, a factor of its own, adapters in the blocks, and buffers that are saved and not."""

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.second = nn.Sequential(Scaled(config.hidden_size, 7), nn.LayerNorm(7))
        self.temperature = nn.Parameter(torch.full((3,), 0.25))
        for block in self.model.encoder.layers:
            block.adapter = nn.Linear(config.hidden_size, 2)
        self.register_buffer("seen", torch.arange(4.0))
        self.register_buffer("scale", torch.full((2,), 8.0), persistent=False)
        self.post_init()


class OfEncoder(FFNTextPreTrainedModel):
    """The encoder with a head that none of our classes has."""

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__(config)
        self.model = FFNTextModel(config)
        for block in self.model.encoder.layers:
            block.adapter = Scaled(config.hidden_size, 2)
        self.score = nn.Linear(config.hidden_size, 1)
        self.weights = nn.Parameter(torch.linspace(0, 1, 5))
        self.post_init()


class Renamed(FFNForSequenceClassification):
    """Nothing of its own but the name."""


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_subclass_adds_begins_as_its_code_says(
    save_source: Save, tmp_path: Path, native: bool, dtype: torch.dtype
) -> None:
    folder = save_source("BertForSequenceClassification", num_labels=3)
    before = FFNForSequenceClassification.from_pretrained(folder, dtype=dtype)
    if native:
        before.save_pretrained(tmp_path / "native")
        folder = tmp_path / "native"
    model = WithHead.from_pretrained(folder, dtype=dtype)
    for name, tensor in before.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    adapters = [f"model.encoder.layers.{layer}.adapter" for layer in range(3)]
    assert model.loading_report.new == [*adapters, "second", "seen", "temperature"]
    assert model.temperature.tolist() == [0.25] * 3
    assert (model.seen.tolist(), model.scale.tolist()) == ([0, 1, 2, 3], [8, 8])
    for linear in (model.second[0], *(block.adapter for block in model.model.encoder.layers)):
        assert 0 < linear.weight.abs().max() <= 2 * model.config.initializer_range
        assert not linear.bias.any()
    assert model.second[1].weight.tolist() == [1] * 7

    # Once trained and saved, all of it comes back.
    with torch.no_grad():
        model.temperature.fill_(0.5)
        model.seen.add_(1)
    model.save_pretrained(tmp_path / "own")
    again = WithHead.from_pretrained(tmp_path / "own")
    assert again.loading_report.new == []
    assert again.scale.tolist() == [8, 8]
    assert again.second[0].factor.tolist() == [8] * 7
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_half_of_what_a_subclass_adds_is_a_fault(save_source: Save, tmp_path: Path) -> None:
    WithHead.from_pretrained(save_source("BertForSequenceClassification")).save_pretrained(tmp_path / "own")
    rewrite(tmp_path / "own", drop("second.1.bias"))
    with pytest.raises(ValueError, match=r"missing: second\.1\.bias"):
        WithHead.from_pretrained(tmp_path / "own")


def test_a_missing_part_of_ours_is_a_fault_in_a_subclass_too(save_source: Save) -> None:
    folder = save_source("BertForSequenceClassification")
    rewrite(folder, drop("layer.1.intermediate.dense.bias"))
    with pytest.raises(ValueError, match=r"missing: model\.encoder\.layers\.1\.ffn\.linear_1\.bias"):
        WithHead.from_pretrained(folder)


@pytest.mark.parametrize("theirs", ["BertModel", "BertForMaskedLM"])
def test_an_encoder_with_a_head_of_its_own(save_source: Save, theirs: str) -> None:
    folder = save_source(theirs)
    model = OfEncoder.from_pretrained(folder)
    for name, tensor in FFNTextModel.from_pretrained(folder).state_dict().items():
        assert torch.equal(model.state_dict()[f"model.{name}"], tensor), name
    adapters = {f"model.encoder.layers.{layer}.adapter" for layer in range(3)}
    assert set(model.loading_report.new) == {"score", "weights"} | adapters | (
        {"model.pooler"} if "MaskedLM" in theirs else set()
    )
    assert all(block.adapter.factor.tolist() == [8, 8] for block in model.model.encoder.layers)
    assert torch.equal(model.weights, torch.linspace(0, 1, 5))


@pytest.mark.parametrize("name", ["roberta", "distilbert"])
def test_names_are_those_of_the_class_that_it_was_derived_from(tmp_path: Path, name: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    theirs = row.family.heads["FFNForSequenceClassification"]
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(tmp_path)
    model, expected = (each.from_pretrained(tmp_path) for each in (Renamed, FFNForSequenceClassification))
    assert model.loading_report.new == []
    for key, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[key], tensor), key


def test_what_takes_more_than_a_configuration(save_source: Save) -> None:
    class Sized(FFNVisionModel):
        def __init__(self, config: Any, width: int, start: float = 1.0) -> None:
            super().__init__(config)
            self.extra = nn.Parameter(torch.full((width,), start))
            self.post_init()

    folder = save_source("ViTModel")
    model = Sized.from_pretrained(folder, 6)
    assert (model.extra.tolist(), model.loading_report.new) == ([1] * 6, ["extra"])
    by_name = Sized.from_pretrained(folder, width=5, start=0.5)
    assert (by_name.extra.tolist(), by_name.loading_report.new) == ([0.5] * 5, ["extra"])
