"""Families whose attention is of another kind, so that only their feed-forward blocks can be read: one row each."""

import re
from dataclasses import dataclass, field
from typing import Any

from transformers import AutoConfig, PreTrainedConfig
from transformers.core_model_loading import WeightRenaming, WeightTransform

from .family import BLOCK_FIELDS


@dataclass(frozen=True)
class FeedForwardFamily:
    """How a family of checkpoints names its feed-forward blocks: data, and no logic of its own.

    Attributes:
        model_type: in the family's config.json.
        linears: their linear layers -> ours, with N for the index of the block. What stands before does not matter.
        fields: our configuration fields -> theirs, where they mean the same.
        fixed: our fields that the family does not store, with the one value that its models have.
        pre_norm: their field that says whether LayerNorm comes before each half of the block.
        part: which of several encoders in a checkpoint this is; None where there is one.
        part_config: entry of config.json with that part's configuration.
        spellings: their fields as some config.json files call them -> as transformers' class does.
        activations: activations as some config.json files call them -> as transformers does.
    """

    model_type: str
    linears: dict[str, str]
    fields: dict[str, str]
    fixed: dict[str, Any] = field(default_factory=dict)
    pre_norm: str | None = None
    part: str | None = None
    part_config: str | None = None
    spellings: dict[str, str] = field(default_factory=dict)
    activations: dict[str, str] = field(default_factory=dict)

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]:
        """Turn the family's config.json into a dictionary of our fields."""
        # An unset field of another spelling (a width that follows from another) would undo the class's default.
        unset = {name for name in self.spellings if config_dict.get(name) is None}
        known = {self.spellings.get(name, name): v for name, v in config_dict.items() if name not in unset}
        theirs = AutoConfig.for_model(**known)
        if self.part_config is not None:
            theirs = getattr(theirs, self.part_config)
        ours = {name: getattr(theirs, source) for name, source in self.fields.items()}
        ours["hidden_act"] = self.activations.get(ours["hidden_act"], ours["hidden_act"])
        if self.pre_norm is not None:
            ours["norm_order"] = "pre" if getattr(theirs, self.pre_norm) else "post"
        return {**ours, **self.fixed, "model_type": "hf_ffn", "source_family": self.model_type}

    def of(self, config: PreTrainedConfig) -> "FeedForwardFamily":
        """The family in the form that a configuration of ours has: there is one."""
        return self

    def weight_mapping(self) -> list[WeightTransform]:
        """Renamings from the family's names to ours."""
        patterns = {re.escape(theirs).replace(r"\.N\.", r"\.(\d+)\."): ours for theirs, ours in self.linears.items()}
        return [
            WeightRenaming(rf"^(?:.*\.)?{theirs}", rf"encoder.layers.\1.ffn.{ours}")
            for theirs, ours in patterns.items()
        ]


BERT_LINEARS = {"encoder.layer.N.intermediate.dense": "linear_1", "encoder.layer.N.output.dense": "linear_2"}
CLIP_LINEARS = {"encoder.layers.N.mlp.fc1": "linear_1", "encoder.layers.N.mlp.fc2": "linear_2"}
SPEECH_LINEARS = {
    "encoder.layers.N.feed_forward.intermediate_dense": "linear_1",
    "encoder.layers.N.feed_forward.output_dense": "linear_2",
}
WHISPER_LINEARS = {"encoder.layers.N.fc1": "linear_1", "encoder.layers.N.fc2": "linear_2"}
NOMIC_LINEARS = {
    "encoder.layers.N.mlp.fc11": "linear_1",
    "encoder.layers.N.mlp.fc12": "linear_gate",
    "encoder.layers.N.mlp.fc2": "linear_2",
    # as transformers holds it in memory (and writes with save_original_format=False)
    "layers.N.mlp.up_proj": "linear_1",
    "layers.N.mlp.gate_proj": "linear_gate",
    "layers.N.mlp.down_proj": "linear_2",
}

SPEECH_FIELDS = BLOCK_FIELDS | {
    "hidden_dropout_prob": "hidden_dropout",
    "activation_dropout_prob": "activation_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
WHISPER_FIELDS = {
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
    "hidden_act": "activation_function",
    "hidden_dropout_prob": "dropout",
    "activation_dropout_prob": "activation_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "init_std",
}
# CLIP drops nothing out but attention weights; SigLIP stores no initialisation.
CLIP_FIELDS = {
    n: theirs for n, theirs in BLOCK_FIELDS.items() if n not in ("hidden_dropout_prob", "initializer_range")
}
CLIP_FIELDS["attention_probs_dropout_prob"] = "attention_dropout"

POST = {"norm_order": "post"}
PRE = {"norm_order": "pre"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0}

# Names of the first checkpoints of nomic-bert, whose code came with them and took GPT-2's fields.
NOMIC_SPELLINGS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
}

FEED_FORWARD_ONLY = (
    FeedForwardFamily("deberta", BERT_LINEARS, BLOCK_FIELDS, POST),
    FeedForwardFamily("deberta-v2", BERT_LINEARS, BLOCK_FIELDS, POST),
    FeedForwardFamily("layoutlm", BERT_LINEARS, BLOCK_FIELDS, POST),
    FeedForwardFamily("longformer", BERT_LINEARS, BLOCK_FIELDS, POST),
    FeedForwardFamily("clip_text_model", CLIP_LINEARS, CLIP_FIELDS, {**PRE, **NO_DROPOUT}),
    FeedForwardFamily("siglip_text_model", CLIP_LINEARS, CLIP_FIELDS, {**PRE, **NO_DROPOUT}),
    *(
        FeedForwardFamily(
            name,
            {f"{part}_model.{theirs}": ours for theirs, ours in CLIP_LINEARS.items()},
            CLIP_FIELDS,
            {**PRE, **NO_DROPOUT},
            part=part,
            part_config=f"{part}_config",
        )
        for name in ("clip", "siglip")
        for part in ("text", "vision")
    ),
    FeedForwardFamily("wav2vec2", SPEECH_LINEARS, SPEECH_FIELDS, pre_norm="do_stable_layer_norm"),
    FeedForwardFamily("hubert", SPEECH_LINEARS, SPEECH_FIELDS, pre_norm="do_stable_layer_norm"),
    FeedForwardFamily("whisper", WHISPER_LINEARS, WHISPER_FIELDS, {**PRE, "layer_norm_eps": 1e-5}),
    FeedForwardFamily(
        "nomic_bert",
        NOMIC_LINEARS,
        BLOCK_FIELDS,
        {**POST, "gated": True, "ffn_bias": False},
        spellings=NOMIC_SPELLINGS,
        activations={"swiglu": "silu", "geglu": "gelu"},
    ),
)
