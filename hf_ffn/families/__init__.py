"""The families of checkpoints that hf_ffn converts, a short file for each kind."""

from ..configuration_ffn import FOREIGN_FAMILIES
from .albert import ALBERT
from .bert import BERT, ERNIE
from .distilbert import DISTILBERT
from .electra import ELECTRA
from .esm import ESM
from .family import Family
from .modernbert import MODERNBERT
from .mpnet import MPNET
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
        ELECTRA,
        DISTILBERT,
        ALBERT,
        MPNET,
        ESM,
        MODERNBERT,
        VIT,
    )
}

FOREIGN_FAMILIES.update({family.model_type: family for family in FAMILIES.values()})

__all__ = ["FAMILIES", "Family"]
