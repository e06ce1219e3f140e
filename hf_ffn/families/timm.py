"""timm's vision transformers: fused queries, keys and values, and a config.json that does not say how large they are.

https://github.com/huggingface/pytorch-image-models. Sizes come from the tensors, and the rest from the config.json's
`model_args` or from what timm defines under the architecture's name.
"""

import copy
import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import Chunk
from transformers.utils import logging

from ..checkpoint_ffn import TENSOR_SHAPES
from ..configuration_ffn import FFNVisionConfig, height_and_width
from ..registry_ffn import Shapes
from .family import Family, dropout
from .timm_architectures import ARCHITECTURES, PLAIN
from .timm_images import image_processor

logger = logging.get_logger(__name__)

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
    *("dynamic_img_size", "strict_img_size", "weight_init", "fix_init", "mlp_layer", "proj_bias", "final_norm"),
}
# Those that only training reads: with the field of ours, or None where we have none.
RATES: dict[str, str | None] = {
    "drop_path_rate": "drop_path_rate",
    "pos_drop_rate": "embedding_dropout_prob",
    "proj_drop_rate": "hidden_dropout_prob",
    "attn_drop_rate": "attention_probs_dropout_prob",
    "drop_rate": None,
    "patch_drop_rate": None,
}
# Those that convert with the one value that is timm's default.
ONLY: dict[str, Any] = {
    "qk_norm": False,
    "scale_attn_norm": False,
    "scale_mlp_norm": False,
    "pos_embed": "learn",
    "pool_include_prefix": False,
    "dynamic_img_pad": False,
}
# Entries that timm writes beside those of pretrained_cfg.
BESIDE_PRETRAINED = (
    *("architecture", "num_classes", "num_features", "global_pool", "label_names", "labels", "label_descriptions"),
    "model_args",
)
# Widths whose models have other numbers of heads than one for every 64 channels, so that they must be stated.
UNUSUAL = (1152, 1280, 1408, 1536, 1664)
ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}


