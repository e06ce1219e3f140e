"""Flags and files."""

import importlib.util
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from transformers import get_scheduler

from hf_ffn.training.arguments import (
    LABEL_COLUMNS,
    LEAST,
    MINUS_ONE_IS_LEFT_OUT,
    SCHEDULES,
    TASKS,
    TEXT_COLUMNS,
    DataArguments,
    ModelArguments,
    TrainingArguments,
    parse,
    without_token,
)
from hf_ffn_cli import one_line

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
        (["--lerning_rate", "1"], r"unknown arguments: --lerning_rate 1 \(did you mean --learning_rate\?\)"),
        (["--lerning_rate=1"], "did you mean --learning_rate"),
        (["run.yaml"], "a YAML file comes first"),
        (["--train_only", "attention"], "train_only='attention' must be ffn"),
        (["--max_length", "two"], "max_length.*: invalid int value: 'two'"),
        (["--checkpointing_steps", "0"], "must be a number of steps, or epoch"),
        (["--lr_scheduler_type", "reduce_lr_on_plateau"], "invalid choice"),
    ],
)
def test_impossible_arguments_are_refused(flags: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(["--output_dir", "o", *flags])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mixed_precision: no", {"mixed_precision": "no"}),
        ("push_to_hub: yes\ngroup_by_length: off\nstreaming: on\naugment: True", {
            "push_to_hub": True, "group_by_length": False, "streaming": True, "augment": True}),
        ("text_column: on\nlabel_column: no", {"text_column": "on", "label_column": ["no"]}),
        ("label_column: [toxic, threat]\nlora: [linear_1, q_proj]", {
            "label_column": ["toxic", "threat"], "lora": "linear_1,q_proj"}),
        ("train_file: [b.csv, a.csv]", {"train_file": ["b.csv", "a.csv"]}),
        ("train_file: 2024-01-31", {"train_file": ["2024-01-31"]}),
        ("config_overrides: {hidden_size: 64, hidden_act: relu}", {
            "config_overrides": "hidden_size=64,hidden_act=relu"}),
        ("max_train_steps:\nmax_eval_samples: null\nrevision: ~", {
            "max_train_steps": None, "max_eval_samples": None, "revision": None}),
        ("max_train_steps: -1\nnum_train_epochs: -1\nmax_train_samples: -1", {
            "max_train_steps": None, "num_train_epochs": 3, "max_train_samples": None}),
        ("learning-rate: 1e-4\nrevision: 0123\nhub_model_id: '1.0'", {
            "learning_rate": 1e-4, "revision": "0123", "hub_model_id": "1.0"}),
        ("delimiter: '-'", {"delimiter": "-"}),
        ("", {"max_length": None}),
    ],
)  # fmt: skip
def test_words_in_a_file_mean_what_the_argument_takes(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    (tmp_path / "run.yaml").write_text(f"output_dir: out\n{text}\n")
    arguments = without_token(*parse([str(tmp_path / "run.yaml")]))
    assert {name: arguments[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lerning_rate: 1.0", r"run.yaml' has the entry 'lerning_rate'.*did you mean learning_rate"),
        ("- output_dir\n- out", r"run.yaml' must hold entries such as .*not \['output_dir', 'out'\]"),
        ("just words", "must hold entries such as"),
        ("\tseed: 1", r"run.yaml' is not YAML: .*line 2, column 1.*indent with spaces, not tabs"),
        ("seed: [1, 2]", r"run.yaml': seed must be one value, not \['1', '2'\]"),
        ("seed: {a: 1}", r"run.yaml': seed must be a value or a list of values, not"),
        ("train_file: [[a]]", "train_file must be a value or a list of values"),
        ("seed: 1\nseed: 2", "run.yaml' has seed twice"),
        ("seed: x", "invalid int value: 'x'"),
        ("streaming: perhaps", "streaming"),
        ("mixed_precision: yes", "mixed_precision.*: invalid choice: 'yes'"),
        ('text_column: "\\xff', "is not YAML"),
    ],
)
def test_a_file_that_means_nothing_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "run.yaml").write_text(text if text[0] in "-j" else f"output_dir: out\n{text}\n")
    with pytest.raises(ValueError, match=says) as error:
        parse([str(tmp_path / "run.yaml")])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", ["-5", "-1", "0", "nan", "inf"])
@pytest.mark.parametrize("name", LEAST)
def test_numbers_that_mean_nothing_are_refused_and_named(name: str, value: str) -> None:
    flags = ["--output_dir", "o", f"--{name}={value}"]
    if value == "-1" and name in MINUS_ONE_IS_LEFT_OUT:
        assert without_token(*parse(flags)) == without_token(*parse(flags[:2]))
    elif value == "0" and LEAST[name] == 0:
        assert without_token(*parse(flags))[name] == 0
    else:
        with pytest.raises(ValueError, match=name):
            parse(flags)


def test_every_number_has_a_least_one() -> None:
    numbers = {
        each.name
        for part in (ModelArguments, DataArguments, TrainingArguments)
        for each in fields(part)
        if {int, float} & {each.type, *get_args(each.type)}
    }
    assert numbers == LEAST.keys()


def test_help_lists_what_the_data_say(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for listed in (SCHEDULES, TASKS, TEXT_COLUMNS, LABEL_COLUMNS):
        assert all(name in text for name in listed), listed


def test_every_schedule_can_be_stepped_through() -> None:
    for name in SCHEDULES:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=1e-3)
        schedule = get_scheduler(name, optimizer, 1, 4)
        for _ in range(4):
            optimizer.step()
            schedule.step()
        assert schedule.get_last_lr()[0] >= 0


def test_no_file_beside_the_script_is_read_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "finetune_text.args").write_text("--seed 7")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "finetune_text.py")])
    assert parse(["--output_dir", "o"])[2].seed == 42


def test_a_package_that_an_argument_needs_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as error:
        parse(["--output_dir", "o", "--lora", "linear_1"])
    assert one_line(error.value).endswith("pip install peft")


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


def test_a_folder_that_is_overwritten_holds_nothing_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "out" / "best").mkdir(parents=True)
    (tmp_path / "out" / "train.csv").touch()
    command = ["--output_dir", str(tmp_path / "out"), "--overwrite_output_dir"]
    for name, path in {"model_name_or_path": "best", "train_file": "train.csv", "tokenizer_name": "."}.items():
        with pytest.raises(ValueError, match=f"would delete what --{name} is to be read from"):
            parse([*command, f"--{name}", str(tmp_path / "out" / path)])
    parse([*command, "--model_name_or_path", str(tmp_path)])
