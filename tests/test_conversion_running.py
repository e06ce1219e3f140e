"""How a model is run is not what it is: it stops no export and no proof, and travels where the family has a place."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import hf_ffn
import hf_ffn_cli
from hf_ffn import (
    FAMILIES,
    FFNForMaskedLM,
    FFNForSequenceClassification,
    FFNTextModel,
    convert,
    export_pretrained,
    verify,
)
from hf_ffn.families.family import HOW_IT_RUNS, look_up

from families import ROWS, Row
from families.rows import source_class
from tiny import ffn_text_config, rewrite_config, telling_model

# One row of each family that transformers has, and the class with the most fields of its own that it has.
FAMILY_ROWS = list({row.name: row for row in reversed(ROWS)}.values())

CHOSEN: dict[str, Any] = {
    "unpad": "never",
    "feed_forward_memory": "pre_activation",
    "drop_path_rate": 0.31,
    "drop_path_constant": True,
    "initializer_range": 0.05,
    "problem_type": "multi_label_classification",
    "interpolate_pos_encoding": True,
    # As folders have it that were converted before there was this field
    "spectrogram_input": False,
    "pos_embed_shift": 0.1,
    "pos_embed_jitter": 1.5,
    "pos_embed_rescale": 1.5,
    **{name: 0.31 for name in HOW_IT_RUNS if "dropout" in name},
}


def choose(config: Any) -> None:
    """Have a model run in every way that it was not run in before."""
    for name, value in CHOSEN.items():
        # Layers that share weights cannot differ by how deep they are.
        if hasattr(config, name) and not (name == "drop_path_rate" and config.num_hidden_groups):
            setattr(config, name, value)


def test_every_such_field_is_tried() -> None:
    assert {*CHOSEN, "dtype"} == HOW_IT_RUNS


@pytest.mark.parametrize("row", FAMILY_ROWS, ids=str)
def test_it_stops_no_export_and_no_proof(tmp_path: Path, row: Row) -> None:
    ours, theirs = row.pairs[-1]
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(tmp_path / "source")
    original = source_class(theirs).from_pretrained(tmp_path / "source")
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path / "source")
    choose(model.config)
    report = verify(tmp_path / "source", model, attn_implementations=("sdpa",))
    assert report.ok, report
    assert all(getattr(model.config, name) == value for name, value in CHOSEN.items() if hasattr(model.config, name)
               and name != "drop_path_rate")  # fmt: skip

    model.save_pretrained(tmp_path / "native")
    again = getattr(hf_ffn, ours).from_pretrained(tmp_path / "native")
    export_pretrained(again, tmp_path / "back")
    back = source_class(theirs).from_pretrained(tmp_path / "back")
    config = row.own_part(back.config)
    for name, path in row.family.fields.items():
        if name in HOW_IT_RUNS:
            assert look_up(config, path) == getattr(model.config, name), name
    for name, tensor in original.state_dict().items():
        assert torch.equal(tensor, back.state_dict()[name]), name
    inputs = row.inputs(original.config, row.pads)
    with torch.no_grad():
        before, after = (each.eval()(**row.prepared(each, inputs))[0] for each in (original, back))
    assert torch.equal(before, after)


@pytest.mark.parametrize("name", ["mpnet", "bert", "dinov2"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_precision_and_back_end_stop_no_export(tmp_path: Path, name: str, attention: str) -> None:
    row = next(row for row in FAMILY_ROWS if row.name == name)
    ours, theirs = row.pairs[0]
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(tmp_path / "source")
    model_class = getattr(hf_ffn, ours)
    model = model_class.from_pretrained(tmp_path / "source", dtype=torch.bfloat16, attn_implementation=attention)
    model.gradient_checkpointing_enable()
    model.config.output_hidden_states = True
    export_pretrained(model, tmp_path / "back")
    expected = source_class(theirs).from_pretrained(tmp_path / "source", dtype=torch.bfloat16).state_dict()
    back = source_class(theirs).from_pretrained(tmp_path / "back")
    assert back.config.dtype == torch.bfloat16
    for tensor_name, tensor in back.state_dict().items():
        assert torch.equal(tensor, expected[tensor_name]), tensor_name


@pytest.mark.parametrize(
    "entry",
    [
        {"output_attentions": True},
        {"output_hidden_states": True},
        {"return_dict": False},
        {"chunk_size_feed_forward": 3},
        {"drop_path_rate": 0.1},
        {"hidden_dropout_prob": 0},
        {"problem_type": "regression"},
        {"unpad": "never"},
    ],
    ids=str,
)
@pytest.mark.parametrize("theirs", ["BertForSequenceClassification", "ViTModel"])
def test_a_source_may_say_how_it_is_run(save_source: Any, tmp_path: Path, theirs: str, entry: dict) -> None:
    source = save_source(theirs)
    rewrite_config(source, **entry)
    model, report = convert(source, tmp_path / "native")
    assert report is not None
    assert report.ok, report
    export_pretrained(model, tmp_path / "back")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert {name: config.get(name) for name in entry} == entry
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()


def test_a_model_of_ours_may_give_out_something_else(save_source: Any, tmp_path: Path) -> None:
    source = save_source("BertModel")
    model = FFNTextModel.from_pretrained(source, attn_implementation="eager")
    model.config.return_dict, model.config.output_attentions, model.config.output_hidden_states = False, True, True
    assert verify(source, model).ok
    export_pretrained(model, tmp_path / "back")
    assert source_class("BertModel").from_pretrained(tmp_path / "back").config.return_dict is True


def test_a_family_with_one_dropout_for_several_writes_the_first_and_says_what_is_lost(
    tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    of_distilbert = {**FAMILIES["distilbert"].fixed, "hidden_dropout_prob": 0.2, "ffn_dropout_prob": 0.3}
    del of_distilbert["layer_norm_eps"]
    model = telling_model(FFNForMaskedLM, ffn_text_config(**of_distilbert))
    export_pretrained(model, tmp_path / "back", family="distilbert")
    config = source_class("DistilBertForMaskedLM").from_pretrained(tmp_path / "back").config
    # None of ours stands for hidden_dropout_prob; its class takes no None.
    assert (config.dropout, config.seq_classif_dropout) == (0.2, 0.2)
    assert "no place for what only training reads: hidden_dropout_prob=0.2, ffn_dropout_prob=0.3" in messages.text


def test_layers_may_differ_in_what_only_training_reads(tmp_path: Path) -> None:
    different = {1: {"activation_dropout_prob": 0.4}}
    model = telling_model(FFNTextModel, ffn_text_config(norm_order="post", per_layer_config=different))
    export_pretrained(model, tmp_path / "back", family="bert")
    inputs = {"input_ids": torch.arange(10).view(2, 5) + 1}
    back = source_class("BertModel").from_pretrained(tmp_path / "back")
    with torch.no_grad():
        assert torch.equal(back(**inputs)[0], model(**inputs)[0])


def test_the_command_exports_a_model_that_was_run_otherwise(
    tmp_path: Path, save_source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save_source("BertForSequenceClassification", hidden_dropout_prob=0.0, classifier_dropout=0.4)
    model = FFNForSequenceClassification.from_pretrained(source, unpad="never", feed_forward_memory="input")
    model.save_pretrained(tmp_path / "native")
    monkeypatch.setattr(sys, "argv", ["hf-ffn", "export", str(tmp_path / "native"), str(tmp_path / "back")])
    with pytest.raises(SystemExit) as ended:
        hf_ffn_cli.main()
    assert not ended.value.code
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()
