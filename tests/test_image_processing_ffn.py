"""Image processors out of timm's config.json: the pixels of timm's own transform, written out here with Pillow."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import pipeline
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from hf_ffn import convert, export_pretrained
from hf_ffn.image_processing_ffn import FFNImageProcessor

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR, "box": Image.Resampling.BOX}
COLOURS = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
GREY = {"mean": [0.45], "std": [0.226]}
# Width and height; of (37, 53) and others the crop begins at half a pixel that timm rounds up.
PICTURES = [(37, 53), (53, 37), (500, 333), (40, 40), (5, 7), (101, 400)]


def folder_of(folder: Path, size: tuple[int, int], channels: int = 3, flat: bool = False, **described: Any) -> Path:
    """A tiny checkpoint of timm's, whose images are described like this."""
    hidden, patch = 16, 8
    grid = (size[0] // patch) * (size[1] // patch)
    shapes = {
        "patch_embed.proj.weight": (hidden, channels, patch, patch),
        "patch_embed.proj.bias": (hidden,),
        "pos_embed": (1, 1 + grid, hidden),
        "cls_token": (1, 1, hidden),
        "head.weight": (4, hidden),
        "head.bias": (4,),
        "norm.weight": (hidden,),
        "norm.bias": (hidden,),
    }
    for name, shape in {"attn.qkv": (48, 16), "attn.proj": (16, 16), "mlp.fc1": (32, 16), "mlp.fc2": (16, 32)}.items():
        shapes |= {f"blocks.0.{name}.weight": shape, f"blocks.0.{name}.bias": shape[:1]}
    for name in ("norm1", "norm2"):
        shapes |= {f"blocks.0.{name}.weight": (hidden,), f"blocks.0.{name}.bias": (hidden,)}
    generator = torch.Generator().manual_seed(0)
    folder.mkdir()
    save_file({n: torch.randn(s, generator=generator) for n, s in shapes.items()}, folder / "model.safetensors")
    own = {"input_size": [channels, *size], **described}
    config = {"architecture": "test_vit", "num_classes": 4, **(own if flat else {"pretrained_cfg": own})}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def as_timm_does(image: Image.Image, size: tuple[int, int], described: dict[str, Any], channels: int) -> torch.Tensor:
    """timm's transform for evaluation: resize, crop, normalise."""
    image = image.convert("L" if channels == 1 else "RGB")
    width, height = image.size
    scaled = [math.floor(side / described["crop_pct"]) for side in size]
    mode = described["crop_mode"]
    if mode == "squash":
        resized = scaled
    elif mode == "border":
        ratio = max(height / scaled[0], width / scaled[1])
        resized = [round(height / ratio), round(width / ratio)]
    elif scaled[0] != scaled[1]:
        ratio = min(height / scaled[0], width / scaled[1])
        resized = [round(height / ratio), round(width / ratio)]
    elif width <= height:
        resized = [int(scaled[0] * height / width), scaled[0]]
    else:
        resized = [scaled[0], int(scaled[0] * width / height)]
    image = image.resize((resized[1], resized[0]), FILTERS[described["interpolation"]])
    beside, below = max(size[1] - resized[1], 0), max(size[0] - resized[0], 0)
    mean = tuple(round(255 * value) for value in described["mean"]) if mode == "border" else (0,) * channels
    canvas = Image.new(image.mode, (resized[1] + beside, resized[0] + below), mean if channels == 3 else mean[0])
    canvas.paste(image, (beside // 2, below // 2))
    left, top = (round((canvas.width - size[1]) / 2), round((canvas.height - size[0]) / 2))
    cut = canvas.crop((left, top, left + size[1], top + size[0]))
    pixels = torch.from_numpy(np.array(cut).reshape(*size, channels)).permute(2, 0, 1) / 255
    return (pixels - torch.tensor(described["mean"])[:, None, None]) / torch.tensor(described["std"])[:, None, None]


def picture(width: int, height: int) -> Image.Image:
    """Noise, in which a crop that begins one pixel further shows."""
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


CASES = [
    *itertools.product([(32, 32), (48, 32)], [0.9, 1.0], ["center", "squash", "border"], ["bicubic"], [3]),
    ((32, 32), 0.875, "center", "bilinear", 1),
    ((32, 32), 1.0, "squash", "bicubic", 1),
    ((32, 32), 0.95, "border", "box", 1),
    ((32, 32), 1.1, "center", "bicubic", 3),
]


@pytest.mark.parametrize(("size", "part", "mode", "interpolation", "channels"), CASES)
def test_pixels_are_those_of_timms_transform(
    tmp_path: Path, size: tuple[int, int], part: float, mode: str, interpolation: str, channels: int
) -> None:
    described = {"crop_pct": part, "crop_mode": mode, "interpolation": interpolation}
    described |= COLOURS if channels == 3 else GREY
    source = folder_of(tmp_path / "timm", size, channels, **described)
    convert(source, tmp_path / "ours", check=False)
    processor = AutoImageProcessor.from_pretrained(tmp_path / "ours")
    processor.save_pretrained(tmp_path / "again")
    again = AutoImageProcessor.from_pretrained(tmp_path / "again")
    for width, height in PICTURES:
        image = picture(width, height)
        expected = as_timm_does(image, size, described, channels)
        for each in (processor, again):
            found = each(image, return_tensors="pt")["pixel_values"][0]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_what_timm_leaves_out_is_its_default_and_flat_files_say_the_same(tmp_path: Path) -> None:
    described = {"crop_pct": 0.875, "crop_mode": "center", "interpolation": "bicubic", **COLOURS}
    sources = [
        folder_of(tmp_path / "nothing", (32, 32)),
        folder_of(tmp_path / "flat", (32, 32), flat=True, **described),
    ]
    for source in sources:
        convert(source, tmp_path / f"{source.name}-ours", check=False)
        processor = AutoImageProcessor.from_pretrained(tmp_path / f"{source.name}-ours")
        found = processor(picture(37, 53), return_tensors="pt")["pixel_values"][0]
        expected = as_timm_does(picture(37, 53), (32, 32), described, 3)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("dynamic", "cut"), [(True, 48), (False, 32)])
def test_a_model_of_any_size_keeps_the_transforms_and_another_takes_its_own(
    tmp_path: Path, dynamic: bool, cut: int
) -> None:
    source = folder_of(tmp_path / "timm", (32, 32), crop_pct=1.0)
    config = json.loads((source / "config.json").read_text())
    config["pretrained_cfg"]["input_size"] = [3, 48, 48]
    config["model_args"] = {"img_size": 32, "dynamic_img_size": dynamic}
    (source / "config.json").write_text(json.dumps(config))
    model, _ = convert(source, tmp_path / "ours", check=False, family="timm" if dynamic else None)
    assert model.config.image_size == [32, 32]
    processor = AutoImageProcessor.from_pretrained(tmp_path / "ours")
    inputs = processor(picture(60, 50), return_tensors="pt")
    assert inputs["pixel_values"].shape == (1, 3, cut, cut)
    assert model(**inputs).logits.shape == (1, model.num_labels)


def test_pixels_that_are_to_stay_unscaled_are_refused(tmp_path: Path) -> None:
    convert(folder_of(tmp_path / "timm", (32, 32), crop_pct=1.0), tmp_path / "ours", check=False)
    processor = AutoImageProcessor.from_pretrained(tmp_path / "ours")
    scaled = np.asarray(picture(40, 40), dtype=np.float32) / 255
    expected = processor(picture(40, 40), return_tensors="pt")["pixel_values"]
    assert torch.equal(processor(scaled, return_tensors="pt")["pixel_values"], expected)
    with pytest.raises(ValueError, match="do_rescale=False: this image processor resizes bytes"):
        processor(scaled, do_rescale=False, return_tensors="pt")


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"crop_mode": "corners"}, "crop_mode='corners' of its pretrained_cfg is unknown"),
        ({"interpolation": "random"}, "interpolation='random'"),
        ({"channels": 4}, "its images have 4 channels"),
    ],
)
def test_what_no_image_processor_does_is_named_and_none_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, described: dict[str, Any], reason: str
) -> None:
    convert(folder_of(tmp_path / "timm", (32, 32), **described), tmp_path / "ours", check=False)
    assert f"no image processor is written for '{tmp_path / 'timm'}': {reason}" in caplog.text
    assert not (tmp_path / "ours" / "preprocessor_config.json").exists()


