"""What a family of checkpoints is: how it names what we have, both ways."""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import WeightConverter, WeightRenaming, WeightTransform
from transformers.utils import logging

from ..configuration_ffn import FFNTextConfig, FFNVisionConfig
from ..loading_ffn import converted
from ..registry_ffn import Shapes

logger = logging.get_logger(__name__)

# Fields of every configuration that mean the same everywhere, and are carried over as they are.
COMMON_FIELDS = ("id2label", "label2id", "problem_type", "dtype")

# What sentence-transformers writes into a cross encoder's config.json (before its version 4, and since): how it turns
# logits into scores. It looks for that in ours too.
SCORING = ("sbert_ce_default_activation_function", "sentence_transformers")

# Entries of a config.json that describe the file and not the model; saving writes them anew.
NOT_KEPT = ("architectures", "model_type", "num_labels", "torch_dtype", "transformers_version")

# Fields that only training reads, and those that only say how a model is run or began: they change no weight and no
# output of evaluation, so that a family without a place for them can express the model all the same.
TRAINING_FIELDS = {
    *FFNTextConfig._probabilities,
    *FFNVisionConfig._probabilities,
    *("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"),
}
HOW_IT_RUNS = {
    *TRAINING_FIELDS,
    *("drop_path_constant", "dtype", "feed_forward_memory", "initializer_range", "problem_type", "unpad"),
    # How inputs are called, and which are refused
    *("interpolate_pos_encoding", "spectrogram_input"),
}

# What stands in for a dropout of ours that is None, for families that take no None.
DROPOUT_INSTEAD = {
    "embedding_dropout_prob": "hidden_dropout_prob",
    "ffn_dropout_prob": "hidden_dropout_prob",
    "classifier_dropout": "hidden_dropout_prob",
    "token_classifier_dropout": "classifier_dropout",
}

CONFIG_CLASSES = {each.model_type: each for each in (FFNTextConfig, FFNVisionConfig)}

# What every encoder of a modality has, by our names.
INPUT_WEIGHTS = {
    "hf_ffn_text": "embeddings.word_embeddings.weight",
    "hf_ffn_vision": "embeddings.patch_embeddings.projection.weight",
}

# Where `source_config` keeps what a larger model's config.json holds beside this family's part.
BESIDE = "beside"

