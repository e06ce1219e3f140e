"""BEiT ([Bao et al. 2021](https://huggingface.co/papers/2106.08254)) and data2vec's image encoder
([Baevski et al. 2022](https://huggingface.co/papers/2202.03555)).

ViT without a bias on keys, with layer scale and a bias by offset between patches; pooled by the patches' mean.
"""

from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from ..configuration_ffn import height_and_width
from .family import Computed, Family, same
from .vit import NO_DENSE_POOLER, VIT_DIALECTS, VIT_FIELDS, VIT_LAYERS, one_number

COMPUTED = (
    *("layer_scale_init_value", "position_embedding_type", "pooling", "final_norm", "pooler_norm"),
    *("use_relative_position_bias", "use_shared_relative_position_bias"),
)
BIASES = ("use_relative_position_bias", "use_shared_relative_position_bias")


def read(theirs: Any) -> dict[str, Any]:
    """Positions, layer scale (0 stands for none) and pooling, which takes the place of the last LayerNorm."""
    height, width = height_and_width(theirs.image_size)
    biases = {name: getattr(theirs, name) for name in BIASES}
    if any(biases.values()) and height != width:
        raise ValueError(
            f"A {theirs.model_type} checkpoint with relative positions and image_size={theirs.image_size} does not "
            f"convert: transformers' own class exchanges height and width in its table"
        )
    return {
        **biases,
        "layer_scale_init_value": theirs.layer_scale_init_value if theirs.layer_scale_init_value > 0 else None,
        "position_embedding_type": "absolute" if theirs.use_absolute_position_embeddings else "none",
        "pooling": "mean" if theirs.use_mean_pooling else "cls",
        "pooler_norm": theirs.use_mean_pooling,
        "final_norm": not theirs.use_mean_pooling,
    }


def write(ours: Any) -> dict[str, Any]:
    """The way back."""
    mean = ours.pooling == "mean"
    if (ours.pooling, ours.pooler_norm, ours.final_norm) not in (("mean", True, False), ("cls", False, True)):
        raise ValueError(
            f"beit cannot express pooling={ours.pooling!r}, pooler_norm and final_norm in this combination"
        )
    if ours.position_embedding_type == "rotary":
        raise ValueError("beit cannot express position_embedding_type='rotary'")
    # Its classes take the positions for those of a square.
    one_number(ours, "image_size", "beit")
    return {
        **{name: getattr(ours, name) for name in BIASES},
        "layer_scale_init_value": ours.layer_scale_init_value or 0.0,
        "use_absolute_position_embeddings": ours.position_embedding_type == "absolute",
        "use_mean_pooling": mean,
    }


def with_its_back_end(original: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Have data2vec use the attention back end that is set, as it only does when it is made."""
    from transformers.models.data2vec import modeling_data2vec_vision

    chosen = modeling_data2vec_vision.DATA2VEC_VISION_SELF_ATTENTION_CLASSES[original.config._attn_implementation]
    for module in original.modules():
        if isinstance(module, modeling_data2vec_vision.Data2VecVisionSelfAttention):
            module.__class__ = chosen
    return inputs


BEIT = Family(
    name="beit",
    model_type="beit",
    native_type="hf_ffn_vision",
    fields={
        **{name: path for name, path in VIT_FIELDS.items() if name != "qkv_bias"},
        **same("use_mask_token", "drop_path_rate"),
        **NO_DENSE_POOLER,
    },
    computed=Computed(COMPUTED, read, write),
    fixed={
        "norm_order": "pre",
        "key_bias": False,
        "pooler_dense": False,
        "classifier_pooling": "pooler",
        "interpolate_pos_encoding": True,
    },
    refused={},
    dialects=(
        (
            r"^(?:\w+\.)?layers\.(\d+)\.relative_position_bias\.relative_position_bias_table",
            r"layer_window_biases.\1.table",
        ),
        (r"^(?:\w+\.)?shared_position_bias\.relative_position_bias_table", "window_bias.table"),
        *VIT_DIALECTS,
    ),
    weights=(
        (r"^beit\.", "model."),
        (
            r"encoder\.layer\.(\d+)\.attention\.attention\.relative_position_bias\.relative_position_bias_table",
            r"layer_window_biases.\1.table",
        ),
        (r"encoder\.relative_position_bias\.relative_position_bias_table", "window_bias.table"),
        *VIT_LAYERS,
        (r"lambda_1", "layer_scale_1.scale"),
        (r"lambda_2", "layer_scale_2.scale"),
        (r"pooler\.layernorm", "pooler.norm"),
        (r"layernorm", "encoder.norm"),
    ),
    heads={"FFNVisionModel": "BeitModel", "FFNForImageClassification": "BeitForImageClassification"},
    also_reads={"BeitForMaskedImageModeling": "FFNVisionModel"},
    unused={
        r"relative_position_index$": "counted from the grid, not a weight",
        r"^(lm_head|layernorm|encoder\.norm)\.": "the head of masked image modelling, which hf_ffn does not have",
    },
    layers="layers",
)

DATA2VEC_VISION = replace(
    BEIT,
    name="data2vec-vision",
    model_type="data2vec-vision",
    weights=((r"^data2vec_vision\.", "model."), *BEIT.weights[1:]),
    heads={
        "FFNVisionModel": "Data2VecVisionModel",
        "FFNForImageClassification": "Data2VecVisionForImageClassification",
    },
    also_reads={},
    rounding="older code divides attention scores by the root of the channels, where others multiply",
    prepare=with_its_back_end,
    layers="encoder.layer",
)
