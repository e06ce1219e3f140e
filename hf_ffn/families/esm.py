"""ESM ([Lin et al. 2023](https://doi.org/10.1126/science.ade2574)): proteins; pre-norm, rotary or learnt positions."""

from .family import BERT_LAYERS, BLOCK_FIELDS, GAMMA_BETA, POSITION_IDS, TEXT_FIELDS, Family, heads, same
from .roberta import LM_HEAD, SEQUENCE_HEAD

FIELDS = {ours: theirs for ours, theirs in {**BLOCK_FIELDS, **TEXT_FIELDS}.items() if ours != "hidden_act"}

ESM = Family(
    name="esm",
    model_type="esm",
    native_type="hf_ffn_text",
    fields={
        **FIELDS,
        **same("position_embedding_type", "rope_theta", "token_dropout", "mask_token_id"),
        "embedding_norm": "emb_layer_norm_before",
    },
    fixed={
        "norm_order": "pre",
        # The exact GELU, written out; the last digits differ from the fused one's.
        "hidden_act": "gelu_python",
        "scale_query": True,
        "embedding_dropout_prob": 0.0,
        "type_vocab_size": 0,
        "positions_after_padding": True,
        "rope_frequencies_stored": True,
        "zero_padding": True,
        "contact_head": True,
        "classifier_head": "dense",
        "classifier_pooling": "cls",
        "classifier_dropout": None,
        "decoder_bias": False,
    },
    # The contact head computes with this id whatever the configuration says.
    refused={"is_decoder": False, "add_cross_attention": False, "is_folding_model": False, "eos_token_id": 2},
    dialects=(
        *GAMMA_BETA,
        # Old files hold them in every layer, and those that transformers 5 writes in a layer called "*".
        (r"encoder\.layer\.(?:\d+|\*)\.attention\.self\.rotary_embeddings", "rotary_embeddings"),
    ),
    weights=(
        (r"^esm\.", "model."),
        (r"embeddings\.layer_norm", "embeddings.norm"),
        (r"encoder\.emb_layer_norm_after", "encoder.norm"),
        *BERT_LAYERS[1:],
        (r"attention\.LayerNorm", "norm_1"),
        (r"LayerNorm", "norm_2"),
        *LM_HEAD,
    ),
    head_weights={"FFNForSequenceClassification": SEQUENCE_HEAD},
    heads={ours: theirs for ours, theirs in heads("Esm").items() if ours != "FFNForQuestionAnswering"},
    unused={
        **POSITION_IDS,
        r"embeddings\.position_embeddings\.weight$": "learnt positions, which the model with rotary ones does not use",
    },
    layers="encoder.layer",
)
