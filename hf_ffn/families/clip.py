"""The image towers of CLIP ([Radford et al. 2021](https://huggingface.co/papers/2103.00020)) and SigLIP
([Zhai et al. 2023](https://huggingface.co/papers/2303.15343)), by themselves or out of the whole model.

Of a whole model the text tower stays behind. Classifiers hold the pooler, which they do not use.
"""

from typing import Any

from .family import POSITION_IDS, Computed, Family, same
from .operations import Dimensions
from .vit import NO_DENSE_POOLER, one_number

FIELDS = {
    **same("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    **same("layer_norm_eps", "num_channels"),
    **NO_DENSE_POOLER,
    "attention_probs_dropout_prob": "attention_dropout",
}
SIZES = ("image_size", "patch_size")
FIXED = {
    "norm_order": "pre",
    "hidden_dropout_prob": 0.0,
    "pooler_dense": False,
    "classifier_pooling": "mean",
    "keep_pooler": True,
}
WEIGHTS = (
    (r"^vision_model\.", "model."),
    (r"patch_embedding\.", "patch_embeddings.projection."),
    (r"self_attn\.q_proj", "attention.q_proj"),
    (r"self_attn\.k_proj", "attention.k_proj"),
    (r"self_attn\.v_proj", "attention.v_proj"),
    (r"self_attn\.out_proj", "attention.o_proj"),
    (r"layer_norm1", "norm_1"),
    (r"layer_norm2", "norm_2"),
    (r"mlp\.fc1", "ffn.linear_1"),
    (r"mlp\.fc2", "ffn.linear_2"),
)
POSITIONS = ("embeddings.position_embedding.weight", ["embeddings.position_embeddings"], Dimensions(2, 3))
UNUSED = {
    **POSITION_IDS,
    r"^text_model\.": "the text tower, which stays behind",
    r"^(text|visual)_projection\.|^logit_(scale|bias)$": "what compares images with texts, which hf_ffn does not do",
}
LAYERS = r"(?:vision_model\.)?encoder\.layers"


def read_sizes(theirs: Any) -> dict[str, Any]:
    """Sizes of images and patches, which are the same in height and width."""
    return {name: getattr(theirs, name) for name in SIZES}


def write_sizes(ours: Any, family: str = "clip") -> dict[str, Any]:
    """The way back: its classes take no pairs."""
    return {name: one_number(ours, name, family) for name in SIZES}


CLIP = Family(
    name="clip",
    model_type="clip_vision_model",
    nested=("clip", "vision_config"),
    native_type="hf_ffn_vision",
    fields={**FIELDS, **same("initializer_range")},
    computed=Computed(SIZES, read_sizes, write_sizes),
    fixed={**FIXED, "patch_bias": False, "embedding_norm": True, "final_norm": False, "pooler_norm": True},
    refused={},
    weights=(*WEIGHTS, (r"pre_layrnorm", "embeddings.norm"), (r"post_layernorm", "pooler.norm")),
    fused=(POSITIONS, ("embeddings.class_embedding", ["embeddings.cls_token"], Dimensions(1, 3))),
    heads={"FFNVisionModel": "CLIPVisionModel", "FFNForImageClassification": "CLIPForImageClassification"},
    also_reads={"CLIPModel": "FFNVisionModel", "CLIPVisionModelWithProjection": "FFNVisionModel"},
    unused=UNUSED,
    layers=LAYERS,
)


def read_head(theirs: Any) -> dict[str, Any]:
    """Whether a SigLIP tower pools; older versions of transformers have no such field, and theirs do."""
    return {**read_sizes(theirs), "add_pooling_layer": getattr(theirs, "vision_use_head", True)}


def write_head(ours: Any) -> dict[str, Any]:
    """The way back, which only says what need be said."""
    stored = "vision_use_head" in (ours.source_config or {})
    head = {"vision_use_head": ours.add_pooling_layer} if stored or not ours.add_pooling_layer else {}
    return {**write_sizes(ours, "siglip"), **head}


SIGLIP = Family(
    name="siglip",
    model_type="siglip_vision_model",
    nested=("siglip", "vision_config"),
    native_type="hf_ffn_vision",
    fields=FIELDS,
    computed=Computed((*SIZES, "add_pooling_layer"), read_head, write_head),
    fixed={**FIXED, "initializer_range": 0.02, "use_cls_token": False, "pooling": "attention"},
    refused={},
    weights=(
        (r"head\.probe", "pooler.attention_pooling.query"),
        (r"head\.attention\.", "pooler.attention_pooling.attention."),
        (r"head\.layernorm", "pooler.attention_pooling.norm"),
        (r"head\.mlp\.", "pooler.attention_pooling.mlp."),
        *WEIGHTS,
        (r"post_layernorm", "encoder.norm"),
    ),
    fused=(POSITIONS,),
    heads={"FFNVisionModel": "SiglipVisionModel", "FFNForImageClassification": "SiglipForImageClassification"},
    also_reads={"SiglipModel": "FFNVisionModel"},
    unused=UNUSED,
    layers=LAYERS,
)
