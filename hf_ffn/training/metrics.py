"""How good predictions are: scikit-learn's figures by task, and entities by seqeval's definition."""

import re
from collections.abc import Sequence

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    matthews_corrcoef,
    mean_absolute_error,
    mean_squared_error,
    precision_recall_fscore_support,
)

from .arguments import TASKS

# The label of what isn't to be counted: padding, special tokens, the rest of a word.
IGNORED = -100

Metrics = dict[str, float | dict]
Entity = tuple[int, int, int, str]

_LOWER_IS_BETTER = ("loss", "mse", "mae")


def compute_metrics(task: str, logits: np.ndarray, labels: np.ndarray, names: list[str] | None) -> Metrics:
    """Compare predictions with labels, by the task's metrics.

    Classification of samples, or of tokens whose names are no IOB tags: `accuracy`, `macro_f1` (over the classes that
    occur in labels or predictions), `matthews`. Tokens with IOB tags: `entity_f1`, `entity_precision`,
    `entity_recall`, and the tokens' `accuracy`. Several labels: `micro_f1`, `macro_f1` (over all labels),
    `subset_accuracy`, where a label is predicted if its probability is above 0.5. Regression: `pearson`, `spearman`,
    `mse`, `mae`. All but regression: `per_class`, by name `precision`, `recall`, `f1`, `support`, of classes, or with
    IOB tags of types of entities.

    Whatever is undefined is 0.0: a correlation where predictions or labels are constant or only one, precision where
    nothing was predicted, recall where nothing was there.

    Args:
        task: one of TASKS.
        logits: (samples, classes), for tokens (samples, tokens, classes), for regression (samples,) or (samples, 1).
        labels: class numbers, where -100 is ignored; 0 or 1 by label for several labels; values for regression.
        names: of the classes; None for their numbers.

    Raises:
        ValueError: unknown task, nothing labelled, logits that are not finite, or more or fewer names than classes.
    """
    if task not in TASKS:
        raise ValueError(f"task='{task}' is none of {', '.join(TASKS)}")
    _, logits_of_labelled, true = labelled(task, logits, labels)
    if task == "regression":
        return _regression_metrics(logits_of_labelled, true)
    names_of_classes = class_names(names, logits.shape[-1])
    if task == "multi-label":
        return _multi_label_metrics(logits_of_labelled > 0, true > 0.5, names_of_classes)
    predicted = logits_of_labelled.argmax(-1)
    if task == "token-classification" and is_iob(names):
        return {
            **_entity_metrics(logits.argmax(-1), labels, names_of_classes),
            "accuracy": float(accuracy_score(true, predicted)),
        }
    return _class_metrics(predicted, true, names_of_classes)


def metric_for_best(task: str, wanted: str | None, names: list[str] | None) -> tuple[str, bool]:
    """Choose the metric that says which model is best.

    Args:
        task: one of TASKS.
        wanted: a metric of the task or `loss`, also with `eval_` before it; None for the task's first metric.
        names: of the classes.

    Returns:
        Its name in `compute_metrics`, and whether greater is better.

    Raises:
        ValueError: `wanted` is no metric of the task; the message names those that are.
    """
    fitting = [*_metric_names(task, names), "loss"]
    name = fitting[0] if wanted is None else wanted.removeprefix("eval_")
    if name not in fitting:
        raise ValueError(f"metric_for_best_model='{wanted}' does not fit {task}; these do: {', '.join(fitting)}")
    return name, name not in _LOWER_IS_BETTER


