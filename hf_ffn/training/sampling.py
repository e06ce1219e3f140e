"""The order of the samples: a function of seed and epoch alone, whatever the processes and the interruptions.

Everything is cut from the effective batch of an optimizer step: first the epoch's order is cut into steps, then each
step is cut for processes and micro-batches. So a step holds the same samples however it is computed, and a run goes on
at step n by leaving out n steps.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import datasets
import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info

# Samples of like length are looked for in so many effective batches: enough to pad little, few enough to stay random.
MEGA_BATCH = 50
# The shuffling of a stream is as good as this many samples in memory allow.
STREAM_BUFFER = 10_000

Sample = TypeVar("Sample")
# Makes a sample of a row, a seed and an epoch.
Prepare = Callable[[dict[str, Any], int, int], dict[str, Any]]


def sample_generator(seed: int, epoch: int, index: int) -> torch.Generator:
    """Random numbers for one sample in one epoch; they depend on nothing else.

    Args:
        seed: the run's.
        epoch: counted from 0.
        index: the sample's, in the original data.
    """
    # A sum would give sample 3 in epoch 4 what sample 4 got in epoch 3.
    digest = hashlib.sha256(f"{seed},{epoch},{index}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


def steps_of_epoch(
    num_samples: int, batch_size: int, *, seed: int, epoch: int, lengths: Sequence[int] | None = None
) -> list[list[int]]:
    """The order of an epoch, cut into the effective batches of its optimizer steps.

    Args:
        num_samples: how many there are; each comes exactly once.
        batch_size: samples per step: per device × accumulation × processes. The last step may have fewer.
        seed: the run's.
        epoch: counted from 0.
        lengths: tokens per sample, to put samples of like length into a step, in ascending order.

    Raises:
        ValueError: no samples, a batch size below 1, or another number of lengths than samples.
    """
    if num_samples < 1 or batch_size < 1:
        raise ValueError(f"num_samples={num_samples} and batch_size={batch_size} must be at least 1")
    if lengths is not None and len(lengths) != num_samples:
        raise ValueError(f"{len(lengths)} lengths were given for {num_samples} samples")
    generator = sample_generator(seed, epoch, -1)
    order = torch.randperm(num_samples, generator=generator).tolist()
    if lengths is None:
        return cut(order, batch_size)
    for start in range(0, num_samples, MEGA_BATCH * batch_size):
        stop = start + MEGA_BATCH * batch_size
        order[start:stop] = sorted(order[start:stop], key=lengths.__getitem__)
    steps = cut(order, batch_size)
    # The short step stays the last.
    full = num_samples // batch_size
    return [steps[i] for i in torch.randperm(full, generator=generator).tolist()] + steps[full:]


def cut(samples: Sequence[Sample], size: int) -> list[list[Sample]]:
    """Cut into lists of a size; the last may be shorter."""
    return [list(samples[start : start + size]) for start in range(0, len(samples), size)]


def micro_batches(
    step: Sequence[Sample], per_device: int, accumulation: int, num_processes: int, process: int
) -> list[list[Sample]]:
    """One process's share of a step, cut into micro-batches.

    The shares of all processes together are the step, each sample once. Neighbours stay together, so that what was
    sorted by length pads little. A short step is spread evenly, and some micro-batches may then be empty.

    Args:
        step: the samples of one optimizer step.
        per_device: samples per process and micro-batch, at most.
        accumulation: micro-batches per step; so many lists are returned.
        num_processes: how many take part.
        process: which of them, from 0.

    Raises:
        ValueError: a step with more samples than there is room for, or a process that there isn't.
    """
    parts = accumulation * num_processes
    if len(step) > per_device * parts:
        raise ValueError(f"a step of {len(step)} samples is more than {per_device} × {accumulation} × {num_processes}")
    if not 0 <= process < num_processes:
        raise ValueError(f"process {process} is not one of {num_processes}")
    # What processes compute at the same time lies side by side in the step: they finish together.
    mine = range(process, parts, num_processes)
    bounds = even_bounds(len(step), parts)
    return [list(step[bounds[part] : bounds[part + 1]]) for part in mine]


def even_bounds(length: int, parts: int) -> list[int]:
    """Where to cut so that the parts' sizes differ by one at most, the larger ones first."""
    size, larger = divmod(length, parts)
    return [part * size + min(part, larger) for part in range(parts + 1)]


