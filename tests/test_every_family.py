"""Every family that converts: saved by the original class, converted, compared, exported and loaded back."""

import copy
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import PreTrainedModel
from transformers.models.dinov2 import modeling_dinov2

import hf_ffn
from hf_ffn import FAMILIES, export_pretrained, optimize_for_inference, verify
from hf_ffn.conversion import pooler_keyword
from hf_ffn.families.table import table
from hf_ffn.modeling_ffn import FFNPreTrainedModel
from hf_ffn.registry_ffn import FOREIGN_FAMILIES

from families import ROWS, Row, text_rows
from families.rows import source_class
from tiny import telling_model

CASES = [
    pytest.param(row, ours, theirs, id=f"{row}-{theirs.partition('For')[2] or 'base'}")
    for row in ROWS
    for ours, theirs in row.pairs
]


def run_of(row: Row, ours: str, theirs: str, dtype: str, name: str) -> Any:
    """A case of the test of every family; in half precision all but one for each row are slow."""
    quick = dtype == "float32" or (ours, theirs) == row.pairs[0]
    return pytest.param(row, ours, theirs, dtype, id=f"{name}-{dtype}", marks=() if quick else pytest.mark.slow)


RUNS = [run_of(*case.values, dtype, str(case.id)) for case in CASES for dtype in ("float32", "bfloat16")]
BASES = ("FFNTextModel", "FFNVisionModel")
ROOT = Path(__file__).parent.parent


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
    source = telling_model(source_class(theirs), row.source_config(theirs)).to(getattr(torch, dtype))
    source.save_pretrained(folder / "source")
    source.save_pretrained(folder / "memory", save_original_format=False)
    model_class = getattr(hf_ffn, ours)
    converted = model_class.from_pretrained(folder / "source").eval()
    assert converted.loading_report.left_out == (list(row.left_out) if ours in BASES else [])
    said = vars(converted.loading_report)
    assert [said[name] for name in ("new", "unused", "notes")] == [[], {}, []]
    if tensor_names(folder / "source") != tensor_names(folder / "memory"):
        from_memory = model_class.from_pretrained(folder / "memory").state_dict()
        for name, tensor in converted.state_dict().items():
            assert torch.equal(tensor, from_memory[name]), name

    export_pretrained(converted, folder / "back")
    pooler = pooler_keyword(converted, source_class(theirs))
    if row.not_kept:
        original = source_class(theirs).from_pretrained(folder / "source", **pooler)
        original.save_pretrained(folder / "source", save_original_format=False)
    assert contents(folder / "back") == contents(folder / "source")
    before, after = (json.loads((folder / name / "config.json").read_text()) for name in ("source", "back"))
    assert before == after
    again, info = source_class(theirs).from_pretrained(folder / "back", output_loading_info=True, **pooler)
    assert {key: value for key, value in info.items() if value} == {}
    if row.not_kept:
        source.save_pretrained(folder / "source")
    original = source_class(theirs).from_pretrained(folder / "source", **pooler)
    return Case(folder / "source", original, converted, again)


