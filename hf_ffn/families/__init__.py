"""The families of checkpoints that hf_ffn converts, a short file for each kind."""

from ..registry_ffn import FEED_FORWARD_FAMILIES, FOREIGN_FAMILIES
from .albert import ALBERT
from .ast import AST
from .beit import BEIT, DATA2VEC_VISION
from .bert import BERT, ERNIE
from .clip import CLIP, SIGLIP
from .deit import DEIT
from .dinov2 import DINOV2, DINOV2_WITH_REGISTERS
from .dinov3 import DINOV3
from .distilbert import DISTILBERT
from .electra import ELECTRA
from .esm import ESM
from .family import Family
from .feed_forward_only import FEED_FORWARD_ONLY
from .modernbert import MODERNBERT
from .mpnet import MPNET
from .roberta import CAMEMBERT, DATA2VEC_TEXT, ROBERTA, ROBERTA_PRELAYERNORM, XLM_ROBERTA
from .timm import TIMM
from .vit import IJEPA, VIT, VIT_MSN
from .vit_mae import VIT_MAE

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
        DEIT,
        VIT_MAE,
        VIT_MSN,
        IJEPA,
        DINOV2,
        DINOV2_WITH_REGISTERS,
        DINOV3,
        CLIP,
        SIGLIP,
        BEIT,
        DATA2VEC_VISION,
        AST,
        TIMM,
    )
}

for _family in FAMILIES.values():
    FOREIGN_FAMILIES[_family.model_type] = _family
    if _family.nested is not None:
        FOREIGN_FAMILIES[_family.nested[0]] = _family
FEED_FORWARD_FAMILIES.update({(family.model_type, family.part): family for family in FEED_FORWARD_ONLY})

__all__ = ["FAMILIES", "FEED_FORWARD_ONLY", "Family"]
