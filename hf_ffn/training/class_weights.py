"""Weights of classes in the loss, for data in which some are rare."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from .labels import IGNORED
from .summary import PartSummary

BALANCED = "balanced"


def class_weights(given: Sequence[str], task: str, names: Sequence[str] | None, train: PartSummary) -> torch.Tensor:
    """The weight of each class; of several labels at once, of each label where it is there against where it is not.

    Args:
        given: `balanced`, or a number for each class, in their order.
        task: one of `TASKS`.
        names: of the classes.
        train: how often each occurs.

    Raises:
        ValueError: numbers are predicted, so many weights as classes were not given, one is not above 0, or classes
            that do not occur are to be balanced.
    """
    if names is None:
        raise ValueError(f"class_weights are for classes, and {task} has none")
    given = [each.strip() for every in given for each in every.split(",")]
    if given == [BALANCED]:
        return torch.tensor(balanced(task, names, train), dtype=torch.float32)
    try:
        weights = [float(each) for each in given]
    except ValueError:
        raise ValueError(f"class_weights='{','.join(given)}' must be {BALANCED}, or a number for each class") from None
    if len(weights) != len(names):
        raise ValueError(f"{len(weights)} class_weights for {len(names)} classes, in this order: {', '.join(names)}")
    for name, weight in zip(names, weights, strict=True):
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"the class weight {weight} of '{name}' must be a number above 0")
    return torch.tensor(weights, dtype=torch.float32)


def balanced(task: str, names: Sequence[str], train: PartSummary) -> list[float]:
    """Weights by which all classes, or the presence and absence of each label, count alike; as scikit-learn has them.

    Raises:
        ValueError: one does not occur, or nobody knows.
    """
    if train.samples is None:
        raise ValueError(f"class_weights {BALANCED} needs all training data: leave out streaming, or give numbers")
    counts = [train.counts[name] for name in names]
    several = task == "multi-label"
    for name, count in zip(names, counts, strict=True):
        if count == 0 or (several and count == train.samples):
            how_many = "every" if count else "no"
            raise ValueError(f"class_weights {BALANCED}: '{name}' is in {how_many} training sample; give numbers")
    if not several:
        return list(weights_of(counts))
    pairs = (weights_of([train.samples - count, count]) for count in counts)
    return [float(there / absent) for absent, there in pairs]


def weights_of(counts: Sequence[int]) -> np.ndarray:
    """scikit-learn's balanced weights of classes that occur so often."""
    classes = np.arange(len(counts))
    return compute_class_weight(BALANCED, classes=classes, y=np.repeat(classes, counts))


def total_weight(task: str, labels: torch.Tensor, weights: torch.Tensor) -> float:
    """What a weighted loss is a mean over, as in torch: the weights of the labelled items, or decisions on labels."""
    return float(labels.numel() if task == "multi-label" else weights[labels[labels != IGNORED]].sum())


def weighted_loss(task: str, logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted loss, summed over the labelled items.

    Args:
        task: one of `TASKS`, with classes.
        logits: `(batch, classes)`, of tokens `(batch, tokens, classes)`.
        labels: class numbers, where -100 is ignored; 0 or 1 by label for several labels.
        weights: from `class_weights`.
    """
    logits = logits.float()
    if task == "multi-label":
        return functional.binary_cross_entropy_with_logits(logits, labels, pos_weight=weights, reduction="sum")
    flat = logits.reshape(-1, logits.shape[-1])
    return functional.cross_entropy(flat, labels.reshape(-1), weight=weights, ignore_index=IGNORED, reduction="sum")
