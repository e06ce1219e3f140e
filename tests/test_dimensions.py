"""Sizes of models, beside figures that were counted elsewhere."""

import pytest

from hf_ffn import (
    FFNForAudioClassification,
    FFNForImageClassification,
    FFNForMaskedLM,
    FFNForTokenClassification,
    FFNTextConfig,
    FFNTextModel,
    FFNVisionConfig,
)
from hf_ffn.dimensions import dimensions


def test_bert_base_has_the_parameters_that_transformers_counts() -> None:
    measured = dimensions(FFNTextModel, FFNTextConfig(norm_order="post"))
    assert measured.parameters == 109_482_240
    assert measured.weight_bytes == 437_928_960
    # Of each block's 12 h² + 13 h parameters 8 h² + 5 h are the feed-forward block's.
    assert measured.encoder_parameters == 12 * (12 * 768**2 + 13 * 768)
    assert measured.feed_forward_parameters == 12 * (8 * 768**2 + 5 * 768)


def test_operations_are_those_of_the_matrix_products() -> None:
    config = FFNTextConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4)
    # Each token: q, k, v, output (4 h²) and two of the feed-forward block (2·4 h²); attention 2 n h; each a
    # multiplication and an addition; and the pooler's one h² for the first token.
    expected = 2 * (3 * (10 * (12 * 64**2) + 2 * 10 * 10 * 64) + 64**2)
    assert dimensions(FFNTextModel, config, sequence_length=10).forward_flops == expected


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"positions_after_padding": True, "pad_token_id": 1, "max_position_embeddings": 14}, 12),
        ({"position_embedding_type": "rotary", "max_position_embeddings": 40}, 40),
        ({"max_position_embeddings": 40, "embedding_size": 16}, 40),
        ({"max_position_embeddings": 40, "token_dropout": True, "mask_token_id": 3, "zero_padding": True}, 40),
    ],
)
def test_the_longest_text_that_there_are_positions_for_is_counted(config: dict, tokens: int) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    measured = dimensions(FFNForTokenClassification, FFNTextConfig(**sizes, **config))
    assert measured.input_size == tokens
    blocks = 2 * (tokens * (4 * 32**2 + 2 * 32 * 64) + 2 * tokens * tokens * 32)
    projection = tokens * 16 * 32 if "embedding_size" in config else 0
    assert measured.forward_flops == 2 * (blocks + projection + tokens * 32 * 2)


def test_layers_that_share_weights_are_counted_as_parameters_once_and_run_each() -> None:
    config = FFNTextConfig(hidden_size=32, num_hidden_layers=6, num_attention_heads=4, intermediate_size=64,
                           num_hidden_groups=2, inner_group_num=2, max_position_embeddings=10)  # fmt: skip
    measured = dimensions(FFNForTokenClassification, config)
    assert measured.feed_forward_parameters == 4 * (2 * 32 * 64 + 64 + 32)
    blocks = 12 * (10 * (4 * 32**2 + 2 * 32 * 64) + 2 * 10 * 10 * 32)
    assert measured.forward_flops == 2 * (blocks + 10 * 32 * 2)


def test_a_sound_is_counted_by_its_spectrogram() -> None:
    config = FFNVisionConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                             image_size=(8, 12), patch_size=4, num_channels=1, pooler_dense=False)  # fmt: skip
    measured = dimensions(FFNForAudioClassification, config)
    assert measured.input_size == (8, 12)
    assert measured.forward_flops == dimensions(FFNForImageClassification, config).forward_flops


def test_twice_the_tokens_cost_more_than_twice_the_operations() -> None:
    config = FFNTextConfig(hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4)
    short, long = (dimensions(FFNTextModel, config, sequence_length=n).forward_flops for n in (64, 128))
    assert 2 * short < long < 4 * short


def test_an_image_model_is_counted_by_its_image_and_in_its_dtype() -> None:
    config = FFNVisionConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                             image_size=(8, 12), patch_size=4, num_channels=1, dtype="bfloat16")  # fmt: skip
    measured = dimensions(FFNForImageClassification, config)
    assert measured.input_size == (8, 12)
    assert measured.parameters == FFNForImageClassification(config).num_parameters()
    assert measured.weight_bytes == 2 * measured.parameters
    # Six patches and the class token through two blocks, the projection of the patches, and the classifier.
    blocks = 2 * (7 * (4 * 32**2 + 2 * 32 * 64) + 2 * 7 * 7 * 32)
    assert measured.forward_flops == 2 * (blocks + 6 * 16 * 32 + 2 * 32)


@pytest.mark.parametrize("tied", [True, False])
def test_tied_weights_are_counted_once(tied: bool) -> None:
    config = FFNTextConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
                           vocab_size=100, tie_word_embeddings=tied)  # fmt: skip
    expected = sum(p.numel() for p in FFNForMaskedLM(config).parameters())
    assert dimensions(FFNForMaskedLM, config).parameters == expected
