"""What a folder must not tell is found, with file and line; what tells nothing is left alone."""

import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from hf_ffn.hub.card import escaped
from hf_ffn.hub.inspection import COMMON_USERS, SECRETS, VOCABULARIES, inspect_folder

# Put together here, so that this file looks like a secret to nobody.
LETTERS = "aBcD1234" * 5
KEYS = {
    "a token of the Hugging Face Hub": "hf" + "_" + LETTERS[:34],
    "a token of GitHub": "ghp" + "_" + LETTERS[:36],
    "a key of AWS": "AKIA" + "Q" * 16,
    "a key of an AI service": "sk" + "-" + LETTERS[:32],
    "a token of Slack": "xoxb" + "-1234567890-" + LETTERS[:12],
    "a private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----",
    "a password in an address": "https://me:" + "secret@example.org/x",
}


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> str:
    """Who is signed in here."""
    monkeypatch.setattr(getpass, "getuser", lambda: "wendeline")
    return "wendeline"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing against it."""
    auto_map = {"AutoConfig": "configuration_x.XConfig", "AutoModel": "modeling_x.XModel"}
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": auto_map}))
    (tmp_path / "configuration_x.py").write_text("import torch\n\n\nclass XConfig:\n    pass\n")
    (tmp_path / "modeling_x.py").write_text(
        "from .configuration_x import XConfig\n\n\nclass XModel(XConfig):\n    pass\n"
    )
    (tmp_path / "README.md").write_text("# X\n\nSee https://example.org/home/x.\n")
    return tmp_path


def complaints(folder: Path, *public_names: str) -> list[str]:
    return inspect_folder(folder, set(public_names))


def test_nothing_is_said_against_a_good_folder(folder: Path) -> None:
    assert complaints(folder) == []


def test_every_kind_of_secret_is_tried() -> None:
    assert KEYS.keys() == SECRETS.keys()


@pytest.mark.parametrize("name", ["notes.txt", "run.json", "LICENSE", ".env", "a/b.yaml", *VOCABULARIES])
@pytest.mark.parametrize("kind", KEYS)
def test_a_secret_is_found_in_any_text_with_its_line_and_not_repeated(folder: Path, kind: str, name: str) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"first\nsecond: {KEYS[kind]}\n")
    (found,) = complaints(folder)
    assert found == f"{name}, line 2: looks like {kind}"


@pytest.mark.parametrize("name", ["model.safetensors", "picture.png", "spiece.model"])
def test_what_is_no_text_is_not_searched(folder: Path, name: str) -> None:
    (folder / name).write_text(" ".join(KEYS.values()))
    assert complaints(folder) == []


@pytest.mark.parametrize(
    "text",
    ["hf_ffn_text", "hf_hub_download(repo_id)", "task-conditioned-representations-of-words", "https://me@example.org",
     "http://localhost:8080/x", "AKIA", "-----BEGIN CERTIFICATE-----"],
)  # fmt: skip
def test_what_only_resembles_a_secret_is_none(folder: Path, text: str) -> None:
    (folder / "notes.txt").write_text(text)
    assert complaints(folder) == []


# From the root, so that no line of ours looks like a path of the machine that it was written on.
PATHS = [
    *(f"/{path}" for path in ("home/somebody/bert", "Users/somebody", "tmp/x", "root/.cache", "work/x", "mnt/data",
                              "gpfs/projects/x", "content/drive")),
    "file:///home/somebody/x", "C:\\Users\\somebody", "d:/data/x",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["notes.txt", "x.json", "README.md"])
def test_a_path_of_a_machine_is_found(folder: Path, name: str, path: str) -> None:
    text = json.dumps({"a": 1, "path": path}, indent=1) if name == "x.json" else f"a\n\npath={path}\n"
    (folder / name).write_text(text)
    (found,) = complaints(folder)
    assert found.startswith(f"{name}, line 3: a path of this machine ('")


@pytest.mark.parametrize(
    "text",
    ["https://example.org/home/x", "either/home/or away", "a/data/b", "/".join(["..", "tmp", "x"]), "and/or",
     "Q:\\nA:\\n", "I: /s/", "/", "1:\\t2"],
)  # fmt: skip
def test_what_only_resembles_a_path_is_none(folder: Path, text: str) -> None:
    (folder / "notes.txt").write_text(text)
    assert complaints(folder) == []


@pytest.mark.parametrize("name", VOCABULARIES)
def test_words_of_a_vocabulary_are_nobodys_name_and_no_paths(folder: Path, name: str) -> None:
    (folder / name).write_text("wendeline\n/home/somebody/x\n")
    assert complaints(folder) == []


def test_the_users_name_is_found_where_it_stands_alone(folder: Path) -> None:
    (folder / "notes.txt").write_text("wendelines\nMade by wendeline.\n")
    assert complaints(folder) == ["notes.txt, line 2: your user name ('wendeline')"]


def test_the_repositorys_owner_is_public(folder: Path) -> None:
    (folder / "notes.txt").write_text("wendeline/x")
    assert complaints(folder, "wendeline") == []
    assert len(complaints(folder, "somebody")) == 1


@pytest.mark.parametrize("name", [*sorted(COMMON_USERS), "Root", "me", "will", "max", "model"])
def test_a_name_that_many_have_or_that_is_a_word_tells_nothing(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: name)
    (folder / "notes.txt").write_text(f"by {name}.")
    assert complaints(folder) == []


@pytest.mark.parametrize("name", ["j.doe", "jane-doe", "jane+doe"])
def test_a_name_is_taken_as_it_is_written(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: name)
    (folder / "notes.txt").write_text(f"jxdoe\nby {name}, 2026")
    assert complaints(folder) == [f"notes.txt, line 2: your user name ('{name}')"]


@pytest.mark.parametrize("error", [KeyError("uid not found: 1234"), OSError("No username set")])
def test_a_user_without_a_name_has_nothing_to_hide(
    folder: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert complaints(folder) == []


@pytest.mark.parametrize(
    ("code", "leads_to"),
    [
        ("from .missing import x", ".missing"),
        ("from . import missing", ".missing"),
        ("from .. import configuration_x", ".configuration_x"),
        ("from ..configuration_x import XConfig", ".configuration_x"),
        ("from .configuration_x.inner import x", ".configuration_x.inner"),
        ("def late():\n    from .missing import x", ".missing"),
    ],
)
def test_an_import_that_leads_out_is_found(folder: Path, code: str, leads_to: str) -> None:
    (folder / "more.py").write_text(f"import os\n{code}\n")
    (found,) = complaints(folder)
    assert found == f"more.py, line {2 + code.count(chr(10))}: imports {leads_to}, which is not in the folder"


def test_imports_within_the_folder_and_of_packages_are_good(folder: Path) -> None:
    (folder / "more.py").write_text(
        "from . import modeling_x\nfrom .configuration_x import XConfig\nimport torch.nn\n"
    )
    assert complaints(folder) == []


def test_code_that_is_no_python_is_named(folder: Path) -> None:
    (folder / "more.py").write_text("def (:\n")
    (found,) = complaints(folder)
    assert found.startswith("more.py: is no Python")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "preprocessor_config.json"])
@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("somebody/x--modeling_x.XModel", "leads to another repository"),
        ("modeling_y.XModel", "is not in the folder"),
        ("modeling_x.YModel", "is not in the folder"),
        ("modeling_x.X", "is not in the folder"),
        ([None, "somebody/x--tokenization_x.XTokenizer"], "leads to another repository"),
    ],
)
def test_an_auto_class_that_leads_out_is_found(folder: Path, name: str, target: Any, says: str) -> None:
    content = json.loads((folder / "config.json").read_text()) if name == "config.json" else {"auto_map": {}}
    content["auto_map"]["AutoX"] = target
    (folder / name).write_text(json.dumps(content))
    (found,) = complaints(folder)
    assert found.startswith(f"{name}: auto_map's AutoX is '")
    assert found.endswith(says)


def test_a_folder_without_its_auto_classes_is_found(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    assert complaints(folder) == [f"config.json: auto_map lacks {each}" for each in ("AutoConfig", "AutoModel")]


def test_everything_is_told_at_once(folder: Path) -> None:
    (folder / "a.txt").write_text(KEYS["a key of AWS"])
    (folder / "b.txt").write_text("/home/somebody/x by wendeline")
    assert [found.split(",")[0] for found in complaints(folder)] == ["a.txt", "b.txt", "b.txt"]


# One is put together, so that no line looks like a path of this machine.
LABELS = ["/home/garden", "/home/garden_tools & more", "C:\\Users\\guide", "/".join(["", "tmp", "é"]), "wendeline",
          "B-/data/place"]  # fmt: skip


def with_labels(folder: Path) -> None:
    """Give a folder's model labels that look like what nobody should see."""
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {str(i): name for i, name in enumerate(LABELS)}
    (folder / "config.json").write_text(json.dumps(config))


