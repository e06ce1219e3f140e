"""Run the project's scripts in processes of their own, cheaply: the slow imports are done once, in a fork server."""

import multiprocessing
import os
import runpy
import sys
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess, SpawnProcess
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent.parent / "scripts"

_context = multiprocessing.get_context("forkserver")
_fresh = multiprocessing.get_context("spawn")
_context.set_forkserver_preload(["hf_ffn.training.run", "hf_ffn.training.embedded", "matplotlib.figure", "sklearn"])


@dataclass
class Script:
    """A script that runs, or ran."""

    process: ForkServerProcess | SpawnProcess
    log: Path

    def wait(self, seconds: float = 900) -> "Script":
        """Wait for its end."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            raise TimeoutError(f"still running after {seconds} s:\n{self.output}")
        return self

    @property
    def code(self) -> int | None:
        """Its exit status; minus the signal's number if one killed it."""
        return self.process.exitcode

    @property
    def output(self) -> str:
        """What it printed, on both streams."""
        return self.log.read_text() if self.log.exists() else ""


def start(name: str, log: Path, *flags: Any, environment: dict[str, str] | None = None) -> Script:
    """Start a script with flags; its output goes to `log`.

    With an environment of its own it starts from nothing, for packages read that as they are imported.
    """
    arguments = (str(SCRIPTS / name), [str(flag) for flag in flags], str(log), environment or {})
    process = (_context if environment is None else _fresh).Process(target=_run, args=arguments)
    process.start()
    return Script(process, log)


def run(name: str, log: Path, *flags: Any, seconds: float = 900) -> Script:
    """Run a script to its end, and expect it to succeed."""
    script = start(name, log, *flags).wait(seconds)
    assert script.code == 0, script.output
    return script


def _run(path: str, flags: list[str], log: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = [path, *flags]
    runpy.run_path(path, run_name="__main__")
