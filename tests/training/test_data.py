"""Data of every text task and source."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from hf_ffn.training import embedded
from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import TaskData, content_hash, load_text_data
from hf_ffn.training.sampling import StreamMicroBatches, StreamSamples
from hf_ffn.training.texts import Tokenization

ROWS = [{"text": f"{'very ' * (i % 5)}{'good' if i % 2 else 'bad'} film", "label": i % 2} for i in range(40)]


Write = Callable[[str, Any], str]
Load = Callable[..., TaskData]

pytestmark = pytest.mark.usefixtures("own_cache")


def samples_of(data: TaskData) -> list[dict[str, Any]]:
    """All training samples."""
    return [data.train[i] for i in range(len(data.train))]  # type: ignore[index, arg-type]


# Tasks


def test_single_labels_with_a_tenth_to_evaluate_on(load: Load, tokenizer: PreTrainedTokenizerBase) -> None:
    data = load(ROWS)
    assert data.task == "single-label"
    assert data.labels == ["0", "1"]
    assert (len(data.train), len(data.evaluation)) == (36, 4)  # type: ignore[arg-type]
    samples = [*samples_of(data), *(data.evaluation[i] for i in range(4))]
    assert sorted(sample["id"] for sample in samples) == list(range(40))
    for sample in samples:
        row = ROWS[sample["id"]]
        assert sample["input_ids"] == tokenizer(row["text"])["input_ids"]
        assert sample["labels"] == row["label"]
    assert data.lengths == [len(sample["input_ids"]) for sample in samples_of(data)]
    assert data.texts(2) == ROWS[data.evaluation[2]["id"]]["text"]


def test_the_validation_part_is_the_same_for_all_seeds(write: Write, tokenizer: PreTrainedTokenizerBase) -> None:
    args = DataArguments(train_file=write("train.jsonl", ROWS))
    parts = [load_text_data(args, tokenizer, seed=seed) for seed in (1, 2)]
    first, second = ([part.evaluation[i]["id"] for i in range(4)] for part in parts)
    assert first == second


def test_a_label_of_one_row_is_trained_and_not_split_off(load: Load) -> None:
    rows = [{"text": "film", "label": f"class {i if i < 35 else 35}"} for i in range(40)]
    data = load(rows)
    assert {sample["labels"] for sample in samples_of(data)} == set(range(36))
    assert [data.evaluation[i]["labels"] for i in range(4)] == [data.labels.index("class 35")] * 4  # type: ignore[union-attr]


def test_labels_go_by_name_where_splits_number_them_differently(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    for part, names in (("train", ["no", "yes"]), ("validation", ["yes", "no"])):
        features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
        rows = {"text": ["bad", "good"], "label": ["no", "yes"]}
        datasets.Dataset.from_dict(rows, features).to_parquet(tmp_path / f"{part}.parquet")
    args = DataArguments(train_file=f"{tmp_path}/train.parquet", validation_file=f"{tmp_path}/validation.parquet")
    data = load_text_data(args, tokenizer, seed=1)
    assert data.labels == ["no", "yes"]
    assert [data.evaluation[i]["labels"] for i in range(2)] == [0, 1]


def test_integers_are_sorted_as_numbers_and_csv_cells_that_read_na_are_words(load: Load) -> None:
    assert load([{"text": "film", "label": i % 11} for i in range(33)]).labels == [str(i) for i in range(11)]
    data = load("text,label\n" + "na,NA\nNA,None\n" * 10, name="train.csv")
    assert data.labels == ["NA", "None"]
    assert len(samples_of(data)) == 18


def test_multi_label(load: Load) -> None:
    rows = [{"text": "good film", "labels": labels} for labels in (["b", "a"], [], ["c"])] * 5
    data = load(rows)
    assert data.task == "multi-label"
    assert data.labels == ["a", "b", "c"]
    batch = data.collate(samples_of(data)[:3])
    assert batch["labels"].tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 1]]
    assert batch["labels"].dtype == torch.float32


def test_regression(load: Load) -> None:
    data = load([{"text": "film", "label": i / 4} for i in range(20)])
    assert (data.task, data.labels) == ("regression", None)
    samples = samples_of(data)
    batch = data.collate(samples)
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [i / 4 for i in batch["ids"].tolist()]
    assert load([{"text": "film", "label": i} for i in range(20)], task="regression").task == "regression"


def test_pairs(load: Load, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [{"sentence1": "good film", "sentence2": "bad film .", "label": "ab"[i % 2]} for i in range(20)]
    data = load(rows)
    assert data.train[0]["input_ids"] == tokenizer("good film", "bad film .")["input_ids"]  # type: ignore[index]
    assert data.train[0]["token_type_ids"] == [0] * 4 + [1] * 4  # type: ignore[index]
    assert data.texts(0) == "good film | bad film ."
    columns = {"text_column": "a", "text_pair_column": "b", "label_column": "y"}
    other = load([{"a": "good", "b": "bad", "y": "01"[i % 2]} for i in range(20)], **columns)
    assert other.train[0]["input_ids"] == tokenizer("good", "bad")["input_ids"]  # type: ignore[index]


def test_the_first_piece_of_a_word_gets_its_label(load: Load) -> None:
    rows = [{"tokens": ["unlikely", "films", "."], "ner_tags": ["B-A", "O", "B-A"]}] * 10
    rows[1:2] = [{"tokens": ["good"], "ner_tags": ["O"]}]
    data = load(rows)
    assert data.task == "token-classification"
    assert data.labels == ["B-A", "O"]
    # [CLS] un ##likely film ##s . [SEP]
    assert data.train[0]["labels"] == [-100, 0, -100, 1, -100, 0, -100]  # type: ignore[index]
    batch = data.collate(samples_of(data)[:2])
    assert batch["labels"].tolist()[1] == [-100, 1, -100, -100, -100, -100, -100]
    assert data.texts(0) == "unlikely films ."


def test_words_that_are_ignored_already_stay_so(load: Load) -> None:
    data = load([{"tokens": ["good", "film"], "labels": [3, -100]}, {"tokens": ["bad"], "labels": [5]}] * 5)
    assert data.labels == ["3", "5"]
    assert [-100, 0, -100, -100] in [sample["labels"] for sample in samples_of(data)]


# Batches, sizes, caches, sources


def test_a_batch_is_padded_and_knows_its_samples_and_may_be_empty(load: Load) -> None:
    data = load(ROWS)
    batch = data.collate([data.train[0], data.train[4]])  # type: ignore[index]
    lengths = data.lengths
    assert lengths is not None
    assert batch["attention_mask"].sum(1).tolist() == [lengths[0], lengths[4]]
    assert batch["ids"].tolist() == [data.train[0]["id"], data.train[4]["id"]]  # type: ignore[index]
    assert set(batch) == {"input_ids", "token_type_ids", "attention_mask", "labels", "ids"}
    assert data.collate([]) == {}


def test_no_text_is_longer_than_the_tokenizer_allows(load: Load, tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.model_max_length = 5
    assert max(load(ROWS).lengths or []) == 5


@pytest.mark.parametrize(("length", "pairs", "own"), [(1, False, 2), (2, False, 2), (3, True, 3)])
def test_a_length_that_the_tokenizers_own_tokens_fill_is_refused(
    load: Load, length: int, pairs: bool, own: int
) -> None:
    with pytest.raises(ValueError, match=rf"max_length={length} leaves no room.*adds {own} tokens"):
        load([{**row, "b": "good"} for row in ROWS], max_length=length, text_pair_column="b" if pairs else None)


def test_long_texts_are_cut_and_samples_are_counted_off_from_all_classes(load: Load) -> None:
    rows = sorted(ROWS, key=lambda row: row["label"])
    data = load(rows, ROWS, max_length=4, max_train_samples=12, max_eval_samples=3)
    assert (len(data.train), len(data.evaluation)) == (12, 3)  # type: ignore[arg-type]
    assert max(data.lengths or []) == 4
    assert {sample["labels"] for sample in samples_of(data)} == {0, 1}


def test_tokenized_data_are_found_again(
    write: Write, tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = DataArguments(train_file=write("train.jsonl", ROWS))
    first = load_text_data(args, tokenizer, seed=1)
    monkeypatch.setattr(Tokenization, "__call__", None)  # computing anything again would fail
    assert samples_of(load_text_data(args, tokenizer, seed=2)) == samples_of(first)


def test_a_fingerprint_tells_contents_and_not_names(load: Load) -> None:
    def fingerprint(*args: Any, **kwargs: Any) -> str:
        return json.dumps(load(*args, **kwargs).fingerprint, sort_keys=True)

    same = fingerprint(ROWS)
    assert fingerprint(ROWS, name="other.jsonl") == same
    changed = [*ROWS[:-1], {"text": "good film", "label": ROWS[-1]["label"]}]
    relabelled = [*ROWS[:-1], {"text": ROWS[-1]["text"], "label": 1 - ROWS[-1]["label"]}]
    others = [fingerprint(rows) for rows in (changed, relabelled, ROWS[::-1], ROWS[1:])]
    others += [fingerprint(ROWS, max_length=5), fingerprint(ROWS, max_train_samples=20)]
    assert same not in others


def test_a_content_hash_knows_where_lists_end() -> None:
    first, second = (datasets.Dataset.from_dict({"a": lists}) for lists in ([[1, 2], [3]], [[1], [2, 3]]))
    assert content_hash(first) != content_hash(second)


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl", "train.json", "train.parquet"])
def test_formats_give_the_same(name: str, tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = datasets.Dataset.from_list(ROWS)
    path = tmp_path / name
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix in (".csv", ".tsv"):
        rows.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
    else:
        rows.to_json(path, lines=path.suffix == ".jsonl")
    data = load_text_data(DataArguments(train_file=str(path)), tokenizer, seed=1)
    assert [sample["labels"] for sample in samples_of(data)] == [sample["id"] % 2 for sample in samples_of(data)]
    assert len(samples_of(data)) == 36


def test_a_dataset_with_a_validation_split_and_one_without(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    for part in ("train", "test"):
        datasets.Dataset.from_list(ROWS).to_parquet(tmp_path / "set" / f"{part}.parquet")
    args = DataArguments(dataset_name=str(tmp_path / "set"))
    assert len(load_text_data(args, tokenizer, seed=1).evaluation) == 4  # never the test split
    datasets.Dataset.from_list(ROWS[:7]).to_parquet(tmp_path / "set" / "validation.parquet")
    data = load_text_data(args, tokenizer, seed=1)
    assert (len(samples_of(data)), len(data.evaluation)) == (40, 7)
    streamed = load_text_data(replace(args, streaming=True, max_eval_samples=5), tokenizer, seed=1)
    assert isinstance(streamed.train, StreamSamples)
    assert len(streamed.evaluation) == 5


def test_the_embedded_texts_load(tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "EVAL_PER_LIBRARY", 2)
    monkeypatch.setattr(embedded, "TRAIN_PER_LIBRARY", 5)
    data = load_text_data(DataArguments(dataset_name="docstrings"), tokenizer, seed=1)
    assert data.labels == list(embedded.LIBRARIES)
    assert (len(samples_of(data)), len(data.evaluation)) == (30, 12)


# Streams


@pytest.mark.parametrize("name", ["train.csv", "train.jsonl"])
def test_a_stream_gives_the_samples_that_the_whole_gives(load: Load, name: str) -> None:
    rows = "text,label\n" + "\n".join(f"{row['text']},{row['label']}" for row in ROWS) if "csv" in name else ROWS
    whole, streamed = (load(rows, rows, name=name, streaming=streaming) for streaming in (False, True))
    assert streamed.lengths is None
    assert streamed.labels == ["0", "1"]
    assert isinstance(streamed.train, StreamSamples)
    batches = list(
        DataLoader(StreamMicroBatches(streamed.train, 8, 1, 1, 0), batch_size=None, collate_fn=streamed.collate)
    )
    assert [len(batch["ids"]) for batch in batches] == [8] * 5
    order = [i for batch in batches for i in batch["ids"].tolist()]
    assert order != sorted(order)
    samples = {sample["id"]: sample for sample in map(streamed.train.prepare, streamed.train)}
    assert samples == {sample["id"]: sample for sample in samples_of(whole)}
    assert len(list(load(rows, rows, name=name, streaming=True, max_train_samples=9).train)) == 9  # type: ignore[call-overload]
