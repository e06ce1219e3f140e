"""What of long texts is cut is counted and said, and no evaluated word loses its label by it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from transformers import PreTrainedTokenizerBase

from hf_ffn import FFNForTokenClassification, FFNTextConfig
from hf_ffn.training.arguments import TrainingArguments
from hf_ffn.training.data import TaskData
from hf_ffn.training.loop import Trainer
from hf_ffn.training.sampling import StreamSamples
from hf_ffn.training.texts import length_of_samples

from tiny import telling_model

pytestmark = pytest.mark.usefixtures("own_cache")

Load = Callable[..., TaskData]

LONG = {"tokens": ["good", "unlikely", "film"] * 20, "ner_tags": ["B-A", "I-A", "O"] * 20}
SHORT = {"tokens": ["bad", "film"], "ner_tags": ["B-A", "O"]}


def test_texts_that_are_cut_are_counted_and_said(load: Load) -> None:
    rows = [{"text": "good " * number, "label": number % 2} for number in range(2, 22)]
    summary = load(rows, rows[:10], max_length=12).summary
    # Ten words and two tokens of the tokenizer's fit.
    assert (summary.facts()["train"]["cut"], summary.facts()["evaluation"]["cut"]) == (11, 1)
    assert "; 11 texts longer than max_length, and cut\n" in str(summary)
    summary = load(rows, rows[:9], max_length=23).summary
    assert (summary.facts()["train"]["cut"], summary.facts()["evaluation"]["cut"]) == (0, 0)
    assert "max_length" not in str(summary)


def test_pairs_that_are_cut_are_counted(load: Load) -> None:
    rows = [{"sentence1": "good " * i, "sentence2": "bad " * i, "label": i % 2} for i in range(1, 11)]
    assert load(rows, rows, max_length=11).summary.facts()["train"]["cut"] == 6


def test_a_stream_says_that_texts_are_cut(load: Load, messages: pytest.LogCaptureFixture) -> None:
    rows = [{"text": "good " * 9, "label": number % 2} for number in range(4)]
    stream = load(rows, rows, max_length=5, streaming=True).train
    assert isinstance(stream, StreamSamples)
    samples = [stream.prepare(row) for row in stream]
    assert set(samples[0]) == {"input_ids", "token_type_ids", "attention_mask", "labels", "id"}
    assert "train.jsonl': some texts are longer than 5 tokens, and are cut" in messages.text


def test_words_that_lose_their_labels_in_training_are_counted(load: Load) -> None:
    data = load([LONG, SHORT], [LONG, SHORT], max_length=12)
    assert len(data.train) == 2  # type: ignore[arg-type]
    train, evaluation = (data.summary.facts()[part] for part in ("train", "evaluation"))
    # Beside the tokenizer's two tokens, two times "good un ##likely film" fit, and "good un".
    assert (train["cut"], train["lost_labels"], train["lost_entities"]) == (1, 52, 17)
    assert evaluation["in_windows"] == 1
    assert evaluation["cut"] == 0
    assert "lost_labels" not in evaluation
    assert "1 texts longer than max_length, read in windows" in str(data.summary)


def test_each_evaluated_word_has_its_label_in_one_window(load: Load) -> None:
    data = load([LONG, SHORT], [SHORT, LONG, SHORT], max_length=12)
    assert data.windows is not None
    assert data.windows == sorted(data.windows)
    assert set(data.windows) == {0, 1, 2}
    assert data.labels == ["B-A", "I-A", "O"]
    for sample, row in enumerate((SHORT, LONG, SHORT)):
        entries = [data.evaluation[i] for i, each in enumerate(data.windows) if each == sample]
        assert all(len(entry["input_ids"]) <= 12 for entry in entries)
        found = [label for entry in entries for label in entry["labels"] if label != -100]
        assert [data.labels[label] for label in found] == row["ner_tags"]
    assert data.texts(1).startswith("good unlikely film good")


def test_a_word_without_a_token_is_counted(load: Load) -> None:
    rows = [{"tokens": ["good", "\u200b", "film"], "ner_tags": ["O", "B-A", "O"]}, SHORT]
    train = load(rows, [SHORT]).summary.facts()["train"]
    assert (train["cut"], train["lost_labels"], train["lost_entities"]) == (0, 1, 1)


def test_evaluation_in_windows_is_over_whole_samples(load: Load, tmp_path: Any) -> None:
    data = load([LONG, SHORT], [SHORT, LONG, SHORT], max_length=12)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = telling_model(FFNForTokenClassification, FFNTextConfig(vocab_size=14, num_labels=3, **sizes))  # type: ignore[arg-type]
    args = TrainingArguments(output_dir=str(tmp_path / "out"), max_train_steps=1, per_device_eval_batch_size=2)
    trainer = Trainer(Accelerator(cpu=True), model, data, args, 0, lambda model: None)
    metrics, logits, labels = trainer.evaluate()
    assert logits.shape[:2] == labels.shape
    assert (labels != -100).sum(axis=1).tolist() == [2, 60, 2]
    assert labels[1].tolist() == [0, 1, 2] * 20
    assert metrics["per_class"]["A"]["support"] == 22
    assert np.isfinite(metrics["loss"])
    model.eval()
    with torch.no_grad():
        entry = data.evaluation[0]
        alone = model(torch.tensor([entry["input_ids"]])).logits[0, 1].numpy()
    kept = logits[0][labels[0] != -100]
    np.testing.assert_allclose(kept[0], alone, atol=1e-5)


def test_a_length_beyond_the_models_positions_is_refused(
    tokenizer: PreTrainedTokenizerBase, messages: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="max_length=41 is more than the 40 tokens that the model has positions for"):
        length_of_samples(41, tokenizer, 40)
    assert length_of_samples(40, tokenizer, 40) == 40
    assert length_of_samples(100_000, tokenizer, None) == 100_000
    assert [length_of_samples(None, tokenizer, longest) for longest in (40, 512, None)] == [40, 128, 128]
    assert "model_max_length" not in messages.text
    tokenizer.model_max_length = 20
    assert length_of_samples(40, tokenizer, 40) == 20
    assert "max_length=40: the tokenizer's model_max_length is 20, and counts" in messages.text
