"""Looking through a staged folder: does its code hold together, and does no file tell what is nobody's business?"""

import ast
import getpass
import json
import re
from collections.abc import Iterator
from pathlib import Path

TEXT_ENDINGS = (".json", ".md", ".py", ".txt", ".yaml", ".yml", ".jinja", ".csv")
# Lists of words, which may be anybody's name or look like a path.
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "added_tokens.json")

SECRETS = {
    "a token of the Hugging Face Hub": r"\bhf_[A-Za-z0-9]{20,}",
    "a token of GitHub": r"\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})",
    "a key of AWS": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a key of an AI service": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a token of Slack": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@",
}
# Of any machine: Unix, macOS, Windows.
PATHS = (
    r"(?<![\w./-])/(home|root|Users|tmp|work|mnt|media|data|var|opt|srv|private|scratch)/[\w.-]+"
    r"|\b[A-Za-z]:\\\\?[\w.-]+"
)
# Accounts that many machines have, which tell nothing.
COMMON_USERS = {"root", "user", "admin", "ubuntu", "runner", "jovyan", "nobody", "docker", "vscode", "codespace"}


def inspect_folder(folder: Path, public_names: set[str]) -> list[str]:
    """Everything that speaks against publishing a folder, one sentence each; empty where nothing does.

    Args:
        folder: the staged one.
        public_names: user names that are meant to be seen, such as the repository's owner.
    """
    return [*broken_imports(folder), *broken_auto_map(folder), *private_matters(folder, public_names)]


def broken_imports(folder: Path) -> Iterator[str]:
    """Relative imports of the folder's code that lead out of it."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                for name in names:
                    if node.level > 1 or not (folder / f"{name}.py").is_file():
                        yield f"{path.name}, line {node.lineno}: imports .{name}, which is not in the folder"


def broken_auto_map(folder: Path) -> Iterator[str]:
    """Entries of config.json's auto_map that name another repository, or a class that is not in the folder."""
    auto_map = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("auto_map") or {}
    for needed in ("AutoConfig", "AutoModel"):
        if needed not in auto_map:
            yield f"config.json: auto_map lacks {needed}"
    for auto, target in auto_map.items():
        match = re.fullmatch(r"(\w+)\.(\w+)", str(target))
        if match is None:
            yield f"config.json: auto_map's {auto} is '{target}', which leads to another repository"
            continue
        module = folder / f"{match[1]}.py"
        if not module.is_file() or f"\nclass {match[2]}(" not in module.read_text(encoding="utf-8"):
            yield f"config.json: auto_map's {auto} is '{target}', which is not in the folder"


def private_matters(folder: Path, public_names: set[str]) -> Iterator[str]:
    """Tokens, paths of a machine and the user's name, in any text file."""
    user = getpass.getuser()
    tells_user = len(user) > 2 and user.lower() not in COMMON_USERS and user not in public_names
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.suffix not in TEXT_ENDINGS:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        where = path.relative_to(folder).as_posix()
        for what, pattern in SECRETS.items():
            found = re.search(pattern, text)
            if found:
                yield f"{where}, line {line_of(text, found)}: looks like {what}"
        if path.name in VOCABULARIES:
            continue
        found = re.search(PATHS, text)
        if found:
            yield f"{where}, line {line_of(text, found)}: a path of this machine ('{found[0]}')"
        found = re.search(rf"\b{re.escape(user)}\b", text) if tells_user else None
        if found:
            yield f"{where}, line {line_of(text, found)}: your user name ('{user}')"


def line_of(text: str, found: re.Match) -> int:
    """The line of a match, from 1."""
    return text.count("\n", 0, found.start()) + 1