Renamings = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Computed:
    """Fields of ours that have to be computed from the family's, and back.

    Attributes:
        ours: their names.
        read: the family's configuration -> these fields. Raises ValueError for what does not convert.
        write: our configuration -> fields of the family's. Raises ValueError for what it cannot express.
    """

    ours: tuple[str, ...]
    read: Callable[[Any], dict[str, Any]]
    write: Callable[[Any], dict[str, Any]]


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
        when_gated: attributes of this family that are others where the blocks are gated.
        computed: fields that are in neither, for they mean the same only after some arithmetic.
        refused: their fields that have no counterpart here, with the one value that converts.
        weights: pairs of their name and ours, regular expressions applied in order to every tensor's name.
        head_weights: the same for single classes of ours, applied before.
        fused: tensors of theirs that hold several of ours: the last part of their name, ours, and the operation.
        dialects: spellings that only occur in some files; applied before all others, and never written.
        heads: our class -> theirs.
        also_reads: their classes that hold more than any of ours, and the class of ours that takes most of it.
        unused: patterns of tensors (by our names) that have no place here, with the reason.
        nested: the model type of larger models that hold one of these, and the field of their configuration that is
            this family's.
        export: writes a checkpoint from a model of ours and its tensors by the family's names; None where
            transformers' own class does.
        image_processor: the content of a file for the image processor, from a configuration of ours, where the family
            keeps that in its config.json. Raises ValueError for what no image processor does.
        prepare: brings the family's own model to compute what ours does, and gives its inputs for ours.
        sizes_in_tensors: whether config.json leaves sizes out, so that translating it takes the tensors' shapes.
        layers: where the family's base model keeps its list of blocks (a regular expression where there are several).
        rounding: why float32 results are equal but for rounding; empty where they are equal bitwise.
        eager_only: whether the family's own classes have no attention back end but the one written out.
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
    when_gated: dict[str, Any] = field(default_factory=dict)
    computed: Computed | None = None
    nested: tuple[str, str] | None = None
    export: Callable[[PreTrainedModel, Path, dict[str, torch.Tensor]], None] | None = None
    prepare: Callable[[PreTrainedModel, dict[str, torch.Tensor]], dict[str, torch.Tensor]] | None = None
    sizes_in_tensors: bool = False
    image_processor: Callable[[PreTrainedConfig], dict[str, Any]] | None = None
    dialects: Renamings = ()
    also_reads: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)
    rounding: str = ""
    eager_only: bool = False

    @property
    def exactness(self) -> str:
        """How equal float32 results are to the original's, in words."""
        if self.rounding:
            return f"equal but for rounding: {self.rounding}"
        words = "equal bitwise in eager, all that the original has" if self.eager_only else "equal bitwise"
        gated = self.when_gated.get("rounding")
        return f"{words}; gated blocks but for rounding: {gated}" if gated else words

    def of(self, config: PreTrainedConfig) -> "Family":
        """The family in the form that a configuration of ours has."""
        return replace(self, **self.when_gated) if config.gated else self

    def architecture(self, config_dict: dict[str, Any]) -> str:
        """The class that a config.json is for."""
        return (config_dict.get("architectures") or [""])[0]

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
        whole = theirs = AutoConfig.for_model(**config_dict)
        beside: dict[str, Any] = {}
        if self.nested is not None and whole.model_type == self.nested[0]:
            theirs = getattr(whole, self.nested[1])
            beside = {name: value for name, value in config_dict.items() if name not in (*NOT_KEPT, self.nested[1])}
            config_dict = config_dict.get(self.nested[1]) or {}
        for path, value in self.refused.items():
            found = look_up(theirs, path, value)
            if found != value:
                raise ValueError(
                    f"A {self.name} checkpoint with {path}={found!r} does not convert (only {path}={value!r} does)"
                )
        ours = {name: look_up(theirs, path) for name, path in self.fields.items()}
        ours |= self.computed.read(theirs) if self.computed is not None else {}
        ours |= {name: getattr(whole, name) for name in COMMON_FIELDS if getattr(whole, name, None) is not None}
        known = {*self.fields.values(), *NOT_KEPT} | (set() if beside else {*COMMON_FIELDS})
        rest = {name: value for name, value in config_dict.items() if name not in known and name[0] != "_"}
        rest |= {BESIDE: beside} if beside else {}
        scoring = {name: rest.pop(name) for name in SCORING if name in rest}
        return {
            **ours,
            **scoring,
            **self.fixed,
            "model_type": self.native_type,
            "source_family": self.name,
            "source_config": rest,
        }

    def fitting(self, config_dict: dict[str, Any], shapes: Shapes) -> dict[str, Any] | None:
        """What a config.json without a model type translates to if it is this family's; None where it cannot be.

        Args:
            config_dict: the file.
            shapes: of the checkpoint's tensors, by their names there; they must make up the whole encoder.
        """
        # Imported here, for models know no family.
        from ..modeling_ffn_text import FFNTextModel
        from ..modeling_ffn_vision import FFNVisionModel

        if self.export is not None:
            return None
        try:
            translated = self.translate_config({**config_dict, "model_type": self.model_type})
            config = CONFIG_CLASSES[self.native_type](**translated)
        except (TypeError, ValueError, StrictDataclassError):
            return None
        stored = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        mapping = self.of(config).weight_mapping()
        found = {name.removeprefix("model."): t.shape for name, t in converted(stored, mapping).items()}
        if INPUT_WEIGHTS[self.native_type] not in found:
            return None
        with torch.device("meta"):
            model = (FFNTextModel if self.native_type == "hf_ffn_text" else FFNVisionModel)(config)
        may_lack = (*model._new_head_modules, *model._computed_buffers)
        own = {name: tensor.shape for name, tensor in model.state_dict().items()}
        if any(found.get(name) != shape for name, shape in own.items() if not name.startswith(may_lack)):
            return None
        left = [name for name in found if name.startswith(("embeddings.", "encoder.", "pooler.")) and name not in own]
        may_be_left = [re.compile(pattern) for pattern in self.unused]
        return translated if all(any(each.search(name) for each in may_be_left) for name in left) else None

    def original_keywords(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """What the family's own class must be told to load a checkpoint, beside where it lies."""
        return {}

    def source_config(self, config: PreTrainedConfig, model_type: str | None = None) -> PreTrainedConfig:
        """Turn our configuration back into the family's.

        Args:
            config: ours.
            model_type: the family's, or that of the larger models that hold it (`nested`).

        Raises:
            ValueError: a field has a value that the family cannot express.
        """
        self._refuse_what_it_lacks(config)
        theirs = dict(config.source_config or {})
        beside = theirs.pop(BESIDE, {})
        defaults = AutoConfig.for_model(self.model_type)
        stored: dict[str, str] = {}
        lost = [name for name, value in self.unstored().items() if stated(config, name) != value]
        for name, path in self.fields.items():
            other, value = stored.setdefault(path, name), stated(config, name)
            if other == name:
                put(theirs, path, dropout(config, name) if look_up(defaults, path) is not None else value)
            elif dropout(config, other) == dropout(config, name):
                continue
            elif name in HOW_IT_RUNS:
                lost.append(name)
            else:
                raise ValueError(
                    f"{self.name} cannot express {name}={value!r} beside {other}={stated(config, other)!r}: its "
                    f"models have one number for both"
                )
        lost = [name for name in lost if name in TRAINING_FIELDS and dropout(config, name)]
        if lost:
            said = [f"{name}={stated(config, name)!r}" for name in lost]
            logger.warning(f"{self.name}'s config.json has no place for what only training reads: {', '.join(said)}")
        theirs |= self.computed.write(config) if self.computed is not None else {}
        theirs |= {name: getattr(config, name) for name in SCORING if hasattr(config, name)}
        common = {name: stated(config, name) for name in COMMON_FIELDS}
        if self.nested is not None and model_type == self.nested[0]:
            return AutoConfig.for_model(model_type, **{**beside, **common, self.nested[1]: theirs})
        return AutoConfig.for_model(self.model_type, **{**theirs, **common})

    def _refuse_what_it_lacks(self, config: PreTrainedConfig) -> None:
        differing = set(config.per_layer_attributes or ()) if config.is_heterogeneous else set()
        if differing - HOW_IT_RUNS:
            names = ", ".join(sorted(differing))
            raise ValueError(f"{self.name} cannot express layers that differ in {names} (per_layer_config)")
        for name, value in self.unstored().items():
            if name not in HOW_IT_RUNS and stated(config, name) != value:
                raise ValueError(
                    f"{self.name} cannot express {name}={stated(config, name)!r}: its models have {name}={value!r}"
                )

    def unstored(self) -> dict[str, Any]:
        """Our fields that the family's config.json does not hold, with the value that its models have."""
        own = {each.name for each in fields(PreTrainedConfig)} | {"source_family", "source_config"}
        own |= set(self.computed.ours) if self.computed is not None else set()
        defaults = {
            each.name: each.default
            for each in fields(CONFIG_CLASSES[self.native_type])
            if each.name not in own and each.name not in self.fields and each.default is not MISSING
        }
        return {**defaults, **self.fixed}


def stated(config: PreTrainedConfig, name: str) -> Any:
    """A field of ours as the whole model's configuration has it, also where single layers have their own."""
    return config._getattr_without_heterogeneous_validation(name)


def dropout(config: PreTrainedConfig, name: str) -> Any:
    """The field, or for a dropout that is None the one that stands in for it."""
    value = stated(config, name)
    return dropout(config, DROPOUT_INSTEAD[name]) if value is None and name in DROPOUT_INSTEAD else value


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
