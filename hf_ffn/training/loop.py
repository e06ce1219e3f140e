"""The training loop: accelerate underneath, and the mathematics of a step independent of how it is laid out."""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import nn
from torch.utils.data import DataLoader
from tqdm.auto import tqdm
from transformers import get_scheduler

from ..frugal_ffn import PRODUCT_LIBRARY
from .arguments import TrainingArguments
from .checkpoints import Progress, drop_later, find_checkpoint, load_checkpoint, save_checkpoint
from .class_weights import total_weight, weighted_loss
from .data import TaskData
from .metrics import IGNORED, compute_metrics, metric_for_best
from .parameters import parameter_groups
from .sampling import MicroBatchSampler, StreamMicroBatches, StreamSamples, sample_generator, steps_of_epoch

Batch = dict[str, torch.Tensor]


class NonFiniteLossError(FloatingPointError):
    """The loss of a step is not a number any more; the message names the step and its samples."""


class StopRequest:
    """Remembers a SIGTERM or Ctrl-C, so that the step under way is finished before the run stops.

    The second one stops at once.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self.restore()
            raise KeyboardInterrupt
        self.signal = number

    def restore(self) -> None:
        """Give the signals back to whoever had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def agreed(self, accelerator: Accelerator) -> int | None:
        """The signal, if any process got one: all stop after the same step."""
        own = torch.tensor([self.signal or 0], device=accelerator.device)
        return int(accelerator.gather(own).max()) or None


