"""Configurations: the block's (`FFNConfig`), and those of the text and vision encoders built from it.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import difflib
import math
import os
from dataclasses import fields
from typing import Any, ClassVar, Literal, Protocol

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.core_model_loading import WeightTransform
from transformers.utils import logging

logger = logging.get_logger(__name__)


class ForeignFamily(Protocol):
    """What loading needs to know about a family of checkpoints that hf_ffn converts (see `hf_ffn.families`)."""

    @property
    def name(self) -> str: ...

    @property
    def model_type(self) -> str: ...

    @property
    def unused(self) -> dict[str, str]: ...

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]: ...

    def weight_mapping(self, head: str | None = None) -> list[WeightTransform]: ...


# The checkpoints that convert as they load, by the `model_type` in their config.json. `import hf_ffn` fills it;
# it stays empty where only a checkpoint's own code files are present, and native checkpoints need nothing from it.
FOREIGN_FAMILIES: dict[str, ForeignFamily] = {}

# At this similarity a keyword is taken for a misspelt field ("intermediate_sise", "hidden_dropout"), while words
# that other libraries store beside ours ("sep_token_id", "position_embedding_type") stay below it.
_NEAR_MISS = 0.846

# What layers may differ in (`per_layer_config`): what the feed-forward block alone reads.
_PER_LAYER_FIELDS = {"intermediate_size", "hidden_act", "gated", "ffn_bias", "activation_dropout_prob"}

_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")


@strict
class FFNConfig(PreTrainedConfig):
    r"""
    Everything one feed-forward or encoder block needs.

    Args:
        hidden_size (`int`, defaults to 768): Width of a token's vector. The default is BERT-base's and ViT-base's.
        num_hidden_layers (`int`, defaults to 12): Number of encoder blocks.
        num_attention_heads (`int`, defaults to 12): Attention heads per block; must divide `hidden_size`.
        intermediate_size (`int`, defaults to 3072): Width between `linear_1` and `linear_2`. The default is the
            customary four times `hidden_size`.
        hidden_act (`str`, defaults to `"gelu"`): Activation by its name in transformers' `ACT2FN`. `"gelu"` is the
            exact (erf) GELU of the lecture, BERT and ViT; tanh approximations have names of their own.
        hidden_dropout_prob (`float`, defaults to 0.1): Dropout after `linear_2`, after the attention's output
            projection and after the embeddings, a probability. 0.1 is BERT's.
        activation_dropout_prob (`float`, defaults to 0.0): Dropout after the activation. Few families use it.
        ffn_dropout_prob (`float`, *optional*): Dropout after `linear_2`; None for `hidden_dropout_prob`.
        attention_probs_dropout_prob (`float`, defaults to 0.1): Dropout on the attention weights.
        norm_order (`"pre"` or `"post"`, defaults to `"pre"`): LayerNorm before each half of the block (the lecture,
            ViT), with one more after the last block; or after each residual sum (BERT).
        layer_norm_eps (`float`, defaults to 1e-12): Added to the variance in every LayerNorm. BERT's and ViT's value;
            many libraries' default of 1e-5 gives visibly other outputs on rows of small variance.
        norm_bias (`bool`, defaults to `True`): Biases in the LayerNorms.
        skip_first_norm (`bool`, defaults to `False`): Leave out the first LayerNorm of the first block, as the
            embeddings end with one (ModernBERT).
        gated (`bool`, defaults to `False`): `linear_2(act(linear_gate(x)) * linear_1(x))` in place of
            `linear_2(act(linear_1(x)))` ([Shazeer 2020](https://huggingface.co/papers/2002.05202)).
        ffn_bias (`bool`, defaults to `True`): Biases in the feed-forward block's linear layers.
        qkv_bias (`bool`, defaults to `True`): Biases in the query, key and value projections.
        attention_bias (`bool`, defaults to `True`): Bias in the attention's output projection.
        scale_query (`bool`, defaults to `False`): Scale queries before the product with the keys, and not the product
            (ESM). The same but for rounding.
        layer_types (`list[str]`, *optional*): For each block `"full_attention"`, or `"sliding_attention"` where a
            token sees its neighbourhood alone (ModernBERT). None for full attention everywhere.
        sliding_window (`int`, *optional*): How many tokens a block of sliding attention sees to either side.
        relative_attention_num_buckets (`int`, *optional*): Number of buckets of a learnt bias by distance, added to
            attention scores ([Raffel et al. 2019](https://huggingface.co/papers/1910.10683)). None for no bias.
        num_hidden_groups (`int`, *optional*): Number of groups of blocks; the layers of a group share its weights
            ([Lan et al. 2019](https://huggingface.co/papers/1909.11942)). None for weights of each layer's own.
        inner_group_num (`int`, defaults to 1): Number of blocks in a group; each layer runs them all.
        layer_scale_init_value (`float`, *optional*): Start value of a learnt scale per channel on each half of the
            block ([Touvron et al. 2021](https://huggingface.co/papers/2103.17239)). None for no such scale.
        drop_path_rate (`float`, defaults to 0.0): Stochastic depth, a probability: rises linearly from 0 in the
            first block to this in the last ([Huang et al. 2016](https://huggingface.co/papers/1603.09382)).
        initializer_range (`float`, defaults to 0.02): Standard deviation of the truncated normal (cut at two
            standard deviations) that new weights are drawn from, as BERT's and ViT's own code does.
        feed_forward_memory (`"full"`, `"pre_activation"` or `"input"`, defaults to `"full"`): What the feed-forward
            block keeps for backward. `"full"`: all that autograd keeps, `hidden_size + 2 * intermediate_size` numbers
            a token; `"pre_activation"`: `hidden_size + intermediate_size`, and the least time; `"input"`:
            `hidden_size`, for about the time of `"full"`. Outputs and gradients are the same. May be set at any time.
        source_family (`str`, *optional*): The family of checkpoints that the weights were converted from.
        source_config (`dict`, *optional*): Entries of the converted checkpoint's config.json for which there is no
            field here. `export_pretrained` writes them back.

    Raises:
        ValueError: an impossible value, or a keyword that narrowly misses a field.
        StrictDataclassFieldValidationError: a value of the wrong type.

    ```python
    >>> from hf_ffn import FFNConfig, FeedForward
    >>> ffn = FeedForward(FFNConfig(hidden_size=64, intermediate_size=256, hidden_dropout_prob=0.0))
    >>> sorted(ffn.state_dict())
    ['linear_1.bias', 'linear_1.weight', 'linear_2.bias', 'linear_2.weight']
    ```
    """

    model_type = "hf_ffn"

    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    activation_dropout_prob: float | int = 0.0
    ffn_dropout_prob: float | int | None = None
    attention_probs_dropout_prob: float | int = 0.1
    norm_order: str = "pre"
    layer_norm_eps: float | int = 1e-12
    norm_bias: bool = True
    skip_first_norm: bool = False
    gated: bool = False
    ffn_bias: bool = True
    qkv_bias: bool = True
    attention_bias: bool = True
    scale_query: bool = False
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    relative_attention_num_buckets: int | None = None
    num_hidden_groups: int | None = None
    inner_group_num: int = 1
    layer_scale_init_value: float | int | None = None
    drop_path_rate: float | int = 0.0
    initializer_range: float | int = 0.02
    feed_forward_memory: Literal["full", "pre_activation", "input"] = "full"
    source_family: str | None = None
    source_config: dict[str, Any] | None = None

    # Sizes that must be at least 1, and probabilities; the subclasses add theirs.
    _sizes: ClassVar[tuple[str, ...]] = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "sliding_window",
        "num_hidden_groups",
        "inner_group_num",
    )
    _probabilities: ClassVar[tuple[str, ...]] = (
        "hidden_dropout_prob",
        "activation_dropout_prob",
        "ffn_dropout_prob",
        "attention_probs_dropout_prob",
        "drop_path_rate",
    )

    def __post_init__(self, **kwargs: Any) -> None:
        self._refuse_near_misses(kwargs)
        self._refuse_impossible_layers(kwargs.get("per_layer_config") or {})
        super().__post_init__(**kwargs)
        # `@strict` runs this too, but wraps what it raises; called here the user sees the plain ValueError.
        self.validate_architecture()

    def _refuse_near_misses(self, unknown: dict[str, Any]) -> None:
        names = [field.name for field in fields(self)]
        for key in unknown:
            if key.startswith("_") or hasattr(PreTrainedConfig, key):
                continue
            close = difflib.get_close_matches(key, names, n=1, cutoff=_NEAR_MISS)
            if not close:
                continue
            message = f"{type(self).__name__} has no field '{key}'. Did you mean '{close[0]}'?"
            # Whatever is set on a configuration is saved with it, and what was saved must load again.
            if self.transformers_version is not None:
                logger.warning(message)
                continue
            raise ValueError(f"{message} (Unknown keywords are kept, but not one that so narrowly misses a field.)")

    def _refuse_impossible_layers(self, per_layer_config: dict[int | str, dict[str, Any]]) -> None:
        for layer, overrides in per_layer_config.items():
            outside = sorted(overrides.keys() - _PER_LAYER_FIELDS)
            if outside:
                raise ValueError(
                    f"per_layer_config sets {', '.join(outside)} in layer {layer}, where layers may only differ in "
                    f"{', '.join(sorted(_PER_LAYER_FIELDS))}"
                )
            # Each is checked as a configuration of its own.
            FFNConfig(**overrides)

    def validate_architecture(self) -> None:
        """Refuse values that no model can be built from.

        Raises:
            ValueError: naming the field, the value and what is allowed.
        """
        if self.is_heterogeneous:
            if self.num_hidden_groups is not None:
                raise ValueError(
                    "num_hidden_groups shares weights between layers, which then have no per_layer_config"
                )
            for layer_config in self.per_layer_config:
                layer_config.validate_architecture()
            return
        for name in self._sizes:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        for name in self._probabilities:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name}={value} is a probability and must lie between 0 and 1")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by num_attention_heads={self.num_attention_heads}"
            )
        self._require_activation("hidden_act")
        if self.norm_order not in ("pre", "post"):
            raise ValueError(f"norm_order='{self.norm_order}' must be 'pre' or 'post'")
        for name in ("layer_norm_eps", "initializer_range"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be a finite number greater than 0")
        if self.layer_scale_init_value is not None and not math.isfinite(self.layer_scale_init_value):
            raise ValueError(f"layer_scale_init_value={self.layer_scale_init_value} must be a finite number")
        self._validate_layers()
        if self.num_labels is not None and self.num_labels < 1:
            raise ValueError(f"num_labels={self.num_labels} must be at least 1")
        if self.problem_type is not None and self.problem_type not in _PROBLEM_TYPES:
            raise ValueError(f"problem_type={self.problem_type!r} is unknown; known: {', '.join(_PROBLEM_TYPES)}")

    def _validate_layers(self) -> None:
        types = self.layer_types
        if types is not None and len(types) != self.num_hidden_layers:
            raise ValueError(f"layer_types={types} must be one for each of num_hidden_layers={self.num_hidden_layers}")
        if set(types or ()) - {"full_attention", "sliding_attention"}:
            raise ValueError(f"layer_types={types} may be 'full_attention' and 'sliding_attention'")
        if "sliding_attention" in (types or ()) and self.sliding_window is None:
            raise ValueError("sliding_window=None must be a number, as layer_types has 'sliding_attention'")
        buckets = self.relative_attention_num_buckets
        if buckets is not None and (buckets < 8 or buckets % 4):
            raise ValueError(f"relative_attention_num_buckets={buckets} must be divisible by 4, and at least 8")
        if self.num_hidden_groups is None:
            return
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups={self.num_hidden_groups} exceeds num_hidden_layers={self.num_hidden_layers}"
            )
        if self.drop_path_rate or self.layer_types is not None:
            raise ValueError(
                "num_hidden_groups shares weights between layers, which then cannot differ by "
                "drop_path_rate or layer_types"
            )

    def layer_type(self, layer_idx: int) -> str:
        """Which attention a block has, `"full_attention"` or `"sliding_attention"`."""
        return self.layer_types[layer_idx] if self.layer_types is not None else "full_attention"

    def block_paths(self) -> list[str]:
        """Where the encoder's blocks are, as paths from it, in the order in which they run."""
        if self.num_hidden_groups is None:
            return [f"layers.{layer}" for layer in range(self.num_hidden_layers)]
        layers_per_group = self.num_hidden_layers / self.num_hidden_groups
        groups = [int(layer / layers_per_group) for layer in range(self.num_hidden_layers)]
        return [f"layers.{group}.blocks.{inner}" for group in groups for inner in range(self.inner_group_num)]

    def _require_activation(self, field: str) -> None:
        name = getattr(self, field)
        if name not in ACT2FN:
            close = difflib.get_close_matches(name, list(ACT2FN), n=3, cutoff=0.4)
            hint = f"close to it: {', '.join(close)}" if close else f"known: {', '.join(sorted(ACT2FN))}"
            raise ValueError(f"{field}='{name}' is not an activation of transformers; {hint}")

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: str | os.PathLike, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a config.json, and translate one of another family (BERT's, ViT's…) into fields of ours.

        Raises:
            ValueError: the file names no family that is known here, or one of the other modality.
        """
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        return cls._as_native(config_dict, str(pretrained_model_name_or_path)), kwargs

    @classmethod
    def _as_native(cls, config_dict: dict[str, Any], source: str) -> dict[str, Any]:
        model_type = config_dict.get("model_type")
        if model_type in FOREIGN_FAMILIES:
            config_dict = FOREIGN_FAMILIES[model_type].translate_config(config_dict)
        elif model_type not in NATIVE_MODEL_TYPES:
            raise unknown_family(source, model_type)
        if cls.model_type == FFNConfig.model_type:
            # The block's configuration can be read from any encoder's: it takes the fields that it knows.
            names = {field.name for field in fields(cls)}
            return {k: v for k, v in config_dict.items() if k in names} | {"model_type": cls.model_type}
        if config_dict["model_type"] != cls.model_type:
            raise ValueError(
                f"'{source}' holds a model of type '{config_dict['model_type']}' and cannot be loaded as "
                f"'{cls.model_type}': use the {NATIVE_MODEL_TYPES[config_dict['model_type']]} classes"
            )
        return config_dict


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
            where there is padding to save, on CPU or with flash attention; not where a row begins with padding, for
            heads may read that place; nor for answers to questions, whose loss counts padding. `"always"`: with every
            mask. Attention weights, all layers' hidden states, captured graphs, and training with stochastic depth
            are computed with padding always. May be set at any time.
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
    Configuration of the image encoder: `FFNConfig`, and what patches, pooling and heads need.

    Args:
        image_size (`int` or `(int, int)`, defaults to 224): Height and width in pixels; one number for a square.
        patch_size (`int` or `(int, int)`, defaults to 16): Height and width of a patch in pixels.
        num_channels (`int`, defaults to 3): Channels of an image.
        pooler_output_size (`int`, *optional*): Width of the pooled output; None for `hidden_size`.
        pooler_act (`str`, defaults to `"tanh"`): Activation of the pooler.
        hidden_dropout_prob (`float`, defaults to 0.0): As in `FFNConfig`; ViT fine-tunes without dropout.
        attention_probs_dropout_prob (`float`, defaults to 0.0): As in `FFNConfig`; ViT fine-tunes without dropout.
    """

    model_type = "hf_ffn_vision"

    hidden_dropout_prob: float | int = 0.0
    attention_probs_dropout_prob: float | int = 0.0
    image_size: int | list[int] | tuple[int, int] = 224
    patch_size: int | list[int] | tuple[int, int] = 16
    num_channels: int = 3
    pooler_output_size: int | None = None
    pooler_act: str = "tanh"

    _sizes: ClassVar[tuple[str, ...]] = (*FFNConfig._sizes, "num_channels", "pooler_output_size")

    def __post_init__(self, **kwargs: Any) -> None:
        if self.pooler_output_size is None:
            self.pooler_output_size = self.hidden_size
        super().__post_init__(**kwargs)

    def validate_architecture(self) -> None:
        """Refuse values that no image encoder can be built from (see `FFNConfig.validate_architecture`)."""
        super().validate_architecture()
        self._require_activation("pooler_act")
        for name in ("image_size", "patch_size"):
            if min(height_and_width(getattr(self, name), name)) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1 in height and width")
        if min(self.grid_size) < 1:
            raise ValueError(f"image_size={self.image_size} is smaller than one patch of patch_size={self.patch_size}")

    @property
    def grid_size(self) -> tuple[int, int]:
        """Number of patches (down, across) in an image of `image_size`."""
        height, width = height_and_width(self.image_size)
        patch_height, patch_width = height_and_width(self.patch_size)
        return height // patch_height, width // patch_width


def unknown_family(source: str, model_type: str | None) -> ValueError:
    """The error for a checkpoint that is neither ours nor of a family that converts."""
    known = ", ".join(sorted(FOREIGN_FAMILIES)) or "none, as hf_ffn is not imported here"
    return ValueError(
        f"'{source}' has model_type={model_type!r} in its config.json, which hf_ffn does not convert. "
        f"Families that it converts: {known}."
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


# What is ours, and how the classes of each type are called in messages.
NATIVE_MODEL_TYPES = {
    FFNConfig.model_type: "FFNConfig",
    FFNTextConfig.model_type: "FFN text",
    FFNVisionConfig.model_type: "FFN vision",
}

FFNTextConfig.register_for_auto_class()
FFNVisionConfig.register_for_auto_class()

__all__ = ["FFNConfig", "FFNTextConfig", "FFNVisionConfig"]
