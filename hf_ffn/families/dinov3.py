"""DINOv3 ([Siméoni et al. 2025](https://huggingface.co/papers/2508.10104)): rotary positions, registers, layer scale.

Blocks are gated in some sizes. There is no classifier in transformers.
"""

from typing import Any

import transformers
from packaging.version import Version

from .family import Computed, Family, same
from .vit import IMAGE_FIELDS, NO_DENSE_POOLER, one_number

# Before 5.18 its class knew but one number.
KNOWS_SQUARES_ALONE = Version(transformers.__version__) < Version("5.18")


def read_biases_and_size(theirs: Any) -> dict[str, Any]:
    """The image size, and biases of the input projections, of which here the keys' alone can be another."""
    if theirs.query_bias != theirs.value_bias or (theirs.key_bias and not theirs.query_bias):
        raise ValueError(
            f"A dinov3_vit checkpoint with query_bias={theirs.query_bias}, key_bias={theirs.key_bias} and "
            f"value_bias={theirs.value_bias} does not convert (queries and values must be alike, keys may lack one)"
        )
    return {
        "qkv_bias": theirs.query_bias,
        "key_bias": theirs.key_bias or not theirs.query_bias,
        "image_size": theirs.image_size,
    }


def write_biases_and_size(ours: Any) -> dict[str, Any]:
    """The way back."""
    return {
        "image_size": one_number(ours, "image_size", "dinov3") if KNOWS_SQUARES_ALONE else ours.image_size,
        "query_bias": ours.qkv_bias,
        "key_bias": ours.qkv_bias and ours.key_bias,
        "value_bias": ours.qkv_bias,
    }


DINOV3 = Family(
    name="dinov3",
    model_type="dinov3_vit",
    native_type="hf_ffn_vision",
    fields={
        **same("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        **same("layer_norm_eps", "initializer_range", "drop_path_rate", "num_register_tokens", "rope_theta"),
        **same("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"),
        **{ours: theirs for ours, theirs in IMAGE_FIELDS.items() if ours != "image_size"},
        **NO_DENSE_POOLER,
        "attention_probs_dropout_prob": "attention_dropout",
        "attention_bias": "proj_bias",
        "ffn_bias": "mlp_bias",
        "gated": "use_gated_mlp",
        "layer_scale_init_value": "layerscale_value",
    },
    computed=Computed(("qkv_bias", "key_bias", "image_size"), read_biases_and_size, write_biases_and_size),
    fixed={
        "norm_order": "pre",
        "hidden_dropout_prob": 0.0,
        "drop_path_constant": True,
        "use_mask_token": True,
        "position_embedding_type": "rotary",
        "pooler_dense": False,
    },
    refused={},
    # In memory the list of blocks has a prefix.
    dialects=((r"^model\.layer\.", "layer."),),
    weights=(
        (r"^layer\.", "encoder.layers."),
        (r"patch_embeddings\.", "patch_embeddings.projection."),
        (r"norm1\.", "norm_1."),
        (r"norm2\.", "norm_2."),
        (r"layer_scale1\.lambda1", "layer_scale_1.scale"),
        (r"layer_scale2\.lambda1", "layer_scale_2.scale"),
        (r"mlp\.gate_proj", "ffn.linear_gate"),
        (r"mlp\.up_proj", "ffn.linear_1"),
        (r"mlp\.down_proj", "ffn.linear_2"),
        (r"^norm\.", "encoder.norm."),
    ),
    heads={"FFNVisionModel": "DINOv3ViTModel"},
    layers=r"(?:model\.)?layer",
)
