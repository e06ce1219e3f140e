"""ViT and what only differs from it in tokens and pooling: pre-norm, image patches, learnt positions.

ViT: [Dosovitskiy et al. 2020](https://huggingface.co/papers/2010.11929). MSN:
[Assran et al. 2022](https://huggingface.co/papers/2204.07141), no pooler. I-JEPA:
[Assran et al. 2023](https://huggingface.co/papers/2301.08243), no class token.
"""

from typing import Any

from ..configuration_ffn import height_and_width
from .family import BLOCK_FIELDS, Family, same

IMAGE_FIELDS = same("image_size", "patch_size", "num_channels")
VIT_FIELDS = {**BLOCK_FIELDS, **IMAGE_FIELDS, **same("qkv_bias")}
POOLER_FIELDS = same("pooler_output_size", "pooler_act")

# For families without a dense layer in the pooler, whose width is not used.
NO_DENSE_POOLER = {"pooler_output_size": "hidden_size"}


def one_number(ours: Any, name: str, family: str) -> int:
    """A size for families whose classes know but squares.

    Raises:
        ValueError: height and width differ.
    """
    height, width = height_and_width(getattr(ours, name))
    if height != width:
        raise ValueError(f"{family} cannot express {name}={getattr(ours, name)!r}: height and width are one number")
    return height


# transformers 5 holds ViT in memory (and writes with save_original_format=False) under other names than in files.
VIT_DIALECTS = (
    (r"^(?:\w+\.)?layers\.", "encoder.layers."),
    (r"mlp\.fc1", "intermediate.dense"),
    (r"mlp\.fc2", "output.dense"),
)

VIT_LAYERS = (
    (r"encoder\.layer\.", "encoder.layers."),
    (r"attention\.attention\.query", "attention.q_proj"),
    (r"attention\.attention\.key", "attention.k_proj"),
    (r"attention\.attention\.value", "attention.v_proj"),
    (r"attention\.output\.dense", "attention.o_proj"),
    (r"layernorm_before", "norm_1"),
    (r"layernorm_after", "norm_2"),
    (r"intermediate\.dense", "ffn.linear_1"),
    (r"output\.dense", "ffn.linear_2"),
)
VIT_WEIGHTS = (*VIT_LAYERS, (r"layernorm", "encoder.norm"))

MASKING = {
    r"embeddings\.mask_token$": "the mask of masked image modelling, which this family's encoders do without",
    r"^decoder\.": "the decoder of masked image modelling, which hf_ffn does not do",
}

VIT = Family(
    name="vit",
    model_type="vit",
    native_type="hf_ffn_vision",
    fields={**VIT_FIELDS, **POOLER_FIELDS},
    fixed={"norm_order": "pre"},
    refused={},
    dialects=VIT_DIALECTS,
    weights=((r"^vit\.", "model."), *VIT_WEIGHTS),
    heads={"FFNVisionModel": "ViTModel", "FFNForImageClassification": "ViTForImageClassification"},
    also_reads={"ViTForMaskedImageModeling": "FFNVisionModel"},
    unused=MASKING,
    layers="layers",
)

VIT_MSN = Family(
    name="vit-msn",
    model_type="vit_msn",
    native_type="hf_ffn_vision",
    fields={**VIT_FIELDS, **NO_DENSE_POOLER},
    fixed={"norm_order": "pre", "add_pooling_layer": False},
    refused={},
    dialects=VIT_DIALECTS,
    weights=((r"^vit\.", "model."), *VIT_WEIGHTS),
    # So does transformers write this class: the blocks alone without the prefix
    head_weights={"FFNForImageClassification": ((r"^encoder\.layer\.", "vit.encoder.layer."),)},
    heads={"FFNVisionModel": "ViTMSNModel", "FFNForImageClassification": "ViTMSNForImageClassification"},
    layers="layers",
)

IJEPA = Family(
    name="ijepa",
    model_type="ijepa",
    native_type="hf_ffn_vision",
    fields={**VIT_FIELDS, **POOLER_FIELDS},
    fixed={
        "norm_order": "pre",
        "use_cls_token": False,
        "add_pooling_layer": False,
        "classifier_pooling": "mean",
    },
    refused={},
    dialects=VIT_DIALECTS,
    weights=((r"^ijepa\.", "model."), *VIT_WEIGHTS),
    heads={"FFNVisionModel": "IJepaModel", "FFNForImageClassification": "IJepaForImageClassification"},
    layers="layers",
)
