"""Weights of classes: what is asked for, or refused."""

import pytest
import torch

from hf_ffn.training.class_weights import class_weights
from hf_ffn.training.summary import PartSummary


def part(samples: int | None = 40, **counts: int) -> PartSummary:
    """Training data with so many of each label."""
    return PartSummary("train.csv", samples, 0, counts, None, {})


def test_balanced_classes_count_alike() -> None:
    train = part(a=30, b=10)
    assert class_weights(["balanced"], "single-label", ["a", "b"], train).tolist() == pytest.approx([2 / 3, 2])
    # Each weight times how often its class occurs is the same.
    weights = class_weights(["balanced"], "token-classification", ["O", "A", "B"], part(O=900, A=90, B=10))
    assert (weights * torch.tensor([900, 90, 10])).tolist() == pytest.approx([1000 / 3] * 3)


def test_of_several_labels_the_rare_ones_presence_counts_as_its_absence() -> None:
    weights = class_weights(["balanced"], "multi-label", ["a", "b"], part(a=10, b=32))
    assert weights.tolist() == pytest.approx([3, 0.25])


@pytest.mark.parametrize("given", [["1", "2.5"], ["1,2.5"], ["1, 2.5"]])
def test_numbers_are_taken_in_the_classes_order(given: list[str]) -> None:
    assert class_weights(given, "single-label", ["a", "b"], part(None)).tolist() == [1, 2.5]


@pytest.mark.parametrize(
    ("given", "task", "train", "message"),
    [
        (["1"], "single-label", part(a=1, b=1), "1 class_weights for 2 classes, in this order: a, b"),
        (["1", "0"], "single-label", part(a=1, b=1), "weight 0.0 of 'b' must be a number above 0"),
        (["1", "nan"], "single-label", part(a=1, b=1), "weight nan of 'b' must"),
        (
            ["balance"],
            "single-label",
            part(a=1, b=1),
            "class_weights='balance' must be balanced, or a number for each",
        ),
        (["balanced"], "single-label", part(a=40, b=0), "'b' is in no training sample"),
        (["balanced"], "multi-label", part(a=40, b=4), "'a' is in every training sample"),
        (["balanced"], "single-label", part(None), "leave out streaming"),
    ],
)
def test_weights_that_do_not_fit_are_refused(given: list[str], task: str, train: PartSummary, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        class_weights(given, task, ["a", "b"], train)


def test_numbers_have_no_classes_to_weigh() -> None:
    with pytest.raises(ValueError, match="class_weights are for classes, and regression has none"):
        class_weights(["balanced"], "regression", None, part())
