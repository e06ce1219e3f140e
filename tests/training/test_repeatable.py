"""Equal inputs train equal weights: whatever the order of files, the hash seed, and the number of workers."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from scripts_runner import start
from transformers import PreTrainedTokenizerBase

from hf_ffn import FFNForImageClassification, FFNVisionConfig
from hf_ffn.training.arguments import DataArguments, TrainingArguments
from hf_ffn.training.data import TaskData, load_image_data
from hf_ffn.training.loop import Trainer

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
         "image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_dropout_prob": 0.1}  # fmt: skip
# What says when and where a run was, and how it was laid out.
OF_THE_RUN = ("train_dir", "output_dir", "dataloader_num_workers", "preprocessing_num_workers", "train_seconds")


def make_pictures(folder: Path, seed: int) -> Path:
    """48 pictures in four classes, the same whatever the seed, which rules in what order they are written."""
    numbers = list(range(48))
    random.Random(seed).shuffle(numbers)
    for number in numbers:
        place = folder / f"class {number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(40, size=(8, 8), dtype=np.uint8) + 50 * (number % 4)
        Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")
    return folder


def pictures(folder: Path, workers: int | None = None) -> TaskData:
    """The pictures of a folder, moved at random, checked by so many processes."""
    args = DataArguments(train_dir=str(folder), augment=True, preprocessing_num_workers=workers)
    return load_image_data(args, None, seed=1, num_channels=1, image_size=8)


def trained(data: TaskData, workers: int, folder: Path) -> Trainer:
    """Train on them for a few steps, with dropout, batches prepared by so many processes."""
    folder.mkdir()
    args = TrainingArguments(output_dir=str(folder), per_device_train_batch_size=8, max_train_steps=7)
    torch.manual_seed(0)
    model = FFNForImageClassification(FFNVisionConfig(**SIZES, num_labels=4, feed_forward_memory="pre_activation"))
    trainer = Trainer(Accelerator(cpu=True), model, data, args, workers, lambda model: None)
    trainer.run()
    return trainer


@pytest.mark.usefixtures("own_cache")
def test_files_in_another_order_and_more_workers_train_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [make_pictures(tmp_path / f"pictures-{seed}", seed) for seed in (0, 1)]
    runs = [trained(pictures(folders[0]), 0, tmp_path / "one")]
    turn_listings_around(monkeypatch)
    runs.append(trained(pictures(folders[1], workers=2), 2, tmp_path / "other"))
    assert runs[0].data.labels == [f"class {i}" for i in range(4)]
    assert runs[0].data.fingerprint == runs[1].data.fingerprint
    assert runs[0].progress == runs[1].progress
    for name, tensor in runs[0].model.state_dict().items():
        assert torch.equal(tensor, runs[1].model.state_dict()[name]), name


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("cuts", [False, True], ids=["as made", "that cuts by itself"])
def test_the_tokenizer_that_is_saved_is_as_it_was(
    workers: int | None, cuts: bool, tokenizer: PreTrainedTokenizerBase, load: Callable[..., TaskData]
) -> None:
    """Whether this process tokenizes, others do, or the samples were found in the cache."""
    if cuts:
        tokenizer.backend_tokenizer.enable_truncation(7)
        tokenizer.backend_tokenizer.enable_padding(length=7)
    before = tokenizer.backend_tokenizer.to_str()
    rows = [{"text": "good film " * i, "label": "ab"[i % 2]} for i in range(1, 9)]
    for _ in range(2):
        load(rows, rows, max_length=20, preprocessing_num_workers=workers)
        assert tokenizer.backend_tokenizer.to_str() == before


def turn_listings_around(monkeypatch: pytest.MonkeyPatch) -> None:
    """List folders' files in the reverse order, as another file system may."""
    listdir, scandir = os.listdir, os.scandir

    class Reversed:
        """`os.scandir`'s iterator, which is its own context."""

        def __init__(self, *args: Any) -> None:
            with scandir(*args) as found:
                self.entries = iter(sorted(found, key=lambda entry: entry.name, reverse=True))

        def __iter__(self) -> Any:
            return self.entries

        def __next__(self) -> Any:
            return next(self.entries)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: Any) -> None:
            pass

        def close(self) -> None:
            pass

    monkeypatch.setattr(os, "listdir", lambda *args: sorted(listdir(*args), reverse=True))
    monkeypatch.setattr(os, "scandir", Reversed)


def contents(folder: Path) -> dict[str, Any]:
    """What a run left in its folder, without what is of that run alone."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        # Of the generators whose states accelerate stores, training seeds torch's at every step and uses no other.
        if path.is_dir() or path.name.startswith("random_states"):
            continue
        found[path.relative_to(folder).as_posix()] = path.read_bytes()
    for name in ("run.json", "all_results.json"):
        facts = json.loads(found[name])
        for part in (facts, facts.get("arguments", {})):
            for each in OF_THE_RUN:
                part.pop(each, None)
        found[name] = facts
    return found


@pytest.mark.slow
def test_two_processes_with_other_hash_seeds_leave_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = ",".join(f"{name}={value}" for name, value in SIZES.items())
    scripts = []
    for seed, workers in ((1, 0), (2, 2)):
        made = make_pictures(tmp_path / str(seed) / "pictures", seed)
        monkeypatch.setenv("PYTHONHASHSEED", str(seed))
        flags = ["--train_dir", made, "--output_dir", tmp_path / str(seed) / "out",
                 "--config_overrides", overrides, "--per_device_train_batch_size", 8, "--max_train_steps", 8,
                 "--checkpointing_steps", 5, "--augment", "--lora", "q_proj,v_proj,linear_1,linear_2",
                 "--dataloader_num_workers", workers]  # fmt: skip
        flags += ["--preprocessing_num_workers", workers] if workers else []
        cache = {"HF_DATASETS_CACHE": str(tmp_path / str(seed) / "cache")}
        scripts.append(start("finetune_image.py", tmp_path / f"{seed}.log", *flags, environment=cache))
    for script in scripts:
        assert script.wait().code == 0, script.output
    one, other = (contents(tmp_path / seed / "out") for seed in ("1", "2"))
    one["worst_mistakes.md"] = one["worst_mistakes.md"].replace(b"/1/pictures", b"/2/pictures")
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []
