"""BERT ([Devlin et al. 2018](https://huggingface.co/papers/1810.04805)): post-norm, learnt positions, segments."""

from dataclasses import replace

from .family import (
    BERT_WEIGHTS,
    BLOCK_FIELDS,
    ENCODER_ONLY,
    GAMMA_BETA,
    POSITION_IDS,
    TEXT_FIELDS,
    Family,
    heads,
    same,
)

FIELDS = {**BLOCK_FIELDS, **TEXT_FIELDS, **same("type_vocab_size", "classifier_dropout")}

# Names of the head for masked language modelling.
LM_HEAD = (
    (r"cls\.predictions\.transform\.dense", "lm_head.dense"),
    (r"cls\.predictions\.transform\.LayerNorm", "lm_head.norm"),
    (r"cls\.predictions\.decoder", "lm_head.decoder"),
    (r"cls\.predictions\.bias", "lm_head.bias"),
)

UNUSED = {**POSITION_IDS, r"^cls\.seq_relationship\.": "the next-sentence head, which hf_ffn does not have"}

BERT = Family(
    name="bert",
    model_type="bert",
    native_type="hf_ffn_text",
    fields=FIELDS,
    fixed={"norm_order": "post"},
    refused=ENCODER_ONLY,
    dialects=GAMMA_BETA,
    weights=((r"^bert\.", "model."), *BERT_WEIGHTS, *LM_HEAD),
    heads=heads("Bert"),
    also_reads={"BertForPreTraining": "FFNForMaskedLM"},
    unused=UNUSED,
    layers="encoder.layer",
)

# [Sun et al. 2019](https://huggingface.co/papers/1904.09223): from its second version on with embeddings of tasks.
ERNIE = replace(
    BERT,
    name="ernie",
    model_type="ernie",
    fields={**FIELDS, **same("use_task_id", "task_type_vocab_size")},
    weights=((r"^ernie\.", "model."), *BERT_WEIGHTS, *LM_HEAD),
    heads=heads("Ernie"),
    also_reads={"ErnieForPreTraining": "FFNForMaskedLM"},
)
