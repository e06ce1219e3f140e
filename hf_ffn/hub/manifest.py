"""The manifest of a folder: which files it has, how large they are, and their SHA-256."""

import hashlib
import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from ..folders_ffn import is_left_over

MANIFEST_NAME = "manifest.json"
STAGED_NAME = ".manifest.json.new"
FORMAT = 1

# What the manifest says of one file: {"size": bytes, "sha256": 64 hex digits}.
Files = dict[str, dict[str, Any]]


def write_manifest(folder: str | os.PathLike) -> Files:
    """Write the manifest of all files in a folder, itself left out; returns what it says of them.

    It is written beside and moved into place, so that a failure leaves the one that was there.

    Raises:
        ValueError: something in the folder is neither a file nor a folder of its own.
    """
    folder = Path(folder)
    files = {name: {"size": path.stat().st_size, "sha256": sha256_of(path)} for name, path in files_of(folder).items()}
    staged = folder / STAGED_NAME
    try:
        text = json.dumps({"format": FORMAT, "files": files}, indent=2, ensure_ascii=False)
        staged.write_text(text + "\n", encoding="utf-8")
        staged.replace(folder / MANIFEST_NAME)
    finally:
        staged.unlink(missing_ok=True)
    return files


def read_manifest(folder: str | os.PathLike) -> Files:
    """What a folder's manifest says: `{relative posix path: {"size": int, "sha256": hex}}`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, of a later format, or names files outside the folder.
    """
    path = Path(folder) / MANIFEST_NAME
    if not path.is_file():
        raise FileNotFoundError(f"'{folder}' has no {MANIFEST_NAME}: make a folder that has with `hf-ffn stage`")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"'{path}' is not JSON ({error}): it is damaged; stage or fetch the folder again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise ValueError(f"'{path}' has format {found!r}, this version of hf_ffn reads {FORMAT}: a newer one may help")
    files = manifest.get("files")
    if not isinstance(files, dict) or not all(is_entry(name, entry) for name, entry in files.items()):
        raise ValueError(f"'{path}' is damaged: not every file has a path within the folder, a size and a sha256")
    return files


def check_manifest(folder: str | os.PathLike) -> Files:
    """Compare a folder with its manifest, by size and then by hash; returns what the manifest says.

    Raises:
        FileNotFoundError: there is no manifest.
        ValueError: naming the files that are missing, changed, or not in the manifest.
    """
    folder = Path(folder)
    files, found = read_manifest(folder), files_of(folder)
    complaints = {
        "missing": sorted(files.keys() - found.keys()),
        "changed": sorted(name for name in files.keys() & found.keys() if not is_same(found[name], files[name])),
        "not in the manifest": sorted(found.keys() - files.keys()),
    }
    if any(complaints.values()):
        told = "; ".join(f"{listed(names)}: {kind}" for kind, names in complaints.items() if names)
        raise ValueError(f"'{folder}' is not what its {MANIFEST_NAME} says ({told}): stage it again")
    return files


def is_same(path: Path, entry: dict[str, Any]) -> bool:
    """Whether a file is what the manifest says of it."""
    return path.stat().st_size == entry["size"] and sha256_of(path) == entry["sha256"]


def is_entry(name: str, entry: Any) -> bool:
    """Whether this is what a manifest can say of a file; it may have come from anyone."""
    path = PurePosixPath(name)
    within = name == str(path) and not path.is_absolute() and ".." not in path.parts and "\\" not in name
    return (
        within
        and isinstance(entry, dict)
        and type(entry.get("size")) is int
        and isinstance(entry.get("sha256"), str)
        and re.fullmatch(r"[0-9a-f]{64}", entry["sha256"]) is not None
    )


def files_of(folder: Path) -> dict[str, Path]:
    """The files of a folder and of those in it, by relative posix path, sorted; the manifest left out.

    Raises:
        NotADirectoryError: there is no such folder.
        ValueError: something in it is neither a file nor a folder of its own, and would be lost.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"there is no folder '{folder}'")
    found = {}
    for path in folder.rglob("*"):
        relative = path.relative_to(folder)
        if is_left_over(relative.parts[0]) or str(relative) in (MANIFEST_NAME, STAGED_NAME):
            continue
        if path.is_file():
            found[relative.as_posix()] = path
        elif path.is_symlink() or not path.is_dir():
            raise ValueError(
                f"'{path}' is neither a file nor a folder of its own: put what it stands for in its place"
            )
    return dict(sorted(found.items()))


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listed(names: list[str], most: int = 5) -> str:
    """Names for an error: the first few, and how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
