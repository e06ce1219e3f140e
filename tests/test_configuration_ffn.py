"""Configurations: what they refuse, what they keep, and that they say what they do."""

import ast
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import AutoConfig, BertConfig, PreTrainedConfig, ViTConfig

import hf_ffn
from hf_ffn import EncoderBlock, FFNConfig, FFNTextConfig, FFNVisionConfig

CONFIGS = (FFNConfig, FFNTextConfig, FFNVisionConfig)
TINY = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}

DEFAULTS = {
    FFNConfig: {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "activation_dropout_prob": 0.0,
        "ffn_dropout_prob": None,
        "attention_probs_dropout_prob": 0.1,
        "norm_order": "pre",
        "layer_norm_eps": 1e-12,
        "norm_bias": True,
        "final_norm": True,
        "skip_first_norm": False,
        "gated": False,
        "ffn_bias": True,
        "qkv_bias": True,
        "key_bias": True,
        "attention_bias": True,
        "scale_query": False,
        "layer_types": None,
        "sliding_window": None,
        "relative_attention_num_buckets": None,
        "num_hidden_groups": None,
        "inner_group_num": 1,
        "layer_scale_init_value": None,
        "drop_path_rate": 0.0,
        "drop_path_constant": False,
        "initializer_range": 0.02,
        "feed_forward_memory": "full",
        "source_family": None,
        "source_config": None,
    },
    FFNTextConfig: {
        "vocab_size": 30522,
        "embedding_size": None,
        "embedding_dropout_prob": None,
        "embedding_norm": True,
        "max_position_embeddings": 512,
        "position_embedding_type": "absolute",
        "positions_after_padding": False,
        "rope_theta": 10000.0,
        "local_rope_theta": None,
        "rope_frequencies_stored": False,
        "type_vocab_size": 2,
        "use_task_id": False,
        "task_type_vocab_size": 3,
        "token_dropout": False,
        "mask_token_id": None,
        "zero_padding": False,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
        "add_pooling_layer": True,
        "contact_head": False,
        "classifier_head": "linear",
        "classifier_pooling": "pooler",
        "classifier_act": "tanh",
        "classifier_dropout": None,
        "token_classifier_dropout": None,
        "qa_dropout": 0.0,
        "head_bias": True,
        "lm_head_act": None,
        "lm_head_bias": True,
        "decoder_bias": True,
        "tie_word_embeddings": True,
        "unpad": "auto",
    },
    FFNVisionConfig: {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "image_size": 224,
        "patch_size": 16,
        "patch_stride": None,
        "patch_bias": True,
        "num_channels": 3,
        "use_cls_token": True,
        "use_distillation_token": False,
        "num_register_tokens": None,
        "use_mask_token": False,
        "position_embedding_type": "absolute",
        "prefix_positions": True,
        "interpolation_antialias": False,
        "interpolate_pos_encoding": False,
        "spectrogram_input": False,
        "rope_theta": 100.0,
        "pos_embed_shift": None,
        "pos_embed_jitter": None,
        "pos_embed_rescale": None,
        "use_relative_position_bias": False,
        "use_shared_relative_position_bias": False,
        "embedding_norm": False,
        "embedding_dropout_prob": None,
        "add_pooling_layer": True,
        "pooling": "cls",
        "pooler_norm": False,
        "pooler_dense": True,
        "pooler_output_size": None,
        "pooler_act": "tanh",
        "classifier_pooling": "cls",
        "keep_pooler": False,
    },
}

