"""What the proof of a conversion found, as a table, as JSON and as a picture."""

import json
import os
from dataclasses import asdict, dataclass, field

import torch
import transformers

from .digest import picture_texts


@dataclass(frozen=True)
class Check:
    """One comparison.

    Attributes:
        kind: "config", "tensor", "layer", "output" or "round trip".
        name: the field, tensor, layer or output.
        ok: whether both sides agree as they must.
        detail: what was found, where they do not.
        run: dtype and attention back end of a computation; empty elsewhere.
        error: largest absolute difference of a computation's results; None elsewhere.
        layer: the encoder block that it belongs to; None elsewhere.
    """

    kind: str
    name: str
    ok: bool
    detail: str = ""
    run: str = ""
    error: float | None = None
    layer: int | None = None


@dataclass
class EquivalenceReport:
    """What `verify` found. `str()` prints it as a table.

    Attributes:
        source: the original checkpoint.
        source_class: its class in transformers.
        model_class: ours.
        checks: every comparison made.
        versions: of torch and transformers, on which the results may depend.
        model_sha256: of the model as it was saved (see `model_digest`); None where it was compared in memory alone.
    """

    source: str
    source_class: str
    model_class: str
    checks: list[Check] = field(default_factory=list)
    versions: dict[str, str] = field(
        default_factory=lambda: {"torch": torch.__version__, "transformers": transformers.__version__}
    )
    model_sha256: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every comparison came out as it must."""
        return bool(self.checks) and all(check.ok for check in self.checks)

    @property
    def failures(self) -> list[Check]:
        """The comparisons that did not."""
        return [check for check in self.checks if not check.ok]

    @property
    def first_departure(self) -> str | None:
        """Where the models part: a field, or the first layer, embedding or output concerned; None where nowhere."""
        if not self.failures:
            return None
        in_layers = [check.layer for check in self.failures if check.layer is not None]
        before_layers = [c for c in self.failures if c.name.removeprefix("model.").startswith("embeddings")]
        config = [check for check in self.failures if check.kind == "config"]
        if config:
            return f"config field {config[0].name}: {config[0].detail}"
        if before_layers:
            return before_layers[0].name
        if in_layers:
            return f"layer {min(in_layers)}"
        return f"{self.failures[0].kind} {self.failures[0].name}"

    def to_json(self) -> str:
        """The whole report as JSON."""
        result = {"ok": self.ok, "first_departure": self.first_departure, **asdict(self)}
        return json.dumps(result, indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        lines = [f"{self.model_class} beside {self.source_class} from '{self.source}'"]
        for kind, noun in (("config", "fields"), ("tensor", "tensors"), ("round trip", "round trip")):
            own = [check for check in self.checks if check.kind == kind]
            lines.append(f"  {noun:<11}{sum(check.ok for check in own)} of {len(own)} equal")
        runs = list(dict.fromkeys(check.run for check in self.checks if check.run))
        steps = list(dict.fromkeys(check.name for check in self.checks if check.run))
        found = {(check.name, check.run): check for check in self.checks}
        width = max((len(step) for step in steps), default=0) + 2
        columns = [max(len(run), 9) + 2 for run in runs]
        lines.append("  largest difference, each step from the original's own input")
        lines.append("  " + " " * width + "".join(f"{run:>{size}}" for run, size in zip(runs, columns, strict=True)))
        for step in steps:
            cells = [_cell(found[step, run]) for run in runs]
            row = "".join(f"{cell:>{size}}" for cell, size in zip(cells, columns, strict=True))
            lines.append(f"  {step:<{width}}{row}")
        for check in [check for check in self.failures if not check.run][:8]:
            lines.append(f"  {check.kind} {check.name}: {check.detail}")
        verdict = "equivalent" if self.ok else f"NOT equivalent; they part at {self.first_departure}"
        return "\n".join([*lines, f"  => {verdict}"])

    def plot(self, path: str | os.PathLike) -> None:
        """Draw the error of each layer on a log scale, and save the picture, which says which model it is about.

        Args:
            path: its ending gives the format (.png, .svg, .pdf).

        Raises:
            ImportError: matplotlib is missing (`pip install "hf-ffn[plot]"`).
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        steps = list(dict.fromkeys(check.name for check in self.checks if check.run))
        floor = 1e-10
        for run in dict.fromkeys(check.run for check in self.checks if check.run):
            errors = {check.name: check.error or 0.0 for check in self.checks if check.run == run}
            axes.plot(steps, [max(errors[step], floor) for step in steps], marker="o", label=run, alpha=0.7)
        axes.set_yscale("log")
        largest = max((check.error or 0.0 for check in self.checks), default=0.0)
        axes.set_ylim(floor / 3, max(1.0, 3 * largest))
        axes.set_ylabel(f"largest difference ({floor:.0e} stands for none)")
        axes.tick_params(axis="x", rotation=60)
        axes.set_title(
            f"{self.model_class} beside {self.source_class}: {'equivalent' if self.ok else 'NOT equivalent'}"
        )
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path, dpi=150, metadata=picture_texts(path, self.model_sha256))


def _cell(check: Check) -> str:
    number = "0" if check.error == 0 else f"{check.error:.1e}"
    return number if check.ok else f"{number} !"
