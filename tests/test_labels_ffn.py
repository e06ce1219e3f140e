"""Labels of a config.json, however they are numbered, through every place where a checkpoint enters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hf_ffn import (
    FFNForImageClassificationWithTeacher,
    FFNForSequenceClassification,
    FFNTextConfig,
    convert,
    export_pretrained,
)
from hf_ffn.labels_ffn import stand_ins

from families import ROWS
from families.rows import source_class
from tiny import ffn_model, our_class, rewrite_config, telling_model, to_bin

Save = Callable[..., Path]
CLASSIFIERS = ["BertForSequenceClassification", "BertForTokenClassification", "ViTForImageClassification"]
ODD = {
    "counted from 1": {"1": "bad", "2": "so-so", "3": "good"},
    "with gaps": {"0": "bad", "3": "so-so", "7": "good"},
    "in no order": {"2": "good", "0": "bad", "1": "so-so"},
    "more than nine": {"10": "good", "2": "bad", "9": "so-so"},
}
NAMES = {0: "bad", 1: "so-so", 2: "good"}


@pytest.mark.parametrize("labels", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("theirs", CLASSIFIERS)
def test_rows_are_labels_in_the_order_of_their_keys(
    save_source: Save, tmp_path: Path, theirs: str, labels: dict, messages: pytest.LogCaptureFixture
) -> None:
    folder = save_source(theirs, num_labels=3)
    rewrite_config(folder, id2label=labels, label2id={name: int(key) for key, name in labels.items()})
    model, report = convert(folder, tmp_path / "out")
    assert report is not None
    assert report.ok, report
    assert list(model.config.id2label.items()) == list(NAMES.items())
    assert model.config.label2id == {"bad": 0, "so-so": 1, "good": 2}
    rows = our_class(theirs).from_pretrained(folder, num_labels=3).classifier.weight
    assert torch.equal(rows, getattr(transformers, theirs).from_pretrained(folder).classifier.weight)
    assert "the rows of the classifier are bad, so-so, good" in messages.text

    # A fine-tuning starts with names, which find their rows
    again = our_class(theirs).from_pretrained(folder, id2label={0: "good", 1: "bad", 2: "so-so"})
    assert torch.equal(again.classifier.weight, rows[[2, 0, 1]])
    export_pretrained(model, tmp_path / "back")
    back = getattr(transformers, theirs).from_pretrained(tmp_path / "back")
    assert back.config.id2label == NAMES
    assert torch.equal(back.classifier.weight, rows)


@pytest.mark.parametrize("labels", ODD.values(), ids=ODD.keys())
def test_a_native_folder_and_a_configuration_count_alike(tmp_path: Path, labels: dict) -> None:
    ffn_model("FFNForSequenceClassification", num_labels=3).save_pretrained(tmp_path)
    rewrite_config(tmp_path, id2label=labels)
    model = FFNForSequenceClassification.from_pretrained(tmp_path)
    assert list(model.config.id2label.items()) == list(NAMES.items())
    config = FFNTextConfig(id2label=labels)
    assert (list(config.id2label.items()), config.label2id["good"]) == (list(NAMES.items()), 2)
    moved = FFNForSequenceClassification.from_pretrained(tmp_path, id2label={1: "good", 2: "bad", 3: "so-so"})
    assert torch.equal(moved.classifier.weight, model.classifier.weight[[2, 0, 1]])
    assert moved.config.id2label == {0: "good", 1: "bad", 2: "so-so"}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"id2label": None, "label2id": {"good": 2, "bad": 0, "so-so": 1}}, NAMES),
        ({"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "num_labels": 3}, stand_ins(3)),
        ({"id2label": {"0": 4, "1": 5, "2": 6}}, {0: "4", 1: "5", 2: "6"}),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, {0: "a", 1: "a", 2: "b"}),
    ],
    ids=["label2id alone", "num_labels beside stand-ins", "numbers for names", "a name twice"],
)  # fmt: skip
def test_what_a_config_json_leaves_open_is_read_as_it_was_meant(
    save_source: Save, tmp_path: Path, entries: dict, expected: dict
) -> None:
    folder = save_source("BertForSequenceClassification", num_labels=3)
    before = FFNForSequenceClassification.from_pretrained(folder)
    rewrite_config(folder, **entries)
    model = FFNForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == expected
    assert torch.equal(model.classifier.weight, before.classifier.weight)


@pytest.mark.parametrize("native", [False, True])
def test_labels_of_another_number_than_the_rows_are_refused(save_source: Save, tmp_path: Path, native: bool) -> None:
    folder = save_source("BertForSequenceClassification", num_labels=3)
    if native:
        FFNForSequenceClassification.from_pretrained(folder).save_pretrained(tmp_path / "native")
        folder = tmp_path / "native"
    rewrite_config(folder, id2label={"1": "bad", "3": "good"}, label2id={"bad": 1, "good": 3})
    with pytest.raises(ValueError, match=r"does not fit(.|\n)*classifier.bias is \(3,\), and \(2,\) in the model"):
        FFNForSequenceClassification.from_pretrained(folder)


# ---- more labels, and fewer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "rows", "final"),
    [
        (
            {"id2label": {0: "ugly", 1: "good", 2: "bad", 3: "so-so"}},
            [None, 2, 0, 1],
            ["ugly", "good", "bad", "so-so"],
        ),
        ({"id2label": {0: "good", 1: "bad"}}, [2, 0], ["good", "bad"]),
        ({"id2label": {0: "good", 1: "great", 2: "bad"}}, [2, None, 0], ["good", "great", "bad"]),
        ({"num_labels": 4}, [0, 1, 2, None], ["bad", "so-so", "good", "LABEL_3"]),
        ({"num_labels": 2}, [0, 1], ["bad", "so-so"]),
        # One label is a number that is predicted, and no class.
        ({"num_labels": 1}, [None], ["LABEL_0"]),
    ],
    ids=["one more", "one fewer", "one other", "more by number", "fewer by number", "regression"],
)
@pytest.mark.parametrize("theirs", CLASSIFIERS)
def test_rows_stay_with_their_labels(
    save_source: Save, theirs: str, wanted: dict[str, Any], rows: list[int | None], final: list[str]
) -> None:
    folder = save_source(theirs, id2label=NAMES, label2id={name: row for row, name in NAMES.items()})
    before = our_class(theirs).from_pretrained(folder).classifier
    model = our_class(theirs).from_pretrained(folder, **wanted)
    assert list(model.config.id2label.values()) == final
    assert model.classifier.out_features == model.num_labels == len(final)
    new = [name for row, name in zip(rows, final, strict=True) if row is None]
    for index, row in enumerate(rows):
        if row is not None:
            assert torch.equal(model.classifier.weight[index], before.weight[row])
            assert model.classifier.bias[index] == before.bias[row]
        else:
            assert 0 < model.classifier.weight[index].abs().max() <= 2 * model.config.initializer_range
            assert model.classifier.bias[index] == 0
    said = str(model.loading_report)
    assert bool(model.loading_report.new) == bool(new)
    assert all(name in said for name in final if len(final) > 1)


@pytest.mark.parametrize("suffix", ["safetensors", "bin", "shards"])
def test_rows_stay_however_the_checkpoint_is_stored(save_source: Save, tmp_path: Path, suffix: str) -> None:
    shards = {"save_kwargs": {"max_shard_size": "20KB"}} if suffix == "shards" else {}
    folder = save_source("BertForSequenceClassification", num_labels=3, **shards)
    before = FFNForSequenceClassification.from_pretrained(folder)
    if suffix == "bin":
        to_bin(folder)
    model = FFNForSequenceClassification.from_pretrained(folder, num_labels=5, dtype=torch.bfloat16)
    assert torch.equal(model.classifier.weight[:3], before.classifier.weight.bfloat16())


def test_both_heads_of_a_teachers_model_keep_their_rows(tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.name == "deit")
    theirs = "DeiTForImageClassificationWithTeacher"
    config = row.source_config(theirs)
    config.id2label = NAMES
    telling_model(source_class(theirs), config).save_pretrained(tmp_path)
    before = FFNForImageClassificationWithTeacher.from_pretrained(tmp_path)
    model = FFNForImageClassificationWithTeacher.from_pretrained(
        tmp_path, id2label={0: "good", 1: "new", 2: "bad", 3: "so-so"}
    )
    for name in ("cls_classifier", "distillation_classifier"):
        old, new = getattr(before, name), getattr(model, name)
        assert torch.equal(new.weight[[0, 2, 3]], old.weight[[2, 0, 1]])
        assert torch.equal(new.bias[[0, 2, 3]], old.bias[[2, 0, 1]])


def test_unnamed_rows_stay_where_only_their_number_changes(save_source: Save) -> None:
    folder = save_source("BertForSequenceClassification", num_labels=3)
    before = FFNForSequenceClassification.from_pretrained(folder)
    model = FFNForSequenceClassification.from_pretrained(folder, num_labels=6)
    assert torch.equal(model.classifier.weight[:3], before.classifier.weight)
    named = FFNForSequenceClassification.from_pretrained(folder, id2label=dict(enumerate("abcd")))
    assert not (named.classifier.weight[:3] == before.classifier.weight).any()
    assert "for 4 labels in place of 3" in named.loading_report.new[0]


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"id2label": {0: "a", 1: "b"}, "num_labels": 5}, "num_labels=5 beside an id2label of 2 labels"),
        ({"id2label": ["a", "b", "c"]}, r"id2label=\['a', 'b', 'c'\] must be a dictionary"),
        ({"id2label": {"a": 0, "b": 1}}, "must be a dictionary of numbers to names"),
    ],
    ids=["two numbers", "a list", "the other direction"],
)
def test_labels_that_contradict_themselves_are_refused(save_source: Save, keywords: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        FFNForSequenceClassification.from_pretrained(save_source("BertModel"), **keywords)


def test_one_direction_stands_for_both(save_source: Save) -> None:
    labels = {"good": 1, "bad": 0, "so-so": 2}
    model = FFNForSequenceClassification.from_pretrained(save_source("BertModel"), label2id=labels)
    assert model.config.id2label == {0: "bad", 1: "good", 2: "so-so"}
    assert model.classifier.out_features == 3


def test_a_classifier_of_tokens_says_nothing_behind_a_new_pooler(save_source: Save) -> None:
    folder = save_source("BertForTokenClassification", num_labels=3)
    model = FFNForSequenceClassification.from_pretrained(folder)
    assert model.loading_report.new == ["model.pooler", "classifier"]
    assert 0 < model.classifier.weight.abs().max() <= 2 * model.config.initializer_range
