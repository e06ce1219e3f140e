"""The families of checkpoints that loading knows, and the error for one that it does not.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from typing import Any, Protocol

from transformers import PreTrainedConfig
from transformers.core_model_loading import WeightTransform


class ForeignFamily(Protocol):
    """What loading needs to know about a family of checkpoints that hf_ffn converts (see `hf_ffn.families`)."""

    @property
    def name(self) -> str: ...

    @property
    def model_type(self) -> str: ...

    @property
    def unused(self) -> dict[str, str]: ...

    def translate_config(self, config_dict: dict[str, Any]) -> dict[str, Any]: ...

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
