"""A card says what the files and the owner say, in metadata that the Hub's own classes read, and leaves no null."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import model_folder
import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from model_folder import add_fact, add_processor, add_run, config_folder, write_json

import hf_ffn
from hf_ffn.hub.card import METRICS, TRAINING_ARGUMENTS, escaped, make_card
from hf_ffn.hub.details import CardDetails
from hf_ffn.hub.facts import gather
from hf_ffn.training.arguments import DataArguments, ModelArguments, TrainingArguments

REPORT = {
    **model_folder.REPORT,
    "checks": [
        {"kind": "tensor", "name": "pooler.dense.weight", "ok": True},
        {"kind": "layer", "name": "layer 0", "ok": True, "run": "float32 eager", "error": 0.0, "layer": 0},
    ],
}
WHOLE = CardDetails(
    title="Prose encoder",
    repo_id="me/prose-encoder",
    license="apache-2.0",
    language=["en", "no"],
    base_model="google-bert/bert-base-uncased",
    base_model_relation="quantized",
    datasets=["stanfordnlp/imdb"],
    tags=["prose"],
    intended_use="Finding like sentences.",
    limits="English prose only.",
)
GAP = "**Not stated by the owner.**"


def card_of(folder: Path, details: CardDetails | None = None) -> ModelCard:
    """The card of a folder, as it is read again from what would be its README.md."""
    made = make_card(gather(folder), details or CardDetails())
    return ModelCard(str(made))


def metadata(card: ModelCard) -> dict[str, Any]:
    """The card's YAML as any reader sees it."""
    return yaml.safe_load(re.match(r"---\n(.*?)\n---\n", card.content, re.DOTALL)[1])  # type: ignore[index]


def leaves(content: Any) -> Iterator[Any]:
    """All values in nested lists and dictionaries; empty ones too."""
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else None
    if not inner:
        yield content
        return
    for each in inner:
        yield from leaves(each)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A sequence classifier's folder, bare."""
    return config_folder(tmp_path, "FFNForSequenceClassification")


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("details", [CardDetails(), WHOLE], ids=["nothing stated", "all stated"])
def test_the_metadata_are_read_by_the_hubs_own_classes(
    text: Path, trained: bool, converted: bool, details: CardDetails
) -> None:
    if trained:
        add_run(text, model_name_or_path="me/encoder", dataset_name="docstrings")
    if converted:
        add_fact(text, "equivalence.json", REPORT)
    made = make_card(gather(text), details)
    found = metadata(made)
    assert not [leaf for leaf in leaves(found) if leaf in (None, "", [], {})]
    assert ModelCardData(**found).to_dict() == made.data.to_dict() == ModelCard(str(made)).data.to_dict()
    assert found["library_name"] == "transformers"


def test_what_the_owner_states_is_in_the_metadata_and_in_the_text(text: Path) -> None:
    card = card_of(text, WHOLE)
    found = metadata(card)
    assert found["license"] == "apache-2.0"
    assert found["language"] == ["en", "no"]
    assert found["base_model"] == "google-bert/bert-base-uncased"
    assert found["base_model_relation"] == "quantized"
    assert found["datasets"] == ["stanfordnlp/imdb"]
    assert found["tags"] == ["hf_ffn", "custom_code", "prose"]
    assert "# Prose encoder\n" in card.text
    assert "Finding like sentences." in card.text
    assert "English prose only." in card.text
    assert card.text.count('repo = "me/prose-encoder"') == 2
    assert GAP not in card.text


def test_what_is_not_known_is_absent_or_a_gap_that_shows(text: Path) -> None:
    card = card_of(text)
    assert set(metadata(card)) == {"library_name", "pipeline_tag", "tags"}
    assert card.text.count(GAP) == 2
    for heading in ("## Results", "## Training", "## Equivalence"):
        assert heading not in card.text


@pytest.mark.parametrize(
    ("details", "gaps"), [({"limits": "English only."}, ["intended"]), ({"intended_use": "Prose."}, ["limits"])]
)
def test_each_gap_shows_by_itself(text: Path, details: dict[str, str], gaps: list[str]) -> None:
    card = card_of(text, CardDetails(**details))
    assert card.text.count(GAP) == len(gaps)
    assert next(iter(details.values())) in card.text


