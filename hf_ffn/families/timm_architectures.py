"""What timm's vision transformers are beyond their tensors: heads, activation and LayerNorm's epsilon.

A timm checkpoint's config.json names its architecture, whose definition is in timm. Sizes come from the tensors; these
three cannot. The names are those of timm 1.0.31 that hf_ffn can express.
"""

# (heads, or None for one for every 64 channels; activation; epsilon) -> architectures
_DEFINITIONS: dict[tuple[int | None, str, float], str] = {
    (None, "gelu", 1e-6): """
        deit3_base_patch16_224 deit3_base_patch16_384 deit3_large_patch16_224 deit3_large_patch16_384
        deit3_medium_patch16_224 deit3_small_patch16_224 deit3_small_patch16_384
        deit_base_distilled_patch16_224 deit_base_distilled_patch16_384 deit_base_patch16_224
        deit_base_patch16_384 deit_small_distilled_patch16_224 deit_small_patch16_224
        deit_tiny_distilled_patch16_224 deit_tiny_patch16_224 eva_large_patch14_196 eva_large_patch14_336
        flexivit_base flexivit_large flexivit_small vit_base_patch14_dinov2 vit_base_patch14_reg1_tipsv2
        vit_base_patch14_reg4_dinov2 vit_base_patch16_224 vit_base_patch16_224_miil vit_base_patch16_384
        vit_base_patch16_plus_240 vit_base_patch16_radio_v3 vit_base_patch16_reg4_gap_256
        vit_base_patch16_siglip_gap_224 vit_base_patch16_siglip_gap_256 vit_base_patch16_siglip_gap_384
        vit_base_patch16_siglip_gap_512 vit_base_patch32_224 vit_base_patch32_384 vit_base_patch32_plus_256
        vit_base_patch8_224 vit_betwixt_patch16_gap_256 vit_betwixt_patch16_reg1_gap_256
        vit_betwixt_patch16_reg4_gap_256 vit_betwixt_patch16_reg4_gap_384 vit_giant_patch16_radio_v3
        vit_intern300m_patch14_448 vit_large_patch14_224 vit_large_patch14_dinov2
        vit_large_patch14_reg1_tipsv2 vit_large_patch14_reg4_dinov2 vit_large_patch16_224
        vit_large_patch16_384 vit_large_patch16_radio_v3 vit_large_patch16_siglip_gap_256
        vit_large_patch16_siglip_gap_384 vit_large_patch32_224 vit_large_patch32_384
        vit_little_patch16_reg1_gap_256 vit_little_patch16_reg4_gap_256 vit_medium_patch16_gap_240
        vit_medium_patch16_gap_256 vit_medium_patch16_gap_384 vit_medium_patch16_reg1_gap_256
        vit_medium_patch16_reg4_gap_256 vit_mediumd_patch16_reg4_gap_256 vit_mediumd_patch16_reg4_gap_384
        vit_small_patch14_dinov2 vit_small_patch14_reg4_dinov2 vit_small_patch16_224
        vit_small_patch16_36x1_224 vit_small_patch16_384 vit_small_patch32_224 vit_small_patch32_384
        vit_small_patch8_224

        vit_tiny_patch16_224 vit_tiny_patch16_384 vit_wee_patch16_reg1_gap_256
    """,
    (16, "gelu", 1e-6): """
        deit3_huge_patch14_224 vit_base_patch16_gap_224 vit_giant_patch14_224 vit_giant_patch16_gap_224
        vit_gigantic_patch14_224 vit_huge_patch14_224 vit_huge_patch14_gap_224 vit_huge_patch16_gap_448
        vit_huge_patch16_radio_v3 vit_huge_patch16_radio_v4 vit_so400m_patch14_reg1_tipsv2
        vit_so400m_patch14_siglip_gap_224 vit_so400m_patch14_siglip_gap_378 vit_so400m_patch14_siglip_gap_384
        vit_so400m_patch14_siglip_gap_448 vit_so400m_patch14_siglip_gap_896 vit_so400m_patch16_radio_v4
    """,
    (None, "gelu", 1e-5): """
        vit_base_patch16_clip_224 vit_base_patch16_clip_384 vit_base_patch16_plus_clip_240
        vit_base_patch32_clip_224 vit_base_patch32_clip_256 vit_base_patch32_clip_384
        vit_base_patch32_clip_448 vit_betwixt_patch32_clip_224 vit_large_patch14_clip_224
        vit_large_patch14_clip_336 vit_medium_patch16_clip_224 vit_medium_patch32_clip_224
        vit_xsmall_patch16_clip_224
    """,
    (16, "gelu", 1e-5): """
        vit_giant_patch14_clip_224 vit_gigantic_patch14_clip_224 vit_gigantic_patch14_clip_378
        vit_huge_patch14_clip_224 vit_huge_patch14_clip_336 vit_huge_patch14_clip_378
    """,
    (16, "gelu_pytorch_tanh", 1e-6): """
        vit_giantopt_patch16_siglip_gap_256 vit_giantopt_patch16_siglip_gap_384
        vit_so400m_patch16_siglip_gap_256 vit_so400m_patch16_siglip_gap_384 vit_so400m_patch16_siglip_gap_512
    """,
    (None, "quick_gelu", 1e-5): """
        vit_base_patch16_clip_quickgelu_224 vit_base_patch32_clip_quickgelu_224
        vit_large_patch14_clip_quickgelu_224 vit_large_patch14_clip_quickgelu_336
    """,
    (None, "silu", 1e-6): """
        vit_giant_patch14_dinov2 vit_giant_patch14_reg1_tipsv2 vit_giant_patch14_reg4_dinov2
    """,
    (16, "quick_gelu", 1e-5): """
        vit_gigantic_patch14_clip_quickgelu_224 vit_huge_patch14_clip_quickgelu_224
        vit_huge_patch14_clip_quickgelu_378
    """,
    (2, "gelu", 1e-6): """
        test_vit
    """,
    (None, "gelu_pytorch_tanh", 1e-6): """
        vit_base_patch32_siglip_gap_256 vit_large_patch16_siglip_gap_512
    """,
}

# Of a checkpoint that names no architecture
PLAIN: tuple[int | None, str, float] = (None, "gelu", 1e-6)

ARCHITECTURES = {name: definition for definition, names in _DEFINITIONS.items() for name in names.split()}
