"""The order of the samples, and how a step is shared out."""

from collections import Counter
from itertools import chain, pairwise
from statistics import mean

import datasets
import pytest
import torch
from torch.utils.data import DataLoader

from hf_ffn.training.sampling import (
    MicroBatchSampler,
    StreamMicroBatches,
    StreamSamples,
    micro_batches,
    sample_generator,
    steps_of_epoch,
)

LENGTHS = torch.randint(1, 100, (1003,), generator=torch.Generator().manual_seed(0)).tolist()
# per_device, accumulation, processes: the same effective batch of 8.
LAYOUTS = [(8, 1, 1), (4, 2, 1), (2, 4, 1), (4, 1, 2), (2, 2, 2), (1, 1, 8)]


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_an_epoch_has_each_sample_once_and_only_the_last_step_is_short(lengths: list[int] | None) -> None:
    steps = steps_of_epoch(1003, 8, seed=1, epoch=0, lengths=lengths)
    assert sorted(chain(*steps)) == list(range(1003))
    assert [len(step) for step in steps] == [8] * 125 + [3]


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_the_order_follows_from_seed_and_epoch_alone(lengths: list[int] | None) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        return steps_of_epoch(1003, 8, seed=seed, epoch=epoch, lengths=lengths)

    expected = order(1, 2)
    torch.manual_seed(99)
    torch.rand(7)
    assert order(1, 2) == expected
    assert order(1, 3) != expected
    assert order(2, 1) != expected  # a sum of both would say otherwise
    assert order(2, 2) != expected


def test_the_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    steps_of_epoch(100, 8, seed=1, epoch=0, lengths=LENGTHS[:100])
    torch.rand(1, generator=sample_generator(1, 2, 3))
    assert torch.equal(torch.get_rng_state(), before)


def test_grouped_steps_hold_samples_of_like_length_in_ascending_order_and_come_in_random_order() -> None:
    steps = [[LENGTHS[i] for i in step] for step in steps_of_epoch(1003, 8, seed=1, epoch=0, lengths=LENGTHS)]
    assert all(step == sorted(step) for step in steps)
    assert mean(step[-1] - step[0] for step in steps) < 4  # at random: about 78
    rising = mean(a[0] <= b[0] for a, b in pairwise(steps))
    assert 0.3 < rising < 0.7


def test_samples_meet_others_in_each_epoch_when_grouped() -> None:
    same = [1] * 800
    first, second = (steps_of_epoch(800, 8, seed=1, epoch=epoch, lengths=same) for epoch in (0, 1))
    assert not {frozenset(step) for step in first} & {frozenset(step) for step in second}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [8, 7, 3, 1])
def test_shares_of_a_step_are_the_step_however_it_is_laid_out(layout: tuple[int, int, int], size: int) -> None:
    per_device, accumulation, processes = layout
    shares = [micro_batches(range(size), *layout, process) for process in range(processes)]
    assert all(len(share) == accumulation for share in shares)
    batches = list(chain(*shares))
    assert sorted(chain(*batches)) == list(range(size))
    sizes = [len(batch) for batch in batches]
    assert max(sizes) <= per_device
    assert max(sizes) - min(sizes) <= 1
    work = [sum(map(len, share)) for share in shares]
    assert max(work) - min(work) <= accumulation


def test_processes_compute_samples_of_like_length_at_the_same_time() -> None:
    first, second = (micro_batches(range(8), 2, 2, 2, process) for process in (0, 1))
    assert first == [[0, 1], [4, 5]]
    assert second == [[2, 3], [6, 7]]


