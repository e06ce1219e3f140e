"""Folders that others read while they are written: whole or not there, wherever they lie, and as they were on failure.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import contextlib
import errno
import filecmp
import glob
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

# How our hidden folders begin: a process that is killed leaves one, and nobody publishes it.
STAGE_PREFIX = ".hf_ffn-"
# A loader begins with this file, so that a folder without it is refused in clear words.
_FIRST_READ = "config.json"
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
# What other tools keep in a folder beside its content: the root of an ext4 file system, git and a cache of the Hub.
_OF_TOOLS = ("lost+found", ".git", ".cache")
_FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the quota is used up"}


@contextlib.contextmanager
def staged_folder(target: str | os.PathLike, *, replace: bool = False, needed: int | None = None) -> Iterator[Path]:
    """A new, hidden folder to write to, whose files are moved into `target` at the end; removed if anything fails.

    A folder that is there is kept as it is (it may be a mount, or a link to one), and so are those of its files that
    were not written again, except weights of an earlier save, which would be loaded in place of the new ones.

    Args:
        target: the folder to write.
        replace: leave none of the files that are there.
        needed: bytes that will be written at least, where that is known, for the error on a full disk.

    Raises:
        OSError: nothing can be written there, no space is left, or something else than a folder stands there.
    """
    refuse_unwritable(target)
    target = Path(target).resolve()
    stage = staging_place(target, uuid.uuid4().hex[:8])
    stage.mkdir(parents=True)
    try:
        yield stage
        move_into_place(stage, target, replace=replace)
    except (OSError, RuntimeError, SafetensorError) as error:
        clear = full_disk(error, target, needed)
        if clear is None:
            raise
        raise clear from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def staging_place(target: Path, name: str) -> Path:
    """Where to write what will be moved to `target`: beside it, or within it where nothing can be moved from there.

    It cannot where `target` is a mount, or has a quota of its own, or its parent may not be written to.
    """
    place = target.parent
    if target.is_dir():
        probe = f"{STAGE_PREFIX}probe-{uuid.uuid4().hex[:8]}"
        try:
            (place / probe).mkdir()
            (place / probe).replace(target / probe)
        except OSError:
            place = target
        for folder in (target, target.parent):
            with contextlib.suppress(OSError):
                (folder / probe).rmdir()
    return place / f"{STAGE_PREFIX}{target.name[:100]}-{name}"


def move_into_place(stage: Path, target: Path, *, replace: bool = False) -> None:
    """Move the files of a whole folder into another, all or none; where there is no other, the folder itself.

    Whoever loads in between finds the old files, the new ones, or no config.json. Killed in between, the hidden folder
    still holds what was not moved yet, and in a hidden folder of its own what was moved away.

    Args:
        stage: from `staging_place`.
        target: as for `staged_folder`.
        replace: as for `staged_folder`.
    """
    give_usual_modes(stage)
    if not target.exists():
        # Where a folder cannot be moved as one (some file systems cannot), its files can.
        with contextlib.suppress(OSError):
            stage.rename(target)
            return
        target.mkdir()
    files = in_order(stage)
    there = files_below(target) if replace else [path.name for path in target.iterdir()]
    stale = [name for name in there if name not in files and (replace or outlived(name, files))]
    changed = [name for name in files if is_weights(name) or not is_same_file(stage / name, target / name)]
    if len(changed) + len(stale) > 1 and _FIRST_READ in files:
        changed = [*(name for name in changed if name != _FIRST_READ), _FIRST_READ]
        stale = [name for name in (_FIRST_READ, *stale) if (target / name).is_file()]
    for name in changed:
        if (target / name).is_dir():
            raise IsADirectoryError(f"'{target / name}' is a folder, where a file is to be written: move it away")
    moved: list[tuple[Path, Path]] = []

    def move(old: Path, new: Path) -> None:
        new.parent.mkdir(parents=True, exist_ok=True)
        old.replace(new)
        moved.append((old, new))

    before = stage / f"{STAGE_PREFIX}before"
    only_one = len(changed) == 1 and not stale
    try:
        for name in stale:
            move(target / name, before / name)
        for name in changed:
            # One file alone takes the other's place in one step.
            if (target / name).exists() and not only_one:
                move(target / name, before / name)
            move(stage / name, target / name)
    except OSError:
        for old, new in reversed(moved):
            new.replace(old)
        raise
    if replace:
        remove_empty_folders(target)


def give_usual_modes(folder: Path) -> None:
    """Let others read files as they may read the folder: safetensors makes files for their owner alone."""
    usual = folder.stat().st_mode & 0o666
    for name in files_below(folder):
        path = folder / name
        if not path.is_symlink() and path.stat().st_mode & 0o666 != usual:
            path.chmod(usual)


def refuse_broken_save(folder: str | os.PathLike) -> None:
    """Refuse a folder into which a process was moving files when it was killed.

    Raises:
        FileNotFoundError: naming the hidden folder in which they are.
    """
    target = Path(folder).resolve()
    if not target.is_dir() or (target / _FIRST_READ).exists():
        return
    stages = [*target.glob(f"{STAGE_PREFIX}*"), *target.parent.glob(f"{STAGE_PREFIX}{glob.escape(target.name)}-*")]
    if stages:
        raise FileNotFoundError(
            f"'{folder}' has no {_FIRST_READ}, for saving into it was broken off: save again, or move the files of "
            f"'{stages[0]}' to it by hand"
        )


def in_order(stage: Path) -> list[str]:
    """The files to move, as relative paths: an index after the weights that it names, and config.json last."""
    names = sorted(files_below(stage))
    return sorted(names, key=lambda name: (name == _FIRST_READ, name.endswith(".index.json")))


def files_below(folder: Path) -> list[str]:
    """The files of a folder and of those in it, as relative paths; without what a broken save left."""
    return [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if not is_left_over(path.relative_to(folder).parts[0]) and (path.is_symlink() or not path.is_dir())
    ]


def is_left_over(name: str) -> bool:
    """Whether a file or folder of this name is no content: a broken save's, or of the tools around it."""
    return name.startswith(STAGE_PREFIX) or name in _OF_TOOLS


