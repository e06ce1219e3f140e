"""Images: folders, the digits, preparation, augmentation, and broken ones."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from transformers import ViTImageProcessor
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from hf_ffn.training.arguments import DataArguments
from hf_ffn.training.data import TaskData, load_image_data
from hf_ffn.training.images import moved, processor_from_scratch
from hf_ffn.training.sampling import MicroBatchSampler, StreamSamples, sample_generator, steps_of_epoch

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of 12 images of two classes, each of a colour that tells its number."""
    for i in range(12):
        label = tmp_path / "images" / ("cat" if i % 2 else "test")  # "test" is a class here, no split
        label.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20 + i, 16), (20 * i, 255 - 20 * i, 100)).save(label / f"{i}.png")
    return tmp_path / "images"


def load(folder: Path, **args: Any) -> TaskData:
    """Load colour images of 8 × 6 pixels."""
    return load_image_data(DataArguments(train_dir=str(folder), **args), None, seed=1, image_size=(6, 8))


def digits(**args: Any) -> TaskData:
    """Load the digits."""
    return load_image_data(DataArguments(dataset_name="digits", **args), None, seed=1, num_channels=1, image_size=8)


def sample(data: TaskData, index: int) -> dict[str, Any]:
    """One training sample."""
    return data.train[index]  # type: ignore[index]


def test_a_folder_of_images_with_labels_by_folder(folder: Path) -> None:
    data = load(folder)
    assert data.task == "image-classification"
    assert data.labels == ["cat", "test"]
    assert (len(data.train), len(data.evaluation)) == (11, 1)  # type: ignore[arg-type]
    samples = [*(sample(data, i) for i in range(11)), data.evaluation[0]]
    assert sorted(each["id"] for each in samples) == list(range(12))
    for each in samples:
        assert each["pixel_values"].shape == (3, 6, 8)
        red, green, blue = ((each["pixel_values"][:, 0, 0] / 2 + 0.5) * 255).round().tolist()
        assert (green, blue) == (255 - red, 100)
        assert each["labels"] == (0 if (red / 20) % 2 else 1)
    assert Path(data.texts(0)).parent.name == data.labels[data.evaluation[0]["labels"]]


def test_a_validation_folder_with_other_classes_goes_by_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "few" / "test").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "few" / "test" / "0.png")
    data = load(folder, validation_dir=str(tmp_path / "few"))
    assert [data.evaluation[i]["labels"] for i in range(len(data.evaluation))] == [1]
    (tmp_path / "few" / "test").rename(tmp_path / "few" / "dog")
    with pytest.raises(ValueError, match=r"few' has labels that '.*images' does not have: 'dog' \(row 0\)"):
        load(folder, validation_dir=str(tmp_path / "few"))


def test_the_digits_arrive_as_they_are() -> None:
    data = digits()
    assert data.labels == [str(i) for i in range(10)]
    rows = datasets.Dataset.from_list([{"label": sample(data, i)["labels"]} for i in range(1437)])
    assert set(rows["label"]) == set(range(10))
    from sklearn.datasets import load_digits

    known = {image.tobytes(): label for image, label in zip(*load_digits(return_X_y=True), strict=True)}
    for i in range(0, 360, 20):
        pixels = (data.evaluation[i]["pixel_values"].double() / 2 + 0.5) * 16
        assert known[pixels.round().numpy().tobytes()] == data.evaluation[i]["labels"]


