"""What is pulled is what its manifest says, or does not come."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, file_download

from hf_ffn.hub.client import HubError
from hf_ffn.hub.manifest import MANIFEST_NAME, check_manifest
from hf_ffn.hub.pull import pull
from hf_ffn.hub.push import push

from loopback_hub import STRANGERS_TOKEN, Fault, Hub

Staged = Callable[..., Path]

FILES = {
    "config.json": b'{"a": 1}',
    "model.safetensors": b"\0\1" * 5000,
    "other.safetensors": b"\0\2" * 5000,
    "pictures/a [1].png": b"\x89PNG\0" * 9,
}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def source(hub: Hub, staged: Staged) -> Path:
    """A folder that "me/x" holds."""
    folder = staged(FILES)
    push(folder, "me/x")
    hub.log.clear()
    return folder


def left_beside(folder: Path) -> list[str]:
    return [path.name for path in folder.parent.iterdir() if path.name.startswith(".hf_ffn")]


def test_what_was_pushed_comes_back(hub: Hub, api: HfApi, source: Path, tmp_path: Path) -> None:
    api.upload_file(repo_id="me/x", path_or_fileobj=b"by hand", path_in_repo="notes.txt")
    pulled = pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == content(source)
    assert pulled.commit == hub.repo("me/x").branches["main"]
    assert pulled.files == check_manifest(tmp_path / "out")
    assert left_beside(tmp_path / "out") == []
    assert push(tmp_path / "out", "me/x").sent == []


def test_a_mount_takes_what_is_pulled_and_is_replaced_as_a_whole(
    source: Path, staged: Staged, mount: Path, tmp_path: Path
) -> None:
    pull("me/x", mount)
    assert content(mount) == content(source)
    newer = staged({"config.json": b"{}", "code.py": b"1"})
    push(newer, "me/x")
    pull("me/x", mount)
    assert content(mount) == content(newer)
    assert sorted(path.name for path in mount.iterdir() if path.is_dir()) == ["lost+found"]
    assert left_beside(mount) == []


def test_a_clone_by_git_stays_one(source: Path, staged: Staged, tmp_path: Path) -> None:
    pull("me/x", tmp_path / "out")
    (tmp_path / "out" / ".git" / "objects").mkdir(parents=True)
    (tmp_path / "out" / ".git" / "HEAD").write_text("ref: refs/heads/main")
    push(staged({"config.json": b"{}"}), "me/x")
    pull("me/x", tmp_path / "out")
    assert (tmp_path / "out" / "config.json").read_bytes() == b"{}"
    assert (tmp_path / "out" / ".git" / "HEAD").read_text() == "ref: refs/heads/main"
    assert (tmp_path / "out" / ".git" / "objects").is_dir()


def test_a_revision_is_pulled_as_it_was(api: HfApi, source: Path, staged: Staged, tmp_path: Path) -> None:
    api.create_tag("me/x", tag="v1")
    before = content(source)
    push(staged({"config.json": b"{}"}), "me/x")
    pull("me/x", tmp_path / "out", revision="v1")
    assert content(tmp_path / "out") == before


def test_a_pulled_folder_is_replaced_as_a_whole(source: Path, staged: Staged, tmp_path: Path) -> None:
    pull("me/x", tmp_path / "out")
    newer = staged({"config.json": b"{}", "code.py": b"1"})
    push(newer, "me/x")
    pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == content(newer)
    assert left_beside(tmp_path / "out") == []


@pytest.mark.parametrize("kind", ["changed", "foreign", "file"])
def test_a_target_that_would_be_lost_is_left(hub: Hub, source: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        if kind == "changed":
            shutil.copytree(source, out, dirs_exist_ok=True)
        (out / "mine.txt").write_text("mine")
    before = content(tmp_path)
    with pytest.raises((HubError, NotADirectoryError), match="give a"):
        pull("me/x", out)
    assert content(tmp_path) == before
    assert hub.log == []


def test_a_damaged_download_is_fetched_again_and_no_other(hub: Hub, source: Path, tmp_path: Path) -> None:
    hub.faults = [Fault("corrupt", where="GET.*other.safetensors"), Fault("corrupt", where="GET.*manifest")]
    pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == content(source)
    assert sum("GET" in line and "resolve" in line and "model.safetensors" in line for line in hub.log) == 1
    assert sum("GET" in line and "resolve" in line and "other.safetensors" in line for line in hub.log) == 2


def test_a_file_that_always_arrives_damaged_is_told_and_leaves_what_was_there(
    hub: Hub, source: Path, staged: Staged, tmp_path: Path
) -> None:
    pull("me/x", tmp_path / "out")
    before = content(tmp_path / "out")
    push(staged({**FILES, "model.safetensors": b"\0\3" * 5000}), "me/x")
    hub.faults = [Fault("corrupt", where="GET.*model.safetensors", times=1000)]
    with pytest.raises(HubError, match=r"arrived damaged: model\.safetensors"):
        pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == before
    hub.faults = []
    pull("me/x", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == b"\0\3" * 5000


def test_a_pull_that_broke_off_goes_on_with_what_is_there(hub: Hub, source: Path, tmp_path: Path) -> None:
    hub.faults = [Fault("status", status=403, where="GET.*other.safetensors")]
    with pytest.raises(HubError, match="403"):
        pull("me/x", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    hub.faults, first = [], list(hub.log)
    hub.log.clear()
    pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == content(source)
    for name in ("model.safetensors", "config.json", MANIFEST_NAME):
        fetched = [f"GET /me/x/resolve/{hub.repo('me/x').branches['main']}/{name} -> 200"]
        assert [line for line in first + hub.log if line in fetched] == fetched


def test_what_broke_off_at_another_commit_leaves_nothing_behind(
    hub: Hub, source: Path, staged: Staged, tmp_path: Path
) -> None:
    hub.faults = [Fault("status", status=403, where="GET.*other.safetensors")]
    with pytest.raises(HubError, match="403"):
        pull("me/x", tmp_path / "out")
    hub.faults = []
    newer = staged({"config.json": b"{}"})
    push(newer, "me/x")
    pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == content(newer)


def test_faults_that_pass_are_outlasted(hub: Hub, source: Path, tmp_path: Path) -> None:
    hub.faults = [
        Fault("status", status=503, where=r"models/me/x(/revision/main)?$", times=2),
        Fault("reset", where="/tree/"),
        Fault("truncate", where="GET.*model.safetensors", times=2),
        Fault("status", status=500, where="HEAD.*config"),
        Fault("lost", where="GET.*pictures"),
        Fault("page", status=200, where="GET.*other.safetensors"),
    ]
    pull("me/x", tmp_path / "out")
    assert content(tmp_path / "out") == content(source)
    assert all(fault.seen >= fault.times for fault in hub.faults)


def test_what_changed_on_the_hub_after_the_push_is_told(hub: Hub, api: HfApi, source: Path, tmp_path: Path) -> None:
    api.upload_file(repo_id="me/x", path_or_fileobj=b'{"a": 2}', path_in_repo="config.json")
    with pytest.raises(HubError, match=r"config\.json changed on the Hub"):
        pull("me/x", tmp_path / "out")
    api.delete_file("config.json", "me/x")
    with pytest.raises(HubError, match=r"lacks files.*config\.json"):
        pull("me/x", tmp_path / "out")
    api.delete_file(MANIFEST_NAME, "me/x")
    with pytest.raises(HubError, match=r"no manifest\.json"):
        pull("me/x", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_manifest_that_leads_out_of_the_folder_is_refused(api: HfApi, source: Path, tmp_path: Path) -> None:
    evil = b'{"format": 1, "files": {"../evil": {"size": 1, "sha256": "%s"}}}' % (b"a" * 64)
    api.upload_file(repo_id="me/x", path_or_fileobj=evil, path_in_repo=MANIFEST_NAME)
    with pytest.raises(ValueError, match="damaged"):
        pull("me/x", tmp_path / "out")


@pytest.mark.parametrize(
    ("repo_id", "options", "says"),
    [
        ("me/nothing", {}, "no such repository"),
        ("me/x", {"revision": "nothing"}, "check --revision"),
        ("me/x", {"token": "hf_wrong"}, "does not know this token"),
        ("me/secret", {"token": STRANGERS_TOKEN}, "no such repository"),
        ("me/x/y", {}, "cannot be a repository's name"),
    ],
)
def test_what_cannot_be_pulled_is_told(
    api: HfApi, source: Path, tmp_path: Path, repo_id: str, options: dict[str, Any], says: str
) -> None:
    api.create_repo("secret", private=True)
    with pytest.raises(HubError, match=says):
        pull(repo_id, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_full_disk_is_told(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file_download, "_chmod_and_move", full)
    with pytest.raises(HubError, match="no space is left on this disk"):
        pull("me/x", tmp_path / "out")
    assert not (tmp_path / "out").exists()
