"""Packing: without padding, tokens become what they become with it."""

import math
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask
from transformers import AttentionInterface, AttentionMaskInterface

from hf_ffn.modeling_ffn_text import MASKS as MASKS_OF_LAYERS
from hf_ffn.packing_ffn import Packing, packing_for

from tiny import BERT_CLASSES, ffn_model, ffn_text_config, labels_for, text_inputs

HEADS = sorted(set(BERT_CLASSES.values()) - {"FFNTextModel"})
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

# Every way in which attention knows of positions, and layers that are shared.
ENCODERS: dict[str, dict[str, Any]] = {
    "post-norm": {"norm_order": "post"},
    "pre-norm, gated, scaled": {"gated": True, "layer_scale_init_value": 0.3},
    "rotary": {"position_embedding_type": "rotary", "scale_query": True},
    "relative bias": {"relative_attention_num_buckets": 8},
    "sliding window": {
        "position_embedding_type": "rotary",
        "local_rope_theta": 100.0,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "sliding_window": 2,
    },
    "shared layers": {"num_hidden_groups": 1, "norm_order": "post"},
}

# Which places of four rows of twelve are tokens.
MASKS: dict[str, list[str]] = {
    "right": ["111111100000", "111000000000", "111111111111", "111100000000"],
    "left": ["000000011111", "111111111111", "000111111111", "000000000011"],
    "scattered": ["101101100111", "010000001100", "111111111111", "000011011000"],
    "an empty row": ["111110000000", "000000000000", "001111100000", "111111111111"],
    "none": ["111111111111"] * 4,
    "one token": ["000000000000", "000010000000", "000000000000", "000000000000"],
}


def batch_of(config: Any, kind: str) -> dict[str, torch.Tensor]:
    """Four rows with tokens in the places of a kind of mask."""
    mask = torch.tensor([[int(place) for place in row] for row in MASKS[kind]])
    inputs = text_inputs(config, padded=False, batch_size=4)
    return {"input_ids": inputs["input_ids"] * mask, "attention_mask": mask}


def lengths_that_are_computed(model: Any, **inputs: Any) -> list[tuple[int, ...]]:
    """The shapes of what the first block's feed-forward takes in, call by call."""
    seen: list[tuple[int, ...]] = []
    hook = next(model.base_model.encoder.children())[0].register_forward_pre_hook(
        lambda module, args: seen.append(tuple(args[0].shape[:2]))
    )
    model(**inputs)
    hook.remove()
    return seen


def states_and_gradients(model: Any, inputs: dict[str, torch.Tensor], unpad: str) -> dict[str, torch.Tensor]:
    """The hidden states, and the gradient of each parameter that has one, when all tokens count."""
    model.zero_grad()
    states = model(**inputs, unpad=unpad).last_hidden_state
    tokens = states[inputs["attention_mask"] == 1]
    (tokens * torch.linspace(-1, 1, tokens.numel()).view_as(tokens)).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {"states": states.detach(), **gradients}


def assert_the_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], real: torch.Tensor) -> None:
    """Fail where tokens' states differ by more than 1e-5, or gradients do."""
    assert found["states"].shape == expected["states"].shape
    torch.testing.assert_close(found["states"][real], expected["states"][real], atol=1e-5, rtol=0)
    gradients = [{name: tensor for name, tensor in each.items() if name != "states"} for each in (found, expected)]
    assert_the_same_gradients(*gradients)


