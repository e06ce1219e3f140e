"""What a run leaves for people to read: results, pictures, and the worst mistakes."""

import html
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.special import expit, softmax
from sklearn.metrics import confusion_matrix

from ..digest import DIGEST, picture_texts
from ..folders_ffn import staged_folder
from .metrics import IGNORED, class_names, compute_metrics, labelled, metric_for_best

_DPI = 150
_BINS = 10
_LONGEST_TEXT = 120
_LONGEST_NAME = 24
_MOST_MISTAKES = 20
# Cells of more classes are too small for numbers.
_MOST_COUNTED_CLASSES = 25


@dataclass
class Decisions:
    """What a classifier decided: a class for each item, or yes or no for each label of each item.

    Attributes:
        samples: the sample of each decision.
        true: number of the true outcome.
        predicted: number of the predicted outcome.
        probabilities: of the predicted outcomes, as the model gives them.
        names: of the outcomes; for several labels two each, "not NAME" and "NAME".
        tokens: in token classification which of its sample's labelled tokens each decision is about.
    """

    samples: np.ndarray
    true: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray
    names: list[str]
    tokens: np.ndarray | None = None


def write_report(
    folder: Path,
    *,
    task: str,
    history: list[dict],
    evaluations: list[dict],
    metrics: dict,
    logits: np.ndarray,
    labels: np.ndarray,
    names: list[str] | None,
    texts: Callable[[int], str],
    summary: dict,
    model_sha256: str,
) -> None:
    """Write all_results.json, worst_mistakes.md and the pictures of a run into its folder, all or none.

    The pictures are training_curves.png and, for classification, confusion_matrix.png and reliability.png, for
    regression predictions.png. What else lies in the folder stays.

    Args:
        folder: of the run.
        task: one of TASKS.
        history: of each step "step", "epoch", "loss", "learning_rate".
        evaluations: of each evaluation "step", "epoch", "loss" and the metrics.
        metrics: of the last evaluation.
        logits: of the last evaluation, as for `compute_metrics`.
        labels: of the last evaluation, as for `compute_metrics`.
        names: of the classes; None for their numbers.
        texts: what to show of a sample in the table of mistakes.
        summary: other facts for all_results.json; overrules metrics of the same name.
        model_sha256: of the model as it was saved (see `model_digest`), which results and pictures are about.

    Raises:
        ValueError: nothing is labelled, or logits are not finite.
    """
    with staged_folder(folder) as stage:
        content = plain({**metrics, **summary, DIGEST: model_sha256})
        results = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        (stage / "all_results.json").write_text(results + "\n", encoding="utf-8")

        def save(figure: Figure, name: str) -> None:
            figure.savefig(stage / name, dpi=_DPI, metadata=picture_texts(name, model_sha256))

        curves = draw_training_curves(history, evaluations, metric_for_best(task, None, names)[0])
        save(curves, "training_curves.png")
        if task == "regression":
            save(draw_predictions(logits, labels), "predictions.png")
            mistakes = largest_errors_table(logits, labels, texts)
        else:
            decisions = decide(task, logits, labels, names)
            save(draw_confusion(task, decisions), "confusion_matrix.png")
            save(draw_reliability(decisions), "reliability.png")
            mistakes = worst_mistakes_table(decisions, texts)
        (stage / "worst_mistakes.md").write_text(mistakes, encoding="utf-8")


