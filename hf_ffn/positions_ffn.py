"""Positions that enter attention: rotary embeddings and a learnt bias by distance.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import math

import torch
from torch import nn

from .configuration_ffn import FFNConfig, FFNTextConfig

# Distances from here on share one bucket, as in T5 and MPNet.
MAX_DISTANCE = 128


def inverse_frequencies(theta: float, head_dim: int) -> torch.Tensor:
    """Radians per position for each pair of channels, `(head_dim / 2,)`."""
    return 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)


class RotaryEmbedding(nn.Module):
    """Cosines and sines that turn queries and keys by their positions.

    [Su et al. 2021](https://huggingface.co/papers/2104.09864).

    Args:
        config: an `FFNTextConfig`; `local_rope_theta`, where set, is for the layers of sliding attention.
    """

    def __init__(self, config: FFNTextConfig) -> None:
        super().__init__()
        self.thetas = {"inv_freq": config.rope_theta}
        if config.local_rope_theta is not None:
            self.thetas["local_inv_freq"] = config.local_rope_theta
        self.head_dim = config.hidden_size // config.num_attention_heads
        for name, theta in self.thetas.items():
            self.register_buffer(
                name, inverse_frequencies(theta, self.head_dim), persistent=config.rope_frequencies_stored
            )

    def forward(
        self, hidden_states: torch.Tensor, position_ids: torch.Tensor, layer_type: str = "full_attention"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Give cosines and sines `(batch or 1, sequence, head_dim)`, in the precision of `hidden_states`."""
        local = layer_type == "sliding_attention" and "local_inv_freq" in self.thetas
        inv_freq = self.get_buffer("local_inv_freq" if local else "inv_freq")
        # Computed in float32 always: in half precision neighbouring positions would fall together.
        angles = position_ids[..., None].float() * inv_freq.to(device=hidden_states.device, dtype=torch.float)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(hidden_states.dtype), angles.sin().to(hidden_states.dtype)


def apply_rotary(
    query: torch.Tensor, key: torch.Tensor, position_embeddings: tuple[torch.Tensor, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn queries and keys `(batch, heads, sequence, head_dim)` by cosines and sines `(…, sequence, head_dim)`."""
    # (batch, sequence, head_dim) -> (batch, 1, sequence, head_dim)
    cos, sin = (each.unsqueeze(1) for each in position_embeddings)

    def turn(states: torch.Tensor) -> torch.Tensor:
        # In float32, as the families do it
        wide = states.float()
        first, second = wide.chunk(2, dim=-1)
        return (wide * cos + torch.cat((-second, first), dim=-1) * sin).to(states.dtype)

    return turn(query), turn(key)


class RelativeAttentionBias(nn.Module):
    """A learnt bias for each head and bucket of distances, added to the attention scores (T5, MPNet).

    [Raffel et al. 2019](https://huggingface.co/papers/1910.10683), section 2.1. Half of the buckets are for tokens
    before, half for tokens after; of each half, one half is for single distances and the rest grows logarithmically.

    Args:
        config: an `FFNConfig` with `relative_attention_num_buckets`.
    """

    def __init__(self, config: FFNConfig) -> None:
        super().__init__()
        assert config.relative_attention_num_buckets is not None
        self.buckets = nn.Embedding(config.relative_attention_num_buckets, config.num_attention_heads)

    def forward(self, length: int) -> torch.Tensor:
        """Give the bias `(1, heads, length, length)` between all pairs of `length` tokens."""
        positions = torch.arange(length, device=self.buckets.weight.device)
        buckets = self.bucket_of(positions[None, :] - positions[:, None])
        # (length, length, heads) -> (1, heads, length, length)
        return self.buckets(buckets).permute(2, 0, 1).unsqueeze(0)

    def bucket_of(self, distance: torch.Tensor) -> torch.Tensor:
        """Bucket of each distance (position of the key minus position of the query)."""
        half = self.buckets.num_embeddings // 2
        single = half // 2
        after = (distance > 0).long() * half
        distance = distance.abs()
        logarithmic = torch.log(distance.float() / single) / math.log(MAX_DISTANCE / single) * (half - single)
        # The logarithm of 0 is not used, but may not become an arbitrary integer.
        far = single + logarithmic.clamp(min=0).long()
        return after + torch.where(distance < single, distance, far.clamp(max=half - 1))


def with_position_bias(
    attention_mask: torch.Tensor | None, position_bias: torch.Tensor, implementation: str
) -> torch.Tensor:
    """Put a bias on attention scores `(batch or 1, heads, sequence, sequence)` and the back end's mask together.

    Raises:
        ValueError: the attention back end takes no mask that numbers could be added to.
    """
    if implementation not in ("eager", "sdpa"):
        raise ValueError(
            f"attn_implementation='{implementation}' cannot add this model's position bias: use 'eager', 'sdpa' or "
            "'flex_attention'"
        )
    if attention_mask is None:
        return position_bias
    if attention_mask.dtype == torch.bool:
        return position_bias.masked_fill(~attention_mask, torch.finfo(position_bias.dtype).min)
    return position_bias + attention_mask


__all__ = ["RelativeAttentionBias", "RotaryEmbedding", "apply_rotary", "with_position_bias"]
