"""Loading checkpoints of every family for another task, with other labels, block by block, and natively."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModel, EsmModel

import hf_ffn
from hf_ffn import FAMILIES, FeedForward, FFNForSequenceClassification, FFNForTokenClassification, FFNTextModel
from hf_ffn.modeling_ffn import FFNPreTrainedModel

from families import ROWS, Row
from families.rows import source_class
from tiny import drop, labels_for, rewrite, telling_model

NAMES = {0: "entailment", 1: "neutral", 2: "contradiction"}
# All of a family's forms, or the first alone where forms do not matter
PAIRS = [
    pytest.param(row, ours, theirs, id=f"{row}-{theirs.partition('For')[2] or 'base'}")
    for row in ROWS
    for ours, theirs in row.pairs
]
FIRST = {id(row) for row in {row.name: row for row in reversed(ROWS)}.values()}
PAIRS_OF_FIRST = [each for each in PAIRS if id(each.values[0]) in FIRST]
CLASSIFIERS = [each for each in PAIRS_OF_FIRST if "Classification" in each.values[1]]
BASES = [each for each in PAIRS if each.values[1].endswith("Model")]
BASE_OF = {"hf_ffn_text": "FFNTextModel", "hf_ffn_vision": "FFNVisionModel"}
# What is no part of what a head learns from, and stays as it is for the way back
NOT_OF_THE_TASK = ("contact_head", "embeddings.mask_token", "model.pooler.")
# What an encoder lacks of a model with a head
NEW_PARTS = {
    *("classifier", "head", "qa_outputs", "lm_head", "model.pooler", "pooled_norm"),
    *("cls_classifier", "distillation_classifier"),
}


def save(row: Row, theirs: str, folder: Path, **config: Any) -> None:
    """A telling model of one of a row's classes."""
    source_config = row.source_config(theirs)
    source_config.update(config)
    telling_model(source_class(theirs), source_config).save_pretrained(folder)


def save_classifier(row: Row, theirs: str, folder: Path) -> None:
    """The same with three labels that have names."""
    save(row, theirs, folder, id2label=NAMES, label2id={name: index for index, name in NAMES.items()})


def outputs_of(model: FFNPreTrainedModel, row: Row) -> torch.Tensor:
    """The first output."""
    with torch.no_grad():
        return model.eval()(**row.inputs_for_ours(model, row.pads))[0]


def classifiers_of(model: FFNPreTrainedModel) -> dict[str, torch.nn.Linear]:
    """What has a row for each label."""
    return {name: part for name, part in model.named_children() if name.endswith("classifier")}


