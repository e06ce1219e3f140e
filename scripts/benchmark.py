"""Measure hf_ffn beside transformers and whatever other libraries are installed, on this machine.

`python scripts/benchmark.py [feed-forward | ragged | vision | train | memory | load | accuracy | growth | all]`: each
contender must compute the same thing first; those that do are run in turn, round by round. Ratios are medians of the
ratio to the table's first row within a round, so that they hold where times drift. `accuracy` fine-tunes two small
models and asks what bfloat16 and int8 cost them. Peers beside transformers: `pip install '.[bench]'`, after torch.
"""

import argparse
import importlib
import json
import logging
import os
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from bench.measure import Timing

# Each is a module of `bench` with `sections(quick, seconds)`; the seconds are of measuring, in a full and a quick run.
COMMANDS = {
    "feed-forward": (45.0, 2.0),
    "ragged": (150.0, 4.0),
    "vision": (45.0, 2.0),
    "train": (80.0, 3.0),
    "memory": (0.0, 0.0),
    "load": (30.0, 3.0),
    "accuracy": (0.0, 0.0),
    "growth": (40.0, 2.0),
}
LIBRARIES = ("torch", "transformers", "timm", "onnxruntime", "openvino", "ctranslate2")


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
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the growth curves there (runs growth too)")
    options = parser.parse_args(arguments)
    if options.threads or options.processor_time:
        torch.set_num_threads(options.threads or 1)
    clock = time.process_time if options.processor_time else time.perf_counter
    machine = describe_machine() | {"clock": "processor time" if options.processor_time else "real time"}
    print("  ".join(f"{name} {value}" for name, value in machine.items()))
    wanted = list(COMMANDS) if options.command == "all" else [options.command]
    if options.plot and "growth" not in wanted:
        wanted.append("growth")
    results: dict[str, Any] = {"machine": machine, "quick": options.quick, "sections": {}}
    for command in wanted:
        started = time.perf_counter()
        module = importlib.import_module(f"bench.{command.replace('-', '_')}")
        found = results["sections"][command] = []
        for section in module.sections(options.quick, Timing(COMMANDS[command][options.quick], clock)):
            print(f"\n{section}", flush=True)
            found.append(section.as_dict())
        print(f"\n[{command}: {time.perf_counter() - started:.0f} s]", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    if options.plot:
        from bench.growth import plot

        plot(results["sections"]["growth"], options.plot)


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
    transformers.logging.set_verbosity_error()
    logging.getLogger("hf_ffn").setLevel(logging.ERROR)
    transformers.logging.disable_progress_bar()
    main(sys.argv[1:])
