"""A task's labels: checked row by row before anything is computed, and encoded by name."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from datasets import ClassLabel, Dataset
from transformers.utils import logging

from .label_columns import IGNORED, LabelColumn, rows_of
from .sampling import sample_generator
from .sources import ID, Split

logger = logging.get_logger(__name__)

# Validation rows are split off alike for all seeds, so that runs can be compared.
SPLIT_SEED = 0
# More classes that are numbers, with fewer than a quarter as many rows each, may be quantities.
FEW_CLASSES = 20


class UnknownLabelError(ValueError):
    """A label that is none of the classes."""


@dataclass
class Labels:
    """The classes of a task.

    Args:
        names: in their order; none where numbers are predicted.
    """

    names: list[str]

    def __post_init__(self) -> None:
        self.numbers = {name: number for number, name in enumerate(self.names)}

    def encode(self, value: Any, column: LabelColumn) -> int | float | list[int] | list[float]:
        """One row's label as the loss takes it.

        Raises:
            UnknownLabelError: a name that is none of the classes.
        """
        if column.task == "regression":
            return float(value)
        for name in column.names_in(value):
            if name not in self.numbers:
                raise UnknownLabelError(f"label '{name}' is not one of {', '.join(self.names)}")
        if column.task == "token-classification":
            return [each if each == IGNORED else self.numbers[column.name_of(each)] for each in value]
        numbers = [self.numbers[name] for name in column.names_in(value)]
        return [float(i in numbers) for i in range(len(self.names))] if column.task == "multi-label" else numbers[0]


def check_rows(
    split: Split,
    columns: list[str],
    label: LabelColumn,
    *,
    wrong: Callable[[dict[str, Any]], str | None] = lambda row: None,
    bad: Callable[[dict[str, Any]], str | None] = lambda row: None,
    skip: bool = False,
) -> None:
    """Look at every row before anything is computed; bad ones are taken out of the split, or raise.

    Args:
        split: whole, no stream.
        columns: what `wrong` and `bad` look at.
        label: the labels; a problem with one is always an error.
        wrong: what else is always an error in a row.
        bad: what is an error unless bad rows are skipped.
        skip: skip them.

    Raises:
        ValueError: what is wrong, and in which rows.
    """
    errors: dict[str, list[int]] = {}
    bad_rows: dict[str, list[int]] = {}
    for i, row in enumerate(rows_of(split.rows, list({*columns, *label.columns}))):
        if problem := bad(row):
            bad_rows.setdefault(problem, []).append(i)
        elif problem := label.problem_in(label.value_in(row)) or wrong(row):
            errors.setdefault(problem, []).append(i)
    for problem, rows in errors.items():
        raise ValueError(f"{split.where}: {problem} in {rows_named(rows)}")
    leave_out(split, bad_rows, skip)


def leave_out(split: Split, bad_rows: dict[str, list[int]], skip: bool) -> None:
    """Take bad rows out of a split, and say so.

    Args:
        split: loses the rows.
        bad_rows: rows by what is wrong with them.
        skip: whether this is wanted.

    Raises:
        ValueError: it is not.
    """
    for problem, rows in bad_rows.items():
        if not skip:
            raise ValueError(f"{split.where}: {problem} in {rows_named(rows)}; --on_bad_sample skip leaves such out")
        logger.warning(f"{split.where}: {problem} in {rows_named(rows)}; left out")
    if bad_rows:
        bad = {row for rows in bad_rows.values() for row in rows}
        split.left_out += len(bad)
        split.rows = split.rows.select([i for i in range(len(split.rows)) if i not in bad])


def first_rows(split: Split, label: LabelColumn) -> dict[str, int]:
    """The label names that occur in a split, with the first row of each."""
    first: dict[str, int] = {}
    for i, row in enumerate(rows_of(split.rows, list(label.columns))):
        for name in label.names_in(label.value_in(row)):
            first.setdefault(name, i)
    return first


def count_labels(split: Split, label: LabelColumn, labels: Labels) -> dict[str, int]:
    """How often each label occurs in a split, in the labels' order."""
    counts: Counter[str] = Counter()
    for row in rows_of(split.rows, list(label.columns)):
        counts.update(label.names_in(label.value_in(row)))
    return {name: counts[name] for name in labels.names}


