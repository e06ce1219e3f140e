"""Folders appear whole wherever they lie: mounts, links, other owners, full disks; a kill loses nothing."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from typer.testing import CliRunner

from hf_ffn import FFNTextModel, conversion, convert, export_pretrained
from hf_ffn.folders_ffn import move_into_place, refuse_unwritable, staged_folder
from hf_ffn.hub import pull as pulling
from hf_ffn.hub import stage as staging
from hf_ffn.hub.manifest import check_manifest
from hf_ffn.training.arguments import TrainingArguments
from hf_ffn.training.checkpoints import prepare_output_folder
from hf_ffn.training.run import make_accelerator
from hf_ffn_cli import app

from tiny import ffn_model

Save = Callable[..., Path]


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder, hidden ones too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill(folder: Path, **files: str) -> Path:
    """Write files; `__` stands for a folder, and `_` for a point."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_mount_takes_what_is_saved_converted_exported_and_staged(
    save_source: Save, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save_source("BertModel")
    for _ in range(2):
        FFNTextModel.from_pretrained(source).save_pretrained(mount)
    assert (mount / "lost+found").is_dir()
    convert(source, mount)
    model = FFNTextModel.from_pretrained(mount)
    assert (mount / "equivalence.json").exists()
    export_pretrained(model, mount / "new" / "back")
    monkeypatch.setattr(staging, "prove", lambda *args: [])
    shutil.rmtree(mount / "new")
    for name in content(mount):
        (mount / name).unlink()
    for _ in range(2):
        staging.stage(source, mount)
    check_manifest(mount)
    assert torch.equal(FFNTextModel.from_pretrained(mount).pooler.dense.weight, model.pooler.dense.weight)
    assert [path.name for path in mount.iterdir() if path.name.startswith(".")] == []


