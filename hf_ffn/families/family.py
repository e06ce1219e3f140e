"""What a family of checkpoints is: how it names what we have, both ways."""

from dataclasses import dataclass, field
from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.core_model_loading import WeightRenaming, WeightTransform

# Fields of every configuration that mean the same everywhere, and are carried over as they are.
COMMON_FIELDS = ("id2label", "label2id", "problem_type", "dtype")

# Entries of a config.json that describe the file and not the model; saving writes them anew.
NOT_KEPT = ("architectures", "model_type", "num_labels", "torch_dtype", "transformers_version")


@dataclass(frozen=True)
class Family:
    """How one family of checkpoints names what we have: data, and no logic of its own.

    Attributes:
        name: the family, as reports and `hf-ffn families` call it.
        model_type: in the family's config.json.
        native_type: our model type that it becomes, `"hf_ffn_text"` or `"hf_ffn_vision"`.
        fields: our configuration fields -> theirs, where they mean the same.
        fixed: our fields that the family does not store, with the one value that its models have.
        refused: their fields that have no counterpart here, with the one value that converts.
        weights: pairs of their name and ours, regular expressions applied in order to every tensor's name.
        dialects: the same for spellings that only occur in some files; applied before, and never written.
        heads: our class -> theirs.
        also_reads: their classes that hold more than any of ours, and the class of ours that takes most of it.
        unused: patterns of tensors (by our names) that have no place here, with the reason.
        layers: where the family's base model keeps its list of blocks.
        prefix: of the base model in the family's models with a head.
    """

    name: str
    model_type: str
    native_type: str
    fields: dict[str, str]
    fixed: dict[str, Any]
    refused: dict[str, Any]
    weights: tuple[tuple[str, str], ...]
    heads: dict[str, str]
    layers: str
    prefix: str
    dialects: tuple[tuple[str, str], ...] = ()
    also_reads: dict[str, str] = field(default_factory=dict)
    unused: dict[str, str] = field(default_factory=dict)

    def weight_mapping(self) -> list[WeightTransform]:
        """Renamings from the family's names to ours, for transformers' loader."""
        return [WeightRenaming(theirs, ours) for theirs, ours in (*self.dialects, *self.weights)]

    def source_mapping(self) -> list[WeightTransform]:
        """Renamings from our names back to the family's."""
        return [WeightRenaming(theirs, ours).reverse_transform() for theirs, ours in reversed(self.weights)]

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """Turn the family's config.json into a dictionary of our fields.

        What a short or old file leaves out is filled with the family's own defaults, by its own class.

        Raises:
            ValueError: a field is set to what does not convert.
        """
        for name, value in self.refused.items():
            if config_dict.get(name, value) != value:
                raise ValueError(
                    f"A {self.name} checkpoint with {name}={config_dict[name]!r} does not convert "
                    f"(only {name}={value!r} does)"
                )
        theirs = AutoConfig.for_model(**config_dict)
        ours = {name: getattr(theirs, source) for name, source in self.fields.items()}
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
        for name, value in self.fixed.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"{self.name} cannot express {name}={getattr(config, name)!r}: its models have {name}={value!r}"
                )
        if config.is_heterogeneous:
            names = ", ".join(sorted(config.per_layer_attributes or ()))
            raise ValueError(f"{self.name} cannot express layers that differ in {names} (per_layer_config)")
        rest = config.source_config or {}
        theirs = {source: getattr(config, name) for name, source in self.fields.items()}
        theirs |= {name: getattr(config, name) for name in COMMON_FIELDS}
        return AutoConfig.for_model(self.model_type, **{**rest, **theirs})


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

# What a plain block is: neither gated nor scaled, with biases, and with no dropout that they do not have.
PLAIN_BLOCK = {
    "gated": False,
    "activation_dropout_prob": 0.0,
    "ffn_bias": True,
    "attention_bias": True,
    "layer_scale_init_value": None,
    "drop_path_rate": 0.0,
}
