"""The text script itself, on every task."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts_runner import run, start
from transformers import AutoTokenizer, BertModel, PreTrainedTokenizerBase

from hf_ffn import FFNForSequenceClassification, FFNForTokenClassification
from hf_ffn.conversion import model_class_for

from tiny import bert_config, telling_model

Write = Callable[[str, Any], str]


@pytest.fixture
def bert(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> Path:
    """A small BERT checkpoint with its tokenizer."""
    folder = tmp_path / "bert"
    telling_model(BertModel, bert_config(vocab_size=len(tokenizer), hidden_dropout_prob=0.0)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def sentence(index: int) -> list[str]:
    """A sentence that is good or bad, of several lengths."""
    words = ["film", *["very"] * (index % 5), "good" if index % 2 else "bad", "."]
    random.Random(index).shuffle(words)
    return words


def rows(task: str) -> list[dict[str, Any]]:
    """60 samples of a task that can be learnt from the words."""
    made: dict[str, Callable[[int], dict[str, Any]]] = {
        "single-label": lambda i: {"text": " ".join(sentence(i)), "label": ["bad", "good"][i % 2]},
        "pairs": lambda i: {"sentence1": " ".join(sentence(i)), "sentence2": " ".join(sentence(i // 2)),
                            "label": ["other", "same"][i % 2 == i // 2 % 2]},
        "multi-label": lambda i: {"text": " ".join(sentence(i)),
                                  "labels": [["bad", "good"][i % 2], *["long"] * (i % 5 > 2)]},
        "regression": lambda i: {"text": " ".join(sentence(i)), "label": float(i % 2) + i % 5 / 5},
        "token-classification": lambda i: {"tokens": sentence(i),
                                           "ner_tags": ["B-M" if w in ("good", "bad") else "O" for w in sentence(i)]},
    }  # fmt: skip
    return [made[task](index) for index in range(60)]


METRICS = {
    "single-label": "accuracy",
    "pairs": "accuracy",
    "multi-label": "micro_f1",
    "regression": "pearson",
    "token-classification": "entity_f1",
}


@pytest.mark.parametrize("task", METRICS)
def test_every_task_trains_and_leaves_a_model_that_knows_its_labels(
    tmp_path: Path, bert: Path, write: Write, task: str
) -> None:
    flags = ["--model_name_or_path", bert, "--train_file", write("train.jsonl", rows(task)),
             "--validation_file", write("validation.jsonl", rows(task)[:40]), "--output_dir", tmp_path / "out",
             "--num_train_epochs", 12, "--per_device_train_batch_size", 8, "--learning_rate", "2e-3",
             "--max_length", 24]  # fmt: skip
    flags += ["--text_pair_column", "sentence2"] if task == "pairs" else []
    run("finetune_text.py", tmp_path / "log", *flags)
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    # So small a model does not learn in so few steps what comparing two sentences, or counting words, takes.
    assert results[METRICS[task]] > {"pairs": 0.4, "multi-label": 0.75, "regression": 0.8}.get(task, 0.9), results
    assert results["padding_computed"] <= results["padding_of_equal_lengths"]
    model_class = model_class_for(tmp_path / "out")
    is_tokens = task == "token-classification"
    assert model_class is (FFNForTokenClassification if is_tokens else FFNForSequenceClassification)
    model = model_class.from_pretrained(tmp_path / "out")
    names = {"single-label": {"bad", "good"}, "pairs": {"other", "same"}, "multi-label": {"bad", "good", "long"},
             "token-classification": {"B-M", "O"}}  # fmt: skip
    if task in names:
        assert set(model.config.label2id) == names[task]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        assert model(**tokenizer("film very good .", return_tensors="pt")).logits.isfinite().all()


def test_a_trained_head_in_another_label_order_is_aligned_by_name(tmp_path: Path, bert: Path, write: Write) -> None:
    train = write("train.jsonl", rows("single-label"))
    common = [
        "--per_device_train_batch_size",
        8,
        "--max_length",
        24,
        "--train_file",
        train,
        "--validation_file",
        train,
    ]
    flags = ["--num_train_epochs", 12, "--learning_rate", "2e-3", "--output_dir", tmp_path / "first"]
    run("finetune_text.py", tmp_path / "log", "--model_name_or_path", bert, *flags, *common)
    config = json.loads((tmp_path / "first" / "config.json").read_text())
    assert config["id2label"] == {"0": "bad", "1": "good"}
    # The same head with its rows swapped, as another data set numbers the labels.
    model = FFNForSequenceClassification.from_pretrained(tmp_path / "first", id2label={0: "good", 1: "bad"})
    model.save_pretrained(tmp_path / "swapped")
    AutoTokenizer.from_pretrained(tmp_path / "first").save_pretrained(tmp_path / "swapped")
    flags = ["--max_train_steps", 1, "--learning_rate", 0, "--output_dir", tmp_path / "second"]
    run("finetune_text.py", tmp_path / "log", "--model_name_or_path", tmp_path / "swapped", *flags, *common)
    first, second = (json.loads((tmp_path / f / "all_results.json").read_text()) for f in ("first", "second"))
    assert second["accuracy"] == first["accuracy"] > 0.9


def test_a_stream_trains_and_resumes_exactly(tmp_path: Path, bert: Path, write: Write) -> None:
    data = ["--train_file", write("train.jsonl", rows("single-label")), "--streaming",
            "--validation_file", write("validation.jsonl", rows("single-label")[:10])]  # fmt: skip
    flags = ["--model_name_or_path", bert, *data, "--max_train_steps", 20, "--checkpointing_steps", 4,
             "--per_device_train_batch_size", 8, "--max_length", 24]  # fmt: skip
    run("finetune_text.py", tmp_path / "log", *flags, "--output_dir", tmp_path / "straight")
    run("finetune_text.py", tmp_path / "log", *flags, "--output_dir", tmp_path / "again")
    for step in (16, 20):
        for path in sorted((tmp_path / "again" / f"checkpoint-{step}").iterdir()):
            path.unlink()
        (tmp_path / "again" / f"checkpoint-{step}").rmdir()
    run("finetune_text.py", tmp_path / "log", *flags, "--output_dir", tmp_path / "again",
        "--resume_from_checkpoint", "latest")  # fmt: skip
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("straight", "again")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([{"sentense": "good", "label": "a"}] * 3, "sentense"),
        ([{"text": "good", "label": None}] * 3, "label"),
        ([{"text": "", "label": "a"}, {"text": "good", "label": "b"}] * 2, "empty"),
    ],
)
def test_bad_data_ends_in_one_line(tmp_path: Path, bert: Path, write: Write, content: Any, says: str) -> None:
    flags = ["--model_name_or_path", bert, "--train_file", write("train.jsonl", content)]
    script = start("finetune_text.py", tmp_path / "log", *flags, "--output_dir", tmp_path / "out").wait()
    assert script.code == 1
    assert "Traceback" not in script.output
    last = script.output.strip().splitlines()[-1]
    assert last.startswith("finetune_text.py: ")
    assert says in last


def test_a_length_beyond_the_models_positions_is_refused_before_training(
    tmp_path: Path, bert: Path, write: Write
) -> None:
    data = ["--train_file", write("train.jsonl", rows("single-label")), "--max_length", 41]
    script = start("finetune_text.py", tmp_path / "log", "--model_name_or_path", bert, *data, "--output_dir",
                   tmp_path / "out").wait()  # fmt: skip
    assert script.code == 1
    last = script.output.strip().splitlines()[-1]
    assert last == "finetune_text.py: max_length=41 is more than the 40 tokens that the model has positions for"