def outputs_of(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything that a model gives for inputs."""
    dtype = model.dtype
    inputs = {name: each.to(dtype) if each.is_floating_point() else each for name, each in inputs.items()}
    with torch.no_grad():
        outputs = model(**inputs, output_hidden_states=True)
    flat = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
    return flat | {f"hidden_states.{index}": value for index, value in enumerate(outputs.hidden_states)}


@pytest.mark.parametrize(("row", "ours", "theirs", "dtype"), RUNS)
def test_a_family_converts_exactly_and_goes_back(case_of: Any, row: Row, ours: str, theirs: str, dtype: str) -> None:
    case = case_of(row, ours, theirs, dtype)
    for attention in ("eager", "sdpa"):
        same_back_end = getattr(case.original, f"_supports_{attention}", True)
        for model in (case.original, case.again):
            model.set_attn_implementation(attention if same_back_end else "eager")
        case.converted.set_attn_implementation(attention)
        bitwise = dtype == "float32" and same_back_end and not row.family.of(case.converted.config).rounding
        for padded in (True, False) if row.pads else (False,):
            where = f"{attention}, {'padded' if padded else 'whole'}"
            inputs = row.inputs(case.original.config, padded)
            expected, again = (outputs_of(each, row.prepared(each, inputs)) for each in (case.original, case.again))
            found = outputs_of(case.converted, row.inputs_for_ours(case.converted, padded))
            expected = {name: tensor for name, tensor in expected.items() if name not in row.ours_lacks}
            assert found.keys() == expected.keys(), where
            for name, tensor in expected.items():
                assert torch.equal(again[name], tensor), f"{name}, {where}"
                assert not bitwise or torch.equal(found[name], tensor), f"{name}, {where}"
            if not bitwise:
                compare_errors(case.original, row, inputs, expected, found, where)


def compare_errors(
    original: PreTrainedModel,
    row: Row,
    inputs: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    found: dict[str, torch.Tensor],
    where: str,
) -> None:
    """Ours may be three times as far as the original's results from those in float64, at most."""
    reference = copy.deepcopy(original).double()
    if reference._supports_sdpa:
        # Written out, attention takes softmax in float32.
        reference.set_attn_implementation("sdpa")
    exact = outputs_of(reference, row.prepared(reference, inputs))
    for name in expected:
        theirs_off, ours_off = (torch.dist(each[name].double(), exact[name]) for each in (expected, found))
        # Of a few logits the original may hit some by chance, but none is nearer than its last digit.
        last_digit = torch.finfo(expected[name].dtype).eps / 2 * exact[name].abs().max()
        assert ours_off <= 3 * max(theirs_off, last_digit), f"{name}, {where}"


@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_dropout_falls_where_the_originals_falls(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    # Each at a rate of its own, so that none is taken for another; the eager back end draws as it is written.
    config = row.source_config(theirs)
    own = row.own_part(config)
    rates = [name for name in sorted(own.to_dict()) if "dropout" in name and name != "token_dropout"]
    for index, name in enumerate(rates):
        setattr(own, name, 0.1 + 0.04 * index)
    if hasattr(modeling_dinov2, "Dinov2SelfOutput") and row.name.startswith("dinov2"):
        # Older versions of transformers also drop what attention gives.
        own.hidden_dropout_prob = 0.0
    if hasattr(own, "drop_path_rate"):
        # Which samples stochastic depth leaves out is drawn otherwise.
        own.drop_path_rate = 0.0
    telling_model(source_class(theirs), config).save_pretrained(tmp_path)
    models = [
        source_class(theirs).from_pretrained(tmp_path, attn_implementation="eager"),
        getattr(hf_ffn, ours).from_pretrained(tmp_path, attn_implementation="eager"),
    ]
    inputs = (row.prepared(models[0], row.inputs(config, row.pads)), row.inputs_for_ours(models[1], row.pads))
    models[1].config.unpad = "never"
    results = []
    for model, its_inputs in zip(models, inputs, strict=True):
        torch.manual_seed(7)
        results.append(model.train()(**its_inputs)[0])
        assert not torch.equal(results[-1], model.eval()(**its_inputs)[0])
    torch.testing.assert_close(
        results[0], results[1], rtol=0, atol=1e-5 if row.family.of(models[1].config).rounding else 0
    )


@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_the_proof_passes_for_every_family(case_of: Any, row: Row, ours: str, theirs: str) -> None:
    case = case_of(row, ours, theirs, "float32")
    report = verify(case.folder, case.converted)
    assert report.ok, report
    assert sum(check.kind == "layer" for check in report.checks) >= 3 * 2
    assert report.source_class == theirs


@pytest.mark.usefixtures("bfloat16_anywhere")
@pytest.mark.parametrize(("dtype", "allowed"), [(None, 1e-5), ("bfloat16", 0.1), ("int8", 0.2)])
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_family_is_prepared_for_inference(case_of: Any, row: Row, dtype: Any, allowed: float) -> None:
    model = copy.deepcopy(case_of(row, *row.pairs[0], "float32").converted)
    inputs = row.inputs_for_ours(model, row.pads)
    real = inputs["attention_mask"] == 1 if row.pads and "attention_mask" in inputs else slice(None)
    with torch.no_grad():
        expected = model(**inputs)[0][real]
        assert not optimize_for_inference(model, dtype).fallbacks
        found = model(**inputs)[0][real]
    assert torch.dist(found, expected) < allowed * expected.norm()


@pytest.mark.parametrize(
    ("row", "theirs", "ours"),
    [pytest.param(row, *pair, id=f"{row}-{pair[0]}") for row in ROWS for pair in row.family.also_reads.items()],
)
def test_a_class_that_holds_more_is_read_and_the_rest_named(tmp_path: Path, row: Row, theirs: str, ours: str) -> None:
    source = telling_model(source_class(theirs), row.source_config(theirs))
    source.save_pretrained(tmp_path)
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    assert model.loading_report.new == []
    assert set(model.loading_report.unused) > set()
    inputs = row.inputs(source.config, row.pads)
    # Of a model with several towers the one that is taken out
    source = getattr(source, "vision_model", source).eval()
    expected = outputs_of(source, row.prepared(source, inputs))
    found = outputs_of(model.eval(), inputs)
    for name in expected.keys() & found.keys():
        if not row.family.of(model.config).rounding:
            assert torch.equal(found[name], expected[name]), name


def test_every_family_has_its_row() -> None:
    # Those of another library than transformers have a test file of their own.
    families = [family for family in FAMILIES.values() if family.export is None]
    assert {row.name for row in ROWS} == {family.name for family in families}
    tested = {(row.name, theirs) for row in ROWS for _, theirs in row.pairs}
    assert tested == {(family.name, theirs) for family in families for theirs in family.heads.values()}
    assert len({str(row) for row in ROWS}) == len(ROWS)


def python_blocks(text: str) -> list[str]:
    """The fenced Python code of a Markdown text."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_worked_example_of_a_family_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, row_line = python_blocks((ROOT / "CONTRIBUTING.md").read_text())
    assert len(file.splitlines()) <= 80
    module = {"__name__": "hf_ffn.families.megatron_bert", "__package__": "hf_ffn.families"}
    exec(file, module)
    family = module["MEGATRON_BERT"]
    assert family.name not in FAMILIES
    monkeypatch.setitem(FAMILIES, family.name, family)
    monkeypatch.setitem(FOREIGN_FAMILIES, family.model_type, family)
    row = eval(row_line, vars(text_rows))
    assert len(row.pairs) == 5
    for ours, theirs in row.pairs:
        case = convert(row, ours, theirs, "float32", tmp_path / theirs)
        report = verify(case.folder, case.converted)
        assert report.ok, report


def test_the_readme_holds_the_table_of_families() -> None:
    assert f"\n\n{table()}\n\n" in (ROOT / "README.md").read_text()
