"""ELECTRA ([Clark et al. 2020](https://huggingface.co/papers/2003.10555)): BERT with embeddings of another width.

A generator is read as a masked language model, a discriminator as the encoder that it is used for.
"""

from .bert import FIELDS
from .family import BERT_WEIGHTS, ENCODER_ONLY, GAMMA_BETA, POSITION_IDS, Family, heads, same
from .roberta import SEQUENCE_HEAD

ELECTRA = Family(
    name="electra",
    model_type="electra",
    native_type="hf_ffn_text",
    fields={**FIELDS, **same("embedding_size")},
    fixed={
        "norm_order": "post",
        "add_pooling_layer": False,
        "classifier_head": "dense",
        "classifier_pooling": "cls",
        "classifier_act": "gelu",
        "lm_head_act": "gelu",
        "lm_head_bias": False,
    },
    refused=ENCODER_ONLY,
    dialects=GAMMA_BETA,
    weights=(
        (r"^electra\.", "model."),
        (r"embeddings_project", "embeddings.projection"),
        *BERT_WEIGHTS,
        (r"generator_predictions\.dense", "lm_head.dense"),
        (r"generator_predictions\.LayerNorm", "lm_head.norm"),
        (r"generator_lm_head", "lm_head.decoder"),
    ),
    head_weights={"FFNForSequenceClassification": SEQUENCE_HEAD},
    heads=heads("Electra"),
    also_reads={"ElectraForPreTraining": "FFNTextModel"},
    unused={
        **POSITION_IDS,
        r"^discriminator_predictions\.": "the head that tells replaced tokens, which hf_ffn does not have",
    },
    layers="encoder.layer",
)
