"""Small models of transformers' own classes whose faults would show, and inputs for them."""

from typing import Any

import torch
from torch import nn
from transformers import BertConfig, PreTrainedConfig, PreTrainedModel, ViTConfig

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


def telling_model(model_class: type[PreTrainedModel], config: PreTrainedConfig, seed: int = 0) -> PreTrainedModel:
    """A model whose faults show in its outputs, in eval mode.

    At initialisation (std 0.02, norms at the identity, biases at zero) a swapped activation or a lost bias changes
    outputs by less than any sensible tolerance. Here weights are five times as large, and norms and biases are
    away from where they start.
    """
    torch.manual_seed(seed)
    model = model_class(config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.5, 0.5)
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(5)
            elif name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def text_inputs(config: Any, padded: bool = True, seed: int = 1) -> dict[str, torch.Tensor]:
    """A batch of three sequences of 12 tokens, two of them padded (one on the left)."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(1, config.vocab_size, (3, 12), generator=generator)
    attention_mask = torch.ones_like(input_ids)
    if padded:
        attention_mask[0, 7:] = 0
        attention_mask[1, :3] = 0
        input_ids = input_ids * attention_mask
    return {"input_ids": input_ids, "attention_mask": attention_mask}


def image_inputs(config: Any, seed: int = 1, size: tuple[int, int] | None = None) -> dict[str, torch.Tensor]:
    """A batch of two images."""
    generator = torch.Generator().manual_seed(seed)
    height, width = size or (config.image_size, config.image_size)
    return {"pixel_values": torch.randn(2, config.num_channels, height, width, generator=generator)}


def inputs_for(config: Any, padded: bool = True) -> dict[str, torch.Tensor]:
    """Inputs for a text or an image model, as its configuration says."""
    return image_inputs(config) if hasattr(config, "image_size") else text_inputs(config, padded)
