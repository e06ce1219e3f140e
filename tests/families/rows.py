"""What a row of the test of every family is, and which there are."""

from collections.abc import Callable
from dataclasses import dataclass, field
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
        beside: fields of the larger configuration that the family's may lie in.
        left_out: parts of the base model that its checkpoints may lack, and this form's do.
        ours_lacks: outputs of the original that say how it masked, or which ours has no need of.
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
    left_out: tuple[str, ...] = ()
    ours_lacks: tuple[str, ...] = ()
    beside: dict[str, Any] = field(default_factory=dict)

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

    def prepared(self, original: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Inputs for the original that ask it for what ours computes."""
        return inputs if self.family.prepare is None else self.family.prepare(original, inputs)

    def inputs_for_ours(self, model: PreTrainedModel, padded: bool) -> dict[str, torch.Tensor]:
        """Inputs for a model of ours; where it takes spectrograms, these as the original takes them."""
        inputs = self.inputs(model.config, padded)
        return inputs if model.main_input_name in inputs else self.prepared(model, inputs)

    def source_config(self, theirs: str | None = None) -> PreTrainedConfig:
        """A new configuration of the family's own class; for a class that takes a larger one, that."""
        nested = self.family.nested
        if theirs is not None and nested is not None and source_class(theirs).config_class.model_type == nested[0]:
            return AutoConfig.for_model(nested[0], **self.beside, **{nested[1]: self.config})
        return AutoConfig.for_model(self.family.model_type, **self.config)

    def own_part(self, config: PreTrainedConfig) -> PreTrainedConfig:
        """The family's configuration in what `source_config` gives."""
        nested = self.family.nested
        return getattr(config, nested[1]) if nested is not None and config.model_type == nested[0] else config


def source_class(name: str) -> type[PreTrainedModel]:
    """A class of transformers."""
    return getattr(transformers, name)