def test_a_model_of_sounds_is_not_found_among_those_of_images(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNVisionModel")
    write_json(tmp_path / "preprocessor_config.json", {"feature_extractor_type": "ASTFeatureExtractor"})
    assert metadata(card_of(tmp_path, CardDetails()))["pipeline_tag"] == "feature-extraction"


@pytest.mark.parametrize(
    ("class_name", "tag"),
    [
        ("FFNTextModel", "feature-extraction"),
        ("FFNForMaskedLM", "fill-mask"),
        ("FFNForSequenceClassification", "text-classification"),
        ("FFNForTokenClassification", "token-classification"),
        ("FFNForQuestionAnswering", "question-answering"),
        ("FFNVisionModel", "image-feature-extraction"),
        ("FFNForImageClassification", "image-classification"),
    ],
)
@pytest.mark.parametrize("processor", [False, True])
def test_every_class_has_a_card_with_its_pipeline_and_its_examples(
    tmp_path: Path, class_name: str, tag: str, processor: bool
) -> None:
    config_folder(tmp_path, class_name)
    if processor:
        add_processor(tmp_path, class_name)
    card = card_of(tmp_path, CardDetails(repo_id="me/x"))
    assert metadata(card)["pipeline_tag"] == tag
    assert len(re.findall(r"```python\n.*?\n```", card.text, re.DOTALL)) == 2
    assert f"import {class_name}" in card.text


def test_results_are_typed_and_equal_to_those_of_the_run(text: Path) -> None:
    add_run(text, model_name_or_path="me/encoder", dataset_name="nyu-mll/glue", dataset_config_name="mrpc")
    card = card_of(text)
    measured = json.loads((text / "all_results.json").read_text())
    results = card.data.eval_results
    assert results is not None
    assert all(isinstance(result, EvalResult) for result in results)
    assert {(result.metric_type, result.metric_value) for result in results} == {
        ("accuracy", measured["accuracy"]),
        ("f1", measured["macro_f1"]),
        ("matthews_correlation", measured["matthews"]),
    }
    for result in results:
        assert (result.task_type, result.dataset_type) == ("text-classification", "nyu-mll/glue")
        assert (result.dataset_config, result.dataset_name) == ("mrpc", "nyu-mll/glue (mrpc)")
    assert next(result for result in results if result.metric_type == "f1").metric_args == {"average": "macro"}
    assert metadata(card)["metrics"] == ["accuracy", "f1", "matthews_correlation"]
    assert metadata(card)["model-index"][0]["name"] == "your-model"
    assert "| Accuracy | 0.9375 |" in card.text
    assert "| Macro F1 | 0.9123 |" in card.text


def test_an_error_that_is_small_is_no_zero(text: Path) -> None:
    add_run(text, {"mse": 0.0000123456, "pearson": 0.5, "spearman": None, "mae": 1234.56}, dataset_name="docstrings")
    card = card_of(text)
    assert "| Mean squared error | 1.235e-05 |" in card.text
    assert {r.metric_type: r.metric_value for r in card.data.eval_results} == {
        "mse": 0.0000123456,
        "pearsonr": 0.5,
        "mae": 1234.56,
    }


def test_results_of_other_names_make_no_empty_table(text: Path) -> None:
    add_fact(text, "all_results.json", {"eval_accuracy": 0.5, "epoch": 3.0})
    card = card_of(text)
    assert "## Results" not in card.text
    assert "metrics" not in metadata(card)
    assert "model-index" not in metadata(card)


def test_every_metric_of_the_scripts_has_a_name() -> None:
    firsts = {"accuracy", "macro_f1", "micro_f1", "entity_f1", "pearson", "mse"}
    assert firsts <= set(METRICS)


@pytest.mark.parametrize("name", ["docstrings", "digits", None, "/home/somebody/texts", "../texts"])
def test_data_that_are_not_on_the_hub_have_no_id(text: Path, name: str | None) -> None:
    add_run(text, model_name_or_path="/home/somebody/encoder", dataset_name=name, train_file="/home/somebody/t.csv")
    card = card_of(text)
    found = metadata(card)
    assert "datasets" not in found
    assert "base_model" not in found
    assert "base_model_relation" not in found
    assert found["model-index"][0]["results"][0]["dataset"]["type"] == "local"
    assert "somebody" not in str(card)
    shown = f"{name} (embedded in hf_ffn)" if name in ("docstrings", "digits") else "local data"
    assert found["model-index"][0]["results"][0]["dataset"]["name"] == shown
    assert f"Fine-tuned on {shown}." in card.text
    assert "https://huggingface.co/" not in card.text


def test_results_without_their_run_say_nothing_of_the_data(text: Path) -> None:
    add_run(text)
    (text / "run.json").unlink()
    card = card_of(text)
    assert {result.dataset_name for result in card.data.eval_results} == {"data that are not named"}
    assert "local" not in card.text


def test_a_fine_tuning_names_its_base_and_its_relation(text: Path) -> None:
    add_run(text, model_name_or_path="me/encoder", dataset_name="stanfordnlp/imdb")
    card = card_of(text)
    found = metadata(card)
    assert (found["base_model"], found["base_model_relation"]) == ("me/encoder", "finetune")
    assert found["datasets"] == ["stanfordnlp/imdb"]
    assert "Fine-tuned from [me/encoder](https://huggingface.co/me/encoder) on stanfordnlp/imdb." in card.text


def test_a_random_start_is_said_and_has_no_base(text: Path) -> None:
    add_run(text, model_name_or_path=None, dataset_name="docstrings")
    card = card_of(text)
    assert "base_model" not in metadata(card)
    assert "Trained on docstrings (embedded in hf_ffn), from a random start." in card.text
    assert "Fine-tuned" not in card.text


def test_a_conversion_names_its_original_and_shows_its_proof(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNTextModel", source_family="bert")
    add_fact(tmp_path, "equivalence.json", REPORT)
    add_fact(tmp_path, "equivalence.png")
    card = card_of(tmp_path)
    found = metadata(card)
    assert found["base_model"] == "google-bert/bert-base-uncased"
    # Which is no fine-tuning, adapter or quantization of it.
    assert "base_model_relation" not in found
    original = "[google-bert/bert-base-uncased](https://huggingface.co/google-bert/bert-base-uncased)"
    assert f"converted from {original} with the proof below." in card.text
    assert "=> equivalent" in card.text
    assert "layer 0" in card.text
    assert "](equivalence.png)" in card.text


def test_what_was_trained_from_a_conversion_is_not_said_to_be_converted_from_it(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNForSequenceClassification", source_family="bert")
    add_run(tmp_path, model_name_or_path="me/encoder", dataset_name="docstrings")
    card = card_of(tmp_path)
    assert "It goes back to a checkpoint of the family bert." in card.text
    assert "Fine-tuned from [me/encoder]" in card.text


def test_a_proof_that_failed_is_not_called_one(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNTextModel", source_family="bert")
    failed = {**REPORT, "ok": False, "checks": [{**REPORT["checks"][0], "ok": False}]}  # type: ignore[index]
    add_fact(tmp_path, "equivalence.json", failed)
    text = card_of(tmp_path).text
    assert "with the proof below" not in text
    assert "NOT equivalent" in text


def test_a_proof_says_nothing_of_this_machine(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNTextModel", source_family="bert")
    add_fact(tmp_path, "equivalence.json", {**REPORT, "source": "/home/somebody/bert"})
    card = card_of(tmp_path)
    assert "base_model" not in metadata(card)
    assert "beside BertModel from 'a local checkpoint'" in card.text
    assert "converted from a checkpoint of the family bert with the proof below." in card.text
    assert not re.search("somebody|home", str(card))


def test_pictures_are_those_in_the_folder(text: Path) -> None:
    add_run(text, dataset_name="docstrings")
    add_fact(text, "equivalence.json", REPORT)
    for name in ("equivalence.png", "reliability.png", "holiday.png"):
        add_fact(text, name)
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", card_of(text).text)
    assert sorted(shown) == ["confusion_matrix.png", "equivalence.png", "reliability.png", "training_curves.png"]


def test_the_sizes_are_the_models(text: Path) -> None:
    parameters = hf_ffn.FFNForSequenceClassification(gather(text).config).num_parameters()
    card = card_of(text)
    assert f"| Parameters | {parameters:,} |" in card.text
    assert "| Hidden size, intermediate size | 32, 64 |" in card.text
    assert "| Layers, attention heads | 3, 4 |" in card.text


def test_layers_of_different_widths_are_all_shown(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNTextModel", per_layer_config={1: {"intermediate_size": 40}})
    assert "| Hidden size, intermediate size | 32, 64 / 40 / 64 by layer |" in card_of(tmp_path).text


def test_an_image_models_operations_are_for_an_image(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNVisionModel", image_size=(32, 48))
    assert "Operations for an image of 32 × 48" in card_of(tmp_path).text


def test_arguments_are_shown_as_they_were_and_nothing_of_the_machine(text: Path) -> None:
    add_run(
        text, model_name_or_path="me/encoder", dataset_name="docstrings", output_dir="/home/somebody/out",
        train_file="/home/somebody/t.csv", hub_model_id="somebody/x", learning_rate=1e-4, seed=0, weight_decay=0.0,
        mixed_precision="no", augment=False, freeze_embeddings=True, num_train_epochs=3, max_train_steps=None,
        lora=None, lora_rank=8, max_length=128,
    )  # fmt: skip
    text_of_card = card_of(text).text
    for name, value in {"seed": 0, "weight_decay": 0.0, "learning_rate": 0.0001, "freeze_embeddings": True,
                        "num_train_epochs": 3, "num_processes": 1, "max_length": 128}.items():  # fmt: skip
        assert f"| `{name}` | `{value}` |" in text_of_card
    for name in ("mixed_precision", "augment", "max_train_steps", "lora", "lora_rank", "output_dir"):
        assert f"`{name}`" not in text_of_card
    assert "somebody" not in text_of_card
    assert "| Steps | 1,200 |" in text_of_card
    assert f"| Environment | hf_ffn {hf_ffn.__version__}, torch 2.13.0 |" in text_of_card


def test_arguments_that_had_no_effect_are_left_out(text: Path) -> None:
    add_run(text, num_train_epochs=3, max_train_steps=20, lora="linear_1", lora_rank=4)
    text_of_card = card_of(text).text
    assert "`num_train_epochs`" not in text_of_card
    assert "| `max_train_steps` | `20` |" in text_of_card
    assert "| `lora_rank` | `4` |" in text_of_card


def test_only_arguments_that_exist_are_asked_for() -> None:
    classes = (ModelArguments, DataArguments, TrainingArguments)
    known = {field.name for each in classes for field in fields(each)}
    assert set(TRAINING_ARGUMENTS) <= known | {"num_processes"}


def test_names_of_classes_break_no_table(text: Path) -> None:
    figures = {"precision": 0.5, "recall": 0.25, "f1": 0.333333, "support": 7}
    names = ["a|b", "<img src=x>", "line\nbreak", "![p](q)", "`code`", "back\\slash", "*"]
    add_run(text, {"accuracy": 0.5, "per_class": dict.fromkeys(names, figures)}, dataset_name="docstrings")
    lines = card_of(text).text.splitlines()
    start = lines.index("| Class | Precision | Recall | F1 | Samples |")
    rows = lines[start + 2 : start + 2 + len(names)]
    for name, row in zip(names, rows, strict=True):
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        assert [cell.strip() for cell in cells[1:]] == ["0.500", "0.250", "0.333", "7"]
        # As Markdown shows it.
        assert re.sub(r"\\(\W)", r"\1", cells[0].strip()) == " ".join(name.split())
    assert not re.search(r"(?<!\\)<img", "\n".join(lines))
    assert escaped("plain_word, 1.5") == r"plain\_word, 1.5"


def test_what_the_owner_writes_is_text_and_no_template(text: Path) -> None:
    card = card_of(text, CardDetails(intended_use="{{ title }} {% if x %}", limits="a: b"))
    assert "{{ title }} {% if x %}" in card.text
