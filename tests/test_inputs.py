"""What models take: inputs as the originals take them, by their processors' names and in their sizes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ASTFeatureExtractor, AutoModel, PreTrainedModel

import hf_ffn
from hf_ffn import FFNForAudioClassification, FFNVisionConfig, FFNVisionModel, export_pretrained, verify
from hf_ffn.modeling_ffn import FFNPreTrainedModel

from families import ROWS, Row
from families.rows import source_class
from families.vision_rows import AST_SIZES
from tiny import image_inputs, telling_model

VISION_ROWS = [row for row in ROWS if row.family.native_type == "hf_ffn_vision"]
CASES = [pytest.param(row, *pair, id=f"{row}-{pair[1]}") for row in VISION_ROWS for pair in row.pairs]
# Families whose own classes interpolate positions unasked, or have none that are learnt for one size
ANY_SIZE = {"dinov2", "dinov2-with-registers", "beit", "data2vec-vision", "dinov3"}
# Smaller, wider than high, and with pixels left over at the edges
SIZES = [(24, 24), (24, 48), (45, 39)]


def both(row: Row, ours: str, theirs: str, folder: Path) -> tuple[PreTrainedModel, FFNPreTrainedModel]:
    """A telling model of the family, and what its checkpoint becomes."""
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(folder)
    # Their eager back end adds the bias where ours does.
    chosen = {"attn_implementation": "eager"}
    original = source_class(theirs).from_pretrained(folder, **chosen).eval()
    return original, getattr(hf_ffn, ours).from_pretrained(folder, **chosen).eval()


def result(model: PreTrainedModel, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The first output."""
    with torch.no_grad():
        return model(*args, **kwargs)[0]


@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_images_of_another_size_are_taken_where_the_original_takes_them(
    tmp_path: Path, row: Row, ours: str, theirs: str
) -> None:
    original, model = both(row, ours, theirs, tmp_path)
    model.save_pretrained(tmp_path / "native")
    again = type(model).from_pretrained(tmp_path / "native", attn_implementation="eager").eval()
    for size in SIZES:
        compare_at(size, row, original, model, again)


def compare_at(
    size: tuple[int, int], row: Row, original: PreTrainedModel, model: FFNPreTrainedModel, again: FFNPreTrainedModel
) -> None:
    """Ours and ours from a native folder against the original, for images of a size that it was not made for."""
    inputs = image_inputs(model.config, size=size)
    if row.name not in ANY_SIZE:
        with pytest.raises(ValueError, match="does not match image_size"):
            model(**(inputs if model.main_input_name in inputs else row.prepared(original, inputs)))
        with pytest.raises((ValueError, RuntimeError)):
            original(**row.prepared(original, inputs))
        return
    expected = result(original, **row.prepared(original, inputs))
    # Of few tokens, torch multiplies turned queries by one routine or another, as they lie in memory.
    bound = 1e-5 if row.family.of(model.config).rounding or row.name == "dinov3" else 0
    torch.testing.assert_close(result(model, **inputs), expected, rtol=0, atol=bound, msg=f"at {size}")
    assert torch.equal(result(again, **inputs), result(model, **inputs))


@pytest.mark.parametrize("name", ["dinov2", "dinov2-with-registers"])
def test_half_precision_does_not_move_interpolated_positions(tmp_path: Path, name: str) -> None:
    row = next(row for row in VISION_ROWS if row.name == name)
    original, model = (each.to(torch.bfloat16) for each in both(row, *row.pairs[0], tmp_path))
    inputs = {"pixel_values": image_inputs(model.config, size=(24, 48))["pixel_values"].to(torch.bfloat16)}
    # What goes into the first block
    found, expected = (each(**inputs, output_hidden_states=True).hidden_states[0] for each in (model, original))
    assert torch.equal(found, expected)


@pytest.mark.parametrize(("row", "ours", "theirs"), CASES)
def test_entries_that_are_not_needed_are_passed_over(tmp_path: Path, row: Row, ours: str, theirs: str) -> None:
    original, model = both(row, ours, theirs, tmp_path)
    inputs = row.inputs_for_ours(model, False)
    not_needed = {
        "attention_mask": torch.ones(2, 4, dtype=torch.long),
        "pixel_mask": torch.ones(2, 32, 32),
        "input_ids": torch.ones(2, 3, dtype=torch.long),
        "num_items_in_batch": torch.tensor(2),
    }
    assert torch.equal(result(model, **inputs, **not_needed), result(model, **inputs))
    name = original.main_input_name
    assert model.main_input_name == name
    assert torch.equal(result(model, inputs[name]), result(model, **inputs))


