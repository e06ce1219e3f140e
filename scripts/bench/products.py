"""Bare matrix products: the bound that the contenders are compared with."""

import time
from collections.abc import Callable, Iterable

import torch
from torch import nn

# The layout chosen for so many rows serves all numbers of rows.
ROWS = 64

Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def bare(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], constant: bool = True) -> Callable[[], None]:
    """`x @ weight^T` of each pair, and nothing else, by the faster of two libraries: oneDNN, and torch's own choice.

    Args:
        pairs: of inputs `(rows, in)` and weights `(out, in)`.
        constant: whether weights stay the same, so that they are put in oneDNN's own layout beforehand.
    """
    plain = list(pairs)
    packed = [
        (x, torch.ops.mkldnn._reorder_linear_weight(weight, ROWS) if constant else weight) for x, weight in plain
    ]
    # The first ones tell; all layers of a model are alike.
    faster = seconds_of(by_onednn, packed[:6]) < seconds_of(by_torch, plain[:6])
    return lambda: by_onednn(packed) if faster else by_torch(plain)


def by_onednn(pairs: Pairs) -> None:
    for x, weight in pairs:
        torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def by_torch(pairs: Pairs) -> None:
    for x, weight in pairs:
        nn.functional.linear(x, weight)


def seconds_of(multiply: Callable[[Pairs], None], pairs: Pairs) -> float:
    """The least time of three runs."""
    taken = []
    with torch.inference_mode():
        for _ in range(3):
            started = time.perf_counter()
            multiply(pairs)
            taken.append(time.perf_counter() - started)
    return min(taken)
