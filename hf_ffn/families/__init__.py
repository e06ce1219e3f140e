"""The families of checkpoints that hf_ffn converts, one file each."""

from ..configuration_ffn import FOREIGN_FAMILIES
from .bert import BERT
from .family import Family
from .vit import VIT

FAMILIES: dict[str, Family] = {family.name: family for family in (BERT, VIT)}

FOREIGN_FAMILIES.update({family.model_type: family for family in FAMILIES.values()})

__all__ = ["FAMILIES", "Family"]
