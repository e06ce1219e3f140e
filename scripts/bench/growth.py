"""How time grows: with tokens, with the length of a sequence, with width and with depth."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hf_ffn import Encoder, FeedForward, FFNConfig, optimize_for_inference

from .measure import Row, Section, Timing, without_gradients

# Of each panel: what grows, and what the mathematics says of the time a token.
PANELS = {
    "tokens": "feed-forward block: the same for any number of tokens, once there are enough",
    "length": "one block, one sequence: rises linearly where attention weighs in",
    "width": "feed-forward block of 4 × width: rises with the square of the width",
    "depth": "encoder of 128 tokens: rises linearly with the depth",
}


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """One table a panel; a row's name is the size, and its ratio is to the first row."""
    width = 64 if quick else 768
    tokens = [16, 64] if quick else [4**power for power in range(2, 9)]
    lengths = [16, 64] if quick else [16, 64, 256, 1024, 4096]
    widths = [32, 64] if quick else [128, 256, 512, 1024, 2048]
    depths = [1, 2] if quick else [1, 2, 4, 8, 16]
    panels: dict[str, list[tuple[int, int, Any]]] = {
        "tokens": [(size, size, lambda size=size: block(width, size)) for size in tokens],
        "length": [(size, size, lambda size=size: encoder(width, 1, size)) for size in lengths],
        "width": [(size, 256, lambda size=size: block(size, 256)) for size in widths],
        "depth": [(size, 128, lambda size=size: encoder(width, size, 128)) for size in depths],
    }
    points = sum(len(sizes) for sizes in panels.values())
    for name, sizes in panels.items():
        yield panel(name, sizes, timing.part(points))


def panel(name: str, sizes: list[tuple[int, int, Callable[[], Callable[[], Any]]]], timing: Timing) -> Section:
    """Microseconds a token at each size, the least of several runs."""
    section = Section(f"time a token by {name} ({PANELS[name]})", str(sizes[0][0]))
    for size, tokens, make in sizes:
        a_token = least(make(), timing) / tokens
        first = section.rows[0].median_s if section.rows else a_token
        assert first is not None
        section.rows.append(Row(str(size), median_s=a_token, ratio=a_token / first))
    return section


def least(run: Callable[[], Any], timing: Timing) -> float:
    """The least time of a run, of two at least."""
    times: list[float] = []
    end = time.perf_counter() + timing.seconds
    while len(times) < 2 or (time.perf_counter() < end and len(times) < 200):
        started = timing.clock()
        run()
        times.append(timing.clock() - started)
    return min(times)


def prepared(module: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    optimize_for_inference(module)
    return without_gradients(module, x)


def block(width: int, tokens: int) -> Callable[[], Any]:
    config = FFNConfig(hidden_size=width, intermediate_size=4 * width, num_attention_heads=1)
    return prepared(FeedForward(config), torch.randn(tokens, width))


def encoder(width: int, depth: int, length: int) -> Callable[[], Any]:
    heads = max(width // 64, 1)
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": heads}
    return prepared(Encoder(FFNConfig(num_hidden_layers=depth, **sizes)), torch.randn(1, length, width))
