"""Pictures of every kind are what people see in them."""

import sys
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hf_ffn.training.pictures import DEEP, SEVERAL, TRANSPARENT, decode, problem_of


def stored(image: Image.Image, kind: str, **options: Any) -> dict[str, Any]:
    """An image as `datasets` stores it."""
    file = BytesIO()
    image.save(file, kind, **options)
    return {"bytes": file.getvalue(), "path": None}


def big_endian(values: np.ndarray) -> Image.Image:
    """16 bits, as TIFF files of other machines have them."""
    return Image.frombytes("I;16B", values.shape[::-1], values.astype(">u2").tobytes())


RAMP = np.linspace(0, 1, 1024)[None].repeat(2, 0)


@pytest.mark.parametrize(
    ("kind", "image"),
    [
        ("png", Image.fromarray((RAMP * 65535).round().astype(np.uint16))),
        ("tiff", Image.fromarray((RAMP * 65535).round().astype(np.uint16))),
        ("tiff", big_endian((RAMP * 65535).round())),
        ("tiff", Image.fromarray((RAMP * 65535).round().astype(np.int32))),
        ("png", Image.fromarray((RAMP * 4095).round().astype(np.uint16))),
        ("tiff", Image.fromarray((RAMP * 4095).round().astype(np.uint16))),
        ("tiff", Image.fromarray((RAMP * 16383).round().astype(np.int32))),
        ("tiff", Image.fromarray((RAMP * 1023).round().astype(np.uint16))),
        ("ppm", Image.fromarray((RAMP * 65535).round().astype(np.int32))),
        ("tiff", Image.fromarray(RAMP.astype(np.float32))),
        ("tiff", Image.fromarray((255 * RAMP).astype(np.float32))),
        ("tiff", Image.fromarray((65535 * RAMP).astype(np.float32))),
        ("tiff", Image.fromarray((9 * RAMP - 3).astype(np.float32))),
        ("tiff", Image.fromarray((2**30 * RAMP).astype(np.int32))),
        ("tiff", Image.fromarray((3000 * RAMP - 1000).round().astype(np.int32))),
    ],
)
def test_deep_pictures_keep_their_greys(kind: str, image: Image.Image) -> None:
    found, remarks = decode(stored(image, kind))
    assert (found.mode, remarks) == ("L", [DEEP])
    np.testing.assert_allclose(np.array(found), RAMP * 255, atol=0.75)
    assert len(np.unique(np.array(found))) == 256


def test_the_range_is_that_of_the_type_and_not_of_the_picture() -> None:
    for values, grey in (((65535, 32768), 128), ((4000, 2048), 128), ((255, 100), 100)):
        found, _ = decode(stored(Image.fromarray(np.array([values], np.uint16)), "png"))
        assert np.array(found)[0, 1] == grey
    assert np.array(decode(stored(Image.fromarray(np.full((2, 2), 0.5, np.float32)), "tiff"))[0])[0, 0] == 128
    assert np.array(decode(stored(Image.fromarray(np.full((2, 2), -7.0, np.float32)), "tiff"))[0])[0, 0] == 0


def test_greys_that_count_from_white_are_turned() -> None:
    for values in (np.array([[0, 255]], np.uint8), np.array([[0, 65535]], np.uint16), np.array([[0, 1]], np.float32)):
        content = bytearray(stored(Image.fromarray(values), "tiff")["bytes"])
        entries = int.from_bytes(content[4:8], "little") + 2
        place = next(p for p in range(entries, len(content), 12) if content[p : p + 2] == (262).to_bytes(2, "little"))
        content[place + 8 : place + 10] = b"\0\0"
        assert np.array(decode({"bytes": bytes(content), "path": None})[0]).tolist() == [[255, 0]]


def test_greys_that_are_no_numbers_are_no_picture() -> None:
    with pytest.raises(ValueError, match="some of its greys are not finite"):
        decode(stored(Image.fromarray(np.array([[0.5, np.nan]], np.float32)), "tiff"))


def half(mode: str, left: Any, right: Any) -> Image.Image:
    """Two colours side by side."""
    image = Image.new(mode, (16, 16), right)
    image.paste(left, (0, 0, 8, 16))
    return image


def palette(*colours: int) -> Image.Image:
    """Two entries of a palette side by side."""
    image = half("P", 0, 1)
    image.putpalette(colours)
    return image