def test_impossible_requests_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="a step of 9 samples is more than 4 × 2 × 1"):
        micro_batches(range(9), 4, 2, 1, 0)
    with pytest.raises(ValueError, match="process 2 is not one of 2"):
        micro_batches(range(8), 4, 1, 2, 2)
    with pytest.raises(ValueError, match="num_samples=0"):
        steps_of_epoch(0, 8, seed=1, epoch=0)
    with pytest.raises(ValueError, match="3 lengths were given for 4 samples"):
        steps_of_epoch(4, 2, seed=1, epoch=0, lengths=[1, 2, 3])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_where_it_was_interrupted(workers: int) -> None:
    steps = steps_of_epoch(20, 8, seed=1, epoch=0)

    def batches(start_step: int) -> list[list[int]]:
        sampler = MicroBatchSampler(steps, 1, 4, 2, 1, start_step)
        loader = DataLoader(range(20), batch_sampler=sampler, collate_fn=list, num_workers=workers)  # type: ignore[arg-type]
        assert len(loader) == (3 - start_step) * 4
        return list(loader)

    whole = batches(0)
    assert whole[4:] == batches(1)
    assert [] in whole  # 4 samples are left for the 8 micro-batches of the last step


def test_random_numbers_of_a_sample_are_its_own() -> None:
    def draw(seed: int, epoch: int, index: int) -> float:
        return torch.rand(1, generator=sample_generator(seed, epoch, index), dtype=torch.float64).item()

    assert draw(1, 2, 3) == draw(1, 2, 3)
    draws = {draw(seed, epoch, index) for seed in range(10) for epoch in range(10) for index in range(10)}
    assert len(draws) == 1000


def stream(*, keep_even: bool = False) -> StreamSamples:
    """A stream of the numbers to 99, of which 1000 are made."""
    rows = datasets.Dataset.from_dict({"number": list(range(100))}).to_iterable_dataset(num_shards=4)
    return StreamSamples(
        rows,
        lambda row, seed, epoch: {"number": row["number"] + 1000},
        seed=1,
        keep=(lambda row: row["number"] % 2 == 0) if keep_even else None,
    )


def numbers(samples: StreamSamples, layout: tuple[int, int, int], process: int, start: int = 0) -> list[list[int]]:
    """What one process reads of a stream, by micro-batch."""
    batches = StreamMicroBatches(samples, *layout, process, start)
    loader = DataLoader(batches, batch_size=None, collate_fn=lambda rows: [row["number"] for row in rows])
    return list(loader)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_steps_of_a_stream_hold_the_same_samples_however_they_are_laid_out(layout: tuple[int, int, int]) -> None:
    _, accumulation, processes = layout
    shares = [numbers(stream(), layout, process) for process in range(processes)]
    expected = numbers(stream(), (8, 1, 1), 0)
    assert sorted(chain(*expected)) == list(range(1000, 1100))
    assert list(chain(*expected)) != sorted(chain(*expected))
    for i, step in enumerate(expected):
        got = chain(*(chain(*share[i * accumulation : (i + 1) * accumulation]) for share in shares))
        assert sorted(got) == sorted(step)


def test_a_stream_goes_on_where_it_was_interrupted_and_shuffles_each_epoch() -> None:
    samples = stream()
    samples.set_epoch(1)
    first = numbers(samples, (4, 2, 1), 0)
    again = stream()
    again.set_epoch(1)
    assert numbers(again, (4, 2, 1), 0, start=5) == first[10:]
    assert numbers(stream(), (4, 2, 1), 0) != first
    assert Counter(chain(*first)) == Counter(range(1000, 1100))


def test_bad_rows_of_a_stream_leave_no_gap() -> None:
    batches = numbers(stream(keep_even=True), (8, 1, 1), 0)
    assert sorted(chain(*batches)) == list(range(1000, 1100, 2))
    assert [len(batch) for batch in batches] == [8] * 6 + [2]


def test_a_stream_is_not_read_by_loader_workers() -> None:
    with pytest.raises(ValueError, match="leave dataloader_num_workers at 0"):
        next(iter(DataLoader(StreamMicroBatches(stream(), 8, 1, 1, 0), batch_size=None, num_workers=1)))