def plain(value: Any) -> Any:
    """Turn a value into what JSON knows: numpy's to Python's, numbers that are not finite to None, others to text."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(each) for each in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def decide(task: str, logits: np.ndarray, labels: np.ndarray, names: list[str] | None) -> Decisions:
    """Read a classifier's decisions, and how sure it was, off its logits.

    Args:
        task: any but regression.
        logits: as for `compute_metrics`.
        labels: as for `compute_metrics`.
        names: of the classes; None for their numbers.
    """
    samples, kept, true = labelled(task, logits, labels)
    known = class_names(names, logits.shape[-1])
    if task != "multi-label":
        tokens = None
        if task == "token-classification":
            is_labelled = labels != IGNORED
            tokens = (is_labelled.cumsum(axis=1) - 1)[is_labelled]
        return Decisions(samples, true, kept.argmax(-1), softmax(kept, axis=-1).max(-1), known, tokens)
    # Outcomes 2·label and 2·label + 1: the label is absent, or there.
    first = 2 * np.arange(len(known))
    return Decisions(
        samples=np.repeat(samples, len(known)),
        true=(first + (true > 0.5)).ravel(),
        predicted=(first + (kept > 0)).ravel(),
        probabilities=expit(np.abs(kept)).ravel(),
        names=[outcome for name in known for outcome in (f"not {name}", name)],
    )


def draw_training_curves(history: list[dict], evaluations: list[dict], metric: str) -> Figure:
    """Draw losses, the main metric and the learning rate over the steps.

    Args:
        history: as for `write_report`.
        evaluations: as for `write_report`.
        metric: which of the evaluations' metrics to draw.
    """
    figure = Figure(figsize=(8, 8), layout="constrained")
    loss_axes, metric_axes, rate_axes = figure.subplots(3, sharex=True, height_ratios=[3, 3, 2])
    steps = [entry["step"] for entry in history]
    losses = [entry["loss"] for entry in history]
    marker = "." if len(history) < 50 else ""
    window = len(history) // 25
    smooth = window > 1
    _line(loss_axes, steps, losses, "training, each step", "C0", marker, alpha=0.3 if smooth else 1.0)
    if smooth:
        means = np.convolve(losses, np.ones(window) / window, mode="valid").tolist()
        # The mean of a window stands at its middle.
        _line(loss_axes, steps[window // 2 :][: len(means)], means, f"training, mean of {window} steps", "C0")
    evaluated = [entry["step"] for entry in evaluations]
    _line(loss_axes, evaluated, [entry["loss"] for entry in evaluations], "evaluation", "C1", "o")
    _line(metric_axes, evaluated, [entry[metric] for entry in evaluations], "evaluation", "C1", "o")
    _line(rate_axes, steps, [entry["learning_rate"] for entry in history], "", "C2", marker)

    shown = metric.replace("_", " ")
    for axes, label in ((loss_axes, "loss"), (metric_axes, shown), (rate_axes, "learning rate")):
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if not axes.lines:
            axes.text(0.5, 0.5, "nothing recorded", transform=axes.transAxes, ha="center", va="center", color="gray")
    if loss_axes.lines:
        loss_axes.legend()
    rate_axes.set_xlabel("step")
    rate_axes.set_ylim(bottom=0)
    rate_axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    last_step = max([*steps, *evaluated], default=0)
    rate_axes.set_xlim(0, 1.02 * max(last_step, 1))
    outcome = f"evaluation {shown} {evaluations[-1][metric]:.4g} at the end" if evaluations else "no evaluation"
    figure.suptitle(f"Training up to step {last_step:,}: {outcome}")
    return figure


def draw_confusion(task: str, decisions: Decisions) -> Figure:
    """Draw how often each class was taken for each; for several labels, how often each was missed or made up.

    Args:
        task: any but regression.
        decisions: from `decide`.
    """
    names = [_cut(name, _LONGEST_NAME) for name in decisions.names]
    counts, shares = (
        confusion_matrix(decisions.true, decisions.predicted, labels=range(len(names)), normalize=how)
        for how in (None, "true")
    )
    right = np.trace(counts) / counts.sum()
    if task == "multi-label":
        # Each label has a confusion matrix of its own, which lies on the diagonal; here it becomes a row.
        first = np.arange(0, len(names), 2)
        pairs = [(first + true, first + predicted) for true in (0, 1) for predicted in (0, 1)]
        counts, shares = (np.stack([matrix[pair] for pair in pairs], axis=1) for matrix in (counts, shares))
        columns = ["absent,\nnot predicted", "absent,\nbut predicted", "there,\nbut missed", "there,\npredicted"]
        title = f"Labels as they were and as predicted,\n{counts.sum():,} decisions, {right:.1%} right"
        return _draw_matrix(counts, shares, names[1::2], columns, title, ("label", ""))
    items = "tokens" if task == "token-classification" else "samples"
    rows = [f"{name} ({count:,})" for name, count in zip(names, counts.sum(axis=1), strict=True)]
    title = f"True and predicted classes of {counts.sum():,} {items}, {right:.1%} right"
    return _draw_matrix(counts, shares, rows, names, title, ("true class (and how many)", "predicted class"))


def draw_reliability(decisions: Decisions) -> Figure:
    """Draw how often the classifier is right over how sure it is, with the expected calibration error.

    Args:
        decisions: from `decide`.
    """
    right = decisions.true == decisions.predicted
    counts, confidences, accuracies = reliability_bins(decisions.probabilities, right)
    error = expected_calibration_error(decisions.probabilities, right)
    figure = Figure(figsize=(6.5, 7), layout="constrained")
    axes, count_axes = figure.subplots(2, sharex=True, height_ratios=[3, 1])
    filled = counts > 0
    middles = (np.arange(_BINS) + 0.5) / _BINS
    width = 0.96 / _BINS
    axes.bar(middles[filled], accuracies[filled], width, color="C0", alpha=0.6, label="right in this bin")
    axes.plot(confidences[filled], accuracies[filled], "o", color="C0", label="at the bin's mean probability")
    axes.plot([0, 1], [0, 1], "--", color="gray", label="perfectly calibrated")
    axes.set(xlim=(0, 1), ylim=(0, 1.03), ylabel="share of right predictions")
    axes.legend(loc="upper left")
    count_axes.bar(middles, counts, width, color="C1", alpha=0.8)
    count_axes.set(xlabel="probability of the predicted class", ylabel="predictions")
    count_axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    for each in (axes, count_axes):
        each.set_xticks(np.linspace(0, 1, _BINS + 1))
        each.grid(alpha=0.3)
        each.set_axisbelow(True)
    figure.suptitle(
        f"Is the model as often right as it is sure? {len(right):,} predictions,\n"
        f"{np.mean(right):.1%} right, {np.mean(decisions.probabilities):.1%} sure on average; "
        f"expected calibration error {error:.3f}"
    )
    return figure


def draw_predictions(logits: np.ndarray, labels: np.ndarray) -> Figure:
    """Draw predicted over true values of a regression.

    Args:
        logits: as for `compute_metrics`.
        labels: as for `compute_metrics`.
    """
    _, predicted, true = labelled("regression", logits, labels)
    scores = compute_metrics("regression", predicted, true, None)
    figure = Figure(figsize=(6.5, 6.5), layout="constrained")
    axes = figure.subplots()
    # Many points must still show where they are dense.
    axes.scatter(true, predicted, s=14, alpha=min(0.7, max(0.1, 100 / len(true))), linewidths=0, color="C0")
    low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
    margin = 0.05 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    axes.plot(limits, limits, "--", color="gray", label="predicted = true")
    axes.set(xlim=limits, ylim=limits, aspect="equal", xlabel="true value", ylabel="predicted value")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    axes.set_title(
        f"Predicted over true values of {len(true):,} samples:\n"
        f"Pearson {scores['pearson']:.3f}, mean absolute error {scores['mae']:.3g}"
    )
    return figure


def reliability_bins(probabilities: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort predictions by probability into ten bins of equal width, each with its upper edge.

    Args:
        probabilities: of the predicted classes.
        right: whether each prediction is right.

    Returns:
        Of each bin the number of predictions, their mean probability, and the share of right ones (0 in empty bins).
    """
    bins = np.searchsorted(np.linspace(0, 1, _BINS + 1)[1:-1], probabilities)
    counts = np.bincount(bins, minlength=_BINS)
    confidences, accuracies = (
        np.bincount(bins, weights=values, minlength=_BINS) / np.maximum(counts, 1) for values in (probabilities, right)
    )
    return counts, confidences, accuracies


