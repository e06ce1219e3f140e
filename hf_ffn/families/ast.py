"""The Audio Spectrogram Transformer ([Gong et al. 2021](https://huggingface.co/papers/2104.01778)).

DeiT on spectrograms: an image of one channel, mel bins high and frames wide, in patches that overlap.
"""

from typing import Any

import torch
from transformers import PreTrainedModel

from ..configuration_ffn import height_and_width
from .family import Computed, Family
from .vit import NO_DENSE_POOLER, VIT_DIALECTS, VIT_FIELDS, VIT_WEIGHTS


def read(theirs: Any) -> dict[str, Any]:
    """The spectrogram's size and the steps from patch to patch."""
    return {
        "image_size": [theirs.num_mel_bins, theirs.max_length],
        "patch_stride": [theirs.frequency_stride, theirs.time_stride],
    }


def write(ours: Any) -> dict[str, Any]:
    """The way back."""
    mel_bins, frames = height_and_width(ours.image_size)
    frequency, time = height_and_width(ours.patch_size if ours.patch_stride is None else ours.patch_stride)
    return {"num_mel_bins": mel_bins, "max_length": frames, "frequency_stride": frequency, "time_stride": time}


def as_spectrograms(original: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give the original images as it takes them, which is without channels and on their side."""
    if "pixel_values" not in inputs:
        return inputs
    images = inputs["pixel_values"]
    # (batch, 1, mel bins, frames) -> (batch, frames, mel bins)
    return {"input_values": images if images.dim() == 3 else images.squeeze(1).transpose(1, 2)}


AST = Family(
    name="audio-spectrogram-transformer",
    model_type="audio-spectrogram-transformer",
    native_type="hf_ffn_vision",
    fields={
        **{name: path for name, path in VIT_FIELDS.items() if name not in ("image_size", "num_channels")},
        **NO_DENSE_POOLER,
    },
    computed=Computed(("image_size", "patch_stride"), read, write),
    fixed={
        "norm_order": "pre",
        "num_channels": 1,
        "spectrogram_input": True,
        "use_distillation_token": True,
        "pooling": "cls_distillation",
        "pooler_dense": False,
    },
    refused={},
    dialects=VIT_DIALECTS,
    weights=((r"^audio_spectrogram_transformer\.", "model."), *VIT_WEIGHTS),
    head_weights={
        "FFNForAudioClassification": (
            (r"classifier\.layernorm", "pooled_norm"),
            (r"classifier\.dense", "classifier"),
        )
    },
    heads={"FFNVisionModel": "ASTModel", "FFNForAudioClassification": "ASTForAudioClassification"},
    prepare=as_spectrograms,
    layers="layers",
)
