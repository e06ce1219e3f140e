"""Stored pictures of every kind, as upright pictures in grey or colours of 8 bits."""

import os
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from PIL.TiffImagePlugin import PHOTOMETRIC_INTERPRETATION

# What is remarked of pictures; `remarks.REMARKS` says it in words.
DEEP = "over_8_bits"
TRANSPARENT = "transparent"
SEVERAL = "several_frames"

NO_PICTURE = "no picture"

DEEP_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N", "F")
# The greatest grey of 8, 10, 12, 14 and 16 bits.
RANGES = (255, 1023, 4095, 16383, 65535)
# By their endings, what keeps Pillow from reading pictures that are some, or has it read a preview of them.
HEIF = "pictures for which a package is missing: pip install pillow-heif"
RAW = "pictures of which only a preview would be read: convert them, for example to TIFF with rawpy"
NEEDS = {
    **dict.fromkeys((".heic", ".heif", ".hif"), HEIF),
    ".avif": "pictures for which Pillow is too old: pip install 'pillow>=11.3'",
    **dict.fromkeys((".dng", ".nef", ".cr2", ".cr3", ".arw", ".orf", ".rw2", ".pef", ".raf", ".srw"), RAW),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".gz", ".7z", ".rar"), "archives, which are not looked into"),
}


def decode(stored: dict[str, Any]) -> tuple[Image.Image, list[str]]:
    """Decode a picture from its bytes or its file.

    Transparent ones are put on white; of several frames the first counts. Greys of more than 8 bits are divided by
    their range: the least of 8, 10, 12, 14 and 16 bits (floats: also 0 to 1) that holds the picture's brightest one.
    Where some are negative, or lie above 16 bits, the range goes from the picture's darkest grey to its brightest.

    Args:
        stored: `bytes`, or None and a `path`, as `datasets` stores images.

    Returns:
        The picture, upright, in mode L or RGB; and what was done that its owner may not expect.

    Raises:
        Exception: it is broken; decoders raise whatever they like.
    """
    with_heif()
    source = BytesIO(stored["bytes"]) if stored["bytes"] is not None else stored["path"]
    with Image.open(source) as image:
        image.load()  # TIFF files turn themselves, as they are read
        frame = ImageOps.exif_transpose(image)
        remarks = [SEVERAL] if getattr(image, "is_animated", False) else []
        # Pillow turns greys that count from white itself, but not those of more than 8 bits.
        from_white = getattr(image, "tag_v2", {}).get(PHOTOMETRIC_INTERPRETATION) == 0
    if frame.mode in DEEP_MODES:
        return in_8_bits(frame, remarks, from_white=from_white)
    if frame.has_transparency_data:
        colours = frame.convert("LA" if frame.mode == "La" else "RGBA").convert("RGBA")
        if np.asarray(colours.getchannel("A")).min() < 255:
            white = Image.new("RGBA", colours.size, "white")
            return Image.alpha_composite(white, colours).convert("RGB"), [*remarks, TRANSPARENT]
    return frame.convert("L" if frame.mode in ("1", "L", "LA", "La") else "RGB"), remarks


def in_8_bits(image: Image.Image, remarks: list[str], *, from_white: bool) -> tuple[Image.Image, list[str]]:
    """A grey picture of more than 8 bits in 8 (see `decode`)."""
    values = np.asarray(image).astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("some of its greys are not finite")
    low, high = 0.0, values.max()
    ranges = (1, *RANGES) if image.mode == "F" else RANGES
    if values.min() < 0 or high > ranges[-1]:
        low = values.min()
    else:
        high = next(each for each in ranges if high <= each)
    greys = ((values - low) * (255 / max(high - low, 1e-300))).round().astype(np.uint8)
    if from_white:
        greys = 255 - greys
    unseen = values == image.info.get("transparency")
    if unseen.any():
        greys[unseen] = 255
        remarks = [*remarks, TRANSPARENT]
    return Image.fromarray(greys), [*remarks, DEEP]


def with_heif() -> None:
    """Have Pillow read HEIC, where the package for it is installed."""
    if ".heic" not in Image.registered_extensions() and find_spec("pillow_heif") is not None:
        import pillow_heif  # type: ignore[import-not-found]

        pillow_heif.register_heif_opener()


def problem_of(path: str) -> str | None:
    """What keeps a file from being a picture, if anything, as far as its ending and its first bytes tell."""
    if not os.path.isfile(path):
        return "a link that leads nowhere, or no file"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "a name that is no text in UTF-8"
    with_heif()
    ending = os.path.splitext(path)[1].lower()
    if Image.registered_extensions().get(ending) in Image.OPEN:
        return None  # whether it can be decoded is another question
    if ending in NEEDS:
        return f"{ending} {NEEDS[ending]}"
    try:
        with Image.open(path):
            return None
    except Exception:  # as in decode
        return NO_PICTURE
