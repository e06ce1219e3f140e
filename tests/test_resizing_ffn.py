"""Loading at other sizes: longer and shorter texts, images of another size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import AutoConfig, AutoModel

import hf_ffn
from hf_ffn import FFNForMaskedLM, FFNTextConfig, FFNTextModel, FFNVisionModel, export_pretrained
from hf_ffn.families.dinov3 import KNOWS_SQUARES_ALONE
from hf_ffn.resizing_ffn import resized_rows

from families import ROWS, Row
from families.rows import source_class
from tiny import BERT_CLASSES, VIT_CLASSES, image_inputs, our_class, rewrite, telling_model, text_inputs, to_bin

Save = Callable[..., Path]


def positions(model: Any) -> torch.Tensor:
    """The table of positions of one of our models, `(positions, hidden_size)`."""
    table = model.base_model.embeddings.position_embeddings
    return getattr(table, "weight", table).detach().squeeze(0)


def outputs(model: Any, inputs: dict[str, torch.Tensor], **kwargs: Any) -> torch.Tensor:
    """The first output of a model."""
    with torch.no_grad():
        return model(**inputs, **kwargs)[0]


def native(folder: Path, model_class: type) -> Path:
    """The same checkpoint in our own format."""
    model_class.from_pretrained(folder).save_pretrained(folder / "native")
    return folder / "native"


# Texts


@pytest.mark.parametrize("converted", [True, False])
@pytest.mark.parametrize("theirs", BERT_CLASSES)
def test_a_longer_model_gives_short_texts_the_same_outputs(save_source: Save, theirs: str, converted: bool) -> None:
    folder = save_source(theirs)
    if not converted:
        folder = native(folder, our_class(theirs))
    short = our_class(theirs).from_pretrained(folder)
    long = our_class(theirs).from_pretrained(folder, max_position_embeddings=100)
    assert long.config.max_position_embeddings == 100
    for inputs in (text_inputs(short.config), text_inputs(short.config, length=40)):
        assert torch.equal(outputs(long, inputs), outputs(short, inputs))
    assert outputs(long, text_inputs(short.config, length=100)).isfinite().all()
    assert {n: t for n, t in long.state_dict().items() if not torch.equal(t, short.state_dict()[n])}.keys() <= {
        f"{'' if theirs == 'BertModel' else 'model.'}embeddings.position_embeddings.weight"
    }


def test_tiled_positions_repeat_the_learnt_ones(save_source: Save) -> None:
    folder = save_source("BertModel")
    learnt = positions(FFNTextModel.from_pretrained(folder))
    long = positions(FFNTextModel.from_pretrained(folder, max_position_embeddings=100))
    assert torch.equal(long, torch.cat([learnt, learnt, learnt[:20]]))


def test_rows_before_the_first_position_are_kept_and_not_repeated() -> None:
    rows = torch.tensor([[-2.0], [-1.0], [10.0], [11.0], [12.0]])
    tiled = resized_rows(rows, 9, first=2, extend_positions="tile")
    assert tiled.flatten().tolist() == [-2, -1, 10, 11, 12, 10, 11, 12, 10]
    stretched = resized_rows(rows, 7, first=2, extend_positions="interpolate")
    assert stretched.flatten().tolist() == [-2, -1, 10, 10.5, 11, 11.5, 12]
    assert resized_rows(rows, 4, first=2, extend_positions="tile").flatten().tolist() == [-2, -1, 10, 11]


def test_positions_that_count_from_another_row_on_are_repeated_from_there(
    save_source: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_source("BertModel")
    learnt = positions(FFNTextModel.from_pretrained(folder))
    monkeypatch.setattr(FFNTextConfig, "longest_sequence", property(lambda self: self.max_position_embeddings - 2))
    model = FFNTextModel.from_pretrained(folder, max_position_embeddings=60)
    assert torch.equal(positions(model), torch.cat([learnt, learnt[2:22]]))
    assert "repeat the checkpoint's 2…39" in str(model.loading_report)


def test_a_model_without_learnt_positions_only_notes_the_number(
    save_source: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_source("BertModel")
    monkeypatch.setattr(FFNTextConfig, "longest_sequence", property(lambda self: None))
    model = FFNTextModel.from_pretrained(folder, max_position_embeddings=60)
    assert model.config.max_position_embeddings == 60
    assert torch.equal(positions(model), positions(FFNTextModel.from_pretrained(folder)))
    assert "there are no learnt positions" in str(model.loading_report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_interpolated_positions_are_the_learnt_ones_stretched(save_source: Save, dtype: torch.dtype) -> None:
    folder = save_source("BertModel")

    def as_a_line(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        line = torch.arange(40.0).unsqueeze(1) * torch.linspace(-1, 1, 32)
        return tensors | {"embeddings.position_embeddings.weight": line}

    rewrite(folder, as_a_line)
    model = FFNTextModel.from_pretrained(
        folder, max_position_embeddings=157, extend_positions="interpolate", dtype=dtype
    )
    rows = positions(model)
    assert rows.dtype == dtype
    # 157 rows over the old 39 steps: a quarter of a step each
    expected = torch.arange(0, 39.25, 0.25).unsqueeze(1) * torch.linspace(-1, 1, 32)
    assert torch.allclose(rows.float(), expected, atol=1e-5 if dtype == torch.float32 else 0.3)
    assert torch.equal(rows[0], positions(FFNTextModel.from_pretrained(folder, dtype=dtype))[0])


@pytest.mark.parametrize("theirs", BERT_CLASSES)
def test_a_shorter_model_keeps_the_first_positions(save_source: Save, theirs: str) -> None:
    folder = save_source(theirs)
    whole = our_class(theirs).from_pretrained(folder)
    short = our_class(theirs).from_pretrained(folder, max_position_embeddings=12)
    assert torch.equal(positions(short), positions(whole)[:12])
    assert torch.equal(outputs(short, text_inputs(short.config)), outputs(whole, text_inputs(short.config)))
    assert "positions 12…39 were cut off" in str(short.loading_report)
    with pytest.raises(ValueError, match=r"longer than .*max_position_embeddings=12"):
        short(**text_inputs(short.config, length=13))


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({}, ["positions 40…99 repeat the checkpoint's 0…39", "(tile)", "need fine-tuning"]),
        ({"extend_positions": "interpolate"}, ["(interpolate)", "short texts give other outputs", "need fine-tuning"]),
    ],
)
def test_how_the_new_positions_were_made_is_said(
    save_source: Save, messages: pytest.LogCaptureFixture, keywords: dict, said: list[str]
) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"), max_position_embeddings=100, **keywords)
    for part in said:
        assert part in str(model.loading_report)
        assert part in messages.text


@pytest.mark.parametrize(
    ("save_kwargs", "change"),
    [({}, to_bin), ({"max_shard_size": "20KB"}, lambda folder: folder)],
    ids=["bin", "shards"],
)
def test_bin_files_and_shards_are_extended(save_source: Save, save_kwargs: dict, change: Callable) -> None:
    folder = change(save_source("BertForMaskedLM", save_kwargs=save_kwargs))
    rows = positions(FFNForMaskedLM.from_pretrained(folder, max_position_embeddings=60))
    assert torch.equal(rows[:40], positions(FFNForMaskedLM.from_pretrained(folder)))
    assert torch.equal(rows[40:], rows[:20])


def test_a_configuration_of_another_size_resizes_too(save_source: Save) -> None:
    folder = native(save_source("BertModel"), FFNTextModel)
    expected = positions(FFNTextModel.from_pretrained(folder, max_position_embeddings=60))
    config = AutoConfig.from_pretrained(folder, max_position_embeddings=60)
    assert torch.equal(positions(FFNTextModel.from_pretrained(folder, config=config)), expected)
    assert config.max_position_embeddings == 60
    assert torch.equal(positions(AutoModel.from_pretrained(folder, max_position_embeddings=60)), expected)
    stretched = AutoModel.from_pretrained(folder, max_position_embeddings=60, extend_positions="interpolate")
    assert not torch.equal(positions(stretched), expected)


def test_tolerating_mismatches_does_not_make_positions_random(save_source: Save) -> None:
    folder = save_source("BertModel")
    model = FFNTextModel.from_pretrained(folder, max_position_embeddings=60, ignore_mismatched_sizes=True)
    assert torch.equal(positions(model)[:40], positions(FFNTextModel.from_pretrained(folder)))
    assert model.loading_report.new == []


def test_a_longer_model_is_saved_exported_and_trained_at_its_new_size(save_source: Save, tmp_path: Path) -> None:
    model = FFNTextModel.from_pretrained(save_source("BertModel"), max_position_embeddings=60)
    model.save_pretrained(tmp_path / "native")
    export_pretrained(model, tmp_path / "back")
    inputs = text_inputs(model.config, length=60)
    for again in (
        FFNTextModel.from_pretrained(tmp_path / "native"),
        transformers.BertModel.from_pretrained(tmp_path / "back"),
    ):
        assert again.config.max_position_embeddings == 60
        assert torch.equal(outputs(again, inputs), outputs(model, inputs))
    model(**inputs).last_hidden_state.sum().backward()
    assert (model.embeddings.position_embeddings.weight.grad[40:] != 0).any()


# Images


SIZES = [48, 16, (48, 16), [24, 64]]


@pytest.mark.parametrize("converted", [True, False])
@pytest.mark.parametrize("image_size", SIZES)
@pytest.mark.parametrize("theirs", VIT_CLASSES)
def test_another_image_size_gives_what_interpolating_in_forward_gives(
    save_source: Save, theirs: str, image_size: Any, converted: bool
) -> None:
    folder = save_source(theirs)
    original = getattr(transformers, theirs).from_pretrained(folder)
    if not converted:
        folder = native(folder, our_class(theirs))
    model = our_class(theirs).from_pretrained(folder, image_size=image_size)
    assert model.config.image_size == image_size
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    inputs = image_inputs(model.config, size=size)
    expected = outputs(original, inputs, interpolate_pos_encoding=True)
    assert torch.equal(outputs(model, inputs), expected)
    with pytest.raises(ValueError, match="does not match image_size"):
        model(**image_inputs(model.config, size=(32, 32)))


def test_the_same_number_of_patches_in_another_grid_is_interpolated(save_source: Save) -> None:
    folder = save_source("ViTModel", image_size=(16, 48))
    wide, high = (FFNVisionModel.from_pretrained(folder, image_size=size) for size in [(16, 48), (48, 16)])
    assert positions(wide).shape == positions(high).shape
    inputs = image_inputs(high.config, size=(48, 16))
    assert torch.equal(outputs(high, inputs), outputs(wide, inputs, interpolate_pos_encoding=True))
    assert not torch.equal(positions(high)[1:], positions(wide)[1:])


@pytest.mark.parametrize("image_size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_class_tokens_position_is_untouched(save_source: Save, image_size: Any, dtype: torch.dtype) -> None:
    folder = save_source("ViTModel")
    resized = positions(FFNVisionModel.from_pretrained(folder, image_size=image_size, dtype=dtype))
    assert resized.dtype == dtype
    assert torch.equal(resized[0], positions(FFNVisionModel.from_pretrained(folder, dtype=dtype))[0])


@pytest.mark.parametrize(("own", "same"), [(32, 32), (32, (32, 32)), ([16, 48], (16, 48))])
def test_the_same_size_changes_and_says_nothing(
    save_source: Save, messages: pytest.LogCaptureFixture, own: Any, same: Any
) -> None:
    folder = save_source("ViTModel", image_size=own)
    before = FFNVisionModel.from_pretrained(folder)
    model = FFNVisionModel.from_pretrained(folder, image_size=same)
    assert torch.equal(positions(model), positions(before))
    assert messages.text == ""
    text = save_source("BertModel", "text")
    model = FFNTextModel.from_pretrained(text, max_position_embeddings=40)
    assert torch.equal(positions(model), positions(FFNTextModel.from_pretrained(text)))
    assert messages.text == ""


def test_a_size_with_as_many_patches_keeps_the_positions(save_source: Save) -> None:
    folder = save_source("ViTModel")
    model = FFNVisionModel.from_pretrained(folder, image_size=35)
    assert torch.equal(positions(model), positions(FFNVisionModel.from_pretrained(folder)))
    assert "the positions stay" in str(model.loading_report)
    assert outputs(model, image_inputs(model.config, size=(35, 35))).shape == (2, 17, 32)


def test_a_resized_image_model_asks_for_fine_tuning(save_source: Save, messages: pytest.LogCaptureFixture) -> None:
    model = FFNVisionModel.from_pretrained(save_source("ViTModel"), image_size=(48, 16))
    for text in (messages.text, str(model.loading_report)):
        assert "image_size=48x16" in text
        assert "interpolated; such a model needs fine-tuning" in text


@pytest.mark.parametrize("theirs", VIT_CLASSES)
def test_a_resized_image_model_is_saved_exported_and_trained_at_its_new_size(
    save_source: Save, tmp_path: Path, theirs: str
) -> None:
    model = our_class(theirs).from_pretrained(save_source(theirs), image_size=(48, 16))
    model.save_pretrained(tmp_path / "native")
    export_pretrained(model, tmp_path / "back")
    inputs = image_inputs(model.config, size=(48, 16))
    for again in (
        our_class(theirs).from_pretrained(tmp_path / "native"),
        getattr(transformers, theirs).from_pretrained(tmp_path / "back"),
    ):
        assert list(again.config.image_size) == [48, 16]
        assert torch.equal(outputs(again, inputs), outputs(model, inputs))
    model(**inputs)[0].sum().backward()
    assert (model.base_model.embeddings.position_embeddings.grad != 0).all()


def test_256_by_192_in_patches_of_16_is_193_tokens(save_source: Save) -> None:
    folder = save_source("ViTModel", image_size=224, patch_size=16, num_hidden_layers=1)
    model = FFNVisionModel.from_pretrained(folder, image_size=(256, 192))
    assert positions(model).shape == (193, 32)
    assert outputs(model, image_inputs(model.config, size=(256, 192), batch_size=1)).shape == (1, 193, 32)


# Every family


def save_row(row: Row, ours: str, theirs: str, folder: Path) -> type:
    """Save a telling model of a family to a folder; returns our class."""
    telling_model(source_class(theirs), row.source_config(theirs)).save_pretrained(folder)
    return getattr(hf_ffn, ours)


@pytest.mark.parametrize("row", [row for row in ROWS if row.family.native_type == "hf_ffn_text"], ids=str)
def test_short_texts_keep_their_outputs_in_every_family(row: Row, tmp_path: Path) -> None:
    model_class = save_row(row, *row.pairs[0], tmp_path)
    short = model_class.from_pretrained(tmp_path)
    long = model_class.from_pretrained(tmp_path, max_position_embeddings=90)
    inputs = row.inputs(short.config, True)
    assert torch.equal(outputs(long, inputs), outputs(short, inputs))
    ids = torch.randint(5, 30, (1, long.config.longest_sequence or 90), generator=torch.Generator().manual_seed(1))
    export_pretrained(long, tmp_path / "back")
    back = source_class(row.pairs[0][1]).from_pretrained(tmp_path / "back")
    assert torch.allclose(outputs(back, {"input_ids": ids}), outputs(long, {"input_ids": ids}), atol=1e-4)


# Their own classes take images for squares, and would give another result or none.
SQUARES_ALONE = {"clip", "siglip", "dinov2", "dinov2-with-registers", "beit", "data2vec-vision"}
if KNOWS_SQUARES_ALONE:
    SQUARES_ALONE |= {"dinov3", "dinov3-gated", "dinov3-without-biases"}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("row", [row for row in ROWS if row.family.native_type == "hf_ffn_vision"], ids=str)
def test_resized_images_give_what_interpolating_in_forward_gives_in_every_family(
    row: Row, tmp_path: Path, wide: bool
) -> None:
    model_class = save_row(row, *row.pairs[0], tmp_path)
    model = model_class.from_pretrained(tmp_path)
    embeddings = model.base_model.embeddings
    sizes = zip(embeddings.image_size, embeddings.patch_embeddings.projection.kernel_size, strict=True)
    height, width = (side + patch for side, patch in sizes)
    size = (height, 2 * width) if wide else (height, width)
    resized = model_class.from_pretrained(tmp_path, image_size=size)
    inputs = image_inputs(model.config, size=size)
    assert torch.equal(outputs(resized, inputs), outputs(model, inputs, interpolate_pos_encoding=True))
    for name, tensor in resized.state_dict().items():
        grown = "position_embeddings" in name or "table" in name
        assert grown or torch.equal(tensor, model.state_dict()[name]), name
    if wide and row.name in SQUARES_ALONE:
        with pytest.raises(ValueError, match=r"cannot express image_size=\(40, 80\): height and width are one number"):
            export_pretrained(resized, tmp_path / "back")
        return
    export_pretrained(resized, tmp_path / "back")
    back = source_class(row.pairs[0][1]).from_pretrained(tmp_path / "back")
    found = outputs(back, row.prepared(back, inputs))
    assert torch.allclose(found, outputs(resized, inputs), atol=1e-4)


# What is refused


@pytest.mark.parametrize("tolerant", [True, False])
@pytest.mark.parametrize("converted", [True, False])
def test_another_patch_size_is_refused(save_source: Save, converted: bool, tolerant: bool) -> None:
    folder = save_source("ViTModel")
    if not converted:
        folder = native(folder, FFNVisionModel)
    with pytest.raises(ValueError, match="projects patches of 8 pixels, and patches cannot be resized"):
        FFNVisionModel.from_pretrained(folder, patch_size=16, ignore_mismatched_sizes=tolerant)


@pytest.mark.parametrize(
    ("theirs", "keywords", "named"),
    [
        ("BertModel", {"max_position_embeddings": 60, "extend_positions": "copy"}, "one of 'tile', 'interpolate'"),
        ("BertModel", {"extend_positions": ""}, "one of 'tile', 'interpolate'"),
        ("BertModel", {"max_position_embeddings": 0}, "max_position_embeddings=0 must be at least 1"),
        ("BertModel", {"max_position_embeddings": "60"}, "'max_position_embeddings' expected int"),
        ("BertModel", {"max_position_embeddings": None}, "'max_position_embeddings' expected int"),
        ("ViTModel", {"image_size": 48, "extend_positions": "tile"}, "for the positions of a text"),
        ("ViTModel", {"image_size": 4}, "smaller than one patch"),
        ("ViTModel", {"image_size": [48, 48, 3]}, "must be one number"),
        ("ViTModel", {"image_size": "48"}, "'image_size' with value '48'"),
    ],
)
def test_an_impossible_size_is_refused_by_name(save_source: Save, theirs: str, keywords: dict, named: str) -> None:
    with pytest.raises((ValueError, StrictDataclassFieldValidationError), match=named):
        our_class(theirs).from_pretrained(save_source(theirs), **keywords)


@pytest.mark.parametrize(
    ("theirs", "keywords"), [("BertModel", {"max_position_embeddings": 60}), ("ViTModel", {"image_size": 48})]
)
def test_a_table_that_disagrees_with_the_config_is_refused_at_any_size(
    save_source: Save, theirs: str, keywords: dict
) -> None:
    folder = save_source(theirs)

    def cut(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {n: (t[..., :10, :].contiguous() if "position_embeddings" in n else t) for n, t in tensors.items()}

    rewrite(folder, cut)
    with pytest.raises(ValueError, match=r"disagree[\s\S]*of another shape: embeddings.position_embeddings"):
        our_class(theirs).from_pretrained(folder, **keywords)


def test_offloaded_positions_are_refused(save_source: Save, tmp_path: Path) -> None:
    device_map = {"embeddings": "disk", "encoder": "cpu", "pooler": "cpu"}
    folder = save_source("BertModel")
    with pytest.raises(ValueError, match="while weights are offloaded"):
        FFNTextModel.from_pretrained(
            folder, max_position_embeddings=60, device_map=device_map, offload_folder=tmp_path / "offload"
        )
