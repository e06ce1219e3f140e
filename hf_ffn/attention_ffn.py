"""Self-attention, by whichever of transformers' back ends is chosen.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from collections.abc import Callable

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, is_tracing

from .configuration_ffn import FFNConfig
from .packing_ffn import Packing
from .positions_ffn import apply_rotary, with_position_bias


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention written out, on `(batch, heads, sequence, head_dim)`; the only back end that returns its weights."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    # In half precision the sum over a long row loses digits, so softmax works in float32.
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value)
    return output.transpose(1, 2).contiguous(), weights


class SelfAttention(nn.Module):
    """Bidirectional multi-head self-attention with its output projection and dropout.

    Args:
        config: an `FFNConfig`; `qkv_bias` and `key_bias` rule the input projections, `attention_bias` the output's.
        layer_idx: which block of the encoder this is in, from 0; `config.layer_types` may make it a local one.
    """

    def __init__(self, config: FFNConfig, layer_idx: int = 0) -> None:
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.scale_query = config.scale_query
        # Flash attention takes the window as an argument, where others have it in the mask.
        local = config.layer_type(layer_idx) == "sliding_attention"
        self.sliding_window = config.sliding_window + 1 if local and config.sliding_window is not None else None
        self.attention_dropout = config.attention_probs_dropout_prob
        self.is_causal = False
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias and config.key_bias)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.attention_bias)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        position_bias: torch.Tensor | None = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the output `(batch, sequence, hidden_size)`, and the weights where the back end gives them.

        Args:
            hidden_states: `(batch, sequence, hidden_size)`.
            attention_mask: what `transformers.masking_utils.create_bidirectional_mask` makes for the back end.
            position_embeddings: cosines and sines that turn queries and keys (see `RotaryEmbedding`).
            position_bias: added to the scores before softmax, `(batch or 1, heads, sequence, sequence)`.
            packing: of several sequences in one row; mask and bias are then of the padded rows (see `Packing`).
        """
        input_shape = hidden_states.shape[:-1]
        # (batch, sequence, hidden_size) -> (batch, heads, sequence, head_dim)
        head_shape = (*input_shape, -1, self.head_dim)
        query, key, value = (each.view(head_shape).transpose(1, 2) for each in self.project(hidden_states))

        scaling = self.scaling
        if self.scale_query:
            query, scaling = query * scaling, 1.0
        if position_embeddings is not None:
            query, key = apply_rotary(query, key, position_embeddings)
        if self.sliding_window is not None:
            kwargs["sliding_window"] = self.sliding_window

        # A block built outside a model has no back end chosen for it yet.
        implementation = self.config._attn_implementation or "sdpa"
        if position_bias is not None and implementation == "flex_attention":
            kwargs["position_bias"] = position_bias.expand(len(query), -1, -1, -1)
        elif position_bias is not None:
            attention_mask = with_position_bias(attention_mask, position_bias, implementation)
        attention = self.back_end(implementation)
        if packing is not None:
            attention = packing.within_sequences(attention, implementation)
        if "position_bias" in kwargs and query.device.type == "cpu" and not is_tracing(query):
            # For CPU torch (2.13) cannot compile flex attention with a bias for every number of rows and tokens.
            attention = torch.compiler.set_stance("force_eager")(attention)
        output, weights = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=scaling,
            **kwargs,
        )
        # (batch, sequence, heads, head_dim) -> (batch, sequence, hidden_size)
        if is_tracing(output):
            # A captured graph is also run by code whose attention lays its output out in another order.
            output = output.clone(memory_format=torch.contiguous_format)
        output = output.reshape(*input_shape, -1).contiguous()
        return self.dropout(self.project_output(output)), weights

    def back_end(self, implementation: str) -> Callable:
        """What computes attention, by transformers' name for it."""
        return ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)

    def project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of all heads, each of the shape of `hidden_states`."""
        return self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)

    def project_output(self, attended: torch.Tensor) -> torch.Tensor:
        """The heads' outputs, put together, `(..., hidden_size)` to the same shape."""
        return self.o_proj(attended)


__all__ = ["SelfAttention", "eager_attention_forward"]
