"""What a card states is what the files say: no more, and nothing of the machine that they come from."""

import json
from pathlib import Path
from typing import Any

import pytest
from model_folder import REPORT, TEXT_CLASSES, VISION_CLASSES, add_fact, add_run, config_folder, write_json

import hf_ffn
from hf_ffn.hub.facts import EMBEDDED, LOCAL, PICTURES, gather, is_hub_id
from hf_ffn.training.embedded import EMBEDDED as EMBEDDED_DATA


def test_the_embedded_data_sets_are_those_of_training() -> None:
    assert set(EMBEDDED) == set(EMBEDDED_DATA)


@pytest.mark.parametrize(
    ("class_name", "task", "auto_class"),
    [
        ("FFNTextModel", "base", "AutoModel"),
        ("FFNForMaskedLM", "masked-lm", "AutoModelForMaskedLM"),
        ("FFNForSequenceClassification", "sequence-classification", "AutoModelForSequenceClassification"),
        ("FFNForTokenClassification", "token-classification", "AutoModelForTokenClassification"),
        ("FFNForQuestionAnswering", "question-answering", "AutoModelForQuestionAnswering"),
        ("FFNVisionModel", "base", "AutoModel"),
        ("FFNForImageClassification", "image-classification", "AutoModelForImageClassification"),
        (
            "FFNForImageClassificationWithTeacher",
            "image-classification-with-teacher",
            "AutoModelForImageClassification",
        ),
        ("FFNForAudioClassification", "audio-classification", "AutoModelForAudioClassification"),
    ],
)
def test_every_class_has_its_task_and_its_auto_class(
    tmp_path: Path, class_name: str, task: str, auto_class: str
) -> None:
    facts = gather(config_folder(tmp_path, class_name))
    assert (facts.model_class.__name__, facts.task, facts.auto_class) == (class_name, task, auto_class)


def test_no_class_of_ours_is_left_out() -> None:
    models = {name for name in hf_ffn.__all__ if name.startswith("FFN") and not name.endswith("Config")}
    assert models == {*TEXT_CLASSES, *VISION_CLASSES}


def test_a_bare_model_says_nothing_of_where_it_comes_from(tmp_path: Path) -> None:
    facts = gather(config_folder(tmp_path, "FFNTextModel"))
    assert (facts.equivalence, facts.results, facts.arguments, facts.pictures) == (None, None, {}, {})
    assert (facts.base_model, facts.converted_from, facts.dataset) == (None, None, None)
    assert not facts.has_tokenizer
    assert not facts.has_image_processor


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "sentencepiece.bpe.model"])
def test_a_tokenizer_is_found(tmp_path: Path, name: str) -> None:
    config_folder(tmp_path, "FFNTextModel")
    (tmp_path / name).touch()
    assert gather(tmp_path).has_tokenizer
    assert not gather(tmp_path).has_image_processor


@pytest.mark.parametrize("name", ["preprocessor_config.json", "processor_config.json"])
def test_an_image_processor_is_found(tmp_path: Path, name: str) -> None:
    config_folder(tmp_path, "FFNVisionModel")
    write_json(tmp_path / name, {"image_processor_type": "ViTImageProcessor"})
    facts = gather(tmp_path)
    assert facts.has_image_processor
    assert not facts.has_feature_extractor
    assert not facts.has_tokenizer


