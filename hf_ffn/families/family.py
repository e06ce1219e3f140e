"""What a family of checkpoints is: how it names what we have, both ways."""

from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.core_model_loading import WeightConverter, WeightRenaming, WeightTransform

from ..configuration_ffn import FFNTextConfig, FFNVisionConfig

# Fields of every configuration that mean the same everywhere, and are carried over as they are.
COMMON_FIELDS = ("id2label", "label2id", "problem_type", "dtype")

# Entries of a config.json that describe the file and not the model; saving writes them anew.
NOT_KEPT = ("architectures", "model_type", "num_labels", "torch_dtype", "transformers_version")

CONFIG_CLASSES = {each.model_type: each for each in (FFNTextConfig, FFNVisionConfig)}

Renamings = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Family:
    """How one family of checkpoints names what we have: data, and no logic of its own.

    Attributes:
        name: the family, as reports and `hf-ffn families` call it.
        model_type: in the family's config.json.
        native_type: our model type that it becomes, `"hf_ffn_text"` or `"hf_ffn_vision"`.
        fields: our configuration fields -> theirs, where they mean the same; dots lead into dictionaries. Two of ours
            may be one of theirs.
        fixed: our fields that the family does not store, with the one value that its models have. What is in neither
            has our default, which is that the feature is off.
        refused: their fields that have no counterpart here, with the one value that converts.
        weights: pairs of their name and ours, regular expressions applied in order to every tensor's name.
        head_weights: the same for single classes of ours, applied before.
        fused: tensors of theirs that hold several of ours: the last part of their name, ours, and the operation.
        dialects: spellings that only occur in some files; applied before all others, and never written.
        heads: our class -> theirs.
        also_reads: their classes that hold more than any of ours, and the class of ours that takes most of it.
        unused: patterns of tensors (by our names) that have no place here, with the reason.
        layers: where the family's base model keeps its list of blocks (a regular expression where there are several).
        rounding: why float32 results are equal but for rounding; empty where they are equal bitwise.
    """

    name: str
    model_type: str
    native_type: str
    fields: dict[str, str]
    fixed: dict[str, Any]
    refused: dict[str, Any]
    weights: Renamings
    heads: dict[str, str]
    layers: str
    head_weights: dict[str, Renamings] = field(default_factory=dict)
    fused: tuple[tuple[str, list[str], Any], ...] = ()
    dialects: Renamings = ()
    also_reads: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)
    rounding: str = ""

    def weight_mapping(self, head: str | None = None) -> list[WeightTransform]:
        """How the family's weights become ours, for transformers' loader.

        Args:
            head: the name of our class that is loaded; None where only the encoder's names matter.
        """
        return [WeightRenaming(theirs, ours) for theirs, ours in self.dialects] + self.source_mapping(head)

    def source_mapping(self, head: str | None = None) -> list[WeightTransform]:
        """The same without what only occurs in some files, which is what the way back reverts."""
        renamings = (*self.head_weights.get(head or "", ()), *self.weights)
        return [
            *(WeightRenaming(theirs, ours) for theirs, ours in renamings),
            *(WeightConverter(theirs, list(ours), [operation]) for theirs, ours, operation in self.fused),
        ]

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """Turn the family's config.json into a dictionary of our fields.

        What a short or old file leaves out is filled with the family's own defaults, by its own class.

        Raises:
            ValueError: a field is set to what does not convert.
        """
        theirs = AutoConfig.for_model(**config_dict)
        for path, value in self.refused.items():
            found = look_up(theirs, path, value)
            if found != value:
                raise ValueError(
                    f"A {self.name} checkpoint with {path}={found!r} does not convert (only {path}={value!r} does)"
                )
        ours = {name: look_up(theirs, path) for name, path in self.fields.items()}
        ours |= {name: getattr(theirs, name) for name in COMMON_FIELDS if getattr(theirs, name, None) is not None}
        known = {*self.fields.values(), *COMMON_FIELDS, *NOT_KEPT}
        rest = {name: value for name, value in config_dict.items() if name not in known and name[0] != "_"}
        return {
            **ours,
            **self.fixed,
            "model_type": self.native_type,
            "source_family": self.name,
            "source_config": rest,
        }

    def source_config(self, config: PreTrainedConfig) -> PreTrainedConfig:
        """Turn our configuration back into the family's.

        Raises:
            ValueError: a field has a value that the family cannot express.
        """
        if config.is_heterogeneous:
            names = ", ".join(sorted(config.per_layer_attributes or ()))
            raise ValueError(f"{self.name} cannot express layers that differ in {names} (per_layer_config)")
        for name, value in self.unstored().items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"{self.name} cannot express {name}={getattr(config, name)!r}: its models have {name}={value!r}"
                )
        theirs = dict(config.source_config or {})
        stored: dict[str, str] = {}
        for name, path in self.fields.items():
            other = stored.setdefault(path, name)
            if getattr(config, other) != getattr(config, name):
                raise ValueError(
                    f"{self.name} cannot express {name}={getattr(config, name)!r} beside "
                    f"{other}={getattr(config, other)!r}: its models have one number for both"
                )
            put(theirs, path, getattr(config, name))
        theirs |= {name: getattr(config, name) for name in COMMON_FIELDS}
        return AutoConfig.for_model(self.model_type, **theirs)

    def unstored(self) -> dict[str, Any]:
        """Our fields that the family's config.json does not hold, with the value that its models have."""
        own = {each.name for each in fields(PreTrainedConfig)} | {"source_family", "source_config"}
        defaults = {
            each.name: each.default
            for each in fields(CONFIG_CLASSES[self.native_type])
            if each.name not in own and each.name not in self.fields and each.default is not MISSING
        }
        return {**defaults, **self.fixed}


