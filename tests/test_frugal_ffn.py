"""The frugal backward: the plain block's outputs and gradients, with less kept in between."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers.activations import ACT2FN

from hf_ffn import FeedForward, FFNConfig, frugal_ffn

from tiny import ffn_model, inputs_for, labels_for

MODES = ["pre_activation", "input"]
TOKENS = 50


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the few tokens of a test into slices of 16, the last of two."""
    monkeypatch.setattr(frugal_ffn, "SLICE_BYTES", 0)
    monkeypatch.setattr(frugal_ffn, "FEWEST_TOKENS", 16)


@pytest.fixture(params=["torch's choice", *(["oneDNN"] if torch.backends.mkldnn.is_available() else [])])
def _library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Float32 products by either library, whichever is faster here."""
    monkeypatch.setattr(frugal_ffn.PRODUCT_LIBRARY, "by_onednn", request.param == "oneDNN")


def make_block(seed: int = 0, **overrides: Any) -> FeedForward:
    """A block of uneven sizes with weights that show faults."""
    sizes = {"hidden_size": 12, "num_attention_heads": 4, "intermediate_size": 20, "hidden_dropout_prob": 0.0}
    torch.manual_seed(seed)
    block = FeedForward(FFNConfig(**{**sizes, **overrides}))
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return block


def tokens(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Random hidden states."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def run(block: FeedForward, memory: str, x: torch.Tensor, seed: int = 3) -> dict[str, torch.Tensor]:
    """The output, and the gradients of the input and of every parameter, by name."""
    block.config.feed_forward_memory = memory
    block.zero_grad()
    x = x.detach().clone().requires_grad_()
    torch.manual_seed(seed)
    output = block(x)
    weight = torch.linspace(0.5, 2, output.numel()).view_as(output).to(output.dtype)
    output.backward(weight)
    return {"output": output.detach(), "x": x.grad, **{name: p.grad for name, p in block.named_parameters()}}


def assert_close(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], relative: float) -> None:
    """The same tensors, each within `relative` of the other's norm."""
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype, name
        assert tensor.norm() > 0, name
        difference = (actual[name].double() - tensor.double()).norm() / tensor.double().norm()
        assert difference <= relative, f"{name} differs by {difference:.1e}"


def numbers_kept(call: Callable[[], Any], parameters: Iterator[torch.Tensor]) -> int:
    """How many numbers autograd keeps of a call, the parameters aside."""
    own = {parameter.data_ptr() for parameter in parameters}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = call()
    assert result is not None
    return sum(kept.values())


# Outputs and gradients


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck_passes(memory: str, gated: bool, bias: bool) -> None:
    block = make_block(gated=gated, ffn_bias=bias, hidden_size=4, intermediate_size=6).double()
    block.config.feed_forward_memory = memory
    x = tokens(2, 9, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: block(x), (x, *block.parameters()))


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_the_plain_ones(memory: str, gated: bool, bias: bool) -> None:
    block = make_block(gated=gated, ffn_bias=bias)
    x = tokens(5, TOKENS // 5, 12)
    assert_close(run(block, memory, x), run(block, "full", x), 1e-6)


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("name", sorted(set(ACT2FN) - {"gelu"}))
def test_every_activation_is_differentiated_with_its_own_parameters(memory: str, name: str) -> None:
    block = make_block(hidden_act=name).double()
    x = tokens(TOKENS, 12, dtype=torch.float64)
    plain = run(block, "full", x)
    # xIELU computes in bfloat16 inside, which slices round in another order.
    assert_close(run(block, memory, x), plain, 1e-12 if name != "xielu" else 1e-2)


@pytest.mark.parametrize("memory", MODES)
def test_a_single_token_and_no_token_at_all_go_through(memory: str) -> None:
    block = make_block()
    one = tokens(12)
    assert_close(run(block, memory, one), run(block, "full", one), 1e-6)
    none = run(block, memory, tokens(0, 12))
    assert none["output"].shape == none["x"].shape == (0, 12)
    assert not any(none[name].any() for name, _ in block.named_parameters())


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("gated", [False, True])
def test_half_precision_is_as_close_to_float32_as_the_plain_block(memory: str, gated: bool) -> None:
    block = make_block(gated=gated)
    x = tokens(TOKENS, 12, dtype=torch.bfloat16)
    half = block.to(torch.bfloat16)
    frugal, plain = run(half, memory, x), run(half, "full", x)
    exact = run(half.float(), "full", x.float())
    for name, tensor in exact.items():
        errors = [(each[name].float() - tensor).norm().item() for each in (frugal, plain)]
        assert errors[0] <= 1.3 * errors[1], name


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("act", ["gelu", "gelu_new"])
def test_autocast_is_the_plain_blocks(memory: str, act: str) -> None:
    block = make_block(hidden_act=act)
    x = tokens(TOKENS, 12)
    exact = run(block, "full", x)
    with torch.autocast("cpu", torch.bfloat16):
        plain, frugal = run(block, "full", x), run(block, memory, x)
    assert frugal["output"].dtype == plain["output"].dtype == torch.bfloat16
    assert torch.equal(frugal["output"], plain["output"])
    for name, tensor in exact.items():
        errors = [(each[name].float() - tensor).norm().item() for each in (frugal, plain)]
        assert 0 < errors[0] <= 1.3 * errors[1], name
        assert frugal[name].dtype == plain[name].dtype


@pytest.mark.parametrize("memory", MODES)
def test_the_activation_is_recomputed_under_the_autocast_of_forward(memory: str) -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), x.dtype))
            return x.exp()

    block = make_block()
    block.activation = Spy()
    block.config.feed_forward_memory = memory
    with torch.autocast("cpu", torch.bfloat16):
        output = block(tokens(TOKENS, 12))
    output.sum().backward()
    assert set(seen) == {(False, True, torch.bfloat16), (True, True, torch.bfloat16)}


