"""What a column of labels holds: decided by all of its rows, so that each label means what the data say."""

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from datasets import ClassLabel, Dataset, Value
from transformers.utils import logging

from .sources import Split
from .tables import NO_NUMBER

logger = logging.get_logger(__name__)

# What the loss leaves out; in a column of word labels, -100 says so already.
IGNORED = -100
# Tasks whose label is a list.
LISTED = ("multi-label", "token-classification")
# How yes and no are written, one for each label.
FLAGS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
# As pandas writes class numbers, with a fraction once a cell was missing; 01 is no number of a class but a name.
WHOLE = re.compile(r"-?(0|[1-9]\d*)(\.0*)?")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# A list as numpy prints it, which has no commas to read it by.
PRINTED_ARRAY = re.compile(r"\[[\d\s.]*\]")


@dataclass(frozen=True)
class LabelColumn:
    """How a split stores its labels; another may number the same names in another order.

    Args:
        task: one of `TASKS`.
        columns: the column's name, or those of several that hold a 0 or 1 for one label each.
        feature: type of a label; of lists of labels, their elements'. None where a stream does not tell.
        cells: of a file that knows no types, what the cells hold: text, list, whole (numbers) or fraction.
        flags: labels for which a row holds 0 or 1, in its order; none where a row names its labels.
    """

    task: str
    columns: tuple[str, ...]
    feature: Any = None
    cells: str = "text"
    flags: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The columns, for people."""
        return ",".join(self.columns)

    def of(self, split: Split) -> "LabelColumn":
        """The same labels as this split stores them."""
        if len(self.columns) > 1:
            return self
        cells = self.cells if split.untyped or self.cells == "list" else "text"
        return replace(self, feature=element_type(split, self.columns[0]), cells=cells)

    def value_in(self, row: dict[str, Any]) -> Any:
        """A row's label, or list of labels."""
        value = stored_in(row, self.columns, self.cells)
        if self.task in LISTED or not isinstance(value, list):
            return value
        # A list that names no single class stays, and is no label of one.
        if self.flags:
            flags = flags_in(value)
            one = flags.count(True) == 1 and None not in flags and len(flags) == len(self.flags)
            return self.flags[flags.index(True)] if one else value
        return value[0] if len(value) == 1 else value

    def name_of(self, value: Any) -> str:
        """The name of one class."""
        if isinstance(self.feature, ClassLabel) and not self.flags:
            return self.feature.int2str(value)
        if isinstance(value, (float, Decimal)) and value % 1 == 0:
            return str(int(value))
        text = str(value).strip()
        # A stream may hold others than those that the decision was made by.
        return text.split(".")[0] if self.cells == "whole" and WHOLE.fullmatch(text) else str(value)

    def names_in(self, value: Any) -> list[str]:
        """The names in one row's label; none where numbers are predicted."""
        if self.task == "regression":
            return []
        if self.flags and self.task in LISTED:
            return [name for name, each in zip(self.flags, value, strict=True) if flag(each)]
        if self.task == "token-classification":
            return [self.name_of(each) for each in value if each != IGNORED]
        return [self.name_of(each) for each in (value if self.task == "multi-label" else [value])]

    def problem_in(self, value: Any) -> str | None:
        """What is wrong with one row's label, if anything."""
        if self.is_missing(value):
            return "no label"
        if self.flags and self.task not in LISTED and isinstance(value, list):
            return f"not one 1 and else 0 ({value}) in column '{self.name}', for task {self.task},"
        if isinstance(value, list) != (self.task in LISTED):
            what = "a list of labels" if isinstance(value, list) else "a label that is not a list"
            return f"{what} in column '{self.name}', for task {self.task},"
        if isinstance(value, list):
            return self.problem_in_list(value)
        if self.task == "regression":
            return None if is_number(value) else f"a label that is not a number ('{value}')"
        return problem_in_element(value)

    def problem_in_list(self, values: list[Any]) -> str | None:
        """What is wrong with one row's list of labels, if anything."""
        for i, value in enumerate(values):
            where = f" in column '{self.columns[i]}'" if len(self.columns) > 1 else ""
            if self.is_missing(value):
                return f"no label{where}"
            if self.flags and flag(value) is None:
                return f"'{value}'{where or f' in a list of column {self.name!r}'}, which is neither 0 nor 1,"
            if problem := problem_in_element(value):
                return problem
        if self.flags:
            wrong = len(values) != len(self.flags)
            return f"{len(values)} values, 0 or 1, for {len(self.flags)} labels" if wrong else None
        return self.problem_in_set(values) if self.task == "multi-label" else None

    def problem_in_set(self, values: list[Any]) -> str | None:
        """What speaks against a list's being the names or numbers of a row's classes, if anything."""
        if any(isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()) for value in values):
            return (
                f"a list of column '{self.name}' with something else than names or numbers of classes ({values}; a 0 "
                f"or 1 for each label needs all lists of one length, and other targets than 0 and 1 are not learnt)"
            )
        if len(set(map(self.name_of, values))) < len(values):
            return (
                f"a list of column '{self.name}' that names a class twice ({values}; a 0 or 1 for each label needs "
                f"all lists of one length, and nothing else in any)"
            )
        return None

    def is_missing(self, value: Any) -> bool:
        """Whether there is no label. Class -1 is how public test sets hide theirs."""
        if isinstance(self.feature, ClassLabel) and isinstance(value, int):
            return value < 0 and not (value == IGNORED and self.task == "token-classification")
        if isinstance(value, str):
            return not value.strip()
        return value is None or (isinstance(value, float) and math.isnan(value))

    def described(self) -> str:
        """For people: where the labels are, and how they were read."""
        several = "labels" if self.task in LISTED else "classes, a single 1 in each row,"
        if len(self.columns) > 1:
            return f"a 0 or 1 for each of {len(self.flags)} {several} in columns {', '.join(self.columns)}"
        what = "labels"
        if self.flags:
            what = f"lists of a 0 or 1 for each of {len(self.flags)} {several}"
        elif self.task in LISTED:
            what = "lists of labels"
        elif self.task == "regression":
            what = "numbers"
        return f"{what} in column '{self.name}'"


