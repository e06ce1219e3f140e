"""Positions that enter attention."""

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

import hf_ffn
from hf_ffn import EncoderBlock, FFNTextConfig, FFNTextModel, SelfAttention
from hf_ffn.positions_ffn import RelativeAttentionBias, RotaryEmbedding, apply_rotary, with_position_bias

from tiny import ffn_text_config, telling_model, text_inputs

ROTARY = {"position_embedding_type": "rotary", "type_vocab_size": 0}
LOCAL = {
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "sliding_window": 2,
    "local_rope_theta": 100.0,
}
BUCKETS = {"relative_attention_num_buckets": 16}


def rotary_states(offset: int, seed: int = 0) -> torch.Tensor:
    """Scores between queries and keys at positions that start at an offset."""
    config = ffn_text_config(**ROTARY)
    generator = torch.Generator().manual_seed(seed)
    query, key = (torch.randn(1, 4, 6, 8, generator=generator) for _ in range(2))
    positions = torch.arange(offset, offset + 6)[None]
    query, key = apply_rotary(query, key, RotaryEmbedding(config)(query, positions))
    return query @ key.transpose(2, 3)


def test_rotary_scores_depend_on_distances_alone() -> None:
    torch.testing.assert_close(rotary_states(0), rotary_states(37), atol=1e-4, rtol=0)
    assert (rotary_states(0) - rotary_states(0, seed=1)).abs().max() > 1


def test_rotary_turns_by_one_radian_a_position_in_the_first_pair_and_slower_in_the_next() -> None:
    cos, sin = RotaryEmbedding(ffn_text_config(**ROTARY))(torch.zeros(1), torch.tensor([[0, 1, 2]]))
    assert cos.shape == sin.shape == (1, 3, 8)
    angles = torch.atan2(sin, cos)[0, 1]
    torch.testing.assert_close(angles, torch.tensor([1.0, 0.1, 0.01, 0.001] * 2))
    assert torch.equal(cos[0, 0], torch.ones(8))


def test_layers_of_sliding_attention_turn_by_their_own_base() -> None:
    rotary = RotaryEmbedding(ffn_text_config(**ROTARY, **LOCAL))
    positions = torch.tensor([[1]])
    full, local = (
        torch.atan2(*reversed(rotary(torch.zeros(1), positions, each)))[0, 0, 1]
        for each in ("full_attention", "sliding_attention")
    )
    assert (full.item(), local.item()) == (pytest.approx(10000**-0.25), pytest.approx(100**-0.25))


def test_rotary_positions_stay_apart_in_half_precision() -> None:
    positions = torch.arange(4000, 4008)[None]
    cos, _ = RotaryEmbedding(ffn_text_config(**ROTARY))(torch.zeros(1, dtype=torch.bfloat16), positions)
    assert cos.dtype == torch.bfloat16
    assert len(cos[0, :, 0].unique()) == 8


@pytest.mark.parametrize(("stored", "names"), [(False, []), (True, ["rotary_embeddings.inv_freq"])])
def test_rotary_frequencies_are_saved_where_checkpoints_hold_them(stored: bool, names: list[str]) -> None:
    model = FFNTextModel(ffn_text_config(**ROTARY, rope_frequencies_stored=stored))
    assert [name for name in model.state_dict() if "rotary" in name] == names


def test_rotary_frequencies_survive_loading(tmp_path: object) -> None:
    model = FFNTextModel(ffn_text_config(**ROTARY, rope_theta=77.0))
    model.save_pretrained(tmp_path)
    again = FFNTextModel.from_pretrained(tmp_path)
    assert torch.equal(again.rotary_embeddings.inv_freq, model.rotary_embeddings.inv_freq)


