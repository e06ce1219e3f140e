"""A family is data: what it must state, and that it states it for every field and tensor."""

from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

import hf_ffn
from hf_ffn import FAMILIES, FFNTextConfig
from hf_ffn.conversion import source_state_dict
from hf_ffn.families import Family
from hf_ffn.families.family import COMMON_FIELDS, CONFIG_CLASSES, look_up, put
from hf_ffn.loading_ffn import converted, renamed

from families import ROWS, Row

# What no family may leave unsaid, for a default is as wrong as any other value: sizes, dropouts, ids and conventions.
ALWAYS_STATED = {
    "hf_ffn_text": {
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "norm_order", "layer_norm_eps", "initializer_range"),
        *("vocab_size", "max_position_embeddings", "type_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"),
        *("classifier_dropout", "tie_word_embeddings"),
    },
    "hf_ffn_vision": {
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "norm_order", "layer_norm_eps", "initializer_range"),
        *("image_size", "patch_size", "num_channels", "pooler_output_size"),
    },
}

# What a family has only if it says so.
OFF_BY_DEFAULT = {
    "hf_ffn_text": {
        *("activation_dropout_prob", "ffn_dropout_prob", "norm_bias", "skip_first_norm", "gated", "ffn_bias"),
        *("qkv_bias", "attention_bias", "scale_query", "layer_types", "sliding_window", "num_hidden_groups"),
        *("relative_attention_num_buckets", "inner_group_num", "layer_scale_init_value", "drop_path_rate"),
        *(
            "key_bias",
            "final_norm",
            "drop_path_constant",
            "embedding_size",
            "embedding_dropout_prob",
            "embedding_norm",
            "position_embedding_type",
        ),
        *("positions_after_padding", "rope_theta", "local_rope_theta", "rope_frequencies_stored", "use_task_id"),
        *("task_type_vocab_size", "token_dropout", "mask_token_id", "zero_padding", "add_pooling_layer"),
        *("contact_head", "classifier_head", "classifier_pooling", "classifier_act", "token_classifier_dropout"),
        *("qa_dropout", "head_bias", "lm_head_act", "lm_head_bias", "decoder_bias"),
    },
    "hf_ffn_vision": {
        *("activation_dropout_prob", "ffn_dropout_prob", "norm_bias", "skip_first_norm", "gated", "ffn_bias"),
        *("attention_bias", "scale_query", "layer_types", "sliding_window", "num_hidden_groups"),
        *("relative_attention_num_buckets", "inner_group_num", "layer_scale_init_value", "drop_path_rate"),
        *("qkv_bias", "key_bias", "final_norm", "drop_path_constant", "patch_stride", "patch_bias", "use_cls_token"),
        *("use_distillation_token", "num_register_tokens", "use_mask_token", "position_embedding_type"),
        *("prefix_positions", "interpolation_antialias", "rope_theta", "pos_embed_shift", "pos_embed_jitter"),
        *("pos_embed_rescale", "use_relative_position_bias", "use_shared_relative_position_bias", "embedding_norm"),
        *("add_pooling_layer", "pooling", "pooler_norm", "pooler_dense", "pooler_act", "classifier_pooling"),
        *("keep_pooler", "embedding_dropout_prob", "interpolate_pos_encoding", "spectrogram_input"),
    },
}


def own_fields(native_type: str) -> set[str]:
    """The fields of one of our configurations that say what a model is."""
    ours = {field.name for field in fields(CONFIG_CLASSES[native_type])}
    how_it_is_run = {"feed_forward_memory", "unpad"}
    ours -= {field.name for field in fields(PreTrainedConfig)} | how_it_is_run
    return ours - {"source_family", "source_config"}


@pytest.fixture(params=ROWS, ids=str)
def row(request: pytest.FixtureRequest) -> Row:
    """Each row in turn."""
    return request.param


@pytest.mark.parametrize("native_type", ALWAYS_STATED)
def test_every_field_of_ours_is_stated_always_or_off_by_default(native_type: str) -> None:
    stated, off = ALWAYS_STATED[native_type], OFF_BY_DEFAULT[native_type]
    assert stated | off == own_fields(native_type)
    assert not stated & off