def assert_the_same_gradients(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Fail where a parameter's gradient differs by more than a hundred-thousandth of it."""
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        size, error = gradient.norm().item(), (found[name] - gradient).norm().item()
        # A bias of keys that turns no attention has none but rounding (2e-7 at most; the others from 2e-2 on).
        assert error <= (1e-5 * size if size > 1e-6 else 1e-6), f"{name}: {error} of {size}"


# The same results


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_tokens_and_gradients_are_those_of_the_padded_batch(encoder: str, kind: str, implementation: str) -> None:
    model = ffn_model("FFNTextModel", attn_implementation=implementation, **ENCODERS[encoder])
    inputs = batch_of(model.config, kind)
    padded, packed = (states_and_gradients(model, inputs, unpad) for unpad in ("never", "always"))
    assert not packed["states"][inputs["attention_mask"] == 0].any()
    assert_the_same(packed, padded, inputs["attention_mask"] == 1)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_half_precision_is_as_close_to_float32_as_with_padding(implementation: str) -> None:
    model = ffn_model("FFNTextModel", attn_implementation=implementation)
    inputs = batch_of(model.config, "scattered")
    real = inputs["attention_mask"] == 1
    exact = model(**inputs, unpad="never").last_hidden_state[real]
    model.to(torch.bfloat16)
    padded, packed = (model(**inputs, unpad=each).last_hidden_state[real].float() for each in ("never", "always"))
    assert (packed - exact).norm() <= 1.3 * (padded - exact).norm()


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("kind", "checkpointing"), [("right", False), ("right", True), ("left", False)])
def test_every_head_trains_the_same(name: str, kind: str, checkpointing: bool) -> None:
    # Positions are counted from padding on, as RoBERTa's are.
    model = ffn_model(name, **NO_DROPOUT, positions_after_padding=kind == "left", pad_token_id=0).train()
    inputs = batch_of(model.config, kind)
    batch = inputs | labels_for(model, inputs)
    if "labels" in batch and batch["labels"].dim() == 2:
        batch["labels"] = batch["labels"].masked_fill(inputs["attention_mask"] == 0, -100)
    results = []
    for unpad in ("never", "auto"):
        model.config.unpad = unpad
        if checkpointing and unpad == "auto":
            model.gradient_checkpointing_enable()
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        results.append((loss.item(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}))
    assert results[1][0] == pytest.approx(results[0][0], rel=1e-5)
    assert_the_same_gradients(results[1][1], results[0][1])


@pytest.mark.parametrize("kind", ["right", "left", "an empty row"])
@pytest.mark.parametrize("name", HEADS)
def test_every_head_predicts_the_same_of_tokens(name: str, kind: str) -> None:
    """And of padding what says nothing: zeros, or for answers the least number there is."""
    model = ffn_model(name)
    inputs = batch_of(model.config, kind)
    real = inputs["attention_mask"] == 1
    padded = model(**inputs, unpad="never").to_tuple()
    found = model(**inputs).to_tuple()
    for mine, expected in zip(found, padded, strict=True):
        assert mine.shape == expected.shape
        by_token = mine.shape[:2] == real.shape
        at = real if by_token else slice(None)
        torch.testing.assert_close(mine[at], expected[at], atol=1e-5, rtol=0)
        if name == "FFNForQuestionAnswering":
            assert (mine[~real] == torch.finfo(mine.dtype).min).all()
        elif name == "FFNForMaskedLM":
            assert not mine[~real].any()


def test_the_masked_lm_head_multiplies_tokens_alone() -> None:
    model = ffn_model("FFNForMaskedLM")
    inputs = batch_of(model.config, "left")
    multiplied = []
    model.lm_head.register_forward_pre_hook(lambda module, args: multiplied.append(tuple(args[0].shape)))
    model(**inputs)
    model(**inputs, unpad="never")
    model(**inputs, output_hidden_states=True)
    assert multiplied == [(1, 28, 32), (4, 12, 32), (4, 12, 32)]


