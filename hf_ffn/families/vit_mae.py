"""ViT-MAE ([He et al. 2021](https://huggingface.co/papers/2111.06377)): the encoder, on whole images.

transformers' own class leaves most patches out, at random, also when it is not trained. Ours encodes all of them, as
is done with these checkpoints wherever they are used.
"""

import copy

import torch
from transformers import PreTrainedModel

from .family import Family
from .vit import NO_DENSE_POOLER, VIT_DIALECTS, VIT_FIELDS, VIT_WEIGHTS


def without_masking(original: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Have the original keep all patches in their order, which it takes from the noise."""
    embeddings = original.base_model.embeddings
    embeddings.config = copy.copy(embeddings.config)
    embeddings.config.mask_ratio = 0.0
    num_patches = embeddings.patch_embeddings.num_patches
    noise = torch.arange(num_patches, device=original.device).expand(len(inputs["pixel_values"]), -1)
    return {**inputs, "noise": noise}


VIT_MAE = Family(
    name="vit-mae",
    model_type="vit_mae",
    native_type="hf_ffn_vision",
    fields={**VIT_FIELDS, **NO_DENSE_POOLER},
    fixed={"norm_order": "pre", "add_pooling_layer": False, "embedding_dropout_prob": 0.0},
    refused={},
    dialects=VIT_DIALECTS,
    weights=((r"^vit\.", "model."), *VIT_WEIGHTS),
    heads={"FFNVisionModel": "ViTMAEModel"},
    also_reads={"ViTMAEForPreTraining": "FFNVisionModel"},
    unused={r"^decoder\.": "the decoder of masked image modelling, which hf_ffn does not do"},
    prepare=without_masking,
    layers="layers",
)
