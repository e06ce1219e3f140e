"""Every family that converts: saved by the original class, converted, compared, exported and loaded back."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import PreTrainedModel

import hf_ffn
from hf_ffn import FAMILIES, export_pretrained, verify
from hf_ffn.modeling_ffn import FFNPreTrainedModel

from families import ROWS, Row
from families.rows import source_class
from tiny import telling_model

CASES = [
    pytest.param(row, ours, theirs, id=f"{row}-{theirs.partition('For')[2] or 'base'}")
    for row in ROWS
    for ours, theirs in row.pairs
]
DTYPES = ["float32", "bfloat16"]


@dataclass
class Case:
    """A saved model of the family, and what became of it."""

    folder: Path
    original: PreTrainedModel
    converted: FFNPreTrainedModel
    again: PreTrainedModel


def contents(folder: Path) -> bytes:
    """The file of weights, byte for byte."""
    return (folder / "model.safetensors").read_bytes()


def tensor_names(folder: Path) -> set[str]:
    """What a checkpoint calls its tensors."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return set(file.keys())


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Saves, converts and exports a row's model, once for all tests that want it."""
    cases: dict[tuple[str, str, str], Case] = {}

    def make(row: Row, ours: str, theirs: str, dtype: str) -> Case:
        key = (str(row), theirs, dtype)
        if key not in cases:
            cases[key] = convert(row, ours, theirs, dtype, tmp_path_factory.mktemp("family"))
        return cases[key]

    return make


def convert(row: Row, ours: str, theirs: str, dtype: str, folder: Path) -> Case:
    """Through files in every dialect that the class writes, and back."""
    source = telling_model(source_class(theirs), row.source_config()).to(getattr(torch, dtype))
    source.save_pretrained(folder / "source")
    source.save_pretrained(folder / "memory", save_original_format=False)
    model_class = getattr(hf_ffn, ours)
    converted = model_class.from_pretrained(folder / "source").eval()
    assert str(converted.loading_report) == ""
    if tensor_names(folder / "source") != tensor_names(folder / "memory"):
        from_memory = model_class.from_pretrained(folder / "memory").state_dict()
        for name, tensor in converted.state_dict().items():
            assert torch.equal(tensor, from_memory[name]), name

    export_pretrained(converted, folder / "back")
    if row.not_kept:
        original = source_class(theirs).from_pretrained(folder / "source")
        original.save_pretrained(folder / "source", save_original_format=False)
    assert contents(folder / "back") == contents(folder / "source")
    before, after = (json.loads((folder / name / "config.json").read_text()) for name in ("source", "back"))
    assert before == after
    again, info = source_class(theirs).from_pretrained(folder / "back", output_loading_info=True)
    assert {key: value for key, value in info.items() if value} == {}
    if row.not_kept:
        source.save_pretrained(folder / "source")
    return Case(folder / "source", source_class(theirs).from_pretrained(folder / "source"), converted, again)


def outputs_of(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything that a model gives for inputs."""
    dtype = model.dtype
    inputs = {name: each.to(dtype) if each.is_floating_point() else each for name, each in inputs.items()}
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    flat = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    return flat | {f"hidden_states.{index}": value for index, value in enumerate(outputs.hidden_states)}


@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_a_family_converts_exactly_and_goes_back(
    case_of: Any, row: Row, ours: str, theirs: str, dtype: str, attention: str, padded: bool
) -> None:
    if padded and not row.pads:
        padded = False
    case = case_of(row, ours, theirs, dtype)
    same_back_end = getattr(case.original, f"_supports_{attention}", True)
    for model in (case.original, case.again):
        model.set_attn_implementation(attention if same_back_end else "eager")
    case.converted.set_attn_implementation(attention)
    inputs = row.inputs(case.original.config, padded)
    expected, again = (outputs_of(model, inputs) for model in (case.original, case.again))
    found = outputs_of(case.converted, inputs)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(again[name], tensor), name
    if dtype == "float32" and same_back_end and not row.family.rounding:
        for name, tensor in expected.items():
            assert torch.equal(found[name], tensor), name
        return
    reference = copy.deepcopy(case.original).double()
    if reference._supports_sdpa:
        # Written out, attention takes softmax in float32.
        reference.set_attn_implementation("sdpa")
    exact = outputs_of(reference, inputs)
    for name in expected:
        theirs_off, ours_off = (torch.dist(each[name].double(), exact[name]) for each in (expected, found))
        assert ours_off <= 3 * theirs_off, name


@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_dropout_falls_where_the_originals_falls(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    # Each at a rate of its own, so that none is taken for another; the eager back end draws as it is written.
    config = row.source_config()
    rates = [name for name in sorted(config.to_dict()) if "dropout" in name and name != "token_dropout"]
    for index, name in enumerate(rates):
        setattr(config, name, 0.1 + 0.04 * index)
    telling_model(source_class(theirs), config).save_pretrained(tmp_path)
    models = [
        source_class(theirs).from_pretrained(tmp_path, attn_implementation="eager"),
        getattr(hf_ffn, ours).from_pretrained(tmp_path, attn_implementation="eager"),
    ]
    inputs = row.inputs(config, row.pads)
    results = []
    for model in models:
        torch.manual_seed(7)
        results.append(model.train()(**inputs)[0])
        assert not torch.equal(results[-1], model.eval()(**inputs)[0])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-5 if row.family.rounding else 0)


@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_the_proof_passes_for_every_family(case_of: Any, row: Row, ours: str, theirs: str) -> None:
    case = case_of(row, ours, theirs, "float32")
    report = verify(case.folder, case.converted)
    assert report.ok, report
    assert sum(check.kind == "layer" for check in report.checks) >= 3 * 2
    assert report.source_class == theirs


@pytest.mark.parametrize(
    ("row", "theirs", "ours"),
    [pytest.param(row, *pair, id=f"{row}-{pair[0]}") for row in ROWS for pair in row.family.also_reads.items()],
)
def test_a_class_that_holds_more_is_read_and_the_rest_named(tmp_path: Path, row: Row, theirs: str, ours: str) -> None:
    source = telling_model(source_class(theirs), row.source_config())
    source.save_pretrained(tmp_path)
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    assert model.loading_report.new == []
    assert set(model.loading_report.unused) > set()
    inputs = row.inputs(source.config, row.pads)
    expected, found = (outputs_of(each, inputs) for each in (source.eval(), model.eval()))
    for name in expected.keys() & found.keys():
        if not row.family.rounding:
            assert torch.equal(found[name], expected[name]), name


def test_every_family_has_its_row() -> None:
    assert {row.name for row in ROWS} == set(FAMILIES)
    tested = {(row.name, theirs) for row in ROWS for _, theirs in row.pairs}
    assert tested == {(family.name, theirs) for family in FAMILIES.values() for theirs in family.heads.values()}
    assert len({str(row) for row in ROWS}) == len(ROWS)