# Class, field, impossible value, and words of the reason.
IMPOSSIBLE = [
    *((FFNConfig, name, 0, "at least 1") for name in TINY),
    (FFNConfig, "hidden_size", -8, "at least 1"),
    *(
        (FFNConfig, name, value, "probability .* between 0 and 1")
        for name in (
            "hidden_dropout_prob",
            "activation_dropout_prob",
            "attention_probs_dropout_prob",
            "drop_path_rate",
        )
        for value in (-0.1, 1.5, float("nan"))
    ),
    (FFNConfig, "num_attention_heads", 7, "not divisible"),
    (FFNConfig, "hidden_act", "gelo", "gelu"),
    (FFNConfig, "hidden_act", "", "known: "),
    (FFNConfig, "norm_order", "both", "'pre' or 'post'"),
    *((FFNConfig, "layer_norm_eps", value, "greater than 0") for value in (0, 0.0, -1e-12, float("nan"))),
    (FFNConfig, "layer_norm_eps", float("inf"), "finite"),
    *((FFNConfig, "initializer_range", value, "greater than 0") for value in (0, 0.0, -0.02, float("nan"))),
    (FFNConfig, "initializer_range", float("inf"), "finite"),
    (FFNConfig, "layer_scale_init_value", float("nan"), "finite"),
    (FFNConfig, "layer_scale_init_value", float("inf"), "finite"),
    (FFNConfig, "num_labels", 0, "at least 1"),
    *((FFNTextConfig, name, 0, "at least 1") for name in ("vocab_size", "embedding_size", "max_position_embeddings")),
    (FFNTextConfig, "task_type_vocab_size", 0, "at least 1"),
    (FFNTextConfig, "type_vocab_size", -1, "at least 0"),
    *((FFNConfig, name, 0, "at least 1") for name in ("sliding_window", "num_hidden_groups", "inner_group_num")),
    (FFNConfig, "num_hidden_groups", 13, "exceeds num_hidden_layers=12"),
    *((FFNConfig, "relative_attention_num_buckets", value, "divisible by 4") for value in (0, 4, 30)),
    (FFNConfig, "layer_types", ["full_attention"], "num_hidden_layers=12"),
    (FFNConfig, "layer_types", 12 * ["chunked_attention"], "'sliding_attention'"),
    (FFNConfig, "ffn_dropout_prob", 1.01, "between 0 and 1"),
    *(
        (FFNTextConfig, name, -0.1, "between 0 and 1")
        for name in ("embedding_dropout_prob", "token_classifier_dropout", "qa_dropout")
    ),
    (FFNTextConfig, "position_embedding_type", "relative_key", "'absolute', 'rotary'"),
    (FFNTextConfig, "classifier_head", "mlp", "'linear', 'dense'"),
    (FFNTextConfig, "classifier_pooling", "max", "'pooler', 'cls', 'mean'"),
    *((FFNTextConfig, name, "gelo", "gelu") for name in ("classifier_act", "lm_head_act")),
    *(
        (FFNTextConfig, name, value, "greater than 0")
        for name in ("rope_theta", "local_rope_theta")
        for value in (0, -1)
    ),
    (FFNTextConfig, "pad_token_id", 30522, "outside the vocabulary"),
    (FFNTextConfig, "pad_token_id", -1, "outside the vocabulary"),
    (FFNTextConfig, "classifier_dropout", 1.01, "between 0 and 1"),
    *((FFNVisionConfig, name, 0, "at least 1") for name in ("num_channels", "pooler_output_size", "patch_size")),
    (FFNVisionConfig, "image_size", (0, 32), "at least 1"),
    (FFNVisionConfig, "image_size", [32, -32], "at least 1"),
    (FFNVisionConfig, "image_size", 8, "smaller than one patch"),
    (FFNVisionConfig, "image_size", (32, 15), "smaller than one patch"),
    (FFNVisionConfig, "image_size", [32, 32, 32], "(height, width)"),
    (FFNVisionConfig, "patch_size", [], "(height, width)"),
    (FFNVisionConfig, "pooler_act", "tnah", "tanh"),
]

