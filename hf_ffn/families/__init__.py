"""The families of checkpoints that hf_ffn converts, a short file for each kind."""

from ..configuration_ffn import FOREIGN_FAMILIES
from .bert import BERT, ERNIE
from .family import Family
from .roberta import CAMEMBERT, DATA2VEC_TEXT, ROBERTA, ROBERTA_PRELAYERNORM, XLM_ROBERTA
from .vit import VIT

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        BERT,
        ERNIE,
        ROBERTA,
        XLM_ROBERTA,
        CAMEMBERT,
        DATA2VEC_TEXT,
        ROBERTA_PRELAYERNORM,
        VIT,
    )
}

FOREIGN_FAMILIES.update({family.model_type: family for family in FAMILIES.values()})

__all__ = ["FAMILIES", "Family"]