class Trainer:
    """One run: a model, data and arguments; `run()` trains, evaluates, checkpoints and resumes.

    Args:
        accelerator: of this process.
        model: with a head that takes `labels` and `num_items_in_batch`.
        data: what to train and evaluate on.
        args: how.
        num_workers: processes that prepare batches.
        save_best: called with the model, in all processes, whenever the metric is the best so far.
        after_epoch: called with the model and the number of epochs done, in all processes, after every epoch but
            the last.
        class_weights: of the classes, in training's loss and in evaluation's.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        data: TaskData,
        args: TrainingArguments,
        num_workers: int,
        save_best: Callable[[nn.Module], None],
        after_epoch: Callable[[nn.Module, int], None] = lambda model, epoch: None,
        class_weights: torch.Tensor | None = None,
    ) -> None:
        self.accelerator = accelerator
        self.data = data
        self.args = args
        self.num_workers = num_workers
        self.save_best = save_best
        self.after_epoch = after_epoch
        self.class_weights = class_weights
        self.folder = Path(args.output_dir)
        self.effective_batch_size = (
            args.per_device_train_batch_size * args.gradient_accumulation_steps * accelerator.num_processes
        )
        self.total_steps = self.count_steps()
        if args.num_warmup_steps > self.total_steps:
            # No error: whoever tries a few steps of a longer run leaves its arguments as they are.
            self.say(
                f"num_warmup_steps={args.num_warmup_steps} exceeds the {self.total_steps} steps of this run: the "
                f"learning rate will not come to its height"
            )
        self.best_metric, self.greater_is_better = metric_for_best(data.task, args.metric_for_best_model, data.labels)

        optimizer = torch.optim.AdamW(parameter_groups(model, args.weight_decay), lr=args.learning_rate, fused=True)
        self.scheduler = get_scheduler(args.lr_scheduler_type, optimizer, args.num_warmup_steps, self.total_steps)
        # accelerate's own scheduler would step once a process, so ours stays outside.
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.progress = Progress()

    def count_steps(self) -> int:
        """Steps of the whole run.

        Raises:
            ValueError: a stream, whose length nobody knows, and no `max_train_steps`.
        """
        if self.args.max_train_steps is not None:
            return self.args.max_train_steps
        if isinstance(self.data.train, StreamSamples):
            raise ValueError("a stream has no known length: pass max_train_steps")
        return math.ceil(len(self.data.train) / self.effective_batch_size) * self.args.num_train_epochs

    def run(self) -> Progress:
        """Train to the end, from the beginning or from a checkpoint.

        Raises:
            NonFiniteLossError: the loss is infinite or not a number.
            SystemExit: 143 or 130 after SIGTERM or Ctrl-C, with a checkpoint saved.
        """
        if self.args.resume_from_checkpoint:
            checkpoint = find_checkpoint(self.folder, self.args.resume_from_checkpoint)
            if checkpoint is not None:
                self.progress = load_checkpoint(self.accelerator, checkpoint)
                self.resume_schedule()
                if self.accelerator.is_main_process and (later := drop_later(self.folder, self.progress.step)):
                    self.say(f"removed, for the run goes on from before them: {', '.join(later)}")
                self.accelerator.wait_for_everyone()
            self.say(f"resuming from {checkpoint}" if checkpoint else "no checkpoint yet: starting from the beginning")
        library_before = PRODUCT_LIBRARY.by_onednn
        self.agree_on_a_library()
        stop = StopRequest()
        bar = tqdm(
            total=self.total_steps,
            initial=self.progress.step,
            disable=not self.accelerator.is_main_process,
            unit="step",
            dynamic_ncols=True,
        )
        try:
            while self.progress.step < self.total_steps:
                self.run_epoch(bar, stop)
        finally:
            bar.close()
            stop.restore()
            # The next run in this process chooses for itself, as it would anywhere.
            PRODUCT_LIBRARY.by_onednn = library_before
        if not self.progress.evaluations or self.progress.evaluations[-1]["step"] != self.progress.step:
            self.evaluate_and_note()
        return self.progress

    def agree_on_a_library(self) -> None:
        """Let all processes multiply by the same library, and a resumed run by the one that it was begun with."""
        if self.progress.product_library:
            PRODUCT_LIBRARY.load_state_dict(self.progress.product_library)
        (state,) = broadcast_object_list([PRODUCT_LIBRARY.state_dict()])
        PRODUCT_LIBRARY.load_state_dict(state)
        self.progress.product_library = state

    def resume_schedule(self) -> None:
        """Take up the learning rate where the schedule has it now: the run may be longer than when it was saved."""
        self.scheduler.load_state_dict(self.progress.schedule)
        done = self.scheduler.last_epoch
        rates = [base * of(done) for base, of in zip(self.scheduler.base_lrs, self.scheduler.lr_lambdas, strict=True)]
        for group, rate in zip(self.scheduler.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.scheduler._last_lr = rates

    def run_epoch(self, bar: tqdm, stop: StopRequest) -> None:
        """Do what is left of the epoch under way, and evaluate at its end."""
        progress, accumulation = self.progress, self.args.gradient_accumulation_steps
        batches = self.micro_batches()
        self.model.train()
        while progress.step < self.total_steps:
            started = time.monotonic()
            micro = list(islice(batches, accumulation))
            if not micro:
                break
            self.step(micro)
            self.show(bar, micro, time.monotonic() - started)
            if self.is_due(progress.step):
                self.checkpoint()
            number = stop.agreed(self.accelerator)
            if number is not None:
                self.stop_now(number)
        else:
            self.checkpoint()
            return
        if progress.step_in_epoch == 0:
            raise ValueError("there are no training samples")
        progress.epoch, progress.step_in_epoch = progress.epoch + 1, 0
        self.evaluate_and_note()
        if self.args.checkpointing_steps == "epoch":
            self.checkpoint()
        if progress.step < self.total_steps:
            self.after_epoch(self.model, progress.epoch)

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after this step."""
        every = self.args.checkpointing_steps
        return every not in (None, "epoch") and step % int(str(every)) == 0

    def micro_batches(self) -> Iterator[Batch | None]:
        """This process's micro-batches of the epoch, from the step under way on; None for an empty one."""
        data, args, progress = self.data, self.args, self.progress
        data.train.set_epoch(progress.epoch)
        layout = (
            args.per_device_train_batch_size,
            args.gradient_accumulation_steps,
            self.accelerator.num_processes,
            self.accelerator.process_index,
            progress.step_in_epoch,
        )
        # A loader draws its workers' seeds; from a generator of its own it leaves the global state alone.
        shared: dict[str, Any] = {
            "collate_fn": Collate(data.collate),
            "num_workers": self.num_workers,
            "generator": torch.Generator(),
        }
        if isinstance(data.train, StreamSamples):
            return iter(DataLoader(StreamMicroBatches(data.train, *layout), batch_size=None, **shared))
        lengths = data.lengths if args.group_by_length else None
        steps = steps_of_epoch(
            len(data.train), self.effective_batch_size, seed=args.seed, epoch=progress.epoch, lengths=lengths
        )
        return iter(DataLoader(data.train, batch_sampler=MicroBatchSampler(steps, *layout), **shared))

    def step(self, micro: list[Batch | None]) -> None:
        """One optimizer step over the whole effective batch, however it is split.

        Loss and gradient are sums over the step's labelled items, divided by their number in all micro-batches of all
        processes, so that the split changes nothing but the order of summation.
        """
        accelerator, progress = self.accelerator, self.progress
        # Dropout follows from the step and the process alone, so a resumed run draws what an undisturbed one draws.
        torch.manual_seed(sample_generator(self.args.seed, progress.step, accelerator.process_index).initial_seed())
        own_items = sum(self.count(batch) for batch in micro if batch is not None)
        # Of one type in all processes, also where one has no samples.
        dtype = torch.int64 if self.class_weights is None else torch.float32
        items = accelerator.reduce(torch.tensor(own_items, dtype=dtype, device=accelerator.device), "sum").item()
        total = torch.zeros((), device=accelerator.device)
        for index, batch in enumerate(micro):
            is_last = index == len(micro) - 1
            if batch is None and accelerator.num_processes == 1:
                continue
            weight = 0.0 if batch is None else float(accelerator.num_processes)
            with nullcontext() if is_last else accelerator.no_sync(self.model):
                loss, _ = self.loss(batch if batch is not None else self.stand_in(micro), items or 1)
                # Gradients are averaged over processes, where a sum is wanted.
                accelerator.backward(loss * weight)
            total += loss.detach() * (weight > 0)
        loss_of_step = float(accelerator.reduce(total, "sum"))
        if not math.isfinite(loss_of_step):
            self.refuse_non_finite(micro, loss_of_step)
        if self.args.max_grad_norm > 0:
            accelerator.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        rate = self.scheduler.get_last_lr()[0]
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()

        progress.step += 1
        progress.step_in_epoch += 1
        entry = {"step": progress.step, "epoch": progress.epoch, "loss": loss_of_step, "learning_rate": rate}
        progress.history.append(entry)
        accelerator.log({"loss": loss_of_step, "learning_rate": rate, "epoch": progress.epoch}, step=progress.step)

    def loss(self, batch: Batch, items: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of a micro-batch (summed over its items, divided by those of the whole step), and its logits."""
        inputs = {name: tensor.to(self.accelerator.device) for name, tensor in batch.items() if name != "ids"}
        if self.class_weights is None:
            output = self.model(**inputs, num_items_in_batch=items)
            return output.loss, output.logits
        labels = inputs.pop("labels")
        logits = self.model(**inputs).logits
        weights = self.class_weights.to(logits.device)
        return weighted_loss(self.data.task, logits, labels, weights) / items, logits

    def count(self, batch: Batch) -> float:
        """What the loss of a batch is a mean over: its labelled items, or their weights."""
        if self.class_weights is None:
            return count_items(batch)
        return total_weight(self.data.task, batch["labels"], self.class_weights)

    def stand_in(self, micro: list[Batch | None]) -> Batch:
        """A batch for a process that has none, whose loss counts nothing: all processes must run together."""
        return next((batch for batch in micro if batch is not None), None) or self.data.collate(
            [self.data.evaluation[0]]
        )

    def refuse_non_finite(self, micro: list[Batch | None], loss: float) -> None:
        """Stop the run, and name the samples."""
        own = [sample for batch in micro if batch is not None for sample in batch["ids"].tolist()]
        samples = sorted(gather_object(own))
        raise NonFiniteLossError(
            f"the loss is {loss} at step {self.progress.step + 1} (epoch {self.progress.epoch}); the samples of this "
            f"step are {samples}. Try a lower learning_rate, or mixed_precision no or bf16 in place of fp16."
        )

    def show(self, bar: tqdm, micro: list[Batch | None], seconds: float) -> None:
        """Count what was computed, and show loss, rate and speed."""
        progress = self.progress
        counts = [positions(batch) for batch in micro if batch is not None]
        own = torch.tensor([sum(c[0] for c in counts), sum(c[1] for c in counts), sum(c[2] for c in counts)])
        real, computed, samples = self.accelerator.reduce(own.to(self.accelerator.device), "sum").tolist()
        progress.real_tokens += real
        progress.computed_tokens += computed
        progress.uniform_tokens += samples * max(self.data.lengths or [0])
        amount, unit = (real, "tokens") if real else (samples, "images")
        last = progress.history[-1]
        bar.set_postfix(
            loss=f"{last['loss']:.4f}", lr=f"{last['learning_rate']:.1e}", speed=f"{amount / seconds:,.0f} {unit}/s"
        )
        bar.update()

    def checkpoint(self) -> Path:
        """Save a checkpoint of the run as it stands."""
        limit = self.args.checkpoints_total_limit
        self.progress.schedule = self.scheduler.state_dict()
        return save_checkpoint(self.accelerator, self.folder, self.progress, limit)

    def stop_now(self, number: int) -> None:
        """Save, say how to go on, and leave with the status that the signal asks for."""
        path = self.checkpoint()
        self.say(f"stopped by {signal.Signals(number).name} after step {self.progress.step}; saved {path}. To go on,")
        self.say("run the same command with --resume_from_checkpoint latest")
        sys.exit(128 + number)

    def evaluate_and_note(self) -> None:
        """Evaluate, note the result, and keep the model if it is the best so far."""
        metrics, _, _ = self.evaluate()
        plain = {name: value for name, value in metrics.items() if not isinstance(value, dict)}
        entry = {"step": self.progress.step, "epoch": self.progress.epoch, **plain}
        self.progress.evaluations.append(entry)
        self.accelerator.log({f"eval_{name}": value for name, value in plain.items()}, step=self.progress.step)
        self.say(", ".join(f"{name} {value:.4f}" for name, value in plain.items()))
        best = self.progress.best
        sign = 1 if self.greater_is_better else -1
        if best is None or sign * entry[self.best_metric] > sign * best[self.best_metric]:
            self.progress.best = entry
            self.accelerator.wait_for_everyone()
            self.save_best(self.model)

    @torch.no_grad()
    def evaluate(self) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        """Metrics, logits and labels over the evaluation data, each sample once whatever the number of processes."""
        accelerator, data, size = self.accelerator, self.data, self.args.per_device_eval_batch_size
        self.model.eval()
        own = range(accelerator.process_index, len(data.evaluation), accelerator.num_processes)
        rounds = math.ceil(math.ceil(len(data.evaluation) / accelerator.num_processes) / size)
        results: list[tuple[Any, ...]] = []
        for index in range(rounds):
            indices = list(own)[index * size : (index + 1) * size]
            # Processes that share a sharded model must run it equally often; what they compute here is dropped.
            batch = data.collate([data.evaluation[i] for i in indices or [0]])
            loss, outputs = self.loss(batch, 1)
            logits, labels = outputs.float().cpu().numpy(), batch["labels"].numpy()
            for row, sample in enumerate(indices):
                share = (float(loss), self.count(batch)) if row == 0 else (0.0, 0)
                results.append((sample, logits[row], labels[row], *share))
        self.model.train()
        results = sorted(gather_object(results), key=lambda result: result[0])
        rows = [(result[1], result[2]) for result in results]
        rows = rows if data.windows is None else join_windows(rows, data.windows)
        logits, labels = (pad_together([row[place] for row in rows]) for place in (0, 1))
        metrics = compute_metrics(data.task, logits, labels, data.labels)
        items = sum(result[4] for result in results)
        return {"loss": sum(result[3] for result in results) / (items or 1), **metrics}, logits, labels

    def say(self, text: str) -> None:
        """Print a line once, above the progress bar."""
        if self.accelerator.is_main_process:
            tqdm.write(text, file=sys.stderr)


class Collate:
    """The data's own collation, and None for an empty micro-batch (a class, so that workers can be sent it)."""

    def __init__(self, collate: Callable[[list[dict]], Batch]) -> None:
        self.collate = collate

    def __call__(self, samples: list[dict]) -> Batch | None:
        return self.collate(samples) if samples else None


def count_items(batch: Batch) -> int:
    """Labelled items of a batch."""
    return int((batch["labels"] != -100).sum())


def positions(batch: Batch) -> tuple[int, int, int]:
    """Real tokens, computed tokens (both 0 for images), and samples of a batch."""
    mask = batch.get("attention_mask")
    samples = batch["labels"].shape[0]
    return (0, 0, samples) if mask is None else (int(mask.sum()), mask.numel(), samples)


def join_windows(rows: list[tuple[np.ndarray, np.ndarray]], samples: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Put together what the windows of each sample say of its words.

    Args:
        rows: of each window the logits and labels of its tokens; -100 where it says nothing.
        samples: of each window its sample, in ascending order.
    """
    parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(samples[-1] + 1)]
    for sample, (logits, labels) in zip(samples, rows, strict=True):
        parts[sample].append((logits[labels != IGNORED], labels[labels != IGNORED]))
    return [(np.concatenate([part[0] for part in each]), np.concatenate([part[1] for part in each])) for each in parts]


def pad_together(rows: list[np.ndarray]) -> np.ndarray:
    """Stack rows whose first dimension differs (sequences), filling up with -100, which metrics ignore."""
    if not rows or rows[0].ndim == 0 or len({row.shape for row in rows}) == 1:
        return np.stack(rows)
    longest = max(row.shape[0] for row in rows)
    fill = [[(0, longest - row.shape[0]), *[(0, 0)] * (row.ndim - 1)] for row in rows]
    return np.stack([np.pad(row, widths, constant_values=-100) for row, widths in zip(rows, fill, strict=True)])
