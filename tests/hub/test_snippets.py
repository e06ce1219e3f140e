"""The programs in a card do what they say: each is run on a small model whose answer is known beforehand."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from model_folder import TEXT_CLASSES, VISION_CLASSES, add_processor, config_folder
from transformers import PreTrainedModel, dynamic_module_utils

from hf_ffn.hub.facts import gather
from hf_ffn.hub.snippets import snippet

from tiny import ffn_model

NAMES = ("one", "two", "three")
CLASSES = [*TEXT_CLASSES, *VISION_CLASSES]
CLASSIFIERS = [
    "FFNForSequenceClassification",
    "FFNForImageClassification",
    "FFNForImageClassificationWithTeacher",
    "FFNForAudioClassification",
]


def answering(class_name: str, answer: list[float], **config: Any) -> PreTrainedModel:
    """A model whose head gives these logits, whatever it is asked."""
    model = ffn_model(class_name, **config)
    with torch.no_grad():
        for name, head in model.named_children():
            if name == "qa_outputs" or name.endswith("classifier"):
                head.weight.zero_()
                head.bias.copy_(torch.tensor(answer))
    return model


def run(
    folder: Path, model: PreTrainedModel, processor: bool, with_hf_ffn: bool, capsys: Any, example: str | None = None
) -> str:
    """Save the model, and run its example as it would stand in the card; returns what it prints."""
    model.save_pretrained(folder)
    if processor:
        add_processor(folder, type(model).__name__)
    program = snippet(gather(folder), str(folder), example, with_hf_ffn=with_hf_ffn)
    capsys.readouterr()
    exec(compile(ast.parse(program), "example", "exec"), {})
    return capsys.readouterr().out.strip()


@pytest.fixture(params=[False, True], ids=["without hf_ffn", "with hf_ffn"])
def with_hf_ffn(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to load a model; the code of those without hf_ffn is cached in the test's own folder."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    return request.param


@pytest.fixture(params=[False, True], ids=["alone", "with its tokenizer or processor"])
def processor(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.mark.parametrize("class_name", CLASSES)
def test_an_example_says_which_way_it_loads(tmp_path: Path, class_name: str) -> None:
    facts = gather(config_folder(tmp_path, class_name))
    with_it, without = (snippet(facts, "me/x", None, with_hf_ffn=each) for each in (True, False))
    assert f"from hf_ffn import {class_name}" in with_it
    assert "trust_remote_code" not in with_it
    assert "hf_ffn" not in without
    assert "trust_remote_code=True" in without
    assert all('repo = "me/x"' in program for program in (with_it, without))


@pytest.mark.parametrize(("class_name", "shape"), [("FFNTextModel", "1, {n}, 32"), ("FFNVisionModel", "1, 17, 32")])
def test_an_encoder_shows_its_vectors(
    tmp_path: Path, class_name: str, shape: str, processor: bool, with_hf_ffn: bool, capsys: Any
) -> None:
    printed = run(tmp_path / "m", ffn_model(class_name), processor, with_hf_ffn, capsys)
    # Eleven words, a full stop and two special tokens; or eight ids.
    assert printed == f"torch.Size([{shape.format(n=14 if processor else 8)}])"


@pytest.mark.parametrize("class_name", CLASSIFIERS)
@pytest.mark.parametrize(
    ("problem_type", "answer", "says"),
    [
        (None, [0.0, 5.0, 1.0], "two"),
        ("single_label_classification", [0.0, 1.0, 5.0], "three"),
        ("multi_label_classification", [2.0, -2.0, 0.5], "['one', 'three']"),
        ("multi_label_classification", [-1.0, -2.0, -3.0], "[]"),
        ("regression", [1.5, -2.0, 0.25], "[1.5, -2.0, 0.25]"),
    ],
)
def test_a_classifier_names_its_classes_as_its_problem_is(
    tmp_path: Path, class_name: str, problem_type: str | None, answer: list[float], says: str, capsys: Any
) -> None:
    config = {"problem_type": problem_type, "id2label": dict(enumerate(NAMES))}
    model = answering(class_name, answer, **config)
    assert run(tmp_path / "m", model, True, True, capsys) == says


@pytest.mark.parametrize("problem_type", [None, "regression"])
def test_a_single_output_is_a_score(tmp_path: Path, problem_type: str | None, capsys: Any) -> None:
    model = answering("FFNForSequenceClassification", [1.5], problem_type=problem_type, num_labels=1)
    assert run(tmp_path / "m", model, True, True, capsys) == "1.5"


@pytest.mark.parametrize("class_name", CLASSIFIERS)
def test_a_classifier_is_loaded_both_ways(
    tmp_path: Path, class_name: str, processor: bool, with_hf_ffn: bool, capsys: Any
) -> None:
    model = answering(class_name, [0.0, 5.0, 1.0], id2label=dict(enumerate(NAMES)))
    assert run(tmp_path / "m", model, processor, with_hf_ffn, capsys) == "two"


def test_a_classifier_of_tokens_names_each(tmp_path: Path, processor: bool, with_hf_ffn: bool, capsys: Any) -> None:
    model = answering("FFNForTokenClassification", [0.0, 1.0, 5.0], id2label=dict(enumerate(NAMES)))
    printed = run(tmp_path / "m", model, processor, with_hf_ffn, capsys)
    assert ast.literal_eval(printed) == ["three"] * (14 if processor else 8)


def test_a_masked_word_is_guessed(tmp_path: Path, with_hf_ffn: bool, capsys: Any) -> None:
    model = ffn_model("FFNForMaskedLM")
    with torch.no_grad():
        model.lm_head.bias[7] = 1000.0
    assert run(tmp_path / "m", model, True, with_hf_ffn, capsys) == "reads"


def test_a_question_is_answered(tmp_path: Path, with_hf_ffn: bool, capsys: Any) -> None:
    model = answering("FFNForQuestionAnswering", [0.0, 0.0])
    # All places are equally good, so that the answer is the first.
    assert run(tmp_path / "m", model, True, with_hf_ffn, capsys) == "[CLS]"


@pytest.mark.parametrize("class_name", ["FFNForMaskedLM", "FFNForQuestionAnswering"])
def test_without_a_tokenizer_nothing_is_decoded(
    tmp_path: Path, class_name: str, with_hf_ffn: bool, capsys: Any
) -> None:
    assert "torch.Size" in run(tmp_path / "m", ffn_model(class_name), False, with_hf_ffn, capsys)


@pytest.mark.parametrize("text", ['"Reads" \\ the\nencoder {x} ```', "Zürich 😀 \u2028", "{{ title }}"])
def test_any_text_can_be_the_example(tmp_path: Path, text: str, capsys: Any) -> None:
    model = answering("FFNForSequenceClassification", [0.0, 5.0, 1.0], id2label=dict(enumerate(NAMES)))
    assert run(tmp_path / "m", model, True, True, capsys, example=text) == "two"
    program = snippet(gather(tmp_path / "m"), "me/x", text, with_hf_ffn=True)
    strings = [node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)]
    assert text in strings


@pytest.mark.parametrize("size", [(32, 32), (32, 48)])
def test_an_image_is_as_large_as_the_model_takes(tmp_path: Path, size: tuple[int, int], capsys: Any) -> None:
    model = ffn_model("FFNVisionModel", image_size=size, num_channels=1)
    patches = size[0] * size[1] // 64
    assert run(tmp_path / "m", model, False, True, capsys) == f"torch.Size([1, {patches + 1}, 32])"


def test_a_small_vocabulary_bounds_the_ids(tmp_path: Path, capsys: Any) -> None:
    model = ffn_model("FFNTextModel", vocab_size=5)
    assert run(tmp_path / "m", model, False, True, capsys) == "torch.Size([1, 5, 32])"
