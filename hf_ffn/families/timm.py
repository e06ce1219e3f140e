"""timm's vision transformers: fused queries, keys and values, and a config.json that does not say how large they are.

https://github.com/huggingface/pytorch-image-models. Sizes come from the tensors, and the rest from the config.json's
`model_args` or from what timm defines under the architecture's name.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import Chunk

from ..checkpoint_ffn import TENSOR_SHAPES
from ..configuration_ffn import height_and_width
from .family import Family
from .timm_architectures import ARCHITECTURES

# Arguments of timm's models that are in the tensors, or said by other entries, or no matter in what they compute.
HARMLESS = {
    *(
        "img_size",
        "patch_size",
        "in_chans",
        "num_classes",
        "global_pool",
        "embed_dim",
        "depth",
        "mlp_ratio",
        "qkv_bias",
    ),
    *("num_heads", "act_layer", "init_values", "class_token", "reg_tokens", "no_embed_class", "pre_norm", "fc_norm"),
    *("dynamic_img_size", "strict_img_size", "weight_init", "fix_init", "mlp_layer"),
}
ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}


class TimmFamily(Family):
    """A family whose configuration is in its tensors."""

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """Turn timm's config.json and the tensors' shapes into a dictionary of our fields."""
        shapes: dict[str, tuple[int, ...]] = config_dict[TENSOR_SHAPES]
        if "blocks.0.attn.qkv.weight" not in shapes or "pos_embed" not in shapes:
            raise ValueError(f"timm's '{config_dict['architecture']}' is no vision transformer that converts")
        told_by_reading = (TENSOR_SHAPES, "model_type")
        rest = {n: value for n, value in config_dict.items() if n not in told_by_reading and n[0] != "_"}
        return {
            **sizes(config_dict, shapes),
            **pooling(config_dict, shapes),
            **definition(config_dict, shapes["blocks.0.attn.qkv.weight"][1]),
            **labels(config_dict, shapes),
            "norm_order": "pre",
            "model_type": self.native_type,
            "source_family": self.name,
            "source_config": rest,
        }

    def architecture(self, config_dict: dict[str, Any]) -> str:
        """Our class for the heads that it has."""
        shapes = config_dict[TENSOR_SHAPES]
        head = "FFNForImageClassification" if "head.weight" in shapes else "FFNVisionModel"
        return "FFNForImageClassificationWithTeacher" if "head_dist.weight" in shapes else head

    def source_config(self, config: PreTrainedConfig, model_type: str | None = None) -> PreTrainedConfig:
        """There is none: `export` writes timm's config.json."""
        raise ValueError("a timm checkpoint is written by export_pretrained, and has no configuration of transformers")


