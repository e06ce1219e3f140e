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

MAE_DECODER = {
    "decoder_hidden_size": 16,
    "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_intermediate_size": 32,
}

DINO_SIZES = {name: size for name, size in VIT_SIZES.items() if name != "intermediate_size"} | {"mlp_ratio": 2}


def pixels(config: Any, padded: bool) -> dict[str, torch.Tensor]:
    """Two images."""
    return image_inputs(config)


VISION_ROWS = [
    Row("vit", VIT_SIZES, pixels, pads=False),
    Row("vit", {**VIT_SIZES, "qkv_bias": False}, pixels, "without-qkv-bias", pads=False),
    Row("deit", {**VIT_SIZES, "encoder_stride": 8}, pixels, pads=False),
    Row("vit-mae", {**VIT_SIZES, **MAE_DECODER}, pixels, pads=False, ours_lacks=("mask", "ids_restore")),
    Row("vit-msn", VIT_SIZES, pixels, pads=False),
    Row("ijepa", VIT_SIZES, pixels, pads=False),
    Row("dinov2", {**DINO_SIZES, "layerscale_value": 0.7}, pixels, pads=False),
    Row("dinov2", {**DINO_SIZES, "use_swiglu_ffn": True}, pixels, "swiglu", pads=False),
    Row("dinov2", {**DINO_SIZES, "use_mask_token": False}, pixels, "without-mask", pads=False),
    Row("dinov2-with-registers", {**DINO_SIZES, "num_register_tokens": 3}, pixels, pads=False),
    Row("dinov2-with-registers", {**DINO_SIZES, "use_swiglu_ffn": True}, pixels, "swiglu", pads=False),
]
