"""How timm prepares images, out of its config.json, as an image processor's file."""

import math
from typing import Any

from transformers import PreTrainedConfig

from ..configuration_ffn import height_and_width

# timm's names of Pillow's filters, by Pillow's numbers.
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}
DESCRIPTIONS = {"input_size", "crop_pct", "crop_mode", "interpolation", "mean", "std"}
# What timm takes where one of these is not stated.
CROP_MODE, CROP_PART, FILTER = "center", 0.875, "bicubic"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image_processor(told: dict[str, Any], config: PreTrainedConfig) -> dict[str, Any]:
    """The content of a preprocessor_config.json whose pixels are those of timm's transform for evaluation.

    Args:
        told: timm's config.json, `unified`.
        config: of the model that was converted from it.

    Raises:
        ValueError: no image processor does the same; the message says what is in the way.
    """
    stated = told["pretrained_cfg"]
    if not stated.keys() & DESCRIPTIONS:
        raise ValueError("its config.json does not say how images are prepared (pretrained_cfg)")
    mode, filter_name = stated.get("crop_mode") or CROP_MODE, stated.get("interpolation") or FILTER
    if mode not in ("center", "squash", "border"):
        raise ValueError(f"crop_mode={mode!r} of its pretrained_cfg is unknown")
    if filter_name not in FILTERS:
        raise ValueError(f"interpolation={filter_name!r} of its pretrained_cfg is none of {', '.join(FILTERS)}")
    if config.num_channels not in (1, 3):
        raise ValueError(f"its images have {config.num_channels} channels, neither colours nor grey")
    size = height_and_width(config.image_size)
    if told["model_args"].get("dynamic_img_size") and stated.get("input_size"):
        size = height_and_width(stated["input_size"][1:])
    scaled = tuple(math.floor(side / (stated.get("crop_pct") or CROP_PART)) for side in size)
    common = {
        "do_resize": True,
        "size": {"height": scaled[0], "width": scaled[1]},
        "resample": FILTERS[filter_name],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": for_channels(stated.get("mean") or MEAN, config.num_channels),
        "image_std": for_channels(stated.get("std") or STD, config.num_channels),
    }
    return {
        "image_processor_type": "FFNImageProcessor",
        "auto_map": {"AutoImageProcessor": "image_processing_ffn.FFNImageProcessor"},
        **common,
        "crop_mode": mode,
        "do_center_crop": True,
        "crop_size": {"height": size[0], "width": size[1]},
        "num_channels": config.num_channels,
    }


def for_channels(values: list[float] | tuple[float, ...] | float, channels: int) -> list[float]:
    """A number for each channel; as timm does, their mean where there are others than the image has."""
    values = [values] if isinstance(values, (int, float)) else list(values)
    return values if len(values) == channels else [sum(values) / len(values)] * channels