class MicroBatchSampler(Sampler[list[int]]):
    """The micro-batches of one process, for `DataLoader(batch_sampler=…)`; empty ones are yielded as empty lists.

    Args:
        steps: of the epoch, from `steps_of_epoch`.
        per_device: samples per process and micro-batch.
        accumulation: micro-batches per step.
        num_processes: how many take part.
        process: which of them, from 0.
        start_step: how many steps are done already.
    """

    def __init__(
        self,
        steps: list[list[int]],
        per_device: int,
        accumulation: int,
        num_processes: int,
        process: int,
        start_step: int = 0,
    ) -> None:
        self.steps = steps[start_step:]
        self.accumulation = accumulation
        self.layout = (per_device, accumulation, num_processes, process)

    def __len__(self) -> int:
        return len(self.steps) * self.accumulation

    def __iter__(self) -> Iterator[list[int]]:
        for step in self.steps:
            yield from micro_batches(step, *self.layout)


class Samples(Dataset[dict[str, Any]]):
    """Samples that are made when they are asked for.

    Args:
        rows: what they are made of.
        prepare: makes a sample of a row, a seed and an epoch. None: the rows are samples already.
        seed: the run's.
    """

    streaming = False

    def __init__(self, rows: datasets.Dataset, prepare: Prepare | None, seed: int) -> None:
        self.rows = rows
        self.prepare = prepare
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Augment as in this epoch; loader workers that run already do not hear of it."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        row = self.rows[index]
        return self.prepare(row, self.seed, self.epoch) if self.prepare else row


class StreamSamples:
    """Samples of a stream, shuffled within a buffer: the same order for the same seed and epoch.

    Iterating gives raw rows, which `prepare` makes samples of: rows that another process takes, or that were seen
    before an interruption, cost little.

    Args:
        rows: the stream.
        prepare: makes a sample of a row, a seed and an epoch.
        seed: the run's.
        keep: whether a row is good; the others are left out. None: all are.
    """

    streaming = True

    def __init__(
        self,
        rows: datasets.IterableDataset,
        prepare: Prepare,
        seed: int,
        keep: Callable[[dict[str, Any]], bool] | None = None,
    ) -> None:
        self.rows = rows.shuffle(seed=seed, buffer_size=STREAM_BUFFER)
        self.prepare_row = prepare
        self.seed = seed
        self.keep = keep
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffle and augment as in this epoch."""
        self.epoch = epoch
        self.rows.set_epoch(epoch)

    def prepare(self, row: dict[str, Any]) -> dict[str, Any]:
        """Make a sample of a row."""
        return self.prepare_row(row, self.seed, self.epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return filter(self.keep, self.rows) if self.keep else iter(self.rows)


class StreamMicroBatches(IterableDataset):
    """The micro-batches of one process from a stream, for `DataLoader(batch_size=None, num_workers=0)`.

    Every process reads the whole stream and prepares its own samples only: a step holds the same samples with any
    number of processes.

    Args:
        samples: the stream.
        per_device: samples per process and micro-batch.
        accumulation: micro-batches per step.
        num_processes: how many take part.
        process: which of them, from 0.
        start_step: how many steps are done already.
    """

    def __init__(
        self,
        samples: StreamSamples,
        per_device: int,
        accumulation: int,
        num_processes: int,
        process: int,
        start_step: int = 0,
    ) -> None:
        self.samples = samples
        self.start_step = start_step
        self.batch_size = per_device * accumulation * num_processes
        self.layout = (per_device, accumulation, num_processes, process)

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        if get_worker_info() is not None:
            # Each worker would get other shards of the stream, and the order would depend on how many there are.
            raise ValueError("a stream is read by the main process: leave dataloader_num_workers at 0")
        rows = islice(self.samples, self.start_step * self.batch_size, None)
        while step := list(islice(rows, self.batch_size)):
            for batch in micro_batches(step, *self.layout):
                yield [self.samples.prepare(row) for row in batch]
