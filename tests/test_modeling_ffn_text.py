"""The text encoder and its heads: embeddings, padding, refusals, tied weights."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import nn
from transformers import BertModel

from hf_ffn import FFNForMaskedLM, FFNTextModel

from tiny import ffn_model, ffn_text_config, text_inputs

TEXT_CLASSES = [
    "FFNTextModel",
    "FFNForMaskedLM",
    "FFNForSequenceClassification",
    "FFNForTokenClassification",
    "FFNForQuestionAnswering",
]

BLOCK = [
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
    "norm_1.bias",
    "norm_1.weight",
    "norm_2.bias",
    "norm_2.weight",
]
EMBEDDINGS = [
    "embeddings.norm.bias",
    "embeddings.norm.weight",
    "embeddings.position_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "embeddings.word_embeddings.weight",
]
ENCODER = [*EMBEDDINGS, *(f"encoder.layers.0.{name}" for name in BLOCK), "encoder.norm.bias", "encoder.norm.weight"]
POOLER = ["pooler.dense.bias", "pooler.dense.weight"]


def under(prefix: str, names: list[str]) -> list[str]:
    """The same names inside a module of that name."""
    return [f"{prefix}.{name}" for name in names]


@pytest.fixture
def warnings(messages: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What transformers warns of, also where it already did so in an earlier test."""
    logging.Logger.warning_once.cache_clear()  # type: ignore[attr-defined]
    return lambda: [record.getMessage() for record in messages.records if record.levelno == logging.WARNING]


# Names


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("FFNTextModel", [*ENCODER, *POOLER]),
        (
            "FFNForMaskedLM",
            [
                "lm_head.bias",
                "lm_head.decoder.bias",
                "lm_head.decoder.weight",
                "lm_head.dense.bias",
                "lm_head.dense.weight",
                "lm_head.norm.bias",
                "lm_head.norm.weight",
                *under("model", ENCODER),
            ],
        ),
        (
            "FFNForSequenceClassification",
            ["classifier.bias", "classifier.weight", *under("model", [*ENCODER, *POOLER])],
        ),
        ("FFNForTokenClassification", ["classifier.bias", "classifier.weight", *under("model", ENCODER)]),
        ("FFNForQuestionAnswering", [*under("model", ENCODER), "qa_outputs.bias", "qa_outputs.weight"]),
    ],
)
def test_pinned_names(name: str, expected: list[str]) -> None:
    assert sorted(ffn_model(name, num_hidden_layers=1).state_dict()) == expected


# Inputs


@pytest.mark.parametrize("name", TEXT_CLASSES)
def test_embeddings_in_place_of_ids_give_the_same(name: str) -> None:
    model = ffn_model(name)
    inputs = text_inputs(model.config)
    token_type_ids = torch.tensor([[0] * 5 + [1] * 7] * 3)
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    by_ids = model(**inputs, token_type_ids=token_type_ids)
    by_embeddings = model(inputs_embeds=embeds, attention_mask=inputs["attention_mask"], token_type_ids=token_type_ids)
    assert len(by_ids) > 0
    assert all(torch.equal(*pair) for pair in zip(by_ids.values(), by_embeddings.values(), strict=True))


def test_left_out_ids_mean_the_first_segment_and_positions_from_zero() -> None:
    model = ffn_model("FFNTextModel")
    ids = text_inputs(model.config, padded=False)["input_ids"]
    spelt_out = model(ids, token_type_ids=torch.zeros_like(ids), position_ids=torch.arange(12).expand(3, -1))
    assert torch.equal(model(ids).last_hidden_state, spelt_out.last_hidden_state)


@pytest.mark.parametrize(
    "other",
    [
        {"token_type_ids": torch.ones(3, 12, dtype=torch.long)},
        {"position_ids": torch.arange(12).flip(0)[None]},
        {"attention_mask": torch.ones(3, 12).index_fill(1, torch.tensor([11]), 0)},
    ],
    ids=lambda other: next(iter(other)),
)
@pytest.mark.parametrize("name", TEXT_CLASSES)
def test_every_head_passes_every_input_on(name: str, other: dict[str, torch.Tensor]) -> None:
    model = ffn_model(name)
    ids = text_inputs(model.config, padded=False)["input_ids"]
    assert (model(ids, **other)[0][:, 0] - model(ids)[0][:, 0]).abs().max() > 1e-3


def test_segments_and_positions_are_added_as_bert_adds_them(save_source: Callable[..., Path]) -> None:
    folder = save_source("BertModel")
    ours, theirs = FFNTextModel.from_pretrained(folder), BertModel.from_pretrained(folder)
    inputs = text_inputs(ours.config) | {
        "token_type_ids": torch.tensor([[0] * 5 + [1] * 7] * 3),
        "position_ids": torch.arange(28, 40)[None],
    }
    assert torch.equal(ours(**inputs).last_hidden_state, theirs(**inputs).last_hidden_state)
    assert torch.equal(ours(**inputs).pooler_output, theirs(**inputs).pooler_output)


