"""An image processor's file comes along, and says which class reads it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import ASTFeatureExtractor, AutoFeatureExtractor, ViTForImageClassification
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from hf_ffn import FAMILIES, FFNForImageClassification, FFNVisionConfig, convert, export_pretrained
from hf_ffn.hub.facts import gather
from hf_ffn.hub.stage import stage
from hf_ffn.image_processor_files import copy_image_processor, load_image_processor

from tiny import telling_model, vit_config

FILE = "preprocessor_config.json"
# As ViT's files of 2021 were.
OF_2021: dict[str, Any] = {
    "do_normalize": True,
    "do_resize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
    "resample": 3,
    "size": 32,
}


def save_vit(folder: Path, **content: Any) -> Path:
    """A tiny ViT with this file beside it."""
    telling_model(ViTForImageClassification, vit_config(num_labels=3)).save_pretrained(folder)
    (folder / FILE).write_text(json.dumps(content))
    return folder


def pixels(folder: Path) -> np.ndarray:
    """What the image processor of a folder makes of a picture."""
    noise = np.random.default_rng(0).integers(0, 256, (53, 37, 3), dtype=np.uint8)
    return AutoImageProcessor.from_pretrained(folder)(Image.fromarray(noise), return_tensors="np")["pixel_values"]


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"feature_extractor_type": "ViTFeatureExtractor"},
        {"feature_extractor_type": "ViTFeatureExtractor", "image_processor_type": "ViTFeatureExtractor"},
    ],
)
def test_an_old_file_gets_its_class_and_gives_the_same_pixels_wherever_it_goes(
    tmp_path: Path, named: dict[str, str]
) -> None:
    source = save_vit(tmp_path / "vit", **OF_2021)
    expected = pixels(source)
    (source / FILE).write_text(json.dumps({**named, **OF_2021}))
    model, _ = convert(source, tmp_path / "ours")
    export_pretrained(model, tmp_path / "straight back")
    export_pretrained(FFNForImageClassification.from_pretrained(tmp_path / "ours"), tmp_path / "back")
    for name in ("ours", "straight back", "back"):
        stored = json.loads((tmp_path / name / FILE).read_text())
        assert stored == {"image_processor_type": "ViTImageProcessor", **OF_2021}, name
        assert np.array_equal(pixels(tmp_path / name), expected), name
    facts = gather(tmp_path / "ours")
    assert (facts.has_image_processor, facts.has_feature_extractor) == (True, False)


def test_a_converted_folder_of_before_is_staged_with_the_class(tmp_path: Path) -> None:
    FFNForImageClassification.from_pretrained(save_vit(tmp_path / "vit")).save_pretrained(tmp_path / "ours")
    (tmp_path / "ours" / FILE).write_text(json.dumps(OF_2021))
    copy_image_processor(FFNVisionConfig.from_pretrained(tmp_path / "ours"), tmp_path / "ours", tmp_path)
    assert json.loads((tmp_path / FILE).read_text())["image_processor_type"] == "ViTImageProcessor"


@pytest.mark.parametrize(
    ("family", "class_name"),
    [
        *((name, "ViTImageProcessor") for name in ("vit", "vit-mae", "vit-msn", "ijepa")),
        *((name, "BeitImageProcessor") for name in ("beit", "data2vec-vision")),
        *(("deit", "DeiTImageProcessor"), ("dinov2", "BitImageProcessor"), ("dinov3", "DINOv3ViTImageProcessor")),
        *(("clip", "CLIPImageProcessor"), ("siglip", "SiglipImageProcessor")),
    ],
)
def test_each_family_has_its_class_also_within_a_processors_file(tmp_path: Path, family: str, class_name: str) -> None:
    source, config = tmp_path / "source", FFNVisionConfig(source_family=family)
    source.mkdir()
    (source / FILE).write_text(json.dumps({"do_resize": True}))
    inner = {"image_processor": {"do_resize": True}, "processor_class": "CLIPProcessor"}
    (source / "processor_config.json").write_text(json.dumps(inner))
    copy_image_processor(config, source, tmp_path)
    expected = {"image_processor_type": class_name, "do_resize": True}
    assert json.loads((tmp_path / FILE).read_text()) == expected
    stored = json.loads((tmp_path / "processor_config.json").read_text())
    assert stored == {**inner, "image_processor": expected}


@pytest.mark.parametrize("content", [{"do_normalize": False}, ASTFeatureExtractor(num_mel_bins=16).to_dict()])
def test_what_reads_sounds_keeps_or_gets_its_class(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / FILE).write_text(json.dumps(content))
    config = FFNVisionConfig(source_family=FAMILIES["audio-spectrogram-transformer"].name)
    copy_image_processor(config, tmp_path / "source", tmp_path)
    assert json.loads((tmp_path / FILE).read_text()) == {"feature_extractor_type": "ASTFeatureExtractor", **content}
    assert isinstance(AutoFeatureExtractor.from_pretrained(tmp_path), ASTFeatureExtractor)


def test_of_an_unknown_family_a_file_without_a_class_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / FILE).write_text(json.dumps(OF_2021))
    copy_image_processor(FFNVisionConfig(), tmp_path / "source", tmp_path)
    assert f"'{tmp_path / 'source' / FILE}' does not say which class reads it" in caplog.text
    assert json.loads((tmp_path / FILE).read_text()) == OF_2021


def test_the_code_of_an_image_processor_of_its_own_comes_along_or_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = {"auto_map": {"AutoImageProcessor": "mine.Mine"}, "image_processor_type": "Mine"}
    source = save_vit(tmp_path / "vit", **content)
    convert(source, tmp_path / "without", check=False)
    assert f"'{source}' has no mine.py, in which its image processor is" in caplog.text
    (source / "mine.py").write_text("class Mine: ...")
    convert(source, tmp_path / "with", check=False)
    assert (tmp_path / "with" / "mine.py").read_text() == "class Mine: ..."


def test_fine_tuning_takes_the_image_processor_of_any_checkpoint_or_says_what_is_missing(tmp_path: Path) -> None:
    source = save_vit(tmp_path / "vit", **OF_2021)
    config = FFNForImageClassification.from_pretrained(source).config
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (53, 37, 3), dtype=np.uint8))
    found = load_image_processor(source, config)(noise, return_tensors="np")["pixel_values"]
    assert np.array_equal(found, pixels(source))
    (source / FILE).unlink()
    with pytest.raises(ValueError, match=f"{FILE}, so that it is not known how its images were prepared: add"):
        load_image_processor(source, config)
    cfg = {"crop_mode": "border", "mean": [0.1, 0.2, 0.3]}
    timm = FFNVisionConfig(image_size=32, source_family="timm", source_config={"pretrained_cfg": cfg})
    processor = load_image_processor(source, timm)
    assert (processor.crop_mode, processor.image_mean) == ("border", (0.1, 0.2, 0.3))


@pytest.mark.slow
def test_a_folder_with_an_image_processor_of_ours_is_staged(tmp_path: Path) -> None:
    content = {"image_processor_type": "FFNImageProcessor", "num_channels": 3, "size": {"height": 32, "width": 32}}
    content["auto_map"] = {"AutoImageProcessor": "image_processing_ffn.FFNImageProcessor"}
    stage(save_vit(tmp_path / "vit", **content), tmp_path / "ready")
    assert np.array_equal(pixels(tmp_path / "ready"), pixels(tmp_path / "vit"))