def look_up(config: Any, path: str, default: Any = None) -> Any:
    """A configuration's field; dots in its name lead into dictionaries."""
    name, *keys = path.split(".")
    if not keys:
        return getattr(config, name, default)
    value = getattr(config, name, None)
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return default if value is None else value


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set what `look_up` finds, without changing dictionaries that others hold."""
    name, _, rest = path.partition(".")
    if rest:
        config[name] = dict(config.get(name) or {})
        put(config[name], rest, value)
    else:
        config[name] = value


def same(*names: str) -> dict[str, str]:
    """Fields that a family calls as we do."""
    return {name: name for name in names}


# Fields of a plain block that BERT, ViT and most of their kin call as we do.
BLOCK_FIELDS = same(
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "layer_norm_eps",
    "initializer_range",
)

# Fields that BERT and most text encoders call as we do.
TEXT_FIELDS = same(
    "vocab_size",
    "max_position_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "tie_word_embeddings",
)

# An encoder and no decoder, with positions that are added to the embeddings.
ENCODER_ONLY = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}

# How old files spell LayerNorms.
GAMMA_BETA = (
    (r"LayerNorm\.gamma", "LayerNorm.weight"),
    (r"LayerNorm\.beta", "LayerNorm.bias"),
)

# Names of BERT's embeddings and blocks, which many families kept, some with LayerNorms elsewhere.
BERT_LAYERS = (
    (r"embeddings\.LayerNorm", "embeddings.norm"),
    (r"encoder\.layer\.", "encoder.layers."),
    (r"attention\.self\.query", "attention.q_proj"),
    (r"attention\.self\.key", "attention.k_proj"),
    (r"attention\.self\.value", "attention.v_proj"),
    (r"attention\.output\.dense", "attention.o_proj"),
    (r"intermediate\.dense", "ffn.linear_1"),
    (r"output\.dense", "ffn.linear_2"),
)
POST_NORMS = (
    (r"attention\.output\.LayerNorm", "norm_1"),
    (r"output\.LayerNorm", "norm_2"),
)
BERT_WEIGHTS = (*BERT_LAYERS, *POST_NORMS)

POSITION_IDS = {r"embeddings\.position_ids$": "positions counted from 0, not a weight"}


def heads(prefix: str, **others: str) -> dict[str, str]:
    """Our text classes -> a family's, where it names them as BERT does."""
    return {
        "FFNTextModel": f"{prefix}Model",
        "FFNForMaskedLM": f"{prefix}ForMaskedLM",
        "FFNForSequenceClassification": f"{prefix}ForSequenceClassification",
        "FFNForTokenClassification": f"{prefix}ForTokenClassification",
        "FFNForQuestionAnswering": f"{prefix}ForQuestionAnswering",
        **others,
    }
