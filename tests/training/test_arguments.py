"""Flags and files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hf_ffn.training.arguments import parse, without_token

ROOT = Path(__file__).parent.parent.parent


def test_the_peers_flags_keep_their_names() -> None:
    flags = {
        "model_name_or_path": "m", "dataset_name": "d", "train_file": "t.csv", "validation_file": "v.csv",
        "per_device_train_batch_size": "4", "per_device_eval_batch_size": "8", "learning_rate": "1e-4",
        "weight_decay": "0.1", "num_train_epochs": "2", "max_train_steps": "9", "gradient_accumulation_steps": "2",
        "lr_scheduler_type": "cosine", "num_warmup_steps": "3", "output_dir": "o", "seed": "1",
        "checkpointing_steps": "epoch", "resume_from_checkpoint": "latest", "report_to": "wandb",
        "hub_model_id": "me/it", "hub_token": "secret", "max_length": "64",
    }  # fmt: skip
    switches = ["with_tracking", "push_to_hub"]
    arguments = [part for name, value in flags.items() for part in (f"--{name}", value)]
    model, data, training = parse([*arguments, *(f"--{name}" for name in switches)])
    for name, value in flags.items():
        found = next(getattr(each, name) for each in (model, data, training) if hasattr(each, name))
        assert found == ([value] if isinstance(found, list) else type(found)(value)), name
    assert training.with_tracking
    assert training.push_to_hub


def test_a_yaml_file_holds_the_same_and_flags_overrule_it(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("output_dir: out\nlearning_rate: 1.0e-4\nwith_tracking: true\nmax_train_steps: 5\n")
    _, _, training = parse([str(path), "--max_train_steps", "7"])
    assert (training.output_dir, training.learning_rate, training.with_tracking) == ("out", 1e-4, True)
    assert training.max_train_steps == 7


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--per_device_train_batch_size", "0"], "per_device_train_batch_size=0 must be at least 1"),
        (["--gradient_accumulation_steps", "-1"], "gradient_accumulation_steps=-1"),
        (["--checkpointing_steps", "often"], "must be a number of steps, or epoch"),
        (["--overwrite_output_dir", "--resume_from_checkpoint", "latest"], "would delete"),
        (["--hub_strategy", "often"], "hub_strategy='often' must be end or epoch"),
        (["--lerning_rate", "1"], "unknown arguments: --lerning_rate 1"),
    ],
)
def test_impossible_arguments_are_refused(flags: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(["--output_dir", "o", *flags])


def test_an_unknown_key_in_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("output_dir: out\nlerning_rate: 1.0\n")
    with pytest.raises(ValueError, match="lerning_rate"):
        parse([str(tmp_path / "run.yaml")])


def test_the_token_is_not_among_what_is_written() -> None:
    arguments = parse(["--output_dir", "o", "--hub_token", "hf_secret"])
    assert "hf_secret" not in str(without_token(*arguments))


@pytest.mark.slow
@pytest.mark.parametrize("script", ["finetune_text.py", "finetune_image.py"])
def test_every_argument_explains_itself_in_help(script: str) -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts" / script, "--help"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert result.returncode == 0, result.stderr
    assert "--checkpoints_total_limit" in result.stdout
    assert "None" not in [line.strip() for line in result.stdout.splitlines()]
