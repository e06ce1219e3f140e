"""Measuring contenders beside each other: the same computation first, then interleaved, then medians."""

import multiprocessing
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from hf_ffn.packed_products import missing

# Seconds until the threads of the library that ran before have gone to sleep: OpenMP's and ONNX Runtime's go on
# spinning for a while, and would take a processor away from whoever runs next.
PAUSE = 0.05
# Seconds that short runs are repeated for, first to warm up and then to be timed: after a pause, and with what ran
# before in the caches, the first runs take up to a third longer.
REPEATED = 0.08
MOST_ROUNDS = 31


@dataclass(frozen=True)
class Timing:
    """How long to measure, and by which clock.

    Attributes:
        seconds: to spend; three rounds are run in any case, and no more than 31.
        clock: real time; on a machine that others use, the processor time of all threads of the process.
        pause: seconds before each contender's turn.
        repeated: seconds that a run is repeated for in its turn; once in any case.
    """

    seconds: float
    clock: Callable[[], float] = time.perf_counter
    pause: float = PAUSE
    repeated: float = REPEATED

    def part(self, count: float) -> "Timing":
        """One of so many equal parts."""
        return replace(self, seconds=self.seconds / count)


class Apart:
    """A function in a process of its own, for a library that would disturb the others in theirs.

    OpenMP's runtime, which such a library shares with torch, counts the threads of both. Where those are more than the
    processors, they no longer wait for the next product but go to sleep after each, from the first run on and for as
    long as the library's threads live: torch then takes a quarter longer for a few tokens.

    Args:
        make: called there with the arguments; returns the function.
        arguments: go there as `make` does, by pickle.

    Attributes:
        process: that process; it ends when this object does.
    """

    def __init__(self, make: Callable[..., Callable[..., Any]], *arguments: Any) -> None:
        context = processes()
        self._connection, theirs = context.Pipe()
        command = (theirs, torch.get_num_threads(), make, arguments)
        self.process = context.Process(target=serve, args=command, daemon=True)
        self.process.start()
        theirs.close()
        self._answer()

    def on(self, *inputs: Any) -> "RunApart":
        """What runs the function on these inputs."""
        return RunApart(self, inputs)

    def asked(self, inputs: tuple[Any, ...], timing: Timing | None) -> Any:
        """The function's output; with a timing, what `repeat` says of it, by that process's clock."""
        self._connection.send((inputs, timing))
        return self._answer()

    def _answer(self) -> Any:
        answer = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class RunApart:
    """A function in another process, and what it is run on."""

    apart: Apart
    inputs: tuple[Any, ...]

    def __call__(self) -> Any:
        return self.apart.asked(self.inputs, None)


