"""What importing and loading cost beside transformers.

Every sample is a process of its own, and the cases take turns, so that a busy moment falls on all of them. Checkpoints
of base size are made on the spot and lie in the page cache when the clock starts.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from .measure import Section, Timing
from .ragged import small

# Samples of each case.
ROUNDS = 3

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
    """One thing to measure."""

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
    return [Case(statement, statement) for statement in statements]


def load_cases(name: str, folder: Path, config: PreTrainedConfig | None = None) -> list[Case]:
    """Make a checkpoint with random weights, and its conversion: the original, while it converts, and converted.

    Args:
        name: one of `MODELS`.
        folder: where to make them.
        config: of the original; None for the family's own base size.

    Raises:
        RuntimeError: the conversion computes something else.
    """
    import transformers

    import hf_ffn

    model_name, config_name, our_name = MODELS[name]
    source, converted = folder / name, folder / f"{name}-converted"
    config = config or getattr(transformers, config_name)()
    getattr(transformers, model_name)(config).save_pretrained(source)
    getattr(hf_ffn, our_name).from_pretrained(source).save_pretrained(converted)
    report = hf_ffn.verify(source, getattr(hf_ffn, our_name).from_pretrained(converted))
    if not report.ok:
        raise RuntimeError(f"{our_name} is not the same as {model_name}:\n{report}")
    theirs, ours = f"from transformers import {model_name} as Model", f"from hf_ffn import {our_name} as Model"
    return [
        Case(f"transformers' {model_name}", theirs, str(source)),
        Case("hf_ffn, converting the same", ours, str(source)),
        Case("hf_ffn, its native format", ours, str(converted)),
    ]


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """Import times, and what it costs to load an original, the same while it converts, and its conversion;
    always by real time.

    On a busy machine processor time says more than the clock, so a note gives its ratio as well.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = small() if quick else None
        groups = {"loading BERT (a process that has imported everything)": load_cases("bert", folder, config)}
        if not quick:
            groups["importing (a fresh process)"] = import_cases()
            # The first import compiles what is new, and does not count.
            sample(import_cases()[1])
        rounds = 1 if quick else ROUNDS
        samples = [{title: [sample(case) for case in cases] for title, cases in groups.items()} for _ in range(rounds)]
    yield from (section_of(title, cases, [each[title] for each in samples]) for title, cases in groups.items())


def section_of(title: str, cases: list[Case], samples: list[list[dict[str, float]]]) -> Section:
    """A table of the rounds' samples of these cases; the first case is what the others are compared with."""
    section = Section(title, cases[0].name)
    by_case = dict(zip([case.name for case in cases], zip(*samples, strict=True), strict=True))
    section.add_times({name: [each["seconds"] for each in taken] for name, taken in by_case.items()})
    for figure, called in (
        ("cpu_seconds", "processor time"),
        ("peak_bytes_once_read", "memory once every weight is read"),
    ):
        if figure not in samples[0][0]:
            continue
        medians = {name: statistics.median(each[figure] for each in taken) for name, taken in by_case.items()}
        ratios = ", ".join(f"{name} {value / medians[section.baseline]:.2f}" for name, value in medians.items())
        section.notes.append(f"{called}: {ratios}")
    return section
