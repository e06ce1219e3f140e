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

TEXT_SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
TEXT_TOWER = {"text_config": {**TEXT_SIZES, "vocab_size": 99, "max_position_embeddings": 10}}

# 16 channels in a head: their root is a power of 2, by which data2vec divides as exactly as others multiply
BEIT_SIZES = {**VIT_SIZES, "num_attention_heads": 2}

AST_SIZES = {name: size for name, size in VIT_SIZES.items() if name != "image_size"} | {
    "num_mel_bins": 16,
    "max_length": 30,
    "frequency_stride": 5,
    "time_stride": 6,
}

NO_BIASES = {"query_bias": False, "value_bias": False, "proj_bias": False, "mlp_bias": False}


def pixels(config: Any, padded: bool) -> dict[str, torch.Tensor]:
    """Two images."""
    return image_inputs(getattr(config, "vision_config", config))


def spectrograms(config: Any, padded: bool) -> dict[str, torch.Tensor]:
    """Two spectrograms as images."""
    size = config.image_size if hasattr(config, "image_size") else (config.num_mel_bins, config.max_length)
    return {"pixel_values": torch.randn(2, 1, *size, generator=torch.Generator().manual_seed(1))}


def beit_rows(name: str, *left_out: str) -> list[Row]:
    """The forms of BEiT: a bias for each block, one for all, both, and none, with what goes with it."""
    each, shared = {"use_relative_position_bias": True}, {"use_shared_relative_position_bias": True}
    absolute = {"use_absolute_position_embeddings": True, "use_mask_token": True, "use_mean_pooling": False}
    return [
        Row(name, {**BEIT_SIZES, **each}, pixels, pads=False, left_out=left_out),
        Row(name, {**BEIT_SIZES, **shared}, pixels, "shared-bias", pads=False, left_out=left_out),
        Row(name, {**BEIT_SIZES, **each, **shared}, pixels, "both-biases", pads=False, left_out=left_out),
        Row(name, {**BEIT_SIZES, **absolute, "layer_scale_init_value": 0.0}, pixels, "absolute", pads=False),
    ]


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
    Row("clip", {**VIT_SIZES, "attention_dropout": 0.2}, pixels, pads=False, beside=TEXT_TOWER),
    Row("siglip", VIT_SIZES, pixels, pads=False, beside=TEXT_TOWER),
    Row("siglip", {**VIT_SIZES, "vision_use_head": False}, pixels, "without-head", pads=False, beside=TEXT_TOWER),
    *beit_rows("beit"),
    *beit_rows("data2vec-vision", "pooler"),
    Row("audio-spectrogram-transformer", AST_SIZES, spectrograms, pads=False),
    Row("dinov3", {**VIT_SIZES, "num_register_tokens": 3, "layerscale_value": 0.7}, pixels, pads=False),
    Row("dinov3", {**VIT_SIZES, "use_gated_mlp": True, "key_bias": True}, pixels, "gated", pads=False),
    Row("dinov3", {**VIT_SIZES, **NO_BIASES}, pixels, "without-biases", pads=False),
]
