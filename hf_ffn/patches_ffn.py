"""From an image to tokens: patches, the tokens before them, and learnt positions.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import torch
from torch import nn

from .configuration_ffn import FFNVisionConfig, height_and_width


class FFNPatchEmbeddings(nn.Module):
    """Cuts an image into patches (which overlap where `patch_stride` says so) and projects each to a vector."""

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.num_channels = config.num_channels
        patch_size = height_and_width(config.patch_size)
        stride = patch_size if config.patch_stride is None else height_and_width(config.patch_stride)
        self.projection = nn.Conv2d(
            config.num_channels, config.hidden_size, kernel_size=patch_size, stride=stride, bias=config.patch_bias
        )

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Map `(batch, channels, height, width)` to `(batch, hidden_size, down, across)`."""
        if pixel_values.dim() != 4 or pixel_values.shape[1] != self.num_channels:
            raise ValueError(
                f"pixel_values of shape {tuple(pixel_values.shape)} must be (batch, channels, height, width) with "
                f"num_channels={self.num_channels}"
            )
        height, width = pixel_values.shape[-2:]
        patch_height, patch_width = self.projection.kernel_size
        if height < patch_height or width < patch_width:
            raise ValueError(f"An image of {height}x{width} is smaller than one patch of {patch_height}x{patch_width}")
        return self.projection(pixel_values)

    def grid_of(self, pixel_values: torch.Tensor) -> tuple[int, int]:
        """Number of patches (down, across) in images."""
        sizes = zip(pixel_values.shape[-2:], self.projection.kernel_size, self.projection.stride, strict=True)
        down, across = ((size - patch) // stride + 1 for size, patch, stride in sizes)
        return down, across


class FFNVisionEmbeddings(nn.Module):
    """Patches with learnt positions added, and before them the class, distillation and register tokens."""

    def __init__(self, config: FFNVisionConfig) -> None:
        super().__init__()
        self.image_size = height_and_width(config.image_size)
        self.grid_size = config.grid_size
        self.antialias = config.interpolation_antialias
        # Positions that are learnt for each patch, added or as a bias on attention, fit one size of image alone.
        self.any_size = config.position_embedding_type != "absolute" and not config.has_window_bias
        self.interpolates = config.interpolate_pos_encoding

        def vectors(number: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(1, number, config.hidden_size))

        self.patch_embeddings = FFNPatchEmbeddings(config)
        self.cls_token = vectors(1) if config.use_cls_token else None
        self.distillation_token = vectors(1) if config.use_distillation_token else None
        registers = config.num_register_tokens
        self.register_tokens = vectors(registers) if registers is not None else None
        self.mask_token = vectors(1) if config.use_mask_token else None
        single_tokens = config.use_cls_token + config.use_distillation_token
        self.prefix_positions = single_tokens if config.prefix_positions else 0
        num_patches = self.grid_size[0] * self.grid_size[1]
        learnt = config.position_embedding_type == "absolute"
        self.position_embeddings = vectors(self.prefix_positions + num_patches) if learnt else None
        own_rate = config.embedding_dropout_prob
        self.dropout = nn.Dropout(config.hidden_dropout_prob if own_rate is None else own_rate)
        self.norm = (
            nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.embedding_norm else nn.Identity()
        )

    def forward(
        self,
        pixel_values: torch.Tensor,
        interpolate_pos_encoding: bool = False,
        bool_masked_pos: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Map `(batch, channels, height, width)` to `(batch, tokens, hidden_size)`; see `FFNVisionModel.forward`."""
        self._refuse_other_sizes(pixel_values, interpolate_pos_encoding or self.interpolates)
        patches = self.patch_embeddings(pixel_values)
        grid_size = (patches.shape[-2], patches.shape[-1])
        # (batch, hidden_size, down, across) -> (batch, patches, hidden_size)
        patches = patches.flatten(2).transpose(1, 2)
        if bool_masked_pos is not None:
            if self.mask_token is None:
                raise ValueError("bool_masked_pos needs a model with use_mask_token=True")
            patches = torch.where(bool_masked_pos.bool().unsqueeze(-1), self.mask_token.to(patches.dtype), patches)

        prefix = [token for token in (self.cls_token, self.distillation_token) if token is not None]
        positions = self.positions_for(grid_size)
        if positions is not None:
            if self.prefix_positions:
                own_positions = positions[:, : self.prefix_positions].split(1, dim=1)
                prefix = [token + own for token, own in zip(prefix, own_positions, strict=True)]
            patches = patches + positions[:, self.prefix_positions :]
        if self.register_tokens is not None:
            prefix.append(self.register_tokens)
        tokens = [*(each.expand(patches.shape[0], -1, -1) for each in prefix), patches]
        return self.norm(self.dropout(torch.cat(tokens, dim=1) if prefix else patches))

    def _refuse_other_sizes(self, pixel_values: torch.Tensor, interpolate_pos_encoding: bool) -> None:
        image_size = tuple(pixel_values.shape[-2:])
        if interpolate_pos_encoding or self.any_size or pixel_values.dim() != 4 or image_size == self.image_size:
            return
        raise ValueError(
            f"An image of {image_size[0]}x{image_size[1]} pixels does not match "
            f"image_size={self.image_size[0]}x{self.image_size[1]}: resize it, or pass interpolate_pos_encoding=True"
        )

    def positions_for(self, grid_size: tuple[int, int]) -> torch.Tensor | None:
        """Learnt positions for a grid of patches, interpolated bicubically where the grid is another; None for none.

        Interpolated positions are a starting point for fine-tuning, not as good as trained ones
        ([Dosovitskiy et al. 2020](https://huggingface.co/papers/2010.11929), section 3.2).
        """
        positions = self.position_embeddings
        if positions is None or grid_size == self.grid_size:
            return positions
        prefix, patches = positions[:, : self.prefix_positions], positions[:, self.prefix_positions :]
        # (1, patches, hidden_size) -> (1, hidden_size, down, across), and back
        patches = patches.unflatten(1, self.grid_size).permute(0, 3, 1, 2)
        # In float32: half precision would move the positions, and has no low-pass filter.
        patches = nn.functional.interpolate(
            patches.float(), size=grid_size, mode="bicubic", align_corners=False, antialias=self.antialias
        )
        return torch.cat((prefix, patches.flatten(2).transpose(1, 2).to(positions.dtype)), dim=1)


__all__ = ["FFNPatchEmbeddings", "FFNVisionEmbeddings"]
