"""DINOv2 ([Oquab et al. 2023](https://huggingface.co/papers/2304.07193)) and its form with register tokens.

ViT with layer scale, in its largest size with SwiGLU; classifiers read the class token and the patches' mean.
"""

from dataclasses import replace
from typing import Any

from transformers.core_model_loading import Chunk

from .family import Computed, Family, same
from .operations import Dimensions
from .vit import IMAGE_FIELDS, NO_DENSE_POOLER, one_number


def swiglu_width(width: int) -> int:
    """Two thirds of a plain block's width, rounded up to a multiple of 8."""
    return (int(width * 2 / 3) + 7) // 8 * 8


def read_block(theirs: Any) -> dict[str, Any]:
    """The feed-forward block: its width comes from a ratio, and SwiGLU has an activation of its own."""
    width = int(theirs.hidden_size * theirs.mlp_ratio)
    if theirs.use_swiglu_ffn:
        return {"intermediate_size": swiglu_width(width), "gated": True, "hidden_act": "silu"}
    return {"intermediate_size": width, "gated": False, "hidden_act": theirs.hidden_act}


def write_block(ours: Any) -> dict[str, Any]:
    """The way back; a ratio that a converted checkpoint had and that still fits is kept."""
    # Its classes take the positions for those of a square.
    one_number(ours, "image_size", "dinov2")
    if ours.gated and ours.hidden_act != "silu":
        raise ValueError(f"dinov2 cannot express hidden_act={ours.hidden_act!r} beside gated=True: it has 'silu'")
    stored = (ours.source_config or {}).get("mlp_ratio")
    for ratio in ([stored] if stored is not None else []) + list(range(1, 17)):
        width = int(ours.hidden_size * ratio)
        if ours.intermediate_size == (swiglu_width(width) if ours.gated else width):
            kept = {} if ours.gated else {"hidden_act": ours.hidden_act}
            return {"mlp_ratio": ratio, "use_swiglu_ffn": ours.gated, **kept}
    raise ValueError(
        f"dinov2 cannot express intermediate_size={ours.intermediate_size} beside hidden_size={ours.hidden_size}: "
        f"mlp_ratio is a whole number"
    )


def names(prefix: str, gated: bool) -> dict[str, Any]:
    """How a form of the family calls its weights."""
    layers = (
        (rf"^{prefix}\.", "model."),
        (r"encoder\.layer\.", "encoder.layers."),
        (r"attention\.attention\.query", "attention.q_proj"),
        (r"attention\.attention\.key", "attention.k_proj"),
        (r"attention\.attention\.value", "attention.v_proj"),
        (r"attention\.output\.dense", "attention.o_proj"),
        (r"norm1\.", "norm_1."),
        (r"norm2\.", "norm_2."),
        (r"layer_scale1\.lambda1", "layer_scale_1.scale"),
        (r"layer_scale2\.lambda1", "layer_scale_2.scale"),
        (r"layernorm", "encoder.norm"),
    )
    mask_token = ("mask_token", ["mask_token"], Dimensions(2, 3))
    if not gated:
        return {
            "weights": (*layers, (r"mlp\.fc1", "ffn.linear_1"), (r"mlp\.fc2", "ffn.linear_2")),
            "fused": (mask_token,),
        }
    gate_and_value = (
        (f"mlp.weights_in.{part}", [f"ffn.linear_gate.{part}", f"ffn.linear_1.{part}"], Chunk(0))
        for part in ("weight", "bias")
    )
    return {
        "weights": (*layers, (r"mlp\.weights_out", "ffn.linear_2")),
        "fused": (mask_token, *gate_and_value),
        "rounding": "older versions of transformers compute SwiGLU's gate and value in one product",
    }


DINOV2 = Family(
    name="dinov2",
    model_type="dinov2",
    native_type="hf_ffn_vision",
    fields={
        **same("hidden_size", "num_hidden_layers", "num_attention_heads"),
        **same("attention_probs_dropout_prob", "layer_norm_eps", "initializer_range", "qkv_bias", "drop_path_rate"),
        **IMAGE_FIELDS,
        **NO_DENSE_POOLER,
        "embedding_dropout_prob": "hidden_dropout_prob",
        "use_mask_token": "use_mask_token",
        "layer_scale_init_value": "layerscale_value",
    },
    computed=Computed(("intermediate_size", "gated", "hidden_act"), read_block, write_block),
    fixed={
        "norm_order": "pre",
        "hidden_dropout_prob": 0.0,
        "drop_path_constant": True,
        "pooler_dense": False,
        "classifier_pooling": "cls_mean",
        "interpolate_pos_encoding": True,
    },
    refused={},
    dialects=(
        (r"mlp\.gate_proj", "ffn.linear_gate"),
        (r"mlp\.up_proj", "ffn.linear_1"),
        (r"mlp\.down_proj", "ffn.linear_2"),
    ),
    when_gated=names("dinov2", gated=True),
    **names("dinov2", gated=False),
    heads={"FFNVisionModel": "Dinov2Model", "FFNForImageClassification": "Dinov2ForImageClassification"},
    layers="encoder.layer",
)

DINOV2_WITH_REGISTERS = replace(
    DINOV2,
    name="dinov2-with-registers",
    model_type="dinov2_with_registers",
    fields={
        **{name: path for name, path in DINOV2.fields.items() if name != "use_mask_token"},
        "num_register_tokens": "num_register_tokens",
    },
    fixed={**DINOV2.fixed, "use_mask_token": True, "interpolation_antialias": True},
    when_gated=names("dinov2_with_registers", gated=True),
    **names("dinov2_with_registers", gated=False),
    heads={
        "FFNVisionModel": "Dinov2WithRegistersModel",
        "FFNForImageClassification": "Dinov2WithRegistersForImageClassification",
    },
)
