"""The commands that people are shown."""

import inspect
import re
import shlex
from pathlib import Path

from hf_ffn_cli import app

ROOT = Path(__file__).parent.parent
SCRIPTS = ("finetune_text.py", "finetune_image.py", "push_to_hub.py")


def commands() -> list[str]:
    """The commands of the README, of CONTRIBUTING, of the scripts' docstrings and of `hf-ffn COMMAND --help`."""
    lines: list[str] = []
    for name in ("README.md", "CONTRIBUTING.md"):
        for block in re.findall(r"^```\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL):
            lines += block.splitlines()
    for script in SCRIPTS:
        docstring = inspect.cleandoc(re.search(r'"""(.*?)"""', (ROOT / "scripts" / script).read_text(), re.DOTALL)[1])  # type: ignore[index]
        lines += docstring.replace("\\\n", "").splitlines()
    for command in app.registered_commands:
        lines += re.findall(r"Example: (.+)", command.callback.__doc__ or "")  # type: ignore[union-attr]
    found = [line.strip() for line in lines if re.match(r" *(make|pip|hf-ffn|python|accelerate) ", line)]
    return list(dict.fromkeys(found))


def words_of(command: str) -> list[str]:
    """A command's words; of one that accelerate launches, those of the script."""
    words = shlex.split(command, comments=True)
    script = next((place for place, word in enumerate(words) if word.startswith("scripts/")), None)
    return words if script is None else ["python", *words[script:]]
