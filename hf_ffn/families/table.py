"""What converts, as the table that `hf-ffn families` prints and the README holds."""

import os
from collections.abc import Iterable

from . import FAMILIES, Family

HEADER = ("family", "converts, and goes back", "is read as well", "results in float32")


def table() -> str:
    """A row for each family, in Markdown that is readable as it stands."""
    rows = [HEADER, ("---",) * len(HEADER), *(row(family) for family in FAMILIES.values())]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def row(family: Family) -> tuple[str, ...]:
    """A family's name, its classes, those that hold more than ours do, and how equal results are."""
    return (family.name, joined(family.heads.values()), joined(family.also_reads), family.exactness)


def joined(names: Iterable[str]) -> str:
    """Names of classes, what they have in common but once: "`Bert` + `Model`, `ForMaskedLM`"."""
    names = list(dict.fromkeys(names))
    prefix = os.path.commonprefix(names) if len(names) > 1 else ""  # noqa: RUF071 - letter by letter is what we want
    common = prefix.removesuffix("Model").removesuffix("For")
    listed = ", ".join(f"`{name.removeprefix(common)}`" for name in names)
    return f"`{common}` + {listed}" if common else listed