def rows_named(rows: list[int]) -> str:
    """Name some rows; data may have millions that are wrong."""
    named = ", ".join(map(str, rows[:5])) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
    return f"row{'s' if len(rows) > 1 else ''} {named} (counted from 0)"


def class_names(where: str, label: LabelColumn, seen: dict[str, int]) -> Labels:
    """The names of a task's classes: as the data declare them, or those that occur, sorted.

    Raises:
        ValueError: fewer than two classes, where one is to be chosen.
    """
    if label.task == "regression":
        return Labels([])
    if label.flags:
        names = list(label.flags)
    elif isinstance(label.feature, ClassLabel):
        names = list(label.feature.names)
    else:
        names = sorted(seen, key=int if all(map(is_whole, seen)) else None)
    if not seen:
        raise ValueError(f"{where}: column '{label.name}' names no class in any row")
    if len(names) < 2 and label.task != "multi-label":
        raise ValueError(f"{where}: all labels are '{names[0]}', so there is nothing to learn")
    return Labels(names)


def is_whole(name: str) -> bool:
    """Whether a class's name is a whole number, as Python writes it."""
    return name.removeprefix("-").isdecimal() and str(int(name)) == name


def warn_of_numbers(split: Split, label: LabelColumn, seen: dict[str, int]) -> None:
    """Say that what was taken for classes may be numbers: they are whole, many, and most of them rare."""
    many = len(seen) > FEW_CLASSES and len(split.rows) < FEW_CLASSES * len(seen) / 4
    if label.task == "single-label" and not label.flags and many and all(map(is_whole, seen)):
        logger.warning(
            f"{split.where}: column '{label.name}' holds {len(seen)} whole numbers in {len(split.rows)} rows. They "
            f"are taken for classes; if they are quantities, say --task regression"
        )


def check_seen(train: Split, evaluation: Split, seen: dict[str, int], evaluated: dict[str, int]) -> None:
    """Every label that is evaluated must have been seen in training.

    Raises:
        ValueError: which has not.
    """
    unseen = [f"'{name}' (row {evaluation.rows[i][ID]})" for name, i in evaluated.items() if name not in seen]
    if unseen:
        raise ValueError(
            f"{evaluation.where} has labels that {train.where} does not have: {', '.join(unseen[:5])}"
            + (f" and {len(unseen) - 5} more" if len(unseen) > 5 else "")
        )


def split_off(train: Split, seen: dict[str, int]) -> Split:
    """Take a tenth of the training rows out to evaluate on, the same ones always.

    Args:
        train: loses those rows.
        seen: the first row of each label, which stays: no label is evaluated that was not learnt.

    Raises:
        ValueError: there are too few rows.
    """
    order = torch.randperm(len(train.rows), generator=sample_generator(SPLIT_SEED, 0, -1)).tolist()
    stays = set(seen.values())
    chosen = set([i for i in order if i not in stays][: max(1, len(order) // 10)])
    if not chosen or len(chosen) == len(order):
        raise ValueError(f"{train.where} has too few rows ({len(order)}) to split some off for evaluation")
    whole = train.rows
    train.rows = whole.select([i for i in range(len(order)) if i not in chosen])
    return replace(train, rows=whole.select(sorted(chosen)), where=f"a tenth of {train.where}", left_out=0, remarks={})


def at_most(rows: Dataset, number: int | None) -> Dataset:
    """So many rows, drawn at random: files are often sorted by label."""
    if number is None or number >= len(rows):
        return rows
    order = torch.randperm(len(rows), generator=sample_generator(SPLIT_SEED, 1, -1)).tolist()
    return rows.select(sorted(order[:number]))
