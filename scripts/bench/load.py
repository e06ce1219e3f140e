"""What importing and loading cost beside transformers.

Every import is a process of its own, every load a fork of such a process, and the cases take turns, so that a busy
moment falls on all of them. Checkpoints of base size are made on the spot and lie in the page cache when the clock
starts.
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

# Processes for each case, and how often each loads: the time of a load varies by a third.
ROUNDS = 2
LOADS = 6

# What is measured: the import; loading; then reading every weight once, for mapped ones cost memory only then.
# A second load in the same process would find what the first has prepared, so each is in a fork of its own.
PROGRAM = """
import json, os, sys, time

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

def load():
    start = clocks()
    model = names[statement.split()[-1]].from_pretrained(folder)
    return model, since(start)

def load_in_fork():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(load()[1]).encode())
        os._exit(0)
    os.close(writer)
    os.wait()
    with open(reader) as file:
        return json.load(file)

statement, folder, loads = sys.argv[1:]
start, names = clocks(), {}
# "from package import Class": first the package alone
exec(f"import {statement.split()[1]}", names)
result = {"import package": since(start)}
exec(statement, names)
result["import"] = since(start)
if folder:
    import torch
    # Elsewhere a fork may not use what the system's libraries have set up before.
    result["loads"] = [load_in_fork() for _ in range(int(loads))] if sys.platform == "linux" else []
    before = peak_bytes()
    model, seconds = load()
    result["loads"] = result["loads"] or [seconds]
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
    """One thing to measure.

    Attributes:
        name: of what is loaded.
        statement: imports the model's class.
        folder: a checkpoint; empty for measuring the import alone.
    """

    name: str
    statement: str
    folder: str = ""


def sample(case: Case) -> dict[str, Any]:
    """Measure a case in a fresh process: imports; where it has a checkpoint, several `"loads"`, and peak memory."""
    command = [sys.executable, "-c", PROGRAM, case.statement, case.folder, str(LOADS)]
    # Installed packages have their bytecode beside them; a checkout gets it in the first round.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(result.stdout.splitlines()[-1])


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
    theirs, ours = f"from transformers import {model_name}", f"from hf_ffn import {our_name}"
    return [
        Case(f"transformers' {model_name}", theirs, str(source)),
        Case("hf_ffn, converting the same", ours, str(source)),
        Case("hf_ffn, its native format", ours, str(converted)),
    ]


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """What it costs to load an original, the same while it converts, and its conversion; and what the imports cost;
    always by real time.

    On a busy machine processor time says more than the clock, so a note gives its ratio as well.
    """
    with tempfile.TemporaryDirectory() as name:
        original, converting, _ = cases = load_cases("bert", Path(name), small() if quick else None)
        # Otherwise the checkpoints are still being written to the disk while they are loaded.
        os.sync()
        samples: dict[Case, list[Any]] = {case: [] for case in cases}
        for _ in range(1 if quick else ROUNDS):
            for case, taken in samples.items():
                taken.append(sample(case))
    loads = {case.name: [load for each in samples[case] for load in each["loads"]] for case in cases}
    section = section_of("loading BERT (a process that has imported everything)", loads)
    memory = {case.name: [each["peak_bytes_once_read"] for each in samples[case]] for case in cases}
    section.notes.append(f"memory once every weight is read: {ratios_of(memory)}")
    yield section
    imports = {
        original.statement: [each["import"] for each in samples[original]],
        "import hf_ffn": [each["import package"] for each in samples[converting]],
        converting.statement: [each["import"] for each in samples[converting]],
    }
    yield section_of("importing (a fresh process)", imports)


def section_of(title: str, samples: dict[str, list[dict[str, float]]]) -> Section:
    """A table of samples, by row; the first row is what the others are compared with."""
    section = Section(title, next(iter(samples)))
    section.add_times({name: [each["seconds"] for each in taken] for name, taken in samples.items()})
    processor = {name: [each["cpu_seconds"] for each in taken] for name, taken in samples.items()}
    fastest = {name: [min(each["seconds"] for each in taken)] for name, taken in samples.items()}
    section.notes += [f"the fastest: {ratios_of(fastest)}", f"processor time: {ratios_of(processor)}"]
    return section


def ratios_of(figures: dict[str, list[float]]) -> str:
    """The ratios of medians to the first one's, in words."""
    medians = {name: statistics.median(taken) for name, taken in figures.items()}
    first = next(iter(medians.values()))
    return ", ".join(f"{name} {value / first:.2f}" for name, value in medians.items())
