"""The feed-forward block, attention, the encoder block and the encoder, each outside any model."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.llama.modeling_llama import LlamaMLP

from hf_ffn import Encoder, EncoderBlock, FeedForward, FFNConfig, SelfAttention
from hf_ffn.attention_ffn import eager_attention_forward

from tiny import ffn_model

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def block_config(**overrides: Any) -> FFNConfig:
    """A tiny block's configuration, without dropout."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
    return FFNConfig(**{**sizes, **NO_DROPOUT, **overrides})


def shake(module: Any, seed: int = 0) -> Any:
    """Give a module weights that depend on the seed alone, none of them where it starts, so that each shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            for name, parameter in part.named_parameters(recurse=False):
                start = 1.0 if isinstance(part, nn.LayerNorm) and name == "weight" else 0.0
                parameter.copy_(start + 0.3 * torch.randn(parameter.shape, generator=generator))
    return module


def tokens(*shape: int, seed: int = 1) -> torch.Tensor:
    """Random hidden states; three sequences of five tokens where no shape is given."""
    return torch.randn(*(shape or (3, 5, 32)), generator=torch.Generator().manual_seed(seed))


# The feed-forward block


def test_the_plain_block_has_exactly_four_tensors() -> None:
    assert {name: tuple(tensor.shape) for name, tensor in FeedForward(block_config()).state_dict().items()} == {
        "linear_1.weight": (64, 32),
        "linear_1.bias": (64,),
        "linear_2.weight": (32, 64),
        "linear_2.bias": (32,),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_plain_block_is_linear_gelu_linear_to_the_bit(dtype: torch.dtype) -> None:
    ffn = shake(FeedForward(block_config())).to(dtype)
    x = tokens().to(dtype)
    assert torch.equal(ffn(x), ffn.linear_2(nn.GELU()(ffn.linear_1(x))))


def test_gelu_is_the_exact_one_and_not_its_tanh_approximation() -> None:
    ffn = FeedForward(block_config(intermediate_size=32)).double()
    with torch.no_grad():
        for linear in (ffn.linear_1, ffn.linear_2):
            nn.init.eye_(linear.weight)
            nn.init.zeros_(linear.bias)
    x = torch.linspace(-5, 5, 32, dtype=torch.float64)
    expected = torch.tensor([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(ffn(x), expected, atol=1e-14, rtol=0)
    assert (nn.GELU("tanh")(x) - expected).abs().max() > 4e-4


@pytest.mark.parametrize(
    ("name", "function"), [("relu", nn.ReLU()), ("silu", nn.SiLU()), ("gelu_pytorch_tanh", nn.GELU("tanh"))]
)
def test_the_activation_is_the_one_that_is_named(name: str, function: nn.Module) -> None:
    ffn = shake(FeedForward(block_config(hidden_act=name)))
    x = tokens()
    assert torch.equal(ffn(x), ffn.linear_2(function(ffn.linear_1(x))))


@pytest.mark.parametrize("bias", [True, False])
def test_the_gated_block_equals_llamas(bias: bool) -> None:
    ffn = shake(FeedForward(block_config(gated=True, hidden_act="silu", ffn_bias=bias)))
    llama = LlamaMLP(LlamaConfig(hidden_size=32, intermediate_size=64, hidden_act="silu", mlp_bias=bias))
    names = {"linear_gate": "gate_proj", "linear_1": "up_proj", "linear_2": "down_proj"}
    llama.load_state_dict({f"{names[k.split('.')[0]]}.{k.split('.')[1]}": v for k, v in ffn.state_dict().items()})
    torch.testing.assert_close(ffn(tokens()), llama(tokens()), atol=1e-6, rtol=0)


def test_a_block_without_biases_has_weights_alone() -> None:
    assert list(FeedForward(block_config(ffn_bias=False)).state_dict()) == ["linear_1.weight", "linear_2.weight"]


@pytest.mark.parametrize("gated", [False, True])
def test_each_token_goes_through_by_itself(gated: bool) -> None:
    ffn = shake(FeedForward(block_config(gated=gated))).double()
    x = tokens(2, 7, 32).double()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    torch.testing.assert_close(ffn(x[:, order]), ffn(x)[:, order], atol=1e-12, rtol=0)
    # Another number of tokens, or another shape around them, makes no difference either.
    torch.testing.assert_close(ffn(x[0, 3]), ffn(x)[0, 3], atol=1e-12, rtol=0)

    changed = x.clone()
    changed[1, 4] += 1
    moved = (ffn(changed) - ffn(x)).abs().amax(-1) > 1e-3
    assert moved.nonzero().tolist() == [[1, 4]]


def test_attention_is_linear_in_the_values_and_the_feed_forward_block_is_not() -> None:
    query, key, x, y = (tokens(2, 4, 5, 8, seed=seed) for seed in range(4))
    module = SelfAttention(block_config())

    def attention(values: torch.Tensor) -> torch.Tensor:
        return eager_attention_forward(module, query, key, values, None, scaling=8**-0.5)[0]

    torch.testing.assert_close(attention(x + 2 * y), attention(x) + 2 * attention(y), atol=1e-5, rtol=0)

    ffn = shake(FeedForward(block_config(ffn_bias=False)))
    x, y = x.reshape(2, 5, 32), y.reshape(2, 5, 32)
    assert (ffn(x + 2 * y) - ffn(x) - 2 * ffn(y)).abs().mean() > 0.5


def test_hidden_dropout_zeroes_outputs_in_training_only() -> None:
    ffn = shake(FeedForward(block_config(hidden_dropout_prob=0.25)))
    x = tokens(400, 32)
    kept = ffn.eval()(x)
    torch.manual_seed(0)
    dropped = ffn.train()(x)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    torch.testing.assert_close(dropped[dropped != 0], kept[dropped != 0] / 0.75)
    assert torch.equal(ffn.eval()(x), kept)


def test_activation_dropout_zeroes_activations_in_training_only() -> None:
    ffn = shake(FeedForward(block_config(activation_dropout_prob=1.0)))
    x = tokens()
    assert torch.equal(ffn.train()(x), ffn.linear_2.bias.expand_as(x))
    plain = shake(FeedForward(block_config()))
    assert torch.equal(ffn.eval()(x), plain(x))


def test_activation_dropout_keeps_the_expectation() -> None:
    ffn = shake(FeedForward(block_config(activation_dropout_prob=0.25))).double()
    x = tokens(1, 32).double()
    torch.manual_seed(0)
    draws = ffn.train()(x.expand(40_000, -1))
    deviation = (draws.mean(0) - ffn.eval()(x)[0]).abs() / (draws.std(0) / math.sqrt(len(draws)))
    assert draws.std(0).min() > 0.1
    assert deviation.max() < 5


# Attention


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_equals_torchs(implementation: str) -> None:
    attention = shake(SelfAttention(block_config(attn_implementation=implementation)))
    reference = nn.MultiheadAttention(32, 4, batch_first=True)
    copy_attention(attention, reference)
    x = tokens()
    torch.testing.assert_close(attention(x)[0], reference(x, x, x)[0], atol=1e-5, rtol=0)


def test_eager_attention_returns_weights_that_sum_to_one() -> None:
    attention = shake(SelfAttention(block_config(attn_implementation="eager")))
    weights = attention(tokens())[1]
    assert weights.shape == (3, 4, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, 5))


def test_outside_a_model_attention_is_sdpa_which_gives_no_weights() -> None:
    assert SelfAttention(block_config())(tokens())[1] is None


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_attention_dropout_acts_in_training_only(implementation: str) -> None:
    attention = shake(
        SelfAttention(block_config(attn_implementation=implementation, attention_probs_dropout_prob=0.5))
    )
    plain = shake(SelfAttention(block_config(attn_implementation=implementation)))
    torch.manual_seed(0)
    assert torch.equal(attention.eval()(tokens())[0], plain(tokens())[0])
    assert (attention.train()(tokens())[0] - plain(tokens())[0]).abs().max() > 0.1


def test_attention_output_dropout_acts_in_training_only() -> None:
    attention = shake(SelfAttention(block_config(hidden_dropout_prob=1.0)))
    assert attention.train()(tokens())[0].abs().max() == 0
    assert attention.eval()(tokens())[0].abs().min() > 0


@pytest.mark.parametrize(
    ("field", "without"),
    [("qkv_bias", {"q_proj.bias", "k_proj.bias", "v_proj.bias"}), ("attention_bias", {"o_proj.bias"})],
)
def test_each_bias_field_rules_its_own_projections(field: str, without: set[str]) -> None:
    every = SelfAttention(block_config()).state_dict().keys()
    assert every - SelfAttention(block_config(**{field: False})).state_dict().keys() == without


# The encoder block


def copy_attention(ours: SelfAttention, theirs: nn.MultiheadAttention) -> None:
    """Give torch's attention our weights."""
    q, k, v = ours.q_proj, ours.k_proj, ours.v_proj
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([q.weight, k.weight, v.weight]),
            "in_proj_bias": torch.cat([q.bias, k.bias, v.bias]),
            "out_proj.weight": ours.o_proj.weight,
            "out_proj.bias": ours.o_proj.bias,
        }
    )


