"""The families of checkpoints that loading knows, and the error for one that it does not.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from collections.abc import Callable
from typing import Any, Protocol

import transformers
from transformers import PreTrainedConfig
from transformers.core_model_loading import WeightTransform
from transformers.utils import logging

logger = logging.get_logger(__name__)

Shapes = dict[str, tuple[int, ...]]

# Our own model types by the configuration class that `auto_map` names in every config.json of ours.
NATIVE_CONFIGS = {"FFNTextConfig": "hf_ffn_text", "FFNVisionConfig": "hf_ffn_vision"}


class ForeignFamily(Protocol):
    """What loading needs to know about a family of checkpoints that hf_ffn converts (see `hf_ffn.families`)."""

    @property
    def name(self) -> str: ...

    @property
    def model_type(self) -> str: ...

    @property
    def nested(self) -> tuple[str, str] | None: ...

    @property
    def sizes_in_tensors(self) -> bool: ...

    @property
    def unused(self) -> dict[str, str]: ...

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]: ...

    def fitting(self, config_dict: dict[str, Any], shapes: Shapes) -> dict[str, Any] | None: ...

    def of(self, config: PreTrainedConfig) -> "ForeignFamily": ...

    def weight_mapping(self, head: str | None = None) -> list[WeightTransform]: ...


# The checkpoints that convert as they load, by the `model_type` in their config.json. `import hf_ffn` fills it;
# it stays empty where only a checkpoint's own code files are present, and native checkpoints need nothing from it.
FOREIGN_FAMILIES: dict[str, ForeignFamily] = {}


class BlockFamily(Protocol):
    """What reading a feed-forward block needs to know about a family of checkpoints."""

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]: ...

    def of(self, config: PreTrainedConfig) -> "BlockFamily": ...

    def weight_mapping(self) -> list[WeightTransform]: ...


# Families of which feed-forward blocks alone can be read, by `model_type` and part (None where there is only one).
FEED_FORWARD_FAMILIES: dict[tuple[str, str | None], BlockFamily] = {}


def block_family(source: str, model_type: str | None, part: str | None) -> BlockFamily | None:
    """The family that a checkpoint's feed-forward blocks are read by; None for one of ours or an unknown one.

    Raises:
        ValueError: the checkpoint holds several encoders and `part` names none of them, or it holds one.
    """
    families = {name: family for (other, name), family in FEED_FORWARD_FAMILIES.items() if other == model_type}
    if part in families:
        return families[part]
    if not families and part is None:
        return FOREIGN_FAMILIES.get(model_type or "")
    parts = " or ".join(repr(name) for name in families if name is not None)
    if not parts:
        raise ValueError(f"part={part!r}: '{source}' holds one encoder; leave part out")
    raise ValueError(f"part={part!r}: '{source}' holds several encoders; pass part={parts}")


def with_model_type(
    config_dict: dict[str, Any], source: str, family: str | None, shapes: Callable[[], Shapes]
) -> dict[str, Any]:
    """Add the `model_type` that config.json files of before 2020 do not state.

    It is that of the family that the caller names, of the class under `architectures`, or of the one family whose
    encoder the tensors make up.

    Args:
        config_dict: a config.json.
        source: the checkpoint, for messages.
        family: the caller's `family=`, by its name or its model type.
        shapes: gives the shapes of the checkpoint's tensors by their names, where they are needed.

    Raises:
        ValueError: `family` is none that converts, or another than the stated one; or nothing tells the family.
    """
    stated = config_dict.get("model_type")
    if stated is not None:
        known = FOREIGN_FAMILIES.get(stated)
        if family not in (None, stated, known.name if known is not None else stated):
            raise ValueError(
                f"family={family!r}: '{source}' states model_type={stated!r} in its config.json; leave family out"
            )
        return config_dict
    if family is not None:
        return {**config_dict, "model_type": model_type_of(family, config_dict)}
    config_class = str((config_dict.get("auto_map") or {}).get("AutoConfig", "")).rpartition(".")[2]
    if config_class in NATIVE_CONFIGS:
        return {**config_dict, "model_type": NATIVE_CONFIGS[config_class]}
    for architecture in config_dict.get("architectures") or ():
        its_config = getattr(getattr(transformers, architecture, None), "config_class", None)
        if its_config is not None:
            return {**config_dict, "model_type": its_config.model_type}
    return {**config_dict, "model_type": model_type_that_fits(config_dict, source, shapes())}


def model_type_of(family: str, config_dict: dict[str, Any]) -> str:
    """The model type of a family, which the caller calls by its name or by that type.

    Raises:
        ValueError: there is no such family.
    """
    for each in FOREIGN_FAMILIES.values():
        if family in (each.name, each.model_type):
            whole = each.nested is not None and each.nested[1] in config_dict
            return each.nested[0] if each.nested is not None and whole else each.model_type
    if family in FOREIGN_FAMILIES or any(family == name for name, _ in FEED_FORWARD_FAMILIES):
        return family
    raise ValueError(f"family={family!r} is not a family that hf_ffn knows; it knows {family_names()}")


def family_names() -> str:
    """The families that convert, for messages."""
    return ", ".join(sorted({each.name for each in FOREIGN_FAMILIES.values()})) or "none, as it is not imported here"


def model_type_that_fits(config_dict: dict[str, Any], source: str, shapes: Shapes) -> str:
    """The model type of the one family whose encoder these tensors make up, as the configuration describes it.

    Raises:
        ValueError: there is none, or there are several that compute differently.
    """
    fitting: dict[str, tuple[str, dict[str, Any]]] = {}
    for each in FOREIGN_FAMILIES.values():
        if each.name not in fitting and (translated := each.fitting(config_dict, shapes)) is not None:
            translated.pop("source_family")
            fitting[each.name] = (each.model_type, translated)
    if len({str(translated) for _, translated in fitting.values()}) != 1:
        told = "its tensors are of no family that is known here" if shapes else "there are no weights to tell by"
        if fitting:
            told = f"its tensors could be those of {', '.join(fitting)}"
        raise ValueError(
            f"'{source}' has no model_type in its config.json, and {told}: pass family= "
            f"(hf-ffn: --family), one of {family_names()}"
        )
    name, *alike = fitting
    same = f" (or of {', '.join(alike)}, which compute the same: pass family= for one of these)" if alike else ""
    logger.warning_once(f"'{source}' has no model_type in its config.json: its tensors are those of {name}{same}")
    return fitting[name][0]


def unknown_family(source: str, model_type: str | None) -> ValueError:
    """The error for a checkpoint that is neither ours nor of a family that converts."""
    known = ", ".join(sorted(FOREIGN_FAMILIES)) or "none, as hf_ffn is not imported here"
    block_types = sorted({name for name, _ in FEED_FORWARD_FAMILIES})
    if model_type in block_types:
        return ValueError(
            f"'{source}' has model_type={model_type!r} in its config.json: its attention is of another kind, so that "
            f"its feed-forward blocks alone can be read, with FeedForward.from_pretrained('{source}', layer=0). "
            f"Families that hf_ffn converts whole: {known}."
        )
    return ValueError(
        f"'{source}' has model_type={model_type!r} in its config.json, which hf_ffn does not convert. "
        f"Families that it converts: {known}. Families of which FeedForward.from_pretrained reads the feed-forward "
        f"blocks alone: {', '.join(block_types) or known}."
    )