class TimmFamily(Family):
    """A family whose configuration is in its tensors."""

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """Turn timm's config.json and the tensors' shapes into a dictionary of our fields."""
        shapes, told = plain_names(config_dict[TENSOR_SHAPES]), unified(config_dict)
        if not is_vision_transformer(shapes):
            raise ValueError(f"{named(told)} is no vision transformer that converts")
        # transformers states its type in what it saves, and adds it to what it reads of timm's.
        added = (TENSOR_SHAPES,) if "architectures" in config_dict else (TENSOR_SHAPES, "model_type")
        rest = {name: value for name, value in config_dict.items() if name not in added and name[0] != "_"}
        return {
            **sizes(told, shapes),
            **pooling(told, shapes),
            **definition(told, shapes),
            **rates(told),
            **labels(told, shapes),
            "norm_order": "pre",
            "model_type": self.native_type,
            "source_family": self.name,
            "source_config": rest,
        }

    def architecture(self, config_dict: dict[str, Any]) -> str:
        """Our class for the heads that it has."""
        shapes = plain_names(config_dict[TENSOR_SHAPES])
        head = "FFNForImageClassification" if "head.weight" in shapes else "FFNVisionModel"
        return "FFNForImageClassificationWithTeacher" if "head_dist.weight" in shapes else head

    def source_config(self, config: PreTrainedConfig, model_type: str | None = None) -> PreTrainedConfig:
        """There is none: `export` writes timm's config.json."""
        raise ValueError("a timm checkpoint is written by export_pretrained, and has no configuration of transformers")

    def fitting(self, config_dict: dict[str, Any], shapes: Shapes) -> dict[str, Any] | None:
        """What a config.json without a model type translates to if the tensors are timm's; None where they are not.

        Raises:
            ValueError: they are, and do not convert.
        """
        if not is_vision_transformer(plain_names(shapes)):
            return None
        return self.translate_config({**config_dict, TENSOR_SHAPES: shapes})

    def original_keywords(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """The configuration that transformers' wrapper of timm needs, where the checkpoint's own would not do.

        The wrapper states the number of classes beside `model_args`, which may not state it too, and knows no model
        without the name of an architecture.
        """
        # Imported here, for it brings along timm, where that is installed.
        from transformers import TimmWrapperConfig

        told, translated = unified(config_dict), self.translate_config(config_dict)
        arguments = {name: value for name, value in told["model_args"].items() if name != "num_classes"}
        if told["architecture"] is None:
            arguments |= constructor_arguments(FFNVisionConfig(**translated))
        own = {"architecture": told["architecture"] or "vit_base_patch16_224", "model_args": arguments}
        # Its class takes entries out of what it is given.
        stored = copy.deepcopy({**translated["source_config"], **own})
        names = translated["id2label"]
        config = TimmWrapperConfig.from_dict(stored, id2label=names, num_labels=len(names))
        return {"config": config}


def constructor_arguments(config: FFNVisionConfig) -> dict[str, Any]:
    """What timm's vision transformer is made with to have the sizes and parts of a converted model."""
    return {
        "img_size": config.image_size,
        "patch_size": config.patch_size,
        "in_chans": config.num_channels,
        "embed_dim": config.hidden_size,
        "depth": config.num_hidden_layers,
        "num_heads": config.num_attention_heads,
        # Rounded down to whole channels there
        "mlp_ratio": (config.intermediate_size + 0.5) / config.hidden_size,
        "qkv_bias": config.qkv_bias,
        "proj_bias": config.attention_bias,
        "init_values": config.layer_scale_init_value,
        "class_token": config.use_cls_token,
        "reg_tokens": config.num_register_tokens or 0,
        "no_embed_class": not config.prefix_positions,
        "final_norm": config.final_norm,
        "fc_norm": config.pooler_norm,
        "global_pool": "token" if config.pooling == "cls" else "avg",
    }


def export(model: PreTrainedModel, folder: Path, state_dict: dict[str, torch.Tensor]) -> None:
    """Write a checkpoint that timm loads (`timm.create_model("local-dir:…", pretrained=True)`)."""
    if model.config.source_family != TIMM.name or model.config.is_heterogeneous:
        raise ValueError("timm's checkpoints name an architecture of timm's, so only what came from one can go back")
    stored = stored_now(model.config, has_head="head.weight" in state_dict)
    (folder / "config.json").write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")
    tensors = {name.removeprefix("model."): tensor.contiguous() for name, tensor in state_dict.items()}
    save_file(tensors, folder / "model.safetensors")


def stored_now(config: PreTrainedConfig, *, has_head: bool) -> dict[str, Any]:
    """The config.json that a model came with, and in it what is another now: classes, image size, dropouts."""
    stored = dict(config.source_config or {})
    told = unified(stored)
    arguments = dict(told["model_args"])
    stored["num_classes"] = config.num_labels if has_head else 0
    # timm states it a second time where it writes arguments.
    if "num_classes" in arguments:
        arguments["num_classes"] = stored["num_classes"]
    for theirs, ours in RATES.items():
        if ours is not None and dropout(config, ours) != (arguments.get(theirs) or 0.0):
            arguments[theirs] = dropout(config, ours)
    names = [config.id2label[index] for index in range(config.num_labels)]
    stated = numbered(told["label_names"])
    before = [stated.get(row, f"LABEL_{row}") for row in range(len(names))]
    if has_head and (names != before or max(stated, default=0) >= len(names)):
        for old in ("labels", "label_descriptions"):
            stored.pop(old, None)
        stored["label_names"] = names
    size = height_and_width(config.image_size)
    resized = stated_size(told) not in (None, size)
    if resized:
        arguments["img_size"] = list(size)
    if arguments != told["model_args"]:
        stored["model_args"] = arguments
        if "pretrained_cfg" not in stored and "architectures" not in stored:
            # A file of timm's whose entries lie side by side has no place for arguments.
            own = {name: value for name, value in stored.items() if name not in BESIDE_PRETRAINED}
            stored = {**{name: value for name, value in stored.items() if name not in own}, "pretrained_cfg": own}
    if resized and told["pretrained_cfg"].get("input_size"):
        stored["pretrained_cfg"] = {**stored["pretrained_cfg"], "input_size": [config.num_channels, *size]}
    return stored


def unified(config_dict: dict[str, Any]) -> dict[str, Any]:
    """A config.json as timm writes it today: older ones hold all entries side by side, and some leave entries out."""
    own = config_dict.get("pretrained_cfg")
    own = config_dict if own is None else own
    names = [each.get(name) for each in (config_dict, own) for name in ("label_names", "labels")]
    return {
        # A tag behind it says which weights of that architecture they are.
        "architecture": (config_dict.get("architecture") or own.get("architecture") or "").split(".")[0] or None,
        "global_pool": config_dict.get("global_pool"),
        "model_args": config_dict.get("model_args") or {},
        "pretrained_cfg": own,
        "label_names": next((each for each in names if each is not None), None),
    }


def plain_names(shapes: Shapes) -> Shapes:
    """The tensors' names as timm has them; transformers' wrapper puts its own before them."""
    return {name.removeprefix("timm_model."): shape for name, shape in shapes.items()}


def is_vision_transformer(shapes: Shapes) -> bool:
    """Whether these are the tensors of a vision transformer as timm makes them."""
    return {"blocks.0.attn.qkv.weight", "patch_embed.proj.weight", "pos_embed"} <= shapes.keys()


def named(told: dict[str, Any]) -> str:
    """A checkpoint, for messages."""
    return (
        f"timm's '{told['architecture']}'" if told["architecture"] else "timm's model without an architecture's name"
    )


def sizes(told: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """Sizes and parts, from the tensors."""
    hidden_size, channels, *patch_size = shapes["patch_embed.proj.weight"]
    registers = shapes.get("reg_token", (1, None))[1]
    tokens = ("cls_token" in shapes) + ("dist_token" in shapes)
    image_size, grid = image_and_grid(told, shapes, patch_size, tokens)
    width_in, width_out = shapes["blocks.0.mlp.fc1.weight"][0], shapes["blocks.0.mlp.fc2.weight"][1]
    return {
        "hidden_size": hidden_size,
        "num_channels": channels,
        "patch_size": patch_size,
        "image_size": image_size,
        "num_hidden_layers": sum(name.endswith(".attn.qkv.weight") for name in shapes),
        "intermediate_size": width_out,
        "gated": width_in == 2 * width_out,
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
        "interpolate_pos_encoding": bool(told["model_args"].get("dynamic_img_size")),
    }


def stated_size(told: dict[str, Any]) -> tuple[int, int] | None:
    """Height and width that a config.json states; None where it states none."""
    size = told["model_args"].get("img_size") or (told["pretrained_cfg"].get("input_size") or [None])[1:]
    return height_and_width(size) if size else None


def image_and_grid(
    told: dict[str, Any], shapes: Shapes, patch_size: list[int], tokens: int
) -> tuple[list[int], tuple[int, int]]:
    """The image's size, and patches (down, across) for which there are positions: as stated, or a square."""
    positions = shapes["pos_embed"][1]
    # With positions of the class and distillation token, and without
    sides = (math.isqrt(positions), math.isqrt(positions - tokens))
    squares = [(side * patch_size[0], side * patch_size[1]) for side in sides]
    for height, width in (stated_size(told) or (0, 0), *squares):
        grid = (height // patch_size[0], width // patch_size[1])
        if positions in (grid[0] * grid[1], grid[0] * grid[1] + tokens):
            return [height, width], grid
    raise ValueError(
        f"{named(told)} has {positions} positions, which fit neither its input_size nor a "
        f"square (registers with positions do not convert)"
    )


def pooling(told: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """What timm's heads read: the class token, or the patches' mean with a LayerNorm before it or after."""
    pooled_norm = "fc_norm.weight" in shapes
    how = told["model_args"].get("global_pool") or told["global_pool"]
    if how is None:
        how = "avg" if pooled_norm or "cls_token" not in shapes else "token"
    if how not in ("token", "avg") or (how == "token" and (pooled_norm or "cls_token" not in shapes)):
        raise ValueError(f"{named(told)} with global_pool={how!r} does not convert")
    return {
        "pooling": "cls" if how == "token" else "mean",
        "pooler_norm": pooled_norm,
        "pooler_dense": False,
        "classifier_pooling": "pooler",
    }


def definition(told: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """What the tensors do not say: by the architecture's name, or of timm's plain vision transformer without one."""
    architecture, arguments = told["architecture"], told["model_args"]
    hidden_size = shapes["blocks.0.attn.qkv.weight"][1]
    unknown = arguments.keys() - HARMLESS - RATES.keys()
    odd = sorted(name for name in unknown if name not in ONLY or arguments[name] not in (None, ONLY[name]))
    if odd or architecture not in (None, *ARCHITECTURES):
        what = f"model_args {', '.join(odd)}" if odd else "an architecture that hf_ffn does not know"
        raise ValueError(f"{named(told)} does not convert: {what}")
    if architecture is None:
        refuse_ambiguous(told, shapes)
    heads, activation, epsilon = ARCHITECTURES[architecture] if architecture is not None else PLAIN
    activation = arguments.get("act_layer") or activation
    return {
        "num_attention_heads": arguments.get("num_heads") or heads or hidden_size // 64,
        "hidden_act": ACTIVATIONS.get(activation, activation),
        "layer_norm_eps": epsilon,
    }


def refuse_ambiguous(told: dict[str, Any], shapes: Shapes) -> None:
    """Refuse a checkpoint without an architecture's name that need not be timm's plain vision transformer.

    Raises:
        ValueError: saying which entry of config.json is needed.
    """
    hidden_size = shapes["blocks.0.attn.qkv.weight"][1]
    if "norm_pre.weight" in shapes or shapes["blocks.0.mlp.fc1.weight"][0] != shapes["blocks.0.mlp.fc2.weight"][1]:
        raise ValueError(
            f"{named(told)} does not convert: models with a LayerNorm before the blocks, or gated ones, have several "
            f'activations and epsilons. Add "architecture" to its config.json'
        )
    if not told["model_args"].get("num_heads") and (hidden_size % 64 or hidden_size in UNUSUAL):
        raise ValueError(
            f"{named(told)} does not convert: of {hidden_size} channels the number of heads does not follow. Add "
            f'"architecture", or "model_args": {{"num_heads": …}}, to its config.json'
        )
    logger.warning_once(
        f"{named(told)} is taken for timm's plain vision transformer: GELU, LayerNorms with an epsilon of 1e-6, and a "
        f"head for every 64 channels where model_args state no num_heads"
    )


def rates(told: dict[str, Any]) -> dict[str, Any]:
    """Dropouts, of which each is 0 where nothing is stated."""
    stated = {name: told["model_args"].get(name) or 0.0 for name in RATES}
    lost = [f"{name}={value}" for name, value in stated.items() if RATES[name] is None and value]
    if lost:
        logger.warning_once(f"{named(told)} has dropout that we do not, which only training reads: {', '.join(lost)}")
    ours = {field: stated[name] for name, field in RATES.items() if field is not None}
    return {**ours, "activation_dropout_prob": stated["proj_drop_rate"]}


def labels(told: dict[str, Any], shapes: Shapes) -> dict[str, Any]:
    """The head's labels, where they are named by their names.

    Raises:
        ValueError: there are names of rows that the head does not have, or a list has too few.
    """
    number = shapes["head.weight"][0] if "head.weight" in shapes else 2
    stated = numbered(told["label_names"]) if "head.weight" in shapes else {}
    too_few = isinstance(told["label_names"], list) and len(stated) < number
    if stated and (max(stated) >= number or too_few):
        raise ValueError(
            f"{named(told)} has label_names for {len(stated)} rows, and a head of {number}: mend its config.json"
        )
    names = [stated.get(index, f"LABEL_{index}") for index in range(number)]
    return {"id2label": dict(enumerate(names)), "label2id": {name: index for index, name in enumerate(names)}}


def numbered(names: list[str] | dict[str, str] | None) -> dict[int, str]:
    """Label names by their rows' numbers; timm states them in order or, where there are gaps, by number."""
    return {int(row): name for row, name in (names.items() if isinstance(names, dict) else enumerate(names or ()))}


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
    sizes_in_tensors=True,
    image_processor=lambda config: image_processor(unified(config.source_config), config),
    rounding="timm computes queries, keys and values in one product",
)
