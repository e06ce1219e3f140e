"""Folders of pictures: no file is left out in silence, and no neighbour is read."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import load_image_data
from hf_ffn.training.sources import load_splits

pytestmark = pytest.mark.usefixtures("own_cache")


def paint(path: Path, grey: int = 0) -> Path:
    """A small picture at a path; its folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (4, 4), grey).save(path, "png")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of two classes with two pictures each."""
    for name in ("cat/1.png", "cat/2.png", "dog/1.png", "dog/2.png"):
        paint(tmp_path / "photos" / name)
    return tmp_path / "photos"


def found(folder: Path | str, **args: Any) -> list[tuple[str, str]]:
    """Class and path of all pictures that are read, which are the same in a stream."""
    given = {"train_dir": str(folder), "validation_dir": str(folder), **args}
    whole, streamed = (load_splits(DataArguments(streaming=each, **given))[0] for each in (False, True))
    names = whole.features["label"].names
    rows = [(names[label], path) for label, path in zip(whole.rows["label"], paths_of(whole.rows), strict=True)]
    assert [row["label"] for row in streamed.rows] == whole.rows["label"][:]
    return [(name, os.path.relpath(path, Path(folder).expanduser())) for name, path in rows]


def paths_of(rows: Any) -> list[str]:
    """Where the pictures of rows lie."""
    return [each["path"].as_py() for each in rows.with_format("arrow")[:]["image"]]


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [("photos [2]", "photos 2"), ("what?now", "what-now"), ("a*", "ab"), ("ünïcode", "unicode"), (".hidden", "x")],
)
def test_a_folder_is_no_pattern(tmp_path: Path, name: str, neighbour: str) -> None:
    for folder, label in ((name, "cat"), (name, "dog[1]"), (neighbour, "cat"), (neighbour, "cow")):
        paint(tmp_path / folder / label / "1[a].png")
    assert found(tmp_path / name) == [("cat", "cat/1[a].png"), ("dog[1]", "dog[1]/1[a].png")]


def test_a_folder_may_lie_at_home(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root.parent))
    assert len(found("~/photos")) == 4


def test_the_class_is_the_first_folder_however_deep_and_linked(root: Path, tmp_path: Path) -> None:
    paint(root / "cat" / "2020" / "dog" / "3.png")
    paint(tmp_path / "elsewhere" / "more" / "4.png")
    (root / "dog" / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "cow").symlink_to(tmp_path / "elsewhere")
    (root / "cat" / "5.png").symlink_to(tmp_path / "elsewhere" / "more" / "4.png")
    assert found(root) == [
        ("cat", "cat/1.png"), ("cat", "cat/2.png"), ("cat", "cat/2020/dog/3.png"), ("cat", "cat/5.png"),
        ("cow", "cow/more/4.png"), ("dog", "dog/1.png"), ("dog", "dog/2.png"), ("dog", "dog/linked/more/4.png"),
    ]  # fmt: skip


def test_endings_of_any_case_and_none(root: Path) -> None:
    for name in ("3.PNG", "4.Jpeg", "no ending", "5.dat", "v1.2"):
        paint(root / "cat" / name)
    assert len(found(root)) == 9


def test_what_tools_leave_is_no_picture_and_hidden_files_are_named(
    root: Path, messages: pytest.LogCaptureFixture
) -> None:
    for name in (".DS_Store", "cat/Thumbs.db", "cat/.DS_Store", "cat/._1.png", "cat/desktop.ini", ".gitignore"):
        (root / name).write_bytes(b"x")
    assert len(found(root)) == 4
    assert "left out" not in messages.text
    (root / "README.md").write_text("what this is")
    paint(root / ".cow" / "1.png")
    paint(root / "cat" / ".3.png")
    assert len(found(root)) == 4
    assert "photos': 2 files: hidden ('.cow', 'cat/.3.png'); left out" in messages.text
    assert "photos': 1 file: no picture, beside the folders of the classes ('README.md'); left out" in messages.text


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("0.png", None, "1 file: a picture outside the folders of the classes ('0.png')"),
        ("stray", None, "1 file: a picture outside the folders of the classes ('stray')"),
        ("cat/notes.txt", b"text", "1 file: no picture ('cat/notes.txt')"),
        ("cat/deep/nothing", b"", "1 file: no picture ('cat/deep/nothing')"),
        ("cat/3.heic", b"\0\0\0\x18ftypheic", "pip install pillow-heif ('cat/3.heic')"),
        ("3.HEIC", b"\0\0\0\x18ftypheic", "pip install pillow-heif ('3.HEIC')"),
        ("cat/3.NEF", None, ".nef pictures of which only a preview would be read"),
        ("cow.zip", b"PK", "1 file: .zip archives, which are not looked into ('cow.zip')"),
        (os.fsdecode(b"cat/caf\xe9.png"), None, "1 file: a name that is no text in UTF-8 ('cat/caf\ufffd.png')"),
        ("cat/3.svg", b"<svg/>", "1 file: no picture ('cat/3.svg')"),
        ("cat/gone.png", "nowhere", "1 file: a link that leads nowhere, or no file ('cat/gone.png')"),
    ],
)
def test_what_would_be_left_out_is_an_error_or_is_named(
    root: Path, name: str, content: Any, says: str, messages: pytest.LogCaptureFixture
) -> None:
    path = root / name
    path.parent.mkdir(exist_ok=True)
    if content is None:
        paint(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.symlink_to(content)
    with pytest.raises(ValueError, match=r"photos': 1 file: .*; --on_bad_sample skip leaves such out") as caught:
        found(root)
    assert says in str(caught.value)
    assert len(found(root, on_bad_sample="skip")) == 4
    assert says in messages.text


def test_a_whole_class_is_never_left_out(root: Path) -> None:
    (root / "cow").mkdir()
    for content in (None, "notes.txt", "1.heic"):
        if content is not None:
            (root / "cow" / content).write_text("x")
        with pytest.raises(ValueError, match="photos': there is no picture in the folder of class 'cow'"):
            found(root, on_bad_sample="skip")
    for path in (root / "cow").iterdir():
        path.unlink()
    (root / "cow" / "1.png").touch()
    args = DataArguments(train_dir=str(root), validation_dir=str(root), on_bad_sample="skip")
    with pytest.raises(ValueError, match="photos': no image of the class 'cow' can be read"):
        load_image_data(args, None, seed=1, image_size=4)


def test_links_in_a_ring_are_noticed(root: Path) -> None:
    (root / "cat" / "again").symlink_to(root)
    with pytest.raises(ValueError, match="cat/again' links back to a folder that it lies in"):
        found(root)


def test_a_folder_without_folders_and_none_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty' has no folders, which would be the classes"):
        found(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"there is no folder '.*nowhere'"):
        found(tmp_path / "nowhere")


def test_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/2.png", "Test/cat/3.png"):
        paint(tmp_path / "set" / name)
    with pytest.raises(ValueError, match=r"set' holds parts of a data set \(Test, train\), each with the classes"):
        found(tmp_path / "set")
    # A railway and an examination, whose pictures lie in them.
    paint(tmp_path / "set" / "train" / "4.png")
    assert {name for name, _ in found(tmp_path / "set")} == {"Test", "train"}


def test_classes_that_are_not_evaluated_are_said(
    root: Path, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    paint(tmp_path / "few" / "dog" / "1.png")
    load_splits(DataArguments(train_dir=str(root), validation_dir=str(tmp_path / "few")))
    assert "few' has no pictures of cat, as '" in messages.text


def test_a_picture_is_never_taken_for_what_it_was(root: Path) -> None:
    def fingerprint() -> str:
        args = DataArguments(train_dir=str(root), validation_dir=str(root))
        return json.dumps(load_image_data(args, None, seed=1, image_size=4).fingerprint)

    first = fingerprint()
    stat = (root / "cat" / "1.png").stat()
    paint(root / "cat" / "1.png", 9)
    os.utime(root / "cat" / "1.png", (stat.st_atime, stat.st_mtime))
    assert fingerprint() != first
    paint(root / "cat" / "1.png", 0)
    assert fingerprint() == first
    root.rename(root.parent / "moved")
    root = root.parent / "moved"
    assert fingerprint() == first


def test_a_table_may_tell_the_labels(root: Path, messages: pytest.LogCaptureFixture) -> None:
    table = root / "metadata.csv"
    table.write_text("file_name,label\ncat/1.png,x\ncat/2.png,y\ndog/1.png,x\n")
    given = {"train_dir": str(root), "validation_dir": str(root)}
    with pytest.raises(ValueError, match=r"a picture that 'metadata.csv' does not list \('dog/2.png'\); --on_bad"):
        load_splits(DataArguments(**given))
    for streaming in (False, True):
        rows = load_splits(DataArguments(on_bad_sample="skip", streaming=streaming, **given))[0].rows
        assert [row["label"] for row in rows] == ["x", "y", "x"]
    args = DataArguments(on_bad_sample="skip", **given)
    data = load_image_data(args, None, seed=1, num_channels=1, image_size=4)
    assert data.labels == ["x", "y"]
    assert np.allclose(data.evaluation[0]["pixel_values"], -1)
    for line, says in (("cow/1.png,x", "lists 'cow/1.png', which is a link that leads nowhere, or no file"),):
        table.write_text(f"file_name,label\n{line}\n")
        with pytest.raises(ValueError, match=says):
            load_splits(args)
    table.write_text("name,label\ncat/1.png,x\n")
    with pytest.raises(ValueError, match=r"metadata.csv' has no column 'file_name'; it has name, label"):
        load_splits(args)


def test_a_folder_for_load_dataset_is_no_pattern_either(tmp_path: Path) -> None:
    for name in ("set[2]", "set2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.csv").write_text(f"text,label\n{name},1\n")
    with pytest.raises(ValueError, match=r"takes \*, \? and \[ in a folder's path for a pattern: give files"):
        load_splits(DataArguments(dataset_name=str(tmp_path / "set[2]")))