@pytest.mark.parametrize("unpad", ["auto", "always"])
@pytest.mark.parametrize("name", ["FFNForMaskedLM", "FFNForTokenClassification"])
def test_labels_at_padding_count_as_they_do_with_padding(name: str, unpad: str) -> None:
    model = ffn_model(name)
    inputs = batch_of(model.config, "right")
    # As those who copy the ids for labels leave them
    labels = inputs["input_ids"] % model.config.num_labels
    expected = model(**inputs, labels=labels, unpad="never").loss
    assert torch.equal(model(**inputs, labels=labels, unpad=unpad).loss, expected)
    assert torch.equal(model(**inputs, labels=labels.flatten(), unpad=unpad).loss, expected)
    ignored = labels.masked_fill(inputs["attention_mask"] == 0, -100)
    found = model(**inputs, labels=ignored, unpad=unpad).loss
    assert not torch.allclose(found, expected, atol=1e-3)
    # Losses take them flat as well.
    assert torch.equal(model(**inputs, labels=ignored.flatten(), unpad=unpad).loss, found)


def test_flash_attention_gets_the_bounds_of_the_sequences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels need a GPU; one written out here stands for them."""
    given: list[Any] = []

    def variable_lengths(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: None, **kwargs: Any
    ) -> tuple[torch.Tensor, None]:
        assert mask is None
        assert kwargs["cu_seq_lens_q"].dtype == torch.int32
        assert kwargs["max_length_q"] == kwargs["max_length_k"] == 12
        given.append(kwargs["cu_seq_lens_q"].tolist())
        outputs = []
        for start, end in zip(given[-1][:-1], given[-1][1:], strict=True):
            q, k, v = (each[:, :, start:end] for each in (query, key, value))
            outputs.append((q @ k.transpose(2, 3) * kwargs["scaling"]).softmax(-1) @ v)
        return torch.cat(outputs, dim=2).transpose(1, 2), None

    model = ffn_model("FFNTextModel")
    inputs = batch_of(model.config, "scattered")
    real = inputs["attention_mask"] == 1
    expected = model(**inputs, unpad="never").last_hidden_state[real]
    AttentionInterface.register("flash_stand_in", variable_lengths)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_stand_in")
    found = model(**inputs, unpad="always").last_hidden_state[real]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert given == [[0, 8, 11, 23, 27]] * 3


# Flex attention


def flex_written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    block_mask: Any,
    scale: float,
    score_mod: Any = None,
    **kwargs: Any,
) -> torch.Tensor:
    """What flex attention computes, with gradients, which torch has for GPUs alone."""
    batch, heads, tokens = (torch.arange(size) for size in query.shape[:3])
    at = (batch[:, None, None, None], heads[:, None, None], tokens[:, None], tokens)
    scores = query @ key.transpose(2, 3) * scale
    if score_mod is not None:
        scores = score_mod(scores, *at)
    blocks = block_mask.to_dense().bool().repeat_interleave(128, -1).repeat_interleave(128, -2)
    seen = block_mask.mask_mod(*at) & blocks[..., : len(tokens), : len(tokens)]
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ value


@pytest.fixture
def flex_calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Have flex attention written out, and note the shape of each call's queries."""
    calls = []

    def noted(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(query.shape)
        return flex_written_out(query, *args, **kwargs)

    for module in ("hf_ffn.packing_ffn", "transformers.integrations.flex_attention"):
        monkeypatch.setattr(f"{module}.compile_friendly_flex_attention", noted)
    return calls


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_flex_attention_computes_tokens_as_in_the_padded_batch(encoder: str, kind: str) -> None:
    model = ffn_model("FFNTextModel", attn_implementation="eager", **ENCODERS[encoder])
    inputs = batch_of(model.config, kind)
    real = inputs["attention_mask"] == 1
    # Compiling takes half a minute; uncompiled it computes the same.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        expected = model(**inputs, unpad="never").last_hidden_state
        model.set_attn_implementation("flex_attention")
        found = model(**inputs, unpad="always").last_hidden_state
        # A query without any key is not a number there, or nothing, which says nothing of tokens.
        padded = model(**inputs, unpad="never").last_hidden_state
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)
    torch.testing.assert_close(padded[real], expected[real], atol=1e-5, rtol=0)
    assert not found[~real].any()


