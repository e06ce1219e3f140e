"""What only a person can say of a model: licence, language, what it is for."""

import difflib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

RELATIONS = ("finetune", "adapter", "quantized", "merge")


@dataclass
class CardDetails:
    """What a card says beyond the facts that lie in the model's folder; `hf-ffn stage --card` reads it from YAML.

    Attributes:
        title: heading of the card; None for the repository's name.
        repo_id: where the model will be, for the card's examples; None for a stand-in.
        license: an identifier of the Hub, such as "apache-2.0".
        language: codes of the languages, such as ["en"].
        base_model: id on the Hub of the model that this one was made from; None for what the folder tells.
        base_model_relation: how it was made from that; None for what the folder tells.
        datasets: ids on the Hub of what it was trained on; None for what the folder tells.
        tags: more of them.
        intended_use: what the model is for, in sentences.
        limits: what it is not for, where it fails.
        example: a text for the card's examples.

    Raises:
        ValueError: an entry is of the wrong type, or what must be an id on the Hub cannot be one.
    """

    title: str | None = None
    repo_id: str | None = None
    license: str | None = None
    language: list[str] | None = None
    base_model: str | None = None
    base_model_relation: str | None = None
    datasets: list[str] | None = None
    tags: list[str] = field(default_factory=list)
    intended_use: str | None = None
    limits: str | None = None
    example: str | None = None

    def __post_init__(self) -> None:
        for name in ("language", "datasets", "tags"):
            value = getattr(self, name)
            listed = [value] if isinstance(value, str) else [] if value is None else value
            # YAML takes a bare `no` (Norwegian) for false.
            if not (isinstance(listed, list) and all(isinstance(word, str) for word in listed)):
                raise ValueError(f"the card's {name} must be a list of words, not {value!r} (put them in quotes)")
            # What is left empty is not known; an empty entry would not say so.
            setattr(self, name, [word for word in listed if word.strip()] or ([] if name == "tags" else None))
        for name in ("title", "repo_id", "license", "base_model", "intended_use", "limits", "example"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"the card's {name} must be text, not {value!r} (put it in quotes)")
            setattr(self, name, (value or "").strip() or None)
        for name, ids in (("repo_id", [self.repo_id]), ("base_model", [self.base_model]), ("datasets", self.datasets)):
            for each in ids or []:
                if each is not None and not is_repo_id(each):
                    raise ValueError(f"the card's {name} '{each}' cannot be on the Hub: give user/name")
        if self.base_model_relation not in (None, *RELATIONS):
            raise ValueError(
                f"the card's base_model_relation={self.base_model_relation!r} must be one of {', '.join(RELATIONS)}"
            )

    @classmethod
    def from_yaml(cls, path: str | Path) -> "CardDetails":
        """Read them from a YAML file.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not YAML, or has an entry that a card does not know.
        """
        import yaml

        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"'{path}' is not YAML: {error}") from error
        return cls.from_entries({} if content is None else content, str(path))

    @classmethod
    def from_entries(cls, content: Any, where: str) -> "CardDetails":
        """Make them from a dictionary whose keys may be wrong."""
        if not isinstance(content, dict):
            raise ValueError(f"'{where}' must hold entries such as `license: apache-2.0`, not {content!r}")
        known = [each.name for each in fields(cls)]
        for name in content:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
                raise ValueError(f"'{where}' has the entry '{name}', which a card does not know; {hint}")
        return cls(**content)


def is_repo_id(name: str) -> bool:
    """Whether a repository on the Hub can be called so."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True
