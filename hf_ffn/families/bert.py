"""BERT ([Devlin et al. 2018](https://huggingface.co/papers/1810.04805)): post-norm, learnt positions, segments."""

from .family import BLOCK_FIELDS, PLAIN_BLOCK, Family, same

BERT = Family(
    name="bert",
    model_type="bert",
    native_type="hf_ffn_text",
    fields={
        **BLOCK_FIELDS,
        **same(
            "vocab_size",
            "max_position_embeddings",
            "type_vocab_size",
            "pad_token_id",
            "bos_token_id",
            "eos_token_id",
            "classifier_dropout",
            "tie_word_embeddings",
        ),
    },
    fixed={**PLAIN_BLOCK, "norm_order": "post", "qkv_bias": True},
    refused={"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"},
    dialects=(
        (r"LayerNorm\.gamma", "LayerNorm.weight"),
        (r"LayerNorm\.beta", "LayerNorm.bias"),
    ),
    weights=(
        (r"^bert\.", "model."),
        (r"embeddings\.LayerNorm", "embeddings.norm"),
        (r"encoder\.layer\.", "encoder.layers."),
        (r"attention\.self\.query", "attention.q_proj"),
        (r"attention\.self\.key", "attention.k_proj"),
        (r"attention\.self\.value", "attention.v_proj"),
        (r"attention\.output\.dense", "attention.o_proj"),
        (r"attention\.output\.LayerNorm", "norm_1"),
        (r"intermediate\.dense", "ffn.linear_1"),
        (r"output\.dense", "ffn.linear_2"),
        (r"output\.LayerNorm", "norm_2"),
        (r"cls\.predictions\.transform\.dense", "lm_head.dense"),
        (r"cls\.predictions\.transform\.LayerNorm", "lm_head.norm"),
        (r"cls\.predictions\.decoder", "lm_head.decoder"),
        (r"cls\.predictions\.bias", "lm_head.bias"),
    ),
    heads={
        "FFNTextModel": "BertModel",
        "FFNForMaskedLM": "BertForMaskedLM",
        "FFNForSequenceClassification": "BertForSequenceClassification",
        "FFNForTokenClassification": "BertForTokenClassification",
        "FFNForQuestionAnswering": "BertForQuestionAnswering",
    },
    also_reads={"BertForPreTraining": "FFNForMaskedLM"},
    unused={
        r"embeddings\.position_ids$": "positions counted from 0, not a weight",
        r"^cls\.seq_relationship\.": "the next-sentence head, which hf_ffn does not have",
    },
    layers="encoder.layer",
    prefix="bert",
)
