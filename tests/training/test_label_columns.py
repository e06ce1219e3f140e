"""Labels mean what the data say, however they are written."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from transformers import PreTrainedTokenizerBase

from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import TaskData, load_image_data, load_text_data
from hf_ffn.training.label_columns import written

Load = Callable[..., TaskData]

pytestmark = pytest.mark.usefixtures("own_cache")


def rows(labels: list[Any], times: int = 6, **more: Any) -> list[dict[str, Any]]:
    """Texts with these labels, over and over, in a column called so that no other could be meant."""
    return [{"text": "good film", "label": label, **more} for label in labels * times]


def learnt(data: TaskData) -> dict[int, Any]:
    """What is learnt or evaluated of each row."""
    samples = [part[i] for part in (data.train, data.evaluation) for i in range(len(part))]  # type: ignore[index, arg-type]
    return {sample["id"]: sample["labels"] for sample in samples}


@pytest.mark.parametrize(
    ("labels", "task", "names", "targets"),
    [
        ([[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]], "multi-label", ["0", "1", "2"], [[0, 1, 1], [1, 0, 0]]),
        ([[0, 1], [1, 1], [0, 0]], "multi-label", ["0", "1"], [[0, 1], [1, 1], [0, 0]]),
        ([["0", "1"], ["1", "0"], ["1", "1"]], "multi-label", ["0", "1"], [[0, 1], [1, 0], [1, 1]]),
        ([[False, True, True], [True, False, False]], "multi-label", ["0", "1", "2"], [[0, 1, 1], [1, 0, 0]]),
        ([[1.0], [0.0]], "multi-label", ["0"], [[1], [0]]),
        ([[0, 2], [1], []], "multi-label", ["0", "1", "2"], [[1, 0, 1], [0, 1, 0], [0, 0, 0]]),
        ([[0.0, 10.0], [2.0]], "multi-label", ["0", "2", "10"], [[1, 0, 1], [0, 1, 0]]),
        ([[0], [1]], "multi-label", ["0", "1"], [[1, 0], [0, 1]]),
        ([["b", "a"], ["c"]], "multi-label", ["a", "b", "c"], [[1, 1, 0], [0, 0, 1]]),
        (["[0, 1, 1]", "[1, 0, 0]"], "multi-label", ["0", "1", "2"], [[0, 1, 1], [1, 0, 0]]),
        ([True, False], "single-label", ["False", "True"], [1, 0]),
        ([0.0, 2.0, 10.0], "single-label", ["0", "2", "10"], [0, 1, 2]),
        ([-1, 1], "single-label", ["-1", "1"], [0, 1]),
        ([0.5, 2.0], "regression", None, [0.5, 2.0]),
        (["None", "NA", "null", "nan"], "single-label", ["NA", "None", "nan", "null"], [1, 0, 3, 2]),
        (["01", "02", "1"], "single-label", ["01", "02", "1"], [0, 1, 2]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_labels_of_every_type_are_what_they_are_called(
    kind: str,
    labels: list[Any],
    task: str,
    names: list[str] | None,
    targets: list[Any],
    tmp_path: Path,
    load: Load,
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    if kind == "jsonl":
        data = load([{"text": row["text"], "labels": row["label"]} for row in rows(labels)])
    else:
        table = {"text": ["good film"] * 6 * len(labels), "labels": labels * 6}
        datasets.Dataset.from_dict(table).to_parquet(tmp_path / "train.parquet")
        data = load_text_data(DataArguments(train_file=str(tmp_path / "train.parquet")), tokenizer, seed=1)
    assert (data.task, data.labels) == (task, names)
    assert learnt(data) == {i: targets[i % len(targets)] for i in range(6 * len(targets))}
    batch = data.collate([data.train[i] for i in range(4)])  # type: ignore[index]
    assert batch["labels"].dtype == (torch.int64 if task == "single-label" else torch.float32)


@pytest.mark.parametrize(
    ("cells", "task", "names", "targets"),
    [
        (["01", "02", "1"], "single-label", ["01", "02", "1"], [0, 1, 2]),
        (["0", "2", "10"], "single-label", ["0", "2", "10"], [0, 1, 2]),
        (["0.0", "2.0", "10.0"], "single-label", ["0", "2", "10"], [0, 1, 2]),
        (["None", "NA", "null"], "single-label", ["NA", "None", "null"], [1, 0, 2]),
        (["True", "False"], "single-label", ["False", "True"], [1, 0]),
        (["0.5", "2", "-1e1"], "regression", None, [0.5, 2.0, -10.0]),
        (["[0, 1, 1]", "[1, 0, 0]"], "multi-label", ["0", "1", "2"], [[0, 1, 1], [1, 0, 0]]),
        (["['a', 'b']", "[]"], "multi-label", ["a", "b"], [[1, 1], [0, 0]]),
        (["['0', '1']", "['1', '1']"], "multi-label", ["0", "1"], [[0, 1], [1, 1]]),
        (["[NEG]", "[POS]"], "single-label", ["[NEG]", "[POS]"], [0, 1]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("source", ["file", "set", "stream"])
def test_cells_of_csv_are_texts_until_all_of_them_are_read(
    source: str,
    cells: list[str],
    task: str,
    names: list[str] | None,
    targets: list[Any],
    tmp_path: Path,
    load: Load,
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    table = "text,label\n" + "".join(f'good film,"{cell}"\n' for cell in cells * 6)
    if source == "set":
        (tmp_path / "set").mkdir()
        (tmp_path / "set" / "train.csv").write_text(table)
        data = load_text_data(DataArguments(dataset_name=str(tmp_path / "set")), tokenizer, seed=1)
    else:
        data = load(table, table, name="train.csv", streaming=source == "stream")
    assert (data.task, data.labels) == (task, names)
    expected = {i: targets[i % len(targets)] for i in range(6 * len(targets))}
    if source == "stream":
        stream: Any = data.train
        assert {sample["id"]: sample["labels"] for sample in map(stream.prepare, stream)} == expected
    else:
        assert learnt(data) == expected


def test_a_missing_cell_makes_no_numbers_of_classes_and_is_named(load: Load) -> None:
    with pytest.raises(ValueError, match=r"no label in row 2 \(counted"):
        load("text,label\ngood,1.0\nbad,0.0\nfilm,\n" + "good,1.0\n" * 9, name="train.csv")
    with pytest.raises(ValueError, match=r"no label in column 'threat' in row 1 \(counted"):
        load("text,toxic,threat\ngood,0,1\nbad,1,\n", name="train.csv", label_column="toxic,threat")


def test_a_missing_number_is_no_class_and_is_named(load: Load) -> None:
    with pytest.raises(ValueError, match=r"a label that is not a number \('NA'\) in row 2 \(counted"):
        load("text,label\ngood,0.5\nbad,2\nfilm,NA\n" + "good,1.25\n" * 9, name="train.csv")


def test_several_columns_of_one_class_hide_no_cell_that_is_neither(load: Load) -> None:
    for cells in ("1,2,0", "1,,0"):
        table = f"text,cat,dog,cow\n{'good,0,1,0' + chr(10)}{'film,' + cells + chr(10)}" + "good,1,0,0\n" * 9
        with pytest.raises(ValueError, match=r"in row 1 \(counted"):
            load(table, name="train.csv", label_column="cat,dog,cow", task="single-label")


def test_what_is_no_class_in_a_stream_is_not_cut_to_one(load: Load) -> None:
    table = "text,label\n" + "good,1\nbad,2\n" * 6
    stream: Any = load(table + "film,1.5\n", table, name="train.csv", streaming=True).train
    with pytest.raises(ValueError, match=r"label '1\.5' is not one of 1, 2, in row 12"):
        list(map(stream.prepare, stream))


def test_the_types_of_a_sets_card_hold_for_its_csv(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    types = "".join(f"  - name: {name}\n    dtype: {dtype}\n" for name, dtype in
                    {"text": "string", "label": "string", "score": "float64"}.items())  # fmt: skip
    (folder / "README.md").write_text(f"---\ndataset_info:\n  features:\n{types}---\n")
    cells = [("01", "0.5"), ("1", "NA"), ("NA", "nan")]
    (folder / "train.csv").write_text(
        "text,label,score\n" + "".join(f"good film,{label},{score}\n" for label, score in cells * 6)
    )
    data = load_text_data(DataArguments(dataset_name=str(folder)), tokenizer, seed=1)
    assert data.labels == ["01", "1", "NA"]


def test_files_that_number_their_classes_otherwise_are_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    for name, classes in {"a": ["neg", "pos"], "b": ["neg", "pos"], "c": ["pos", "neg"]}.items():
        types = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=classes)})
        table = {"text": ["good film"] * 10, "label": [0, 1] * 5}
        datasets.Dataset.from_dict(table, features=types).to_parquet(tmp_path / f"{name}.parquet")
    files = [str(tmp_path / f"{name}.parquet") for name in "abc"]
    assert load_text_data(DataArguments(train_file=files[:2]), tokenizer, seed=1).labels == ["neg", "pos"]
    with pytest.raises(ValueError, match=r"c.parquet' has other columns than '.*a.parquet', or of other types: label"):
        load_text_data(DataArguments(train_file=files), tokenizer, seed=1)


def test_a_fraction_in_either_part_makes_both_numbers(load: Load) -> None:
    data = load(rows([1.0, 2.0]), rows([1.0, 2.5], times=1))
    assert data.task == "regression"
    data = load("text,label\n" + "good,1.0\nbad,2.0\n" * 6, "text,label\ngood,1.5\nbad,2\n", name="train.csv")
    assert [data.evaluation[i]["labels"] for i in range(2)] == [1.5, 2.0]


@pytest.mark.parametrize(
    "flags",
    [[0, 1], [0.0, 1.0], [False, True], ["0", "1"]],
    ids=repr,
)
def test_a_column_of_0_or_1_for_each_label(flags: list[Any], load: Load) -> None:
    no, yes = flags
    table = [{"text": "film", "toxic": yes, "threat": no}, {"text": "film", "toxic": yes, "threat": yes}] * 6
    data = load(table, label_column="toxic, threat")
    assert (data.task, data.labels) == ("multi-label", ["toxic", "threat"])
    assert learnt(data) == {i: [1.0, float(i % 2)] for i in range(12)}


@pytest.mark.parametrize("written", ["lists", "columns"])
def test_a_single_1_in_each_row_is_a_class_where_that_is_said_and_else_warned_of(
    written: str, load: Load, messages: pytest.LogCaptureFixture
) -> None:
    lists = [[0, 1, 0], [1, 0, 0], [0, 0, 1]] * 6
    args: dict[str, Any] = {}
    table: list[dict[str, Any]] = [{"text": "film", "labels": each} for each in lists]
    if written == "columns":
        args = {"label_column": ["cat", "dog", "cow"]}
        table = [{"text": "film", **dict(zip(args["label_column"], each, strict=True))} for each in lists]
    assert load(table, **args).task == "multi-label"
    assert "every row has a single label" in messages.text
    messages.clear()
    data = load(table, **args, task="single-label")
    assert data.labels == (["cat", "dog", "cow"] if written == "columns" else ["0", "1", "2"])
    assert [learnt(data)[i] for i in range(3)] == [1, 0, 2]
    assert load(table, **args, task="multi-label").task == "multi-label"
    assert "every row" not in messages.text


@pytest.mark.parametrize(
    ("labels", "names"),
    [([["a"], ["b"]], ["a", "b"]), ([[3], [10]], ["3", "10"]), ([[0.0], [1.0]], ["0", "1"])],
    ids=repr,
)
def test_lists_of_one_label_are_classes_where_that_is_said(
    labels: list[Any], names: list[str], load: Load, messages: pytest.LogCaptureFixture
) -> None:
    data = load(rows(labels), task="single-label")
    assert data.labels == names
    assert [learnt(data)[i] for i in range(2)] == [0, 1]
    assert load(rows(labels)).task == "multi-label"
    assert ("every row has a single label" in messages.text) == (labels != [[0.0], [1.0]])
    assert load(rows([[1.5], [2.5]]), task="regression").train[0]["labels"] in (1.5, 2.5)  # type: ignore[index]


def test_0_or_1_lists_take_the_names_of_a_checkpoint_of_as_many(
    write: Callable[[str, Any], str], tokenizer: PreTrainedTokenizerBase
) -> None:
    args = DataArguments(train_file=write("train.jsonl", rows([[0, 1, 1], [1, 0, 0]])))  # type: ignore[arg-type]
    for known, names in ((["a", "b", "c"], ["a", "b", "c"]), (["a", "b"], ["0", "1", "2"])):
        assert load_text_data(args, tokenizer, seed=1, known_labels=known).labels == names


def test_0_or_1_lists_take_the_names_of_the_columns_classes(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    def loaded(names: list[str], lists: list[list[int]]) -> TaskData:
        kind = datasets.Features(
            {"text": datasets.Value("string"), "labels": datasets.Sequence(datasets.ClassLabel(names=names))}
        )
        table = datasets.Dataset.from_dict({"text": ["film"] * 12, "labels": lists * (12 // len(lists))}, kind)
        table.to_parquet(tmp_path / f"{len(names)}{len(lists)}.parquet")
        return load_text_data(
            DataArguments(train_file=str(tmp_path / f"{len(names)}{len(lists)}.parquet")), tokenizer, seed=1
        )

    data = loaded(["mild", "hot", "sweet"], [[0, 1, 1], [1, 0, 0]])
    assert data.labels == ["mild", "hot", "sweet"]
    assert learnt(data)[0] == [0.0, 1.0, 1.0]
    data = loaded(["mild", "hot", "sweet"], [[0, 1], [2], []])
    assert [learnt(data)[i] for i in range(3)] == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    with pytest.raises(ValueError, match=r"holds 3 values, 0 or 1, in each row, and its type names 2 classes"):
        loaded(["mild", "hot"], [[0, 1, 1], [1, 0, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("labels", "args", "message"),
    [
        (
            [[0.2, 0.8], [1.0, 0.0]],
            {},
            r"something else than names or numbers of classes \(\[0.2, 0.8\].*in rows 0, 2",
        ),
        ([[0, 1, 1], [1, 0]], {}, r"that names a class twice \(\[0, 1, 1\]; .*all lists of one length.*in rows 0, 2"),
        ([[0, 1, 1], [0, 1, 2]], {}, r"that names a class twice .*nothing else in any"),
        ([[True, False], [True]], {}, "something else than names or numbers of classes"),
        ([[0, None, 1], [1, 0, 0]], {}, "no label in rows 0, 2"),
        ([{"toxic": 1, "threat": 0}], {}, "column 'label' holds toxic, threat in each row: make a column of 0 or 1"),
        ([[[0, 1]], [[1, 0]]], {}, "column 'label' holds lists of lists"),
        (["01", 1], {}, "column 'label' holds texts in some rows and numbers or lists in others"),
        ([["01"], [1]], {}, "column 'label' holds texts in some rows and numbers or lists in others"),
        (["2020-01-01", "2021-01-01"], {}, r"column 'label' was read as timestamp\[s\]"),
        (["a", " ", "b"], {}, "no label in rows 1, 4"),
        ([0, 1], {"label_column": "label,other"}, "no column 'other'"),
        (
            [0, 1],
            {"label_column": "label,more", "task": "single-label"},
            r"not one 1 and else 0 \(\[1, 1\]\) in column",
        ),
        (
            [[0, 1], [1, 1]],
            {"task": "single-label"},
            r"not one 1 and else 0 \(\[1, 1\]\) in column 'label', .* rows 1",
        ),
        ([0, 1], {"label_column": "label,label"}, "names a column twice"),
        ([0, 2], {"label_column": "label,more"}, "'2' in column 'label', which is neither 0 nor 1, in rows 1, 3"),
        ([0, 1], {"label_column": "label,more", "task": "regression"}, "are for classes, not for regression"),
    ],
    ids=repr,
)
def test_labels_that_mean_nothing_sure_are_refused(
    labels: list[Any], args: dict[str, Any], message: str, load: Load
) -> None:
    with pytest.raises(ValueError, match=message):
        load(rows(labels, more=1), **args)


def test_lists_in_csv_that_cannot_be_read_are_refused(load: Load) -> None:
    with pytest.raises(
        ValueError, match="a label that is not a list in column 'label', for task multi-label, in rows"
    ):
        load("text,label\n" + "good,[0 1 1]\nbad,[1 0 0]\n" * 6, name="train.csv")
    with pytest.raises(ValueError, match="columns 'text' and 'label' hold lists that are written as texts"):
        load("text,label\n" + "\"['good', 'film']\",\"['O', 'A']\"\n" * 9, name="train.csv")


def test_columns_of_the_users_that_are_called_as_ours_change_nothing(load: Load) -> None:
    plain = rows([[0, 2], [1], []])
    strange: dict[str, Any] = {
        "input_ids": "x", "token_type_ids": [0.5], "attention_mask": True, "labels": {"a": 1}, "length": None,
        "id": [], "ids": "y", "idx": 1, "__id__": "z",
    }  # fmt: skip
    ours, others = load(plain), load([{**row, **strange} for row in plain], name="more.jsonl")
    for i in range(len(ours.evaluation)):
        assert others.evaluation[i] == ours.evaluation[i]
    assert others.train[0] == ours.train[0]  # type: ignore[index]
    assert others.lengths == ours.lengths


def test_texts_and_labels_may_lie_in_columns_called_as_ours(load: Load) -> None:
    table = [{"input_ids": row["text"], "attention_mask": row["label"], "text": 1} for row in rows(["x", "y"])]
    named = load(table, text_column="input_ids", label_column="attention_mask", name="named.jsonl")
    usual = load(rows(["x", "y"]))
    assert [named.train[i] for i in range(8)] == [usual.train[i] for i in range(8)]  # type: ignore[index]


@pytest.mark.parametrize(
    ("labels", "task", "targets"),
    [
        ([Decimal("1.00"), Decimal("10.00")], "single-label", [0, 1]),
        ([Decimal("1.25"), Decimal("10.00")], "regression", [1.25, 10.0]),
        (pandas.Categorical(["b", "a"]), "single-label", [1, 0]),
        ([np.array([0, 1, 1], "int8"), np.array([1, 0, 0], "int8")], "multi-label", [[0, 1, 1], [1, 0, 0]]),
    ],
    ids=["whole decimals", "decimals", "categories", "arrays"],
)
def test_what_pandas_and_databases_write_is_read(
    labels: Any, task: str, targets: list[Any], tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    table = pandas.DataFrame({"text": ["good film"] * 2, "label": labels})
    pandas.concat([table] * 6).to_parquet(tmp_path / "train.parquet", index=False)
    data = load_text_data(DataArguments(train_file=str(tmp_path / "train.parquet")), tokenizer, seed=1)
    assert data.task == task
    assert learnt(data) == {i: targets[i % 2] for i in range(12)}


@pytest.mark.parametrize(
    ("labels", "task", "names", "targets"),
    [
        ([[0, 1, 1], [1, 0, 0]], "multi-label", ["0", "1", "2"], [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
        ([True, False], "image-classification", ["False", "True"], [1, 0]),
        ([1.0, 10.0], "image-classification", ["1", "10"], [0, 1]),
    ],
    ids=repr,
)
def test_labels_of_images_are_read_as_those_of_texts(
    labels: list[Any], task: str, names: list[str], targets: list[Any], tmp_path: Path
) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    table = [{"image": str(tmp_path / "a.png"), "label": label} for label in labels * 6]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, table)))
    args = DataArguments(train_file=str(tmp_path / "train.jsonl"))
    data = load_image_data(args, None, seed=1, num_channels=1, image_size=8)
    assert (data.task, data.labels) == (task, names)
    assert learnt(data) == {i: targets[i % 2] for i in range(12)}
    assert data.collate([data.evaluation[0]])["labels"].is_floating_point() == (task == "multi-label")
    (tmp_path / "odd.jsonl").write_text("\n".join(json.dumps({**row, "label": 0.5}) for row in table))
    with pytest.raises(ValueError, match="'label' holds numbers with fractions, and images have classes"):
        load_image_data(DataArguments(train_file=str(tmp_path / "odd.jsonl")), None, seed=1)


@pytest.mark.parametrize("source", ["table", "metadata", "folders"])
def test_classes_of_images_are_named_as_they_are_written(source: str, tmp_path: Path) -> None:
    names = ["01", "1", "NA", "null"]
    root = tmp_path / "photos"
    paths = [f"{name}/{i}.png" if source == "folders" else f"{name}-{i}.png" for name in names for i in range(3)]
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(root / path)
    args: dict[str, Any] = {"train_dir": str(root)}
    column, prefix = ("file_name", "") if source == "metadata" else ("image", f"{root}/")
    table = f"{column},label\n" + "".join(f"{prefix}{path},{path.split('-')[0]}\n" for path in paths)
    if source == "metadata":
        (root / "metadata.csv").write_text(table)
    elif source == "table":
        (tmp_path / "train.csv").write_text(table)
        args = {"train_file": str(tmp_path / "train.csv")}
    data = load_image_data(DataArguments(**args), None, seed=1, num_channels=1, image_size=8)
    assert data.labels == names
    assert sorted(learnt(data).values()) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1", "2.0", None], "whole"),
        (["01", "1"], "text"),
        (["1e3", "2"], "text"),
        (["1.5", "01"], "fraction"),
        (["1.5", "high"], "text"),
        (["1.5", "NA"], "fraction"),
        (["1", "NA"], "text"),
        (["NA", "None"], "text"),
        (["[1]", "1"], "text"),
        (["[1, 2]", "[]"], "list"),
        ([], "text"),
    ],
    ids=repr,
)
def test_what_cells_hold_is_decided_by_all_of_them(cells: list[str | None], kind: str) -> None:
    assert written(cells) == kind