WRONG_TYPES = [
    (FFNConfig, "hidden_size", 32.0),
    (FFNConfig, "hidden_size", "32"),
    (FFNConfig, "num_hidden_layers", True),
    (FFNConfig, "hidden_act", torch.nn.functional.gelu),
    (FFNConfig, "hidden_act", None),
    (FFNConfig, "hidden_dropout_prob", "0.1"),
    (FFNConfig, "hidden_dropout_prob", True),
    (FFNConfig, "norm_order", None),
    (FFNConfig, "layer_norm_eps", "1e-12"),
    (FFNConfig, "gated", 1),
    (FFNConfig, "ffn_bias", "yes"),
    (FFNConfig, "layer_scale_init_value", [0.1]),
    (FFNConfig, "source_config", ["is_decoder"]),
    (FFNTextConfig, "vocab_size", 99.0),
    (FFNTextConfig, "pad_token_id", "0"),
    (FFNTextConfig, "eos_token_id", "</s>"),
    (FFNTextConfig, "tie_word_embeddings", 1),
    (FFNVisionConfig, "image_size", 224.0),
    (FFNVisionConfig, "image_size", "224"),
    (FFNVisionConfig, "image_size", [32.5, 32.5]),
    (FFNVisionConfig, "num_channels", None),
]

# What config.json files of checkpoints hold beside a family's own fields, or held in older versions.
COMMON_KEYS = {
    "sep_token_id": 102,
    "cls_token_id": 101,
    "mask_token_id": 103,
    "unk_token_id": 100,
    "position_embedding_type": "absolute",
    "finetuning_task": "sst2",
    "gradient_checkpointing": False,
    "embedding_size": 128,
    "encoder_stride": 16,
    "output_past": True,
    "_num_labels": 3,
    # bert-base-chinese and bert-base-multilingual-cased
    "directionality": "bidi",
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
}


def own_fields(config_class: type[FFNConfig]) -> list[str]:
    """The public fields that a class declares itself, its parents' left out."""
    return [field.name for field in fields(config_class) if field.name in vars(config_class)["__annotations__"]]


def as_json(config: FFNConfig) -> dict[str, Any]:
    """Everything that a configuration writes, but for where it was read from."""
    return json.loads(config.to_json_string(use_diff=False)) | {"_name_or_path": ""}


def documented(config_class: type[FFNConfig]) -> dict[str, str]:
    """What a class's docstring says in brackets about each of its arguments."""
    return dict(re.findall(r"^ {8}(\w+) \((`.*?)\):", config_class.__doc__ or "", re.MULTILINE))


@pytest.mark.parametrize(("config_class", "field", "value", "reason"), IMPOSSIBLE)
def test_an_impossible_value_is_refused_naming_field_value_and_reason(
    config_class: type[FFNConfig], field: str, value: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"^(?=.*{field}=)(?=.*{re.escape(str(value))}).*{reason}"):
        config_class(**{field: value})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"layer_types": 12 * ["sliding_attention"]}, "sliding_window=None"),
        ({"num_hidden_groups": 1, "drop_path_rate": 0.1}, "num_hidden_groups .* cannot differ"),
        ({"num_hidden_groups": 1, "per_layer_config": {1: {"gated": True}}}, "num_hidden_groups .* per_layer_config"),
        ({"positions_after_padding": True, "pad_token_id": None}, "pad_token_id=None"),
        (
            {"positions_after_padding": True, "pad_token_id": 9, "max_position_embeddings": 10},
            "max_position_embeddings=10 leaves no position",
        ),
        ({"position_embedding_type": "rotary", "hidden_size": 36, "num_attention_heads": 12}, "odd number"),
        ({"token_dropout": True}, "mask_token_id=None"),
        *(({"contact_head": True, "eos_token_id": value}, "eos_token_id=") for value in (None, [1, 2])),
        ({"add_pooling_layer": False}, "classifier_pooling='pooler' needs add_pooling_layer=True"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        FFNTextConfig(**values)


@pytest.mark.parametrize("config_class", CONFIGS)
def test_an_unknown_problem_type_is_refused_naming_the_known_ones(config_class: type[FFNConfig]) -> None:
    # By transformers itself in some versions, and by us in the others
    with pytest.raises((ValueError, StrictDataclassFieldValidationError)) as error:
        config_class(problem_type="multi_label")
    for words in ("problem_type", "'multi_label'", "multi_label_classification", "regression"):
        assert words in str(error.value)


@pytest.mark.parametrize(("config_class", "field", "value"), WRONG_TYPES)
def test_a_wrong_type_is_refused_naming_the_field(config_class: type[FFNConfig], field: str, value: Any) -> None:
    with pytest.raises(StrictDataclassFieldValidationError, match=f"'{field}'"):
        config_class(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("hidden_size", "32"), ("gated", 1)])
