"""ALBERT ([Lan et al. 2019](https://huggingface.co/papers/1909.11942)): shared layers, narrow embeddings."""

from .family import BLOCK_FIELDS, GAMMA_BETA, POSITION_IDS, TEXT_FIELDS, Family, heads, same

ALBERT = Family(
    name="albert",
    model_type="albert",
    native_type="hf_ffn_text",
    fields={
        **BLOCK_FIELDS,
        **TEXT_FIELDS,
        **same("type_vocab_size", "embedding_size", "num_hidden_groups", "inner_group_num"),
        "classifier_dropout": "classifier_dropout_prob",
    },
    # Dropout after the feed-forward block is declared in its class, and never called.
    fixed={"norm_order": "post", "ffn_dropout_prob": 0.0},
    refused={"position_embedding_type": "absolute"},
    dialects=GAMMA_BETA,
    weights=(
        (r"^albert\.", "model."),
        (r"embeddings\.LayerNorm", "embeddings.norm"),
        (r"encoder\.embedding_hidden_mapping_in", "embeddings.projection"),
        (r"encoder\.albert_layer_groups\.", "encoder.layers."),
        (r"albert_layers\.", "blocks."),
        (r"attention\.query", "attention.q_proj"),
        (r"attention\.key", "attention.k_proj"),
        (r"attention\.value", "attention.v_proj"),
        (r"attention\.dense", "attention.o_proj"),
        (r"attention\.LayerNorm", "norm_1"),
        (r"ffn_output\.", "ffn.linear_2."),
        (r"\.ffn\.(weight|bias)", r".ffn.linear_1.\1"),
        (r"full_layer_layer_norm", "norm_2"),
        (r"pooler\.", "pooler.dense."),
        (r"^predictions\.", "lm_head."),
        (r"^lm_head\.LayerNorm", "lm_head.norm"),
    ),
    heads=heads("Albert"),
    also_reads={"AlbertForPreTraining": "FFNForMaskedLM"},
    unused={
        **POSITION_IDS,
        r"^sop_classifier\.": "the head for the order of sentences, which hf_ffn does not have",
    },
    layers=r"encoder\.albert_layer_groups\.\d+\.albert_layers",
)