@pytest.mark.parametrize("places", [range(7), range(5, 12), [1, 3, 4, 8, 11]], ids=["right", "left", "scattered"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_padding_does_not_change_what_real_tokens_become(
    norm_order: str, implementation: str, places: list[int]
) -> None:
    model = ffn_model("FFNTextModel", norm_order=norm_order, attn_implementation=implementation)
    places = list(places)
    real = torch.randint(1, 99, (2, len(places)), generator=torch.Generator().manual_seed(3))
    expected = model(real).last_hidden_state

    ids, mask, positions = torch.zeros(3, 2, 12, dtype=torch.long)
    ids[:, places], mask[:, places], positions[:, places] = real, 1, torch.arange(len(places))
    padded = model(ids, attention_mask=mask, position_ids=positions).last_hidden_state[:, places]
    torch.testing.assert_close(padded, expected, atol=1e-5, rtol=0)
    unmasked = model(ids, attention_mask=torch.ones_like(mask), position_ids=positions)
    assert (unmasked.last_hidden_state[:, places] - expected).abs().max() > 0.05

    # Nor does it matter what stands where there is padding.
    other = torch.where(mask == 1, ids, 42)
    again = model(other, attention_mask=mask, position_ids=positions).last_hidden_state[:, places]
    torch.testing.assert_close(again, padded, atol=1e-6, rtol=0)


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    model = ffn_model("FFNTextModel")
    inputs = text_inputs(model.config)
    together = model(**inputs, unpad="never").last_hidden_state
    for index in range(3):
        one = {key: tensor[index : index + 1] for key, tensor in inputs.items()}
        alone = model(**one, unpad="never").last_hidden_state
        torch.testing.assert_close(together[index : index + 1], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int32])
def test_a_mask_of_any_type_means_the_same(dtype: torch.dtype) -> None:
    model = ffn_model("FFNTextModel")
    inputs = text_inputs(model.config)
    other = model(inputs["input_ids"], attention_mask=inputs["attention_mask"].to(dtype))
    assert torch.equal(other.last_hidden_state, model(**inputs).last_hidden_state)


def test_a_missing_mask_is_warned_of_where_there_is_padding(warnings: Callable[[], list[str]]) -> None:
    model = ffn_model("FFNTextModel")
    model(text_inputs(model.config)["input_ids"])
    assert any("attention_mask" in message for message in warnings())


@pytest.mark.parametrize(
    ("pad_token_id", "padded", "with_mask"), [(0, False, False), (0, True, True), (None, True, False)]
)
def test_a_missing_mask_is_not_warned_of_where_nothing_is_padded(
    pad_token_id: int | None, padded: bool, with_mask: bool, warnings: Callable[[], list[str]]
) -> None:
    model = ffn_model("FFNTextModel", pad_token_id=pad_token_id)
    inputs = text_inputs(model.config, padded=padded)
    model(**inputs if with_mask else {"input_ids": inputs["input_ids"]})
    assert warnings() == []


# Refusals

IDS = torch.ones(2, 4, dtype=torch.long)


@pytest.mark.parametrize("name", TEXT_CLASSES)
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": 99 * IDS}, "input_ids .* 99 .*vocab_size=99"),
        ({"input_ids": -IDS}, "input_ids .*-1 .*vocab_size=99"),
        ({"input_ids": IDS, "token_type_ids": 2 * IDS}, "token_type_ids .* 2 .*type_vocab_size=2"),
        ({"input_ids": IDS, "token_type_ids": -IDS}, "token_type_ids .*-1 .*type_vocab_size=2"),
        ({"input_ids": IDS, "position_ids": 40 * IDS}, "position_ids .* 40 .*max_position_embeddings=40"),
        ({"input_ids": IDS, "position_ids": -IDS}, "position_ids .*-1 .*max_position_embeddings=40"),
        ({"input_ids": torch.ones(1, 41, dtype=torch.long)}, "41 tokens .*max_position_embeddings=40.*truncat"),
        ({"inputs_embeds": torch.ones(1, 41, 32)}, "41 tokens .*max_position_embeddings=40"),
        ({}, "exactly one of input_ids and inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": torch.ones(2, 4, 32)}, "exactly one of input_ids and inputs_embeds"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 3)}, r"attention_mask .*\(2, 3\).*\(2, 4\)"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 6)}, r"attention_mask .*\(2, 6\).*\(2, 4\)"),
    ],
)
def test_inputs_that_cannot_be_are_refused_naming_them(name: str, inputs: dict[str, Any], message: str) -> None:
    model = ffn_model(name)
    with pytest.raises(ValueError, match=message):
        model(**inputs)