def is_empty(folder: Path) -> bool:
    """Whether nobody put anything into a folder."""
    return all(is_left_over(path.name) for path in folder.iterdir())


def is_weights(name: str) -> bool:
    """Whether this is a file of a save's weights, or their index."""
    return _WEIGHTS.fullmatch(name) is not None


def outlived(name: str, files: list[str]) -> bool:
    """Whether a file is of weights that were saved before `files`, which have weights of their own."""
    return is_weights(name) and any(is_weights(other) for other in files)


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two files hold the same."""
    return other.is_file() and not other.is_symlink() and filecmp.cmp(one, other, shallow=False)


def remove_empty_folders(folder: Path) -> None:
    """Remove folders within a folder that hold nothing any more."""
    for path in sorted(folder.rglob("*"), reverse=True):
        ours = not is_left_over(path.relative_to(folder).parts[0])
        if ours and path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
            path.rmdir()


def refuse_unwritable(target: str | os.PathLike) -> None:
    """Try whether files can be written to a folder, or a folder made where there is none; leaves nothing.

    Raises:
        OSError: they cannot, or something else than a folder stands there; the message says what to do.
    """
    target = Path(target)
    if target.is_symlink() and not target.exists():
        raise FileNotFoundError(
            f"'{target}' is a link to '{os.readlink(target)}', which is not there: make that folder, or "
            f"remove the link"
        )
    place = next(path for path in (target, *target.absolute().parents) if path.exists())
    if not place.is_dir():
        raise NotADirectoryError(f"'{place}' is a file; give a folder to save into")
    probe = place / f"{STAGE_PREFIX}probe-{uuid.uuid4().hex[:8]}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        clear = full_disk(error, target)
        what = f"'{place}' cannot be written to ({error.strerror})"
        raise clear or type(error)(error.errno, f"{what}: choose another place than '{target}'") from error


def full_disk(error: Exception, target: Path, needed: int | None = None) -> OSError | None:
    """The error for a disk without space, or a quota that is used up; None where `error` tells of something else."""
    text = str(error)
    # safetensors tells the number in its text, and torch's archives tell no reason.
    told = [number for number in _FULL if getattr(error, "errno", None) == number or f"(os error {number})" in text]
    if not told and not re.search("PytorchStreamWriter|inline_container", text):
        return None
    number, what = (told[0], _FULL[told[0]]) if told else (errno.ENOSPC, "nothing can be written: probably it is full")
    place = next(path for path in (Path(target), *Path(target).absolute().parents) if path.exists())
    size = "" if needed is None else f"; the weights take {needed:,} bytes"
    return OSError(
        number, f"{what} in '{target}' ({shutil.disk_usage(place).free:,} bytes are free{size}); what was there stays"
    )
