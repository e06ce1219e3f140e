"""The configuration of one block (`FFNConfig`), from which those of the encoders are built.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import difflib
import math
import os
from dataclasses import fields
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.utils import logging

from .checkpoint_ffn import check_config_file, completed
from .labels_ffn import in_order, rows_of
from .registry_ffn import FOREIGN_FAMILIES, BlockFamily, block_family, unknown_family

logger = logging.get_logger(__name__)

# At this similarity a keyword is taken for a misspelt field ("intermediate_sise", "hidden_dropout"), while words
# that other libraries store beside ours ("sep_token_id", "position_embedding_type") stay below it.
_NEAR_MISS = 0.846

# What layers may differ in (`per_layer_config`): what the feed-forward block alone reads.
_PER_LAYER_FIELDS = {"intermediate_size", "hidden_act", "gated", "ffn_bias", "activation_dropout_prob"}

_PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")

# What is ours, and how the classes of each type are called in messages.
NATIVE_MODEL_TYPES = {"hf_ffn": "FFNConfig", "hf_ffn_text": "FFN text", "hf_ffn_vision": "FFN vision"}


def wrong_entry(source: str, error: StrictDataclassError) -> ValueError:
    """The error for a config.json with an entry that its class does not take."""
    return ValueError(f"the config.json of '{source}': {' '.join(str(error).split())}")


class _LeftOut(int):
    """A default that can be told from the same number where that was given."""


def usual_heads(hidden_size: int) -> int:
    """The number of heads where none is given: the most that divide `hidden_size`, with 64 channels each or more.

    At least 1. What is no size is refused elsewhere.
    """
    return max((heads for heads in range(1, hidden_size // 64 + 1) if hidden_size % heads == 0), default=1)


@strict
class FFNConfig(PreTrainedConfig):
    r"""
    Everything one feed-forward or encoder block needs.

    Args:
        hidden_size (`int`, defaults to 768): Width of a token's vector. The default is BERT-base's and ViT-base's.
        num_hidden_layers (`int`, defaults to 12): Number of encoder blocks.
        num_attention_heads (`int`, defaults to 12): Attention heads per block; must divide `hidden_size`. Left out at
            another `hidden_size` than 768, as many as divide it into heads of 64 channels or more: 1 at 64, 6 at 384.
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
        final_norm (`bool`, defaults to `True`): Whether pre-norm blocks are followed by one more LayerNorm.
        skip_first_norm (`bool`, defaults to `False`): Leave out the first LayerNorm of the first block, as the
            embeddings end with one (ModernBERT).
        gated (`bool`, defaults to `False`): `linear_2(act(linear_gate(x)) * linear_1(x))` in place of
            `linear_2(act(linear_1(x)))` ([Shazeer 2020](https://huggingface.co/papers/2002.05202)).
        ffn_bias (`bool`, defaults to `True`): Biases in the feed-forward block's linear layers.
        qkv_bias (`bool`, defaults to `True`): Biases in the query, key and value projections.
        key_bias (`bool`, defaults to `True`): Bias in the key projection too, where `qkv_bias` is set (not in BEiT).
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
        drop_path_constant (`bool`, defaults to `False`): That probability in every block alike (DINOv2).
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
    num_attention_heads: int = _LeftOut(12)
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    activation_dropout_prob: float | int = 0.0
    ffn_dropout_prob: float | int | None = None
    attention_probs_dropout_prob: float | int = 0.1
    norm_order: str = "pre"
    layer_norm_eps: float | int = 1e-12
    norm_bias: bool = True
    final_norm: bool = True
    skip_first_norm: bool = False
    gated: bool = False
    ffn_bias: bool = True
    qkv_bias: bool = True
    key_bias: bool = True
    attention_bias: bool = True
    scale_query: bool = False
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    relative_attention_num_buckets: int | None = None
    num_hidden_groups: int | None = None
    inner_group_num: int = 1
    layer_scale_init_value: float | int | None = None
    drop_path_rate: float | int = 0.0
    drop_path_constant: bool = False
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
        if isinstance(self.num_attention_heads, _LeftOut):
            self.num_attention_heads = usual_heads(self.hidden_size)
        super().__post_init__(**kwargs)
        labels: dict[int, str] | None = vars(self).get("id2label")
        if labels is not None and list(labels) != list(range(len(labels))):
            self.id2label = in_order(labels)
            self.label2id = rows_of(self.id2label)
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

        `FFNConfig` itself also reads those of families of which only feed-forward blocks can be read, and takes
        `part` where there are several encoders in a checkpoint (see `FeedForward.from_pretrained`). `family` says what
        a file without `model_type` is of, where nothing else does.

        Raises:
            ValueError: the file names no family that is known here, or one of the other modality; or it is damaged.
        """
        part = kwargs.pop("part", None) if cls.model_type == FFNConfig.model_type else None
        given = dict(kwargs)
        kwargs.pop("family", None)
        check_config_file(pretrained_model_name_or_path, given)
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        # Keywords that say where the file lies are the caller's still, and not among those that are left.
        config_dict = completed(config_dict, pretrained_model_name_or_path, given)
        return cls._as_native(config_dict, str(pretrained_model_name_or_path), part), kwargs

    @classmethod
    def _as_native(cls, config_dict: dict[str, Any], source: str, part: str | None = None) -> dict[str, Any]:
        model_type = config_dict.get("model_type")
        family: BlockFamily | None = FOREIGN_FAMILIES.get(model_type or "")
        if cls.model_type == FFNConfig.model_type:
            family = block_family(source, model_type, part)
        if family is not None:
            try:
                config_dict = family.translate_config(config_dict)
            except StrictDataclassError as error:
                raise wrong_entry(source, error) from error
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
