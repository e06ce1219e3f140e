"""The feed-forward block, and the encoder built from it and attention: what the text and vision models share.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import os
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .attention_ffn import SelfAttention
from .blocks_ffn import read_feed_forward, read_state_dict
from .checkpoint_ffn import WEIGHT_FILES, save_model
from .configuration_ffn import FFNConfig
from .frugal_ffn import frugal_feed_forward
from .loading_ffn import load_model
from .packing_ffn import Packing
from .positions_ffn import RelativeAttentionBias


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
        cls,
        source: str | os.PathLike | Mapping[str, torch.Tensor],
        layer: int | None = None,
        *,
        part: str | None = None,
        dtype: str | torch.dtype | None = None,
        **hub_kwargs: Any,
    ) -> Self:
        """Read one layer's feed-forward block from a checkpoint, and nothing else of it.

        Args:
            source: a folder or a Hub id; a checkpoint of ours, of any family that converts, or of one that has
                another kind of attention (`hf-ffn families` lists them). Or the state dict of a block with the names
                of this class, which are the lecture's, or of an encoder of such blocks (`layers.N.….linear_1.weight`):
                a dictionary, or a `.safetensors`, `.bin`, `.pt` or `.pth` file. It holds no configuration, so sizes
                come from the tensors, and the activation is the lecture's exact GELU.
            layer: index of the block, from 0; needed unless a state dict holds a single block.
            part: `"text"` or `"vision"`, where a checkpoint holds both encoders (CLIP, SigLIP).
            dtype: of the weights; None for the checkpoint's own.
            hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`… as in transformers' `from_pretrained`; and
                `family`, for a checkpoint whose config.json has no `model_type` (see `FFNTextModel.from_pretrained`).

        Raises:
            ValueError: an unknown family, a layer that is not there, or a tensor that is missing or of another shape.
            OSError: no checkpoint at `source`.
        """
        if isinstance(source, Mapping) or str(source).endswith(WEIGHT_FILES):
            others = hub_kwargs if part is None else {"part": part, **hub_kwargs}
            if others:
                raise ValueError(f"{', '.join(others)}: for checkpoints with a config.json, and not for a state dict")
            return read_state_dict(cls, source, layer, dtype)
        if layer is None:
            raise ValueError(f"layer=None: say which layer of '{source}' to read, from 0")
        return read_feed_forward(cls, source, layer, part, dtype, hub_kwargs)


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
        depth = 1.0 if config.drop_path_constant else layer_idx / max(config.num_hidden_layers - 1, 1)
        self.drop_path = DropPath(config.drop_path_rate * depth)

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
    """A stack of `EncoderBlock`s; pre-norm stacks end with one more LayerNorm, but for `final_norm=False`.

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
        self.norm = layer_norm(config) if config.norm_order == "pre" and config.final_norm else nn.Identity()
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
        position_bias: torch.Tensor | list[torch.Tensor] | None = None,
        packing: Packing | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        """Map `(batch, sequence, hidden_size)` to the same shape; for the others see `SelfAttention.forward`.

        Where `config.layer_types` names two, masks and rotary embeddings come as a dictionary with one for each type.
        A list of position biases holds one for each block.
        """
        if self.relative_attention_bias is not None:
            length = hidden_states.shape[1] if packing is None else packing.shape[1]
            position_bias = self.relative_attention_bias(length)
        for index, layer in enumerate(self.blocks()):
            hidden_states = layer(
                hidden_states,
                for_type(attention_mask, layer.layer_type),
                for_type(position_embeddings, layer.layer_type),
                position_bias[index] if isinstance(position_bias, list) else position_bias,
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
    # Modules and parameters that a checkpoint of another task may lack, and that are then newly made.
    _new_head_modules: tuple[str, ...] = ("model.pooler", "model.embeddings.mask_token")

    # Modules whose rows are the labels.
    _label_modules: tuple[str, ...] = ("classifier",)

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

    def freeze_unused(self) -> None:
        """Take out of training what this model only holds to go back to its family; loading does it too."""

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike | None, *model_args: Any, **kwargs: Any
    ) -> Self:
        """Load a checkpoint of ours, or convert one of another family as it loads.

        Takes what transformers' `from_pretrained` takes. What the checkpoint holds beyond this model, and what this
        model has beyond the checkpoint (a new head), is reported once and kept in `model.loading_report`.

        Labels go by name: rows of the head whose names `id2label` has keep their weights, wherever they stand, and the
        others are newly made. `num_labels` alone keeps the first rows, with their names.

        Sizes may be others than the checkpoint's, as a start for fine-tuning; the report says what was done.
        `vocab_size`, `type_vocab_size` and `task_type_vocab_size` keep the first rows; new ones begin as transformers'
        `resize_token_embeddings` has them begin, at the mean of the others. With `tie_word_embeddings=False` a tied
        decoder begins as a copy of the word embeddings.
        `max_position_embeddings`: fewer positions are the first ones; more are made as `extend_positions` says:
        `"tile"` (the default) keeps the learnt ones, so that short texts give the same outputs, and repeats them;
        `"interpolate"` stretches them. `image_size`: positions are interpolated bicubically.

        `family` (a name in `hf_ffn.FAMILIES`) says of what family a checkpoint is whose config.json states no
        `model_type`, where neither its `architectures` nor its tensors tell.

        What a subclass adds to one of our classes, and the checkpoint lacks, begins as its own code has it begin.

        Raises:
            ValueError: an unknown family, another patch size, or a part of the encoder that is missing, left over or
                of another shape or type, so that nothing random or forgotten goes unnoticed.
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
