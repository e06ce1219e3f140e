"""ViT ([Dosovitskiy et al. 2020](https://huggingface.co/papers/2010.11929)): pre-norm, class token, image patches."""

from .family import BLOCK_FIELDS, Family, same

VIT = Family(
    name="vit",
    model_type="vit",
    native_type="hf_ffn_vision",
    fields={
        **BLOCK_FIELDS,
        **same(
            "image_size",
            "patch_size",
            "num_channels",
            "qkv_bias",
            "pooler_output_size",
            "pooler_act",
        ),
    },
    fixed={"norm_order": "pre"},
    refused={},
    # transformers 5 holds ViT in memory (and writes with save_original_format=False) under other names than in files.
    dialects=(
        (r"^(?:vit\.)?layers\.", "encoder.layers."),
        (r"mlp\.fc1", "intermediate.dense"),
        (r"mlp\.fc2", "output.dense"),
    ),
    weights=(
        (r"^vit\.", "model."),
        (r"encoder\.layer\.", "encoder.layers."),
        (r"attention\.attention\.query", "attention.q_proj"),
        (r"attention\.attention\.key", "attention.k_proj"),
        (r"attention\.attention\.value", "attention.v_proj"),
        (r"attention\.output\.dense", "attention.o_proj"),
        (r"layernorm_before", "norm_1"),
        (r"layernorm_after", "norm_2"),
        (r"intermediate\.dense", "ffn.linear_1"),
        (r"output\.dense", "ffn.linear_2"),
        (r"layernorm", "encoder.norm"),
    ),
    heads={
        "FFNVisionModel": "ViTModel",
        "FFNForImageClassification": "ViTForImageClassification",
    },
    also_reads={"ViTForMaskedImageModeling": "FFNVisionModel"},
    unused={
        r"embeddings\.mask_token$": "the mask of masked image modelling, which hf_ffn does not do",
        r"^decoder\.": "the decoder of masked image modelling, which hf_ffn does not do",
    },
    layers="layers",
)
