"""The mathematics of a step, in one process and several tasks: how it is split changes nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from accelerate import Accelerator
from torch import nn

from hf_ffn import (
    FFNForImageClassification,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNTextConfig,
    FFNVisionConfig,
)
from hf_ffn.frugal_ffn import PRODUCT_LIBRARY
from hf_ffn.training.arguments import TrainingArguments
from hf_ffn.training.loop import Trainer, positions

from tiny import telling_model

BLOCK = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # fmt: skip
TEXT = {**BLOCK, "vocab_size": 40, "max_position_embeddings": 16}


class Rows(list):
    """Samples that are the same in every epoch."""

    streaming = False

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


# 21 sequences of 3 to 9 tokens
LENGTHS = [3 + index % 7 for index in range(21)]


def texts(labels: Callable[[int, int], Any], lengths: list[int] = LENGTHS) -> tuple[Rows, Callable]:
    """Sequences of so many tokens, and how to make a padded batch of some."""
    rows = Rows()
    for index, length in enumerate(lengths):
        ids = torch.randint(1, 40, (length,), generator=torch.Generator().manual_seed(index))
        rows.append({"input_ids": ids, "labels": torch.tensor(labels(index, length)), "id": index})

    def collate(samples: list[dict]) -> dict[str, torch.Tensor]:
        longest = max(len(sample["input_ids"]) for sample in samples)
        ids = torch.zeros(len(samples), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        by_token = labels is tags
        by_place = torch.full_like(ids, -100)
        for row, sample in enumerate(samples):
            length = len(sample["input_ids"])
            ids[row, :length], mask[row, :length] = sample["input_ids"], 1
            if by_token:
                by_place[row, :length] = sample["labels"]
        stacked = by_place if by_token else torch.stack([sample["labels"] for sample in samples])
        return {"input_ids": ids, "attention_mask": mask, "labels": stacked,
                "ids": torch.tensor([sample["id"] for sample in samples])}  # fmt: skip

    return rows, collate


def tags(index: int, length: int) -> list[int]:
    """Labels of tokens, of which a different number counts in every sequence."""
    return [(index + place) % 3 if place % (1 + index % 4) == 0 else -100 for place in range(length)]


TASKS: dict[str, tuple[type, dict, Callable]] = {
    "single-label": (FFNForSequenceClassification, {"num_labels": 3}, lambda i, n: i % 3),
    "regression": (FFNForSequenceClassification, {"num_labels": 1}, lambda i, n: i / 10),
    "multi-label": (
        FFNForSequenceClassification,
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        lambda i, n: [float(i % 2), float(i % 3 == 0), 1.0],
    ),
    "token-classification": (FFNForTokenClassification, {"num_labels": 3}, tags),
}


def trained(
    tmp_path: Path,
    task: str,
    per_device: int,
    accumulation: int,
    lengths: list[int] = LENGTHS,
    prepare: Callable[[nn.Module], Any] = lambda model: None,
    class_weights: torch.Tensor | None = None,
    **more: Any,
) -> Trainer:
    """Train for 20 steps by plain gradient descent, in this layout of micro-batches."""
    model_class, head, labels = TASKS[task]
    rows, collate = texts(labels, lengths)
    names = None if task == "regression" else [f"class {i}" for i in range(3)]
    data = SimpleNamespace(task=task, train=rows, evaluation=rows, labels=names, collate=collate,
                           lengths=[len(row["input_ids"]) for row in rows], windows=None)  # fmt: skip
    args = TrainingArguments(
        output_dir=str(tmp_path / f"{task}-{per_device}x{accumulation}"),
        per_device_train_batch_size=per_device,
        gradient_accumulation_steps=accumulation,
        learning_rate=0.05,
        **{"max_train_steps": 20, **more},
    )
    Path(args.output_dir).mkdir(exist_ok=True)
    model = telling_model(model_class, FFNTextConfig(**TEXT, **head))
    prepare(model)
    trainer = Trainer(Accelerator(cpu=True), model, data, args, 0, lambda model: None, class_weights=class_weights)
    trainer.run()
    return trainer


@pytest.fixture
def plain_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam divides by the gradient's size, and so makes rounding errors of zero gradients as large as any other."""
    monkeypatch.setattr(torch.optim, "AdamW", descend)


