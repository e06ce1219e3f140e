"""What a feed-forward block keeps between forward and backward, in bytes a token."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertIntermediate, BertOutput

from hf_ffn import FeedForward, FFNConfig

from .measure import Row, Section, Timing
from .train import MEMORY


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """One table; nothing is timed."""
    hidden, tokens = (64, 32) if quick else (768, 512)
    section = Section(f"kept for backward a token, feed-forward {hidden}/{4 * hidden}, float32, no dropout", "")
    config = BertConfig(hidden_size=hidden, intermediate_size=4 * hidden)
    blocks: dict[str, nn.Module] = {
        "transformers": nn.Sequential(BertIntermediate(config), BertOutput(config).dense),
    }
    for memory in MEMORY:
        own: Any = FFNConfig(hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=1)
        own.hidden_dropout_prob, own.feed_forward_memory = 0.0, memory
        blocks[f"hf_ffn, feed_forward_memory='{memory}'"] = FeedForward(own)
    for name, block in blocks.items():
        section.rows.append(Row(name, value=f"{kept_bytes(block, torch.randn(tokens, hidden)) / tokens:,.0f} bytes"))
    yield section


def kept_bytes(block: nn.Module, x: torch.Tensor) -> int:
    """Bytes that autograd keeps, each storage once and without the weights."""
    own = {each.untyped_storage().data_ptr() for each in block.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        # What is held until here must not be freed and used again.
        output = block(x.requires_grad_())
    del output
    return sum(kept.values())