def test_a_family_states_all_that_has_no_default_of_its_own(row: Row) -> None:
    family = row.family
    computed = set(family.computed.ours) if family.computed is not None else set()
    stated = set(family.fields) | set(family.fixed) | computed
    assert ALWAYS_STATED[family.native_type] <= stated <= own_fields(family.native_type)
    assert len(stated) == len(family.fields) + len(family.fixed) + len(computed)


def test_every_field_of_theirs_is_translated_common_refused_or_kept(row: Row) -> None:
    family, source = row.family, row.source_config()
    translated = family.translate_config(source.to_dict())
    for name in (field.name for field in fields(source)):
        known = (
            name in family.fields.values() or name.startswith("_") or name in COMMON_FIELDS or name in family.refused
        )
        of_every_config = name in {"architectures", "transformers_version"}
        assert known or of_every_config or name in translated["source_config"], name


def test_the_configuration_goes_there_and_back(row: Row) -> None:
    family, source = row.family, row.source_config()
    source.tie_last_hidden_states = True  # an entry that nobody here knows
    ours = CONFIG_CLASSES[family.native_type](**family.translate_config(source.to_dict()))
    back = family.source_config(ours)
    skip = {"transformers_version", "architectures"}
    before, after = ({k: v for k, v in config.to_dict().items() if k not in skip} for config in (source, back))
    assert before == after


def test_every_tensor_has_a_name_here_and_goes_back_to_its_own(row: Row) -> None:
    family = row.family
    for ours, theirs in row.pairs:
        model_class: type[PreTrainedModel] = getattr(hf_ffn, ours)
        config = CONFIG_CLASSES[family.native_type](**family.translate_config(row.source_config().to_dict()))
        native = model_class(config)
        source = getattr(transformers, theirs)(row.source_config(theirs)).state_dict()
        # A checkpoint without a part that may be left out has no name for it.
        native_names = {name for name in native.state_dict() if name.partition(".")[0] not in row.left_out}
        there = converted(source, family.of(config).weight_mapping(ours))
        # A base model's tensors have no prefix, which transformers' loader adds or takes away.
        assert {n.removeprefix("model.") for n in there} == {n.removeprefix("model.") for n in native_names}
        for name in source_state_dict(native, family):
            assert renamed(name, family.of(config).weight_mapping(ours)) in native.state_dict()


@pytest.mark.parametrize("field", ["num_hidden_layers", "vocab_size", "image_size", "hidden_size"])
def test_sizes_come_from_the_config_and_never_from_a_default(row: Row, field: str) -> None:
    source = row.source_config()
    if not hasattr(source, field):
        assert field not in row.family.fields
        return
    translated = row.family.translate_config(source.to_dict())
    assert {**translated["source_config"], **translated}[field] == getattr(source, field)


def test_two_of_our_fields_that_are_one_of_theirs_may_not_differ() -> None:
    fields_of_one = {**FAMILIES["bert"].fields, "attention_bias": "bias", "ffn_bias": "bias"}
    family = replace(FAMILIES["bert"], fields=fields_of_one)
    family.source_config(FFNTextConfig(norm_order="post", attention_bias=False, ffn_bias=False))
    with pytest.raises(ValueError, match="ffn_bias=True beside attention_bias=False"):
        family.source_config(FFNTextConfig(norm_order="post", attention_bias=False, ffn_bias=True))


def test_dots_lead_into_dictionaries_whose_other_entries_stay() -> None:
    held = {"rope_parameters": {"full": {"theta": 1.0, "type": "default"}, "more": 2}}
    config = dict(held)
    put(config, "rope_parameters.full.theta", 5.0)
    assert config == {"rope_parameters": {"full": {"theta": 5.0, "type": "default"}, "more": 2}}
    assert held["rope_parameters"]["full"]["theta"] == 1.0
    assert look_up(SimpleNamespace(**config), "rope_parameters.full.theta") == 5.0
    assert look_up(SimpleNamespace(), "rope_parameters.full.theta", 7) == 7


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_family_says_if_its_classes_have_but_one_attention_back_end(family: Family) -> None:
    for name in family.heads.values():
        assert family.eager_only is not getattr(transformers, name)._supports_sdpa