def test_the_longest_sequence_and_the_last_ids_are_taken() -> None:
    model = ffn_model("FFNTextModel")
    ids = torch.full((1, 40), 98)
    outputs = model(ids, token_type_ids=torch.ones_like(ids))
    at_the_end = model(ids, token_type_ids=torch.ones_like(ids), position_ids=torch.arange(40)[None])
    assert torch.equal(outputs.last_hidden_state, at_the_end.last_hidden_state)


# Heads


def test_there_is_no_pooled_output_without_a_pooler() -> None:
    model = FFNTextModel(ffn_model("FFNTextModel").config, add_pooling_layer=False)
    outputs = model(**text_inputs(model.config))
    assert outputs.pooler_output is None
    assert not [name for name in model.state_dict() if "pooler" in name]


@pytest.mark.parametrize("name", ["FFNForSequenceClassification", "FFNForTokenClassification"])
def test_a_classifier_has_its_own_dropout_or_the_encoders(name: str) -> None:
    assert ffn_model(name, hidden_dropout_prob=0.3).dropout.p == 0.3
    assert ffn_model(name, hidden_dropout_prob=0.3, classifier_dropout=0.0).dropout.p == 0.0
    model = ffn_model(name, classifier_dropout=1.0).train()
    logits = model(**text_inputs(model.config)).logits
    assert torch.equal(logits, model.classifier.bias.expand_as(logits))


def test_the_padding_token_starts_at_zero() -> None:
    model = FFNTextModel(ffn_text_config(pad_token_id=7))
    rows = model.get_input_embeddings().weight.any(dim=-1)
    assert (~rows).nonzero().flatten().tolist() == [7]


def test_the_padding_token_gets_no_gradient() -> None:
    model = ffn_model("FFNTextModel", pad_token_id=7).train()
    ids = torch.tensor([[7, 3, 7, 5]])
    model(ids, attention_mask=torch.ones_like(ids)).pooler_output.sum().backward()
    gradient = model.get_input_embeddings().weight.grad
    assert gradient.abs().sum(-1).nonzero().flatten().tolist() == [3, 5]


@pytest.mark.parametrize("name", ["FFNForMaskedLM", "FFNForTokenClassification"])
def test_labels_of_minus_100_do_not_count(name: str) -> None:
    model = ffn_model(name)
    inputs = text_inputs(model.config, padded=False)
    labels = torch.full((3, 12), -100)
    labels[0, 3], labels[2, 0] = 1, 0
    outputs = model(**inputs, labels=labels)
    log_probabilities = outputs.logits.log_softmax(-1)
    expected = -(log_probabilities[0, 3, 1] + log_probabilities[2, 0, 0]) / 2
    torch.testing.assert_close(outputs.loss, expected)


def test_answers_beyond_the_sequence_do_not_count() -> None:
    model = ffn_model("FFNForQuestionAnswering")
    inputs = text_inputs(model.config, padded=False)
    outputs = model(**inputs, start_positions=torch.tensor([2, 12, 3]), end_positions=torch.tensor([5, 99, 4]))
    starts, ends = outputs.start_logits.log_softmax(-1), outputs.end_logits.log_softmax(-1)
    expected = -(starts[0, 2] + starts[2, 3] + ends[0, 5] + ends[2, 4]) / 4
    torch.testing.assert_close(outputs.loss, expected)


# Tied weights


def stored_names(folder: Path) -> list[str]:
    """Names of the tensors in a saved folder that the decoder and the word embeddings share or could share."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return sorted(name for name in file.keys() if re.search("decoder|word_emb|lm_head.bias", name))  # noqa: SIM118


def assert_tied(model: Any) -> None:
    """Fail where the decoder is not the very same tensors as the word embeddings and the head's bias."""
    assert model.lm_head.decoder.weight is model.model.embeddings.word_embeddings.weight
    assert model.lm_head.decoder.bias is model.lm_head.bias
    assert model.get_output_embeddings() is model.lm_head.decoder
    assert model.get_input_embeddings() is model.model.embeddings.word_embeddings


def test_tied_weights_are_saved_once_and_are_one_tensor_again_after_loading(tmp_path: Path) -> None:
    model = ffn_model("FFNForMaskedLM")
    assert_tied(model)
    model.save_pretrained(tmp_path)
    assert stored_names(tmp_path) == ["lm_head.bias", "model.embeddings.word_embeddings.weight"]
    loaded = FFNForMaskedLM.from_pretrained(tmp_path)
    assert_tied(loaded)
    inputs = text_inputs(model.config)
    assert torch.equal(loaded(**inputs).logits, model(**inputs).logits)


