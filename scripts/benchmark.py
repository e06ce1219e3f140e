"""Measure hf_ffn beside transformers and whatever other libraries are installed, on this machine.

`python scripts/benchmark.py [feed-forward | ragged | vision | train | memory | load | growth | all]`: each contender
must compute the same thing first; those that do are run in turn, round by round. Ratios are medians of that to the
table's first row within a round, so that they hold where times drift. Two are not in `all`, which takes ten minutes:
`accuracy` fine-tunes two small models and asks what bfloat16 and int8 cost them, and `ragged-many` takes 64 sequences
at once, where sorting by length leaves more padding. At the end it says which of the figures that hf_ffn aims at were
not reached.
Peers beside transformers: `pip install '.[bench]'`, after torch.
"""

import argparse
import importlib
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from bench.limits import check, told
from bench.measure import Timing, processes

# Each is a module of `bench` with `sections(quick, timing)`; the seconds are of measuring, in a full and a quick run.
COMMANDS = {
    "feed-forward": (12.0, 2.0),
    "ragged": (20.0, 4.0),
    "vision": (10.0, 2.0),
    "train": (20.0, 3.0),
    "memory": (0.0, 0.0),
    "load": (0.0, 0.0),
    "accuracy": (0.0, 0.0),
    "growth": (8.0, 2.0),
    "ragged-many": (0.0, 0.0),
}
ALL = [command for command in COMMANDS if command not in ("accuracy", "ragged-many")]
LIBRARIES = ("torch", "transformers", "timm", "onnxruntime", "openvino", "ctranslate2")


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        quick: on tiny models.
        threads: of each library; None for torch's default.
        processor_time: measure that, on one thread, in place of real time.
    """

    quick: bool
    threads: int | None
    processor_time: bool

    def clock(self) -> Callable[[], float]:
        return time.process_time if self.processor_time else time.perf_counter

    def apply(self) -> None:
        """Set up this process."""
        if self.threads or self.processor_time:
            torch.set_num_threads(self.threads or 1)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=[*COMMANDS, "all"], nargs="?", default="all")
    parser.add_argument("--quick", action="store_true", help="tiny models: does it run, and is it right")
    parser.add_argument("--threads", type=int, help="of each library; default: torch's")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="measure that in place of real time, on one thread: for a machine that others use at the same time",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--plot", type=Path, metavar="FOLDER", help="draw pictures of them into it")
    asked = parser.parse_args(arguments)
    options = Options(asked.quick, asked.threads, asked.processor_time)
    options.apply()
    machine = describe_machine() | {"clock": "processor time" if options.processor_time else "real time"}
    print("  ".join(f"{name} {value}" for name, value in machine.items()), flush=True)
    wanted = ALL if asked.command == "all" else [asked.command]
    measure_each = measure if len(wanted) == 1 or options.quick else measure_apart
    results = {command: measure_each(command, options) for command in wanted}
    found = [] if options.quick else check(results)
    if found:
        print(f"\n{told(found)}")
    if asked.json:
        limits = [{**asdict(limit), "found": ratio} for limit, ratio in found]
        content = {"machine": machine, "quick": options.quick, "sections": results, "limits": limits}
        asked.json.write_text(json.dumps(content, indent=1))
    if asked.plot:
        from bench.pictures import draw

        print(*draw(results, asked.plot))


def measure(command: str, options: Options) -> list[dict[str, Any]]:
    """Measure, and print, the tables of one command."""
    started = time.perf_counter()
    module = importlib.import_module(f"bench.{command.replace('-', '_')}")
    found = []
    seconds = COMMANDS[command][options.quick]
    timing = Timing(seconds, options.clock(), 0.0, 0.0) if options.quick else Timing(seconds, options.clock())
    for section in module.sections(options.quick, timing):
        print(f"\n{section}", flush=True)
        found.append(section.as_dict())
    print(f"\n[{command}: {time.perf_counter() - started:.0f} s]", flush=True)
    return found


def measure_apart(command: str, options: Options) -> list[dict[str, Any]]:
    """The same in a process of its own: the threads and memory of one command's libraries would disturb the next."""
    with ProcessPoolExecutor(1, processes()) as executor:
        return executor.submit(measure_in_child, command, options).result()


def measure_in_child(command: str, options: Options) -> list[dict[str, Any]]:
    """What such a process does."""
    be_quiet()
    options.apply()
    return measure(command, options)


def be_quiet() -> None:
    """Leave the tables alone on the screen."""
    transformers.logging.set_verbosity_error()
    logging.getLogger("hf_ffn").setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()


def describe_machine() -> dict[str, str]:
    """What the figures depend on."""
    found = {"cpu": cpu_name(), "threads": str(torch.get_num_threads()), "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


def cpu_name() -> str:
    """The processor's name, where the system says it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )


if __name__ == "__main__":
    be_quiet()
    main(sys.argv[1:])
