"""Checkpoints are whole or not there, and a run is resumed by the same run only."""

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from hf_ffn.training.checkpoints import (
    Progress,
    check_same_run,
    checkpoints_in,
    drop_later,
    find_checkpoint,
    load_checkpoint,
    prepare_output_folder,
    save_checkpoint,
)


def small_run() -> tuple[Accelerator, nn.Module, torch.optim.Optimizer]:
    """An accelerator with a model and an optimizer that has state."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return accelerator, model, optimizer


def test_model_optimizer_and_progress_come_back(tmp_path: Path) -> None:
    accelerator, model, optimizer = small_run()
    progress = Progress(step=5, epoch=1, step_in_epoch=2, history=[{"step": 5, "loss": 0.5}])
    path = save_checkpoint(accelerator, tmp_path, progress, keep=None)
    saved = [parameter.clone() for parameter in model.parameters()]
    moments = optimizer.state_dict()["state"][0]["exp_avg"].clone()
    nn.init.zeros_(model.weight)
    optimizer.step()
    assert load_checkpoint(accelerator, path) == progress
    for before, after in zip(saved, model.parameters(), strict=True):
        assert torch.equal(before, after)
    assert torch.equal(moments, optimizer.state_dict()["state"][0]["exp_avg"])


class RunsCode:
    """Pickled, it writes a file when it is read back."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.proof,)


def damaged(content: bytes) -> bytes:
    return content[: len(content) // 2]


def test_no_file_of_a_checkpoint_can_run_code_or_be_damaged_unnoticed(tmp_path: Path) -> None:
    accelerator, _model, _ = small_run()
    path = save_checkpoint(accelerator, tmp_path, Progress(step=5), keep=None)
    files = [file.name for file in path.iterdir()]
    assert {"model.safetensors", "optimizer.bin", "progress.json"} <= set(files)
    for name in files:
        whole, proof = (path / name).read_bytes(), tmp_path / "proof"
        for content in (damaged(whole), pickle.dumps(RunsCode(proof)), as_saved_by_torch(RunsCode(proof))):
            (path / name).write_bytes(content)
            # Where the random sequence stood matters to nobody, for every step seeds its own.
            if name.startswith("random_states"):
                load_checkpoint(accelerator, path)
            else:
                with pytest.raises(
                    ValueError, match=r"checkpoint '.*checkpoint-5' cannot be read \(.+\): delete that"
                ):
                    load_checkpoint(accelerator, path)
            assert not proof.exists(), name
        (path / name).write_bytes(whole)
    (path / "optimizer.bin").unlink()
    with pytest.raises(ValueError, match=r"cannot be read \(.*optimizer.bin"):
        load_checkpoint(accelerator, path)


def as_saved_by_torch(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def test_only_the_newest_are_kept_and_the_latest_is_found(tmp_path: Path) -> None:
    accelerator, *_ = small_run()
    for step in (1, 2, 9, 10):
        save_checkpoint(accelerator, tmp_path, Progress(step=step), keep=2)
    assert [path.name for path in checkpoints_in(tmp_path)] == ["checkpoint-9", "checkpoint-10"]
    assert find_checkpoint(tmp_path, "latest") == tmp_path / "checkpoint-10"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-9"]


def test_a_mount_takes_checkpoints(mount: Path) -> None:
    accelerator, *_ = small_run()
    prepare_output_folder(mount, overwrite=False, resume=False)
    for step in (1, 2, 3):
        save_checkpoint(accelerator, mount, Progress(step=step), keep=2)
    assert [path.name for path in checkpoints_in(mount)] == ["checkpoint-2", "checkpoint-3"]
    usual = (mount / "checkpoint-3").stat().st_mode & 0o666
    assert {path.stat().st_mode & 0o666 for path in (mount / "checkpoint-3").iterdir()} == {usual}


def test_without_a_limit_all_are_kept(tmp_path: Path) -> None:
    accelerator, *_ = small_run()
    for step in (1, 2, 3):
        save_checkpoint(accelerator, tmp_path, Progress(step=step), keep=None)
    assert len(checkpoints_in(tmp_path)) == 3


def test_a_save_that_fails_leaves_no_checkpoint_that_would_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accelerator, *_ = small_run()
    save_checkpoint(accelerator, tmp_path, Progress(step=1), keep=None)

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(accelerator, "save_state", full_disk)
    with pytest.raises(OSError, match="no space is left in"):
        save_checkpoint(accelerator, tmp_path, Progress(step=2), keep=None)
    assert find_checkpoint(tmp_path, "latest") == tmp_path / "checkpoint-1"
    prepare_output_folder(tmp_path, overwrite=False, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_checkpoints_after_the_one_that_a_run_goes_on_from_go(tmp_path: Path) -> None:
    accelerator, *_ = small_run()
    for step in (5, 10, 15):
        save_checkpoint(accelerator, tmp_path, Progress(step=step), keep=None)
    assert drop_later(tmp_path, 15) == []
    assert drop_later(tmp_path, 5) == ["checkpoint-10", "checkpoint-15"]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-5"]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    accelerator, *_ = small_run()
    (tmp_path / "old").mkdir()
    save_checkpoint(accelerator, tmp_path / "old", Progress(step=1), keep=None)
    with pytest.raises(ValueError, match="is another run's, not one of output_dir"):
        find_checkpoint(tmp_path / "new", str(tmp_path / "old" / "checkpoint-1"))


def test_resuming_writes_over_no_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".hf_ffn-model-pull").mkdir()
    with pytest.raises(ValueError, match="is not empty, and holds no run of hf_ffn"):
        prepare_output_folder(tmp_path, overwrite=False, resume=True)
    assert (tmp_path / ".hf_ffn-model-pull").is_dir(), "another command may be at work there"


def test_the_record_of_a_run_that_is_made_longer_is_of_no_model_until_it_ends(tmp_path: Path) -> None:
    facts = {"arguments": {"num_train_epochs": 3, "max_train_steps": None}}
    check_same_run(tmp_path, facts)
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**record, "model_sha256": "a" * 64}))
    assert check_same_run(tmp_path, facts) is None
    assert "model_sha256" in json.loads((tmp_path / "run.json").read_text())
    assert check_same_run(tmp_path, {"arguments": {"num_train_epochs": 9, "max_train_steps": None}}) is not None
    assert "model_sha256" not in json.loads((tmp_path / "run.json").read_text())


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path, "latest") is None
    with pytest.raises(ValueError, match="is not a checkpoint of hf_ffn"):
        find_checkpoint(tmp_path, str(tmp_path))