def test_a_wrong_type_is_refused_when_assigned_later(field: str, value: Any) -> None:
    config = FFNTextConfig()
    with pytest.raises(StrictDataclassFieldValidationError, match=f"'{field}'"):
        setattr(config, field, value)


@pytest.mark.parametrize(
    ("model_class", "config"), [("FFNTextModel", FFNTextConfig), ("FFNVisionModel", FFNVisionConfig)]
)
def test_a_model_refuses_an_impossible_value_that_was_assigned_later(model_class: str, config: type) -> None:
    config = config(**TINY)
    config.hidden_act = "gelo"
    with pytest.raises(ValueError, match="hidden_act='gelo'"):
        getattr(hf_ffn, model_class)(config)


@pytest.mark.parametrize(
    ("config_class", "values"),
    [
        (FFNConfig, {"hidden_dropout_prob": 0, "drop_path_rate": 1}),
        (FFNConfig, {"hidden_size": 6, "num_attention_heads": 6, "intermediate_size": 1}),
        (FFNConfig, {"layer_scale_init_value": -0.5}),
        (FFNTextConfig, {"pad_token_id": None}),
        (FFNTextConfig, {"pad_token_id": 98, "vocab_size": 99, "eos_token_id": [1, 2]}),
        (FFNVisionConfig, {"image_size": 33, "patch_size": 8}),
        (FFNVisionConfig, {"image_size": (16, 32), "patch_size": [16, 8]}),
    ],
)
def test_a_value_at_the_edge_of_what_is_possible_is_taken(
    config_class: type[FFNConfig], values: dict[str, Any]
) -> None:
    config = config_class(**values)
    assert {name: getattr(config, name) for name in values} == values


@pytest.mark.parametrize(
    ("config_class", "field"),
    [(config_class, field) for config_class in CONFIGS for field in own_fields(config_class)],
)
def test_a_field_with_a_letter_left_out_is_refused_naming_the_field(config_class: type[FFNConfig], field: str) -> None:
    middle = len(field) // 2
    misspelt = field[:middle] + field[middle + 1 :]
    with pytest.raises(ValueError, match=f"{config_class.__name__} has no field '{misspelt}'.*'{field}'"):
        config_class(**{misspelt: 1})


@pytest.mark.parametrize(
    ("keyword", "field"),
    [
        ("intermediate_sise", "intermediate_size"),
        ("intermediate_dim_size", "intermediate_size"),
        ("hidden_dropout", "hidden_dropout_prob"),
        ("attention_probs_dropout", "attention_probs_dropout_prob"),
        ("num_hidden_layer", "num_hidden_layers"),
        ("layer_norm_epsilon", "layer_norm_eps"),
        ("layer_norm_esp", "layer_norm_eps"),
        ("Hidden_size", "hidden_size"),
        ("norm_ordr", "norm_order"),
        ("id2labels", "id2label"),
    ],
)
@pytest.mark.parametrize("config_class", CONFIGS)
def test_a_near_miss_is_refused_naming_the_field(config_class: type[FFNConfig], keyword: str, field: str) -> None:
    with pytest.raises(ValueError, match=f"has no field '{keyword}'.*'{field}'"):
        config_class(**{keyword: 1})


