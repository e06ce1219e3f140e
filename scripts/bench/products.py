"""Bare matrix products by oneDNN: the bound that the contenders are compared with."""

from collections.abc import Callable, Iterable

import torch

# The layout chosen for so many rows serves all numbers of rows.
ROWS = 64


def packed(weight: torch.Tensor) -> torch.Tensor:
    """A weight `(out, in)` in the layout that oneDNN likes best."""
    return torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)


def bare(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Callable[[], None]:
    """`x @ weight^T` of each pair, and nothing else; weights may be packed."""
    pairs, multiply = list(pairs), torch.ops.mkldnn._linear_pointwise

    def run() -> None:
        for x, weight in pairs:
            multiply(x, weight, None, "none", [], "")

    return run
