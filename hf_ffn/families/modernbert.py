"""ModernBERT ([Warner et al. 2024](https://huggingface.co/papers/2412.13663)).

Gated, without biases, with rotary positions, and with layers that see a neighbourhood alone among those that see all.
"""

from transformers.core_model_loading import Chunk

from .family import TEXT_FIELDS, Family, heads, same

ROPE = "rope_parameters.{}_attention.{}"

MODERNBERT = Family(
    name="modernbert",
    model_type="modernbert",
    native_type="hf_ffn_text",
    fields={
        **TEXT_FIELDS,
        **same("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "initializer_range"),
        **same(
            "norm_bias", "layer_types", "sliding_window", "classifier_pooling", "classifier_dropout", "decoder_bias"
        ),
        "hidden_act": "hidden_activation",
        "layer_norm_eps": "norm_eps",
        "qkv_bias": "attention_bias",
        "attention_bias": "attention_bias",
        "ffn_bias": "mlp_bias",
        "head_bias": "classifier_bias",
        "classifier_act": "classifier_activation",
        "lm_head_act": "classifier_activation",
        "embedding_dropout_prob": "embedding_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_dropout_prob": "attention_dropout",
        "activation_dropout_prob": "mlp_dropout",
        "qa_dropout": "classifier_dropout",
        "rope_theta": ROPE.format("full", "rope_theta"),
        "local_rope_theta": ROPE.format("sliding", "rope_theta"),
    },
    fixed={
        "norm_order": "pre",
        "skip_first_norm": True,
        "gated": True,
        "ffn_dropout_prob": 0.0,
        "position_embedding_type": "rotary",
        "type_vocab_size": 0,
        "add_pooling_layer": False,
        "classifier_head": "prediction",
        "lm_head_bias": False,
    },
    refused={ROPE.format("full", "rope_type"): "default", ROPE.format("sliding", "rope_type"): "default"},
    weights=(
        (r"embeddings\.tok_embeddings", "embeddings.word_embeddings"),
        (r"layers\.", "encoder.layers."),
        (r"final_norm", "encoder.norm"),
        (r"attn_norm", "norm_1"),
        (r"mlp_norm", "norm_2"),
        (r"attn\.", "attention."),
        (r"attention\.Wo", "attention.o_proj"),
        (r"mlp\.", "ffn."),
        (r"ffn\.Wo", "ffn.linear_2"),
    ),
    head_weights={
        "FFNForMaskedLM": ((r"^head\.", "lm_head."), (r"^decoder\.", "lm_head.decoder.")),
        "FFNForQuestionAnswering": ((r"^classifier\.", "qa_outputs."),),
    },
    fused=(
        ("Wqkv", ["q_proj", "k_proj", "v_proj"], Chunk(dim=0)),
        ("Wi", ["linear_gate", "linear_1"], Chunk(dim=0)),
    ),
    heads=heads("ModernBert"),
    layers="layers",
    rounding="queries, keys and values are one product there, as are gate and hidden layer",
)
