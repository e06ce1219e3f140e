"""Bad data end in one clear error, or are skipped where that was asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import TaskData, load_text_data
from hf_ffn.training.sampling import StreamSamples

ROWS = [{"text": f"{'very ' * (i % 5)}{'good' if i % 2 else 'bad'} film", "label": i % 2} for i in range(40)]

Load = Callable[..., TaskData]

pytestmark = pytest.mark.usefixtures("own_cache")

TAGGED = {"tokens": ["good", "film"], "ner_tags": ["A", "O"]}


@pytest.mark.parametrize(
    ("rows", "args", "message"),
    [
        (
            [{"phrase": "a", "label": 1}],
            {},
            r"'.*train.jsonl' has no column 'text' or 'sentence' .*; it has phrase, label:",
        ),
        (
            [{"text": "a", "class": 1}],
            {},
            r"no column 'label' or .*; it has text, class: choose one with --label_column",
        ),
        (ROWS, {"text_column": "txt"}, "no column 'txt'; it has text, label: choose one with --text_column"),
        ([*ROWS, {"text": "film", "label": None}], {}, r"train.jsonl': no label in row 40 \(counted from 0\)$"),
        ([{"text": "film", "label": None}] * 9, {}, r"no label in rows 0, 1, 2, 3, 4 and 4 more"),
        (
            [*ROWS, {"text": "", "label": 1}, {"text": None, "label": 1}],
            {},
            "an empty text in column 'text' in rows 40, 41 .*skip",
        ),
        (ROWS[:1], {}, "has one row only: too few to train on"),
        ([], {}, "train.jsonl' is empty"),
        ([{"text": "film", "label": "x"}] * 9, {}, "all labels are 'x', so there is nothing to learn"),
        ([{"text": "film", "labels": []}] * 9, {"task": "multi-label"}, "column 'labels' names no class in any row"),
        (
            [*ROWS, {"text": "film", "label": 2}],
            {"task": "multi-label"},
            "a label that is not a list in column 'label'",
        ),
        (
            [{"text": "film", "labels": ["a", "b"]}] * 9,
            {"task": "single-label"},
            "a list of labels in column 'labels', for task single",
        ),
        (
            [{"text": "film", "label": s} for s in ("1", "2.5", "many")],
            {"task": "regression"},
            r"not a number \('many'\) in row 2 ",
        ),
        ([{"text": i, "label": i} for i in range(9)], {}, "something else than a text in column 'text' in rows 0, 1"),
        ([TAGGED, {**TAGGED, "ner_tags": ["A"]}], {}, r"2 words but 1 labels in row 1 \(counted from 0\)$"),
        ([TAGGED, {"tokens": [], "ner_tags": []}], {}, "an empty text in column 'tokens' in row 1"),
        ([TAGGED, {**TAGGED, "ner_tags": ["A", None]}], {}, "no label in row 1"),
        (ROWS, {"task": "token-classification"}, "a label that is not a list in column 'label', for task token"),
        (ROWS, {"task": "image-classification"}, "needs images, and these are texts"),
        (ROWS, {"streaming": True}, "nothing can be split off from a stream: give '.*train.jsonl' a validation"),
        (ROWS, {"dataset_name": "digits"}, "give one of .*; dataset_name and train_file was given"),
        ("text,label\n", {"name": "train.csv"}, "train.csv' has no rows"),
        (
            "text,label\ngood film,1\ngood, bad,1",
            {"name": "train.csv"},
            r"train.csv' has 2 columns \(text, label\), but 3 cells in row 1 \(counted from 0\), line 3: texts",
        ),
        ("text,label\ngood, bad,1", {"name": "train.csv"}, r"train.csv' has 2 columns \(text, label\), but 3 cells"),
        ('{"text": ', {}, "train.jsonl' cannot be read"),
    ],
)
def test_bad_rows_are_refused_with_what_and_where(load: Load, rows: Any, args: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        load(rows, **args)
    assert "\n" not in str(caught.value)


def test_validation_data_must_fit_the_training_data(load: Load) -> None:
    with pytest.raises(
        ValueError, match=r"validation.jsonl' has labels that '.*train.jsonl' does not have: '7' \(row 1\)"
    ):
        load(ROWS, [ROWS[0], {"text": "film", "label": 7}])
    with pytest.raises(
        ValueError, match=r"validation.jsonl' has no column 'label', as the training data do; it has text, y"
    ):
        load(ROWS, [{"text": "film", "y": 1}])
    with pytest.raises(ValueError, match=r"validation.jsonl': no label in row 0"):
        load(ROWS, [{"text": "film", "label": None}])


def test_empty_texts_are_skipped_where_asked_and_named(load: Load, messages: pytest.LogCaptureFixture) -> None:
    rows = [*ROWS[:3], {"text": "  ", "label": 1}, *ROWS[3:]]
    data = load(rows, ROWS, on_bad_sample="skip")
    assert [data.train[i]["id"] for i in range(40)] == [i for i in range(41) if i != 3]
    assert "an empty text in column 'text' in row 3 (counted from 0); left out" in messages.text


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("missing.csv", "there is no file '.*missing.csv'"),
        ("data.xlsx", r"data.xlsx' ends in none of .csv, .tsv, .json"),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, file: str, message: str
) -> None:
    (tmp_path / "data.xlsx").write_text("no table")
    with pytest.raises(ValueError, match=message):
        load_text_data(DataArguments(train_file=str(tmp_path / file)), tokenizer, seed=1)
    with pytest.raises(ValueError, match="dataset 'no/such-set' cannot be loaded"):
        load_text_data(DataArguments(dataset_name="no/such-set"), tokenizer, seed=1)


def test_a_tokenizer_that_cannot_pad_is_refused(load: Load, tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match=r"BertTokenizer.* has no padding token"):
        load(ROWS)


def test_a_stream_says_what_is_wrong_when_it_comes_to_it(load: Load, messages: pytest.LogCaptureFixture) -> None:
    def read(bad: dict[str, Any], **args: Any) -> list[dict[str, Any]]:
        stream = load([*ROWS, bad], ROWS, streaming=True, **args).train
        assert isinstance(stream, StreamSamples)
        return [stream.prepare(row) for row in stream]

    with pytest.raises(ValueError, match=r"train.jsonl': an empty text in column 'text' in row 40 \(counted from 0\)"):
        read({"text": " ", "label": 0})
    assert len(read({"text": " ", "label": 0}, on_bad_sample="skip")) == 40
    assert "an empty text in column 'text' in row 40 (counted from 0); left out" in messages.text
    with pytest.raises(ValueError, match=r"train.jsonl': no label in row 40"):
        read({"text": "film", "label": None})
    with pytest.raises(ValueError, match=r"train.jsonl': label '7' is not one of 0, 1, in row 40"):
        read({"text": "film", "label": 7})