FACTS = {
    "arguments": {"seed": 1, "learning_rate": 0.1, "output_dir": "a", "per_device_train_batch_size": 8},
    "data": {"samples": 100},
    "processes": {"num_processes": 1},
}


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("arguments", "seed", 2),
        ("arguments", "per_device_train_batch_size", 4),
        ("arguments", "learning_rate", 0.2),
        ("data", "samples", 99),
        ("processes", "num_processes", 2),
    ],
)
def test_another_run_is_not_resumed_and_what_changed_is_named(
    tmp_path: Path, part: str, name: str, value: float
) -> None:
    check_same_run(tmp_path, FACTS)
    changed = json.loads(json.dumps(FACTS))
    changed[part][name] = value
    with pytest.raises(ValueError, match=f"{name} was {FACTS[part][name]!r} and is {value!r}"):
        check_same_run(tmp_path, changed)


def test_the_same_run_is_resumed_from_another_place_and_with_other_logging(tmp_path: Path) -> None:
    check_same_run(tmp_path, FACTS)
    moved = {**FACTS, "arguments": {**FACTS["arguments"], "output_dir": "b", "resume_from_checkpoint": "latest"}}
    check_same_run(tmp_path, moved)


@pytest.mark.parametrize("name", ["train_file", "validation_file", "train_dir", "validation_dir", "dataset_name"])
def test_the_same_data_may_lie_at_another_path(tmp_path: Path, name: str) -> None:
    facts: dict[str, Any] = {**FACTS, "data": {"train": {"content": "ab12"}}}
    check_same_run(tmp_path, {**facts, "arguments": {name: "/here"}})
    moved = {**facts, "arguments": {name: "/there"}}
    assert check_same_run(tmp_path, moved) is None
    with pytest.raises(ValueError, match="train was"):
        check_same_run(tmp_path, {**moved, "data": {"train": {"content": "ffff"}}})


def test_a_run_may_be_made_longer_and_that_is_said_once(tmp_path: Path) -> None:
    def asked(**arguments: Any) -> dict[str, Any]:
        return {**FACTS, "arguments": {"num_train_epochs": 3, "max_train_steps": None, **arguments}}

    assert check_same_run(tmp_path, asked()) is None
    says = check_same_run(tmp_path, asked(num_train_epochs=5))
    assert says is not None
    assert says.startswith("num_train_epochs was 3 and is 5: the run goes on")
    assert "learning rate" in says
    assert check_same_run(tmp_path, asked(num_train_epochs=5)) is None
    for other in (asked(num_train_epochs=4), asked(num_train_epochs=5, max_train_steps=9)):
        with pytest.raises(ValueError, match=r"was 5 and is 4|was None and is 9"):
            check_same_run(tmp_path, other)
    with pytest.raises(ValueError, match="seed was None and is 2"):
        check_same_run(tmp_path, asked(num_train_epochs=6, seed=2))
    assert check_same_run(tmp_path, asked(num_train_epochs=5)) is None


def test_a_folder_in_use_is_refused_and_overwritten_only_if_it_is_a_run(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="holds no run of hf_ffn"):
            prepare_output_folder(tmp_path, overwrite=overwrite, resume=False)
    assert (tmp_path / "holiday.jpg").exists()
    check_same_run(tmp_path, FACTS)
    with pytest.raises(ValueError, match="holds another run"):
        prepare_output_folder(tmp_path, overwrite=False, resume=False)
    prepare_output_folder(tmp_path, overwrite=True, resume=False)
    assert list(tmp_path.iterdir()) == []
