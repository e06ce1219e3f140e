"""Set up before any test: nothing reaches a hub."""

import os

# Before transformers is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run side by side, one a core: more threads than that only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hf_ffn import packed_products

from tiny import bert_config, telling_model, vit_config

transformers.logging.disable_progress_bar()


@pytest.fixture
def save_source(tmp_path: Path) -> Callable[..., Path]:
    """Save a telling model of one of transformers' classes (by name) to a folder, and return the folder."""

    def save(class_name: str, folder: str = "source", save_kwargs: dict | None = None, **config: Any) -> Path:
        make_config = bert_config if class_name.startswith("Bert") else vit_config
        model = telling_model(getattr(transformers, class_name), make_config(**config))
        model.save_pretrained(tmp_path / folder, **(save_kwargs or {}))
        return tmp_path / folder

    return save


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that behaves as a mount: nothing is moved across its border, and it cannot be moved itself."""
    folder = tmp_path / "mount"
    folder.mkdir()
    folder.joinpath("lost+found").mkdir()

    def refusing(move: Callable[..., None]) -> Callable[..., None]:
        def moved(old: Any, new: Any, **kwargs: Any) -> None:
            sides = [folder in Path(path).absolute().parents for path in (old, new)]
            if folder in (Path(old).absolute(), Path(new).absolute()):
                raise OSError(errno.EBUSY, "Device or resource busy", str(old))
            if sides[0] != sides[1]:
                raise OSError(errno.EXDEV, "Invalid cross-device link", str(old))
            move(old, new, **kwargs)

        return moved

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    return folder


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What hf_ffn and transformers log, whose loggers do not propagate by themselves."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("hf_ffn"), "propagate", True)
    return caplog


@pytest.fixture
def bfloat16_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the processor has no bfloat16 products, slow ones stand in, so that what is around them is tested."""
    if packed_products.missing("bfloat16") is None:
        return
    operators = torch.ops.mkldnn
    reorder, multiply = operators._reorder_linear_weight, operators._linear_pointwise

    def reorder_anywhere(weight: torch.Tensor, rows: int) -> torch.Tensor:
        return weight.clone() if weight.dtype == torch.bfloat16 else reorder(weight, rows)

    def multiply_anywhere(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any) -> torch.Tensor:
        if x.dtype != torch.bfloat16:
            return multiply(x, weight, bias, *how)
        in_float32 = (x.float(), reorder(weight.float(), 1), None if bias is None else bias.float())
        return multiply(*in_float32, *how).bfloat16()

    monkeypatch.setattr(operators, "_reorder_linear_weight", reorder_anywhere)
    monkeypatch.setattr(operators, "_linear_pointwise", multiply_anywhere)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures that tests measured, for a reader to judge beyond pass or fail."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid}: {value}")
