"""Sizes of models, beside figures that were counted elsewhere."""

import pytest

from hf_ffn import FFNForImageClassification, FFNForMaskedLM, FFNTextConfig, FFNTextModel, FFNVisionConfig
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
