"""The examples that people are shown: in docstrings they give what they say, and commands are ones that there are."""

import doctest
import importlib
import inspect
import json
import os
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import BertTokenizer, ViTImageProcessor
from typer.main import get_command

import hf_ffn
from hf_ffn.hub import publish
from hf_ffn.training.arguments import parse
from hf_ffn_cli import app

from shown_commands import commands, words_of

ROOT = Path(__file__).parent.parent
DETAILS = "license: apache-2.0\nlimits: Not tried on other languages.\n"


def test_examples_in_docstrings_give_what_they_say() -> None:
    runner, finder, fenced, tried = doctest.DocTestRunner(), doctest.DocTestFinder(exclude_empty=True), 0, 0
    for info in pkgutil.walk_packages(hf_ffn.__path__, "hf_ffn."):
        module = importlib.import_module(info.name)
        fenced += len(re.findall(r"^ *```python\n", inspect.getsource(module), re.MULTILINE))
        for example in finder.find(module):
            runner.run(example)
            tried += bool(example.examples)
    assert runner.failures == 0
    assert runner.tries > 2
    # Code without `>>>` would be tried by nobody.
    assert fenced == tried


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files lie that the commands name."""
    (tmp_path / "run.yaml").write_text("output_dir: launched\ndataset_name: docstrings\nmodel_name_or_path: MODEL\n")
    (tmp_path / "details.yaml").write_text(DETAILS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", commands())
def test_a_command_that_is_shown_is_one_that_there_is(
    command: str, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *rest = words_of(command)
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "pip":
        extras = re.findall(r"\[(\w+)\]", rest[-1])
        assert (
            set(extras)
            <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
        )
    elif program == "hf-ffn":
        group: Any = get_command(app)
        # Raises what a user would be told.
        group.commands[rest[0]].make_context(rest[0], rest[1:])
    elif rest[0] == "scripts/push_to_hub.py":
        published: list[Any] = []
        monkeypatch.setattr(publish, "publish", lambda *args, **kwargs: published.append(kwargs["details"]))
        runpy.run_path(str(ROOT / rest[0]), run_name="script")["main"](rest[1:])
        assert len(published) == 1
        assert ("--card" in rest) == (published[0] is not None)
    else:
        assert (ROOT / rest[0]).exists()
        assert parse(rest[1:])[2].output_dir in ("out", "launched")


def test_all_kinds_of_commands_are_found() -> None:
    text = "\n".join(commands())
    for part in (
        "make demo",
        "pip install",
        "accelerate launch",
        "hf-ffn pull",
        "finetune_image.py",
        "push_to_hub.py",
    ):
        assert part in text
    assert len(commands()) > 15


@pytest.fixture
def models(save_source: Callable[..., Path], workplace: Path) -> dict[str, Path]:
    """Small models with tokenizer and image processor, under the names that the README gives."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "##e", "the", "of", "return"]
    (workplace / "vocab.txt").write_text("\n".join(words))
    bert = save_source("BertModel", "bert", max_position_embeddings=160)
    BertTokenizer(str(workplace / "vocab.txt")).save_pretrained(bert)
    vit = save_source("ViTModel", "vit")
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(vit)
    for name, grey in (("dark", 10), ("light", 200)):
        (workplace / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = np.full((32, 32, 3), grey + number, dtype=np.uint8)
            Image.fromarray(pixels).save(workplace / "photos" / name / f"{number}.png")
    return {"MODEL": bert, "google/vit-base-patch16-224": vit, "google/vit-base-patch16-224-in21k": vit}


def short(command: str, models: dict[str, Path], output_dir: str) -> list[str]:
    """The words of a command that trains, with the models that lie here, and a few steps only."""
    words = [str(models.get(word, word)) for word in shlex.split(command)]
    script = next(place for place, word in enumerate(words) if word.startswith("scripts/"))
    words[script] = str(ROOT / words[script])
    more = ["--max_train_steps", "2", "--max_train_samples", "32", "--max_eval_samples", "16"]
    return [*words, *more, "--output_dir", output_dir, "--overwrite_output_dir"]


# Launched in two processes, or alone.
TRAINING = [each for each in commands() if "finetune" in each and ("processes" in each or each.startswith("python"))]


@pytest.mark.slow
@pytest.mark.parametrize("command", TRAINING)
def test_a_command_that_trains_runs(command: str, models: dict[str, Path], workplace: Path) -> None:
    (workplace / "run.yaml").write_text(
        f"output_dir: launched\ndataset_name: docstrings\nmodel_name_or_path: {models['MODEL']}\n"
    )
    models["sentence-transformers/all-MiniLM-L6-v2"] = models["MODEL"]
    program, *rest = short(command, models, "out")
    # On this machine there may be no GPU, and one process does.
    rest = [word for word in rest if word != "--multi_gpu"]
    start = [sys.executable] if program == "python" else [sys.executable, "-m", "accelerate.commands.launch"]
    if program == "accelerate":
        rest = rest[rest.index("launch") + 1 :]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "HF_HOME": str(workplace / "home")}
    result = subprocess.run([*start, *rest], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert json.loads((workplace / "out" / "all_results.json").read_text())["train_steps"] == 2
