"""RoBERTa ([Liu et al. 2019](https://huggingface.co/papers/1907.11692)) and those built as it is.

Positions are counted over the tokens that are no padding, and a dense layer comes before the classifier of sequences.
"""

from .bert import FIELDS
from .family import BERT_LAYERS, ENCODER_ONLY, GAMMA_BETA, POSITION_IDS, POST_NORMS, Family, Renamings, heads

LM_HEAD = ((r"lm_head\.layer_norm", "lm_head.norm"),)

# The head of sequences bears the name of the token classifier, which may not be taken for its last layer.
SEQUENCE_HEAD = (
    (r"^classifier\.weight", "token_classifier.weight"),
    (r"^classifier\.bias", "token_classifier.bias"),
    (r"^classifier\.dense", "head.dense"),
    (r"^classifier\.out_proj", "classifier"),
)


def roberta_like(
    name: str, class_prefix: str, prefix: str, norms: Renamings = POST_NORMS, norm_order: str = "post"
) -> Family:
    """A family that differs from RoBERTa in names only, and perhaps in where the LayerNorms are."""
    return Family(
        name=name,
        model_type=name,
        native_type="hf_ffn_text",
        fields=FIELDS,
        fixed={
            "norm_order": norm_order,
            "positions_after_padding": True,
            "classifier_head": "dense",
            "classifier_pooling": "cls",
            "lm_head_act": "gelu",
        },
        refused=ENCODER_ONLY,
        dialects=GAMMA_BETA,
        weights=((prefix, "model."), *BERT_LAYERS, *norms, *LM_HEAD),
        head_weights={"FFNForSequenceClassification": SEQUENCE_HEAD},
        heads=heads(class_prefix),
        unused=POSITION_IDS,
        layers="encoder.layer",
    )


ROBERTA = roberta_like("roberta", "Roberta", r"^roberta\.")
XLM_ROBERTA = roberta_like("xlm-roberta", "XLMRoberta", r"^roberta\.")
CAMEMBERT = roberta_like("camembert", "Camembert", r"^roberta\.")
DATA2VEC_TEXT = roberta_like("data2vec-text", "Data2VecText", r"^data2vec_text\.")
ROBERTA_PRELAYERNORM = roberta_like(
    "roberta-prelayernorm",
    "RobertaPreLayerNorm",
    r"^roberta_prelayernorm\.",
    (
        (r"^model\.LayerNorm", "model.encoder.norm"),
        (r"^LayerNorm", "encoder.norm"),
        (r"attention\.LayerNorm", "norm_1"),
        (r"intermediate\.LayerNorm", "norm_2"),
    ),
    "pre",
)
