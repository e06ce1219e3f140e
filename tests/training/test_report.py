"""What a run leaves is complete, plain, safe to show, and there as a whole or not at all."""

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from hf_ffn.training.metrics import compute_metrics, metric_for_best
from hf_ffn.training.report import (
    decide,
    draw_confusion,
    draw_predictions,
    draw_reliability,
    draw_training_curves,
    expected_calibration_error,
    largest_errors_table,
    reliability_bins,
    worst_mistakes_table,
    write_report,
)

TAGS = ["O", "B-PER", "I-PER"]
RNG = np.random.default_rng(0)
# By task: logits, labels (of class 2 none), names.
DATA: dict[str, tuple[np.ndarray, np.ndarray, list[str] | None]] = {
    "single-label": (RNG.normal(size=(12, 3)), np.arange(12) % 2, ["a", "b", "never"]),
    "image-classification": (RNG.normal(size=(12, 3)), np.arange(12) % 2, None),
    "multi-label": (RNG.normal(size=(12, 3)), np.arange(36).reshape(12, 3) % 3 < 2, ["a", "b", "never"]),
    "token-classification": (RNG.normal(size=(4, 3, 3)), np.array([[-100, 0, 1]] * 4), TAGS),
    "regression": (RNG.normal(size=(12, 1)), np.arange(12.0), None),
}


def report(folder: Path, task: str, *, steps: int = 60, evaluations: int = 2, **changes: Any) -> dict[str, Any]:
    """Write a report, and return its results."""
    logits, labels, names = DATA[task]
    metric = metric_for_best(task, None, names)[0]
    given: dict[str, Any] = {
        "history": [{"step": i + 1, "epoch": 0, "loss": 1 / (i + 1), "learning_rate": 1e-3} for i in range(steps)],
        "evaluations": [{"step": 30 * (i + 1), "epoch": i, "loss": 1.0, metric: 0.5} for i in range(evaluations)],
        "metrics": compute_metrics(task, logits, labels, names),
        "texts": lambda sample: f"text {sample}",
        "summary": {"train_steps": steps},
        "model_sha256": "0" * 64,
    }
    write_report(folder, task=task, logits=logits, labels=labels, names=names, **(given | changes))
    return json.loads((folder / "all_results.json").read_text())


@pytest.mark.parametrize("task", DATA)
@pytest.mark.parametrize(("steps", "evaluations"), [(60, 2), (0, 1)])
def test_every_task_gets_its_files_and_nothing_else(tmp_path: Path, task: str, steps: int, evaluations: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report(tmp_path / "run", task, steps=steps, evaluations=evaluations)
    pictures = {"predictions.png"} if task == "regression" else {"confusion_matrix.png", "reliability.png"}
    pictures.add("training_curves.png")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"all_results.json", "worst_mistakes.md"} | pictures
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    for name in pictures:
        with Image.open(tmp_path / "run" / name) as picture:
            # Something was drawn: not all of one colour.
            assert picture.convert("L").getextrema() == (0, 255)


def test_results_are_plain_json_of_metrics_and_summary(tmp_path: Path) -> None:
    summary = {
        "speed": np.float32(0.5), "steps": np.int64(7), "loss": float("nan"), "worst": np.float64("inf"),
        "vector": np.array([1.0, np.nan]), "best": {"step": np.int64(3)}, "folder": Path("x"),
        "done": True, "no": None,
    }  # fmt: skip
    results = report(
        tmp_path, "regression", metrics={"accuracy": 0.25, "per_class": {"é": {"f1": 1.0}}}, summary=summary
    )
    assert results == {
        "accuracy": 0.25, "per_class": {"é": {"f1": 1.0}}, "speed": 0.5, "steps": 7, "loss": None, "worst": None,
        "vector": [1.0, None], "best": {"step": 3}, "folder": "x", "done": True, "no": None,
        "model_sha256": "0" * 64,
    }  # fmt: skip


def test_a_report_that_fails_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    report(tmp_path / "run", "regression")
    (tmp_path / "run" / "model.safetensors").write_text("weights")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    def broken(sample: int) -> str:
        raise RuntimeError("no such text")

    with pytest.raises(RuntimeError, match="no such text"):
        report(tmp_path / "run", "regression", texts=broken, summary={"train_steps": 99})
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    report(tmp_path / "run", "regression")
    assert (tmp_path / "run" / "model.safetensors").read_text() == "weights"


