"""What people install: the wheel alone in a fresh environment, and the promises of the repository's files."""

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import hf_ffn

ROOT = Path(__file__).parent.parent

TRY_THE_WHEEL = """
import sys, tempfile
from collections.abc import Callable
from pathlib import Path
import hf_ffn, torch, transformers
assert "site-packages" in hf_ffn.__file__, hf_ffn.__file__
assert (Path(hf_ffn.__file__).parent / "py.typed").exists()
config = transformers.BertConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                 intermediate_size=64)
with tempfile.TemporaryDirectory() as folder:
    transformers.BertModel(config).save_pretrained(folder + "/bert")
    model, report = hf_ffn.convert(folder + "/bert", folder + "/ours")
    assert report.ok, report
    hf_ffn.export_pretrained(transformers.AutoModel.from_pretrained(folder + "/ours"), folder + "/back")
print(hf_ffn.__version__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command, and return what it printed."""
    result = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_wheel_works_alone_in_a_fresh_environment(tmp_path: Path) -> None:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"hf_ffn/py.typed", "hf_ffn/families/bert.py", "hf_ffn_cli.py", "hf_ffn/hub/template.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "scripts"))]

    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    version = torch.__version__.partition("+")[0]
    run(python, "-m", "pip", "install", "--quiet", f"torch=={version}", cwd=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert run(python, "-c", TRY_THE_WHEEL, cwd=tmp_path).split()[-1] == hf_ffn.__version__
    assert "bert" in run(tmp_path / "venv" / "bin" / "hf-ffn", "families", cwd=tmp_path)
    template = "from hf_ffn.hub.card import template; print(template())"
    assert (
        run(python, "-c", template, cwd=tmp_path).strip() == (ROOT / "model_cards" / "template.md").read_text().strip()
    )
    run(python, "-m", "pip", "check", cwd=tmp_path)


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "hf_ffn/__init__.py"
    assert f"## {hf_ffn.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_ci_runs_the_readmes_commands() -> None:
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "run").read_text()
    for command in ("make lint", "make test"):
        assert re.search(rf"^{command}$", ci, re.MULTILINE)
        assert command in readme
    assert "make demo" in readme


def test_every_make_target_is_listed_by_make_help() -> None:
    listed = run("make", "help", cwd=ROOT)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "slow-tests", "lint", "model-cards", "peer-tests"} <= set(targets)
    for target in targets:
        assert f"make {target} " in listed


def test_travelling_files_import_only_what_everybody_has() -> None:
    """They are copied beside a checkpoint, flat, so that people without hf_ffn can load it."""
    allowed = {"torch", "transformers", "numpy", "safetensors", "huggingface_hub"} | set(sys.stdlib_module_names)
    files = [*(ROOT / "hf_ffn").glob("*_ffn*.py")]
    assert {"configuration_ffn.py", "loading_ffn.py", "resizing_ffn.py"} <= {path.name for path in files}
    for path in files:
        for line in path.read_text().splitlines():
            match = re.match(r"\s*(?:from|import) (\.?)([\w]+)", line)
            if match is None:
                continue
            assert match[1] or match[2] in allowed, f"{path.name}: {line}"
            assert not match[1] or (ROOT / "hf_ffn" / f"{match[2]}.py") in files, f"{path.name}: {line}"


def python_blocks(text: str) -> list[str]:
    """The fenced Python code of a Markdown text."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_readmes_first_example_runs_on_folders(save_source: Callable[..., Path], tmp_path: Path) -> None:
    code = python_blocks((ROOT / "README.md").read_text())[0]
    bert = save_source("BertForSequenceClassification", "bert", num_hidden_layers=6)
    vit = save_source("ViTForImageClassification", "vit")
    for hub_id in re.findall(r'"([\w-]+/[\w.-]+)"', code):
        code = code.replace(hub_id, str(vit if "vit" in hub_id else bert))
    script = tmp_path / "example.py"
    script.write_text(code)
    assert "=> equivalent" in run(sys.executable, script, cwd=tmp_path)
    assert (tmp_path / "my-encoder" / "model.safetensors").exists()
    assert (tmp_path / "back-to-bert" / "config.json").exists()


@pytest.mark.slow
def test_the_readmes_other_examples_run_as_they_stand(tmp_path: Path) -> None:
    blocks = python_blocks((ROOT / "README.md").read_text())[1:]
    assert blocks
    for number, code in enumerate(blocks):
        script = tmp_path / f"example_{number}.py"
        script.write_text(code)
        printed = run(sys.executable, script, cwd=tmp_path)
        promised = re.findall(r"print\(.*\)\s+# (.+)", code)
        assert printed.splitlines() == promised