def export(model: PreTrainedModel, folder: Path, state_dict: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint that timm loads (`timm.create_model("local-dir:…", pretrained=True)`)."""
    stored = dict(model.config.source_config or {})
    if model.config.source_family != TIMM.name or model.config.is_heterogeneous:
        raise ValueError("timm's checkpoints name an architecture of timm's, so only what came from one can go back")
    stored["num_classes"] = model.config.num_labels if "head.weight" in state_dict else 0
    # timm states it a second time where it writes arguments.
    if "num_classes" in stored.get("model_args", {}):
        stored["model_args"] = {**stored["model_args"], "num_classes": stored["num_classes"]}
    if stored.get("label_names") is not None:
        stored["label_names"] = [model.config.id2label[index] for index in range(model.config.num_labels)]
    size = height_and_width(model.config.image_size)
    if stated_size(stored) not in (None, size):
        stored["model_args"] = {**stored.get("model_args", {}), "img_size": list(size)}
    (folder / "config.json").write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    tensors = {name.removeprefix("model."): tensor.contiguous() for name, tensor in state_dict.items()}
    save_file(tensors, folder / "model.safetensors")


def sizes(config_dict: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Sizes and parts, from the tensors."""
    hidden_size, channels, *patch_size = shapes["patch_embed.proj.weight"]
    registers = shapes.get("reg_token", (1, None))[1]
    tokens = ("cls_token" in shapes) + ("dist_token" in shapes)
    image_size, grid = image_and_grid(config_dict, shapes, patch_size, tokens)
    width_in, width_out = shapes["blocks.0.mlp.fc1.weight"][0], shapes["blocks.0.mlp.fc2.weight"][1]
    return {
        "hidden_size": hidden_size,
        "num_channels": channels,
        "patch_size": patch_size,
        "image_size": image_size,
        "num_hidden_layers": sum(name.endswith(".attn.qkv.weight") for name in shapes),
        "intermediate_size": width_out,
        "gated": width_in == 2 * width_out,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "qkv_bias": "blocks.0.attn.qkv.bias" in shapes,
        "attention_bias": "blocks.0.attn.proj.bias" in shapes,
        "layer_scale_init_value": 1e-5 if "blocks.0.ls1.gamma" in shapes else None,
        "patch_bias": "patch_embed.proj.bias" in shapes,
        "use_cls_token": "cls_token" in shapes,
        "use_distillation_token": "dist_token" in shapes,
        "num_register_tokens": registers,
        "prefix_positions": shapes["pos_embed"][1] > grid[0] * grid[1],
        "embedding_norm": "norm_pre.weight" in shapes,
        "final_norm": "norm.weight" in shapes,
        "interpolation_antialias": True,
    }


def stated_size(config_dict: dict[str, Any]) -> tuple[int, int] | None:
    """Height and width that a config.json states; None where it states none."""
    size = config_dict.get("model_args", {}).get("img_size")
    size = size or (config_dict.get("pretrained_cfg") or {}).get("input_size", [None])[1:]
    return height_and_width(size) if size else None


def image_and_grid(
    config_dict: dict[str, Any], shapes: dict[str, tuple[int, ...]], patch_size: list[int], tokens: int
) -> tuple[list[int], tuple[int, int]]:
    """The image's size, and patches (down, across) for which there are positions: as stated, or a square."""
    positions = shapes["pos_embed"][1]
    # With positions of the class and distillation token, and without
    sides = (math.isqrt(positions), math.isqrt(positions - tokens))
    squares = [(side * patch_size[0], side * patch_size[1]) for side in sides]
    for height, width in (stated_size(config_dict) or (0, 0), *squares):
        grid = (height // patch_size[0], width // patch_size[1])
        if positions in (grid[0] * grid[1], grid[0] * grid[1] + tokens):
            return [height, width], grid
    raise ValueError(
        f"timm's '{config_dict['architecture']}' has {positions} positions, which fit neither its input_size nor a "
        f"square (registers with positions do not convert)"
    )


def pooling(config_dict: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """What timm's heads read: the class token, or the patches' mean with a LayerNorm before it or after."""
    how = config_dict.get("model_args", {}).get("global_pool", config_dict.get("global_pool", "token"))
    pooled_norm = "fc_norm.weight" in shapes
    if how not in ("token", "avg") or (how == "token" and (pooled_norm or "cls_token" not in shapes)):
        raise ValueError(f"timm's '{config_dict['architecture']}' with global_pool={how!r} does not convert")
    return {
        "pooling": "cls" if how == "token" else "mean",
        "pooler_norm": pooled_norm,
        "pooler_dense": False,
        "classifier_pooling": "pooler",
    }


def definition(config_dict: dict[str, Any], hidden_size: int) -> dict[str, Any]:
    """What neither tensors nor config.json say."""
    architecture, arguments = config_dict["architecture"], config_dict.get("model_args", {})
    odd = sorted(arguments.keys() - HARMLESS)
    if odd or architecture not in ARCHITECTURES:
        what = f"model_args {', '.join(odd)}" if odd else "an architecture that hf_ffn does not know"
        raise ValueError(f"timm's '{architecture}' does not convert: {what}")
    heads, activation, epsilon = ARCHITECTURES[architecture]
    activation = arguments.get("act_layer", activation)
    return {
        "num_attention_heads": arguments.get("num_heads") or heads or hidden_size // 64,
        "hidden_act": ACTIVATIONS.get(activation, activation),
        "layer_norm_eps": epsilon,
    }


def labels(config_dict: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """The head's labels, where they are named by their names."""
    number = shapes["head.weight"][0] if "head.weight" in shapes else 2
    names = config_dict.get("label_names") or [f"LABEL_{index}" for index in range(number)]
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


QKV = tuple(
    (f"attn.qkv.{part}", [f"attention.{letter}_proj.{part}" for letter in "qkv"], Chunk(0))
    for part in ("weight", "bias")
)
GATED = tuple(
    (f"mlp.fc1.{part}", [f"ffn.linear_gate.{part}", f"ffn.linear_1.{part}"], Chunk(0)) for part in ("weight", "bias")
)
WEIGHTS = (
    (r"blocks\.", "encoder.layers."),
    (r"attn\.proj", "attention.o_proj"),
    (r"\.norm1\.", ".norm_1."),
    (r"\.norm2\.", ".norm_2."),
    (r"ls1\.gamma", "layer_scale_1.scale"),
    (r"ls2\.gamma", "layer_scale_2.scale"),
    (r"mlp\.fc2", "ffn.linear_2"),
    (r"patch_embed\.proj", "embeddings.patch_embeddings.projection"),
    (r"cls_token", "embeddings.cls_token"),
    (r"dist_token", "embeddings.distillation_token"),
    (r"reg_token", "embeddings.register_tokens"),
    (r"pos_embed", "embeddings.position_embeddings"),
    (r"norm_pre\.", "embeddings.norm."),
    (r"fc_norm\.", "pooler.norm."),
    (r"(?<![\w.])norm\.", "encoder.norm."),
)

TIMM = TimmFamily(
    name="timm",
    model_type="timm_wrapper",
    native_type="hf_ffn_vision",
    fields={},
    fixed={},
    refused={},
    dialects=((r"^timm_model\.", ""),),
    weights=(*WEIGHTS, (r"mlp\.fc1", "ffn.linear_1")),
    fused=QKV,
    when_gated={"weights": WEIGHTS, "fused": (*QKV, *GATED)},
    head_weights={
        "FFNForImageClassification": ((r"^head\.", "classifier."),),
        "FFNForImageClassificationWithTeacher": (
            (r"^head\.", "cls_classifier."),
            (r"^head_dist\.", "distillation_classifier."),
        ),
    },
    heads={
        "FFNVisionModel": "TimmWrapperModel",
        "FFNForImageClassification": "TimmWrapperForImageClassification",
        "FFNForImageClassificationWithTeacher": "TimmWrapperForImageClassification",
    },
    export=export,
    layers=r"(?:timm_model\.)?blocks",
    rounding="timm computes queries, keys and values in one product",
)