@pytest.mark.parametrize("encoder", ENCODERS)
def test_flex_attention_has_the_gradients_of_the_padded_batch(encoder: str, flex_calls: list[torch.Size]) -> None:
    model = ffn_model("FFNTextModel", attn_implementation="eager", **ENCODERS[encoder])
    inputs = batch_of(model.config, "scattered")
    expected = states_and_gradients(model, inputs, "never")
    model.set_attn_implementation("flex_attention")
    found = states_and_gradients(model, inputs, "always")
    # One call a layer, of all tokens
    assert flex_calls == [(1, 4, 27, 8)] * 3
    assert_the_same(found, expected, inputs["attention_mask"] == 1)


@pytest.mark.parametrize("window", [None, 1, 2, 60, 1000])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_block_mask_lets_tokens_see_what_the_padded_batch_lets_them(window: int | None, share: float) -> None:
    torch.manual_seed(0)
    real = torch.rand(9, 150) < share
    real[4] = False
    real[6, :70] = real[6, 71:] = False
    real[6, 70] = True
    packing = Packing.of(real)
    mask = packing.block_mask(window)

    config = ffn_text_config(sliding_window=window, attn_implementation="eager")
    kind = MASKS_OF_LAYERS["full_attention" if window is None else "sliding_attention"]
    padded = kind(config, torch.zeros(9, 150, 1), real)
    allowed = torch.zeros(len(packing.indices), len(packing.indices), dtype=torch.bool)
    for row in range(9):
        own = packing.indices // 150 == row
        allowed[own[:, None] & own] = (padded[row, 0] == 0)[real[row]][:, real[row]].flatten()
    assert torch.equal(create_mask(mask.mask_mod, 1, 1, *allowed.shape, device="cpu")[0, 0], allowed)

    # By the definition: every pair of tokens asked
    expected = create_block_mask(mask.mask_mod, 1, 1, *allowed.shape, device="cpu", separate_full_blocks=False)
    assert mask.shape == expected.shape
    for name in ("kv_num_blocks", "q_num_blocks"):
        assert torch.equal(getattr(mask, name), getattr(expected, name)), name
    assert torch.equal(mask.to_dense(), expected.to_dense())


@pytest.mark.slow
def test_flex_attention_is_compiled_for_all_numbers_of_tokens_and_both_kinds_of_layers() -> None:
    torch._dynamo.reset()
    model = ffn_model("FFNTextModel", max_position_embeddings=200, unpad="always", **ENCODERS["sliding window"])
    graphs = []
    for lengths in ([10, 3], [20, 30, 4], [200, 7], [99, 180, 140], [100, 3], [150, 150, 150, 2]):
        mask = torch.zeros(len(lengths), 200, dtype=torch.long)
        for row, length in zip(mask, lengths, strict=True):
            row[:length] = 1
        ids = torch.randint(1, 99, mask.shape, generator=torch.Generator().manual_seed(3))
        with torch.no_grad():
            model.set_attn_implementation("eager")
            expected = model(ids, mask).last_hidden_state
            model.set_attn_implementation("flex_attention")
            found = model(ids, mask).last_hidden_state
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    # One for a single number of tokens, one for any in a single block, one for any in several.
    assert graphs[0] > 0
    assert graphs[2:] == [graphs[0] + 2] * 4
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kind", ["right", "none"])
def test_flex_attention_with_a_bias_is_not_compiled_on_cpu(kind: str) -> None:
    """Torch's template for it fails there, depending on the sizes that came before."""
    model = ffn_model("FFNTextModel", attn_implementation="eager", **ENCODERS["relative bias"])
    inputs = batch_of(model.config, kind)
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
        model.set_attn_implementation("flex_attention")
        found = model(**inputs, unpad="always").last_hidden_state
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before
    real = inputs["attention_mask"] == 1
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("encoder", ["rotary", "relative bias"])
def test_flex_attention_refuses_dropout_as_transformers_does(encoder: str) -> None:
    model = ffn_model("FFNTextModel", attn_implementation="flex_attention", **ENCODERS[encoder]).train()
    assert model.config.attention_probs_dropout_prob > 0
    with pytest.raises(ValueError, match="`flex_attention` does not support `dropout`"):
        model(**batch_of(model.config, "right"), unpad="always")


