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
]
