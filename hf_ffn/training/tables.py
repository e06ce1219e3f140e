"""Local files of rows looked through once, and laid where `datasets` reads them exactly."""

import csv
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from transformers.utils import logging

from .arguments import DataArguments
from .files import TableFile

logger = logging.get_logger(__name__)

# Which flags say how files of a format are read.
FLAGS = {"delimiter": ("csv",), "quoting": ("csv",), "encoding": ("csv", "json"), "field": ("json",)}
# What parts a header where the delimiter was not told.
OTHER_DELIMITERS = ";\t|,"
# Only an empty cell is a missing one: a label or a text may well be "NA", "None" or "null".
EMPTY_IS_MISSING = {"keep_default_na": False, "na_values": [""]}
# What stands for a number that is missing; in small letters.
NO_NUMBER = ("na", "n/a", "nan", "null", "none")
BREAK = re.compile("[\\r\\n]")
# What parts the types of two files' columns and is no matter: how many bytes a number or a text's length takes.
SIZES_IN_TYPES = re.compile(r"(?<=')(?:u?int|float)\d+(?=')|large_(?=string)")


def reading_options(files: Sequence[TableFile], args: DataArguments) -> dict[str, Any]:
    """What `load_dataset` must know to read files.

    Raises:
        ValueError: files of several formats, or a flag that is not for theirs.
    """
    first = files[0]
    for each in files:
        if (each.format, each.ending == ".tsv") != (first.format, first.ending == ".tsv"):
            raise ValueError(f"'{first.path}' and '{each.path}' are of two formats: give files of one")
    for flag, formats in FLAGS.items():
        if getattr(args, flag) is not None and first.format not in formats:
            raise ValueError(f"--{flag} is for files of {' or '.join(formats)}, which '{first.path}' is not")
    if first.format != "csv":
        return {}
    # A shell passes a backslash and a t, where people mean the tab.
    delimiter = (args.delimiter or ("\\t" if first.ending == ".tsv" else ",")).replace("\\t", "\t")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(f"--delimiter '{args.delimiter}' must be one character, \\t for the tab")
    quoting = csv.QUOTE_NONE if args.quoting == "none" else csv.QUOTE_MINIMAL
    return {"sep": delimiter, "quoting": quoting, **EMPTY_IS_MISSING}


def lay_out(files: Sequence[TableFile], args: DataArguments, options: dict[str, Any]) -> tuple[list[Path], str]:
    """Look through files, and lay them into the cache of `datasets`, under names that follow from their contents.

    There `datasets` finds them whatever their own names are, and never takes one for what it was before.

    Args:
        files: of one format.
        args: how to read JSON.
        options: from `reading_options`.

    Returns:
        Where they lie, in UTF-8, unpacked, JSON as lines; and a hash of their contents.

    Raises:
        ValueError: a file is damaged or in another encoding, or its rows do not fit each other: what, and where.
    """
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "hf_ffn_files"
    folder.mkdir(parents=True, exist_ok=True)
    laid, digests, headers, types = [], [], [], []
    for file in files:
        rows = rows_of_document(file, args.field) if file.format == "json" else None
        if file.format == "csv":
            headers.append(check_csv(file, options["sep"], options["quoting"]))
            if sorted(headers[-1]) != sorted(headers[0]):
                raise ValueError(f"'{file.path}' has other columns than '{files[0].path}': {', '.join(headers[-1])}")
        if file.format == "parquet":
            types.append(column_types(file.path))
            if types[-1] != types[0]:
                different = sorted(name for name, _ in set(types[-1].items()) ^ set(types[0].items()))
                raise ValueError(
                    f"'{file.path}' has other columns than '{files[0].path}', or of other types: {different[0]}"
                )
        digests.append(file.digest())
        how = json.dumps([digests[-1], file.encoding, args.field, options])
        laid.append(folder / (hashlib.sha256(how.encode()).hexdigest() + file.ending))
        put(laid[-1], file, rows)
    return laid, hashlib.sha256("".join(digests).encode()).hexdigest()


def column_types(path: Path) -> dict[str, str]:
    """The types of a parquet file's columns, numbers of any size being one; classes with their names, in order.

    `datasets` reads all files by the types of the first, and would take class 0 of another for its own.
    """
    features = datasets.Features.from_arrow_schema(pq.read_schema(path))
    return {name: SIZES_IN_TYPES.sub("", str(feature)) for name, feature in features.items()}


