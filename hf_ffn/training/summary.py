"""What was decided about data: said before training, so that a wrong guess is seen, and kept in the results."""

from dataclasses import dataclass
from typing import Any

from datasets import Dataset

from .label_columns import LabelColumn, rows_of
from .labels import Labels, count_labels
from .remarks import REMARKS
from .sources import Split

# Data may have thousands of labels, of which so many are said.
MOST_LABELS = 20


@dataclass(frozen=True)
class PartSummary:
    """What a part of the data holds.

    Args:
        where: what the part is called.
        samples: how many there are; None in a stream.
        left_out: rows that were taken out as bad.
        counts: how often each label occurs, in their order; empty in a stream, and where numbers are predicted.
        numbers: the least and the greatest, where numbers are predicted.
        remarks: what was done to how many, by REMARKS.
    """

    where: str
    samples: int | None
    left_out: int
    counts: dict[str, int]
    numbers: tuple[float, float] | None
    remarks: dict[str, int]

    @classmethod
    def of(cls, split: Split, label: LabelColumn, labels: Labels) -> "PartSummary":
        """Of a split from which bad rows were taken out already."""
        if not isinstance(split.rows, Dataset):
            return cls(split.where, None, 0, {}, None, {})
        numbers = None
        if label.task == "regression":
            values = [float(label.value_in(row)) for row in rows_of(split.rows, list(label.columns))]
            numbers = min(values), max(values)
        counts = count_labels(split, label, labels)
        return cls(split.where, len(split.rows), split.left_out, counts, numbers, split.remarks)

    def __str__(self) -> str:
        if self.samples is None:
            return f"{self.where}, as it is read"
        said = [f"{shown(name)} ({count:,})" for name, count in list(self.counts.items())[:MOST_LABELS]]
        if len(self.counts) > MOST_LABELS:
            said.append(f"and {len(self.counts) - MOST_LABELS} labels more")
        if self.numbers:
            said = [f"from {self.numbers[0]:g} to {self.numbers[1]:g}"]
        left_out = f", {self.left_out:,} left out as bad" if self.left_out else ""
        remarks = "".join(f"; {number:,} {REMARKS[name]}" for name, number in self.remarks.items() if number)
        return f"{self.samples:,} samples of {self.where}{left_out}: {', '.join(said)}{remarks}"

    def facts(self) -> dict[str, Any]:
        """For the results, without where the data lay."""
        facts: dict[str, Any] = {"samples": self.samples, "left_out": self.left_out}
        return (
            facts
            | ({"labels": self.counts} if self.counts else {})
            | ({"numbers": list(self.numbers)} if self.numbers else {})
            | self.remarks
        )


def shown(name: str) -> str:
    """A label as it stands, or in quotation marks where one would not see how it ends."""
    return name if name == name.strip() and name.isprintable() and "," not in name else repr(name)


@dataclass(frozen=True)
class DataSummary:
    """What was decided about data, and what they hold.

    Args:
        task: one of `TASKS`.
        inputs: where the texts or images are.
        labels: where the labels are, and how they were read.
        train: what is trained on.
        evaluation: what is evaluated on.
    """

    task: str
    inputs: str
    labels: str
    train: PartSummary
    evaluation: PartSummary

    def __str__(self) -> str:
        return (
            f"task: {self.task}; {self.inputs}; {self.labels}\n"
            f"to train on: {self.train}\n"
            f"to evaluate on: {self.evaluation}"
        )

    def facts(self) -> dict[str, Any]:
        """For the results, without where the data lay."""
        return {
            "task": self.task,
            "inputs": self.inputs,
            "labels": self.labels,
            "train": self.train.facts(),
            "evaluation": self.evaluation.facts(),
        }