def expected_calibration_error(probabilities: np.ndarray, right: np.ndarray) -> float:
    """Mean distance between mean probability and share of right predictions, over the bins, by their size.

    Args:
        probabilities: of the predicted classes.
        right: whether each prediction is right.
    """
    counts, confidences, accuracies = reliability_bins(probabilities, right)
    return float(np.average(np.abs(confidences - accuracies), weights=counts))


def worst_mistakes_table(decisions: Decisions, texts: Callable[[int], str]) -> str:
    """Tabulate the mistakes that the classifier was surest of, as Markdown.

    Args:
        decisions: from `decide`.
        texts: what to show of a sample.
    """
    wrong = np.flatnonzero(decisions.true != decisions.predicted)
    worst = wrong[np.argsort(-decisions.probabilities[wrong], kind="stable")][:_MOST_MISTAKES]
    rows = []
    for place in worst:
        outcomes = [decisions.names[numbers[place]] for numbers in (decisions.true, decisions.predicted)]
        sample = int(decisions.samples[place])
        token = [] if decisions.tokens is None else [str(decisions.tokens[place])]
        rows.append([str(sample), *token, texts(sample), *outcomes, f"{decisions.probabilities[place]:.4f}"])
    heading = f"The {len(worst)} most confident of {len(wrong)} mistakes in {len(decisions.true)} predictions"
    place_columns = ["sample"] if decisions.tokens is None else ["sample", "labelled token"]
    return _table(heading, [*place_columns, "text", "true", "predicted", "probability"], rows)


