"""Folders of pictures: the class is the first folder below, and no file is left out in silence."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import datasets
from datasets import ClassLabel, Dataset, Features
from transformers.utils import logging

from .files import existing
from .pictures import NO_PICTURE, problem_of

logger = logging.get_logger(__name__)

# What file managers and tools leave behind. What else begins with a dot is hidden: left out, and named.
BYSTANDERS = {".ds_store", "thumbs.db", "desktop.ini", "icon\r", "__macosx", ".gitkeep", ".gitignore", ".nomedia"}
HIDDEN = "hidden"
BESIDE = "no picture, beside the folders of the classes"
# What is named and no more; whatever else is no picture, or in no class, is an error.
HARMLESS = (HIDDEN, BESIDE)
# Folders of these names alone, with folders in them, are parts of a data set and no classes.
PARTS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}

# Which may tell the pictures' labels, in place of folders.
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")

# Files by what is wrong with them.
Problems = dict[str, list[str]]
# Path, and number of the class.
Picture = tuple[str, int]


def load_pictures(name: str, *, skip: bool) -> tuple[Dataset, str, int]:
    """The pictures of a folder, `CLASS/…/*.png`, with columns `image` and `label`.

    Args:
        name: of the folder. Linked folders and files are followed.
        skip: leave out, and name, what is no picture or in no class, which else raises.

    Returns:
        The pictures, sorted by class and path; a hash of their names and sizes; how many files were left out.

    Raises:
        ValueError: there is no such folder; it has no classes, or one without a picture, or parts of a data set in
            their place, or a link that leads back to where it lies; a file is no picture, or in no class.
    """
    root = existing(name)
    if not root.is_dir():
        raise ValueError(f"there is no folder '{name}'")
    problems: Problems = {}
    by_class: dict[str, list[str]] = {}
    for path in files_under(str(root), [], problems):
        first, *deeper = Path(path).relative_to(root).parts
        if problem := problem_of(path) or (None if deeper else "a picture outside the folders of the classes"):
            problems.setdefault(BESIDE if problem == NO_PICTURE and not deeper else problem, []).append(path)
        else:
            by_class.setdefault(first, []).append(path)
    left_out = refuse_or_name(name, problems, skip=skip)
    classes = sorted(each.name for each in root.iterdir() if each.is_dir() and not is_left_out(each.name))
    if not classes:
        raise ValueError(f"'{name}' has no folders, which would be the classes: {name}/CLASS/*.png")
    if len(classes) > 1 and PARTS.issuperset(map(str.lower, classes)) and are_nested(root, by_class):
        raise ValueError(
            f"'{name}' holds parts of a data set ({', '.join(classes)}), each with the classes as folders: name them "
            f"with --train_dir and --validation_dir"
        )
    if empty := [each for each in classes if each not in by_class]:
        raise ValueError(f"'{name}': there is no picture in the folder of class '{empty[0]}'")
    pictures = [(path, number) for number, each in enumerate(classes) for path in by_class[each]]
    features = Features({"image": datasets.Image(), "label": ClassLabel(names=classes)})
    rows = Dataset.from_generator(rows_of, features=features, gen_kwargs={"pictures": tuple(pictures)})
    content = [(os.path.relpath(path, root), os.path.getsize(path)) for path, _ in pictures]
    return rows, hashlib.sha256(repr(content).encode()).hexdigest(), left_out


def are_nested(root: Path, by_class: dict[str, list[str]]) -> bool:
    """Whether all pictures lie in folders of the classes' folders."""
    return all(len(Path(path).relative_to(root).parts) > 2 for paths in by_class.values() for path in paths)


def load_listed(name: str, tables: Sequence[Path], rows: Dataset, *, skip: bool) -> tuple[Dataset, int]:
    """The pictures of a folder that a table lists by `file_name`, with its other columns, and `image`.

    Args:
        name: of the folder.
        tables: the files of the table.
        rows: of the table.
        skip: leave out, and name, what is no picture or not listed, which else raises.

    Returns:
        The pictures; how many files were left out.

    Raises:
        ValueError: the table has no such column, or lists what is not there or no picture; a file is not listed.
    """
    if "file_name" not in rows.column_names:
        raise ValueError(f"'{tables[0]}' has no column 'file_name'; it has {', '.join(rows.column_names)}")
    root = existing(name)
    paths = [str(root / str(each)) for each in rows["file_name"]]
    listed = {os.path.normpath(path) for path in paths}
    problems: Problems = {}
    for path in paths:
        if problem := problem_of(path):
            raise ValueError(f"'{tables[0]}' lists '{os.path.relpath(path, root)}', which is {problem}")
    for path in files_under(str(root), [], problems):
        if os.path.normpath(path) not in listed and Path(path) not in tables:
            problem = problem_of(path) or f"a picture that '{tables[0].name}' does not list"
            problems.setdefault(BESIDE if problem == NO_PICTURE else problem, []).append(path)
    left_out = refuse_or_name(name, problems, skip=skip)
    with_pictures = rows.remove_columns("file_name").add_column("image", paths)
    return with_pictures.cast_column("image", datasets.Image()), left_out


def rows_of(pictures: tuple[Picture, ...]) -> Iterator[dict[str, Any]]:
    """The rows of pictures."""
    for path, number in pictures:
        yield {"image": path, "label": number}


def files_under(folder: str, above: list[str], problems: Problems) -> Iterator[str]:
    """All files of a folder and of those below, sorted by their names; hidden ones are noted.

    Raises:
        ValueError: a link leads back to a folder that it lies in.
    """
    real = os.path.realpath(folder)
    if real in above:
        raise ValueError(f"'{folder}' links back to a folder that it lies in: take the link away")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.lower() in BYSTANDERS or name.startswith("._"):
            continue
        if name.startswith("."):
            problems.setdefault(HIDDEN, []).append(path)
        elif os.path.isdir(path):
            yield from files_under(path, [*above, real], problems)
        else:
            yield path


def is_left_out(name: str) -> bool:
    """Whether files and folders of a name are not looked at."""
    return name.lower() in BYSTANDERS or name.startswith(".")


def refuse_or_name(where: str, problems: Problems, *, skip: bool) -> int:
    """Refuse a folder for files that would be left out, or name and count them.

    Returns:
        How many are left out, without those that nobody takes for pictures.

    Raises:
        ValueError: what is wrong, and with which files.
    """
    for problem, paths in problems.items():
        # Names may be no text in UTF-8, and could not be printed.
        shown = [os.fsencode(os.path.relpath(path, existing(where))).decode(errors="replace") for path in paths[:5]]
        names = ", ".join(f"'{each}'" for each in shown)
        more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
        said = f"'{where}': {len(paths)} file{'s' if len(paths) > 1 else ''}: {problem} ({names}{more})"
        if problem not in HARMLESS and not skip:
            raise ValueError(f"{said}; --on_bad_sample skip leaves such out")
        logger.warning(f"{said}; left out")
    return sum(len(paths) for problem, paths in problems.items() if problem not in HARMLESS)
