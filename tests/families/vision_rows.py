"""The families of image encoders."""

from typing import Any

import torch

from .rows import Row
from tiny import image_inputs

VIT_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}


def pixels(config: Any, padded: bool) -> dict[str, torch.Tensor]:
    """Two images."""
    return image_inputs(config)


VISION_ROWS = [
    Row("vit", VIT_SIZES, pixels, pads=False),
    Row("vit", {**VIT_SIZES, "qkv_bias": False}, pixels, "without-qkv-bias", pads=False),
]
