"""What was decided about data is said, and kept."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from accelerate.state import AcceleratorState
from transformers import PreTrainedTokenizerBase

from hf_ffn import FFNForSequenceClassification, FFNTextConfig
from hf_ffn.hub.card import make_card
from hf_ffn.hub.details import CardDetails
from hf_ffn.hub.facts import gather
from hf_ffn.training.arguments import DataArguments, ModelArguments, TrainingArguments
from hf_ffn.training.data import TaskData
from hf_ffn.training.run import finetune, make_accelerator, make_model

Load = Callable[..., TaskData]

ROWS = [{"text": "film", "label": "rare" if i % 4 == 0 else "usual"} for i in range(40)]

pytestmark = pytest.mark.usefixtures("own_cache")


def test_task_columns_labels_and_samples_are_said(load: Load) -> None:
    rows = [*ROWS, {"text": "", "label": "rare"}]
    said = str(load(rows, ROWS[:4], on_bad_sample="skip", max_train_samples=39).summary).splitlines()
    assert said[0] == "task: single-label; texts in column 'text'; labels in column 'label'"
    assert said[1].startswith("to train on: 39 samples of '")
    assert said[1].endswith(("train.jsonl', 1 left out as bad: rare (10), usual (29)",
                             "train.jsonl', 1 left out as bad: rare (9), usual (30)"))  # fmt: skip
    assert said[2].startswith("to evaluate on: 4 samples of '")
    assert said[2].endswith("validation.jsonl': rare (1), usual (3)")


@pytest.mark.parametrize(
    ("rows", "args", "said"),
    [
        (
            [{"text": "film", "label": i / 4} for i in range(20)],
            {},
            ["regression", "numbers in column 'label'", "0 to"],
        ),
        (
            [{"text": "film", "labels": [1, 0, i % 2]} for i in range(20)],
            {},
            ["multi-label", "lists of a 0 or 1 for each of 3 labels in column 'labels'", ": 0 (18), 1 (0), 2 ("],
        ),
        (
            [{"text": "film", "mild": 1, "hot": 0} for _ in range(20)],
            {"label_column": "mild,hot"},
            ["multi-label", "a 0 or 1 for each of 2 labels in columns mild, hot", ": mild (18), hot (0)"],
        ),
        (
            [{"tokens": ["good", "film"], "ner_tags": ["O", "A"]}] * 20,
            {},
            ["token-classification", "lists of labels in column 'ner_tags'", ": A (18), O (18)"],
        ),
    ],
)
def test_how_labels_were_read_is_said(rows: list[Any], args: dict[str, Any], said: list[str], load: Load) -> None:
    summary = str(load(rows, **args).summary)
    assert [each for each in said if each not in summary] == []


def test_of_many_labels_some_are_said_and_all_are_kept(load: Load) -> None:
    summary = load([{"text": "film", "label": i % 30} for i in range(90)]).summary
    first = list(summary.train.counts.items())[:20]
    assert f"{', '.join(f'{name} ({count})' for name, count in first)}, and 10 labels more\n" in str(summary)
    assert len(summary.facts()["train"]["labels"]) == 30


def test_labels_that_look_alike_are_told_apart(load: Load) -> None:
    summary = load([{"text": "film", "label": ["a", "a ", "b, c"][i % 3]} for i in range(30)]).summary
    assert re.search(r": a \(\d+\), 'a ' \(\d+\), 'b, c' \(\d+\)\n", str(summary))


@pytest.mark.parametrize(
    ("labels", "args", "warned"),
    [
        (list(range(30)), {}, True),
        ([float(i) for i in range(30)], {}, True),
        (list(range(30)), {"task": "single-label"}, False),
        (list(range(30)), {"task": "regression"}, False),
        ([f"class {i}" for i in range(30)], {}, False),
        (list(range(10)), {}, False),
    ],
)
def test_classes_that_may_be_quantities_are_warned_of(
    labels: list[Any], args: dict[str, Any], warned: bool, load: Load, messages: pytest.LogCaptureFixture
) -> None:
    load([{"text": "film", "label": label} for label in labels * 2], **args)
    assert ("if they are quantities, say --task regression" in messages.text) == warned


def test_of_a_stream_what_is_known_is_said(load: Load) -> None:
    summary = load(ROWS, ROWS, streaming=True).summary
    assert "train.jsonl', as it is read\nto evaluate on: 40 samples" in str(summary)


def test_results_and_card_tell_the_data_and_the_weights(
    load: Load, tokenizer: PreTrainedTokenizerBase, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    AcceleratorState._reset_state(reset_partial_state=True)
    data = load(ROWS)
    out = tmp_path / "out"
    args = TrainingArguments(output_dir=str(out), max_train_steps=2, class_weights=["balanced"])
    sizes = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
    model_args = ModelArguments(config_overrides=sizes)
    accelerator = make_accelerator(args)
    model = make_model(FFNForSequenceClassification, FFNTextConfig, model_args, data, vocab_size=len(tokenizer))
    finetune(accelerator, model, data, tokenizer, model_args, DataArguments(train_file="train.csv"), args)
    results = json.loads((out / "all_results.json").read_text())
    train = results["data"]["train"]
    assert train["samples"] == 36
    assert sum(train["labels"].values()) == 36
    rare = 36 / 2 / train["labels"]["rare"]
    assert results["class_weights"]["rare"] == pytest.approx(rare, rel=1e-6)
    said = capsys.readouterr().err
    assert "task: single-label; texts in column 'text'; labels in column 'label'\nto train on: 36 samples" in said
    assert f"class weights, in the loss of training and of evaluation: rare: {rare:.4g}, usual: " in said
    card = str(make_card(gather(out), CardDetails()))
    assert f"| Class weights, in the loss | rare: {rare:.4g}, usual: " in card
    assert "| Training samples | 36 |" in card