def test_labels_of_the_model_that_look_like_paths_or_names_are_no_leak(folder: Path) -> None:
    with_labels(folder)
    per_class = {name.removeprefix("B-"): {"f1": 1.0} for name in LABELS}
    (folder / "all_results.json").write_text(json.dumps({"per_class": per_class}, ensure_ascii=False))
    rows = "".join(f"| {escaped(name)} | 1 |\n" for name in LABELS)
    (folder / "README.md").write_text(f"{rows}It tells /home/garden, wendeline and the rest apart: /home/garden.\n")
    assert complaints(folder) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/home/garden/secret.csv", "a path of this machine ('/home/garden')"),
        ("/home/garden.csv", "a path of this machine ('/home/garden.csv')"),
        ("/home/gardener", "a path of this machine ('/home/gardener')"),
        ("/home/wendeline", "a path of this machine ('/home/wendeline')"),
        ("/home/garden and /home/other", "a path of this machine ('/home/other')"),
        ("D:\\Users\\guide", "a path of this machine ('D:\\Users\\guide')"),
    ],
)
def test_a_true_path_beside_such_labels_is_one(folder: Path, text: str, told: str) -> None:
    with_labels(folder)
    (folder / "notes.txt").write_text(f"first\n{text}\n")
    assert f"notes.txt, line 2: {told}" in complaints(folder)
