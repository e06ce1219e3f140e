"""What `import hf_ffn` does: it names the public classes, and makes transformers' auto classes know them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hf_ffn
from hf_ffn.checkpoint_ffn import AUTO_MAPS

from tiny import ffn_model

IMPORTS = {
    "hf_ffn first": "import hf_ffn\nimport transformers\nfrom transformers import AutoModel",
    "transformers first": "import transformers\nfrom transformers import AutoModel\nimport hf_ffn",
}

LOAD_WITH_EVERY_AUTO_CLASS = """
import json, sys
classes = {}
for folder, auto_classes in json.loads(sys.argv[1]).items():
    for name in auto_classes:
        loaded = getattr(transformers, name).from_pretrained(folder)
        loaded_class = type(loaded)
        classes.setdefault(folder, {})[name] = f"{loaded_class.__module__}.{loaded_class.__name__}"
foreign = hf_ffn.FFNTextModel.from_pretrained(sys.argv[2])
print(json.dumps([classes, foreign.loading_report.family]))
"""


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=IMPORTS.keys())
def test_auto_classes_load_our_models_whatever_is_imported_first(
    save_source: Callable[..., Path], tmp_path: Path, imports: str
) -> None:
    folders = {}
    for name, model_type in (("FFNTextModel", "hf_ffn_text"), ("FFNVisionModel", "hf_ffn_vision")):
        ffn_model(name).save_pretrained(tmp_path / name)
        folders[str(tmp_path / name)] = AUTO_MAPS[model_type]
    command = [sys.executable, "-c", imports + LOAD_WITH_EVERY_AUTO_CLASS, json.dumps(folders)]
    result = subprocess.run([*command, save_source("BertModel")], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    classes, family = json.loads(result.stdout.splitlines()[-1])
    expected = {
        folder: {auto: f"hf_ffn.{ours}" for auto, ours in auto_map.items()} for folder, auto_map in folders.items()
    }
    assert classes == expected
    assert family == "bert"


def test_every_public_name_is_there() -> None:
    names: dict[str, object] = {}
    exec("from hf_ffn import *", names)
    assert set(names) - {"__builtins__"} == set(hf_ffn.__all__)