def test_a_run_is_cleared_where_it_is_a_mount_or_a_link(mount: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(mount)
    for folder in (mount, tmp_path / "link"):
        prepare_output_folder(folder, overwrite=False, resume=False)
        fill(folder, run_json="{}", best__config_json="{}")
        (folder / "picture").symlink_to(tmp_path)
        prepare_output_folder(folder, overwrite=True, resume=False)
        assert [path.name for path in folder.iterdir()] == ["lost+found"]
    assert (tmp_path / "link").is_symlink()


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far")
    (tmp_path / "far" / "config.json").symlink_to(fill(tmp_path / "cache", blob_json="old") / "blob.json")
    monkeypatch.chdir(tmp_path)
    with staged_folder("link") as stage:
        fill(stage, config_json="new", a_txt="new")
        monkeypatch.chdir("/")
    assert (tmp_path / "link").is_symlink()
    assert content(tmp_path / "far") == {"config.json": b"new", "a.txt": b"new"}
    assert (tmp_path / "cache" / "blob.json").read_text() == "old"


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "unplugged")
    with pytest.raises(FileNotFoundError, match=r"is a link to '.*unplugged', which is not there: make that folder"):
        ffn_model("FFNTextModel").save_pretrained(tmp_path / "link")
    assert not (tmp_path / "unplugged").exists()


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_are_readable_for_whom_the_umask_says(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        ffn_model("FFNTextModel").save_pretrained(tmp_path / "out")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").iterdir()} == {0o666 & ~mask}


@pytest.fixture
def forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nobody may make anything, root neither."""
    folder = tmp_path / "forbidden"
    folder.mkdir()
    mkdir = os.mkdir

    def refusing(path: Any, *args: Any, **kwargs: Any) -> None:
        if folder in Path(path).absolute().parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(os, "mkdir", refusing)
    return folder


def never(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("the work was begun")


@pytest.mark.parametrize("name", [".", "new/deep"])
def test_what_cannot_be_written_is_found_out_before_the_work(
    forbidden: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out = forbidden / name
    for module in (conversion, staging):
        monkeypatch.setattr(module, "model_class_for", never)
    monkeypatch.setattr(pulling, "connect", never)
    tries: list[Callable[[], Any]] = [
        lambda: convert("model", out),
        lambda: staging.stage("model", out),
        lambda: pulling.pull("me/x", out),
        lambda: make_accelerator(TrainingArguments(output_dir=str(out))),
        lambda: ffn_model("FFNTextModel").save_pretrained(out),
    ]
    for attempt in tries:
        with pytest.raises(PermissionError, match=r"forbidden' cannot be written to \(Permission denied\): choose"):
            attempt()
    commands = (["export", "m", out], ["verify", "m", "--json", out / "r"], ["verify", "m", "--plot", out / "p"])
    for command in commands:
        result = CliRunner().invoke(app, [str(each) for each in command])
        assert isinstance(result.exception, PermissionError), command


def test_a_folder_under_a_file_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, file_txt="mine")
    for name in ("file.txt", "file.txt/a/b"):
        with pytest.raises(NotADirectoryError, match=r"file.txt' is a file; give a folder"):
            refuse_unwritable(tmp_path / name)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
    ],
)
def test_a_full_disk_is_told_with_the_folder_and_leaves_what_was_there(tmp_path: Path, error: Exception) -> None:
    fill(tmp_path / "out", config_json="old")
    says = r"in '.*out' \([\d,]+ bytes are free; the weights take 1,234 bytes\); what was there stays"
    with pytest.raises(OSError, match=says), staged_folder(tmp_path / "out", needed=1234) as stage:
        raise half_way(error, stage)
    assert content(tmp_path) == {"out/config.json": b"old"}


def half_way(error: Exception, stage: Path) -> Exception:
    """What is raised after something was written."""
    fill(stage, config_json="half")
    return error


def test_other_errors_stay_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), staged_folder(tmp_path / "out"):
        raise RuntimeError("shapes differ")


# What a save finds, and what it writes: one file for another, shards of other numbers, an index that is the same.
SAVES = {
    "one": ({"config_json": "old", "model_safetensors": "old"}, {"config_json": "new", "model_safetensors": "new"}),
    "same-config": ({"config_json": "", "model_safetensors": "old"}, {"config_json": "", "model_safetensors": "new"}),
    "to-shards": (
        {"config_json": "old", "model_safetensors": "old"},
        {"config_json": "old", "model-00001-of-00001_safetensors": "new", "model_safetensors_index_json": "new"},
    ),
    "from-shards": (
        {"config_json": "old", "model-00001-of-00001_safetensors": "old", "model_safetensors_index_json": "old"},
        {"config_json": "old", "model_safetensors": "new"},
    ),
    "shards": (
        {"config_json": "", "model-00001-of-00001_safetensors": "old", "model_safetensors_index_json": "same"},
        {"config_json": "", "model-00001-of-00001_safetensors": "new", "model_safetensors_index_json": "same"},
    ),
    "parts": (
        {"config_json": "old", "model_safetensors": "old", "1_x__config_json": "old"},
        {"config_json": "new", "model_safetensors": "new", "1_x__config_json": "new"},
    ),
}


def places(tmp_path: Path, case: str) -> tuple[Path, Path, dict[str, bytes], dict[str, bytes]]:
    """A folder to be saved into, a stage, and what the folder holds before and afterwards."""
    old, new = SAVES[case]
    target, stage = fill(tmp_path / "out", mine_txt="kept", **old), fill(tmp_path / ".hf_ffn-out-1", **new)
    before, written = content(target), content(stage)
    stale = {name for name in before if name.startswith("model") and name not in written}
    return target, stage, before, {name: text for name, text in {**before, **written}.items() if name not in stale}


def each_move(monkeypatch: pytest.MonkeyPatch, number: int, do: Callable[[], Any]) -> None:
    """Do something in place of the move of this number."""
    counter, replace = itertools.count(), os.replace
    monkeypatch.setattr(os, "replace", lambda *args: do() if next(counter) == number else replace(*args))


@pytest.mark.parametrize("case", SAVES)
def test_killed_at_any_move_a_folder_is_old_or_new_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    for number in range(12):
        target, stage, before, after = places(tmp_path / str(number), case)
        pid = os.fork()
        if pid == 0:
            each_move(monkeypatch, number, lambda: os._exit(9))
            move_into_place(stage, target)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        found = content(target)
        if status == 0:
            assert found == after
            assert number > 0
            return
        if found not in (before, after):
            assert "config.json" not in found
            with pytest.raises(FileNotFoundError, match=r"saving into it was broken off: .*'.*\.hf_ffn-out-1'"):
                FFNTextModel.from_pretrained(target)
        kept = [*found.values(), *content(stage).values()]
        assert all(text in kept for text in before.values())
        assert all(text in kept for text in after.values())
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("case", SAVES)
def test_a_move_that_fails_undoes_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    def fail() -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    for number in range(12):
        target, stage, before, after = places(tmp_path / str(number), case)
        with monkeypatch.context() as patched:
            each_move(patched, number, fail)
            try:
                move_into_place(stage, target)
            except OSError:
                assert content(target) == before
                continue
        assert content(target) == after
        assert number > 0
        return
    pytest.fail("it never came to an end")


def test_a_folder_where_a_file_must_go_is_told_before_anything_is_moved(tmp_path: Path) -> None:
    target = fill(tmp_path / "out", config_json="old", model_safetensors__x="mine")
    with pytest.raises(IsADirectoryError, match="move it away"), staged_folder(target) as stage:
        fill(stage, config_json="new", model_safetensors="new")
    assert content(tmp_path) == {"out/config.json": b"old", "out/model.safetensors/x": b"mine"}


def test_a_file_system_that_moves_no_folders_gets_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "rename", refuse)
    with staged_folder(tmp_path / "out") as stage:
        fill(stage, config_json="new", part__a_txt="new")
    assert content(tmp_path) == {"out/config.json": b"new", "out/part/a.txt": b"new"}


def test_what_a_killed_save_left_is_not_published_and_a_run_clears_it(tmp_path: Path) -> None:
    from hf_ffn.hub.manifest import write_manifest

    folder = fill(tmp_path / "out", config_json="{}")
    fill(folder / ".hf_ffn-out-12345678", model_safetensors="half")
    assert list(write_manifest(folder)) == ["config.json"]
    fill(folder, run_json="{}")
    prepare_output_folder(folder, overwrite=False, resume=True)
    assert not (folder / ".hf_ffn-out-12345678").exists()
