"""On a machine that reaches nothing: convert, verify, fine-tune and evaluate, stage and export, in one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from model_folder import add_processor
from transformers import BertModel

from tiny import bert_config, telling_model

SCRIPTS = Path(__file__).parent.parent / "scripts"

# Run with the folder that holds the checkpoint and the data. An audit hook cannot be taken away again.
PROGRAM = """
import runpy, sys
from pathlib import Path

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"):
        raise SystemExit(f"{event} was asked for: {arguments}")

sys.addaudithook(refuse)
scripts, folder = map(Path, sys.argv[1:])

def hf_ffn(*arguments):
    from hf_ffn_cli import app
    assert not app([str(argument) for argument in arguments], standalone_mode=False), arguments

hf_ffn("convert", folder / "bert", folder / "ours")
hf_ffn("verify", folder / "bert", "--model", folder / "ours")
sys.argv = ["finetune_text.py", "--model_name_or_path", str(folder / "ours"), "--output_dir", str(folder / "run"),
            "--train_file", str(folder / "train.csv"), "--validation_file", str(folder / "train.csv"),
            "--max_train_steps", "2"]
runpy.run_path(str(scripts / "finetune_text.py"), run_name="__main__")
hf_ffn("stage", folder / "run", folder / "ready")
hf_ffn("export", folder / "ready", folder / "back")
print("all of it ran")
"""


@pytest.mark.slow
def test_everything_runs_where_nothing_can_be_reached(tmp_path: Path) -> None:
    telling_model(BertModel, bert_config()).save_pretrained(tmp_path / "bert")
    add_processor(tmp_path / "bert", "FFNTextModel")
    rows = [f"the encoder reads{' .' * (index % 3)},{['good', 'bad'][index % 2]}" for index in range(12)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]))
    # A home of its own: nothing that was fetched before helps.
    away = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf-home")}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, SCRIPTS, tmp_path], env={**os.environ, **away}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "all of it ran"
    assert json.loads((tmp_path / "run" / "all_results.json").read_text())["train_steps"] == 2
    assert (tmp_path / "ready" / "manifest.json").is_file()
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "bert"
