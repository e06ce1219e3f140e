"""A family is data: what it must state, and that it states it for every field and tensor."""

from dataclasses import fields

import pytest
import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import rename_source_key

import hf_ffn
from hf_ffn import FAMILIES, FFNTextConfig, FFNVisionConfig
from hf_ffn.families import Family
from hf_ffn.families.family import COMMON_FIELDS

from tiny import bert_config, vit_config

CONFIGS = {"hf_ffn_text": FFNTextConfig, "hf_ffn_vision": FFNVisionConfig}
TINY: dict[str, PreTrainedConfig] = {"bert": bert_config(), "vit": vit_config()}


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    """Each family in turn."""
    return request.param


def test_every_field_of_ours_is_translated_or_fixed(family: Family) -> None:
    ours = {field.name for field in fields(CONFIGS[family.native_type])}
    ours -= {field.name for field in fields(PreTrainedConfig)} | {"source_family", "source_config"}
    stated = set(family.fields) | set(family.fixed)
    assert stated == ours
    assert not set(family.fields) & set(family.fixed)


def test_every_field_of_theirs_is_translated_common_refused_or_kept(family: Family) -> None:
    source = TINY[family.name]
    translated = family.translate_config(source.to_dict())
    for name in (field.name for field in fields(source)):
        known = name in family.fields.values() or name in COMMON_FIELDS or name in family.refused
        of_every_config = name in {"architectures", "transformers_version"}
        assert known or of_every_config or name in translated["source_config"], name


def test_the_configuration_goes_there_and_back(family: Family) -> None:
    source = TINY[family.name]
    source.tie_last_hidden_states = True  # an entry that nobody here knows
    ours = CONFIGS[family.native_type](**family.translate_config(source.to_dict()))
    back = family.source_config(ours)
    skip = {"transformers_version", "architectures"}
    before, after = ({k: v for k, v in config.to_dict().items() if k not in skip} for config in (source, back))
    assert before == after


def test_every_tensor_has_a_name_here_and_goes_back_to_its_own(family: Family) -> None:
    for ours, theirs in family.heads.items():
        model_class: type[PreTrainedModel] = getattr(hf_ffn, ours)
        config = CONFIGS[family.native_type](**family.translate_config(TINY[family.name].to_dict()))
        there, back = family.weight_mapping(), family.source_mapping()
        native = model_class(config).state_dict().keys()
        source = getattr(transformers, theirs)(TINY[family.name]).state_dict().keys()
        renamed = {rename_source_key(name, there, [])[0] for name in source}
        # A base model's tensors have no prefix, which transformers' loader adds or takes away.
        assert {name.removeprefix("model.") for name in renamed} == {name.removeprefix("model.") for name in native}
        for name in native:
            assert rename_source_key(rename_source_key(name, back, [])[0], there, [])[0] == name


@pytest.mark.parametrize("field", ["num_hidden_layers", "vocab_size", "image_size"])
def test_sizes_come_from_the_config_and_never_from_a_default(family: Family, field: str) -> None:
    source = TINY[family.name]
    if not hasattr(source, field):
        assert field not in family.fields
        return
    assert family.translate_config(source.to_dict())[field] == getattr(source, field)