def labelled(task: str, logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keep what has a label.

    Args:
        task: one of TASKS.
        logits: as for `compute_metrics`.
        labels: as for `compute_metrics`.

    Returns:
        The sample of each labelled item, its logits in float64 (for regression its value) and its label. An item is a
        sample, or a token in token classification.

    Raises:
        ValueError: nothing is labelled, or logits are not finite.
    """
    if task == "regression":
        logits, labels = logits.reshape(-1), labels.reshape(-1)
    if task in ("regression", "multi-label"):
        samples, kept, true = np.arange(len(labels)), logits, labels
    else:
        where = np.nonzero(labels != IGNORED)
        samples, kept, true = where[0], logits[where], labels[where]
    if not len(samples):
        raise ValueError("nothing to evaluate: there is no labelled sample")
    finite = np.isfinite(kept.reshape(len(kept), -1)).all(axis=1)
    if not finite.all():
        # argmax would take NaN for the greatest, and the figures would look like a model's.
        raise ValueError(f"the model's output for sample {samples[~finite][0]} is not finite")
    return samples, kept.astype(np.float64), true


def class_names(names: list[str] | None, number: int) -> list[str]:
    """The classes' names, or their numbers where they have none.

    Raises:
        ValueError: there are more or fewer names than classes.
    """
    if names is None:
        return [str(index) for index in range(number)]
    if len(names) != number:
        raise ValueError(f"{len(names)} names of classes, but the model's output has {number}")
    return names


def is_iob(names: list[str] | None) -> bool:
    """Whether these are IOB tags: O, B-… and I-… only, and not O alone."""
    tags = [name for name in names or [] if name != "O"]
    return bool(tags) and all(re.fullmatch("[BI]-.+", tag) for tag in tags)


def entities(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Find the entities of a sequence, as seqeval's default mode does.

    An entity begins at a B tag, and at an I tag that follows O or another type, and goes on over I tags of its type.

    Args:
        tags: O, B-TYPE or I-TYPE.

    Returns:
        First token, token after the last, and type of each.
    """
    found = set()
    start, open_type = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, tag_type = tag.partition("-")
        if prefix == "I" and tag_type == open_type:
            continue
        if open_type:
            found.add((start, place, open_type))
        start, open_type = place, tag_type
    return found


def _metric_names(task: str, names: list[str] | None) -> list[str]:
    if task == "regression":
        return ["pearson", "spearman", "mse", "mae"]
    if task == "multi-label":
        return ["micro_f1", "macro_f1", "subset_accuracy"]
    if task == "token-classification" and is_iob(names):
        return ["entity_f1", "entity_precision", "entity_recall", "accuracy"]
    return ["accuracy", "macro_f1", "matthews"]


def _class_metrics(predicted: np.ndarray, true: np.ndarray, names: list[str]) -> Metrics:
    # scikit-learn warns where there is only one class, though its answer is 0 as well.
    several = len(np.union1d(predicted, true)) > 1
    return {
        "accuracy": float(accuracy_score(true, predicted)),
        "macro_f1": float(f1_score(true, predicted, average="macro", zero_division=0)),
        "matthews": float(matthews_corrcoef(true, predicted)) if several else 0.0,
        "per_class": _per_class(predicted, true, names),
    }


def _multi_label_metrics(predicted: np.ndarray, true: np.ndarray, names: list[str]) -> Metrics:
    # scikit-learn takes a single column for two classes; with an empty one beside it, it is a label.
    wide_predicted, wide_true = (np.pad(each.astype(int), [(0, 0), (0, 1)]) for each in (predicted, true))
    per_class = _per_class(wide_predicted, wide_true, names)
    return {
        "micro_f1": float(f1_score(true.ravel(), predicted.ravel(), zero_division=0)),
        "macro_f1": float(np.mean([scores["f1"] for scores in per_class.values()])),
        "subset_accuracy": float((predicted == true).all(axis=1).mean()),
        "per_class": per_class,
    }


def _per_class(predicted: np.ndarray, true: np.ndarray, names: list[str]) -> dict[str, dict[str, float]]:
    columns = precision_recall_fscore_support(true, predicted, labels=range(len(names)), zero_division=0)
    return {
        name: {"precision": float(precision), "recall": float(recall), "f1": float(f1), "support": int(support)}
        for name, precision, recall, f1, support in zip(names, *columns, strict=True)
    }


def _regression_metrics(predicted: np.ndarray, true: np.ndarray) -> Metrics:
    defined = not _is_constant(predicted) and not _is_constant(true)
    return {
        "pearson": float(pearsonr(predicted, true).statistic) if defined else 0.0,
        "spearman": float(spearmanr(predicted, true).statistic) if defined else 0.0,
        "mse": float(mean_squared_error(true, predicted)),
        "mae": float(mean_absolute_error(true, predicted)),
    }


def _is_constant(values: np.ndarray) -> bool:
    # Up to rounding: the correlation of rounding errors would mean nothing.
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max())


def _entity_metrics(predicted: np.ndarray, labels: np.ndarray, names: list[str]) -> Metrics:
    true_entities: set[Entity] = set()
    predicted_entities: set[Entity] = set()
    for sample, (guesses, truths) in enumerate(zip(predicted, labels, strict=True)):
        kept = truths != IGNORED
        for into, numbers in ((true_entities, truths[kept]), (predicted_entities, guesses[kept])):
            into |= {(sample, *entity) for entity in entities([names[number] for number in numbers])}
    overall = _overlap(predicted_entities, true_entities)
    types = dict.fromkeys(name[2:] for name in names if name != "O")
    return {
        "entity_f1": overall["f1"],
        "entity_precision": overall["precision"],
        "entity_recall": overall["recall"],
        "per_class": {
            each: _overlap(*({e for e in found if e[-1] == each} for found in (predicted_entities, true_entities)))
            for each in types
        },
    }


def _overlap(predicted: set[Entity], true: set[Entity]) -> dict[str, float]:
    common = len(predicted & true)
    return {
        "precision": common / max(len(predicted), 1),
        "recall": common / max(len(true), 1),
        "f1": 2 * common / max(len(predicted) + len(true), 1),
        "support": len(true),
    }