def torch_layer(block: EncoderBlock, norm_first: bool, eps: float = 1e-12) -> nn.TransformerEncoderLayer:
    """torch's own encoder layer with our block's weights, an implementation that shares no code with ours."""
    layer = nn.TransformerEncoderLayer(
        32, 4, 64, dropout=0.0, activation="gelu", layer_norm_eps=eps, batch_first=True, norm_first=norm_first
    )
    copy_attention(block.attention, layer.self_attn)
    layer.linear1.load_state_dict(block.ffn.linear_1.state_dict())
    layer.linear2.load_state_dict(block.ffn.linear_2.state_dict())
    layer.norm1.load_state_dict(block.norm_1.state_dict())
    layer.norm2.load_state_dict(block.norm_2.state_dict())
    return layer


@pytest.mark.parametrize(("norm_order", "norm_first"), [("pre", True), ("post", False)])
def test_the_block_equals_torchs_encoder_layer(norm_order: str, norm_first: bool) -> None:
    block = shake(EncoderBlock(block_config(norm_order=norm_order)))
    x = tokens()
    torch.testing.assert_close(block(x), torch_layer(block, norm_first)(x), atol=1e-5, rtol=0)
    assert (block(x) - torch_layer(block, not norm_first)(x)).abs().max() > 0.5


