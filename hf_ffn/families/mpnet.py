"""MPNet ([Song et al. 2020](https://huggingface.co/papers/2004.09297)): RoBERTa with a bias by distance."""

from .family import BLOCK_FIELDS, GAMMA_BETA, POSITION_IDS, TEXT_FIELDS, Family, heads
from .roberta import LM_HEAD, SEQUENCE_HEAD

MPNET = Family(
    name="mpnet",
    model_type="mpnet",
    native_type="hf_ffn_text",
    fields={**BLOCK_FIELDS, **{ours: theirs for ours, theirs in TEXT_FIELDS.items() if ours != "pad_token_id"}},
    fixed={
        "norm_order": "post",
        "type_vocab_size": 0,
        "positions_after_padding": True,
        "relative_attention_num_buckets": 32,
        "pad_token_id": 1,
        "classifier_head": "dense",
        "classifier_pooling": "cls",
        "classifier_dropout": None,
        "lm_head_act": "gelu",
    },
    # Its class computes with these two numbers whatever the configuration says.
    refused={"relative_attention_num_buckets": 32, "pad_token_id": 1},
    dialects=GAMMA_BETA,
    weights=(
        (r"^mpnet\.", "model."),
        (r"embeddings\.LayerNorm", "embeddings.norm"),
        (r"encoder\.layer\.", "encoder.layers."),
        (r"encoder\.relative_attention_bias", "encoder.relative_attention_bias.buckets"),
        (r"attention\.attn\.q", "attention.q_proj"),
        (r"attention\.attn\.k", "attention.k_proj"),
        (r"attention\.attn\.v", "attention.v_proj"),
        (r"attention\.attn\.o", "attention.o_proj"),
        (r"attention\.LayerNorm", "norm_1"),
        (r"intermediate\.dense", "ffn.linear_1"),
        (r"output\.dense", "ffn.linear_2"),
        (r"output\.LayerNorm", "norm_2"),
        *LM_HEAD,
    ),
    head_weights={"FFNForSequenceClassification": SEQUENCE_HEAD},
    heads=heads("MPNet"),
    unused=POSITION_IDS,
    layers="encoder.layer",
)
