"""A manifest tells a folder that is whole from one that is not."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_ffn.hub.manifest import MANIFEST_NAME, check_manifest, read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "pictures").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"\0" * 5000)
    (folder / "empty.txt").write_bytes(b"")
    (folder / "pictures" / "löss ü.png").write_bytes(b"png")
    return folder


def test_it_lists_every_file_but_itself_sorted(folder: Path) -> None:
    (folder / ".cache").mkdir()
    (folder / ".cache" / "bookkeeping").write_text("1")
    (folder / ".manifest.json.new").write_text("what a killed process left of an earlier manifest")
    write_manifest(folder)
    written = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
    assert written == {
        "format": 1,
        "files": {
            "empty.txt": {"size": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
            "pictures/löss ü.png": {"size": 3, "sha256": hashlib.sha256(b"png").hexdigest()},
            "weights.bin": {"size": 5000, "sha256": hashlib.sha256(b"\0" * 5000).hexdigest()},
        },
    }
    assert list(written["files"]) == sorted(written["files"])
    assert check_manifest(folder) == read_manifest(folder) == written["files"]
    again = (folder / MANIFEST_NAME).read_bytes()
    write_manifest(folder)
    assert (folder / MANIFEST_NAME).read_bytes() == again
    assert {path.name for path in folder.iterdir()} == {
        ".cache", "empty.txt", "manifest.json", "pictures", "weights.bin"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "weights.bin").unlink(), "weights.bin: missing"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"\0" * 4999), "weights.bin: changed"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"\0" * 4999 + b"1"), "weights.bin: changed"),
        (lambda folder: (folder / "pictures" / "new.png").write_bytes(b""), "pictures/new.png: not in the manifest"),
        (lambda folder: (folder / "empty.txt").rename(folder / "a.txt"), "empty.txt: missing; a.txt: not in the"),
        (lambda folder: [(folder / f"{n}").write_text("") for n in range(7)], "0, 1, 2, 3, 4 and 2 more: not in"),
    ],
)
def test_a_folder_that_differs_is_told_by_the_files(folder: Path, change: Callable[[Path], Any], says: str) -> None:
    write_manifest(folder)
    change(folder)
    with pytest.raises(ValueError, match=says):
        check_manifest(folder)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"format": 1, "fil', "not JSON"),
        ("[]", "has format None"),
        ('{"format": 2, "files": {}}', "has format 2"),
        ('{"format": 1}', "damaged"),
        ('{"format": 1, "files": {"a": {"size": 1}}}', "damaged"),
        *(
            (json.dumps({"format": 1, "files": {name: {"size": 1, "sha256": "a" * 64}}}), "damaged")
            for name in ("../a", "/etc/passwd", "b/../../a", "b\\..\\a", "./a", "")
        ),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(content)
    with pytest.raises(ValueError, match=says):
        read_manifest(tmp_path)


def test_a_folder_without_one_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no manifest\.json"):
        check_manifest(tmp_path)
    with pytest.raises(NotADirectoryError, match="no folder"):
        write_manifest(tmp_path / "nothing")


def test_what_would_be_lost_silently_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="linked"):
        write_manifest(folder)
    assert not (folder / MANIFEST_NAME).exists()


def test_a_linked_file_is_as_good_as_its_content(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"blob")
    (folder / "linked.txt").symlink_to(tmp_path / "blob")
    assert write_manifest(folder)["linked.txt"]["size"] == 4
    (tmp_path / "blob").write_bytes(b"slob")
    with pytest.raises(ValueError, match=r"linked\.txt: changed"):
        check_manifest(folder)


def test_a_failure_leaves_the_manifest_that_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_manifest(folder)
    before = (folder / MANIFEST_NAME).read_bytes()
    (folder / "new.txt").write_text("new")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_manifest(folder)
    assert (folder / MANIFEST_NAME).read_bytes() == before
    assert sorted(path.name for path in folder.glob(".*")) == []
