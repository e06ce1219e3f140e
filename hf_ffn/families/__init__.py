"""The families of checkpoints that hf_ffn converts, one file each."""

from ..configuration_ffn import FEED_FORWARD_FAMILIES, FOREIGN_FAMILIES
from .bert import BERT
from .family import Family
from .feed_forward_only import FEED_FORWARD_ONLY
from .vit import VIT

FAMILIES: dict[str, Family] = {family.name: family for family in (BERT, VIT)}

FOREIGN_FAMILIES.update({family.model_type: family for family in FAMILIES.values()})
FEED_FORWARD_FAMILIES.update({(family.model_type, family.part): family for family in FEED_FORWARD_ONLY})

__all__ = ["FAMILIES", "FEED_FORWARD_ONLY", "Family"]
