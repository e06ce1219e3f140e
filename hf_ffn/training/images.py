"""Images as samples: decoded, augmented and brought into the model's form when they are asked for."""

import hashlib
import os
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch
from datasets import Dataset
from PIL import Image
from transformers import ViTImageProcessorPil
from transformers.utils import logging

from ..configuration_ffn import height_and_width
from ..image_processing_ffn import FFNImageProcessor
from .arguments import IMAGE_COLUMNS, DataArguments
from .label_columns import LabelColumn, label_columns
from .labels import Labels, UnknownLabelError, leave_out
from .pictures import decode
from .remarks import REMARKS
from .sampling import sample_generator
from .sources import ID, Split

logger = logging.get_logger(__name__)

LABEL_COLUMNS = ("label", "labels")
# Augmentation: by so much of its size an image is shifted, and by so much it is made larger or smaller, at most.
SHIFT = 0.1
SCALE = 0.1


@dataclass(frozen=True)
class ImageColumns:
    """Where a row has its image and its label.

    Args:
        image: the column of images.
        labels: the column of labels, or several.
    """

    image: str
    labels: tuple[str, ...]

    @classmethod
    def of(cls, split: Split, args: DataArguments) -> "ImageColumns":
        """As the arguments say, or as such columns are usually called.

        Raises:
            ValueError: a column that is not there.
        """
        image = split.column("image_column", args.image_column, IMAGE_COLUMNS)
        return cls(image, label_columns(split, args.label_column, LABEL_COLUMNS))

    def leave_encoded(self, split: Split) -> None:
        """Have a split give its images as they are stored: decoding is ours, so that errors can name them."""
        split.rows = split.rows.cast_column(self.image, datasets.Image(decode=False))

    def bad(self, row: dict[str, Any]) -> str | None:
        """What is wrong with a row that can be skipped, if anything."""
        return looked_at(row[self.image])[0]

    def shown(self, row: dict[str, Any]) -> str:
        """A row's image, for people."""
        return row[self.image]["path"] or f"image {row[ID]}"


@dataclass(frozen=True)
class ImagePreparation:
    """How rows become samples.

    Args:
        where: what the data are called in errors.
        columns: where the images are.
        label: the labels, as the split stores them.
        labels: the classes.
        processor: the model's image processor; None: resized, and brightness brought to -1…1.
        num_channels: 3 for colours, 1 for grey.
        size: height and width, where there is no processor.
        augment: shift and scale at random.
        is_checked: whether all images have been looked at before (see `check_images`), and what was found was said.
    """

    where: str
    columns: ImageColumns
    label: LabelColumn
    labels: Labels
    processor: Any
    num_channels: int
    size: tuple[int, int]
    augment: bool
    is_checked: bool

    def __call__(self, row: dict[str, Any], seed: int, epoch: int) -> dict[str, Any]:
        """Make a sample of a row; what is random in it follows from seed, epoch and the row's id.

        Raises:
            ValueError: the image is broken, or its label missing or unknown.
        """
        value = self.label.value_in(row)
        problem, image, remarks = looked_at(row[self.columns.image])
        problem = self.label.problem_in(value) or problem
        if problem or image is None:
            raise ValueError(f"{self.where}: {problem} in row {row[ID]} (counted from 0)")
        for remark in [] if self.is_checked else remarks:
            logger.warning_once(f"{self.where}: there are {REMARKS[remark]}")
        image = image.convert("RGB" if self.num_channels == 3 else "L")
        if self.augment:
            image = moved(image, sample_generator(seed, epoch, row[ID]))
        try:
            label = self.labels.encode(value, self.label)
        except UnknownLabelError as error:
            raise ValueError(f"{self.where}: {error}, in row {row[ID]} (counted from 0)") from None
        return {"pixel_values": self.pixel_values(image), "labels": label, "id": row[ID]}

    def pixel_values(self, image: Image.Image) -> torch.Tensor:
        """An image as the model takes it: channels, height, width."""
        if self.processor is None:
            height, width = self.size
            pixels = torch.from_numpy(np.array(image.resize((width, height), Image.Resampling.BILINEAR)))
            return (pixels.reshape(height, width, -1).permute(2, 0, 1) / 255 - 0.5) / 0.5
        # Grey images have no axis of channels by themselves, and processors would not know them.
        array = np.array(image).reshape(image.height, image.width, -1)
        return self.processor(array, return_tensors="pt", input_data_format="channels_last")["pixel_values"][0]