@pytest.mark.parametrize("channels", [1, 3])
def test_a_pipeline_takes_pictures_in_colour_or_grey(tmp_path: Path, channels: int) -> None:
    model, _ = convert(folder_of(tmp_path / "timm", (32, 32), channels), tmp_path / "ours", check=False)
    classify = pipeline("image-classification", model=str(tmp_path / "ours"))
    pixels = classify.image_processor(picture(37, 53), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        best = model.eval()(pixels).logits.argmax(-1).item()
    assert classify(picture(37, 53))[0]["label"] == classify(picture(37, 53).convert("RGBA"))[0]["label"]
    assert classify(picture(37, 53))[0]["label"] == f"LABEL_{best}"


def test_going_back_to_timm_leaves_images_to_its_own_config(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "timm", (32, 32), **COLOURS)
    model, _ = convert(source, tmp_path / "ours", check=False)
    export_pretrained(type(model).from_pretrained(tmp_path / "ours"), tmp_path / "back")
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"config.json", "model.safetensors"}
    assert json.loads((tmp_path / "back" / "config.json").read_text()) == json.loads(
        (source / "config.json").read_text()
    )


def test_arrays_and_tensors_give_the_same_pixels() -> None:
    image = picture(9, 6)
    processor = FFNImageProcessor(size={"height": 8, "width": 8}, num_channels=1, image_mean=[0.5], image_std=[0.5])
    expected = processor(image, return_tensors="pt")["pixel_values"]
    assert expected.shape == (1, 1, 8, 8)
    array = np.array(image)
    grey = np.array(image.convert("L"))
    for given in (array, torch.from_numpy(array.transpose(2, 0, 1).copy()), grey[:, :, None]):
        assert torch.equal(processor(given, return_tensors="pt")["pixel_values"], expected)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="crop_mode='centre' must be one of center, squash, border"):
        FFNImageProcessor(crop_mode="centre")
    with pytest.raises(ValueError, match="num_channels=4 must be"):
        FFNImageProcessor(num_channels=4)