def put(target: Path, file: TableFile, rows: list[Any] | None) -> None:
    """Lay a file, or the rows of its document as lines, at a path; a file that is good as it is is only linked."""
    if target.is_file() and not target.is_symlink():
        return  # a copy, whose name tells its content; what a link leads to may have changed since
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        if rows is not None:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        elif file.is_plain():
            temporary.symlink_to(file.path.resolve())
        else:
            with file.text() as text, temporary.open("w", encoding="utf-8", newline="") as copy:
                shutil.copyfileobj(text, copy)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def check_csv(file: TableFile, delimiter: str, quoting: int) -> list[str]:
    """Refuse a CSV file whose rows do not fit its header, where pandas would shift cells, or fill up or swallow rows.

    Returns:
        Its header.

    Raises:
        ValueError: no rows, columns of one name, a row with more or fewer cells, a stray quotation mark.
    """
    csv.field_size_limit(sys.maxsize)  # a text may be long
    several_lines: list[int] = []
    number, line = -1, 1  # the header comes first
    with file.text() as text:
        reader = csv.reader(text, delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
        header: list[str] = []
        try:
            for row in reader:
                if row and (len(row) > 1 or row[0].strip() or len(header) == 1):
                    if not header:
                        header = checked_header(file, row, delimiter)
                    elif len(row) != len(header):
                        raise ValueError(misfit(file, header, row, f"row {number} (counted from 0), line {line}"))
                    if reader.line_num > line and any(delimiter in cell and BREAK.search(cell) for cell in row):
                        several_lines.append(number)
                    number += 1
                line = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(stray_mark(file, number, line, reader.line_num, error)) from None
    if number < 1:
        raise ValueError(f"'{file.path}' has no rows")
    if several_lines:
        rows = ", ".join(map(str, several_lines[:5])) + (" …" if len(several_lines) > 5 else "")
        logger.warning(
            f"'{file.path}': in {len(several_lines)} of {number} rows a cell holds line breaks and delimiters (rows "
            f"{rows}, counted from 0). If these were rows of their own, a quotation mark is missing."
        )
    return header


def misfit(file: TableFile, header: list[str], row: list[str], where: str) -> str:
    """Say that a row has more or fewer cells than the header."""
    hint = ": texts with the delimiter in them need quotation marks" if len(row) > len(header) else ""
    return f"'{file.path}' has {len(header)} columns ({', '.join(header)}), but {len(row)} cells in {where}{hint}"


def checked_header(file: TableFile, header: list[str], delimiter: str) -> list[str]:
    """The names of a CSV file's columns.

    Raises:
        ValueError: two of one name, all in one cell, or as UTF-16 looks in another encoding.
    """
    if any("\0" in name for name in header):
        raise ValueError(f"'{file.path}' has zero bytes in line 1, as UTF-16 has: say so with --encoding utf-16")
    for name in header:
        if name and header.count(name) > 1:
            raise ValueError(f"'{file.path}' has {header.count(name)} columns '{name}' in line 1: names must differ")
    other = next((each for each in OTHER_DELIMITERS if each in header[0]), None)
    if len(header) == 1 and other is not None:
        told, other = (each.replace("\t", "\\t") for each in (delimiter, other))
        raise ValueError(
            f"'{file.path}' has one column, '{header[0]}', with the delimiter '{told}': if its cells are parted "
            f"otherwise, say so with --delimiter '{other}'"
        )
    return header


def stray_mark(file: TableFile, number: int, line: int, last_line: int, error: csv.Error) -> str:
    """Say where quotation marks do not fit."""
    where = f"in row {number} (counted from 0), line {line}" if number >= 0 else f"in the header, line {line}"
    if "unexpected end" in str(error):
        what = f"a quotation mark opens {where}, and none closes it up to the end, line {last_line}"
    else:
        what = f"quotation marks do not fit {where} ({error})"
    return f"'{file.path}': {what}; one within a quoted text is written twice, and --quoting none reads all as text"


def rows_of_document(file: TableFile, field: str | None) -> list[dict[str, Any]] | None:
    """The rows of a JSON file that is one document; None of one with a row in each line, which are checked.

    Raises:
        ValueError: it is no JSON, or has no list of rows, or several and no field was told.
    """
    with file.text() as text:
        start = list(islice((line for line in text if line.strip()), 2))
    if not start:
        raise ValueError(f"'{file.path}' has no rows")
    try:
        first = json.loads(start[0])
    except json.JSONDecodeError:
        first = None
    if field is None and isinstance(first, dict) and (len(start) == 2 or not lists_of_rows(first)):
        check_lines(file)
        return None
    with file.text() as text:
        try:
            document = json.load(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"'{file.path}' cannot be read as JSON: {error}") from None
    rows = rows_in(file, document, field)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"'{file.path}': row {number} (counted from 0) has no names of columns: {str(row)[:40]}")
    if not rows:
        raise ValueError(f"'{file.path}' has no rows")
    return rows


def rows_in(file: TableFile, document: Any, field: str | None) -> list[Any]:
    """The list that is a document, or lies in its field."""
    if isinstance(document, list) and field is None:
        return document
    if not isinstance(document, dict):
        raise ValueError(f"'{file.path}' is no object with fields: leave out --field {field}")
    fields = ", ".join(document)
    if field is not None:
        rows = document.get(field)
        if not isinstance(rows, list):
            raise ValueError(f"'{file.path}' has no list of rows in --field {field}; its fields are {fields}")
        return rows
    lists = lists_of_rows(document)
    if len(lists) != 1:
        found = f"{len(lists)} lists of rows ({', '.join(lists)})" if lists else "no list of rows"
        raise ValueError(f"'{file.path}' has {found} in its fields {fields}: choose one with --field")
    found_rows: list[Any] = document[lists[0]]
    return found_rows


def lists_of_rows(document: dict[str, Any]) -> list[str]:
    """The fields of an object that hold rows."""
    return [
        name
        for name, value in document.items()
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value)
    ]


def check_lines(file: TableFile) -> None:
    """Refuse JSON lines of which one is no row.

    Raises:
        ValueError: which.
    """
    with file.text() as text:
        for place, line in enumerate(text, start=1):
            if not line.strip():
                continue
            try:
                is_row = isinstance(json.loads(line), dict)
            except json.JSONDecodeError as error:
                raise ValueError(f"'{file.path}' cannot be read: line {place}: {error}") from None
            if not is_row:
                raise ValueError(
                    f"'{file.path}' cannot be read: line {place} has no names of columns: {line.strip()[:40]}"
                )