@pytest.mark.parametrize("config_class", [FFNTextConfig, FFNVisionConfig])
def test_what_was_set_on_a_configuration_loads_again_with_a_warning(
    config_class: type[FFNConfig], tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    config = config_class(**TINY)
    config.hidden_dropout = 0.3
    config.save_pretrained(tmp_path)
    loaded = config_class.from_pretrained(tmp_path)
    assert loaded.hidden_dropout == 0.3
    assert "has no field 'hidden_dropout'. Did you mean 'hidden_dropout_prob'?" in messages.text


@pytest.mark.parametrize("theirs", [BertConfig, ViTConfig])
@pytest.mark.parametrize("config_class", CONFIGS)
def test_every_field_of_bert_and_vit_is_kept(config_class: type[FFNConfig], theirs: type[PreTrainedConfig]) -> None:
    # transformers itself takes use_cache for a setting of generation, and drops it; architectures are the file's.
    names = {field.name for field in fields(theirs)} - {"use_cache", "architectures"}
    values = {name: getattr(theirs(), name) for name in names}
    config = config_class(**values)
    assert {name: getattr(config, name) for name in values} == values


@pytest.mark.parametrize(("key", "value"), COMMON_KEYS.items())
@pytest.mark.parametrize("config_class", CONFIGS)
def test_a_common_unknown_key_is_kept_through_save_and_load(
    config_class: type[FFNConfig], key: str, value: Any, tmp_path: Path
) -> None:
    config_class(**TINY, **{key: value}).save_pretrained(tmp_path)
    if config_class is FFNConfig:  # It reads what it knows from any encoder's file.
        assert json.loads((tmp_path / "config.json").read_text())[key] == value
    else:
        assert getattr(config_class.from_pretrained(tmp_path), key) == value


@pytest.mark.parametrize("config_class", CONFIGS)
def test_use_cache_and_torch_dtype_are_not_refused(config_class: type[FFNConfig]) -> None:
    assert config_class(use_cache=True, torch_dtype="bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("hidden_size", "heads"),
    [(768, 12), (64, 1), (384, 6), (1024, 16), (770, 11), (130, 2), (100, 1), (8, 1), (769, 1)],
)
@pytest.mark.parametrize("config_class", CONFIGS)
def test_heads_follow_from_the_size_where_none_are_given(
    config_class: type[FFNConfig], hidden_size: int, heads: int, tmp_path: Path
) -> None:
    config = config_class(hidden_size=hidden_size, intermediate_size=16)
    assert config.num_attention_heads == heads
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_attention_heads"] == heads
    assert EncoderBlock(config)(torch.ones(1, 2, hidden_size)).shape == (1, 2, hidden_size)


def test_heads_that_were_given_stay_and_are_checked(tmp_path: Path) -> None:
    FFNTextConfig(hidden_size=384, num_attention_heads=12).save_pretrained(tmp_path)
    assert FFNTextConfig.from_pretrained(tmp_path).num_attention_heads == 12
    with pytest.raises(ValueError, match="hidden_size=64 is not divisible by num_attention_heads=12"):
        FFNConfig(hidden_size=64, num_attention_heads=12)


@pytest.mark.parametrize(("config_class", "expected"), DEFAULTS.items())
def test_defaults_are_pinned(config_class: type[FFNConfig], expected: dict[str, Any]) -> None:
    assert own_fields(config_class) == list(expected)
    assert {field.name: field.default for field in fields(config_class) if field.name in expected} == expected


@pytest.mark.parametrize("config_class", CONFIGS)
def test_every_field_is_documented_with_its_default(config_class: type[FFNConfig]) -> None:
    documentation = documented(config_class)
    assert set(documentation) == set(own_fields(config_class))
    for name, text in documentation.items():
        stated = re.search(r"defaults to (.*)$", text)
        value = ast.literal_eval(stated[1].strip("`")) if stated else None
        assert value == DEFAULTS[config_class][name], f"{name} is documented as {text}"
        assert stated is not None or "*optional*" in text


@pytest.mark.parametrize(
    "config",
    [
        FFNTextConfig(),
        FFNVisionConfig(),
        FFNTextConfig(
            **TINY,
            norm_order="post",
            hidden_act="gelu_new",
            hidden_dropout_prob=0,
            layer_norm_eps=1e-7,
            gated=True,
            ffn_bias=False,
            layer_scale_init_value=1e-5,
            drop_path_rate=0.3,
            eos_token_id=[3, 4],
            classifier_dropout=0.2,
            tie_word_embeddings=False,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            sliding_window=4,
            position_embedding_type="rotary",
            local_rope_theta=500,
            token_dropout=None,
            source_family="bert",
            source_config={"sep_token_id": 5, "nested": {"a": [1, None]}},
            id2label={0: "no", 1: "yes", 2: "perhaps"},
            problem_type="multi_label_classification",
        ),
        FFNVisionConfig(**TINY, image_size=(32, 48), patch_size=[8, 4], num_channels=1, pooler_output_size=5),
        FFNTextConfig(**TINY, per_layer_config={1: {"intermediate_size": 16}, 2: {"gated": True}}),
    ],
    ids=["text", "vision", "every text field", "every vision field", "per layer"],
)
def test_json_round_trip_loses_nothing(config: FFNConfig, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    for loaded in (
        type(config).from_pretrained(tmp_path),
        AutoConfig.from_pretrained(tmp_path),
        type(config).from_dict(json.loads(config.to_json_string(use_diff=False))),
    ):
        assert type(loaded) is type(config)
        assert as_json(loaded) == as_json(config)


def test_a_size_means_the_same_as_a_number_a_tuple_and_a_list() -> None:
    grids = {
        FFNVisionConfig(image_size=s, patch_size=p).grid_size for s in (64, (64, 64), [64, 64]) for p in (8, (8, 8))
    }
    assert grids == {(8, 8)}
    assert FFNVisionConfig(image_size=(256, 192), patch_size=16).grid_size == (16, 12)
    assert FFNVisionConfig(image_size=64, patch_size=(8, 16)).grid_size == (8, 4)


def test_the_pooled_output_is_as_wide_as_the_encoder_unless_said_otherwise() -> None:
    assert FFNVisionConfig(**TINY).pooler_output_size == 32
    assert FFNVisionConfig(**TINY, pooler_output_size=7).pooler_output_size == 7


def test_the_block_configuration_reads_the_fields_it_knows_from_an_encoder(tmp_path: Path) -> None:
    FFNTextConfig(**TINY, hidden_act="relu", vocab_size=99).save_pretrained(tmp_path)
    config = FFNConfig.from_pretrained(tmp_path)
    assert type(config) is FFNConfig
    assert config.model_type == "hf_ffn"
    assert (config.hidden_size, config.hidden_act) == (32, "relu")
    assert not hasattr(config, "vocab_size")


def test_layers_of_different_widths_are_read_through_per_layer_config() -> None:
    config = FFNConfig(**TINY, per_layer_config={1: {"intermediate_size": 16}})
    assert [layer.intermediate_size for layer in config.per_layer_config] == [64, 16, 64]
    assert config.is_heterogeneous
    assert not FFNConfig(**TINY).is_heterogeneous


@pytest.mark.parametrize("config_class", CONFIGS)
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({1: {"intermediate_size": 0}}, "intermediate_size=0 must be at least 1"),
        ({1: {"hidden_act": "gelo"}}, "hidden_act='gelo'"),
        ({3: {"intermediate_size": 16}}, r"\[3\]"),
        ({1: {"intermediate_sise": 16}}, "intermediate_sise"),
        # A misspelt field is as wrong when every layer has it, and an unknown one would change nothing.
        ({layer: {"intermediate_sise": 16} for layer in range(3)}, "intermediate_sise"),
        ({1: {"skip": ["ffn"]}}, "skip"),
        # The encoder's layers share these; only the feed-forward block may differ.
        ({1: {"hidden_size": 64}}, "hidden_size"),
        ({1: {"num_attention_heads": 2}}, "num_attention_heads"),
        ({1: {"norm_order": "post"}}, "norm_order"),
        ({1: {"layer_norm_eps": 1e-5}}, "layer_norm_eps"),
    ],
)
def test_an_impossible_layer_is_refused_naming_the_field(
    config_class: type[FFNConfig], layers: dict[int, dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config_class(**TINY, per_layer_config=layers)


@pytest.mark.parametrize("pattern", ["configuration_*.py", "modeling_*.py"])
def test_annotations_stay_types_where_transformers_reads_them(pattern: str) -> None:
    paths = list(Path(hf_ffn.__file__).parent.glob(pattern))
    assert paths
    for path in paths:
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        assert "__future__" not in {node.module for node in imports}, path.name
