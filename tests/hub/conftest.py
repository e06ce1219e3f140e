"""A loopback Hub for every test that asks, and the client in this process set to talk to it and to nothing else."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import transformers
from huggingface_hub import HfApi, close_session, constants, file_download
from huggingface_hub.utils import _http

from hf_ffn.hub import client
from hf_ffn.hub.manifest import write_manifest

from loopback_hub import TOKEN, Hub, serve


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub of this test's own. The client's own waits between its attempts are cut short."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hasty = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: time.sleep(min(seconds, 0.001))})
    monkeypatch.setattr(_http, "time", hasty)
    monkeypatch.setattr(file_download, "time", hasty)
    monkeypatch.setattr(client, "time", hasty)
    with serve() as hub:
        # What HF_ENDPOINT sets when huggingface_hub is imported.
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(transformers.utils.hub, "_hf_api", None)
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


@pytest.fixture
def staged(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder of these files, by name and content, with its manifest."""

    def write(files: dict[str, bytes], name: str = "staged") -> Path:
        folder = tmp_path / name
        shutil.rmtree(folder, ignore_errors=True)
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        write_manifest(folder)
        return folder

    return write
