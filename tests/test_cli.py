"""The hf-ffn command as people run it, in processes of its own."""

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from transformers import BertModel
from typer.testing import CliRunner

import hf_ffn
from hf_ffn import FAMILIES, FFNTextModel, conversion
from hf_ffn.families import FEED_FORWARD_ONLY
from hf_ffn_cli import app, main

Save = Callable[..., Path]


def hf_ffn_command(*arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run hf-ffn in a process of its own."""
    command = [sys.executable, "-m", "hf_ffn_cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def run(*arguments: Any) -> Any:
    """Run hf-ffn in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_convert_verify_and_export_go_there_and_back(save_source: Save, tmp_path: Path) -> None:
    source = save_source("BertModel")
    converted = run("convert", source, tmp_path / "out")
    assert converted.exit_code == 0, converted.output
    assert "equivalent" in converted.output
    verified = run(
        "verify", source, "--model", tmp_path / "out", "--plot", tmp_path / "p.png", "--json", tmp_path / "new" / "r"
    )
    assert verified.exit_code == 0, verified.output
    assert (tmp_path / "p.png").exists()
    assert (tmp_path / "new" / "r").exists()
    exported = run("export", tmp_path / "out", tmp_path / "back")
    assert exported.exit_code == 0, exported.output
    before, after = (BertModel.from_pretrained(folder).state_dict() for folder in (source, tmp_path / "back"))
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert run("verify", source, "--model", tmp_path / "back").exit_code == 0


def test_verify_exits_with_1_for_another_model(save_source: Save, tmp_path: Path) -> None:
    source = save_source("BertModel")
    model = FFNTextModel.from_pretrained(source)
    nn.init.zeros_(model.encoder.layers[2].ffn.linear_2.bias)
    model.save_pretrained(tmp_path / "out")
    result = run("verify", source, "--model", tmp_path / "out")
    assert result.exit_code == 1
    assert "they part at layer 2" in result.output


def test_no_verify_writes_no_proof(save_source: Save, tmp_path: Path) -> None:
    result = run("convert", save_source("ViTModel"), tmp_path / "out", "--no-verify", "--dtype", "bfloat16")
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "out" / "equivalence.json").exists()
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_families_are_listed_with_their_classes_and_exactness() -> None:
    output, _, of_blocks = run("families").output.partition("\n\n")
    lines = [line.split(" | ") for line in output.splitlines()]
    assert len(lines) == 2 + len(FAMILIES)
    listed = {line[0].removeprefix("| "): line[1:] for line in lines[2:]}
    assert listed.keys() == FAMILIES.keys()
    converts, also_read, exactness = listed["bert"]
    assert converts.startswith("`Bert` + `Model`, `ForMaskedLM`, ")
    assert also_read == "`BertForPreTraining`"
    assert exactness == "equal bitwise |"
    assert "but for rounding: queries, keys and values are one product" in listed["modernbert"][2]
    assert "in eager" in listed["mpnet"][2]
    for each in FEED_FORWARD_ONLY:
        part = f"part='{each.part}'" if each.part else ""
        assert any(line.startswith(f"{each.model_type}: ") and part in line for line in of_blocks.splitlines())


@pytest.mark.parametrize("command", ["convert", "verify", "export", "push", "pull", "families"])
def test_help_says_what_a_command_does(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


def test_help_lists_every_task_there_is() -> None:
    text = " ".join(run("convert", "--help").output.replace("│", " ").split())
    for tasks in conversion.TASKS.values():
        for task, model_class in tasks.items():
            assert f"{task}," in text or f"{task}. Left out" in text
            assert getattr(hf_ffn, model_class.__name__) is model_class


@pytest.mark.parametrize("package", ["matplotlib.figure", "timm", "PIL"])
def test_a_package_that_is_missing_is_one_line_before_the_work(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(*args: Any, **kwargs: Any) -> None:
        assert package != "matplotlib.figure"
        importlib.import_module(package)

    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("hf_ffn.equivalence.verify", verify)
    monkeypatch.setattr(sys, "argv", ["hf-ffn", "verify", "model", "--plot", "p.png"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    name = {"matplotlib.figure": "matplotlib", "PIL": "pillow"}.get(package, package)
    says = f"hf-ffn: the package '{name}' is missing, and this needs it: pip install {name}"
    assert capsys.readouterr().err.splitlines() == [says]


RUN_WITHOUT_A_PACKAGE = """
import runpy, sys
sys.modules[sys.argv[1]] = None
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("package", ["accelerate", "datasets", "matplotlib", "sklearn"])
@pytest.mark.parametrize("script", ["finetune_text.py", "finetune_image.py"])
def test_a_script_says_in_one_line_which_package_is_missing(script: str, package: str, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(f"output_dir: {tmp_path / 'out'}\ndataset_name: digits\ntokenizer_name: none\n")
    path = Path(__file__).parent.parent / "scripts" / script
    command = [sys.executable, "-c", RUN_WITHOUT_A_PACKAGE, package, path, tmp_path / "run.yaml"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    name = {"sklearn": "scikit-learn"}.get(package, package)
    assert result.stderr.splitlines()[-1].endswith(f"needs it: pip install {name}")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


RUN_AND_NAME_WHAT_WAS_IMPORTED = """
import sys
from {module} import {function}
sys.argv = ["hf-ffn", *sys.argv[1:]]
try:
    {function}()
finally:
    print("imported:", *sys.modules)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["convert", "--help"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    module, _, function = project["project"]["scripts"]["hf-ffn"].partition(":")
    program = RUN_AND_NAME_WHAT_WAS_IMPORTED.format(module=module, function=function)
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    text, _, imported = result.stdout.partition("imported:")
    assert "Usage: " in text
    assert "typer" in imported.split()
    assert not {"torch", "transformers"} & set(imported.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("convert", "{gpt2}", "{out}"), "Families that it converts: "),
        (("convert", "{tmp}/nowhere", "{out}"), "there is no folder"),
        (("convert", "{bert}", "{out}", "--task", "singing"), "it can do: base, masked-lm"),
        (("verify", "{gpt2}"), "model_type='gpt2'"),
        (("export", "{bert}", "{out}"), "write to another folder"),
    ],
)
def test_an_error_is_one_line_without_traceback_and_leaves_nothing(
    save_source: Save, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": 50, "n_positions": 16}
    transformers.GPT2Model(transformers.GPT2Config(**sizes)).save_pretrained(tmp_path / "gpt2")
    bert = save_source("BertModel")
    out = bert if arguments[0] == "export" else tmp_path / "out"
    places = {"gpt2": tmp_path / "gpt2", "bert": bert, "tmp": tmp_path, "out": out}
    result = hf_ffn_command(*(argument.format(**places) for argument in arguments))
    assert result.returncode == 1
    assert says in result.stderr
    assert result.stderr.strip().splitlines()[-1].startswith("hf-ffn: ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = hf_ffn_command("--debug", "convert", tmp_path / "nowhere", tmp_path / "out")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
