"""What was measured, as pictures: how long each contender takes beside the others, and how time grows with size."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .growth import PANELS

OURS, THEIRS, BOUND = "tab:orange", "tab:blue", "tab:gray"


def draw(sections: dict[str, list[dict[str, Any]]], folder: Path) -> list[Path]:
    """Draw what there is to draw into a folder.

    Args:
        sections: the tables of each command, as in the JSON file.
        folder: is made if need be; gets `ratios.png` and `growth.png`.

    Returns:
        The pictures' paths.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures = {}
    tables = [table for command, found in sections.items() if command != "growth" for table in found if timed(table)]
    if tables:
        figures["ratios"] = ratios(tables)
    if "growth" in sections:
        figures["growth"] = growth(sections["growth"])
    for name, figure in figures.items():
        figure.savefig(folder / f"{name}.png", dpi=120)
    return [folder / f"{name}.png" for name in figures]


def timed(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a table that have a time."""
    return [row for row in table["rows"] if row["ratio"] is not None]


def ratios(tables: list[dict[str, Any]]) -> Figure:
    """A panel a table, with a bar for each contender's ratio."""
    columns = min(2, len(tables))
    lines = -(-len(tables) // columns)
    tallest = max(len(timed(table)) for table in tables)
    figure = Figure(figsize=(7 * columns, lines * (0.9 + 0.24 * tallest)), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    for axis in panels.flat[len(tables) :]:
        axis.axis("off")
    for axis, table in zip(panels.flat, tables, strict=False):
        bars(axis, table)
    return figure


def bars(axis: Axes, table: dict[str, Any]) -> None:
    """The ratios of one table, the baseline on top."""
    rows = timed(table)
    names = [row["name"] for row in rows]
    colours = [
        BOUND
        if name.startswith("bound")
        else OURS
        if name.startswith(("hf_ffn", "feed_forward", "import hf"))
        else THEIRS
        for name in names
    ]
    axis.barh(names, [row["ratio"] for row in rows], xerr=[row["ratio"] * (row["spread"] or 0) for row in rows],
              color=colours, ecolor="black")  # fmt: skip
    for place, row in enumerate(rows):
        axis.annotate(
            f" {row['ratio']:.2f}", (row["ratio"] * (1 + (row["spread"] or 0)), place), va="center", fontsize=7
        )
    axis.margins(x=0.12)
    axis.axvline(1, color="black", linewidth=0.5)
    axis.invert_yaxis()
    axis.tick_params(labelsize=7)
    axis.set_title(table["title"], fontsize=8)
    axis.set_xlabel(f"time over '{table['baseline']}'", fontsize=7)


def growth(panels: list[dict[str, Any]]) -> Figure:
    """Four panels, both axes logarithmic."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axis, name, found in zip(figure.subplots(2, 2).flat, PANELS, panels, strict=True):
        sizes = [int(row["name"]) for row in found["rows"]]
        axis.plot(sizes, [row["median_s"] * 1e6 for row in found["rows"]], marker="o")
        axis.set(xscale="log", yscale="log", xlabel=name, ylabel="µs a token")
        axis.set_xticks(sizes, [str(size) for size in sizes], minor=False)
        axis.minorticks_off()
        axis.set_title(PANELS[name], fontsize=8)
        axis.set_ylim(bottom=axis.get_ylim()[0] / 2, top=axis.get_ylim()[1] * 2)
    figure.suptitle("hf_ffn, optimize_for_inference, float32")
    return figure
