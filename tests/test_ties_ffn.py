"""Tied weights: an untied model holds, saves and exports two tensors; one that cannot be tied stays as it is."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ffn import FFNForMaskedLM, export_pretrained, verify
from hf_ffn.modeling_ffn import FFNPreTrainedModel

from families import ROWS, Row
from families.rows import source_class
from tiny import ffn_model, rewrite_config, telling_model, to_bin

EMBEDDINGS = "model.embeddings.word_embeddings.weight"
DECODER = "lm_head.decoder.weight"
MASKED_LM = [row for row in {row.name: row for row in reversed(ROWS)}.values() if "FFNForMaskedLM" in row.family.heads]


def save(row: Row, folder: Path, tied: bool = True) -> str:
    """Save a telling model of the family with a head for masked language modelling, and give its class's name."""
    theirs = row.family.heads["FFNForMaskedLM"]
    config = row.source_config(theirs)
    config.tie_word_embeddings = tied
    telling_model(source_class(theirs), config).save_pretrained(folder)
    return theirs


def check_untied(model: FFNPreTrainedModel, expected: torch.Tensor) -> None:
    """Two tensors of the same content at different addresses."""
    tensors = model.state_dict()
    assert torch.equal(tensors[DECODER], expected)
    assert torch.equal(tensors[EMBEDDINGS], expected)
    assert tensors[DECODER].data_ptr() != tensors[EMBEDDINGS].data_ptr()


@pytest.mark.parametrize("how", ["while it loads", "in memory"])
@pytest.mark.parametrize("row", MASKED_LM, ids=str)
def test_a_tied_checkpoint_is_untied_saved_and_exported(tmp_path: Path, row: Row, how: str) -> None:
    theirs = save(row, tmp_path / "source")
    tied = FFNForMaskedLM.from_pretrained(tmp_path / "source")
    if how == "in memory":
        model = FFNForMaskedLM.from_pretrained(tmp_path / "source")
        model.config.tie_word_embeddings = False
    else:
        model = FFNForMaskedLM.from_pretrained(tmp_path / "source", tie_word_embeddings=False)
        check_untied(model, tied.state_dict()[EMBEDDINGS])
        assert f"{DECODER} begins as a copy of {EMBEDDINGS}" in str(model.loading_report)
        assert model.loading_report.new == []
    model.save_pretrained(tmp_path / "native")
    stored = load_file(tmp_path / "native" / "model.safetensors")
    assert torch.equal(stored[DECODER], stored[EMBEDDINGS])
    again = FFNForMaskedLM.from_pretrained(tmp_path / "native")
    check_untied(again, tied.state_dict()[EMBEDDINGS])

    export_pretrained(model, tmp_path / "back")
    back, info = source_class(theirs).from_pretrained(tmp_path / "back", output_loading_info=True)
    assert {key: value for key, value in info.items() if value} == {}
    original = source_class(theirs).from_pretrained(tmp_path / "source")
    inputs = row.inputs(original.config, True)
    with torch.no_grad():
        expected = original.eval()(**inputs).logits
        assert torch.equal(back.eval()(**inputs).logits, expected)
        ours = [each.eval()(**inputs, unpad="never").logits for each in (tied, model, again)]
    assert torch.equal(ours[1], ours[0])
    assert torch.equal(ours[2], ours[0])
    # What is untied learns by itself, and nothing waits for a gradient in vain.
    again.train()(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert all(parameter.grad is not None for parameter in again.parameters() if parameter.requires_grad)
    assert not torch.equal(again.lm_head.decoder.weight.grad, again.model.embeddings.word_embeddings.weight.grad)


def test_a_bin_file_that_holds_both_is_untied(tmp_path: Path) -> None:
    save(MASKED_LM[0], tmp_path)
    tied = FFNForMaskedLM.from_pretrained(tmp_path).state_dict()[EMBEDDINGS]
    check_untied(FFNForMaskedLM.from_pretrained(to_bin(tmp_path), tie_word_embeddings=False), tied)


@pytest.mark.parametrize("row", MASKED_LM[:3], ids=str)
def test_two_different_tensors_are_not_tied_on_request(tmp_path: Path, row: Row) -> None:
    save(row, tmp_path, tied=False)
    before = FFNForMaskedLM.from_pretrained(tmp_path)
    model = FFNForMaskedLM.from_pretrained(tmp_path, tie_word_embeddings=True)
    assert model.config.tie_word_embeddings is False
    assert "not tied, as the checkpoint holds another tensor for" in str(model.loading_report)
    for name, tensor in before.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    report = verify(tmp_path, model, attn_implementations=("eager",))
    assert report.ok, report


def test_a_decoder_of_its_own_survives_a_growing_vocabulary(tmp_path: Path) -> None:
    save(MASKED_LM[0], tmp_path, tied=False)
    before = FFNForMaskedLM.from_pretrained(tmp_path)
    # As files have it that say nothing, or what is not so
    rewrite_config(tmp_path, tie_word_embeddings=True)
    size = before.config.vocab_size
    grown = FFNForMaskedLM.from_pretrained(tmp_path, vocab_size=size + 3)
    for name in (DECODER, "model.embeddings.word_embeddings.weight"):
        assert torch.equal(grown.state_dict()[name][:size], before.state_dict()[name]), name


def test_an_encoder_gets_a_new_untied_head(tmp_path: Path) -> None:
    row = MASKED_LM[-1]
    telling_model(source_class(row.family.heads["FFNTextModel"]), row.source_config()).save_pretrained(tmp_path)
    model = FFNForMaskedLM.from_pretrained(tmp_path, tie_word_embeddings=False)
    assert model.loading_report.new == ["lm_head"]
    assert model.state_dict()[DECODER].abs().max() <= 2 * model.config.initializer_range


def test_a_state_dict_that_is_given_is_written_out_too(tmp_path: Path) -> None:
    model = ffn_model("FFNForMaskedLM")
    model.config.tie_word_embeddings = False
    model.save_pretrained(tmp_path, state_dict=model.state_dict())
    assert {DECODER, EMBEDDINGS, "lm_head.bias", "lm_head.decoder.bias"} <= load_file(
        tmp_path / "model.safetensors"
    ).keys()