def label_columns(split: Split, given: Sequence[str] | None, usual: Sequence[str]) -> tuple[str, ...]:
    """The column of labels, or the columns if several are named, also with commas between them.

    Raises:
        ValueError: a column that is not there, or is named twice.
    """
    if given is None:
        return (split.column("label_column", None, usual),)
    there = split.columns
    names = [name for each in given for name in ([each] if each in there else map(str.strip, each.split(",")))]
    if len(set(names)) < len(names):
        raise ValueError(f"--label_column {' '.join(given)} names a column twice")
    return tuple(split.column("label_column", name, ()) for name in names)


def element_type(split: Split, column: str) -> Any:
    """The type of a column; of lists, their elements'."""
    feature = split.features.get(column)
    return getattr(feature, "feature", feature)


def stored_in(row: dict[str, Any], columns: Sequence[str], cells: str) -> Any:
    """What a row holds in a column of labels, or in several, as it is written."""
    if len(columns) > 1:
        return [row[name] for name in columns]
    value = row[columns[0]]
    return listed(value) if cells == "list" and isinstance(value, str) else value


def flags_in(value: Any) -> list[bool | None]:
    """A list's elements as yes or no, None for what is neither; of what is no list, none."""
    return [flag(each) for each in value] if isinstance(value, list) else []


def flag(value: Any) -> bool | None:
    """Yes or no, as 0 and 1 are written; None for anything else."""
    return FLAGS.get(str(value).strip().lower())


def is_number(value: Any) -> bool:
    """Whether a value can be predicted as a number."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def problem_in_element(value: Any) -> str | None:
    """What is wrong with one label that should have a name or a number, if anything."""
    if isinstance(value, (str, bool, int, float, Decimal)):
        return None
    return f"a label of a kind that cannot be learnt ({type(value).__name__}, {value})"


def listed(cell: str) -> Any:
    """The list that a cell holds, as JSON or as Python writes it; the cell itself where it holds none."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(cell)
        except (ValueError, SyntaxError, TypeError):
            continue
        if isinstance(value, (list, tuple)):
            return list(value)
    return cell