@pytest.mark.parametrize(("norm_order", "norm_first"), [("pre", True), ("post", False)])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_the_block_equals_torchs_encoder_layer_with_padding(
    implementation: str, norm_order: str, norm_first: bool
) -> None:
    config = block_config(norm_order=norm_order, attn_implementation=implementation)
    block = shake(EncoderBlock(config))
    x = tokens()
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 1, 0, 1]])
    mask = create_bidirectional_mask(config=config, inputs_embeds=x, attention_mask=real)
    expected = torch_layer(block, norm_first)(x, src_key_padding_mask=real == 0)
    torch.testing.assert_close(block(x, mask)[real == 1], expected[real == 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("norm_order", "norm_first"), [("pre", True), ("post", False)])
def test_rows_of_tiny_variance_show_the_eps(norm_order: str, norm_first: bool) -> None:
    block = shake(EncoderBlock(block_config(norm_order=norm_order)))
    with torch.no_grad():  # So that what the second LayerNorm of a post-norm block sees is tiny as well
        block.attention.o_proj.weight.zero_()
        block.attention.o_proj.bias.zero_()
    x = 1e-4 * tokens()
    torch.testing.assert_close(block(x), torch_layer(block, norm_first)(x), atol=1e-4, rtol=0)
    assert (block(x) - torch_layer(block, norm_first, eps=1e-5)(x)).abs().max() > 0.1


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_a_block_by_itself_trains(norm_order: str) -> None:
    block = EncoderBlock(FFNConfig(hidden_size=32, num_attention_heads=4, intermediate_size=64, norm_order=norm_order))
    target = tokens(seed=2)
    losses = []
    torch.manual_seed(0)
    for _ in range(30):
        block.zero_grad()
        loss = nn.functional.mse_loss(block(tokens()), target)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for parameter in block.parameters():
                parameter -= 0.3 * parameter.grad
    assert losses[-1] < 0.7 * losses[0]


def test_pinned_names_of_a_gated_and_layer_scaled_block() -> None:
    block = EncoderBlock(block_config(gated=True, layer_scale_init_value=0.1))
    assert sorted(block.state_dict()) == [
        "attention.k_proj.bias",
        "attention.k_proj.weight",
        "attention.o_proj.bias",
        "attention.o_proj.weight",
        "attention.q_proj.bias",
        "attention.q_proj.weight",
        "attention.v_proj.bias",
        "attention.v_proj.weight",
        "ffn.linear_1.bias",
        "ffn.linear_1.weight",
        "ffn.linear_2.bias",
        "ffn.linear_2.weight",
        "ffn.linear_gate.bias",
        "ffn.linear_gate.weight",
        "layer_scale_1.scale",
        "layer_scale_2.scale",
        "norm_1.bias",
        "norm_1.weight",
        "norm_2.bias",
        "norm_2.weight",
    ]


# Layer scale and stochastic depth


def test_layer_scale_starts_at_its_value_and_is_learnt() -> None:
    block = EncoderBlock(block_config(layer_scale_init_value=0.1))
    block(tokens()).sum().backward()
    for scale in (block.layer_scale_1.scale, block.layer_scale_2.scale):
        assert torch.equal(scale, torch.full((32,), 0.1))
        assert scale.grad.abs().min() > 0


def test_layer_scale_keeps_its_value_through_a_models_initialisation() -> None:
    model = ffn_model("FFNTextModel", layer_scale_init_value=0.1)
    for block in model.encoder.layers:
        assert torch.equal(block.layer_scale_1.scale, torch.full((32,), 0.1))
        assert torch.equal(block.layer_scale_2.scale, torch.full((32,), 0.1))


def test_a_block_scaled_by_zero_is_the_identity() -> None:
    block = EncoderBlock(block_config(layer_scale_init_value=0.0))
    assert torch.equal(block(tokens()), tokens())


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_each_layer_scale_multiplies_its_own_branch_channel_by_channel(norm_order: str) -> None:
    config = block_config(norm_order=norm_order, layer_scale_init_value=1.0)
    block = shake(EncoderBlock(config)).double()
    factors_1, factors_2 = tokens(32, seed=3), tokens(32, seed=4)
    with torch.no_grad():
        block.layer_scale_1.scale.copy_(factors_1)
        block.layer_scale_2.scale.copy_(factors_2)
    x = tokens().double()
    # The same factors on the rows of the last linear layer of each branch.
    plain = EncoderBlock(block_config(norm_order=norm_order)).double()
    plain.load_state_dict({k: v for k, v in block.state_dict().items() if "layer_scale" not in k})
    with torch.no_grad():
        for linear, factors in ((plain.attention.o_proj, factors_1), (plain.ffn.linear_2, factors_2)):
            linear.weight.mul_(factors[:, None])
            linear.bias.mul_(factors)
    torch.testing.assert_close(block(x), plain(x), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("num_layers", "rates"), [(5, [0.0, 0.1, 0.2, 0.3, 0.4]), (2, [0.0, 0.4]), (1, [0.0])], ids=["5", "2", "1"]
)
def test_stochastic_depth_grows_linearly_with_depth(num_layers: int, rates: list[float]) -> None:
    encoder = Encoder(block_config(num_hidden_layers=num_layers, drop_path_rate=0.4, layer_norm_eps=1e-5))
    torch.manual_seed(0)
    dropped = []
    for block in encoder.train().layers:
        x = tokens(3000, 1, 32)
        # Each of the two branches is left out by itself; where both are, nothing of the block is left.
        dropped.append((block(x) == x).all(-1).float().mean().item())
    assert dropped == pytest.approx([rate**2 for rate in rates], abs=0.03)


def test_stochastic_depth_leaves_out_whole_samples_and_scales_the_rest_up() -> None:
    block = EncoderBlock(block_config(num_hidden_layers=2, drop_path_rate=0.25), layer_idx=1).train()
    shake(block)
    with torch.no_grad():  # Leaves the feed-forward branch alone
        block.attention.o_proj.weight.zero_()
        block.attention.o_proj.bias.zero_()
    x = tokens(2000, 3, 32)
    branch = block.eval()(x) - x
    torch.manual_seed(0)
    in_training = block.train()(x) - x
    left_out = (in_training == 0).flatten(1).all(1)
    assert left_out.float().mean().item() == pytest.approx(0.25, abs=0.03)
    torch.testing.assert_close(in_training[~left_out], branch[~left_out] / 0.75, atol=1e-5, rtol=1e-5)


def test_stochastic_depth_is_off_outside_training() -> None:
    block = shake(EncoderBlock(block_config(num_hidden_layers=2, drop_path_rate=1.0), layer_idx=1))
    plain = shake(EncoderBlock(block_config(num_hidden_layers=2), layer_idx=1))
    assert torch.equal(block.eval()(tokens()), plain(tokens()))
    assert torch.equal(block.train()(tokens()), tokens())


# The encoder


@pytest.mark.parametrize(("norm_order", "norm_first"), [("pre", True), ("post", False)])
def test_the_encoder_equals_torchs_stack_and_pre_norm_ends_with_one_more_norm(
    norm_order: str, norm_first: bool
) -> None:
    encoder = shake(Encoder(block_config(norm_order=norm_order)))
    x = tokens()
    expected = x
    for block in encoder.layers:
        expected = torch_layer(block, norm_first)(expected)
    if norm_first:
        norm = nn.LayerNorm(32, eps=1e-12)
        norm.load_state_dict(encoder.norm.state_dict())
        expected = norm(expected)
    assert ("norm.weight" in encoder.state_dict()) is norm_first
    torch.testing.assert_close(encoder(x), expected, atol=2e-5, rtol=0)


def test_layers_can_differ_in_width() -> None:
    encoder = Encoder(block_config(per_layer_config={1: {"intermediate_size": 16}, 2: {"gated": True}}))
    assert [block.ffn.linear_1.out_features for block in encoder.layers] == [64, 16, 64]
    assert [block.ffn.linear_gate is not None for block in encoder.layers] == [False, False, True]
    assert encoder(tokens()).shape == (3, 5, 32)
