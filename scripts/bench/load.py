"""Importing and loading, each in a process of its own: time, and memory beyond the imports."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from hf_ffn import FFNTextModel

from .measure import Section, Timing
from .ragged import small

IMPORTS = {
    "from transformers import BertModel": "from transformers import BertModel",
    "import hf_ffn": "import hf_ffn",
    "hf-ffn --help": "import sys; sys.argv = ['hf-ffn', '--help']; from hf_ffn.cli import main; main()",
}

LOAD = """
import resource, sys, time
{imports}
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, started = peak(), time.perf_counter()
model = {name}.from_pretrained(sys.argv[1])
loaded = time.perf_counter() - started
total = sum(float(each.detach().sum()) for each in model.parameters())
print(loaded, peak() - before, total)
"""


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """Import times, and the loading of an original, a converted and a native checkpoint; always by real time."""
    rounds = 1 if quick else 3
    section = Section("importing (a fresh process)", next(iter(IMPORTS)))
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, code in IMPORTS.items():
            started = time.perf_counter()
            run_python(code)
            times[name].append(time.perf_counter() - started)
    section.add_times(times)
    yield section
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        BertModel(small() if quick else BertConfig()).save_pretrained(folder / "bert")
        FFNTextModel.from_pretrained(folder / "bert").save_pretrained(folder / "native")
        yield loading(folder, rounds)


def run_python(code: str, *arguments: str) -> str:
    """What a program prints in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def loading(folder: Path, rounds: int) -> Section:
    """Time within `from_pretrained`, and the peak of memory beyond the imports once every byte was touched."""
    cases = {
        "transformers, BertModel": ("from transformers import BertModel", "BertModel", "bert"),
        "hf_ffn, converting the same": ("from hf_ffn import FFNTextModel", "FFNTextModel", "bert"),
        "hf_ffn, its native format": ("from hf_ffn import FFNTextModel", "FFNTextModel", "native"),
    }
    section = Section("loading (inside a process that has imported everything)", next(iter(cases)))
    found: dict[str, list[list[float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (imports, model, source) in cases.items():
            code = LOAD.format(imports=imports, name=model)
            printed = run_python(code, str(folder / source))
            found[name].append([float(each) for each in printed.split()])
    section.add_times({name: [each[0] for each in runs] for name, runs in found.items()})
    base = sorted(each[1] for each in found[section.baseline])[rounds // 2]
    for name, runs in found.items():
        peak = sorted(each[1] for each in runs)[rounds // 2]
        ratio = f", ratio {peak / base:.2f}" if base else ""
        section.notes.append(f"memory beyond the imports, {name}: {peak / 1024:.0f} MiB{ratio}")
    return section