# What it does not depend on


@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_no_sequence_sees_another(encoder: str, implementation: str, flex_calls: list[torch.Size]) -> None:
    model = ffn_model("FFNTextModel", attn_implementation=implementation, **ENCODERS[encoder])
    inputs = batch_of(model.config, "scattered")
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][2] = other["input_ids"][2].flip(0)
    with torch.no_grad():
        before, after = (model(**each, unpad="always").last_hidden_state for each in (inputs, other))
    assert torch.equal(before[[0, 1, 3]], after[[0, 1, 3]])
    assert not torch.allclose(before[2], after[2], atol=1e-2)


# When it packs


@pytest.mark.parametrize(
    ("implementation", "packed"), [("eager", False), ("sdpa", False), ("flex_attention", True), ("flash_x", True)]
)
def test_on_a_gpu_it_packs_where_one_call_serves_all_sequences(implementation: str, packed: bool) -> None:
    config = ffn_text_config(attn_implementation=implementation, relative_attention_num_buckets=8)
    mask = batch_of(config, "right")["attention_mask"]
    elsewhere = torch.empty(4, 12, 32, device="meta")
    assert (packing_for(config, mask, elsewhere, "auto", False, False, None, {}) is not None) == packed


@pytest.mark.parametrize("encoder", ["rotary", "relative bias"])
def test_flex_attention_packs_on_cpu_only_when_it_must(encoder: str, flex_calls: list[torch.Size]) -> None:
    """Torch cannot compile it for packed batches after padded ones there."""
    model = ffn_model("FFNTextModel", attn_implementation="flex_attention", **ENCODERS[encoder])
    inputs = batch_of(model.config, "right")
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        assert lengths_that_are_computed(model, **inputs) == [(4, 12)]
        assert lengths_that_are_computed(model, **inputs, unpad="always") == [(1, 26)]


@pytest.mark.parametrize(
    ("kind", "unpad", "packed"),
    [
        ("right", "auto", (1, 26)),
        ("right", "always", (1, 26)),
        ("right", "never", (4, 12)),
        ("none", "auto", (4, 12)),
        ("none", "always", (1, 48)),
        ("left", "auto", (4, 12)),
        ("an empty row", "auto", (4, 12)),
    ],
)
def test_the_mode_says_what_is_computed(kind: str, unpad: str, packed: tuple[int, int]) -> None:
    model = ffn_model("FFNTextModel", unpad=unpad)
    assert lengths_that_are_computed(model, **batch_of(model.config, kind)) == [packed]
    model.config.unpad = "never"
    assert lengths_that_are_computed(model, **batch_of(model.config, kind)) == [(4, 12)]
    assert lengths_that_are_computed(model, **batch_of(model.config, kind), unpad=unpad) == [packed]


@pytest.mark.parametrize("name", ["FFNTextModel", "FFNForMaskedLM"])
@pytest.mark.parametrize("asked", ["output_attentions", "output_hidden_states"])
@pytest.mark.parametrize("by", ["argument", "configuration"])
def test_what_shows_layers_is_computed_with_padding(name: str, asked: str, by: str) -> None:
    argument, configured = ({asked: True}, {}) if by == "argument" else ({}, {asked: True})
    model = ffn_model(name, unpad="always", attn_implementation="eager", **configured)
    inputs = batch_of(model.config, "right") | argument
    assert lengths_that_are_computed(model, **inputs) == [(4, 12)]
    shown = getattr(model(**inputs), asked.removeprefix("output_"))
    assert {len(each) for each in shown} == {4}