# Dropout


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("gated", [False, True])
def test_dropout_masks_of_backward_are_those_of_forward(
    memory: str, gated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In one slice the masks are those that the plain block draws.
    monkeypatch.setattr(frugal_ffn, "FEWEST_TOKENS", TOKENS)
    block = make_block(gated=gated, hidden_dropout_prob=0.4, activation_dropout_prob=0.3).train()
    x = tokens(TOKENS, 12)
    plain = run(block, "full", x)
    assert_close(run(block, memory, x), plain, 1e-6)
    assert (plain["output"] == 0).any()


@pytest.mark.parametrize("memory", MODES)
def test_dropout_in_several_slices_is_differentiated_as_it_was_drawn(memory: str) -> None:
    block = make_block(hidden_dropout_prob=0.4, activation_dropout_prob=0.3).double().train()
    block.config.feed_forward_memory = memory

    def drawn_alike(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return block(x)

    x = tokens(40, 12, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(drawn_alike, (x, *block.parameters()), fast_mode=True)
    # Each slice has a mask of its own.
    same = block(torch.ones(64, 12, dtype=torch.float64))
    assert not torch.equal(same[:16] == 0, same[16:32] == 0)


@pytest.mark.parametrize("memory", MODES)
def test_backward_leaves_the_random_sequence_where_it_was(memory: str) -> None:
    block = make_block(hidden_dropout_prob=0.4, activation_dropout_prob=0.3).train()
    block.config.feed_forward_memory = memory
    output = block(tokens(TOKENS, 12))
    before = torch.get_rng_state()
    output.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("memory", MODES)
def test_dropout_acts_in_training_only(memory: str) -> None:
    block = make_block(hidden_dropout_prob=0.5, activation_dropout_prob=0.5).eval()
    assert_close(run(block, memory, tokens(TOKENS, 12)), run(block, "full", tokens(TOKENS, 12)), 1e-6)


# What is kept


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_what_is_kept_is_what_the_mode_says(gated: bool, dropout: float) -> None:
    block = make_block(gated=gated, hidden_dropout_prob=dropout, activation_dropout_prob=dropout).train()
    x = tokens(TOKENS, 12).requires_grad_()
    kept = {}
    for memory in ("full", *MODES):
        block.config.feed_forward_memory = memory
        kept[memory] = numbers_kept(lambda: block(x), block.parameters()) / TOKENS
    assert kept["input"] == 12
    assert kept["pre_activation"] == 12 + 20 * (2 if gated else 1)
    assert kept["full"] > kept["pre_activation"]


@pytest.mark.parametrize("memory", MODES)
def test_nothing_is_kept_where_no_gradient_is_wanted(memory: str) -> None:
    block = make_block()
    block.config.feed_forward_memory = memory
    with torch.no_grad():
        assert torch.equal(block(tokens(TOKENS, 12)), block.plain_forward(tokens(TOKENS, 12)))
    block.requires_grad_(False)
    assert numbers_kept(lambda: block(tokens(TOKENS, 12)), block.parameters()) == 0


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("trained", ["linear_1.weight", "linear_2.weight", "linear_2.bias", "x"])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_plain_one(memory: str, trained: str) -> None:
    block = make_block()
    x = tokens(TOKENS, 12)
    expected = run(block, "full", x)[trained]
    for name, parameter in block.named_parameters():
        parameter.requires_grad_(name == trained)
    x.requires_grad_(trained == "x")
    block.zero_grad()
    output = block(x)
    output.backward(torch.linspace(0.5, 2, output.numel()).view_as(output))
    found = {"x": x.grad, **{name: parameter.grad for name, parameter in block.named_parameters()}}
    assert [name for name, gradient in found.items() if gradient is not None] == [trained]
    torch.testing.assert_close(found[trained], expected, atol=1e-6, rtol=1e-5)


# Within models, and beside what others do


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_whole_model_trains_the_same(memory: str, checkpointing: bool) -> None:
    model = ffn_model("FFNForMaskedLM", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.0).train()
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    gradients = []
    for mode in ("full", memory):
        model.config.feed_forward_memory = mode
        if checkpointing and mode == memory:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(0)
        model(**batch).loss.backward()
        gradients.append({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, atol=1e-6, rtol=1e-4, msg=name)


@pytest.mark.parametrize("memory", MODES)
def test_the_mode_reaches_layers_of_different_widths_at_any_time(memory: str) -> None:
    model = ffn_model("FFNTextModel", per_layer_config={1: {"intermediate_size": 16}}).train()
    inputs = inputs_for(model.config)
    everything = numbers_kept(lambda: model(**inputs), model.parameters())
    model.config.feed_forward_memory = memory
    kept = numbers_kept(lambda: model(**inputs), model.parameters())
    # 36 tokens in two layers of width 64 and one of 16; autograd keeps twice the intermediate numbers, or more.
    assert everything - kept >= 36 * (2 * 64 + 16)


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(Exception, match=r"feed_forward_memory.*'full', 'pre_activation', 'input'"):
        FFNConfig(feed_forward_memory="inputs")
    config = FFNConfig()
    with pytest.raises(Exception, match=r"feed_forward_memory.*'full', 'pre_activation', 'input'"):
        config.feed_forward_memory = "none"


@pytest.mark.parametrize("memory", MODES)
def test_a_second_derivative_is_refused_saying_what_to_do(memory: str) -> None:
    block = make_block()
    block.config.feed_forward_memory = memory
    x = tokens(TOKENS, 12).requires_grad_()
    with pytest.raises(RuntimeError, match=r"second derivative.*feed_forward_memory = 'full'"):
        torch.autograd.grad(block(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("memory", MODES)
def test_lora_adapters_are_trained_and_that_the_block_is_recomputed_is_said(
    memory: str, messages: pytest.LogCaptureFixture
) -> None:
    peft = pytest.importorskip("peft")
    model = ffn_model("FFNForSequenceClassification", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.0)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["linear_1"], init_lora_weights=False))
    inputs = inputs_for(model.config)
    batch = inputs | labels_for(model, inputs)
    adapted.train()
    frugal_ffn.logger.warning_once.cache_clear()
    gradients, kept = [], []
    for mode in ("full", memory):
        model.config.feed_forward_memory = mode
        adapted.zero_grad()
        torch.manual_seed(0)
        kept.append(numbers_kept(lambda: adapted(**batch), adapted.parameters()))
        torch.manual_seed(0)
        adapted(**batch).loss.backward()
        gradients.append({n: p.grad.clone() for n, p in adapted.named_parameters() if p.grad is not None})
    assert any("lora_" in name for name in gradients[0])
    assert gradients[0].keys() == gradients[1].keys()
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, atol=1e-6, rtol=1e-4, msg=name)
    assert kept[1] < kept[0] - 36 * 64
    assert "linear_1 is not the block's own any more" in messages.text


@pytest.mark.parametrize("memory", MODES)
def test_hooks_on_the_blocks_parts_are_called(memory: str) -> None:
    block = make_block()
    seen = []
    block.linear_2.register_forward_hook(lambda module, args, output: seen.append(output.shape))
    frugal = run(block, memory, tokens(TOKENS, 12))
    assert (TOKENS, 12) in seen
    assert_close(frugal, run(block, "full", tokens(TOKENS, 12)), 1e-6)


@pytest.mark.parametrize("memory", MODES)
def test_the_compiled_full_graph_trains_the_same_and_keeps_less(memory: str) -> None:
    torch._dynamo.reset()
    model = ffn_model("FFNTextModel", num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model.train()
    inputs = inputs_for(model.config)
    model(**inputs).last_hidden_state.square().sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    kept = {}
    for mode in ("full", memory):
        torch._dynamo.reset()
        model.config.feed_forward_memory = mode
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        kept[mode] = numbers_kept(lambda c=compiled: c(**inputs), model.parameters())
        model.zero_grad()
        compiled(**inputs).last_hidden_state.square().sum().backward()
        for name, gradient in expected.items():
            torch.testing.assert_close(model.get_parameter(name).grad, gradient, atol=1e-4, rtol=1e-4, msg=name)
    assert kept[memory] < kept["full"] - 36 * 64
    torch._dynamo.reset()


def train_in_one_of_two_processes(rank: int, folder: str) -> None:
    """A process of the test below: its half of the tokens."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    block = make_block()
    block.config.feed_forward_memory = "input"
    parallel = DistributedDataParallel(block)
    for half in tokens(2, TOKENS, 12).chunk(2, dim=1):
        parallel(half[rank]).square().mean().backward()
    if rank == 0:
        torch.save({name: p.grad for name, p in block.named_parameters()}, f"{folder}/gradients.pt")
    # As the group's last owner it would wait, with Python's lock, for a thread that waits for this lock.
    del parallel
    # One process must not take its connections down while the other still uses them.
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Any) -> None:
    mp.spawn(train_in_one_of_two_processes, args=(str(tmp_path),), nprocs=2)
    found = torch.load(tmp_path / "gradients.pt", weights_only=True)
    block = make_block()
    for half in tokens(2, TOKENS, 12).chunk(2, dim=1):
        block(half).square().mean().backward()
    for name, parameter in block.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, atol=1e-5, rtol=1e-5, msg=name)


# The choice of library


def test_slices_hold_five_hundred_tokens_of_bert_base_and_more_of_narrower_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    x = tokens(2000, 4)
    assert frugal_ffn.slices_of(x, 3072, torch.float32)[1] == slice(512, 1024)
    assert frugal_ffn.slices_of(x, 3072, torch.bfloat16)[1] == slice(1024, 2048)
    assert frugal_ffn.slices_of(x, 16384, torch.float32)[1] == slice(256, 512)


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str, str], None]]:
    """Have this be a processor of a vendor, as Linux describes it ("" for no such file), with some instructions."""

    def pretend(vendor: str, capability: str) -> None:
        frugal_ffn.processor_vendor.cache_clear()
        cpuinfo = tmp_path / "cpuinfo"
        cpuinfo.unlink(missing_ok=True)
        if vendor:
            cpuinfo.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: of {vendor}\n\nprocessor\t: 1\n")
        monkeypatch.setattr(frugal_ffn, "CPUINFO", cpuinfo)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    yield pretend
    frugal_ffn.processor_vendor.cache_clear()


needs_onednn = pytest.mark.skipif(not frugal_ffn.onednn_is_there(), reason="this build of torch has no oneDNN")


@needs_onednn
@pytest.mark.parametrize(
    ("vendor", "capability", "by_onednn"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
        ("GenuineIntel", "AVX2", False),
        ("", "AVX512", False),
        ("", "DEFAULT", False),
    ],
)
def test_the_library_follows_from_the_processor_alone(
    vendor: str, capability: str, by_onednn: bool, processor: Callable[[str, str], None]
) -> None:
    processor(vendor, capability)
    cpu = torch.device("cpu")
    assert frugal_ffn.products(cpu, torch.float32).by_onednn is by_onednn
    assert frugal_ffn.ProductLibrary().state_dict() == {"by_onednn": by_onednn}
    assert not frugal_ffn.products(cpu, torch.float64).by_onednn
    assert not frugal_ffn.products(cpu, torch.bfloat16).by_onednn


@pytest.mark.parametrize("begun_by_onednn", [False, *([True] if frugal_ffn.onednn_is_there() else [])])
@pytest.mark.parametrize("vendor", ["AuthenticAMD", "GenuineIntel"])
def test_a_resumed_run_keeps_its_own_library_on_another_processor(
    begun_by_onednn: bool, vendor: str, processor: Callable[[str, str], None]
) -> None:
    processor(vendor, "AVX512")
    resumed = frugal_ffn.ProductLibrary()
    resumed.load_state_dict({"by_onednn": begun_by_onednn})
    assert resumed.onednn_is_chosen() is begun_by_onednn


def test_a_run_from_a_machine_with_another_library_goes_on_without_it_and_says_so(
    monkeypatch: pytest.MonkeyPatch, messages: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(frugal_ffn, "onednn_is_there", lambda: False)
    library = frugal_ffn.ProductLibrary()
    library.load_state_dict({"by_onednn": True})
    assert not library.onednn_is_chosen()
    assert "begun with oneDNN's matrix products" in messages.text
