"""Configurations of the text and vision encoders: the block's (`FFNConfig`), and what comes before and after it.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import math
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_ffn_block import FFNConfig


@strict
class FFNTextConfig(FFNConfig):
    r"""
    Configuration of the text encoder: `FFNConfig`, and what embeddings and heads need.

    Args:
        vocab_size (`int`, defaults to 30522): Number of token ids. The default is BERT's uncased vocabulary.
        embedding_size (`int`, *optional*): Width of the embeddings, which are projected to `hidden_size` where it is
            another (ELECTRA, ALBERT). None for `hidden_size`.
        embedding_dropout_prob (`float`, *optional*): Dropout after the embeddings; None for `hidden_dropout_prob`.
        embedding_norm (`bool`, *optional*, defaults to `True`): Whether a LayerNorm ends the embeddings.
        max_position_embeddings (`int`, defaults to 512): Number of positions: the longest sequence in tokens, but for
            `positions_after_padding`. Rotary positions have no such limit.
        position_embedding_type (`"absolute"` or `"rotary"`, defaults to `"absolute"`): Positions learnt and added to
            the embeddings (BERT), or turning queries and keys (ESM, ModernBERT).
        positions_after_padding (`bool`, defaults to `False`): Count positions over the tokens that are no padding,
            from `pad_token_id + 1` on, which leaves `max_position_embeddings - pad_token_id - 1` of them (RoBERTa).
        rope_theta (`float`, defaults to 10000.0): Base of the rotary positions' wave lengths.
        local_rope_theta (`float`, *optional*): The same in layers of sliding attention; None for `rope_theta`.
        rope_frequencies_stored (`bool`, defaults to `False`): Whether checkpoints hold the rotary positions'
            frequencies (ESM), in place of computing them from `rope_theta`.
        type_vocab_size (`int`, defaults to 2): Number of segment ids (`token_type_ids`); 0 for a model without
            segments.
        use_task_id (`bool`, defaults to `False`): Whether there are embeddings of `task_type_ids` (ERNIE 2 and 3).
        task_type_vocab_size (`int`, defaults to 3): Number of task ids.
        token_dropout (`bool`, *optional*, defaults to `False`): Take masked tokens for dropped out: their embeddings
            are zero, and the others scaled up by their share (ESM).
        mask_token_id (`int`, *optional*): The id of masked tokens, for `token_dropout`.
        zero_padding (`bool`, defaults to `False`): Set the embeddings of padding to zero (ESM).
        pad_token_id (`int`, *optional*, defaults to 0): The id whose embedding gets no gradient.
        bos_token_id (`int`, *optional*): Kept for the tokenizer; the encoder does not use it.
        eos_token_id (`int` or `list[int]`, *optional*): The end of a sequence, which `predict_contacts` leaves out.
        add_pooling_layer (`bool`, defaults to `True`): Whether the encoder has a pooler.
        contact_head (`bool`, defaults to `False`): Whether the encoder has a head for `predict_contacts` (ESM).
        classifier_head (`str`, defaults to `"linear"`): What comes before a classifier. `"linear"`: dropout (BERT).
            `"dense"`: dropout, dense layer, `classifier_act`, dropout (RoBERTa). `"pre_classifier"`: the same without
            the first dropout (DistilBERT); these two for sequences only. `"prediction"`: dense layer,
            `classifier_act`, LayerNorm, dropout, for every classifier and question answering (ModernBERT).
        classifier_pooling (`str`, defaults to `"pooler"`): What a sequence classifier reads: the output of the
            `"pooler"`, the first token (`"cls"`) or the `"mean"` over all tokens.
        classifier_act (`str`, defaults to `"tanh"`): Activation after the dense layer before a classifier.
        classifier_dropout (`float`, *optional*): Dropout before a classifier; None for `hidden_dropout_prob`.
        token_classifier_dropout (`float`, *optional*): The same for tokens; None for the same as `classifier_dropout`.
        qa_dropout (`float`, defaults to 0.0): The same for question answering.
        head_bias (`bool`, defaults to `True`): Bias in the dense layer of heads.
        lm_head_act (`str`, *optional*): Activation in the masked-language-model head; None for `hidden_act`.
        lm_head_bias (`bool`, defaults to `True`): Whether that head has a bias of its own, to which the decoder's is
            tied.
        decoder_bias (`bool`, defaults to `True`): Whether the decoder has a bias.
        tie_word_embeddings (`bool`, defaults to `True`): Whether the masked-language-model decoder is the word
            embeddings.
        unpad (`"auto"`, `"always"` or `"never"`, defaults to `"auto"`): Whether padding is left out of the encoder's
            computation; hidden states at padding are zeros then, and at tokens the same up to rounding. `"auto"`:
            where there is padding to save, with flash attention, with eager and sdpa on CPU, and with flex attention
            on a GPU (for CPU torch 2.13 cannot compile it for batches of both kinds); but where a row begins with
            padding, not if a pooler or head reads that place. `"always"`: with every mask. Attention weights, all
            layers' hidden states, captured graphs, training with stochastic depth, and losses that count padding
            (of answers to questions; of labels at padding other than -100) are computed with padding always. Logits
            at padding are then zeros of a masked-language model, and the least number for answers to questions. May
            be set at any time.
    """

    model_type = "hf_ffn_text"

    vocab_size: int = 30522
    embedding_size: int | None = None
    embedding_dropout_prob: float | int | None = None
    embedding_norm: bool | None = True
    max_position_embeddings: int = 512
    position_embedding_type: str = "absolute"
    positions_after_padding: bool = False
    rope_theta: float | int = 10000.0
    local_rope_theta: float | int | None = None
    rope_frequencies_stored: bool = False
    type_vocab_size: int = 2
    use_task_id: bool = False
    task_type_vocab_size: int = 3
    token_dropout: bool | None = False
    mask_token_id: int | None = None
    zero_padding: bool = False
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    add_pooling_layer: bool = True
    contact_head: bool = False
    classifier_head: str = "linear"
    classifier_pooling: str = "pooler"
    classifier_act: str = "tanh"
    classifier_dropout: float | int | None = None
    token_classifier_dropout: float | int | None = None
    qa_dropout: float | int = 0.0
    head_bias: bool = True
    lm_head_act: str | None = None
    lm_head_bias: bool = True
    decoder_bias: bool = True
    tie_word_embeddings: bool = True
    unpad: Literal["auto", "always", "never"] = "auto"

    _sizes: ClassVar[tuple[str, ...]] = (
        *FFNConfig._sizes,
        "vocab_size",
        "embedding_size",
        "max_position_embeddings",
        "task_type_vocab_size",
    )
    _probabilities: ClassVar[tuple[str, ...]] = (
        *FFNConfig._probabilities,
        "embedding_dropout_prob",
        "classifier_dropout",
        "token_classifier_dropout",
        "qa_dropout",
    )
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "position_embedding_type": ("absolute", "rotary"),
        "classifier_head": ("linear", "dense", "pre_classifier", "prediction"),
        "classifier_pooling": ("pooler", "cls", "mean"),
    }

    def validate_architecture(self) -> None:
        """Refuse values that no text encoder can be built from (see `FFNConfig.validate_architecture`)."""
        super().validate_architecture()
        for name, choices in self._choices.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}='{getattr(self, name)}' must be one of {', '.join(map(repr, choices))}")
        for name in ("classifier_act", "lm_head_act"):
            if getattr(self, name) is not None:
                self._require_activation(name)
        if self.type_vocab_size < 0:
            raise ValueError(f"type_vocab_size={self.type_vocab_size} must be at least 0")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id={self.pad_token_id} lies outside the vocabulary of vocab_size={self.vocab_size}; "
                f"use None where there is no padding token"
            )
        self._validate_positions()
        if self.token_dropout and self.mask_token_id is None:
            raise ValueError("mask_token_id=None must be a token id, as token_dropout=True")
        if self.contact_head and not isinstance(self.eos_token_id, int):
            raise ValueError(f"eos_token_id={self.eos_token_id} must be one token id, as contact_head=True")
        if self.classifier_pooling == "pooler" and not self.add_pooling_layer:
            raise ValueError("classifier_pooling='pooler' needs add_pooling_layer=True")

    def _validate_positions(self) -> None:
        for name in ("rope_theta", "local_rope_theta"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be a finite number greater than 0")
        if self.position_embedding_type == "rotary" and self.hidden_size // self.num_attention_heads % 2:
            raise ValueError(
                f"position_embedding_type='rotary' turns pairs of channels, and hidden_size={self.hidden_size} over "
                f"num_attention_heads={self.num_attention_heads} gives an odd number of them"
            )
        if self.positions_after_padding and self.pad_token_id is None:
            raise ValueError("pad_token_id=None must be a token id, as positions_after_padding=True")
        if self.longest_sequence is not None and self.longest_sequence < 1:
            raise ValueError(
                f"max_position_embeddings={self.max_position_embeddings} leaves no position after "
                f"pad_token_id={self.pad_token_id}, from which positions_after_padding counts"
            )

    @property
    def longest_sequence(self) -> int | None:
        """Longest sequence in tokens that there are learnt positions for; None for rotary ones."""
        if self.position_embedding_type == "rotary":
            return None
        if self.positions_after_padding and self.pad_token_id is not None:
            return self.max_position_embeddings - self.pad_token_id - 1
        return self.max_position_embeddings


@strict
class FFNVisionConfig(FFNConfig):
    r"""
    Configuration of the image encoder: `FFNConfig`, and what patches, positions, pooling and heads need.

    Args:
        image_size (`int` or `(int, int)`, defaults to 224): Height and width in pixels; one number for a square.
        patch_size (`int` or `(int, int)`, defaults to 16): Height and width of a patch in pixels.
        patch_stride (`int` or `(int, int)`, *optional*): From one patch to the next, down and across; None for
            `patch_size`. Less makes patches overlap (AST).
        patch_bias (`bool`, defaults to `True`): Bias in the projection of patches.
        num_channels (`int`, defaults to 3): Channels of an image.
        use_cls_token (`bool`, defaults to `True`): Whether a class token stands before the patches.
        use_distillation_token (`bool`, defaults to `False`): Whether a distillation token comes after it
            ([Touvron et al. 2020](https://huggingface.co/papers/2012.12877)).
        num_register_tokens (`int`, *optional*): Number of register tokens, without positions, before the patches
            ([Darcet et al. 2023](https://huggingface.co/papers/2309.16588)). None for none; 0 for an empty tensor of
            them, as DINOv3's checkpoints may have.
        use_mask_token (`bool`, defaults to `False`): Whether the encoder has a token in place of masked patches.
        position_embedding_type (`"absolute"`, `"rotary"` or `"none"`, defaults to `"absolute"`): Positions learnt and
            added to the tokens (ViT), or turning queries and keys of patches (DINOv3).
        prefix_positions (`bool`, defaults to `True`): Whether class and distillation token have learnt positions too.
        interpolation_antialias (`bool`, defaults to `False`): Whether learnt positions are filtered where they are
            interpolated to fewer.
        interpolate_pos_encoding (`bool`, defaults to `False`): Whether images of another size than `image_size` are
            taken without being asked to, their positions interpolated (DINOv2, BEiT); otherwise `forward` asks for it.
        spectrogram_input (`bool`, defaults to `False`): Whether what is encoded are spectrograms, `input_values` of
            `(batch, frames, mel bins)`, as images of one channel, mel bins high and frames wide (AST).
        rope_theta (`float`, defaults to 100.0): Base of the rotary positions' wave lengths.
        pos_embed_shift (`float`, *optional*): In training, shift the coordinates of rotary positions, which go from -1
            to 1, by up to this, at random.
        pos_embed_jitter (`float`, *optional*): The same: stretch each direction by up to this factor.
        pos_embed_rescale (`float`, *optional*): The same: stretch both directions alike by up to this factor.
        use_relative_position_bias (`bool`, defaults to `False`): A learnt bias by offset between patches on attention
            scores, for each block its own ([Bao et al. 2021](https://huggingface.co/papers/2106.08254)).
        use_shared_relative_position_bias (`bool`, defaults to `False`): The same, one for all blocks.
        embedding_norm (`bool`, defaults to `False`): Whether a LayerNorm ends the embeddings (CLIP).
        embedding_dropout_prob (`float`, *optional*): Dropout after the embeddings; None for `hidden_dropout_prob`.
        add_pooling_layer (`bool`, defaults to `True`): Whether the encoder pools.
        pooling (`str`, defaults to `"cls"`): What the pooler starts from: the class token (`"cls"`), the patches'
            `"mean"`, the mean of class and distillation token (`"cls_distillation"`), or a learnt query's
            `"attention"` to all tokens (SigLIP).
        pooler_norm (`bool`, defaults to `False`): LayerNorm in the pooler (CLIP, BEiT).
        pooler_dense (`bool`, defaults to `True`): Dense layer and activation in the pooler (ViT).
        pooler_output_size (`int`, *optional*): Width of that layer's output; None for `hidden_size`.
        pooler_act (`str`, defaults to `"tanh"`): Activation after that layer.
        classifier_pooling (`str`, defaults to `"cls"`): What an image classifier reads: the class token (`"cls"`), the
            patches' `"mean"`, both (`"cls_mean"`), or the output of the `"pooler"`.
        keep_pooler (`bool`, defaults to `False`): Whether an image classifier that does not read the pooler's output
            has a pooler all the same, untrained, so that it can go back to a family whose classifiers have (CLIP).
        hidden_dropout_prob (`float`, defaults to 0.0): As in `FFNConfig`; ViT fine-tunes without dropout.
        attention_probs_dropout_prob (`float`, defaults to 0.0): As in `FFNConfig`; ViT fine-tunes without dropout.
    """

    model_type = "hf_ffn_vision"

    hidden_dropout_prob: float | int = 0.0
    attention_probs_dropout_prob: float | int = 0.0
    image_size: int | list[int] | tuple[int, int] = 224
    patch_size: int | list[int] | tuple[int, int] = 16
    patch_stride: int | list[int] | tuple[int, int] | None = None
    patch_bias: bool = True
    num_channels: int = 3
    use_cls_token: bool = True
    use_distillation_token: bool = False
    num_register_tokens: int | None = None
    use_mask_token: bool = False
    position_embedding_type: str = "absolute"
    prefix_positions: bool = True
    interpolation_antialias: bool = False
    interpolate_pos_encoding: bool = False
    spectrogram_input: bool = False
    rope_theta: float | int = 100.0
    pos_embed_shift: float | int | None = None
    pos_embed_jitter: float | int | None = None
    pos_embed_rescale: float | int | None = None
    use_relative_position_bias: bool = False
    use_shared_relative_position_bias: bool = False
    embedding_norm: bool = False
    embedding_dropout_prob: float | int | None = None
    add_pooling_layer: bool = True
    pooling: str = "cls"
    pooler_norm: bool = False
    pooler_dense: bool = True
    pooler_output_size: int | None = None
    pooler_act: str = "tanh"
    classifier_pooling: str = "cls"
    keep_pooler: bool = False

    _sizes: ClassVar[tuple[str, ...]] = (*FFNConfig._sizes, "num_channels", "pooler_output_size")
    _probabilities: ClassVar[tuple[str, ...]] = (*FFNConfig._probabilities, "embedding_dropout_prob")
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "position_embedding_type": ("absolute", "rotary", "none"),
        "pooling": ("cls", "mean", "cls_distillation", "attention"),
        "classifier_pooling": ("cls", "mean", "cls_mean", "pooler"),
    }

    def __post_init__(self, **kwargs: Any) -> None:
        if self.pooler_output_size is None:
            self.pooler_output_size = self.hidden_size
        # An auto class that serves two of our models looks for their names here, and takes no None.
        names: list[str] = getattr(self, "architectures", None) or []
        self.architectures = names
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Refuse values that no image encoder can be built from (see `FFNConfig.validate_architecture`)."""
        super().validate_architecture()
        for name, choices in self._choices.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}='{getattr(self, name)}' must be one of {', '.join(map(repr, choices))}")
        self._require_activation("pooler_act")
        self._validate_sizes()
        self._validate_tokens()
        self._validate_positions()
        if self.spectrogram_input and self.num_channels != 1:
            raise ValueError(f"spectrogram_input=True needs num_channels=1, not {self.num_channels}")

    def _validate_sizes(self) -> None:
        for name in ("image_size", "patch_size", "patch_stride"):
            value = getattr(self, name)
            if value is not None and min(height_and_width(value, name)) < 1:
                raise ValueError(f"{name}={value} must be at least 1 in height and width")
        if min(self.grid_size) < 1:
            raise ValueError(f"image_size={self.image_size} is smaller than one patch of patch_size={self.patch_size}")
        if self.num_register_tokens is not None and self.num_register_tokens < 0:
            raise ValueError(f"num_register_tokens={self.num_register_tokens} must be at least 0")

    def _validate_tokens(self) -> None:
        reads_cls = {"pooling": self.add_pooling_layer, "classifier_pooling": True}
        for name, used in reads_cls.items():
            value = getattr(self, name)
            if used and value.startswith("cls") and not self.use_cls_token:
                raise ValueError(f"{name}='{value}' needs use_cls_token=True")
            if used and value == "cls_distillation" and not self.use_distillation_token:
                raise ValueError(f"{name}='{value}' needs use_distillation_token=True")
        if self.classifier_pooling == "pooler" and not self.add_pooling_layer:
            raise ValueError("classifier_pooling='pooler' needs add_pooling_layer=True")

    def _validate_positions(self) -> None:
        if self.position_embedding_type == "rotary" and self.hidden_size // self.num_attention_heads % 4:
            raise ValueError(
                f"position_embedding_type='rotary' needs a number of channels that 4 divides in each head, and "
                f"hidden_size={self.hidden_size} with num_attention_heads={self.num_attention_heads} has "
                f"{self.hidden_size // self.num_attention_heads}"
            )
        if not 0 < self.rope_theta < math.inf:
            raise ValueError(f"rope_theta={self.rope_theta} must be a finite number greater than 0")
        for name in ("pos_embed_jitter", "pos_embed_rescale"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < math.inf:
                raise ValueError(f"{name}={value} is a factor and must be at least 1")
        if self.has_window_bias and (not self.use_cls_token or self.num_prefix_tokens != 1):
            raise ValueError(
                "use_relative_position_bias and use_shared_relative_position_bias need the class token, and no other "
                "token, before the patches"
            )

    @property
    def grid_size(self) -> tuple[int, int]:
        """Number of patches (down, across) in an image of `image_size`."""
        image_size, patch_size = height_and_width(self.image_size), height_and_width(self.patch_size)
        stride = patch_size if self.patch_stride is None else height_and_width(self.patch_stride)
        down, across = ((image_size[axis] - patch_size[axis]) // stride[axis] + 1 for axis in (0, 1))
        return down, across

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patches."""
        return self.use_cls_token + self.use_distillation_token + (self.num_register_tokens or 0)

    @property
    def has_window_bias(self) -> bool:
        """Whether attention has a learnt bias by offset between patches."""
        return self.use_relative_position_bias or self.use_shared_relative_position_bias

    @property
    def pooled_size(self) -> int:
        """Width of the pooled output."""
        return self.pooler_output_size if self.pooler_dense and self.pooler_output_size else self.hidden_size

    @property
    def classifier_input_size(self) -> int:
        """Width of what an image classifier reads."""
        return {"pooler": self.pooled_size, "cls_mean": 2 * self.hidden_size}.get(
            self.classifier_pooling, self.hidden_size
        )


def height_and_width(size: int | list[int] | tuple[int, int], name: str = "size") -> tuple[int, int]:
    """Read a size as (height, width): a single number means a square.

    Raises:
        ValueError: not one or two numbers.
    """
    if isinstance(size, int):
        return size, size
    if len(size) != 2:
        raise ValueError(f"{name}={size} must be one number, or (height, width)")
    return size[0], size[1]


__all__ = ["FFNConfig", "FFNTextConfig", "FFNVisionConfig", "height_and_width"]