def test_training_moves_tied_weights_together() -> None:
    model = ffn_model("FFNForMaskedLM").train()
    inputs = text_inputs(model.config)
    unseen = next(index for index in range(1, 99) if index not in inputs["input_ids"])
    model(**inputs, labels=inputs["input_ids"]).loss.backward()
    # Only the decoder's side of the tie has a gradient for a token that is not in the batch.
    assert model.get_input_embeddings().weight.grad[unseen].any()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    assert_tied(model)


def test_untied_weights_are_two_tensors_that_save_and_load(tmp_path: Path) -> None:
    model = ffn_model("FFNForMaskedLM", tie_word_embeddings=False, unpad="never")
    assert model.lm_head.decoder.weight is not model.model.embeddings.word_embeddings.weight
    model.save_pretrained(tmp_path)
    assert {"lm_head.decoder.weight", "model.embeddings.word_embeddings.weight"} < set(stored_names(tmp_path))
    loaded = FFNForMaskedLM.from_pretrained(tmp_path)
    inputs = text_inputs(model.config)
    outputs = loaded(**inputs, labels=inputs["input_ids"])
    assert torch.equal(outputs.logits, model(**inputs).logits)
    outputs.loss.backward()
    assert [name for name, one in loaded.named_parameters() if one.requires_grad and one.grad is None] == []


@pytest.mark.parametrize("vocab_size", [120, 64], ids=["grown", "shrunk"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_resized_embeddings_keep_their_rows_their_tie_and_their_use(
    tied: bool, vocab_size: int, tmp_path: Path
) -> None:
    model = ffn_model("FFNForMaskedLM", tie_word_embeddings=tied, unpad="never")
    inputs = text_inputs(model.config)
    inputs["input_ids"] %= 64
    with torch.no_grad():
        before = model(**inputs).logits
    model.resize_token_embeddings(vocab_size)
    assert model.config.vocab_size == vocab_size
    outputs = model(**inputs, labels=inputs["input_ids"])
    kept = min(99, vocab_size)
    assert outputs.logits.shape == (3, 12, vocab_size)
    torch.testing.assert_close(outputs.logits[..., :kept], before[..., :kept], atol=1e-5, rtol=0)
    outputs.loss.backward()
    assert [name for name, one in model.named_parameters() if one.requires_grad and one.grad is None] == []
    if tied:
        assert_tied(model)

    model.save_pretrained(tmp_path)
    loaded = FFNForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(loaded(**inputs).logits, outputs.logits)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_output_embeddings_can_be_replaced_with_their_bias(tied: bool) -> None:
    model = ffn_model("FFNForMaskedLM", tie_word_embeddings=tied, unpad="never")
    inputs = text_inputs(model.config)
    new = nn.Linear(32, 99)
    before = model(**inputs).logits
    with torch.no_grad():
        new.weight.copy_(model.lm_head.decoder.weight)
        new.bias.copy_(model.lm_head.decoder.bias + 1)
    model.set_output_embeddings(new)
    model.tie_weights()
    torch.testing.assert_close(model(**inputs).logits, before + 1, atol=1e-5, rtol=0)
    if tied:
        assert_tied(model)


@pytest.mark.parametrize("name", TEXT_CLASSES)
def test_input_embeddings_can_be_replaced(name: str) -> None:
    model = ffn_model(name)
    inputs = text_inputs(model.config)
    before = model(**inputs)[0]
    new = nn.Embedding(99, 32)
    model.set_input_embeddings(new)
    assert model.get_input_embeddings() is new
    assert (model(**inputs)[0] - before).abs().max() > 0.01


@pytest.mark.parametrize("name", TEXT_CLASSES)
def test_every_text_model_takes_new_tokens_after_resizing(name: str) -> None:
    model = ffn_model(name)
    inputs = text_inputs(model.config)
    before = model(**inputs)[0]
    model.resize_token_embeddings(110, mean_resizing=False)
    after = model(**inputs)[0]
    torch.testing.assert_close(after[..., :99], before, atol=1e-5, rtol=0)
    assert model(torch.full((1, 4), 109))[0].isfinite().all()
    with pytest.raises(ValueError, match="vocab_size=110"):
        model(torch.full((1, 4), 110))


def test_without_padding_or_a_second_segment_there_is_still_a_model() -> None:
    model = ffn_model("FFNTextModel", pad_token_id=None, type_vocab_size=1)
    assert model.get_input_embeddings().padding_idx is None
    assert model.get_input_embeddings().weight[0].any()
    assert model(IDS).last_hidden_state.shape == (2, 4, 32)