def test_stochastic_depth_trains_with_padding() -> None:
    model = ffn_model("FFNTextModel", unpad="always", drop_path_rate=0.1)
    inputs = batch_of(model.config, "right")
    assert lengths_that_are_computed(model.train(), **inputs) == [(4, 12)]
    assert lengths_that_are_computed(model.eval(), **inputs) == [(1, 26)]


def test_answers_are_learnt_with_padding_which_their_loss_counts_and_found_without() -> None:
    model = ffn_model("FFNForQuestionAnswering")
    inputs = batch_of(model.config, "left")
    answers = labels_for(model, inputs)
    for unpad in ("auto", "always"):
        model.config.unpad = unpad
        assert lengths_that_are_computed(model, **inputs) == [(1, 28)]
        assert lengths_that_are_computed(model, **inputs, **answers) == [(4, 12)]
    assert lengths_that_are_computed(model, **inputs, unpad="never") == [(4, 12)]


# By class and pooling: whether what is read of a row's first place matters where it is padding.
READERS = [
    ("FFNTextModel", {}, True),
    ("FFNTextModel", {"add_pooling_layer": False, "classifier_pooling": "mean"}, False),
    ("FFNForSequenceClassification", {"classifier_pooling": "pooler"}, True),
    ("FFNForSequenceClassification", {"classifier_pooling": "cls"}, True),
    ("FFNForSequenceClassification", {"classifier_pooling": "mean"}, False),
    ("FFNForTokenClassification", {}, False),
    ("FFNForMaskedLM", {}, False),
    ("FFNForQuestionAnswering", {}, False),
]


@pytest.mark.parametrize("kind", ["left", "an empty row"])
@pytest.mark.parametrize(("name", "config", "reads_first_place"), READERS)
def test_rows_that_begin_with_padding_are_packed_unless_their_first_place_is_read(
    name: str, config: dict[str, Any], reads_first_place: bool, kind: str
) -> None:
    model = ffn_model(name, **config)
    inputs = batch_of(model.config, kind)
    tokens = int(inputs["attention_mask"].sum())
    assert lengths_that_are_computed(model, **inputs) == [(4, 12) if reads_first_place else (1, tokens)]
    assert lengths_that_are_computed(model, **batch_of(model.config, "right")) == [(1, 26)]


def test_a_batch_without_any_token_or_mask_is_left_as_it_is() -> None:
    model = ffn_model("FFNTextModel", unpad="always")
    inputs = batch_of(model.config, "none")
    assert lengths_that_are_computed(model, input_ids=inputs["input_ids"]) == [(4, 12)]
    assert lengths_that_are_computed(model, **inputs | {"attention_mask": torch.zeros(4, 12)}) == [(4, 12)]
    ready = torch.ones(4, 1, 12, 12, dtype=torch.bool)
    assert lengths_that_are_computed(model, **inputs | {"attention_mask": ready}) == [(4, 12)]


def test_an_attention_back_end_that_is_not_known_gets_the_padded_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(module: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
        return torch.zeros_like(query).transpose(1, 2), None

    model = ffn_model("FFNTextModel", unpad="always")
    AttentionInterface.register("another", zeros)
    AttentionMaskInterface.register("another", lambda *args, **kwargs: None)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "another")
    assert lengths_that_are_computed(model, **batch_of(model.config, "right")) == [(4, 12)]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int32])
def test_a_mask_of_any_type_is_read(dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 1, 0, 0], [0, 1, 0, 1]])
    packing = Packing.of(mask.to(dtype))
    assert packing.indices.tolist() == [0, 1, 5, 7]
    assert packing.lengths == [2, 2]
    assert packing.positions[0] == slice(0, 2)
    assert torch.equal(packing.positions[1], torch.tensor([1, 3]))
    states = torch.arange(8.0).view(2, 4, 1) + 1
    assert packing.pack(states).flatten().tolist() == [1, 2, 6, 8]
    assert torch.equal(packing.unpack(packing.pack(states)), states * mask[..., None])
