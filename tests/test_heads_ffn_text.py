"""What stands between the text encoder and its predictions."""

from typing import Any

import pytest
import torch

from hf_ffn import FFNForMaskedLM, FFNForQuestionAnswering, FFNForSequenceClassification, FFNForTokenClassification
from hf_ffn.heads_ffn_text import pooled
from hf_ffn.modeling_ffn import FFNPreTrainedModel

from tiny import ffn_text_config, telling_model, text_inputs

HEADS = ["dense", "pre_classifier", "prediction"]


def names(model: FFNPreTrainedModel) -> set[str]:
    """The tensors beside the encoder's."""
    return {name for name in model.state_dict() if not name.startswith("model.")}


@pytest.mark.parametrize(
    ("head", "sequences", "tokens"),
    [
        ("linear", set(), set()),
        ("dense", {"head.dense.weight", "head.dense.bias"}, set()),
        ("pre_classifier", {"head.dense.weight", "head.dense.bias"}, set()),
        ("prediction", *2 * [{"head.dense.weight", "head.dense.bias", "head.norm.weight", "head.norm.bias"}]),
    ],
)
def test_pinned_names_of_heads(head: str, sequences: set[str], tokens: set[str]) -> None:
    config = ffn_text_config(classifier_head=head, classifier_pooling="cls")
    assert names(FFNForSequenceClassification(config)) == {"classifier.weight", "classifier.bias", *sequences}
    assert names(FFNForTokenClassification(config)) == {"classifier.weight", "classifier.bias", *tokens}
    assert names(FFNForQuestionAnswering(config)) == {"qa_outputs.weight", "qa_outputs.bias", *tokens}


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ({}, {"lm_head.dense.bias", "lm_head.bias", "lm_head.decoder.bias", "lm_head.norm.bias"}),
        ({"lm_head_bias": False}, {"lm_head.dense.bias", "lm_head.decoder.bias", "lm_head.norm.bias"}),
        ({"decoder_bias": False}, {"lm_head.dense.bias", "lm_head.bias", "lm_head.norm.bias"}),
        ({"decoder_bias": False, "lm_head_bias": False, "head_bias": False, "norm_bias": False}, set()),
    ],
)
def test_pinned_biases_of_the_masked_language_model(config: dict[str, Any], own: set[str]) -> None:
    model = FFNForMaskedLM(ffn_text_config(**config))
    assert {name for name in names(model) if name.endswith("bias")} == own


@pytest.mark.parametrize("config", [{}, {"lm_head_bias": False}, {"decoder_bias": False}], ids=str)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [120, 60])
def test_a_resized_vocabulary_keeps_what_was_predicted(config: dict[str, Any], tied: bool, size: int) -> None:
    model = telling_model(FFNForMaskedLM, ffn_text_config(**config, tie_word_embeddings=tied))
    ids = text_inputs(model.config)["input_ids"] % 60
    kept = min(size, 99)
    before = model(ids).logits[..., :kept]
    model.resize_token_embeddings(size, mean_resizing=False)
    after = model(ids).logits
    assert after.shape[-1] == size
    torch.testing.assert_close(after[..., :kept], before, atol=1e-5, rtol=0)
    assert len(model.lm_head.bias if model.lm_head.decoder.bias is None else model.lm_head.decoder.bias) == size


def test_what_a_classifier_of_sequences_reads() -> None:
    states = torch.arange(12.0).view(1, 3, 4)
    mask = torch.tensor([[1, 1, 0]])
    assert torch.equal(pooled("cls", states, None, mask), states[:, 0])
    assert torch.equal(pooled("mean", states, None, mask), states[:, :2].mean(1))
    assert torch.equal(pooled("mean", states, None, None), states.mean(1))
    assert torch.equal(pooled("pooler", states, states[:, 2], mask), states[:, 2])


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("head", HEADS)
def test_padding_does_not_change_a_classification(head: str, pooling: str) -> None:
    config = ffn_text_config(classifier_head=head, classifier_pooling=pooling)
    model = telling_model(FFNForSequenceClassification, config)
    ids = text_inputs(config, padded=False)["input_ids"]
    padded = torch.nn.functional.pad(ids, (0, 5))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (0, 5))
    torch.testing.assert_close(model(padded, mask).logits, model(ids).logits, atol=1e-5, rtol=0)
