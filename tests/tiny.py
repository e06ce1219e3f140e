"""Small models of transformers' own classes whose faults would show, and inputs for them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel, ViTConfig

import hf_ffn
from hf_ffn import FFNTextConfig, FFNVisionConfig

# The classes of transformers whose checkpoints convert, and ours that they become.
BERT_CLASSES = {
    "BertModel": "FFNTextModel",
    "BertForMaskedLM": "FFNForMaskedLM",
    "BertForSequenceClassification": "FFNForSequenceClassification",
    "BertForTokenClassification": "FFNForTokenClassification",
    "BertForQuestionAnswering": "FFNForQuestionAnswering",
}
VIT_CLASSES = {
    "ViTModel": "FFNVisionModel",
    "ViTForImageClassification": "FFNForImageClassification",
}


def bert_config(**overrides: Any) -> BertConfig:
    """A tiny BERT's configuration."""
    sizes = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
    }
    return BertConfig(**{**sizes, **overrides})


def vit_config(**overrides: Any) -> ViTConfig:
    """A tiny ViT's configuration."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    return ViTConfig(**{**sizes, **overrides})


def ffn_text_config(**overrides: Any) -> FFNTextConfig:
    """Our configuration of the same size as `bert_config`'s."""
    sizes = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
    }
    return FFNTextConfig(**{**sizes, **overrides})


def ffn_vision_config(**overrides: Any) -> FFNVisionConfig:
    """Our configuration of the same size as `vit_config`'s."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    return FFNVisionConfig(**{**sizes, **overrides})


# What some of our classes need of their configuration.
NEEDED = {
    "FFNForImageClassificationWithTeacher": {"use_distillation_token": True},
    "FFNForAudioClassification": {"num_channels": 1, "image_size": (32, 40)},
}


def ffn_config(class_name: str, **overrides: Any) -> FFNTextConfig | FFNVisionConfig:
    """A tiny configuration for one of our classes (by name)."""
    is_text = getattr(hf_ffn, class_name).config_class is FFNTextConfig
    return (ffn_text_config if is_text else ffn_vision_config)(**{**NEEDED.get(class_name, {}), **overrides})


def ffn_model(class_name: str, seed: int = 0, **overrides: Any) -> Any:
    """A telling model of one of our classes (by name)."""
    return telling_model(getattr(hf_ffn, class_name), ffn_config(class_name, **overrides), seed)


def telling_model(model_class: type[PreTrainedModel], config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A model whose faults show in its outputs, in eval mode.

    At initialisation (std 0.02, norms at the identity, biases at zero) a swapped activation or a lost bias changes
    outputs by less than any sensible tolerance. Here weights are five times as large, and norms, biases, and tables
    and tokens that start at zero are away from where they start.
    """
    torch.manual_seed(seed)
    model = model_class(config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                if module.bias is not None:
                    module.bias.uniform_(-0.5, 0.5)
        for name, parameter in model.named_parameters():
            if not parameter.any():
                parameter.normal_(std=0.3)
            elif parameter.dim() > 1:
                parameter.mul_(5)
            elif name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def text_inputs(
    config: Any, padded: bool = True, seed: int = 1, batch_size: int = 3, length: int = 12
) -> dict[str, torch.Tensor]:
    """A batch of three sequences of 12 tokens, two of them padded (one on the left)."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(1, config.vocab_size, (batch_size, length), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    if padded:
        attention_mask[0, 7:] = 0
        attention_mask[1, :3] = 0
        input_ids = input_ids * attention_mask
    return {"input_ids": input_ids, "attention_mask": attention_mask}


def image_inputs(
    config: Any, seed: int = 1, size: tuple[int, int] | None = None, batch_size: int = 2
) -> dict[str, torch.Tensor]:
    """A batch of two images."""
    generator = torch.Generator().manual_seed(seed)
    height, width = size or (config.image_size, config.image_size)
    return {"pixel_values": torch.randn(batch_size, config.num_channels, height, width, generator=generator)}


def inputs_for(config: Any, padded: bool = True) -> dict[str, torch.Tensor]:
    """Inputs for a text or an image model, as its configuration says."""
    return image_inputs(config) if hasattr(config, "image_size") else text_inputs(config, padded)


def labels_for(model: Any, inputs: dict[str, torch.Tensor], seed: int = 2) -> dict[str, torch.Tensor]:
    """What the head of a model (one of ours, or of transformers') learns from; nothing for a model without a head.

    The kind of labels goes by `config.problem_type` (None: one class each). Where labels may be left out (-100), the
    first sequence has most left out, and the second all.
    """
    generator = torch.Generator().manual_seed(seed)
    config, class_name = model.config, type(model).__name__
    batch_size, length = next(iter(inputs.values())).shape[:2]
    if class_name.endswith("ForQuestionAnswering"):
        names = ("start_positions", "end_positions")
        return {name: torch.randint(length, (batch_size,), generator=generator) for name in names}
    if class_name.endswith(("ForMaskedLM", "ForTokenClassification")):
        classes = config.vocab_size if class_name.endswith("ForMaskedLM") else config.num_labels
        labels = torch.randint(classes, (batch_size, length), generator=generator)
        labels[0, 2:] = labels[1] = -100
        return {"labels": labels}
    if not class_name.endswith("Classification"):
        return {}
    shape = (batch_size,) if config.num_labels == 1 else (batch_size, config.num_labels)
    if config.problem_type == "regression":
        return {"labels": torch.randn(shape, generator=generator)}
    if config.problem_type == "multi_label_classification":
        return {"labels": torch.randint(2, shape, generator=generator).float()}
    return {"labels": torch.randint(config.num_labels, (batch_size,), generator=generator)}


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Change the tensors of a saved checkpoint."""
    path = folder / "model.safetensors"
    save_file({k: v.clone() for k, v in change(load_file(path)).items()}, path, metadata={"format": "pt"})


def rewrite_config(folder: Path, **entries: Any) -> None:
    """Change entries of a saved config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def to_bin(folder: Path) -> Path:
    """Turn a folder's weights into a `.bin`."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def drop(part: str) -> Callable:
    return lambda tensors: {name: tensor for name, tensor in tensors.items() if part not in name}


def our_class(theirs: str) -> type:
    return getattr(hf_ffn, {**BERT_CLASSES, **VIT_CLASSES}[theirs])