NO_SEGMENTS = [row for row in ROWS if row.family.fixed.get("type_vocab_size") == 0]


@pytest.mark.parametrize("row", NO_SEGMENTS, ids=str)
def test_a_tokenizers_segments_are_passed_over_where_the_family_has_none(row: Row, tmp_path: Path) -> None:
    original, model = both(row, *row.pairs[0], tmp_path)
    inputs = row.inputs(model.config, True)
    given = {
        **inputs,
        "token_type_ids": torch.ones_like(inputs["input_ids"]),
        "special_tokens_mask": torch.zeros_like(inputs["input_ids"]),
        "length": inputs["attention_mask"].sum(1),
    }
    assert torch.equal(result(model, **given), result(model, **inputs))
    assert torch.equal(result(original, **given), result(original, **inputs))


@pytest.fixture
def spectrogram_model(tmp_path: Path) -> Path:
    """A saved ASTModel."""
    row = next(row for row in VISION_ROWS if row.name == "audio-spectrogram-transformer")
    telling_model(source_class("ASTModel"), row.source_config()).save_pretrained(tmp_path / "source")
    return tmp_path / "source"


def test_a_spectrogram_is_taken_as_its_feature_extractor_gives_it(spectrogram_model: Path) -> None:
    original, model = (each.from_pretrained(spectrogram_model).eval() for each in (AutoModel, FFNVisionModel))
    sizes = {"num_mel_bins": AST_SIZES["num_mel_bins"], "max_length": AST_SIZES["max_length"]}
    extractor = ASTFeatureExtractor(**sizes, return_attention_mask=True)
    sound = torch.randn(2, 4000, generator=torch.Generator().manual_seed(3)).numpy()
    inputs = extractor(list(sound), sampling_rate=16000, return_tensors="pt")
    expected = result(original, **inputs)
    assert torch.equal(result(model, **inputs), expected)
    assert torch.equal(result(model, inputs["input_values"]), expected)
    # As an image too, which is how it was taken before
    image = inputs["input_values"].transpose(1, 2).unsqueeze(1)
    assert torch.equal(result(model, image), expected)
    head = FFNForAudioClassification.from_pretrained(spectrogram_model).eval()
    assert torch.equal(head(**inputs, output_hidden_states=True).hidden_states[0],
                       model(**inputs, output_hidden_states=True).hidden_states[0])  # fmt: skip


def test_a_folder_from_before_spectrograms_had_a_field_is_proven_and_exported(
    spectrogram_model: Path, tmp_path: Path
) -> None:
    model = FFNVisionModel.from_pretrained(spectrogram_model)
    model.config.spectrogram_input = False
    model.save_pretrained(tmp_path / "native")
    old = FFNVisionModel.from_pretrained(tmp_path / "native").eval()
    inputs = {"input_values": torch.randn(2, 30, 16, generator=torch.Generator().manual_seed(3))}
    assert torch.equal(result(old, **inputs), result(model.eval(), **inputs))
    assert verify(spectrogram_model, old).ok
    export_pretrained(old, tmp_path / "back")
    back = AutoModel.from_pretrained(tmp_path / "back").eval()
    assert torch.equal(result(back, **inputs), result(old, **inputs))


def test_what_is_no_input_is_refused_in_plain_words() -> None:
    config = FFNVisionConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=16,
                             image_size=(16, 30), patch_size=8, num_channels=1, spectrogram_input=True)  # fmt: skip
    model = FFNVisionModel(config)
    with pytest.raises(ValueError, match="takes one of pixel_values and input_values"):
        model()
    with pytest.raises(ValueError, match="takes one of pixel_values and input_values"):
        model(torch.zeros(1, 1, 16, 30), input_values=torch.zeros(1, 30, 16))
    with pytest.raises(
        ValueError, match=r"input_values of shape \(1, 1, 16, 30\) must be \(batch, frames, mel bins\)"
    ):
        model(input_values=torch.zeros(1, 1, 16, 30))
    with pytest.raises(ValueError, match="spectrogram_input=True needs num_channels=1, not 3"):
        FFNVisionConfig(spectrogram_input=True)