def descend(groups: list[dict[str, Any]], lr: float, fused: bool) -> torch.optim.Optimizer:
    """AdamW's arguments, plain gradient descent."""
    return torch.optim.SGD(groups, lr=lr)


WEIGHTS = torch.tensor([0.05, 1.0, 2.5])


@pytest.mark.usefixtures("plain_descent")
@pytest.mark.parametrize(
    ("task", "class_weights"),
    [*((task, None) for task in TASKS), *((task, WEIGHTS) for task in TASKS if task != "regression")],
)
def test_8x1_4x2_and_2x4_train_the_same_weights(tmp_path: Path, task: str, class_weights: torch.Tensor | None) -> None:
    # Epochs of 21 samples end with a short step: 5 samples, in up to four micro-batches.
    layouts = ((8, 1), (4, 2), (2, 4))
    one, *others = (trained(tmp_path, task, *layout, class_weights=class_weights) for layout in layouts)
    fresh = telling_model(TASKS[task][0], FFNTextConfig(**TEXT, **TASKS[task][1])).state_dict()
    weights = one.model.state_dict()
    update = max((weights[name] - fresh[name]).abs().max().item() for name in weights)
    assert update > 0.01
    for other in others:
        for name, tensor in other.model.state_dict().items():
            assert (tensor - weights[name]).abs().max() < 1e-6, name
        for mine, theirs in zip(one.progress.history, other.progress.history, strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
        assert one.progress.evaluations[-1]["loss"] == pytest.approx(other.progress.evaluations[-1]["loss"], rel=1e-5)


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup", "polynomial"])
def test_a_resumed_run_goes_on_with_its_schedule_and_its_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    flags = {"checkpointing_steps": "5", "lr_scheduler_type": schedule, "num_warmup_steps": 8}
    used: list[bool] = []
    monkeypatch.setattr(PRODUCT_LIBRARY, "by_onednn", False)
    whole = trained(tmp_path, "regression", 4, 1, **flags)
    for step in (10, 15, 20):
        shutil.rmtree(tmp_path / "regression-4x1" / f"checkpoint-{step}")
    monkeypatch.setattr(PRODUCT_LIBRARY, "by_onednn", True)
    step_of = Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda self, micro: (used.append(PRODUCT_LIBRARY.onednn_is_chosen()), step_of(self, micro))
    )
    resumed = trained(tmp_path, "regression", 4, 1, **flags, resume_from_checkpoint="latest")
    assert used == [False] * 15
    assert PRODUCT_LIBRARY.by_onednn, "what comes after in this process must not depend on what it resumed"
    assert resumed.progress.history == whole.progress.history
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, whole.model.state_dict()[name]), name


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_run_that_is_made_longer_goes_on_at_the_rates_of_a_long_one(tmp_path: Path, schedule: str) -> None:
    flags = {"lr_scheduler_type": schedule, "num_warmup_steps": 4}
    short = trained(tmp_path, "regression", 4, 1, **flags, max_train_steps=7)
    longer = trained(tmp_path, "regression", 4, 1, **flags, max_train_steps=15, resume_from_checkpoint="latest")
    at_once = trained(tmp_path, "regression", 8, 1, **flags, max_train_steps=15)
    assert longer.progress.history[:7] == short.progress.history
    rates = [[entry["learning_rate"] for entry in run.progress.history] for run in (longer, at_once)]
    assert rates[0][7:] == rates[1][7:]
    assert rates[0][7] > 0.01


def test_a_warm_up_longer_than_the_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, "regression", 4, 1, max_train_steps=None, num_train_epochs=1, num_warmup_steps=99)
    assert run.progress.step == 6
    assert "num_warmup_steps=99 exceeds the 6 steps of this run" in capsys.readouterr().err


