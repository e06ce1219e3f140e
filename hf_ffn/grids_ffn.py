"""Positions on a grid of patches that enter attention: a learnt bias by offset, and rotary ones.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import math

import torch
from torch import nn

from .configuration_ffn import FFNVisionConfig


class WindowPositionBias(nn.Module):
    """A learnt bias for each head and offset between two patches, added to the attention scores (BEiT).

    [Bao et al. 2021](https://huggingface.co/papers/2106.08254). Three more rows of the table stand for the class
    token to a patch, a patch to the class token, and the class token to itself.

    Args:
        config: an `FFNVisionConfig` with a class token; its `grid_size` is the window.
    """

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.grid_size = config.grid_size
        down, across = (2 * size - 1 for size in self.grid_size)
        self.table = nn.Parameter(torch.zeros(down * across + 3, config.num_attention_heads))

    def forward(self, grid_size: tuple[int, int]) -> torch.Tensor:
        """Give the bias `(1, heads, tokens, tokens)` for a grid of patches, interpolated where it is another."""
        rows = self.rows_for(grid_size)
        index = self.index_for(grid_size).to(rows.device)
        # (tokens, tokens, heads) -> (1, heads, tokens, tokens)
        return rows[index].permute(2, 0, 1).unsqueeze(0).contiguous()

    def rows_for(self, grid_size: tuple[int, int]) -> torch.Tensor:
        """The table for a grid of patches: the offsets' rows interpolated bilinearly, the last three as they are."""
        if grid_size == self.grid_size:
            return self.table
        old, new = ([2 * size - 1 for size in grid] for grid in (self.grid_size, grid_size))
        # (offsets, heads) -> (1, heads, down, across), and back
        offsets = self.table[:-3].unflatten(0, old).permute(2, 0, 1).unsqueeze(0)
        offsets = nn.functional.interpolate(offsets, size=new, mode="bilinear", align_corners=False)
        return torch.cat((offsets.squeeze(0).flatten(1).T, self.table[-3:]))

    @staticmethod
    def index_for(grid_size: tuple[int, int]) -> torch.Tensor:
        """Which row of the table is for which pair of tokens, `(tokens, tokens)`."""
        down, across = grid_size
        rows, columns = torch.meshgrid(torch.arange(down), torch.arange(across), indexing="ij")
        rows, columns = rows.flatten(), columns.flatten()
        row_offset = rows[:, None] - rows[None, :] + down - 1
        column_offset = columns[:, None] - columns[None, :] + across - 1
        offsets = row_offset * (2 * across - 1) + column_offset
        last = (2 * down - 1) * (2 * across - 1)
        index = offsets.new_empty(down * across + 1, down * across + 1)
        index[1:, 1:] = offsets
        index[0, :], index[:, 0], index[0, 0] = last, last + 1, last + 2
        return index


class GridRotaryEmbedding(nn.Module):
    """Cosines and sines that turn queries and keys by the places of their patches in the image (DINOv3).

    [Siméoni et al. 2025](https://huggingface.co/papers/2508.10104), section 3.2. Tokens before the patches are not
    turned. In training the coordinates are shifted and stretched at random, as the configuration says.

    Args:
        config: an `FFNVisionConfig`.
    """

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.num_prefix_tokens = config.num_prefix_tokens
        self.theta = config.rope_theta
        self.shift = config.pos_embed_shift
        self.jitter = config.pos_embed_jitter
        self.rescale = config.pos_embed_rescale

    def forward(self, hidden_states: torch.Tensor, grid_size: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Give cosines and sines `(1, tokens, head_dim)`, in the precision of `hidden_states`."""
        device = hidden_states.device
        centres = [(torch.arange(0.5, size, device=device) / size) * 2 - 1 for size in grid_size]
        # (down, across, 2) -> (patches, 2), each from -1 to 1
        coordinates = torch.stack(torch.meshgrid(*centres, indexing="ij"), dim=-1).flatten(0, 1)
        if self.training:
            coordinates = self._disturbed(coordinates)
        frequencies = 1 / self.theta ** torch.arange(0, 1, 4 / self.head_dim, dtype=torch.float32, device=device)
        # (patches, 2, head_dim / 4) -> (patches, head_dim)
        angles = (2 * math.pi * coordinates[:, :, None] * frequencies).flatten(1).tile(2)
        angles = nn.functional.pad(angles, (0, 0, self.num_prefix_tokens, 0)).unsqueeze(0)
        return angles.cos().to(hidden_states.dtype), angles.sin().to(hidden_states.dtype)

    def _disturbed(self, coordinates: torch.Tensor) -> torch.Tensor:
        if self.shift is not None:
            coordinates = coordinates + coordinates.new_empty(1, 2).uniform_(-self.shift, self.shift)
        # Stretched in each direction by itself, then in both alike
        for factor, directions in ((self.jitter, 2), (self.rescale, 1)):
            if factor is not None:
                bound = math.log(factor)
                coordinates = coordinates * coordinates.new_empty(1, directions).uniform_(-bound, bound).exp()
        return coordinates


__all__ = ["GridRotaryEmbedding", "WindowPositionBias"]
