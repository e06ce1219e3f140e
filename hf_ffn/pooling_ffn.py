"""From an image's tokens to one vector.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import torch
from torch import nn
from transformers.activations import ACT2FN

from .configuration_ffn import FFNVisionConfig
from .modeling_ffn import FeedForward


def pool_tokens(hidden_states: torch.Tensor, pooling: str, num_prefix_tokens: int) -> torch.Tensor:
    """Map `(batch, tokens, hidden_size)` to one vector for each image.

    Args:
        hidden_states: the encoder's output.
        pooling: `"cls"`: the class token; `"mean"`: the patches' mean; `"cls_mean"`: both, one after the other;
            `"cls_distillation"`: the mean of the class and the distillation token.
        num_prefix_tokens: how many tokens stand before the patches.
    """
    if pooling == "cls":
        return hidden_states[:, 0]
    if pooling == "cls_distillation":
        return (hidden_states[:, 0] + hidden_states[:, 1]) / 2
    mean = hidden_states[:, num_prefix_tokens:].mean(dim=1)
    return mean if pooling == "mean" else torch.cat((hidden_states[:, 0], mean), dim=1)


class AttentionPooling(nn.Module):
    """A learnt query that attends to all tokens, and a feed-forward block (SigLIP).

    [Zhai et al. 2022](https://huggingface.co/papers/2106.04560), section 3.
    """

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(1, 1, config.hidden_size))
        self.attention = nn.MultiheadAttention(config.hidden_size, config.num_attention_heads, batch_first=True)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.ffn = FeedForward(config)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(batch, tokens, hidden_size)` to `(batch, hidden_size)`."""
        query = self.query.repeat(hidden_states.shape[0], 1, 1)
        attended = self.attention(query, hidden_states, hidden_states)[0]
        return (attended + self.ffn(self.norm(attended)))[:, 0]


class VisionPooler(nn.Module):
    """One vector for an image: `config.pooling`, then a LayerNorm and a dense layer where there are such."""

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.pooling = config.pooling
        self.num_prefix_tokens = config.num_prefix_tokens
        self.attention_pooling = AttentionPooling(config) if config.pooling == "attention" else None
        self.norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.pooler_norm else nn.Identity()
        )
        self.dense: nn.Module = nn.Identity()
        self.activation: nn.Module = nn.Identity()
        if config.pooler_dense:
            self.dense = nn.Linear(config.hidden_size, config.pooler_output_size or config.hidden_size)
            self.activation = ACT2FN[config.pooler_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(batch, tokens, hidden_size)` to `(batch, hidden_size)`, or `pooler_output_size` of the dense layer."""
        if self.attention_pooling is not None:
            pooled = self.attention_pooling(hidden_states)
        else:
            pooled = pool_tokens(hidden_states, self.pooling, self.num_prefix_tokens)
        return self.activation(self.dense(self.norm(pooled)))


__all__ = ["AttentionPooling", "VisionPooler", "pool_tokens"]
