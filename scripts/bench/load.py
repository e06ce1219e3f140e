"""Importing and loading, each in a process of its own: time, and memory beyond the imports."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from hf_ffn import FFNTextModel

from .measure import Contender, Section, Timing, compare
from .ragged import small

ROUNDS = 3

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
    python = [sys.executable, "-c"]
    imports = [Contender(name, lambda code=code: process([*python, code])) for name, code in IMPORTS.items()]
    yield compare("importing (a fresh process)", imports, None, Timing(0.0))
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        BertModel(small() if quick else BertConfig()).save_pretrained(folder / "bert")
        FFNTextModel.from_pretrained(folder / "bert").save_pretrained(folder / "native")
        yield loading(folder)


def process(command: list[str]) -> Callable[[], None]:
    def run() -> None:
        subprocess.run(command, check=True, capture_output=True)

    return run


def loading(folder: Path) -> Section:
    """Time within `from_pretrained`, and the peak of memory beyond the imports once every byte was touched."""
    cases = {
        "transformers, BertModel": ("from transformers import BertModel", "BertModel", "bert"),
        "hf_ffn, converting the same": ("from hf_ffn import FFNTextModel", "FFNTextModel", "bert"),
        "hf_ffn, its native format": ("from hf_ffn import FFNTextModel", "FFNTextModel", "native"),
    }
    section = Section("loading (inside a process that has imported everything)", next(iter(cases)))
    found: dict[str, list[list[float]]] = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, (imports, model, source) in cases.items():
            code = LOAD.format(imports=imports, name=model)
            command = [sys.executable, "-c", code, str(folder / source)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[name].append([float(each) for each in printed.split()])
    section.add_times({name: [each[0] for each in runs] for name, runs in found.items()})
    base = sorted(each[1] for each in found[section.baseline])[ROUNDS // 2]
    for name, runs in found.items():
        peak = sorted(each[1] for each in runs)[ROUNDS // 2]
        ratio = f", ratio {peak / base:.2f}" if base else ""
        section.notes.append(f"memory beyond the imports, {name}: {peak / 1024:.0f} MiB{ratio}")
    return section