# Sorted by length, a step's first half has padding and its second half has none.
HALF_PADDED = [9, 3, 9, 4, 9, 9, 6, 8]


def train_in_one_of_two_processes(rank: int, folder: str) -> None:
    """A process of the test below: four of every eight sequences, with padding left out."""
    os.environ.update(ACCELERATE_USE_CPU="true", WORLD_SIZE="2", RANK=str(rank), LOCAL_RANK=str(rank))
    # accelerate asks for an address, and then uses the connection below.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.optim.AdamW = descend  # type: ignore[assignment, misc]
    computed: set[tuple[int, ...]] = set()

    def note_shapes(model: nn.Module) -> None:
        first = model.base_model.encoder.layers[0]
        first.register_forward_pre_hook(lambda block, inputs: computed.add(tuple(inputs[0].shape[:2])))

    own = Path(folder) / str(rank)
    own.mkdir()
    trainer = trained(own, "token-classification", 4, 1, HALF_PADDED, note_shapes, group_by_length=True)
    weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    torch.save({"weights": weights, "computed": computed}, own / "outcome.pt")
    # The wrapper for two processes must not outlive their group: hf_ffn/training/run.py says why.
    accelerator = trainer.accelerator
    del trainer
    accelerator.free_memory()
    # One process must not take its connections down while the other still uses them.
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.usefixtures("plain_descent")
def test_two_processes_without_padding_train_the_weights_of_one_with_it(tmp_path: Path) -> None:
    task = "token-classification"

    def pad(model: nn.Module) -> None:
        model.config.unpad = "never"

    padded = trained(tmp_path, task, 8, 1, HALF_PADDED, pad, group_by_length=True).model.state_dict()
    mp.spawn(train_in_one_of_two_processes, args=(str(tmp_path),), nprocs=2)
    outcomes = [torch.load(tmp_path / rank / "outcome.pt", weights_only=True) for rank in ("0", "1")]
    # The one left out padding while the other had none.
    assert (1, 21) in outcomes[0]["computed"]
    assert (4, 9) in outcomes[1]["computed"]
    fresh = telling_model(TASKS[task][0], FFNTextConfig(**TEXT, **TASKS[task][1])).state_dict()
    update = distance(padded, fresh)
    assert update > 0.1
    for each in outcomes:
        assert distance(each["weights"], padded) < 1e-6 * update