def largest_errors_table(logits: np.ndarray, labels: np.ndarray, texts: Callable[[int], str]) -> str:
    """Tabulate the largest errors of a regression, as Markdown.

    Args:
        logits: as for `compute_metrics`.
        labels: as for `compute_metrics`.
        texts: what to show of a sample.
    """
    _, predicted, true = labelled("regression", logits, labels)
    errors = predicted - true
    worst = np.argsort(-np.abs(errors), kind="stable")[:_MOST_MISTAKES]
    rows = [
        [str(sample), texts(int(sample)), *(f"{each[sample]:.4g}" for each in (true, predicted, errors))]
        for sample in worst
    ]
    heading = f"The {len(worst)} largest errors in {len(true)} predictions"
    return _table(heading, ["sample", "text", "true", "predicted", "error"], rows)


def _table(heading: str, columns: list[str], rows: list[list[str]]) -> str:
    lines = [f"# {heading}", ""]
    if rows:
        lines += ["Numbering begins at 0.", "", _row(columns), _row(["---"] * len(columns))]
    return "\n".join([*lines, *(_row([_escape(cell) for cell in row]) for row in rows)]) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """A text as it may stand in a Markdown table: one line, cut, and nothing in it taken for markup."""
    return re.sub(r"([\\`*_~|\[\]])", r"\\\1", html.escape(_cut(text, _LONGEST_TEXT), quote=False))


def _cut(text: str, longest: int) -> str:
    """The text on one line, without what cannot be shown, and no longer than that."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _line(axes: Axes, x: list, y: list, label: str, color: str, marker: str = "", alpha: float = 1.0) -> None:
    if x:
        axes.plot(x, y, color=color, marker=marker, label=label, alpha=alpha)


def _draw_matrix(
    counts: np.ndarray,
    shares: np.ndarray,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    axis_labels: tuple[str, str],
) -> Figure:
    """Draw shares as colours, and with the counts in the cells where there is room."""
    width, height = (min(14.0, 3.5 + 0.5 * number) for number in (len(columns), len(rows)))
    figure = Figure(figsize=(max(8.0, width), max(4.0, height)), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    figure.colorbar(image, ax=axes, label="share of what was true", format=PercentFormatter(1))
    _name_ticks(axes, rows, columns, figure.get_figwidth())
    axes.set(title=title, ylabel=axis_labels[0], xlabel=axis_labels[1])
    if len(rows) <= _MOST_COUNTED_CLASSES:
        for row, column in zip(*np.nonzero(counts), strict=True):
            share = shares[row, column]
            text = f"{counts[row, column]:,}\n{share:.0%}"
            color = "white" if share > 0.5 else "black"
            axes.text(column, row, text, ha="center", va="center", color=color, fontsize=9 if len(rows) <= 12 else 7)
    return figure


def _name_ticks(axes: Axes, rows: Sequence[str], columns: Sequence[str], inches: float) -> None:
    """Name rows and columns, leaving names out where there are too many to read."""
    for names, set_ticks in ((rows, axes.set_yticks), (columns, axes.set_xticks)):
        places = range(0, len(names), math.ceil(len(names) / 60))
        # A dollar sign in a name is no formula.
        set_ticks(places, [names[place] for place in places], parse_math=False, fontsize=10 if len(names) <= 25 else 7)
    widest = max(len(line) for name in columns for line in name.split("\n"))
    # About twelve characters an inch, without the inch and a half of the colour bar.
    if widest * len(columns) + max(map(len, rows)) > 12 * (inches - 1.5):
        axes.tick_params(axis="x", rotation=90)
