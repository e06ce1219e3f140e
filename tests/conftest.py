"""Set up before any test: nothing reaches a hub."""

import os

# Before transformers is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
# Tests run side by side, one a core: more threads than that only wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

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
def messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What hf_ffn and transformers log, whose loggers do not propagate by themselves."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("hf_ffn"), "propagate", True)
    return caplog


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the figures that tests measured, for a reader to judge beyond pass or fail."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "figures":
                terminalreporter.write_line(f"{report.nodeid}: {value}")
