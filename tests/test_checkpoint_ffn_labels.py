"""Loading: labels go by name."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hf_ffn import (
    FFNForSequenceClassification,
    FFNTextConfig,
)

from tiny import inputs_for, our_class

Save = Callable[..., Path]


NAMES = {0: "entailment", 1: "neutral", 2: "contradiction"}


def save_classifier(save_source: Save, theirs: str, labels: dict[int, str] | None = NAMES) -> Path:
    if labels is None:
        return save_source(theirs, num_labels=3)
    return save_source(theirs, id2label=labels, label2id={name: index for index, name in labels.items()})


CLASSIFIERS = ["BertForSequenceClassification", "BertForTokenClassification", "ViTForImageClassification"]


@pytest.mark.parametrize("theirs", CLASSIFIERS)
def test_labels_come_along(save_source: Save, theirs: str) -> None:
    model = our_class(theirs).from_pretrained(save_classifier(save_source, theirs))
    assert model.config.id2label == NAMES
    assert model.config.label2id == {name: index for index, name in NAMES.items()}


@pytest.mark.parametrize("theirs", CLASSIFIERS)
@pytest.mark.parametrize("native", [False, True])
def test_the_same_labels_in_another_order_move_the_rows(
    save_source: Save, tmp_path: Path, theirs: str, native: bool
) -> None:
    folder = save_classifier(save_source, theirs)
    original = our_class(theirs).from_pretrained(folder)
    if native:
        folder = tmp_path / "native"
        original.save_pretrained(folder)
    order = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    model = our_class(theirs).from_pretrained(folder, id2label=order)
    assert model.config.label2id == {"contradiction": 0, "entailment": 1, "neutral": 2}
    inputs = inputs_for(model.config)
    with torch.no_grad():
        before, after = original(**inputs).logits, model(**inputs).logits
    for name, index in model.config.label2id.items():
        assert torch.allclose(after[..., index], before[..., original.config.label2id[name]], atol=1e-6), name
    assert "rows moved" in str(model.loading_report)
    assert model.loading_report.new == []


@pytest.mark.parametrize("theirs", CLASSIFIERS)
@pytest.mark.parametrize(
    "labels", [{"0": "good", "1": "bad", "2": "ugly"}, {"0": "yes", "1": "no"}, dict(enumerate("abcde"))]
)
def test_other_labels_make_a_new_head_and_say_so(
    save_source: Save, theirs: str, labels: dict, messages: pytest.LogCaptureFixture
) -> None:
    folder = save_classifier(save_source, theirs)
    kept = our_class(theirs).from_pretrained(folder).state_dict()
    messages.clear()
    model = our_class(theirs).from_pretrained(folder, id2label=labels)
    assert list(model.config.id2label.values()) == list(labels.values())
    assert model.classifier.weight.shape[0] == len(labels)
    # A new head is drawn at initializer_range, the telling one was five times as wide.
    assert model.classifier.weight.abs().max() <= 2 * model.config.initializer_range
    assert model.classifier.bias.abs().max() == 0
    assert "newly made" in messages.text
    for name, tensor in model.state_dict().items():
        assert name.startswith("classifier.") or torch.equal(tensor, kept[name]), name


@pytest.mark.parametrize("theirs", CLASSIFIERS)
@pytest.mark.parametrize("native", [False, True])
def test_another_number_of_labels_keeps_the_first_rows_and_asks_for_names(
    save_source: Save, tmp_path: Path, theirs: str, native: bool
) -> None:
    folder = save_classifier(save_source, theirs)
    if native:
        our_class(theirs).from_pretrained(folder).save_pretrained(tmp_path / "native")
        folder = tmp_path / "native"
    before = our_class(theirs).from_pretrained(folder)
    fewer = our_class(theirs).from_pretrained(folder, num_labels=2)
    assert fewer.config.id2label == {0: "entailment", 1: "neutral"}
    assert torch.equal(fewer.classifier.weight, before.classifier.weight[:2])
    assert (fewer.loading_report.new, len(fewer.loading_report.notes)) == ([], 1)
    model = our_class(theirs).from_pretrained(folder, num_labels=5)
    assert torch.equal(model.classifier.weight[:3], before.classifier.weight)
    assert 0 < model.classifier.weight[3:].abs().max() <= 2 * model.config.initializer_range
    assert torch.equal(model.classifier.bias[:3], before.classifier.bias)
    assert model.config.id2label == {**NAMES, 3: "LABEL_3", 4: "LABEL_4"}
    assert model.classifier.weight.shape[0] == model.config.num_labels == 5
    assert "for 5 labels in place of 3" in str(model.loading_report)
    assert "unnamed" in str(model.loading_report)


@pytest.mark.parametrize("theirs", CLASSIFIERS)
def test_an_encoder_without_a_head_takes_any_labels(save_source: Save, theirs: str) -> None:
    folder = save_source("ViTModel" if theirs.startswith("ViT") else "BertModel")
    model = our_class(theirs).from_pretrained(folder, id2label=dict(enumerate("abcde")))
    assert model.classifier.weight.shape[0] == 5
    assert model.config.label2id == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
    assert model.loading_report.new == ["classifier"]


@pytest.mark.parametrize("theirs", CLASSIFIERS)
def test_names_for_a_trained_head_with_unnamed_labels_are_refused(save_source: Save, theirs: str) -> None:
    folder = save_classifier(save_source, theirs, None)
    with pytest.raises(ValueError, match="unnamed"):
        our_class(theirs).from_pretrained(folder, id2label=NAMES)
    model = our_class(theirs).from_pretrained(folder, id2label=NAMES, ignore_mismatched_sizes=True)
    assert "classifier" in model.loading_report.new[0]


@pytest.mark.parametrize(
    ("theirs", "size"),
    [(name, {"image_size": 48} if "ViT" in name else {"max_position_embeddings": 60}) for name in CLASSIFIERS],
)
def test_labels_and_sizes_change_together(save_source: Save, theirs: str, size: dict) -> None:
    folder = save_classifier(save_source, theirs)
    order = {0: "contradiction", 1: "entailment", 2: "neutral"}
    model = our_class(theirs).from_pretrained(folder, id2label=order, **size)
    before = our_class(theirs).from_pretrained(folder).classifier.weight
    assert torch.equal(model.classifier.weight, before[[2, 0, 1]])
    for said in ("rows moved", f"{next(iter(size))}="):
        assert said in str(model.loading_report)


def test_a_configuration_without_names_keeps_the_trained_heads(save_source: Save) -> None:
    folder = save_classifier(save_source, "BertForSequenceClassification")
    config = FFNTextConfig.from_pretrained(folder)
    config.id2label = {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    model = FFNForSequenceClassification.from_pretrained(folder, config=config)
    assert model.config.id2label == NAMES
    assert model.loading_report.new == []
