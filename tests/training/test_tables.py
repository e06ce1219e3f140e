"""Rows of files as they were meant, or one error that tells the line."""

import json
from pathlib import Path
from typing import Any

import pytest

from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.sources import load_splits

pytestmark = pytest.mark.usefixtures("own_cache")


def rows(path: Path, content: str, **args: Any) -> list[tuple[Any, ...]]:
    """The rows that are read from a file of that content, as a whole and as a stream."""
    path.write_text(content, newline="")
    whole, streamed = (
        load_splits(DataArguments(train_file=str(path), validation_file=str(path), streaming=streaming, **args))[0]
        for streaming in (False, True)
    )
    found = [tuple(value for name, value in row.items() if name != "__id__") for row in whole.rows]
    assert [tuple(value for name, value in row.items() if name != "__id__") for row in streamed.rows] == found
    return found


@pytest.mark.parametrize(
    ("name", "content", "args"),
    [
        ("t.csv", "text;label\ngood, film;a\nbad;b\n", {"delimiter": ";"}),
        ("t.txt.csv", "text\tlabel\ngood, film\ta\nbad\tb\n", {"delimiter": "\\t"}),
        ("t.csv", "text\tlabel\ngood, film\ta\nbad\tb\n", {"delimiter": "\t"}),
        ("t.tsv", "text|label\ngood, film|a\nbad|b\n", {"delimiter": "|"}),
        ("t.tsv", "text\tlabel\ngood, film\ta\n\nbad\tb", {}),
        ("t.csv", 'text,label\r\n"good, film",a\r\n \r\nbad,b\r\n', {}),
        ("t.csv", 'text,label\r"good, film",a\rbad,b\r', {}),
    ],
)
def test_delimiters_and_line_ends(tmp_path: Path, name: str, content: str, args: dict[str, str]) -> None:
    assert rows(tmp_path / name, content, **args) == [("good, film", "a"), ("bad", "b")]


def test_quotation_marks_within_texts(tmp_path: Path, messages: pytest.LogCaptureFixture) -> None:
    content = 'text,label\n"so ""good"", it is",a\nthe 5" film,b\n"two\nlines",c\n"' + "x" * 200_000 + '",d\n'
    found = rows(tmp_path / "t.csv", content)
    assert found[:3] == [('so "good", it is', "a"), ('the 5" film', "b"), ("two\nlines", "c")]
    assert "line breaks" not in messages.text
    found = rows(tmp_path / "t.tsv", 'text\tlabel\n"good film\ta\nso "bad"\tb\n"good" film\tc\n', quoting="none")
    assert found == [('"good film', "a"), ('so "bad"', "b"), ('"good" film', "c")]


def test_a_cell_that_may_have_swallowed_rows_is_warned_of(tmp_path: Path, messages: pytest.LogCaptureFixture) -> None:
    content = 'text,label\ngood,a\n"good film,a\nbad film,b\nso",a\nbad,b\n'
    assert rows(tmp_path / "t.csv", content)[1] == ("good film,a\nbad film,b\nso", "a")
    assert "t.csv': in 1 of 3 rows a cell holds line breaks and delimiters (rows 1, counted from 0)" in messages.text
    messages.clear()
    assert rows(tmp_path / "t.csv", 'text,label\n"good,a\n",b\nbad,b\n') == [("good,a\n", "b"), ("bad", "b")]
    assert "in 1 of 2 rows a cell holds line breaks and delimiters (rows 0" in messages.text


