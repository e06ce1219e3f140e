"""What the files in a model's folder say of it; a card states this and nothing else."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig
from transformers.utils import CONFIG_NAME

from ..conversion import TASKS, model_class_for
from ..digest import DIGEST, is_about, model_digest
from ..equivalence import Check, EquivalenceReport
from ..image_processor_files import IMAGE_PROCESSOR_FILES
from ..modeling_ffn import FFNPreTrainedModel
from ..sentence_files import MODULES
from ..tokenizer_files import VOCABULARY_FILES, find_file
from .details import is_repo_id

# Data that come with hf_ffn (`hf_ffn.training.embedded`, which needs more packages), and have no page on the Hub.
EMBEDDED = ("docstrings", "digits")

# In place of where a checkpoint lay on somebody's machine; no repository can be called so.
LOCAL = "a local checkpoint"

# What of a run's record a staged folder keeps. Not under the record's own name, by which scripts know a run's folder,
# and may write over it.
PUBLIC_RECORD = "training_arguments.json"
RUN_RECORDS = ("run.json", PUBLIC_RECORD)

# What our own commands leave beside a model, other than pictures; each says which model it is about.
JSON_FACTS = ("equivalence.json", "all_results.json", *RUN_RECORDS)

# Pictures that our own commands leave beside a model, with what they show.
PICTURES = {
    "training_curves.png": "Loss and metric over the training steps",
    "confusion_matrix.png": "Confusion matrix of the evaluation data",
    "reliability.png": "Reliability diagram of the evaluation data",
    "predictions.png": "Predicted over true values of the evaluation data",
    "equivalence.png": "Error of each layer beside the original",
}


@dataclass
class Facts:
    """What is known of a model from its folder.

    Attributes:
        model_class: ours.
        config: of the model.
        equivalence: the report of its conversion; None where there is none.
        results: `all_results.json` of its fine-tuning; None where there is none.
        arguments: those of its fine-tuning; empty where there was none.
        pictures: file names and what they show.
        has_tokenizer: whether a tokenizer lies in the folder.
        has_image_processor: whether an image processor does.
        has_feature_extractor: whether what makes spectrograms of sounds does.
        has_sentence_modules: whether sentence-transformers loads the folder, with its modules.
        left_out: files of facts that are there and not about this model, each with the reason.
    """

    model_class: type[FFNPreTrainedModel]
    config: PreTrainedConfig
    equivalence: EquivalenceReport | None
    results: dict[str, Any] | None
    arguments: dict[str, Any]
    pictures: dict[str, str]
    has_tokenizer: bool
    has_image_processor: bool
    has_feature_extractor: bool
    has_sentence_modules: bool
    left_out: dict[str, str]

    @property
    def task(self) -> str:
        """Of `hf_ffn.conversion.TASKS`."""
        tasks = TASKS[self.model_class.config_class.model_type]
        return next(name for name, model_class in tasks.items() if model_class is self.model_class)

    @property
    def auto_class(self) -> str:
        """The class of transformers that loads it."""
        return str(self.model_class._auto_class)

    @property
    def base_model(self) -> str | None:
        """The Hub's id of what it was made from, where the files tell one."""
        told = self.arguments.get("model_name_or_path") if self.arguments else self.converted_from
        return told if is_hub_id(told) else None

    @property
    def converted_from(self) -> str | None:
        """The Hub's id of what it was converted from, where the files tell one."""
        return self.equivalence.source if self.equivalence and is_hub_id(self.equivalence.source) else None

    @property
    def dataset(self) -> str | None:
        """The Hub's id of what it was trained on, where the files tell one."""
        told = self.arguments.get("dataset_name")
        return told if told not in EMBEDDED and is_hub_id(told) else None