def rows_of(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its head."""
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]


def test_the_most_confident_mistakes_come_first() -> None:
    logits = np.log([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
    decisions = decide("single-label", logits, np.array([1, 1, 0, 1]), ["no", "yes"])
    table = worst_mistakes_table(decisions, lambda sample: f"text {sample}")
    assert table.startswith("# The 3 most confident of 3 mistakes in 4 predictions\n")
    assert rows_of(table) == [
        ["0", "text 0", "yes", "no", "0.9000"],
        ["3", "text 3", "yes", "no", "0.7000"],
        ["2", "text 2", "no", "yes", "0.6000"],
    ]


def test_at_most_twenty_mistakes_are_shown() -> None:
    logits = np.stack([np.linspace(1, 4, 30), np.zeros(30)], axis=1)
    rows = rows_of(worst_mistakes_table(decide("single-label", logits, np.ones(30, int), None), str))
    assert [row[0] for row in rows] == [str(sample) for sample in range(29, 9, -1)]
    perfect = worst_mistakes_table(decide("single-label", logits, np.zeros(30, int), None), str)
    assert perfect == "# The 0 most confident of 0 mistakes in 30 predictions\n\n"


def test_mistakes_of_tokens_name_the_token_and_skip_ignored_ones() -> None:
    labels = np.array([[-100, 0, -100, 1], [-100, -100, -100, -100], [-100, 2, 2, -100]])
    predicted = np.array([[2, 0, 2, 0], [1, 1, 1, 1], [0, 2, 2, 0]])
    decisions = decide("token-classification", np.eye(3)[predicted], labels, TAGS)
    probability = np.e / (np.e + 2)
    assert rows_of(worst_mistakes_table(decisions, str)) == [["0", "1", "0", "B-PER", "O", f"{probability:.4f}"]]


def test_mistakes_of_several_labels_say_what_was_there() -> None:
    logits = np.log([[0.8 / 0.2, 0.1 / 0.9]])
    decisions = decide("multi-label", logits, np.array([[0, 1]]), ["a", "b"])
    assert rows_of(worst_mistakes_table(decisions, str)) == [
        ["0", "0", "b", "not b", "0.9000"],
        ["0", "0", "not a", "a", "0.8000"],
    ]


def test_the_largest_errors_come_first() -> None:
    table = largest_errors_table(np.array([[1.0], [-5.0], [2.5]]), np.array([1.0, 2.0, 2.0]), str)
    assert rows_of(table) == [["1", "1", "2", "-5", "-7"], ["2", "2", "2", "2.5", "0.5"], ["0", "0", "1", "1", "0"]]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a | b\n\n<script>x</script>\t&amp;", r"a \| b &lt;script&gt;x&lt;/script&gt; &amp;amp;"),
        ("**b** _i_ `c` [l](u) ~s~ \\|", r"\*\*b\*\* \_i\_ \`c\` \[l\](u) \~s\~ \\\|"),
        ("bell\x07 \x1b[31mred \ud800 end", r"bell \[31mred end"),
        ("é" * 121, "é" * 119 + "…"),
        ("|" * 120, r"\|" * 120),
    ],
)
def test_texts_and_names_cannot_break_the_table(text: str, shown: str) -> None:
    decisions = decide("single-label", np.array([[0.0, 1.0]]), np.array([0]), [text, "b"])
    table = worst_mistakes_table(decisions, lambda sample: text)
    table.encode("utf-8")
    assert table.splitlines()[-1] == f"| 0 | {shown} | {shown} | b | 0.7311 |"


def test_the_calibration_error_is_the_mean_gap_by_size_of_the_bins() -> None:
    probabilities = np.array([0.95, 0.85, 0.9, 0.55])
    right = np.array([True, True, False, False])
    counts, confidences, shares = reliability_bins(probabilities, right)
    # A bin includes its upper edge: 0.9 lies with 0.85.
    assert counts.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 2, 1]
    assert confidences[[5, 8, 9]] == pytest.approx([0.55, 0.875, 0.95])
    assert shares[[5, 8, 9]] == pytest.approx([0, 0.5, 1])
    assert expected_calibration_error(probabilities, right) == pytest.approx((0.55 + 2 * 0.375 + 0.05) / 4)
    assert expected_calibration_error(np.ones(3), np.ones(3, bool)) == 0


def test_the_reliability_diagram_shows_the_bins_and_the_error() -> None:
    decisions = decide("single-label", np.log([[0.75, 0.25], [0.75, 0.25]]), np.array([0, 1]), None)
    figure = draw_reliability(decisions)
    assert "50.0% right, 75.0% sure on average; expected calibration error 0.250" in figure.get_suptitle()
    (bar,) = figure.axes[0].patches
    assert (bar.get_x() + bar.get_width() / 2, bar.get_height()) == pytest.approx((0.75, 0.5))
    assert [patch.get_height() for patch in figure.axes[1].patches] == [0] * 7 + [2, 0, 0]


def texts_in(figure: Figure) -> dict[tuple[float, float], str]:
    """The texts in a picture's cells, by row and column."""
    return {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in figure.axes[0].texts}


def test_the_confusion_matrix_counts_and_shares_by_true_class() -> None:
    logits = np.eye(3)[[0, 0, 0, 1, 1]]
    figure = draw_confusion(
        "single-label", decide("single-label", logits, np.array([0, 0, 0, 0, 1]), ["a", "$b$", "c"])
    )
    assert texts_in(figure) == {(0, 0): "3\n75%", (0, 1): "1\n25%", (1, 1): "1\n100%"}
    assert figure.axes[0].images[0].get_array().tolist() == [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a (4)", "$b$ (1)", "c (0)"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["a", "$b$", "c"]
    assert figure.axes[0].get_title() == "True and predicted classes of 5 samples, 80.0% right"


def test_several_labels_have_a_confusion_each() -> None:
    true = np.array([[0, 1], [0, 1], [1, 1]])
    logits = np.array([[-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    figure = draw_confusion("multi-label", decide("multi-label", logits, true, ["a", "b"]))
    assert texts_in(figure) == {
        (0, 0): "1\n50%", (0, 1): "1\n50%", (0, 3): "1\n100%", (1, 2): "1\n33%", (1, 3): "2\n67%"
    }  # fmt: skip
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "b"]


@pytest.mark.parametrize("task", ["single-label", "multi-label"])
@pytest.mark.parametrize("length", [9, 40])
@pytest.mark.parametrize("classes", [2, 5, 20, 200])
def test_names_fit_into_the_picture_however_many_and_long(task: str, length: int, classes: int) -> None:
    names = [f"{index} class of that number, or so it is said"[:length] for index in range(classes)]
    labels = np.arange(classes) if task == "single-label" else np.eye(classes)
    figure = draw_confusion(task, decide(task, np.eye(classes), labels, names))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    for labels, side in ((axes.get_xticklabels(), 0), (axes.get_yticklabels(), 1)):
        boxes = [label.get_window_extent() for label in labels]
        assert all(figure.bbox.contains(*corner) for box in boxes for corner in (box.min, box.max))
        spans = sorted((box.intervalx if side == 0 else box.intervaly).tolist() for box in boxes)
        assert all(before[1] <= after[0] for before, after in pairwise(spans)), "names overlap"


def test_the_curves_are_those_recorded() -> None:
    history = [{"step": i, "epoch": 0, "loss": float(i % 2), "learning_rate": 0.1 * i} for i in range(1, 101)]
    figure = draw_training_curves(history, [{"step": 50, "epoch": 0, "loss": 0.7, "accuracy": 0.9}], "accuracy")
    training, smooth, evaluation = figure.axes[0].lines
    assert training.get_ydata().tolist() == [entry["loss"] for entry in history]
    # Four steps have the mean 1/2, and the line begins in the middle of the first four.
    assert smooth.get_ydata() == pytest.approx(np.full(97, 0.5))
    assert (smooth.get_xdata()[0], smooth.get_xdata()[-1]) == (3, 99)
    assert (evaluation.get_xdata(), evaluation.get_ydata()) == ([50], [0.7])
    assert figure.axes[1].lines[0].get_ydata() == [0.9]
    assert figure.axes[2].lines[0].get_ydata().tolist() == [entry["learning_rate"] for entry in history]
    assert figure.get_suptitle() == "Training up to step 100: evaluation accuracy 0.9 at the end"


def test_predictions_lie_over_their_true_values() -> None:
    figure = draw_predictions(np.array([[1.0], [1.0]]), np.array([0.0, 4.0]))
    assert figure.axes[0].collections[0].get_offsets().tolist() == [[0, 1], [4, 1]]
    assert "Pearson 0.000, mean absolute error 2" in figure.axes[0].get_title()
