"""The feed-forward block, attention, and the encoder built from them: what the text and vision models share.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import os
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .checkpoint_ffn import save_model
from .configuration_ffn import FFNConfig
from .frugal_ffn import frugal_feed_forward
from .loading_ffn import load_model, read_feed_forward
from .packing_ffn import Packing
from .positions_ffn import RelativeAttentionBias, apply_rotary, with_position_bias


class FeedForward(nn.Module):
    r"""
    The position-wise feed-forward block: `dropout(linear_2(activation(linear_1(x))))`, each token by itself.

    Attention's output is a linear combination of value vectors; this block is what lets an encoder learn non-linear
    dependencies ([Vaswani et al. 2017](https://huggingface.co/papers/1706.03762), section 3.3). The residual sum and
    LayerNorm around it belong to `EncoderBlock`.

    Built by itself it is initialised as `nn.Linear` is; inside a model, by `config.initializer_range`.

    Args:
        config: an `FFNConfig`. With `gated=True` the block is
            `dropout(linear_2(activation(linear_gate(x)) * linear_1(x)))`.
    """

    def __init__(self, config: FFNConfig) -> None:
        super().__init__()
        self.config = config
        self.linear_1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.ffn_bias)
        self.linear_gate = (
            nn.Linear(config.hidden_size, config.intermediate_size, bias=config.ffn_bias) if config.gated else None
        )
        self.activation = ACT2FN[config.hidden_act]
        self.activation_dropout = nn.Dropout(config.activation_dropout_prob)
        self.linear_2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.ffn_bias)
        own = config.ffn_dropout_prob
        self.dropout = nn.Dropout(config.hidden_dropout_prob if own is None else own)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(..., hidden_size)` to `(..., hidden_size)`; `config.feed_forward_memory` says what backward keeps."""
        memory = self.config.feed_forward_memory
        if memory != "full" and torch.is_grad_enabled():
            return frugal_feed_forward(self, self.plain_forward, hidden_states, memory)
        return self.plain_forward(hidden_states)

    def plain_forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The block written out, as autograd differentiates it."""
        if self.linear_gate is None:
            intermediate = self.activation(self.linear_1(hidden_states))
        else:
            intermediate = self.activation(self.linear_gate(hidden_states)) * self.linear_1(hidden_states)
        return self.dropout(self.linear_2(self.activation_dropout(intermediate)))

    @classmethod
    def from_pretrained(
        cls, source: str | os.PathLike, layer: int, *, dtype: str | torch.dtype | None = None, **hub_kwargs: Any
    ) -> Self:
        """Read one layer's feed-forward block from a checkpoint, and nothing else of it.

        Args:
            source: a folder or a Hub id; a checkpoint of ours or of any family that converts.
            layer: index of the block, from 0.
            dtype: of the weights; None for the checkpoint's own.
            hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`… as in transformers' `from_pretrained`.

        Raises:
            ValueError: an unknown family, a layer that is not there, or a tensor that is missing or of another shape.
            OSError: no checkpoint at `source`.
        """
        return read_feed_forward(cls, source, layer, dtype, hub_kwargs)


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
        config: an `FFNConfig`; `qkv_bias` rules the three input projections, `attention_bias` the output's.
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
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
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
        if position_bias is not None:
            attention_mask = with_position_bias(attention_mask, position_bias, implementation)
        attention: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention_forward)
        if packing is not None:
            attention = packing.within_sequences(attention, implementation)
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
        output = output.reshape(*input_shape, -1).contiguous()
        return self.dropout(self.project_output(output)), weights

    def project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of all heads, each of the shape of `hidden_states`."""
        return self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)

    def project_output(self, attended: torch.Tensor) -> torch.Tensor:
        """The heads' outputs, put together, `(..., hidden_size)` to the same shape."""
        return self.o_proj(attended)


class LayerScale(nn.Module):
    """A learnt factor for each channel, small at the start, so that a deep encoder begins near the identity."""

    def __init__(self, hidden_size: int, init_value: float) -> None:
        super().__init__()
        self.init_value = init_value
        self.scale = nn.Parameter(torch.full((hidden_size,), float(init_value)))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states * self.scale


class DropPath(nn.Module):
    """Stochastic depth: in training, leaves a sample's branch out with probability `rate`, and scales the rest up."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not self.training or self.rate == 0.0:
            return hidden_states
        # One decision a sample: (batch, 1, 1)
        keep = hidden_states.new_ones(hidden_states.shape[0], *[1] * (hidden_states.dim() - 1))
        return hidden_states * nn.functional.dropout(keep, p=self.rate)


class EncoderBlock(GradientCheckpointingLayer):
    """Self-attention and feed-forward, each with LayerNorm and a skip connection.

    With `norm_order="pre"` (the lecture, ViT), for input X:
    `Ẑ = X + MHSA(LayerNorm(X));  X̃ = Ẑ + MLP(LayerNorm(Ẑ))`; with `"post"` (BERT):
    `Ẑ = LayerNorm(X + MHSA(X));  X̃ = LayerNorm(Ẑ + MLP(Ẑ))`.

    Args:
        config: an `FFNConfig`, or one of its subclasses.
        layer_idx: which block of the encoder this is, from 0; stochastic depth grows with it.
    """

    def __init__(self, config: FFNConfig, layer_idx: int = 0) -> None:
        super().__init__()
        self.pre_norm = config.norm_order == "pre"
        self.layer_type = config.layer_type(layer_idx)
        self.attention = SelfAttention(config, layer_idx)
        # transformers' own way for layers of different widths, as pruning leaves them
        self.ffn = FeedForward(config.per_layer_config[layer_idx] if config.is_heterogeneous else config)
        # A layer's configuration is a copy; how the model is run is said on the model's.
        self.ffn.config = config
        self.norm_1 = nn.Identity() if config.skip_first_norm and layer_idx == 0 else layer_norm(config)
        self.norm_2 = layer_norm(config)
        self.layer_scale_1 = layer_scale(config)
        self.layer_scale_2 = layer_scale(config)
        self.drop_path = DropPath(config.drop_path_rate * layer_idx / max(config.num_hidden_layers - 1, 1))

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        position_bias: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Map `(batch, sequence, hidden_size)` to the same shape; for the others see `SelfAttention.forward`."""
        inputs = (attention_mask, position_embeddings, position_bias)
        if self.pre_norm:
            attended, _ = self.attention(self.norm_1(hidden_states), *inputs, **kwargs)
            hidden_states = hidden_states + self.drop_path(self.layer_scale_1(attended))
            return hidden_states + self.drop_path(self.layer_scale_2(self.ffn(self.norm_2(hidden_states))))

        attended, _ = self.attention(hidden_states, *inputs, **kwargs)
        hidden_states = self.norm_1(hidden_states + self.drop_path(self.layer_scale_1(attended)))
        return self.norm_2(hidden_states + self.drop_path(self.layer_scale_2(self.ffn(hidden_states))))


def layer_scale(config: FFNConfig) -> nn.Module:
    """The block's layer scale, or the identity (which has no tensors) where the configuration has none."""
    if config.layer_scale_init_value is None:
        return nn.Identity()
    return LayerScale(config.hidden_size, config.layer_scale_init_value)


def layer_norm(config: FFNConfig, size: int | None = None) -> nn.LayerNorm:
    """A LayerNorm over `hidden_size` channels, or over `size`."""
    return nn.LayerNorm(size or config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)


class EncoderGroup(nn.Module):
    """Blocks whose weights several layers share ([Lan et al. 2019](https://huggingface.co/papers/1909.11942)).

    Args:
        config: an `FFNConfig`; the group has `inner_group_num` blocks.
    """

    def __init__(self, config: FFNConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([EncoderBlock(config) for _ in range(config.inner_group_num)])


class Encoder(nn.Module):
    """A stack of `EncoderBlock`s; pre-norm stacks end with one more LayerNorm.

    Args:
        config: an `FFNConfig`, or one of its subclasses.
    """

    def __init__(self, config: FFNConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(
            [EncoderBlock(config, layer_idx) for layer_idx in range(config.num_hidden_layers)]
            if config.num_hidden_groups is None
            else [EncoderGroup(config) for _ in range(config.num_hidden_groups)]
        )
        self.norm = layer_norm(config) if config.norm_order == "pre" else nn.Identity()
        self.relative_attention_bias = (
            RelativeAttentionBias(config) if config.relative_attention_num_buckets is not None else None
        )

    def blocks(self) -> list[Any]:
        """The blocks in the order in which they run; shared ones occur several times."""
        return [self.get_submodule(path) for path in self.config.block_paths()]

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | dict[str, torch.Tensor] | None = None,
        position_embeddings: Any = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Map `(batch, sequence, hidden_size)` to the same shape; for the others see `SelfAttention.forward`.

        Where `config.layer_types` names two, masks and rotary embeddings come as a dictionary with one for each type.
        """
        position_bias = None
        if self.relative_attention_bias is not None:
            length = hidden_states.shape[1] if packing is None else packing.shape[1]
            position_bias = self.relative_attention_bias(length)
        for layer in self.blocks():
            hidden_states = layer(
                hidden_states,
                for_type(attention_mask, layer.layer_type),
                for_type(position_embeddings, layer.layer_type),
                position_bias,
                packing=packing,
                **kwargs,
            )
        return self.norm(hidden_states)


def for_type(value: Any, layer_type: str) -> Any:
    """What is meant for one type of layers, where there is something for each."""
    return value[layer_type] if isinstance(value, dict) else value


class Pooler(nn.Module):
    """The first token's vector through a linear layer and an activation."""

    def __init__(self, hidden_size: int, output_size: int, activation: str) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, output_size)
        self.activation = ACT2FN[activation]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Map `(batch, sequence, hidden_size)` to `(batch, output_size)`."""
        return self.activation(self.dense(hidden_states[:, 0]))


def classification_loss(
    model: PreTrainedModel,
    labels: torch.Tensor,
    logits: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> torch.Tensor:
    """transformers' classification loss, averaged over the whole effective batch for every problem type.

    Its own regression and multi-label losses average over the micro-batch whatever `num_items_in_batch` says, so that
    accumulating over four micro-batches would give four times the loss and gradient.

    Args:
        labels: see `FFNForSequenceClassification.forward`.
        logits: `(batch, num_labels)`.
        num_items_in_batch: number of labels in the effective batch; None for this batch's own.
    """
    loss = model.loss_function(labels, logits, model.config, num_items_in_batch=num_items_in_batch, **kwargs)
    if num_items_in_batch is not None and model.config.problem_type != "single_label_classification":
        loss = loss * labels.numel() / num_items_in_batch
    return loss


class FFNPreTrainedModel(PreTrainedModel):
    """Loading that refuses silent faults, native saving with the code included, and initialisation."""

    config: FFNConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {"hidden_states": EncoderBlock, "attentions": SelfAttention}

    # Buffers that follow from the configuration, so that nothing is lost where a checkpoint lacks them.
    _computed_buffers: tuple[str, ...] = ()
    # Modules that a checkpoint of another task may lack, and that are then newly made.
    _new_head_modules: tuple[str, ...] = ()

    def __init__(self, config: FFNConfig, *args: Any, **kwargs: Any) -> None:
        # Overrides passed to `from_pretrained` reach the configuration after its own check.
        config.validate_architecture()
        super().__init__(config, *args, **kwargs)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.Embedding)):
            std = self.config.initializer_range
            init.trunc_normal_(module.weight, mean=0.0, std=std, a=-2 * std, b=2 * std)
            # A slice of the weight does not carry the mark of what was loaded, which `init` looks for.
            padding_idx = getattr(module, "padding_idx", None)
            if padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[padding_idx])
        elif isinstance(module, LayerScale):
            init.constant_(module.scale, module.init_value)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike | None, *model_args: Any, **kwargs: Any
    ) -> Self:
        """Load a checkpoint of ours, or convert one of another family as it loads.

        Takes what transformers' `from_pretrained` takes. What the checkpoint holds beyond this model, and what this
        model has beyond the checkpoint (a new head), is reported once and kept in `model.loading_report`.

        Labels go by name: `id2label` with the checkpoint's names in another order moves the head's rows; with other
        names or another number the head is newly made.

        Raises:
            ValueError: an unknown family, or a part of the encoder that is missing, left over or of another shape or
                type, so that nothing random or forgotten goes unnoticed.
            OSError: no checkpoint at that place.
        """
        return load_model(cls, super().from_pretrained, pretrained_model_name_or_path, model_args, kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Save weights under our own names, with the configuration and the code that loads them anywhere.

        Takes what transformers' `save_pretrained` takes. Files are written beside the folder and moved into it, so
        that an interrupted or failed save leaves what was there. To write the original family's format, use
        `hf_ffn.export_pretrained`.
        """
        save_model(self, super().save_pretrained, save_directory, kwargs)


__all__ = ["Encoder", "EncoderBlock", "FFNPreTrainedModel", "FeedForward", "SelfAttention"]
