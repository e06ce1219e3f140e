"""Packing: a padded batch as one row of real tokens, so that padding is never computed.

Every token goes through projections, LayerNorms and the feed-forward block by itself, and attention runs within each
sequence. So the padding of a batch can be left out before the first block, and put back as zeros after the last one.

Eager and sdpa attention are called sequence by sequence. Flash attention takes the bounds of the sequences, and flex
attention a mask of blocks; either is called once a layer.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.attention.flex_attention import BlockMask
from transformers.integrations.flex_attention import compile_friendly_flex_attention
from transformers.utils import is_tracing

from .configuration_ffn import FFNTextConfig

# Where a batch holds less padding than this share, leaving it out gains less than it costs.
LEAST_PADDING = 0.05

# Queries, and keys, whose attention flex attention computes or leaves out together: torch's default.
BLOCK_SIZE = 128

# Where one sequence's tokens lie in its padded row.
Positions = slice | torch.Tensor


@dataclass(frozen=True)
class Packing:
    """Where the real tokens of a padded batch lie.

    Attributes:
        shape: of the padded batch, `(batch, sequence)`.
        indices: of the real tokens, counted through the whole batch, `(tokens,)`.
        lengths: tokens of each sequence; rows without any are left out.
        positions: where each sequence's tokens lie in its row.
    """

    shape: tuple[int, int]
    indices: torch.Tensor
    lengths: list[int]
    positions: list[Positions]

    @classmethod
    def of(cls, attention_mask: torch.Tensor) -> "Packing":
        """Read an attention mask `(batch, sequence)`: 0 is padding, anything else a token."""
        real = attention_mask != 0
        positions: list[Positions] = []
        lengths = []
        for row in real.cpu():
            places = row.nonzero().flatten()
            if len(places) == 0:
                continue
            first, last = int(places[0]), int(places[-1])
            gapless = last - first + 1 == len(places)
            positions.append(slice(first, last + 1) if gapless else places.to(real.device))
            lengths.append(len(places))
        return cls((real.shape[0], real.shape[1]), real.flatten().nonzero().flatten(), lengths, positions)

    # Every layer asks for these two, which are worked out once.
    @cached_property
    def bounds(self) -> torch.Tensor:
        """Where the sequences begin and end in the packed row, `(sequences + 1,)`."""
        return torch.tensor([0, *self.lengths], device=self.indices.device).cumsum(0, dtype=torch.int32)

    @cached_property
    def places(self) -> torch.Tensor:
        """Each real token's place in its padded row, `(tokens,)`."""
        return self.indices % self.shape[1]

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Take the real tokens' states: `(batch or 1, sequence, size)` to `(1, tokens, size)`."""
        size = states.shape[-1]
        indices = self.indices.to(states.device)
        return states.expand(*self.shape, size).reshape(-1, size).index_select(0, indices).unsqueeze(0)

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Put `(1, tokens, size)` back to `(batch, sequence, size)`, with zeros at padding."""
        batch_size, length = self.shape
        padded = states.new_zeros(batch_size * length, states.shape[-1])
        # In place: of a large vocabulary's logits a copy would be as much memory again.
        return padded.index_copy_(0, self.indices.to(states.device), states[0]).view(batch_size, length, -1)

    def within_sequences(self, attention: Callable, implementation: str) -> Callable:
        """Make an attention back end work within each sequence of `(1, heads, tokens, head_dim)`.

        A mask is then of the padded row, `(1, heads or 1, sequence, sequence)`, and the same for all sequences; but
        for flex attention it is what `block_mask` makes.
        """
        if implementation == "flex_attention":
            return self.by_blocks(attention)
        return self.by_variable_lengths(attention) if "flash" in implementation else self.one_by_one(attention)

    def one_by_one(self, attention: Callable) -> Callable:
        """One call of the back end a sequence, which on CPU costs no more than grouping those of equal length."""

        def attend(
            module: nn.Module,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            attention_mask: torch.Tensor | None,
            **kwargs: Any,
        ) -> tuple[torch.Tensor, None]:
            # Split, and not sliced: the gradient of slices would be summed over as many tensors of full size.
            parts = zip(*(each.split(self.lengths, dim=2) for each in (query, key, value)), strict=True)
            outputs = []
            for part, at in zip(parts, self.positions, strict=True):
                mask = None if attention_mask is None else attention_mask[:, :, at][:, :, :, at]
                outputs.append(attention(module, *part, mask, **kwargs)[0])
            # (1, tokens, heads, head_dim)
            return torch.cat(outputs, dim=1), None

        return attend

    def by_variable_lengths(self, attention: Callable) -> Callable:
        """One call of flash attention, whose kernels take the packed layout with the sequences' bounds."""
        lengths = {"cu_seq_lens_q": self.bounds, "cu_seq_lens_k": self.bounds}
        longest = {"max_length_q": max(self.lengths), "max_length_k": max(self.lengths)}

        def attend(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return attention(module, *args, **{**kwargs, **lengths, **longest})

        return attend

    def block_mask(self, window: int | None = None) -> BlockMask:
        """Make flex attention's mask: a token sees those of its own sequence.

        It is worked out from each token's first and last key, without `(tokens, tokens)` numbers, and not compiled.
        Masks with and without a window, for any number of tokens, share one compiled kernel.

        Args:
            window: farthest key of local layers, in places of the padded row, as masks of padded batches count it.
        """
        tokens, length = len(self.indices), self.shape[1]
        reach = length if window is None else window
        # Rows lie so far apart that none is within reach of another.
        places = self.indices // length * (length + reach) + self.places
        first = torch.searchsorted(places, places - reach)
        last = torch.searchsorted(places, places + reach, right=True) - 1

        def sees(batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (first[query] <= key) & (key <= last[query])

        # Neither bound ever falls, so that a block of queries sees all blocks from its first query's to its last's.
        starts = torch.arange(0, tokens, BLOCK_SIZE, device=self.indices.device)
        first_block = first[starts] // BLOCK_SIZE
        last_block = last[(starts + BLOCK_SIZE - 1).clamp(max=tokens - 1)] // BLOCK_SIZE
        blocks = first_block[:, None] + torch.arange(len(starts), device=starts.device)
        return BlockMask.from_kv_blocks(
            # (blocks,) and (blocks, blocks) -> with a batch and a head of one
            (last_block - first_block + 1).int()[None, None],
            blocks.clamp(max=len(starts) - 1).int()[None, None],
            BLOCK_SIZE=BLOCK_SIZE,
            mask_mod=sees,
            seq_lengths=(tokens, tokens),
        )

    def by_blocks(self, attention: Callable) -> Callable:
        """One call of flex attention; a position bias of the padded row is looked up by the tokens' places in it."""

        def attend(
            module: nn.Module,
            query: torch.Tensor,
            key: torch.Tensor,
            value: torch.Tensor,
            attention_mask: BlockMask,
            scaling: float,
            dropout: float = 0.0,
            position_bias: torch.Tensor | None = None,
            **kwargs: Any,
        ) -> tuple[torch.Tensor, torch.Tensor | None]:
            kwargs = {"scaling": scaling, "dropout": dropout, **kwargs}
            # transformers refuses dropout, and knows of no bias but one for all pairs of tokens in the packed row.
            if position_bias is None or dropout > 0:
                return attention(module, query, key, value, attention_mask, **kwargs)
            position = self.places

            def biased(
                score: torch.Tensor, batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
            ) -> torch.Tensor:
                return score + position_bias[0, head, position[query], position[key]]

            output = compile_friendly_flex_attention(
                query,
                key,
                value,
                training=module.training,
                score_mod=biased,
                block_mask=attention_mask,
                scale=scaling,
                kernel_options=kwargs.get("kernel_options"),
            )
            # (1, heads, tokens, head_dim) -> (1, tokens, heads, head_dim)
            return output.transpose(1, 2), None

        return attend


def packing_for(
    config: FFNTextConfig,
    attention_mask: torch.Tensor | None,
    inputs: torch.Tensor,
    unpad: str,
    training: bool,
    first_place_is_read: bool,
    labels: torch.Tensor | None,
    kwargs: dict[str, Any],
) -> Packing | None:
    """Decide whether to pack a batch (see `FFNTextConfig.unpad`); None for leaving it padded.

    Args:
        config: of the model.
        attention_mask: as the caller gave it.
        inputs: ids or embeddings, `(batch, sequence, …)`.
        unpad: `"auto"`, `"always"` or `"never"`.
        training: whether the model is being trained.
        first_place_is_read: whether a pooler or a head reads each row's first place, be it a token or not.
        labels: of tokens, `(batch, sequence)` or flat; -100 counts for nothing.
        kwargs: what the caller asked for beside.
    """
    if unpad == "never" or attention_mask is None or attention_mask.dim() != 2 or is_tracing(inputs):
        return None
    asked = [name for name in ("output_attentions", "output_hidden_states") if kwargs.get(name, getattr(config, name))]
    # Stochastic depth decides for whole rows, which a packed batch does not have.
    causal = kwargs.get("is_causal", getattr(config, "is_causal", None))
    if asked or causal or (training and config.drop_path_rate > 0):
        return None
    implementation = config._attn_implementation or "sdpa"
    if implementation not in ("eager", "sdpa", "flex_attention") and "flash" not in implementation:
        return None
    on_cpu = inputs.device.type == "cpu"
    # On a GPU a call a sequence is slower than computing padding.
    if unpad == "auto" and implementation in ("eager", "sdpa") and not on_cpu:
        return None
    real = attention_mask != 0
    tokens = int(real.sum())
    if unpad == "auto":
        # For CPU torch (2.13) fails to compile it anew where padded and packed batches come in turn.
        if implementation == "flex_attention" and on_cpu:
            return None
        # What is read must be the same, even where that is padding.
        changed = first_place_is_read and not bool(real[:, 0].all())
        if changed or tokens > (1 - LEAST_PADDING) * real.numel():
            return None
    # A loss that counts padding needs what padding becomes. (Losses take labels of any shape, from any device.)
    if labels is not None and labels.numel() == real.numel():
        counted = labels.reshape(real.shape).to(real.device) != -100
        if bool((~real & counted).any()):
            return None
    return Packing.of(attention_mask) if tokens > 0 else None


__all__ = ["Packing", "packing_for"]
