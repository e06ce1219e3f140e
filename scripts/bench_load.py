"""What importing and loading cost beside transformers: `python scripts/bench_load.py` prints JSON.

Every sample is a process of its own, and the cases take turns, so that a busy moment falls on all of them. Checkpoints
of base size are made on the spot and lie in the page cache when the clock starts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What is measured: imports; loading; then reading every weight once, for those that are mapped cost memory only then.
PROGRAM = """
import json, sys, time

def peak_bytes():
    if sys.platform != "linux":
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Unlike getrusage's, this one does not begin at the size of the process that started us.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

def clocks():
    return {"seconds": time.perf_counter(), "cpu_seconds": time.process_time()}

def since(start):
    return {name: now - start[name] for name, now in clocks().items()}

statement, folder = sys.argv[1:]
start, names = clocks(), {}
exec(statement, names)
result, before = since(start), peak_bytes()
if folder:
    import torch
    start = clocks()
    model = names["Model"].from_pretrained(folder)
    result = since(start)
    result["peak_bytes"] = peak_bytes() - before
    for weight in model.parameters():
        weight.sum()
    result["peak_bytes_once_read"] = peak_bytes() - before
print(json.dumps(result))
"""

# The sources: their model and configuration class in transformers, and ours that each becomes.
MODELS = {
    "bert": ("BertModel", "BertConfig", "FFNTextModel"),
    "vit": ("ViTModel", "ViTConfig", "FFNVisionModel"),
    "modernbert": ("ModernBertModel", "ModernBertConfig", "FFNTextModel"),
}


@dataclass(frozen=True)
class Case:
    """One thing to measure; the first of a group is what the others are compared with."""

    group: str
    name: str
    statement: str
    folder: str = ""


def sample(case: Case) -> dict[str, Any]:
    """Measure a case once, in a fresh process."""
    command = [sys.executable, "-c", PROGRAM, case.statement, case.folder]
    # Installed packages have their bytecode beside them; a checkout gets it in the round that does not count.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(result.stdout.splitlines()[-1])


def import_cases() -> list[Case]:
    """What a program that uses one model imports."""
    statements = ("from transformers import BertModel", "import hf_ffn", "from hf_ffn import FFNTextModel")
    return [Case("import", statement, statement) for statement in statements]


def load_cases(name: str, folder: Path) -> list[Case]:
    """Make a checkpoint with random weights, and its conversion: the original, while it converts, and converted.

    Raises:
        RuntimeError: the conversion computes something else.
    """
    import transformers

    import hf_ffn

    model_name, config_name, our_name = MODELS[name]
    source, converted = folder / name, folder / f"{name}-converted"
    getattr(transformers, model_name)(getattr(transformers, config_name)()).save_pretrained(source)
    getattr(hf_ffn, our_name).from_pretrained(source).save_pretrained(converted)
    report = hf_ffn.verify(source, getattr(hf_ffn, our_name).from_pretrained(converted))
    if not report.ok:
        raise RuntimeError(f"{our_name} is not the same as {model_name}:\n{report}")
    theirs, ours = f"from transformers import {model_name} as Model", f"from hf_ffn import {our_name} as Model"
    return [
        Case(f"load {name}", f"transformers' {model_name}", theirs, str(source)),
        Case(f"load {name}", "converting", ours, str(source)),
        Case(f"load {name}", "converted", ours, str(converted)),
    ]


def measure(models: tuple[str, ...] = ("bert",), rounds: int = 5) -> list[dict[str, Any]]:
    """Measure imports, and loading these models.

    Args:
        models: names in `MODELS`.
        rounds: samples of each case, after one that does not count.

    Returns:
        A row a case: `group`, `case`, the medians of `seconds`, `cpu_seconds` and, where something is loaded,
        `peak_bytes` (resident memory at its height, beyond what the imports took) and `peak_bytes_once_read`;
        `fastest` and `slowest` sample in seconds; `ratios` of all these to those of the group's first case. On a busy
        machine, `cpu_seconds` and `fastest` say more than `seconds`.
    """
    with tempfile.TemporaryDirectory() as folder:
        cases = import_cases() + [case for name in models for case in load_cases(name, Path(folder))]
        samples = [[sample(case) for case in cases] for _ in range(rounds + 1)]
    return rows(cases, samples[1:])


def rows(cases: list[Case], samples: list[list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Sum up the rounds' samples of these cases (see `measure`)."""
    result: list[dict[str, Any]] = []
    first_of_group: dict[str, dict[str, float]] = {}
    for case, measured in zip(cases, zip(*samples, strict=True), strict=True):
        medians = {name: statistics.median(each[name] for each in measured) for name in measured[0]}
        seconds = [each["seconds"] for each in measured]
        figures = {**medians, "fastest": min(seconds), "slowest": max(seconds)}
        first = first_of_group.setdefault(case.group, figures)
        ratios = {name: value / first[name] for name, value in figures.items()}
        result.append({"group": case.group, "case": case.name, **figures, "ratios": ratios})
    return result


def main() -> None:
    """Read the command line, measure, and print the rows as JSON."""
    parser = argparse.ArgumentParser(description="What importing and loading cost beside transformers.")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["bert"], help="checkpoints to load")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each case, taken in turns")
    arguments = parser.parse_args()
    print(json.dumps(measure(tuple(arguments.models), arguments.rounds), indent=2))


if __name__ == "__main__":
    main()