@pytest.mark.parametrize(
    ("kind", "image", "options", "left", "right"),
    [
        ("png", half("RGBA", (255, 0, 0, 255), (0, 0, 0, 0)), {}, (255, 0, 0), (255, 255, 255)),
        ("webp", half("RGBA", (255, 0, 0, 255), (0, 0, 0, 0)), {"lossless": True}, (255, 0, 0), (255, 255, 255)),
        ("png", half("RGBA", (0, 0, 0, 51), (0, 0, 0, 0)), {}, (204, 204, 204), (255, 255, 255)),
        ("png", half("LA", (100, 255), (0, 0)), {}, (100, 100, 100), (255, 255, 255)),
        ("png", palette(1, 2, 3, 0, 0, 0), {"transparency": 1}, (1, 2, 3), (255, 255, 255)),
        ("gif", palette(1, 2, 3, 0, 0, 0), {"transparency": 1}, (1, 2, 3), (255, 255, 255)),
        ("png", half("RGB", (1, 2, 3), (9, 9, 9)), {"transparency": (9, 9, 9)}, (1, 2, 3), (255, 255, 255)),
        ("png", half("L", 5, 9), {"transparency": 9}, (5, 5, 5), (255, 255, 255)),
        ("png", half("1", 1, 0), {"transparency": 0}, (255, 255, 255), (255, 255, 255)),
    ],
)
def test_transparent_pictures_are_put_on_white(
    kind: str, image: Image.Image, options: dict[str, Any], left: Any, right: Any
) -> None:
    found, remarks = decode(stored(image, kind, **options))
    assert remarks == [TRANSPARENT]
    assert [found.convert("RGB").getpixel((x, 8)) for x in (2, 14)] == [left, right]


def test_a_deep_picture_may_be_transparent_too() -> None:
    file = BytesIO()
    Image.fromarray(np.array([[0, 65535, 32768]], np.uint16)).save(file, "png", transparency=0)
    found, remarks = decode({"bytes": file.getvalue(), "path": None})
    assert np.array(found).tolist() == [[255, 255, 128]]
    assert remarks == [TRANSPARENT, DEEP]


@pytest.mark.parametrize(
    ("kind", "image", "left", "right"),
    [
        ("jpeg", half("CMYK", (0, 255, 255, 0), (0, 0, 0, 255)), (255, 0, 0), (0, 0, 0)),
        ("tiff", half("CMYK", (0, 255, 255, 0), (0, 0, 0, 0)), (255, 0, 0), (255, 255, 255)),
        ("png", palette(200, 2, 3, 7, 90, 9), (200, 2, 3), (7, 90, 9)),
        ("bmp", palette(200, 2, 3, 7, 90, 9), (200, 2, 3), (7, 90, 9)),
        ("png", half("1", 1, 0), (255, 255, 255), (0, 0, 0)),
        ("tiff", half("1", 1, 0), (255, 255, 255), (0, 0, 0)),
        ("png", half("L", 77, 9), (77, 77, 77), (9, 9, 9)),
        ("jpeg", half("L", 77, 9), (77, 77, 77), (9, 9, 9)),
        ("png", half("RGBA", (1, 2, 3, 255), (4, 5, 6, 255)), (1, 2, 3), (4, 5, 6)),
        ("jpeg", half("YCbCr", (76, 85, 255), (255, 128, 128)), (254, 0, 0), (255, 255, 255)),
    ],
)
def test_colours_are_those_that_people_see(kind: str, image: Image.Image, left: Any, right: Any) -> None:
    found, remarks = decode(stored(image, kind))
    assert remarks == []
    for x, colour in ((2, left), (14, right)):
        np.testing.assert_allclose(found.convert("RGB").getpixel((x, 8)), colour, atol=4)


@pytest.mark.parametrize("kind", ["gif", "png", "webp", "tiff"])
def test_of_several_frames_the_first_counts(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ((200, 0, 0), (0, 0, 200))]
    options = {"lossless": True} if kind == "webp" else {}
    found, remarks = decode(stored(frames[0], kind, save_all=True, append_images=frames[1:], **options))
    assert remarks == [SEVERAL]
    assert found.convert("RGB").getpixel((4, 4)) == (200, 0, 0)


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
@pytest.mark.parametrize("mode", ["RGB", "I;16"])
def test_pictures_stand_upright(kind: str, mode: str) -> None:
    if mode == "I;16" and kind in ("jpeg", "webp"):
        return
    image = half(mode, (255, 255, 255) if mode == "RGB" else 65535, 0).crop((0, 0, 16, 12))
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned to the right: what is on the left gets to the top
    found = np.array(decode(stored(image, kind, exif=exif))[0].convert("L"))
    assert found.shape == (16, 12)
    assert found[:7].min() > 200
    assert found[9:].max() < 50


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "bmp", "gif", "tiff"])
@pytest.mark.parametrize("kept", [0.5, 0.98, 0])
def test_a_cut_file_is_broken(kind: str, kept: float) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    whole = stored(noise, kind)["bytes"]
    with pytest.raises(Exception, match=r"truncated|identify|broken|decode|cut|fail|data|short|-\d|seek|pixels|bytes"):
        decode({"bytes": whole[: int(len(whole) * kept)], "path": None})


def test_what_needs_a_package_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.HEIC"
    path.write_bytes(b"\0\0\0\x18ftypheic")
    if ".heic" not in Image.registered_extensions():
        assert problem_of(str(path)) == ".heic pictures for which a package is missing: pip install pillow-heif"
    package = ModuleType("pillow_heif")
    package.register_heif_opener = lambda: Image.register_extension("PNG", ".heic")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", package)
    monkeypatch.setattr("hf_ffn.training.pictures.find_spec", lambda name: package)
    monkeypatch.setattr(Image, "EXTENSION", dict(Image.EXTENSION))
    assert problem_of(str(path)) is None
    if Image.registered_extensions().get(".avif") not in Image.OPEN:
        (tmp_path / "one.avif").touch()
        assert problem_of(str(tmp_path / "one.avif")) is not None
