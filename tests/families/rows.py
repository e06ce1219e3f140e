"""What a row of the test of every family is, and which there are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from hf_ffn import FAMILIES
from hf_ffn.families import Family

Inputs = Callable[[Any, bool], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Row:
    """A small model of a family, in one of the forms that the family has.

    Attributes:
        name: of a family in `FAMILIES`.
        config: fields of the family's own configuration.
        inputs: makes inputs for a configuration, with padding or without.
        variant: what this form is; empty where there is but one.
        pads: whether there is padding.
        not_kept: what the family's own class does not keep from the file that it first writes to the next one, with
            which the way back is then compared.
        classes: which of the family's classes; None for all that it has a counterpart for.
    """

    name: str
    config: dict[str, Any]
    inputs: Inputs
    variant: str = ""
    pads: bool = True
    not_kept: str = ""
    classes: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.variant}" if self.variant else self.name

    @property
    def family(self) -> Family:
        """The family."""
        return FAMILIES[self.name]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Ours and theirs: the classes to convert."""
        return [pair for pair in self.family.heads.items() if self.classes is None or pair[1] in self.classes]

    def source_config(self) -> PreTrainedConfig:
        """A new configuration of the family's own class."""
        return AutoConfig.for_model(self.family.model_type, **self.config)


def source_class(name: str) -> type[PreTrainedModel]:
    """A class of transformers."""
    return getattr(transformers, name)
