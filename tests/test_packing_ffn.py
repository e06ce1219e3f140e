"""Packing: without padding, tokens become what they become with it."""

from typing import Any

import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface

from hf_ffn.packing_ffn import Packing

from tiny import BERT_CLASSES, ffn_model, labels_for, text_inputs

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


# The same results


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_tokens_and_gradients_are_those_of_the_padded_batch(encoder: str, kind: str, implementation: str) -> None:
    model = ffn_model("FFNTextModel", attn_implementation=implementation, **ENCODERS[encoder])
    inputs = batch_of(model.config, kind)
    real = inputs["attention_mask"] == 1
    results = []
    for unpad in ("never", "always"):
        model.zero_grad()
        states = model(**inputs, unpad=unpad).last_hidden_state
        weight = torch.linspace(-1, 1, states[real].numel()).view_as(states[real])
        (states[real] * weight).sum().backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        results.append((states.detach(), gradients))
    (padded, expected), (packed, found) = results
    assert packed.shape == padded.shape
    torch.testing.assert_close(packed[real], padded[real], atol=1e-5, rtol=0)
    assert not packed[~real].any()
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, atol=2e-5 * max(1.0, gradient.abs().max().item()), rtol=1e-4, msg=name
        )


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
@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_head_trains_the_same(name: str, checkpointing: bool) -> None:
    model = ffn_model(name, **NO_DROPOUT).train()
    inputs = batch_of(model.config, "right")
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
        results.append(
            {"loss": loss.detach(), **{n: p.grad for n, p in model.named_parameters() if p.grad is not None}}
        )
    assert results[0].keys() == results[1].keys()
    for key, tensor in results[0].items():
        torch.testing.assert_close(results[1][key], tensor, atol=1e-5, rtol=1e-4, msg=key)


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


# When it packs


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


@pytest.mark.parametrize("asked", [{"output_attentions": True}, {"output_hidden_states": True}])
@pytest.mark.parametrize("by", ["argument", "configuration"])
def test_what_shows_layers_is_computed_with_padding(asked: dict[str, bool], by: str) -> None:
    configured = asked if by == "configuration" else {}
    model = ffn_model("FFNTextModel", unpad="always", attn_implementation="eager", **configured)
    inputs = batch_of(model.config, "right") | ({} if configured else asked)
    assert lengths_that_are_computed(model, **inputs) == [(4, 12)]
    outputs = model(**inputs)
    shown = outputs.attentions if "output_attentions" in asked else outputs.hidden_states
    assert {len(each) for each in shown} == {4}


def test_stochastic_depth_trains_with_padding() -> None:
    model = ffn_model("FFNTextModel", unpad="always", drop_path_rate=0.1)
    inputs = batch_of(model.config, "right")
    assert lengths_that_are_computed(model.train(), **inputs) == [(4, 12)]
    assert lengths_that_are_computed(model.eval(), **inputs) == [(1, 26)]


def test_answers_to_questions_are_computed_with_padding_which_their_loss_counts() -> None:
    model = ffn_model("FFNForQuestionAnswering")
    inputs = batch_of(model.config, "right")
    assert lengths_that_are_computed(model, **inputs) == [(4, 12)]
    assert lengths_that_are_computed(model, **inputs, unpad="always") == [(1, 26)]
    model.config.unpad = "always"
    assert lengths_that_are_computed(model, **inputs) == [(1, 26)]


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
