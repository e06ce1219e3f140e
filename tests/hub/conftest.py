"""A loopback Hub for every test that asks, and the client in this process set to talk to it and to nothing else."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi, close_session, constants
from huggingface_hub.utils import _http

from loopback_hub import TOKEN, Hub, serve


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub of this test's own. The client's own waits between its attempts are cut short."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hasty = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, 0.001))})
    monkeypatch.setattr(_http, "time", hasty)
    with serve() as hub:
        yield hub
    close_session()


@pytest.fixture
def api(hub: Hub) -> HfApi:
    """The real client, for who owns "me/…"."""
    return HfApi(endpoint=hub.url, token=TOKEN)


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """What a process of its own needs to talk to the Hub."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HF_")},
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "HF_HOME": str(tmp_path / "hf-home"),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_OFFLINE": "0",
    }