def written(cells: Iterable[str | None]) -> str:
    """What the cells of a column of a file without types hold, if they all do: list, whole, fraction, or else text."""
    kinds = {kind_of(cell) for cell in cells if cell is not None}
    if "fraction" in kinds:
        # Beside numbers with a fraction, "NA" is a missing one and no name of a class.
        kinds.discard("none")
    elif "none" in kinds:
        kinds = kinds - {"none"} | {"text"}
    if kinds == {"list"} or kinds == {"whole"}:
        return kinds.pop()
    # 01 beside 1 is a name. What has a fraction is none, however it is written.
    return "fraction" if "fraction" in kinds and kinds <= {"whole", "number", "fraction"} else "text"


def are_lists(cells: Iterable[str | None]) -> bool:
    """Whether all cells that are there hold lists."""
    # One other ends the search: texts are many, and lists are rare.
    kinds = (kind_of(cell) == "list" for cell in cells if cell is not None)
    return next(kinds, False) and all(kinds)


def kind_of(cell: str) -> str:
    """What one cell holds: list, whole, fraction, number (whole in another spelling), none (of a number) or text."""
    cell = cell.strip()
    if cell.lower() in NO_NUMBER:
        return "none"
    if cell.startswith("[") and (PRINTED_ARRAY.fullmatch(cell) or isinstance(listed(cell), list)):
        return "list"
    if WHOLE.fullmatch(cell):
        return "whole"
    if NUMBER.fullmatch(cell):
        return "number" if float(cell).is_integer() else "fraction"
    return "text"


def decide(
    splits: Sequence[Split],
    columns: Sequence[str],
    task: str | None,
    *,
    words: bool = False,
    known: Sequence[str] = (),
) -> LabelColumn:
    """Decide what the labels are, by their type, and where that leaves it open by all rows.

    Args:
        splits: all that there are; of streams only the type is known.
        columns: of the labels.
        task: what was asked for; None to be decided.
        words: whether a text is a list of words.
        known: the labels of the checkpoint, for lists of as many 0 and 1 that nothing else names.

    Raises:
        ValueError: labels of a type that none can have, or several columns for a task of one.
    """
    whole = [split for split in splits if isinstance(split.rows, Dataset)]
    if len(columns) > 1:
        if task in ("regression", "token-classification"):
            raise ValueError(f"several columns of labels ({', '.join(columns)}) are for classes, not for {task}")
        label = LabelColumn(task or "multi-label", tuple(columns), flags=tuple(columns))
        warn_of_one_class(label, whole, task)
        return label
    (column,) = columns
    for split in splits:
        refuse_odd_type(split, column)
    cells = written(value for split in whole if split.untyped for value in values_of(split, column))
    if are_lists(value for split in whole if is_text(split, column) for value in values_of(split, column)):
        cells = "list"  # as text, in whatever format
    is_list = cells == "list" or any(hasattr(split.features.get(column), "feature") for split in splits)
    if task is None and words:
        task = "token-classification"
    elif task is None and not is_list:
        fraction = cells == "fraction" or any(has_fraction(split, column) for split in whole)
        task = "regression" if fraction else "single-label"
    label = LabelColumn(task or "multi-label", (column,), cells=cells)
    if is_list and label.task not in ("token-classification", "regression"):
        flags = flags_of(label, whole, known)
        # Of one class each, a list of one 0 or 1 is no vector but that class.
        label = replace(label, flags=flags if label.task in LISTED or len(flags) > 1 else ())
        warn_of_one_class(label, whole, task)
    return label


def warn_of_one_class(label: LabelColumn, splits: Sequence[Split], task: str | None) -> None:
    """Say that what was taken for labels may be classes that exclude each other, for every row has one."""
    if task is not None or len(label.flags) == 1:
        return
    values = (label.of(each).value_in(row) for each in splits for row in rows_of(each.rows, list(label.columns)))
    if splits and all((flags_in(each).count(True) if label.flags else len(each or [])) == 1 for each in values):
        logger.warning(
            f"{splits[0].where}: every row has a single label in '{label.name}'. These are taken for labels of which "
            f"a row may have several; if they exclude each other, say --task single-label (or image-classification)"
        )