@pytest.mark.parametrize("channels", [1, 3])
def test_the_models_own_processor_is_used(folder: Path, channels: int) -> None:
    processor = ViTImageProcessor(
        size={"height": 4, "width": 5}, image_mean=[0.0] * channels, image_std=[0.5] * channels
    )
    args = DataArguments(train_dir=str(folder))
    data = load_image_data(args, processor, seed=1, num_channels=channels, image_size=99)
    with Image.open(data.texts(0)) as image:
        expected = np.array(image.convert("RGB" if channels == 3 else "L"))[0, 0] / 255 / 0.5
    pixels = data.evaluation[0]["pixel_values"]
    assert pixels.shape == (channels, 4, 5)
    np.testing.assert_allclose(pixels[:, 2, 2], expected, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_new_models_processor_gives_the_pixels_that_were_trained_on(
    folder: Path, tmp_path: Path, channels: int
) -> None:
    args, known = DataArguments(train_dir=str(folder)), {"seed": 1, "num_channels": channels, "image_size": (6, 8)}
    trained_on = load_image_data(args, None, **known).evaluation
    processor_from_scratch(channels, (6, 8)).save_pretrained(tmp_path)
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    again = load_image_data(args, processor, **known)
    with Image.open(again.texts(0)) as image:
        alone = processor(image, return_tensors="pt")["pixel_values"][0]
    for pixels in (again.evaluation[0]["pixel_values"], alone):
        assert torch.equal(pixels, trained_on[0]["pixel_values"])


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_follows_from_seed_epoch_and_sample_alone(workers: int) -> None:
    data = digits(augment=True)

    def epoch(number: int, start_step: int = 0) -> list[torch.Tensor]:
        data.train.set_epoch(number)
        steps = steps_of_epoch(64, 16, seed=1, epoch=number)
        sampler = MicroBatchSampler(steps, 8, 2, 1, 0, start_step)
        loader = DataLoader(data.train, batch_sampler=sampler, collate_fn=data.collate, num_workers=workers)  # type: ignore[arg-type]
        return [batch["pixel_values"] for batch in loader]

    whole = epoch(1)
    torch.rand(5)
    assert all(map(torch.equal, epoch(1, start_step=2), whole[4:]))
    first = sample(data, 0)["pixel_values"]
    data.train.set_epoch(2)
    assert not torch.equal(sample(data, 0)["pixel_values"], first)
    plain = digits()
    assert not torch.equal(sample(plain, 0)["pixel_values"], first)
    assert torch.equal(plain.evaluation[0]["pixel_values"], data.evaluation[0]["pixel_values"])


def test_augmentation_moves_a_tenth_at_most() -> None:
    image = Image.new("L", (100, 100))
    image.paste(255, (40, 40, 60, 60))
    centres, sizes = [], []
    for i in range(50):
        rows, columns = np.nonzero(np.array(moved(image, sample_generator(1, 0, i))) > 127)
        centres.append((rows.mean() - 49.5, columns.mean() - 49.5))
        sizes.append(np.ptp(rows) + 1)
    assert 8 < np.abs(centres).max() <= 11.5
    assert abs(np.mean(centres)) < 3
    assert abs(np.corrcoef(np.transpose(centres))[0, 1]) < 0.5
    assert 17 <= min(sizes) < 19.5
    assert 20.5 < max(sizes) <= 23


def test_an_upright_image_is_learnt_as_it_is_seen(folder: Path) -> None:
    image = Image.new("RGB", (8, 6))
    image.paste((255, 255, 255), (0, 0, 4, 6))  # white on the left, which is at the top once it is turned
    exif = image.getexif()
    exif[0x0112] = 6
    for path in folder.glob("*/*.png"):
        image.save(path, exif=exif)
    pixels = sample(load(folder), 0)["pixel_values"]
    assert pixels[:, 0].mean() > 0.9
    assert pixels[:, -1].mean() < -0.9


def test_a_broken_image_is_named_or_skipped(folder: Path, messages: pytest.LogCaptureFixture) -> None:
    load(folder)
    for number, content in (("3", b"no image"), ("5", (folder / "cat" / "5.png").read_bytes()[:-40])):
        (folder / "cat" / f"{number}.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"images': a broken image '.*cat/3.png' \(.*\) in row \d .*--on_bad_"):
        load(folder)
    data = load(folder, on_bad_sample="skip", validation_dir=str(folder))
    assert (len(data.train), len(data.evaluation)) == (10, 10)  # type: ignore[arg-type]
    assert len({sample(data, i)["id"] for i in range(10)} & set(range(12))) == 10
    assert "cat/3.png" in messages.text
    assert "cat/5.png" in messages.text


def test_a_picture_that_a_table_names_and_is_not_there_is_named_or_skipped(
    folder: Path, tmp_path: Path, messages: pytest.LogCaptureFixture
) -> None:
    pictures = sorted(map(str, folder.rglob("*.png")))
    pictures[3] = str(folder / "cat" / "gone.png")
    rows = [f"{path},{Path(path).parent.name}\n" for path in pictures]
    (tmp_path / "list.csv").write_text("image,label\n" + "".join(rows))
    args: dict[str, Any] = {"train_file": str(tmp_path / "list.csv")}
    with pytest.raises(ValueError, match=r"a broken image '.*gone.png' \(No such file.*\) in row 3 "):
        load_image_data(DataArguments(**args), None, seed=1, image_size=8)
    data = load_image_data(DataArguments(**args, on_bad_sample="skip"), None, seed=1, image_size=8)
    assert "gone.png" in messages.text
    assert len(data.train) + len(data.evaluation) == 11  # type: ignore[arg-type]


def test_what_is_done_to_images_is_counted_and_said(folder: Path, messages: pytest.LogCaptureFixture) -> None:
    Image.new("RGBA", (8, 8)).save(folder / "cat" / "1.png")
    Image.new("LA", (8, 8)).save(folder / "cat" / "3.png")
    Image.fromarray(np.full((8, 8), 65535, np.uint16)).save(folder / "test" / "2.png")
    (folder / "test" / "notes.txt").write_text("text")
    given = {"on_bad_sample": "skip", "validation_dir": str(folder)}
    summary = load(folder, **given).summary
    told = summary.facts()["train"]
    assert (told["left_out"], told["transparent"], told["over_8_bits"]) == (1, 2, 1)
    assert "1 left out as bad" in str(summary)
    assert "; 2 transparent images, put on white" in str(summary)
    stream = load(folder, streaming=True, **given).train
    for row in stream:  # type: ignore[attr-defined]
        stream.prepare(row)  # type: ignore[union-attr]
    assert "images': there are transparent images, put on white" in messages.text


def test_a_stream_of_images_is_what_the_whole_is(folder: Path, messages: pytest.LogCaptureFixture) -> None:
    whole, streamed = (load(folder, validation_dir=str(folder), streaming=streaming) for streaming in (False, True))
    assert isinstance(streamed.train, StreamSamples)
    got = [streamed.train.prepare(row) for row in streamed.train]
    assert sorted((each["pixel_values"].sum().item(), each["labels"]) for each in got) == sorted(
        (sample(whole, i)["pixel_values"].sum().item(), sample(whole, i)["labels"]) for i in range(12)
    )
    good = shutil.copytree(folder, folder.parent / "good")
    (folder / "cat" / "3.png").write_bytes(b"no image")
    stream = load(folder, validation_dir=str(good), streaming=True).train
    assert isinstance(stream, StreamSamples)
    with pytest.raises(ValueError, match=r"images': a broken image '.*cat/3.png' .* in row \d"):
        [stream.prepare(row) for row in stream]
    assert len(list(load(folder, validation_dir=str(good), streaming=True, on_bad_sample="skip").train)) == 11  # type: ignore[call-overload]
    assert re.search(r"a broken image '.*cat/3.png' .* in row \d \(counted from 0\); left out", messages.text)


def test_a_fingerprint_tells_images_labels_and_augmentation(folder: Path) -> None:
    def fingerprint(**args: Any) -> str:
        return json.dumps(load(folder, **args).fingerprint, sort_keys=True)

    before = fingerprint()
    assert fingerprint() == before
    assert fingerprint(augment=True) != before
    Image.new("RGB", (21, 16), (1, 2, 3)).save(folder / "cat" / "1.png")
    changed = fingerprint()
    assert changed != before
    # The last image of the first class becomes the first of the second: all come in the same order.
    (folder / "cat" / "9.png").rename(folder / "test" / "-1.png")
    assert fingerprint() not in (before, changed)


def test_pictures_that_a_table_names_are_never_taken_for_what_they_were(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("image,label\n" + "".join(f"{path},{path.parent.name}\n" for path in sorted(folder.glob("*/*"))))

    def fingerprint() -> str:
        args = DataArguments(train_file=str(table), validation_file=str(table))
        return json.dumps(load_image_data(args, None, seed=1, image_size=4).fingerprint)

    before = fingerprint()
    Image.new("RGB", (21, 16), (1, 2, 3)).save(folder / "cat" / "1.png")
    assert fingerprint() != before
    (folder / "cat" / "1.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a broken image '.*cat/1.png'"):
        fingerprint()


def test_what_is_no_image_data_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"there is no folder '.*nowhere'"):
        load(tmp_path / "nowhere")
    table = tmp_path / "texts.csv"
    table.write_text("text,label\nfilm,good\n")
    with pytest.raises(ValueError, match=r"texts.csv' has no column 'image' or 'img'; it has text, label: choose"):
        load_image_data(DataArguments(train_file=str(table)), None, seed=1)
    with pytest.raises(ValueError, match="task regression needs texts, and these are images"):
        load(folder, task="regression")
    for name in ("cat", "test"):
        (tmp_path / "flat").mkdir(exist_ok=True)
        (folder / name / ("1.png" if name == "cat" else "2.png")).rename(tmp_path / "flat" / f"{name}.png")
    with pytest.raises(ValueError, match=r"flat': 2 files: a picture outside the folders of the classes"):
        load(tmp_path / "flat")