def gather(folder: Path, source: Path | None = None) -> Facts:
    """Read what the files in a folder say of the model in it; what they say of another one is left out.

    Args:
        folder: of a model of ours.
        source: where the proof, the results, the record of a run and the pictures lie; None for the same folder.

    Raises:
        ValueError: it holds no model of ours, or a damaged file; the message names it.
    """
    source = folder if source is None else source
    model_class = model_class_for(folder)
    processors = [content for name in IMAGE_PROCESSOR_FILES if (content := read_json(folder / name)) is not None]
    # A larger model's file may only name the class of the whole.
    processors = [content for content in processors if content.keys() - {"processor_class", "auto_map"}]
    for_sounds = [content.get("feature_extractor_type") is not None for content in processors]
    found = {name: (source / name).read_bytes() for name in PICTURES if (source / name).is_file()}
    told = {name: content for name in JSON_FACTS if (content := read_json(source / name)) is not None}
    left_out = foreign_facts({**found, **told}, model_digest(folder)) if found or told else {}
    own = {name: content for name, content in told.items() if name not in left_out}
    pictures = found.keys() - left_out.keys() - ({"equivalence.png"} if "equivalence.json" not in own else set())
    return Facts(
        model_class=model_class,
        config=model_class.config_class.from_pretrained(folder),
        equivalence=parse_equivalence(source / "equivalence.json", own.get("equivalence.json")),
        results=own.get("all_results.json"),
        arguments=next((parse_arguments(source / name, own[name]) for name in RUN_RECORDS if name in own), {}),
        pictures={name: shows for name, shows in PICTURES.items() if name in pictures},
        has_tokenizer=any((folder / name).is_file() for name in VOCABULARY_FILES),
        has_image_processor=not all(for_sounds),
        has_feature_extractor=any(for_sounds),
        has_sentence_modules=(folder / MODULES).is_file(),
        left_out=left_out,
    )


def facts_folder(source: str | os.PathLike, hub_kwargs: dict[str, Any]) -> Path:
    """The folder on this machine in which a model's facts lie; those of a repository on the Hub are fetched."""
    if os.path.isdir(source):
        return Path(source, hub_kwargs.get("subfolder") or "")
    config = find_file(source, CONFIG_NAME, hub_kwargs)
    for name in (*JSON_FACTS, *PICTURES):
        find_file(source, name, hub_kwargs)
    return Path(config).parent if config else Path(source)


def foreign_facts(found: dict[str, dict[str, Any] | bytes], digest: str) -> dict[str, str]:
    """Which files of facts are not known to be about the model of this digest, and why."""
    others = {name: content for name, content in found.items() if not is_about(content, digest)}
    return {
        name: "it is about another model" if says_which(content) else "it does not say which model it is about"
        for name, content in others.items()
    }


def says_which(content: dict[str, Any] | bytes) -> bool:
    """Whether a file of facts says which model it is about."""
    return DIGEST.encode() in content if isinstance(content, bytes) else bool(content.get(DIGEST))


def parse_equivalence(path: Path, content: dict[str, Any] | None) -> EquivalenceReport | None:
    """The proof of a conversion, without where the original lay on this machine; None where there is none."""
    if content is None:
        return None
    try:
        names = ("source", "source_class", "model_class", "versions", DIGEST)
        checks = [Check(**check) for check in content["checks"]]
        report = EquivalenceReport(**{name: content[name] for name in names}, checks=checks)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"'{path}' is no report of a conversion ({error!r}): convert again, or take it away"
        ) from error
    if not is_hub_id(report.source):
        report.source = LOCAL
    return report


def parse_arguments(path: Path, run: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a fine-tuning run, from its record."""
    arguments, processes = run.get("arguments", {}), run.get("processes", {})
    if not (isinstance(arguments, dict) and isinstance(processes, dict)):
        raise ValueError(f"'{path}' is no record of a run: train again, or take it away")
    return arguments | processes


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a JSON file; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"'{path}' is damaged ({error}): make it again, or take it away") from error
    if not isinstance(content, dict):
        raise ValueError(f"'{path}' holds no entries by name: make it again, or take it away")
    return content


def is_hub_id(name: Any) -> bool:
    """Whether this can be a repository on the Hub, and is no folder here."""
    return isinstance(name, str) and is_repo_id(name) and not Path(name).exists()
