"""The image encoder and its head: patches, positions, refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import hf_ffn
from hf_ffn import FFNVisionModel

from tiny import VIT_CLASSES, ffn_model, image_inputs

VISION_CLASSES = list(VIT_CLASSES.values())


def pixels(model: Any, *size: int, batch_size: int = 2) -> torch.Tensor:
    """Random images, of the size that the model is made for where none is given."""
    return image_inputs(model.config, size=size or (32, 32), batch_size=batch_size)["pixel_values"]


# Names


def test_pinned_names_of_a_classifier() -> None:
    assert sorted(ffn_model("FFNForImageClassification", num_hidden_layers=1).state_dict()) == [
        "classifier.bias",
        "classifier.weight",
        "model.embeddings.cls_token",
        "model.embeddings.patch_embeddings.projection.bias",
        "model.embeddings.patch_embeddings.projection.weight",
        "model.embeddings.position_embeddings",
        "model.encoder.layers.0.attention.k_proj.bias",
        "model.encoder.layers.0.attention.k_proj.weight",
        "model.encoder.layers.0.attention.o_proj.bias",
        "model.encoder.layers.0.attention.o_proj.weight",
        "model.encoder.layers.0.attention.q_proj.bias",
        "model.encoder.layers.0.attention.q_proj.weight",
        "model.encoder.layers.0.attention.v_proj.bias",
        "model.encoder.layers.0.attention.v_proj.weight",
        "model.encoder.layers.0.ffn.linear_1.bias",
        "model.encoder.layers.0.ffn.linear_1.weight",
        "model.encoder.layers.0.ffn.linear_2.bias",
        "model.encoder.layers.0.ffn.linear_2.weight",
        "model.encoder.layers.0.norm_1.bias",
        "model.encoder.layers.0.norm_1.weight",
        "model.encoder.layers.0.norm_2.bias",
        "model.encoder.layers.0.norm_2.weight",
        "model.encoder.norm.bias",
        "model.encoder.norm.weight",
    ]


def test_pinned_names_of_the_pooler() -> None:
    names = set(ffn_model("FFNVisionModel").state_dict())
    assert {name for name in names if not name.startswith(("embeddings.", "encoder."))} == {
        "pooler.dense.bias",
        "pooler.dense.weight",
    }


# Patches and positions


@pytest.mark.parametrize(
    ("image_size", "patch_size", "grid"),
    [(32, 8, (4, 4)), ((16, 48), 8, (2, 6)), ((32, 24), (16, 4), (2, 6)), (32, (8, 16), (4, 2)), (35, 8, (4, 4))],
)
def test_each_patch_becomes_one_token_in_reading_order(
    image_size: Any, patch_size: Any, grid: tuple[int, int]
) -> None:
    model = ffn_model("FFNVisionModel", image_size=image_size, patch_size=patch_size)
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    patch_height, patch_width = (patch_size, patch_size) if isinstance(patch_size, int) else patch_size
    images = pixels(model, height, width)
    embedded = model.embeddings(images)
    assert embedded.shape == (2, 1 + grid[0] * grid[1], 32)
    assert model(images).last_hidden_state.shape == embedded.shape
    for down, across in ((0, 0), (0, grid[1] - 1), (1, 0), (grid[0] - 1, grid[1] - 1)):
        changed = images.clone()
        changed[1, :, (down + 1) * patch_height - 1, across * patch_width] += 1
        moved = (model.embeddings(changed) != embedded).any(-1).nonzero().tolist()
        assert moved == [[1, 1 + down * grid[1] + across]]


def test_an_image_of_256_by_192_in_patches_of_16_is_193_tokens() -> None:
    model = ffn_model("FFNVisionModel", image_size=(256, 192), patch_size=16, num_hidden_layers=1)
    assert model(pixels(model, 256, 192, batch_size=1)).last_hidden_state.shape == (1, 193, 32)


@pytest.mark.parametrize("image_size", [32, (16, 48)])
@pytest.mark.parametrize("name", VISION_CLASSES)
def test_interpolating_to_the_same_size_is_the_identity(name: str, image_size: Any) -> None:
    model = ffn_model(name, image_size=image_size)
    images = pixels(model, *(image_size if isinstance(image_size, tuple) else ()))
    assert torch.equal(model(images, interpolate_pos_encoding=True)[0], model(images)[0])


@pytest.mark.parametrize("size", [(48, 48), (24, 40), (64, 16), (35, 50)])
@pytest.mark.parametrize(("theirs", "ours"), VIT_CLASSES.items())
def test_interpolated_positions_give_what_vit_gives(
    theirs: str, ours: str, size: tuple[int, int], save_source: Callable[..., Path]
) -> None:
    folder = save_source(theirs)
    model = getattr(hf_ffn, ours).from_pretrained(folder)
    original = getattr(transformers, theirs).from_pretrained(folder)
    images = pixels(model, *size)
    expected = original(images, interpolate_pos_encoding=True)[0]
    assert torch.equal(model(images, interpolate_pos_encoding=True)[0], expected)


@pytest.mark.parametrize("size", [(32, 48), (8, 80), (64, 24)])
def test_interpolation_leaves_the_class_token_alone(size: tuple[int, int]) -> None:
    model = ffn_model("FFNVisionModel", image_size=(16, 48))
    expected = model.embeddings(pixels(model, 16, 48))[:, 0]
    assert torch.equal(model.embeddings(pixels(model, *size), interpolate_pos_encoding=True)[:, 0], expected)


@pytest.mark.parametrize("axis", ["down", "across"])
def test_interpolation_keeps_rows_rows_and_columns_columns(axis: str) -> None:
    model = ffn_model("FFNVisionModel", image_size=(16, 48))
    down, across = torch.meshgrid(torch.arange(2.0), torch.arange(6.0), indexing="ij")
    place = down if axis == "down" else across
    with torch.no_grad():
        model.embeddings.position_embeddings[0, 1:] = place.flatten()[:, None]
    positions = model.embeddings.positions_for((4, 3))[0, 1:, 0].unflatten(0, (4, 3))
    along, other = (positions, positions.T) if axis == "down" else (positions.T, positions)
    assert (along.diff(dim=0) > 0.1).all()
    torch.testing.assert_close(other.diff(dim=0), torch.zeros_like(other.diff(dim=0)), atol=1e-5, rtol=0)


def test_what_is_left_over_beside_the_last_whole_patch_does_not_count() -> None:
    model = ffn_model("FFNVisionModel")
    images = pixels(model, 35, 39)
    left = model(images, interpolate_pos_encoding=True).last_hidden_state
    assert torch.equal(left, model(images[..., :32, :32]).last_hidden_state)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_pixels_of_any_type_are_taken_in_the_models_precision(dtype: torch.dtype) -> None:
    model = ffn_model("FFNVisionModel").to(dtype)
    images = pixels(model).to(dtype)
    for other in (images.float(), images.double()):
        outputs = model(other)
        assert outputs.last_hidden_state.dtype == dtype
        assert torch.equal(outputs.last_hidden_state, model(images).last_hidden_state)


# Refusals


@pytest.mark.parametrize(
    ("shape", "interpolate", "message"),
    [
        ((2, 1, 32, 32), False, r"\(2, 1, 32, 32\).*num_channels=3"),
        ((2, 4, 48, 48), True, r"\(2, 4, 48, 48\).*num_channels=3"),
        ((3, 32, 32), False, r"\(3, 32, 32\).*\(batch, channels, height, width\)"),
        ((32,), False, r"\(32,\).*\(batch, channels, height, width\)"),
        ((2, 3, 40, 32), False, "40x32 .*image_size=32x32.*interpolate_pos_encoding"),
        ((2, 3, 32, 24), False, "32x24 .*image_size=32x32"),
        ((2, 3, 4, 40), True, "4x40 .*smaller than one patch.*8x8"),
    ],
)
@pytest.mark.parametrize("name", VISION_CLASSES)
def test_images_that_cannot_be_are_refused_naming_their_shape(
    name: str, shape: tuple[int, ...], interpolate: bool, message: str
) -> None:
    model = ffn_model(name)
    with pytest.raises(ValueError, match=message):
        model(torch.zeros(shape), interpolate_pos_encoding=interpolate)


# Pooling and the head


def test_there_is_no_pooled_output_without_a_pooler() -> None:
    model = FFNVisionModel(ffn_model("FFNVisionModel").config, add_pooling_layer=False)
    assert model(pixels(model)).pooler_output is None
    assert not [name for name in model.state_dict() if "pooler" in name]


def test_the_pooler_has_the_width_and_the_activation_of_the_configuration() -> None:
    model = ffn_model("FFNVisionModel", pooler_output_size=7, pooler_act="relu")
    outputs = model(pixels(model))
    expected = torch.relu(model.pooler.dense(outputs.last_hidden_state[:, 0]))
    assert outputs.pooler_output.shape == (2, 7)
    assert torch.equal(outputs.pooler_output, expected)
    assert (expected == 0).any()
    assert (expected > 1).any()


def test_the_classifier_reads_the_class_token() -> None:
    model = ffn_model("FFNForImageClassification")
    outputs = model(pixels(model), output_hidden_states=True)
    class_token = model.model.encoder.norm(outputs.hidden_states[-1])[:, 0]
    assert torch.equal(outputs.logits, model.classifier(class_token))


def test_images_of_other_channels_than_three_are_taken() -> None:
    model = ffn_model("FFNForImageClassification", num_channels=1)
    assert model(pixels(model)).logits.shape == (2, 2)