def processor_from_scratch(num_channels: int, image_size: int | list[int] | tuple[int, int]) -> Any:
    """The image processor that does what `ImagePreparation` does without one, to lie beside a new model.

    Args:
        num_channels: 3 for colours, 1 for grey.
        image_size: of a side, or height and width.
    """
    height, width = height_and_width(image_size)
    size = {"height": height, "width": width}
    if num_channels == 3:
        return ViTImageProcessorPil(size=size, do_convert_rgb=True)
    return FFNImageProcessor(size=size, num_channels=num_channels, image_mean=[0.5], image_std=[0.5])


def looked_at(stored: dict[str, Any] | None) -> tuple[str | None, Image.Image | None, list[str]]:
    """What is wrong with an image, if anything; else the image, and what was done that its owner may not expect."""
    if stored is None:
        return "no image", None, []
    try:
        return None, *decode(stored)
    except Exception as error:  # decoders raise whatever they like on broken files
        name = f" '{stored['path']}'" if stored["path"] else ""
        return f"a broken image{name} ({error or type(error).__name__})", None, []


def moved(image: Image.Image, generator: torch.Generator) -> Image.Image:
    """Shift and scale an image a little; what comes in from outside is black."""
    right, down, smaller = (2 * torch.rand(3, generator=generator) - 1).tolist()
    scale = 1 + SCALE * smaller
    # From where in the old image each pixel is taken: scaled about the middle, then shifted.
    left = image.width * ((1 - scale) / 2 - SHIFT * right)
    top = image.height * ((1 - scale) / 2 - SHIFT * down)
    return image.transform(
        image.size, Image.Transform.AFFINE, (scale, 0, left, 0, scale, top), resample=Image.Resampling.BILINEAR
    )


def check_images(split: Split, columns: ImageColumns, *, skip: bool, num_proc: int | None) -> Dataset:
    """Decode all images once, so that a broken one is found now and not in hours; cached by `datasets`.

    Args:
        split: broken images are taken out of it.
        columns: where the images are.
        skip: whether they may be.
        num_proc: processes to do it in.

    Returns:
        A checksum, a problem, empty if there is none, and remarks of each image that there was.

    Raises:
        ValueError: broken images, which may not be taken out.
    """
    results = split.rows.select_columns([columns.image]).map(
        check_image,
        # `datasets` caches by the arguments, and rows may hold the pictures' paths alone.
        fn_kwargs={"column": columns.image, "state": state_of_files(split.rows, columns.image)},
        remove_columns=[columns.image],
        num_proc=num_proc,
        desc=f"Checking images of {split.where}",
    )
    bad_rows: dict[str, list[int]] = {}
    for i, problem in enumerate(results["problem"]):
        if problem:
            bad_rows.setdefault(problem, []).append(i)
    leave_out(split, bad_rows, skip)
    split.remarks |= remarks_of(results)
    return results


def remarks_of(results: Dataset) -> dict[str, int]:
    """What was done with images that their owner may not expect, and with how many."""
    return dict(Counter(remark for remarks in results["remarks"] for remark in remarks.split(";") if remark))


def state_of_files(rows: Dataset, column: str) -> str:
    """A hash that changes with each change to the files that rows of images lead to."""
    digest = hashlib.sha256()
    for table in rows.select_columns([column]).with_format("arrow").iter(batch_size=1000):
        stored = table[column].combine_chunks()
        for path in pc.if_else(pc.is_null(stored.field("bytes")), stored.field("path"), None).to_pylist():
            if path is not None and os.path.isfile(path):
                stat = os.stat(path)
                digest.update(f"{stat.st_size},{stat.st_mtime_ns},{stat.st_ctime_ns};".encode())
    return digest.hexdigest()


def check_image(row: dict[str, Any], column: str, state: str) -> dict[str, Any]:
    """Checksum, problem and remarks of a row's image: for `Dataset.map`, which knows by `state` what it did before."""
    image = row[column]
    if image is None:
        return {"checksum": 0, "problem": looked_at(image)[0], "remarks": ""}
    try:
        content = image["bytes"] if image["bytes"] is not None else Path(image["path"]).read_bytes()
    except OSError as error:
        return {"checksum": 0, "problem": f"a broken image '{image['path']}' ({error.strerror})", "remarks": ""}
    problem, _, remarks = looked_at({**image, "bytes": content})
    return {"checksum": zlib.crc32(content), "problem": problem or "", "remarks": ";".join(remarks)}


def collate_images(samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Make a batch, with the samples' ids beside; of no samples, an empty one."""
    if not samples:
        return {}
    return {
        "pixel_values": torch.stack([sample["pixel_values"] for sample in samples]),
        "labels": torch.tensor([sample["labels"] for sample in samples]),
        "ids": torch.tensor([sample["id"] for sample in samples]),
    }
