"""Sharing as people do it: the commands, a killed process, and models that push themselves."""

import logging
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from hf_ffn.hub import client
from hf_ffn.hub.client import HubError
from hf_ffn.hub.push import push
from hf_ffn_cli import app, main

from loopback_hub import TOKEN, Fault, Hub
from tiny import ffn_model, text_inputs

Staged = Callable[..., Path]
Environment = dict[str, str]

FILES = {
    "config.json": b'{"a": 1}',
    "a.safetensors": b"\0\1" * 5000,
    "b.safetensors": b"\0\2" * 5000,
    "README.md": b"---\nlicense: mit\n---\n",
}
COMMAND = [sys.executable, "-m", "hf_ffn_cli"]
LIKE_A_TOKEN = "hf_" + "Ab1" * 12

LOAD_WITHOUT_HF_FFN = """
import sys
sys.modules["hf_ffn"] = None
import torch
from safetensors.torch import load_file
from transformers import AutoModel
model = AutoModel.from_pretrained("me/encoder", trust_remote_code=True).eval()
case = load_file(sys.argv[1])
expected = case.pop("expected")
with torch.no_grad():
    print(type(model).__module__.split(".")[0], torch.equal(model(**case).last_hidden_state, expected))
"""


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pushed(hub: Hub) -> dict[str, bytes]:
    return {name: data for name, data in hub.repo("me/x").files().items() if name != ".gitattributes"}


def run(*arguments: Any) -> Any:
    """Run hf-ffn in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_commands_push_and_pull(hub: Hub, staged: Staged, tmp_path: Path) -> None:
    folder = staged(FILES)
    dry = run("push", folder, "me/x", "--private", "--dry-run")
    assert (dry.exit_code, hub.repos) == (0, {})
    assert "would send 5 file(s)" in dry.output
    done = run("push", folder, "me/x", "--private")
    assert done.exit_code == 0, done.output
    assert f"{hub.url}/me/x (commit {hub.repo('me/x').branches['main']})" in done.output
    assert hub.repo("me/x").private
    assert pushed(hub) == content(folder)
    assert "nothing to do" in run("push", folder, "me/x").output
    asked = run("push", staged({**FILES, "config.json": b"{}"}), "me/x", "--create-pr")
    assert f"{hub.url}/me/x/discussions/1" in asked.output
    assert run("push", staged(FILES), "me/x", "--revision", "v2").exit_code == 0
    assert "v2" in hub.repo("me/x").branches
    pulled = run("pull", "me/x", tmp_path / "out", "--revision", "refs/pr/1")
    assert pulled.exit_code == 0, pulled.output
    assert "4 file(s)" in pulled.output
    assert (tmp_path / "out" / "config.json").read_bytes() == b"{}"


@pytest.mark.parametrize("kind", ["in use", "any"])
def test_no_token_gets_into_errors_their_causes_or_the_log(
    hub: Hub, staged: Staged, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loopback Hub repeats the token in every fault that it is told to answer."""
    for name in ("hf_ffn", "transformers", "huggingface_hub"):
        caplog.set_level(logging.DEBUG, logger=name)
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    if kind == "any":
        hub.accounts[LIKE_A_TOKEN] = hub.accounts[TOKEN]
    token = TOKEN if kind == "in use" else LIKE_A_TOKEN
    for fault in (
        Fault("status", status=403, where="/commit/"),
        Fault("status", status=503, where="/commit/", times=99),
        Fault("status", status=400, where="validate-yaml"),
        Fault("status", status=401, where="GET"),
        Fault("status", status=422, where="batch"),
    ):
        hub.faults = [fault]
        with pytest.raises(ValueError, match=r"\*\*\*|Invalid metadata") as raised:
            push(staged(FILES), "me/x", token=token)
        shown = "".join(traceback.format_exception(raised.value))
        assert "Hub" in shown
        assert token not in shown
    assert token not in caplog.text
    assert "attempt 2 of 6" in caplog.text


def test_a_token_is_taken_out_of_what_an_error_came_in_the_middle_of() -> None:
    token = "".join(["hf_", "short"])

    def fail_while_handling() -> None:
        try:
            raise ValueError(f"Bearer {token}")
        except ValueError:
            raise KeyError(token)  # noqa: B904 - as other people's code does

    with pytest.raises(KeyError) as raised:
        fail_while_handling()
    client.redact(raised.value, token)
    assert "Bearer ***" in "".join(traceback.format_exception(raised.value))
    assert token not in "".join(traceback.format_exception(raised.value))


def test_a_token_that_breaks_the_header_is_not_shown(staged: Staged, hub: Hub) -> None:
    token = LIKE_A_TOKEN + "\u00e9" + LIKE_A_TOKEN
    with pytest.raises(HubError) as raised:
        push(staged(FILES), "me/x", token=token)
    assert LIKE_A_TOKEN not in "".join(traceback.format_exception(raised.value))


def test_an_error_is_one_line(
    hub: Hub, staged: Staged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.faults = [Fault("status", status=403, where="/commit/")]
    monkeypatch.setattr(sys, "argv", ["hf-ffn", "push", str(staged(FILES)), "me/x"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("hf-ffn: pushing to 'me/x': the Hub answers 403 (refused Bearer ***)")


@pytest.mark.slow
def test_the_client_and_the_command_in_debug_show_and_keep_no_token(
    hub: Hub, staged: Staged, environment: Environment, tmp_path: Path
) -> None:
    hub.faults = [Fault("status", status=403, where="/commit/")]
    command = [*COMMAND, "--debug", "push", staged(FILES), "me/x"]
    result = subprocess.run(command, env={**environment, "HF_DEBUG": "1"}, capture_output=True, text=True)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "HfHubHTTPError" in result.stderr
    assert TOKEN not in result.stdout + result.stderr
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(TOKEN.encode() in path.read_bytes() for path in written)


@pytest.mark.slow
def test_a_killed_push_leaves_nothing_half_and_goes_on(hub: Hub, staged: Staged, environment: Environment) -> None:
    folder = staged(FILES)
    # One of the two is there, and the other on its way.
    hub.faults = [Fault("reset", at=2, where="PUT"), Fault("slow", seconds=30, at=3, where="PUT")]
    with subprocess.Popen([*COMMAND, "push", str(folder), "me/x"], env=environment, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 120
        while hub.faults[-1].seen < 3:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.kill()
    assert pushed(hub) == {}
    (held,) = hub.repo("me/x").lfs
    hub.faults = []
    push(folder, "me/x")
    assert pushed(hub) == content(folder)
    assert hub.received[held] == 10000
    assert hub.resent == []


@pytest.mark.slow
def test_a_model_pushes_itself_with_the_code_that_loads_it(hub: Hub, environment: Environment, tmp_path: Path) -> None:
    model = ffn_model("FFNTextModel")
    model.push_to_hub("me/encoder", private=True)
    model.save_pretrained(tmp_path / "folder", push_to_hub=True, repo_id="me/saved")
    pushed, saved = (hub.repo(name).files() for name in ("me/encoder", "me/saved"))
    assert {"config.json", "model.safetensors", "modeling_ffn_text.py", "configuration_ffn.py"} <= pushed.keys()
    assert {name: pushed[name] for name in saved if name != "README.md"} == {
        name: data for name, data in saved.items() if name != "README.md"
    }
    inputs = text_inputs(model.config)
    with torch.no_grad():
        save_file({**inputs, "expected": model(**inputs).last_hidden_state}, tmp_path / "case.safetensors")
    command = [sys.executable, "-c", LOAD_WITHOUT_HF_FFN, tmp_path / "case.safetensors"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["transformers_modules", "True"]