@pytest.mark.parametrize("buckets", [8, 16, 32])
def test_buckets_of_distances_are_t5s(buckets: int) -> None:
    bias = RelativeAttentionBias(FFNTextConfig(relative_attention_num_buckets=buckets))
    distances = torch.arange(-300, 301)
    expected = T5Attention._relative_position_bucket(distances, True, buckets, 128)
    assert torch.equal(bias.bucket_of(distances), expected)
    assert set(expected.tolist()) == set(range(buckets)) - {buckets // 2}


def test_a_position_bias_shifts_the_scores() -> None:
    config = ffn_text_config(**BUCKETS)
    model = telling_model(FFNTextModel, config)
    inputs = text_inputs(config)
    results = {}
    for implementation in ("eager", "sdpa"):
        model.set_attn_implementation(implementation)
        results[implementation] = model(**inputs).last_hidden_state
    torch.testing.assert_close(results["eager"], results["sdpa"], atol=1e-5, rtol=0)
    model.encoder.relative_attention_bias.buckets.weight.data[0] += 3
    assert (model(**inputs).last_hidden_state - results["sdpa"]).abs().max() > 0.1
    # One number for all pairs changes no attention.
    model.encoder.relative_attention_bias.buckets.weight.data.fill_(0.7)
    even = model(**inputs).last_hidden_state
    model.encoder.relative_attention_bias = None
    torch.testing.assert_close(model(**inputs).last_hidden_state, even, atol=1e-5, rtol=0)


def test_masked_places_stay_masked_under_a_bias() -> None:
    bias = torch.full((1, 2, 3, 3), 5.0)
    seen = torch.tensor([[[[True, True, False]] * 3]])
    floats = torch.zeros(1, 1, 3, 3).masked_fill(~seen, torch.finfo(torch.float32).min)
    for mask in (seen, floats):
        weights = with_position_bias(mask, bias, "sdpa").softmax(-1)
        torch.testing.assert_close(weights, torch.tensor([0.5, 0.5, 0.0]).expand(1, 2, 3, 3))
    assert with_position_bias(None, bias, "eager") is bias


def test_a_back_end_that_cannot_add_a_bias_is_refused() -> None:
    attention = SelfAttention(ffn_text_config(**BUCKETS))
    attention.config._attn_implementation = "flash_attention_2"
    message = r"attn_implementation='flash_attention_2' cannot add .* use 'eager', 'sdpa' or 'flex_attention'"
    with pytest.raises(ValueError, match=message):
        attention(torch.randn(1, 6, 32), position_bias=torch.zeros(1, 4, 6, 6))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_local_layer_sees_so_many_tokens_to_either_side(implementation: str) -> None:
    config = ffn_text_config(num_hidden_layers=1, layer_types=["sliding_attention"], sliding_window=2)
    model = telling_model(FFNTextModel, config)
    model.set_attn_implementation(implementation)
    ids = text_inputs(config, padded=False)["input_ids"]
    other = ids.clone()
    other[:, 6] = (other[:, 6] + 1) % config.vocab_size
    changed = (model(ids).last_hidden_state != model(other).last_hidden_state).any(-1)
    assert changed[0].nonzero().flatten().tolist() == [4, 5, 6, 7, 8]


def test_only_layers_of_sliding_attention_tell_flash_attention_of_a_window() -> None:
    config = ffn_text_config(**LOCAL)
    assert [SelfAttention(config, layer).sliding_window for layer in range(3)] == [None, 3, 3]


def test_a_block_by_itself_takes_rotary_embeddings_and_a_bias() -> None:
    config = ffn_text_config(**ROTARY)
    block = EncoderBlock(config).eval()
    hidden_states = torch.randn(2, 6, 32)
    plain = block(hidden_states)
    turned = block(hidden_states, position_embeddings=RotaryEmbedding(config)(hidden_states, torch.arange(6)[None]))
    biased = block(hidden_states, position_bias=torch.randn(1, 4, 6, 6) * 4)
    assert plain.shape == turned.shape == biased.shape
    assert min((each - plain).abs().max() for each in (turned, biased)) > 1e-4


@pytest.mark.parametrize(
    "features",
    [
        {**ROTARY, **LOCAL, "gated": True, "norm_bias": False},
        {**BUCKETS, "positions_after_padding": True, "num_hidden_groups": 2, "inner_group_num": 2},
    ],
    ids=["rotary and local", "bias and shared layers"],
)
def test_features_work_with_gradient_checkpointing_and_compile_to_one_graph(features: dict) -> None:
    model = telling_model(hf_ffn.FFNForMaskedLM, ffn_text_config(**features, unpad="never"))
    inputs = text_inputs(model.config)
    expected = model(**inputs).logits
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(module, SelfAttention):
            module.attention_dropout = 0.0
    gradients = []
    for _ in range(2):
        model.zero_grad()
        model(**inputs).logits.square().mean().backward()
        gradients.append({name: each.grad.clone() for name, each in model.named_parameters()})
        model.gradient_checkpointing_enable()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=lambda text, name=name: f"{name}: {text}")
    model.eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(**inputs).logits, expected, atol=1e-5, rtol=0)
