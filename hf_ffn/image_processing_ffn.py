"""Images as timm prepares them, and in grey: what transformers' own image processors do not do.

They round down where a centre crop begins, and timm to the nearest pixel; and none of them turns colours to grey.

This file travels with the checkpoints that need it, so it imports only torch, transformers and what these bring.
"""

from typing import Any

import numpy as np
from transformers import BatchFeature
from transformers.image_processing_backends import PilBackend
from transformers.image_transforms import to_pil_image
from transformers.image_utils import ChannelDimension, ImageInput, SizeDict
from transformers.processing_utils import ImagesKwargs

CROP_MODES = ("center", "squash", "border")


class FFNImageProcessorKwargs(ImagesKwargs, total=False):  # type: ignore[call-arg]
    """
    What the image processor takes beside what all take.

    Args:
        crop_mode (`str`): How an image is brought to `size`, before `crop_size` is cut out of its middle: so that it
            fills it (`"center"`), stretched to it (`"squash"`), or so that it fits in (`"border"`).
        num_channels (`int`): 3 for colours, 1 for grey.
    """

    crop_mode: str
    num_channels: int


class FFNImageProcessor(PilBackend):
    """
    Resizes, crops, and normalises images: as timm does, or in grey.

    Args:
        crop_mode (`str`, defaults to `"squash"`): See `FFNImageProcessorKwargs`.
        num_channels (`int`, defaults to 3): 3 for colours, 1 for grey.
        size (`dict`, defaults to 224 × 224): Height and width to resize to.
        crop_size (`dict`, *optional*): Height and width to cut out, where `do_center_crop`. What is not there becomes
            black, or has the mean colour with `crop_mode="border"`.
        kwargs: of all image processors. Defaults are those of ViT.

    Raises:
        ValueError: an unknown `crop_mode`, or another number of channels.
    """

    valid_kwargs = FFNImageProcessorKwargs
    resample = 2  # bilinear, by Pillow's number
    image_mean = [0.5, 0.5, 0.5]
    image_std = [0.5, 0.5, 0.5]
    size = {"height": 224, "width": 224}
    do_resize = True
    do_rescale = True
    do_normalize = True
    crop_mode = "squash"
    num_channels = 3

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.crop_mode not in CROP_MODES:
            raise ValueError(f"crop_mode={self.crop_mode!r} must be one of {', '.join(CROP_MODES)}")
        if self.num_channels not in (1, 3):
            raise ValueError(f"num_channels={self.num_channels} must be 3 for colours or 1 for grey")

    def process_image(
        self,
        image: ImageInput,
        num_channels: int = 3,
        input_data_format: str | ChannelDimension | None = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """An image as an array of channels, height and width, in colours or grey."""
        picture = to_pil_image(image, input_data_format=input_data_format)
        return super().process_image(picture.convert("L" if num_channels == 1 else "RGB"))

    def _preprocess(
        self,
        images: list[np.ndarray],
        do_resize: bool,
        size: SizeDict,
        resample: Any,
        do_center_crop: bool,
        crop_size: SizeDict,
        image_mean: tuple[float, ...],
        crop_mode: str = "squash",
        do_rescale: bool = True,
        **kwargs: Any,
    ) -> BatchFeature:
        if not do_rescale:
            raise ValueError(
                "do_rescale=False: this image processor resizes bytes, as Pillow does, and scales them itself: leave "
                "do_rescale out, and give images of 0 to 255, or of 0 to 1 as floats"
            )
        prepared = []
        for image in images:
            if do_resize:
                _, rows, columns = image.shape
                height, width = resized_to(rows, columns, size, crop_mode)
                image = self.resize(image, SizeDict(height=height, width=width), resample)
            if do_center_crop:
                border = [round(255 * value) for value in image_mean] if crop_mode == "border" else [0] * len(image)
                image = middle_of(image, crop_size.height, crop_size.width, border)
            prepared.append(image)
        done = {"do_resize": False, "do_center_crop": False, "size": size, "crop_size": crop_size}
        kept = {"resample": resample, "image_mean": image_mean, "do_rescale": do_rescale}
        return super()._preprocess(prepared, **kept, **done, **kwargs)


def resized_to(height: int, width: int, size: SizeDict, crop_mode: str) -> tuple[int, int]:
    """The height and width to which an image of another height and width is resized."""
    if crop_mode == "squash":
        return size.height, size.width
    if crop_mode == "center" and size.height == size.width:
        # The shorter side as asked for; the longer one is rounded down here, and to the nearest below.
        short = size.height
        return (int(short * height / width), short) if width <= height else (short, int(short * width / height))
    ratios = (height / size.height, width / size.width)
    ratio = max(ratios) if crop_mode == "border" else min(ratios)
    return round(height / ratio), round(width / ratio)


def middle_of(image: np.ndarray, height: int, width: int, border: list[int]) -> np.ndarray:
    """Cut height × width out of the middle of an image, with a border of one colour where it is smaller."""
    channels, rows, columns = image.shape
    below, beside = max(height - rows, 0), max(width - columns, 0)
    if below or beside:
        padded = np.empty((channels, rows + below, columns + beside), dtype=image.dtype)
        padded[:] = np.array(border).reshape(-1, 1, 1)
        padded[:, below // 2 : below // 2 + rows, beside // 2 : beside // 2 + columns] = image
        image = padded
    top, left = round((image.shape[1] - height) / 2), round((image.shape[2] - width) / 2)
    return image[:, top : top + height, left : left + width]


FFNImageProcessor.register_for_auto_class("AutoImageProcessor")

__all__ = ["FFNImageProcessor"]