def test_the_name_of_a_whole_processor_is_no_image_processor(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNVisionModel")
    write_json(tmp_path / "processor_config.json", {"processor_class": "CLIPProcessor"})
    assert not gather(tmp_path).has_image_processor


def test_what_makes_spectrograms_is_no_image_processor(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNForAudioClassification")
    assert not gather(tmp_path).has_feature_extractor
    write_json(tmp_path / "preprocessor_config.json", {"feature_extractor_type": "ASTFeatureExtractor"})
    assert gather(tmp_path).has_feature_extractor
    assert not gather(tmp_path).has_image_processor


def test_pictures_are_those_that_are_there_and_known(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNVisionModel")
    for name in ("reliability.png", "holiday.png"):
        add_fact(tmp_path, name)
    assert gather(tmp_path).pictures == {"reliability.png": PICTURES["reliability.png"]}


def test_a_run_says_what_it_was_trained_from_and_on(tmp_path: Path) -> None:
    # The model may lie in another folder than what its run left.
    for folder in (tmp_path / "model", tmp_path):
        config_folder(folder, "FFNTextModel")
    add_run(tmp_path, model_name_or_path="me/encoder", dataset_name="stanfordnlp/imdb", seed=0)
    facts = gather(tmp_path / "model", tmp_path)
    assert (facts.base_model, facts.dataset) == ("me/encoder", "stanfordnlp/imdb")
    assert facts.arguments["seed"] == 0
    assert facts.arguments["num_processes"] == 1


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_data_are_no_data_set_of_the_hub(tmp_path: Path, name: str) -> None:
    config_folder(tmp_path, "FFNTextModel")
    add_run(tmp_path, model_name_or_path=None, dataset_name=name)
    assert gather(tmp_path).dataset is None


def test_what_lies_on_this_machine_is_no_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_folder(tmp_path, "FFNTextModel")
    (tmp_path / "runs" / "first").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for local in (str(tmp_path / "runs" / "first"), "runs/first", "./runs/first", "../gone/model", "a/b/c"):
        assert not is_hub_id(local)
        add_run(tmp_path, model_name_or_path=local, dataset_name=local)
        facts = gather(tmp_path)
        assert (facts.base_model, facts.dataset) == (None, None)
    assert is_hub_id("runs/second")
    assert not is_hub_id(None)


def test_a_model_from_a_random_start_has_no_base(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNTextModel")
    add_fact(tmp_path, "equivalence.json", REPORT)
    add_run(tmp_path, model_name_or_path=None)
    assert gather(tmp_path).base_model is None


def test_a_conversion_says_what_it_was_made_from(tmp_path: Path) -> None:
    config_folder(tmp_path, "FFNTextModel")
    add_fact(tmp_path, "equivalence.json", REPORT)
    facts = gather(tmp_path)
    assert facts.base_model == facts.converted_from == "google-bert/bert-base-uncased"
    assert facts.equivalence is not None
    assert json.loads(facts.equivalence.to_json())["checks"][0]["name"] == "pooler.dense.weight"
    assert facts.equivalence.ok


@pytest.mark.parametrize("source", ["/home/somebody/bert", "../bert", "C:\\models\\bert"])
def test_a_conversion_does_not_say_where_the_original_lay(tmp_path: Path, source: str) -> None:
    config_folder(tmp_path, "FFNTextModel")
    add_fact(tmp_path, "equivalence.json", {**REPORT, "source": source})
    facts = gather(tmp_path)
    assert facts.equivalence is not None
    assert facts.equivalence.source == LOCAL
    assert facts.base_model is None
    # Nor does the copy in a staged folder become an id, when that folder is staged again.
    assert not is_hub_id(LOCAL)


@pytest.mark.parametrize("name", ["equivalence.json", "all_results.json", "run.json"])
@pytest.mark.parametrize(
    ("content", "says"), [('{"a": 1', "damaged"), ("[1]", "no entries by name"), ("\xff", "damaged")]
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str, says: str) -> None:
    config_folder(tmp_path, "FFNTextModel")
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=says) as caught:
        gather(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("equivalence.json", {}),
        ("equivalence.json", {**REPORT, "checks": [{"kind": "tensor"}]}),
        ("equivalence.json", {**REPORT, "checks": None}),
        ("run.json", {"arguments": [1]}),
        ("run.json", {"arguments": {}, "processes": None}),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path: Path, name: str, content: Any) -> None:
    config_folder(tmp_path, "FFNTextModel")
    add_fact(tmp_path, name, content)
    with pytest.raises(ValueError, match="take it away") as caught:
        gather(tmp_path)
    assert str(tmp_path / name) in str(caught.value)
