"""What a folder of sentence-transformers holds beside its encoder: pooling, normalisation, prompts, longest input."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import snapshot_download
from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.utils import logging

from .checkpoint_ffn import hub_keywords, open_tensors
from .tokenizer_files import find_file

logger = logging.get_logger(__name__)

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
# Of the encoder, under the names that it had in the course of time.
ENCODER_SETTINGS = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# What sentence-transformers takes an encoder for, and our class that does it.
CLASSES = {
    "feature-extraction": "FFNTextModel",
    "fill-mask": "FFNForMaskedLM",
    "sequence-classification": "FFNForSequenceClassification",
}
# Modules that only compute, and need no file.
_WITHOUT_FILES = ("Normalize",)


@dataclass
class SentenceModules:
    """The modules of a folder of sentence-transformers.

    Attributes:
        root: where modules.json lies on this machine.
        modules: its entries; the first is the encoder.
        settings: of the encoder; empty where it has none.
        encoder_folder: where the encoder lies within the checkpoint; empty where it lies beside modules.json, as it
            does since 2021.
    """

    root: Path
    modules: list[dict[str, Any]]
    settings: dict[str, Any]
    encoder_folder: str

    @property
    def class_name(self) -> str | None:
        """Our class that takes the encoder's place; None where we have none."""
        kind = str(self.modules[0]["type"]).rpartition(".")[2]
        default = {"Transformer": "feature-extraction", "MLMTransformer": "fill-mask"}.get(kind)
        return CLASSES.get(self.settings.get("transformer_task", default)) if default else None

    def write(self, folder: Path) -> None:
        """Write all but the encoder and its tokenizer into another folder, in which the encoder lies at the top."""
        encoder, *others = self.modules
        text = json.dumps([{**encoder, "path": ""}, *others], indent=2)
        (folder / MODULES).write_text(text + "\n", encoding="utf-8")
        if (self.root / SETTINGS).is_file():
            shutil.copyfile(self.root / SETTINGS, folder / SETTINGS)
        if self.settings:
            text = json.dumps(self.settings, indent=2, ensure_ascii=False)
            (folder / ENCODER_SETTINGS[0]).write_text(text + "\n", encoding="utf-8")
        for module in others:
            for path in files_of(self.root, module):
                place = folder / path.relative_to(self.root)
                place.parent.mkdir(parents=True, exist_ok=True)
                copy_module_file(path, place)


def copy_module_file(path: Path, place: Path) -> None:
    """Copy a file of a module; weights that are a pickle become safetensors, which sentence-transformers prefers."""
    if path.name != "pytorch_model.bin":
        shutil.copyfile(path, place)
    elif not path.with_name("model.safetensors").exists():
        with open_tensors(str(path)) as (names, read):
            tensors = {name: read(name).contiguous() for name in names}
        save_file(tensors, place.with_name("model.safetensors"), metadata={"format": "pt"})


def files_of(root: Path, module: dict[str, Any]) -> list[Path]:
    """The files of a module, sorted; none where it has no folder of its own, or that is not there."""
    return sorted(path for path in (root / module["path"]).rglob("*") if path.is_file()) if module["path"] else []


def read_sentence_modules(source: str | os.PathLike, **hub_kwargs: Any) -> SentenceModules | None:
    """The modules of a folder of sentence-transformers; None for another one.

    Args:
        source: a folder or a Hub id.
        hub_kwargs: `revision`, `token`, `cache_dir`…

    Raises:
        ValueError: modules.json, or another file of these, is damaged; the message names it.
    """
    given = PurePosixPath(hub_kwargs.get("subfolder") or "")
    where = {name: value for name, value in hub_keywords(hub_kwargs).items() if name != "subfolder"}
    # In the folder itself, or above an encoder that lies within it
    for above in (given, *given.parents):
        found = find_file(source, MODULES, {**where, "subfolder": str(above)} if above.parts else where)
        if found is not None:
            break
    else:
        return None
    modules = read_json(Path(found))
    if not (isinstance(modules, list) and modules and all(is_entry(module) for module in modules)):
        raise ValueError(f"'{found}' does not list modules, each with a type and a path within the folder")
    if given not in (above, above / modules[0]["path"]):
        return None
    if not os.path.isdir(source):
        wanted = [SETTINGS, *ENCODER_SETTINGS, *(f"{module['path']}/*" for module in modules if module["path"])]
        hub_only = {name: value for name, value in where.items() if name != "proxies"}
        snapshot_download(str(source), allow_patterns=[str(above / name) for name in wanted], **hub_only)
    root, place = Path(found).parent, Path(found).parent / modules[0]["path"]
    settings: dict[str, Any] = next(
        (read_json(place / name) for name in ENCODER_SETTINGS if (place / name).is_file()), {}
    )
    return SentenceModules(root, modules, settings, str(above / modules[0]["path"]) if modules[0]["path"] else "")


def is_entry(module: Any) -> bool:
    """Whether this is a module of modules.json, which may have come from anyone."""
    if not (isinstance(module, dict) and all(isinstance(module.get(name), str) for name in ("type", "path"))):
        return False
    path = PurePosixPath(module["path"])
    return not path.is_absolute() and ".." not in path.parts and "\\" not in module["path"]


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"'{path}' is damaged ({error}): fetch or copy it again") from error


def modules_for(model: PreTrainedModel, source: str | os.PathLike, **hub_kwargs: Any) -> SentenceModules | None:
    """The modules that a checkpoint has beside its encoder, where they fit a model of ours that was made from it.

    What does not fit stays behind, and a warning says so.

    Args:
        model: loaded from there, and maybe trained since.
        source: a folder or a Hub id.
        hub_kwargs: `revision`, `token`, `cache_dir`…

    Raises:
        ValueError: modules.json, or another file of these, is damaged.
    """
    found = read_sentence_modules(source, **hub_kwargs)
    reason = None if found is None else why_not(found, model)
    if reason is not None:
        logger.warning(f"'{source}' is a folder of sentence-transformers; its {MODULES} stays behind: {reason}")
        return None
    return found


def why_not(found: SentenceModules, model: PreTrainedModel) -> str | None:
    """Why the modules of a folder do not fit a model; None where they do."""
    foreign = [each["type"] for each in found.modules if not each["type"].startswith("sentence_transformers.")]
    if foreign:
        return f"{', '.join(foreign)} is code of somebody's own"
    if found.class_name is None:
        return f"{found.modules[0]['type']} is no encoder that hf_ffn can take the place of"
    if found.class_name != type(model).__name__:
        return f"they are for a {found.class_name}, and this is a {type(model).__name__}"
    if has_new_head(model):
        return "the head that they are for was made anew"
    without = [module["path"] or module["type"] for module in found.modules[1:] if lacks_files(found.root, module)]
    return f"of {', '.join(without)} there is no file" if without else None


def lacks_files(root: Path, module: dict[str, Any]) -> bool:
    """Whether what a module is made of is not in the folder."""
    needs_none = module["type"].rpartition(".")[2] in _WITHOUT_FILES
    return not needs_none and not files_of(root, module)


def has_new_head(model: PreTrainedModel) -> bool:
    """Whether a part of the model was newly made when it was loaded."""
    report = getattr(model, "loading_report", None)
    return report is not None and bool(report.new)


def encoder_place(source: str | os.PathLike, hub_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Where a checkpoint's encoder lies: the same keywords, with the `subfolder` that modules.json of old names."""
    found = read_sentence_modules(source, **hub_kwargs)
    return {**hub_kwargs, "subfolder": found.encoder_folder} if found and found.encoder_folder else hub_kwargs
