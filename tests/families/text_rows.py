"""The families of text encoders."""

from typing import Any

import torch

from .rows import Row

BERT_SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "hidden_act": "gelu_new",
}


def token_ids(config: Any, padded: bool) -> dict[str, torch.Tensor]:
    """Three sequences of 14 tokens, with padding on the right of one and on the left of another."""
    generator = torch.Generator().manual_seed(1)
    shape = (3, 14)
    mask = torch.ones(shape, dtype=torch.long)
    if padded:
        mask[0, 8:] = mask[1, :3] = 0
    ids = torch.randint(5, config.vocab_size, shape, generator=generator)
    mask_token = getattr(config, "mask_token_id", None)
    if mask_token is not None:
        ids[0, 2] = ids[1, 5] = ids[1, 9] = mask_token
    inputs = {"input_ids": ids.masked_fill(mask == 0, config.pad_token_id or 0)}
    # Also without padding half of the models are told so
    inputs |= {"attention_mask": mask} if padded else {}
    if getattr(config, "type_vocab_size", 0):
        inputs["token_type_ids"] = torch.randint(config.type_vocab_size, shape, generator=generator)
    if getattr(config, "use_task_id", False):
        inputs["task_type_ids"] = torch.randint(config.task_type_vocab_size, shape, generator=generator)
    return inputs


ROBERTA_SIZES = {**BERT_SIZES, "layer_norm_eps": 1e-5, "classifier_dropout": 0.3}

DISTILBERT_SIZES = {
    "vocab_size": 99,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 64,
    "max_position_embeddings": 40,
    "activation": "gelu_new",
}

ESM_SIZES = {
    **{name: size for name, size in BERT_SIZES.items() if name != "hidden_act"},
    "vocab_size": 33,
    "pad_token_id": 1,
    "mask_token_id": 32,
    "position_embedding_type": "rotary",
    "emb_layer_norm_before": False,
    "token_dropout": True,
}
ESM_1B = {"position_embedding_type": "absolute", "emb_layer_norm_before": True, "token_dropout": False}

# What transformers 5 makes of its own renamings when it saves an ESM.
ESM_NAMES = "gamma and beta of LayerNorms, a layer called '*', and the half precision of rotary frequencies"

MODERNBERT_SIZES = {
    **{name: size for name, size in BERT_SIZES.items() if name != "hidden_act"},
    "num_hidden_layers": 3,
    "hidden_activation": "gelu_new",
    "local_attention": 12,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
MODERNBERT_WITH_BIASES = {
    "attention_bias": True,
    "mlp_bias": True,
    "norm_bias": True,
    "classifier_bias": True,
    "classifier_pooling": "mean",
    "classifier_activation": "silu",
    "decoder_bias": False,
}

TEXT_ROWS = [
    Row("bert", BERT_SIZES, token_ids),
    Row("bert", {**BERT_SIZES, "tie_word_embeddings": False}, token_ids, "untied", classes=("BertForMaskedLM",)),
    Row("ernie", BERT_SIZES, token_ids),
    Row("ernie", {**BERT_SIZES, "use_task_id": True, "task_type_vocab_size": 5}, token_ids, "with-tasks"),
    Row("roberta", ROBERTA_SIZES, token_ids),
    Row("roberta", {**ROBERTA_SIZES, "pad_token_id": 3, "type_vocab_size": 1}, token_ids, "other-padding"),
    Row("xlm-roberta", ROBERTA_SIZES, token_ids),
    Row("camembert", ROBERTA_SIZES, token_ids),
    Row("data2vec-text", ROBERTA_SIZES, token_ids),
    Row("roberta-prelayernorm", ROBERTA_SIZES, token_ids),
    Row("electra", {**BERT_SIZES, "embedding_size": 16}, token_ids),
    Row("electra", {**BERT_SIZES, "embedding_size": 32}, token_ids, "without-projection"),
    Row("distilbert", DISTILBERT_SIZES, token_ids),
    Row("albert", {**BERT_SIZES, "num_hidden_layers": 3, "embedding_size": 16}, token_ids),
    Row(
        "albert",
        {**BERT_SIZES, "num_hidden_layers": 3, "embedding_size": 16, "num_hidden_groups": 2, "inner_group_num": 2},
        token_ids,
        "with-groups",
    ),
    # Its class divides scores by the root of this width, where others multiply: the same for powers of 4.
    Row("mpnet", {**BERT_SIZES, "num_attention_heads": 2}, token_ids),
    Row("esm", ESM_SIZES, token_ids, "rotary", not_kept=ESM_NAMES),
    Row("esm", {**ESM_SIZES, **ESM_1B}, token_ids, "learnt-positions", not_kept=ESM_NAMES),
    Row("modernbert", MODERNBERT_SIZES, token_ids),
    Row("modernbert", {**MODERNBERT_SIZES, **MODERNBERT_WITH_BIASES}, token_ids, "with-biases"),
]
