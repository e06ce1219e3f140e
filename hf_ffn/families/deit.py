"""DeiT ([Touvron et al. 2020](https://huggingface.co/papers/2012.12877)): ViT with a distillation token."""

from .family import Family
from .vit import MASKING, POOLER_FIELDS, VIT_DIALECTS, VIT_FIELDS, VIT_WEIGHTS

DEIT = Family(
    name="deit",
    model_type="deit",
    native_type="hf_ffn_vision",
    fields={**VIT_FIELDS, **POOLER_FIELDS},
    fixed={"norm_order": "pre", "use_distillation_token": True},
    refused={},
    dialects=VIT_DIALECTS,
    weights=((r"^deit\.", "model."), *VIT_WEIGHTS),
    heads={
        "FFNVisionModel": "DeiTModel",
        "FFNForImageClassification": "DeiTForImageClassification",
        "FFNForImageClassificationWithTeacher": "DeiTForImageClassificationWithTeacher",
    },
    also_reads={"DeiTForMaskedImageModeling": "FFNVisionModel"},
    unused=MASKING,
    layers="layers",
)