def distance(weights: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    """The length of the difference of two states of a model."""
    return torch.cat([(weights[name] - others[name]).flatten() for name in others]).norm().item()


def test_the_loss_of_a_step_is_the_mean_over_its_labelled_items(tmp_path: Path) -> None:
    trainer = trained(tmp_path, "token-classification", 2, 4, group_by_length=False)
    seen = trainer.progress.history[0]["loss"]
    rows, collate = texts(tags)
    from hf_ffn.training.sampling import steps_of_epoch

    (first, *_) = steps_of_epoch(21, 8, seed=42, epoch=0)
    model = telling_model(FFNForTokenClassification, FFNTextConfig(**TEXT, num_labels=3))
    batch = collate([rows[index] for index in first])
    batch.pop("ids")
    labels = batch.pop("labels")
    with torch.no_grad():
        expected = nn.functional.cross_entropy(model(**batch).logits.flatten(0, 1), labels.flatten())
    assert seen == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("task", ["single-label", "token-classification", "multi-label"])
def test_weighted_losses_of_training_and_evaluation_are_torchs(tmp_path: Path, task: str) -> None:
    trainer = trained(tmp_path, task, 8, 3, class_weights=WEIGHTS, group_by_length=False)
    loss_of = nn.CrossEntropyLoss(WEIGHTS) if task != "multi-label" else nn.BCEWithLogitsLoss(pos_weight=WEIGHTS)
    rows, collate = texts(TASKS[task][2])

    def expected(model: nn.Module) -> float:
        batch = collate(rows)
        labels = batch["labels"]
        with torch.no_grad():
            logits = model(batch["input_ids"], batch["attention_mask"]).logits
        return loss_of(logits.flatten(0, -2), labels.flatten() if task != "multi-label" else labels).item()

    fresh = telling_model(TASKS[task][0], FFNTextConfig(**TEXT, **TASKS[task][1]))
    # A step of all 21 sequences is a mean over all of them.
    assert trainer.progress.history[0]["loss"] == pytest.approx(expected(fresh), rel=1e-5)
    assert trainer.progress.evaluations[-1]["loss"] == pytest.approx(expected(trainer.model.eval()), rel=1e-5)


def test_the_weighted_loss_of_one_sample_is_its_loss(tmp_path: Path) -> None:
    trainer = trained(tmp_path, "single-label", 8, 1, class_weights=WEIGHTS)
    rows, collate = texts(TASKS["single-label"][2])
    batch = collate(rows[:1])
    assert WEIGHTS[batch["labels"]] < 1
    with torch.no_grad():
        logits = trainer.model(batch["input_ids"], batch["attention_mask"]).logits
    trainer.step([batch])
    expected = nn.functional.cross_entropy(logits, batch["labels"]).item()
    assert trainer.progress.history[-1]["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("class_weights", [None, WEIGHTS])
def test_a_process_without_samples_counts_in_the_type_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, class_weights: torch.Tensor | None
) -> None:
    trainer = trained(tmp_path, "single-label", 8, 1, class_weights=class_weights)
    reduced: list[torch.dtype] = []
    reduce = trainer.accelerator.reduce
    monkeypatch.setattr(trainer.accelerator, "reduce", lambda t, how: (reduced.append(t.dtype), reduce(t, how))[1])
    rows, collate = texts(TASKS["single-label"][2])
    for micro in ([None], [collate(rows[:2])]):
        trainer.step(micro)
    with_none, with_some = reduced[:2], reduced[2:]
    assert with_none == with_some


def test_evaluation_counts_each_sample_once_whatever_the_batch_size(tmp_path: Path) -> None:
    found = []
    for size in (1, 4, 32):
        trainer = trained(tmp_path / str(size) if (tmp_path / str(size)).mkdir() is None else tmp_path,
                          "token-classification", 8, 1, per_device_eval_batch_size=size)  # fmt: skip
        metrics, logits, labels = trainer.evaluate()
        assert logits.shape[0] == labels.shape[0] == 21
        found.append((metrics["loss"], logits[labels != -100]))
    for loss, logits in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-5)
        assert torch.allclose(torch.tensor(logits), torch.tensor(found[0][1]), atol=1e-5)


def test_padding_is_counted() -> None:
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    assert positions({"attention_mask": mask, "labels": torch.tensor([0, 1])}) == (4, 8, 2)
    assert positions({"labels": torch.tensor([0, 1, 2])}) == (0, 0, 3)


def test_images_go_through_the_same_loop(tmp_path: Path) -> None:
    rows = Rows({"pixel_values": torch.randn(3, 8, 8), "labels": torch.tensor(i % 2), "id": i} for i in range(6))

    def collate(samples: list[dict]) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.stack([s["pixel_values"] for s in samples]),
                "labels": torch.stack([s["labels"] for s in samples]), "ids": torch.arange(len(samples))}  # fmt: skip

    data = SimpleNamespace(task="image-classification", train=rows, evaluation=rows, labels=["a", "b"],
                           collate=collate, lengths=None, windows=None)  # fmt: skip
    args = TrainingArguments(output_dir=str(tmp_path), per_device_train_batch_size=3, num_train_epochs=2)
    model = FFNForImageClassification(FFNVisionConfig(**BLOCK, image_size=8, patch_size=4, num_labels=2))
    kept: list[nn.Module] = []
    trainer = Trainer(Accelerator(cpu=True), model, data, args, 0, kept.append)
    progress = trainer.run()
    assert (progress.step, progress.epoch, len(progress.evaluations)) == (4, 1, 2)
    assert kept