@pytest.mark.parametrize(("row", "ours", "theirs"), CLASSIFIERS)
def test_the_same_labels_in_another_order_move_the_rows(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    save_classifier(row, theirs, tmp_path)
    model_class = getattr(hf_ffn, ours)
    before = model_class.from_pretrained(tmp_path)
    after = model_class.from_pretrained(tmp_path, id2label={0: "contradiction", 1: "entailment", 2: "neutral"})
    assert after.loading_report.new == []
    expected, found = outputs_of(before, row), outputs_of(after, row)
    torch.testing.assert_close(found, expected[..., [2, 0, 1]], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("row", "ours", "theirs"), CLASSIFIERS)
@pytest.mark.parametrize("labels", [dict(enumerate("abcde")), {0: "good", 1: "bad", 2: "ugly"}], ids=len)
def test_other_labels_make_a_new_classifier_and_leave_the_rest(
    tmp_path: Path, row: Row, ours: str, theirs: str, labels: dict[int, str]
) -> None:
    save_classifier(row, theirs, tmp_path)
    model_class = getattr(hf_ffn, ours)
    kept = model_class.from_pretrained(tmp_path).state_dict()
    model = model_class.from_pretrained(tmp_path, id2label=labels)
    classifiers = classifiers_of(model)
    for classifier in classifiers.values():
        assert classifier.weight.shape[0] == len(labels)
        # A new head is drawn at initializer_range, the telling one was five times as wide.
        assert 0 < classifier.weight.abs().max() <= 2 * model.config.initializer_range
    assert [part.partition(" (")[0] for part in model.loading_report.new] == [" and ".join(classifiers)]
    for name, tensor in model.state_dict().items():
        assert name.partition(".")[0] in classifiers or torch.equal(tensor, kept[name]), name


@pytest.mark.parametrize(("row", "ours", "theirs"), PAIRS_OF_FIRST)
def test_an_encoder_loads_for_every_task_with_a_new_head(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    save(row, row.family.heads[BASE_OF[row.family.native_type]], tmp_path)
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    encoder = pieces(AutoModel.from_pretrained(tmp_path).state_dict())
    new = model.loading_report.new
    assert set(new) <= NEW_PARTS
    assert bool(new) == ("For" in ours)
    assert len(encoder) > 10
    for name, tensor in model.state_dict().items():
        assert name.startswith(tuple(new)) or any(torch.equal(tensor.flatten(), each) for each in encoder), name


def pieces(tensors: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Tensors, and the parts that fused ones consist of, whatever their shapes."""
    whole = list(tensors.values())
    return [part.flatten() for each in whole for count in (1, 2, 3) if each.dim() for part in each.chunk(count)]


@pytest.mark.parametrize(("row", "ours", "theirs"), PAIRS)
def test_everything_that_is_trained_gets_a_gradient(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    save(row, theirs, tmp_path)
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    inputs = row.inputs_for_ours(model, row.pads)
    if ours == "FFNVisionModel" and model.config.use_mask_token:
        down, across = model.config.grid_size
        inputs["bool_masked_pos"] = torch.arange(2 * down * across).view(2, -1) % 3 == 0
    labels = labels_for(model, inputs)
    outputs = model(**inputs, **labels)
    loss = outputs.loss if labels else sum(each.square().sum() for each in outputs.values() if each is not None)
    loss.backward()
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    assert [name for name, each in trained.items() if each.grad is None] == []
    left = {name for name, each in model.named_parameters() if not each.requires_grad}
    assert all(name == "lm_head.bias" or any(part in name for part in NOT_OF_THE_TASK) for name in left)
    assert not left or "For" in ours or model.contact_head is not None


@pytest.mark.parametrize(("row", "ours", "theirs"), PAIRS)
def test_what_is_saved_natively_loads_as_it_was(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    save(row, theirs, tmp_path / "source")
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path / "source")
    model.save_pretrained(tmp_path / "native")
    again = getattr(hf_ffn, ours).from_pretrained(tmp_path / "native")
    left_out = "  left out, the checkpoint has none: pooler" if row.left_out and ours.endswith("Model") else ""
    assert str(again.loading_report) == str(model.loading_report) == left_out
    assert again.state_dict().keys() == model.state_dict().keys()
    assert torch.equal(outputs_of(again, row), outputs_of(model, row))


@pytest.mark.parametrize(("row", "ours", "theirs"), BASES)
def test_every_block_is_read_by_itself(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    save(row, theirs, tmp_path)
    model = getattr(hf_ffn, ours).from_pretrained(tmp_path)
    hidden_states = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(3))
    blocks = model.encoder.blocks()
    for layer, block in enumerate(blocks):
        ffn = FeedForward.from_pretrained(tmp_path, layer=layer)
        assert torch.equal(ffn(hidden_states), block.eval().ffn(hidden_states))
    with pytest.raises(ValueError, match=f"layer={len(blocks)}: .*0…{len(blocks) - 1}"):
        FeedForward.from_pretrained(tmp_path, layer=len(blocks))


# Of single families


def row_of(name: str) -> Row:
    return next(row for row in ROWS if str(row) == name)


@pytest.mark.parametrize("name", ["roberta", "electra", "mpnet", "esm-rotary", "distilbert"])
def test_a_classifier_of_tokens_is_not_taken_for_a_part_of_one_of_sequences(tmp_path: Path, name: str) -> None:
    row = row_of(name)
    save_classifier(row, row.family.heads["FFNForTokenClassification"], tmp_path)
    model = FFNForSequenceClassification.from_pretrained(tmp_path)
    assert sorted(model.loading_report.new) == ["classifier", "head"]
    assert model.classifier.weight.abs().max() <= 2 * model.config.initializer_range
    assert model.classifier.bias.abs().max() == 0


@pytest.mark.parametrize("name", ["roberta", "electra", "mpnet", "esm-rotary"])
def test_a_classifier_of_sequences_is_not_taken_for_one_of_tokens(tmp_path: Path, name: str) -> None:
    row = row_of(name)
    save_classifier(row, row.family.heads["FFNForSequenceClassification"], tmp_path)
    model = FFNForTokenClassification.from_pretrained(tmp_path)
    assert model.loading_report.new == ["classifier"]
    assert len(model.loading_report.unused) == 4


def test_modernberts_head_comes_along_to_another_task(tmp_path: Path) -> None:
    """As in its own classes: the layer before the decoder is that before a classifier."""
    row = row_of("modernbert")
    save(row, "ModernBertForMaskedLM", tmp_path)
    model = FFNForSequenceClassification.from_pretrained(tmp_path)
    assert model.loading_report.new == ["classifier"]
    theirs = transformers.ModernBertForSequenceClassification.from_pretrained(tmp_path).head.dense.weight
    assert torch.equal(model.head.dense.weight, theirs)


@pytest.mark.parametrize("spelling", ["a layer each", "left out"])
def test_rotary_frequencies_of_old_files(tmp_path: Path, spelling: str) -> None:
    save(row_of("esm-rotary"), "EsmModel", tmp_path)
    expected = FFNTextModel.from_pretrained(tmp_path)
    rewrite(tmp_path, drop("inv_freq"))
    if spelling == "a layer each":
        stored = {f"encoder.layer.{i}.attention.self.rotary_embeddings.inv_freq" for i in range(2)}
        frequencies = expected.rotary_embeddings.inv_freq
        rewrite(tmp_path, lambda tensors: tensors | dict.fromkeys(stored, frequencies))
    model = FFNTextModel.from_pretrained(tmp_path)
    assert str(model.loading_report) == ""
    assert torch.equal(outputs_of(model, row_of("esm-rotary")), outputs_of(expected, row_of("esm-rotary")))


def test_contacts_of_a_protein_are_the_originals(tmp_path: Path) -> None:
    row = row_of("esm-rotary")
    save(row, "EsmModel", tmp_path)
    theirs = EsmModel.from_pretrained(tmp_path, attn_implementation="eager")
    ours = FFNTextModel.from_pretrained(tmp_path, attn_implementation="eager")
    inputs = row.inputs(ours.config, True)
    inputs["input_ids"][:, -1] = 2
    with torch.no_grad():
        expected = theirs.predict_contacts(inputs["input_ids"], inputs["attention_mask"])
        found = ours.predict_contacts(**inputs)
    assert expected.shape == (3, 12, 12)
    assert expected.std() > 1e-3
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    ours.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="attn_implementation='eager'"):
        ours.predict_contacts(**inputs)


@pytest.mark.parametrize(
    ("name", "entry", "says"),
    [
        ("roberta", {"is_decoder": True}, "is_decoder=True"),
        ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets=64"),
        ("mpnet", {"pad_token_id": 0}, "pad_token_id=0"),
        ("esm-rotary", {"is_folding_model": True}, "is_folding_model=True"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}},
            "rope_parameters.full_attention.rope_type='linear'",
        ),
    ],
)
def test_what_we_do_not_have_is_refused_by_name(name: str, entry: dict[str, Any], says: str) -> None:
    row = row_of(name)
    config = transformers.AutoConfig.for_model(row.family.model_type, **{**row.config, **entry})
    with pytest.raises(ValueError, match=f"{row.name} checkpoint with .*{says}.* does not convert"):
        row.family.translate_config(config.to_dict())


def test_a_hub_config_of_modernbert_with_its_old_words_is_read() -> None:
    family = FAMILIES["modernbert"]
    old = {"model_type": "modernbert", "global_rope_theta": 5e4, "local_rope_theta": 1e3, "num_hidden_layers": 4,
           "global_attn_every_n_layers": 2}  # fmt: skip
    translated = family.translate_config(old)
    assert (translated["rope_theta"], translated["local_rope_theta"]) == (5e4, 1e3)
    assert translated["layer_types"] == 2 * ["full_attention", "sliding_attention"]


ELSEWHERE = """
import sys, torch
from transformers import AutoModel, AutoModelForSequenceClassification
assert "hf_ffn" not in sys.modules
for folder in sys.argv[1:]:
    inputs, expected = torch.load(folder + "/expected.pt")
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True).eval()
    with torch.no_grad():
        assert torch.equal(model(**inputs)[0], expected), folder
    AutoModel.from_pretrained(folder, trust_remote_code=True)
"""


@pytest.mark.slow
def test_every_kind_of_family_loads_where_hf_ffn_is_not(tmp_path: Path) -> None:
    folders = []
    for name in ("modernbert", "esm-rotary", "mpnet", "albert-with-groups", "distilbert"):
        row = row_of(name)
        save(row, row.family.heads["FFNForSequenceClassification"], tmp_path / "source")
        model = FFNForSequenceClassification.from_pretrained(tmp_path / "source")
        folders.append(tmp_path / name)
        model.save_pretrained(folders[-1])
        torch.save((row.inputs(model.config, True), outputs_of(model, row)), folders[-1] / "expected.pt")
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-I", "-c", ELSEWHERE, *map(str, folders)],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