def refuse_odd_type(split: Split, column: str) -> None:
    """Refuse labels of a type that no label has, such as a date's: read so, it is not what the file says.

    Raises:
        ValueError: the type, and what to write in its place.
    """
    kind = element_type(split, column)
    if isinstance(kind, dict):
        raise ValueError(
            f"{split.where}: column '{column}' holds {', '.join(kind)} in each row: make a column of 0 or 1 of each, "
            f"and name these with --label_column"
        )
    if hasattr(kind, "feature"):
        raise ValueError(f"{split.where}: column '{column}' holds lists of lists, and labels are lists at most")
    if is_mixed(kind):
        raise ValueError(
            f"{split.where}: column '{column}' holds texts in some rows and numbers or lists in others, which get "
            f'mixed up: write all of one kind, as "1" beside "a"'
        )
    dtype = kind.dtype if isinstance(kind, Value) else ""
    if dtype.startswith(("timestamp", "date", "time", "duration", "binary", "large_binary")):
        raise ValueError(
            f"{split.where}: column '{column}' was read as {dtype}, which is no label: write it so that it is taken "
            f"for a text, in CSV or parquet"
        )


def is_text(split: Split, column: str) -> bool:
    """Whether a column's type is that of texts."""
    feature = split.features.get(column)
    return isinstance(feature, Value) and "string" in feature.dtype


def is_mixed(kind: Any) -> bool:
    """Whether a column's type is that of JSON of any kind, of which `datasets` reads "01" and 1 as the same."""
    return getattr(kind, "_type", None) == "Json"


def has_fraction(split: Split, column: str) -> bool:
    """Whether a column is of numbers, and one of them is not whole; missing ones do not count."""
    feature = split.features.get(column)
    if not isinstance(feature, Value) or not feature.dtype.startswith(("float", "decimal")):
        return False
    return any(value is not None and value == value and value % 1 != 0 for value in values_of(split, column))


def flags_of(label: LabelColumn, splits: Sequence[Split], known: Sequence[str]) -> tuple[str, ...]:
    """The labels that all lists of a column say yes or no to, if they do.

    The classes of the column's type name them, or those that are known and as many, or else numbers.

    A list of one class number is a class's: only as a truth value, or with a fraction, is a single 0 or 1 a flag.

    Raises:
        ValueError: there are other names than flags.
    """
    lengths: set[int] = set()
    single = True
    for split in splits:
        column = label.of(split)
        for row in rows_of(split.rows, list(label.columns)):
            value = stored_in(row, column.columns, column.cells)
            if column.is_missing(value):
                continue
            if not isinstance(value, list) or None in flags_in(value):
                return ()
            lengths.add(len(value))
            single = single and all(isinstance(each, (bool, float)) for each in value)
    if len(lengths) != 1 or lengths == {0} or (lengths == {1} and not single):
        return ()
    (number,) = lengths
    names = list(known) if len(known) == number else [str(i) for i in range(number)]
    for feature in (label.of(split).feature for split in splits):
        if isinstance(feature, ClassLabel):
            if len(feature.names) != number:
                raise ValueError(
                    f"column '{label.name}' holds {number} values, 0 or 1, in each row, and its type names "
                    f"{len(feature.names)} classes ({', '.join(feature.names[:5])}): they must be as many"
                )
            names = feature.names
    return tuple(names)


def values_of(split: Split, column: str) -> Iterator[Any]:
    """A column of all rows."""
    return (row[column] for row in rows_of(split.rows, [column]))


def rows_of(rows: Dataset, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Some columns of all rows, read a thousand at a time."""
    for batch in rows.select_columns(columns).iter(batch_size=1000):
        for values in zip(*(batch[column] for column in columns), strict=True):
            yield dict(zip(columns, values, strict=True))