@pytest.mark.parametrize(
    ("name", "content", "args", "says"),
    [
        ("t.csv", 'text,label\ngood,a\n"bad,b\nfilm,a\nso,b\n', {},
         r"a quotation mark opens in row 1 \(counted from 0\), line 3, and none closes it up to the end, line 5"),
        ("t.tsv", 'text\tlabel\n\n"bad\tb\nfilm\ta\n', {}, r"opens in row 0 \(counted from 0\), line 3, and none"),
        ("t.csv", '"text,label\ngood,a\n', {}, "a quotation mark opens in the header, line 1, and none closes it"),
        ("t.csv", 'text,label\n"good" film,a\n', {}, r"do not fit in row 0 \(counted from 0\), line 2 \(',' expected"),
        ("t.csv", 'text,label\n"a \\"b\\" c",a\n', {}, r"do not fit in row 0 .* --quoting none reads all as text"),
        ("t.csv", "text,label\ngood,a\nbad\n", {}, r"has 2 columns \(text, label\), but 1 cells in row 1 .* line 3"),
        ("t.csv", 'text,label\n"a\nb",a\nx,y,z\n', {}, r"but 3 cells in row 1 \(counted from 0\), line 4"),
        ("t.csv", "text,label,text\ngood,a,b\n", {}, "has 2 columns 'text' in line 1: names must differ"),
        ("t.csv", "text;label\ngood;a\n", {}, "has one column, 'text;label', with .* ',': .* --delimiter ';'"),
        ("t.csv", "text\tlabel\ngood\ta\n", {}, r"with the delimiter ',': .* --delimiter '\\t'"),
        ("t.tsv", "text,label\ngood,a\n", {}, r"with the delimiter '\\t': .* --delimiter ','"),
        ("t.csv", "t\0e\0x\0t\0,\0l\0", {}, "zero bytes in line 1, as UTF-16 has: say so with --encoding utf-16"),
        ("t.csv", "text,label\n\n\n", {}, "t.csv' has no rows"),
        ("t.csv", "\n\n", {}, "t.csv' has no rows"),
        ("t.csv", "text,label\na,b", {"delimiter": ";;"}, "--delimiter ';;' must be one character"),
    ],
)  # fmt: skip
def test_csv_that_does_not_fit_is_one_error_with_its_line(
    tmp_path: Path, name: str, content: str, args: dict[str, str], says: str
) -> None:
    (tmp_path / name).write_text(content)
    given = [str(tmp_path / name)]
    # A stream is looked through before it is read.
    with pytest.raises(ValueError, match=says) as caught:
        load_splits(DataArguments(train_file=given, validation_file=given, streaming=True, **args))
    assert "\n" not in str(caught.value)


ROWS = [{"text": "good", "label": "01"}, {"text": "bad", "label": "1"}]


@pytest.mark.parametrize(
    ("content", "args"),
    [
        ({"data": ROWS}, {}),
        ({"version": "1", "ids": [1, 2], "none": [], "data": ROWS}, {}),
        ({"data": ROWS, "more": [{"text": "else"}]}, {"field": "data"}),
        (ROWS, {}),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_json_documents(tmp_path: Path, content: Any, args: dict[str, str], indent: int | None) -> None:
    assert rows(tmp_path / "t.json", json.dumps(content, indent=indent), **args) == [("good", "01"), ("bad", "1")]


def test_json_lines_under_either_name(tmp_path: Path) -> None:
    content = "\n".join(map(json.dumps, ROWS)) + "\n\n"
    for name in ("t.json", "t.jsonl"):
        assert rows(tmp_path / name, content) == [("good", "01"), ("bad", "1")]


@pytest.mark.parametrize(
    ("content", "args", "says"),
    [
        ('{"train": [{"text": "a"}], "test": [{"text": "b"}], "n": 1}', {},
         r"has 2 lists of rows \(train, test\) in its fields train, test, n: choose one with --field"),
        ('{\n"text": "a",\n"label": 1}', {}, "has no list of rows in its fields text, label: choose one"),
        ('{"data": [{"text": "a"}]}', {"field": "date"}, "no list of rows in --field date; its fields are data"),
        ('[{"text": "a"}]', {"field": "data"}, "no object with fields: leave out --field data"),
        ('[{"text": "a"}, 7]', {}, r"row 1 \(counted from 0\) has no names of columns: 7"),
        ('{"text": "a"}\n\n7\n', {}, "line 3 has no names of columns: 7"),
        ('{"text": "a"}\n{"text": \n', {}, "cannot be read: line 2: Expecting value"),
        ('{"text": "a"}\n{"text": "b"', {}, "cannot be read: line 2: "),
        ('[{"text": "a"}, {"te', {}, "cannot be read as JSON: Unterminated string"),
        ("[]", {}, "t.json' has no rows"),
        ('{"data": []}', {"field": "data"}, "t.json' has no rows"),
        ("\n \n", {}, "t.json' has no rows"),
    ],
)  # fmt: skip
def test_json_that_is_no_rows_is_one_error(tmp_path: Path, content: str, args: dict[str, str], says: str) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(ValueError, match=says) as caught:
        load_splits(DataArguments(train_file=str(tmp_path / "t.json"), **args))
    assert "\n" not in str(caught.value)