def processes() -> Any:
    """multiprocessing's way to start one: forked from a process that has run nothing, where the system can."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    return multiprocessing.get_context(method)


def serve(connection: Connection, threads: int, make: Callable[..., Callable[..., Any]], arguments: Any) -> None:
    """What such a process does, until nobody asks any more."""
    torch.set_num_threads(threads)
    try:
        function = make(*arguments)
        connection.send(None)
        while True:
            inputs, timing = connection.recv()
            run = partial(function, *inputs)
            connection.send(run() if timing is None else repeat(run, timing))
    except EOFError:
        return
    # Told where it is asked for.
    except Exception as error:
        connection.send(error)


@dataclass
class Contender:
    """One way to compute something.

    Attributes:
        name: as printed.
        make: prepares it, and returns what is timed; that returns an output, or None where nothing is compared.
        tolerance: how far its output may be from the reference, `|output - reference| / |reference|`.
        precision: of its products. Where the processor has no instructions for bfloat16, libraries compute it in
            another precision or for minutes, and neither is measured.
        read: makes of an output what is compared. It is not timed: an operator of torch's within another library's
            turn would leave torch's threads spinning, at that library's cost.
    """

    name: str
    make: Callable[[], Callable[[], Any]]
    tolerance: float = 1e-4
    precision: str = "float32"
    read: Callable[[Any], torch.Tensor | None] = lambda output: output


@dataclass
class Row:
    """A contender's result.

    Attributes:
        name: the contender's.
        status: `"ok"`, or why there is no time.
        median_s: seconds a run.
        ratio: median of its time over the baseline's in the same round; drift of the machine drops out.
        spread: half the distance between the quartiles of that ratio, over the ratio.
        error: of its output, relative; None where nothing is compared.
        value: what was found, in words, in a table of something else than times.
        times: seconds of a run in each round.
    """

    name: str
    status: str = "ok"
    median_s: float | None = None
    ratio: float | None = None
    spread: float | None = None
    error: float | None = None
    value: str | None = None
    times: list[float] = field(default_factory=list)


@dataclass
class Section:
    """A table: contenders for one computation at one size.

    Attributes:
        title: what is computed.
        baseline: the name of the row that ratios refer to.
        rows: the results.
        notes: lines printed below.
    """

    title: str
    baseline: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [self.title]
        if any(row.median_s is not None for row in self.rows):
            lines.append(f"  {'':{width}}  {'time':>10}  {'ratio':>6}  spread  error")
        for row in self.rows:
            if row.median_s is None:
                lines.append(f"  {row.name:{width}}  {row.value or row.status}")
                continue
            spread = "" if row.spread is None else f"±{row.spread:4.0%}"
            error = "" if row.error is None else f"{row.error:.0e}"
            lines.append(f"  {row.name:{width}}  {duration(row.median_s)}  {row.ratio:6.2f}  {spread:5}   {error}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def add_times(self, times: dict[str, list[float]]) -> None:
        """Fill in rows from the seconds of each round."""
        rows = {row.name: row for row in self.rows}
        for name, found in times.items():
            if name not in rows:
                rows[name] = Row(name)
                self.rows.append(rows[name])
            row = rows[name]
            ratios = [own / base for own, base in zip(found, times[self.baseline], strict=True)]
            # A single round has no spread.
            quartiles = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            low, row.ratio, high = quartiles
            row.median_s, row.spread, row.times = statistics.median(found), (high - low) / 2 / row.ratio, found

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def without_gradients(compute: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    """What is timed of inference: the computation of these inputs, in inference mode."""

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return compute(*inputs)

    return run


def duration(seconds: float) -> str:
    """In milliseconds, or microseconds where those say more."""
    return f"{seconds * 1e3:7.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:7.2f} µs"


def relative_error(output: torch.Tensor, reference: torch.Tensor) -> float:
    """`|output - reference| / |reference|`; infinite where the shapes differ."""
    if output.shape != reference.shape:
        return float("inf")
    return ((output.double() - reference.double()).norm() / reference.double().norm()).item()


def compare(title: str, contenders: list[Contender], reference: torch.Tensor | None, timing: Timing) -> Section:
    """Measure contenders in turn, round by round; the first is the baseline.

    Args:
        title: of the table.
        contenders: those that cannot be prepared, or compute something else, are listed as such and not timed.
        reference: what they should compute, in float32; None for not comparing.
        timing: how long to measure.
    """
    section = Section(title, contenders[0].name)
    running: dict[str, Callable[[], Any]] = {}
    for contender in contenders:
        row = Row(contender.name)
        section.rows.append(row)
        lacking = missing("bfloat16") if contender.precision == "bfloat16" else None
        if lacking is not None:
            row.status = f"not measured ({lacking})"
            continue
        # A peer may fail in any way; that is a result, and no reason to lose the others'.
        try:
            run = contender.make()
            output = contender.read(run())
        except Exception as error:
            row.status = f"not measured ({type(error).__name__}: {first_line(error)})"
            continue
        if output is not None and reference is not None:
            row.error = relative_error(output, reference)
            if not row.error <= contender.tolerance:
                row.status = f"computes something else (error {row.error:.1e}, allowed {contender.tolerance:.0e})"
                continue
        running[contender.name] = run

    if running:
        section.baseline = contenders[0].name if contenders[0].name in running else next(iter(running))
        section.add_times(interleaved(running, timing))
    return section


def interleaved(running: dict[str, Callable[[], Any]], timing: Timing) -> dict[str, list[float]]:
    """Run each in turn, round by round, and return the seconds that each took."""
    times: dict[str, list[float]] = {name: [] for name in running}
    end = time.perf_counter() + timing.seconds
    for done in range(MOST_ROUNDS):
        if done >= 3 and time.perf_counter() > end:
            break
        for name, run in running.items():
            time.sleep(timing.pause)
            seconds = repeat(run, timing)
            # Where runs are short, that was the warm-up.
            times[name].append(repeat(run, timing) if seconds < 2 * timing.repeated else seconds)
    return times


def repeat(run: Callable[[], Any], timing: Timing) -> float:
    """Run it for as long as it should be repeated, and return the seconds of one run."""
    if isinstance(run, RunApart):
        return run.apart.asked(run.inputs, timing)
    started, end, runs = timing.clock(), time.perf_counter() + timing.repeated, 0
    while runs == 0 or time.perf_counter() < end:
        run()
        runs += 1
    return (timing.clock() - started) / runs


def first_line(error: Exception) -> str:
    """What an error says, briefly."""
    return (str(error).splitlines() or [""])[0][:120]
