"""The figures are those that pencil and paper give."""

import warnings

import numpy as np
import pytest

from hf_ffn.training.arguments import TASKS
from hf_ffn.training.metrics import compute_metrics, entities, metric_for_best

TAGS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]


@pytest.fixture(autouse=True)
def no_warnings() -> object:
    """A warning of scikit-learn's or scipy's would mean that something undefined was computed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def logits_of(predicted: list, classes: int) -> np.ndarray:
    """Logits whose greatest are those classes."""
    return 3.0 * np.eye(classes, dtype=np.float32)[np.array(predicted)]


@pytest.mark.parametrize("task", ["single-label", "image-classification"])
def test_classes_have_accuracy_macro_f1_matthews_and_figures_each(task: str) -> None:
    logits = logits_of([0, 0, 0, 1, 1, 0], classes=2)
    found = compute_metrics(task, logits, np.array([0, 0, 0, 1, 1, 1]), ["no", "yes"])
    # no: 3 of 4 predictions right, 3 of 3 found; yes: 2 of 2 right, 2 of 3 found.
    f1_no, f1_yes = 6 / 7, 4 / 5
    assert found["accuracy"] == pytest.approx(5 / 6)
    assert found["macro_f1"] == pytest.approx((f1_no + f1_yes) / 2)
    assert found["matthews"] == pytest.approx((3 * 2 - 0 * 1) / np.sqrt(4 * 3 * 3 * 2))
    assert found["per_class"] == {
        "no": pytest.approx({"precision": 3 / 4, "recall": 1, "f1": f1_no, "support": 3}),
        "yes": pytest.approx({"precision": 1, "recall": 2 / 3, "f1": f1_yes, "support": 3}),
    }


def test_a_class_that_does_not_occur_has_zeros_and_does_not_count_in_the_mean() -> None:
    found = compute_metrics("single-label", logits_of([0, 1, 1], classes=3), np.array([0, 1, 0]), None)
    assert found["macro_f1"] == pytest.approx((2 / 3 + 2 / 3) / 2)
    assert found["per_class"]["2"] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}


def test_one_class_alone_has_no_correlation() -> None:
    found = compute_metrics("single-label", logits_of([1, 1], classes=2), np.array([1, 1]), None)
    assert (found["accuracy"], found["matthews"]) == (1, 0)


def test_several_labels_are_predicted_above_one_half() -> None:
    # sigmoid(0) is one half: not predicted.
    logits = np.array([[2.0, -1.0, 0.0], [1.0, 0.1, -3.0]])
    found = compute_metrics("multi-label", logits, np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]), ["a", "b", "c"])
    # a: one right, one made up; b: one right; c: one missed.
    assert found["micro_f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert found["subset_accuracy"] == 0.5
    assert found["per_class"]["a"] == pytest.approx({"precision": 1 / 2, "recall": 1, "f1": 2 / 3, "support": 1})
    assert found["per_class"]["c"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}


def test_a_single_label_that_may_be_there_is_no_pair_of_classes() -> None:
    logits, labels = np.array([[1.0], [1.0], [1.0], [-1.0]]), np.array([[1.0], [1.0], [0.0], [0.0]])
    found = compute_metrics("multi-label", logits, labels, ["a"])
    assert found["macro_f1"] == found["micro_f1"] == pytest.approx(4 / 5)
    assert list(found["per_class"]) == ["a"]


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_regression_has_correlations_and_errors(shape: tuple[int, ...]) -> None:
    predicted = np.array([1.0, 2.0, 3.0, 10.0], dtype=np.float32).reshape(shape)
    found = compute_metrics("regression", predicted, np.array([1.0, 2.0, 3.0, 4.0]), None)
    # Deviations -3, -2, -1, 6 and -1.5, -0.5, 0.5, 1.5.
    assert found["pearson"] == pytest.approx((4.5 + 1 - 0.5 + 9) / np.sqrt(50 * 5))
    assert found["spearman"] == pytest.approx(1)
    assert found["mse"] == pytest.approx(9)
    assert found["mae"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("predicted", "true"),
    [([2, 2, 2], [1, 2, 3]), ([1, 2, 3], [2, 2, 2]), ([0, 0], [0, 0]), ([1], [3]), ([0.3, 0.1 + 0.2], [1, 2])],
)
def test_a_correlation_of_what_is_constant_is_zero(predicted: list, true: list) -> None:
    found = compute_metrics("regression", np.array(predicted, dtype=float), np.array(true, dtype=float), None)
    assert (found["pearson"], found["spearman"]) == (0, 0)
    assert found["mae"] == pytest.approx(np.mean(np.abs(np.subtract(predicted, true))))


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", set()),
        ("B-PER I-PER O", {(0, 2, "PER")}),
        ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        ("O I-PER I-PER", {(1, 3, "PER")}),
        ("I-PER B-PER I-PER", {(0, 1, "PER"), (1, 3, "PER")}),
        ("B-PER I-ORG I-ORG", {(0, 1, "PER"), (1, 3, "ORG")}),
        ("B-PER O I-PER", {(0, 1, "PER"), (2, 3, "PER")}),
        ("B-A-B I-A-B I-A", {(0, 2, "A-B"), (2, 3, "A")}),
    ],
)
def test_entities_begin_and_end_as_seqeval_has_it(tags: str, expected: set) -> None:
    assert entities(tags.split()) == expected


def test_an_entity_counts_only_with_its_exact_span_and_type() -> None:
    true = np.array([[-100, 1, 2, 0, 3, 4], [-100, 1, 0, 1, -100, -100]])
    # The first is right; the second's last token is missed; the third is an ORG; the fourth is right.
    predicted = [[0, 1, 2, 0, 3, 0], [0, 3, 0, 1, 1, 1]]
    found = compute_metrics("token-classification", logits_of(predicted, 5), true, TAGS)
    assert found["entity_precision"] == found["entity_recall"] == found["entity_f1"] == pytest.approx(2 / 4)
    assert found["accuracy"] == pytest.approx(6 / 8)
    assert found["per_class"] == {
        "PER": pytest.approx({"precision": 1, "recall": 2 / 3, "f1": 4 / 5, "support": 3}),
        "ORG": {"precision": 0, "recall": 0, "f1": 0, "support": 1},
    }


def test_ignored_tokens_neither_count_nor_part_an_entity() -> None:
    true = np.array([[1, -100, 2, -100]])
    found = compute_metrics("token-classification", logits_of([[1, 0, 2, 3]], 5), true, TAGS)
    assert (found["entity_f1"], found["accuracy"], found["per_class"]["PER"]["support"]) == (1, 1, 1)


def test_entities_do_not_go_on_into_the_next_sample() -> None:
    found = compute_metrics("token-classification", logits_of([[1], [2]], 5), np.array([[1], [2]]), TAGS)
    assert found["per_class"]["PER"]["support"] == 2


@pytest.mark.parametrize("names", [None, ["noun", "verb"], ["O", "S-PER"], ["O", "O-"]])
def test_tags_that_are_not_iob_are_classes(names: list[str] | None) -> None:
    true = np.array([[0, 1, 1, -100]])
    found = compute_metrics("token-classification", logits_of([[0, 1, 0, 1]], 2), true, names)
    assert set(found) == {"accuracy", "macro_f1", "matthews", "per_class"}
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert metric_for_best("token-classification", None, names) == ("accuracy", True)


@pytest.mark.parametrize("task", TASKS)
def test_whatever_may_choose_the_best_is_computed(task: str) -> None:
    names = TAGS if task == "token-classification" else ["a", "b"]
    with pytest.raises(ValueError, match=f"'accurate' does not fit {task}; these do: ") as error:
        metric_for_best(task, "accurate", names)
    fitting = str(error.value).split("these do: ")[1].split(", ")
    labels = {"multi-label": np.array([[0, 1]]), "token-classification": np.array([[0, 1]])}.get(task, np.array([0]))
    logits = np.ones((*labels.shape, 5) if task == "token-classification" else (1, 2))
    found = compute_metrics(task, logits[:, :1] if task == "regression" else logits, labels, names)
    assert {*fitting} - {"loss"} == {name for name, value in found.items() if not isinstance(value, dict)}
    assert fitting[0] == metric_for_best(task, None, names)[0]


@pytest.mark.parametrize(
    ("task", "wanted", "expected"),
    [
        ("single-label", None, ("accuracy", True)),
        ("single-label", "eval_loss", ("loss", False)),
        ("multi-label", None, ("micro_f1", True)),
        ("regression", None, ("pearson", True)),
        ("regression", "mse", ("mse", False)),
        ("regression", "mae", ("mae", False)),
        ("token-classification", None, ("entity_f1", True)),
        ("token-classification", "entity_recall", ("entity_recall", True)),
    ],
)
def test_the_best_is_the_greatest_but_of_losses_and_errors(task: str, wanted: str | None, expected: tuple) -> None:
    assert metric_for_best(task, wanted, TAGS) == expected


@pytest.mark.parametrize(
    ("logits", "labels", "names", "message"),
    [
        ([[0.0, 1.0], [np.nan, 0.0]], [0, 1], None, "sample 1 is not finite"),
        ([[0.0, 1.0]], [-100], None, "no labelled sample"),
        ([[0.0, 1.0]], [0], ["a", "b", "c"], "3 names of classes, but the model's output has 2"),
    ],
)
def test_what_cannot_be_judged_is_refused(logits: list, labels: list, names: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_metrics("single-label", np.array(logits), np.array(labels), names)


def test_output_for_padding_may_be_anything() -> None:
    logits = logits_of([[1, 0]], 5)
    logits[0, 1] = np.nan
    assert compute_metrics("token-classification", logits, np.array([[1, -100]]), TAGS)["entity_f1"] == 1


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(ValueError, match="'ranking' is none of single-label"):
        compute_metrics("ranking", np.ones((1, 2)), np.array([0]), None)
