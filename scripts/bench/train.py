"""Training: one feed-forward block forward and backward, and a fine-tuning step on ragged text."""

import copy
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

from hf_ffn import FeedForward, FFNConfig, FFNForSequenceClassification

from .measure import Contender, Section, Timing, compare
from .products import bare
from .ragged import Batch, ragged_lengths, small

MEMORY: list[Any] = ["full", "pre_activation", "input"]


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """The block, then the step in float32 and under bfloat16 autocast."""
    config = small() if quick else BertConfig()
    yield block_section(64 if quick else 768, 64 if quick else 4096, timing.part(4))
    batch = Batch(ragged_lengths(8, mean=25, longest=68), config.vocab_size)
    for dtype in (torch.float32, torch.bfloat16):
        yield step_section(config, batch, dtype, timing.part(8 / 3))


def block_section(hidden: int, tokens: int, timing: Timing) -> Section:
    """The feed-forward block with each `feed_forward_memory`; gradients of the input are compared."""
    torch.manual_seed(0)
    plain = FeedForward(
        FFNConfig(hidden_size=hidden, intermediate_size=4 * hidden, num_attention_heads=1, hidden_dropout_prob=0.0)
    )
    x, output_gradient = torch.randn(tokens, hidden, requires_grad=True), torch.randn(tokens, hidden)

    def with_memory(memory: Any) -> Callable[[], torch.Tensor]:
        ffn = copy.deepcopy(plain)
        ffn.config.feed_forward_memory = memory

        def run() -> torch.Tensor:
            ffn.zero_grad()
            x.grad = None
            ffn(x).backward(output_gradient)
            assert x.grad is not None
            return x.grad

        return run

    reference = with_memory("full")().clone()
    bound = Contender("bound: six bare products", lambda: six_products(hidden, tokens))
    modes = [Contender(f"feed_forward_memory='{each}'", lambda each=each: with_memory(each)) for each in MEMORY]
    return compare(
        f"feed-forward {hidden}/{4 * hidden}, {tokens} tokens, forward and backward, float32",
        [modes[0], bound, *modes[1:]],
        reference,
        timing,
    )


def six_products(hidden: int, tokens: int) -> Callable[[], None]:
    """The products of a block's forward and backward, by oneDNN."""
    narrow, wide = torch.randn(tokens, hidden), torch.randn(tokens, 4 * hidden)
    up, down = torch.randn(4 * hidden, hidden), torch.randn(hidden, 4 * hidden)
    # Forward, the inputs' gradients, the weights' gradients: x @ w^T each
    pairs = [(narrow, up), (wide, down), (narrow, down.t()), (wide, up.t())]
    pairs += [(narrow.t(), wide.t()), (wide.t(), narrow.t())]
    return bare(pairs)


def step_section(config: BertConfig, batch: Batch, dtype: torch.dtype, timing: Timing) -> Section:
    """A step of fine-tuning a classifier, without dropout so that gradients can be compared."""
    config = copy.deepcopy(config)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    torch.manual_seed(0)
    theirs = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = FFNForSequenceClassification.from_pretrained(folder)
    labels = torch.arange(len(batch.sequences)) % 2

    def step(model: nn.Module, fused: bool, memory: str | None) -> Callable[[], torch.Tensor]:
        model = copy.deepcopy(model).train()
        if memory is not None:
            model.config.feed_forward_memory = memory
        # So small a rate that the weights, and with them what is compared, stay the same.
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-12, weight_decay=0.0, fused=fused)
        compared = next(each for name, each in model.named_parameters() if name.endswith("word_embeddings.weight"))

        def run() -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss = model(batch.ids, attention_mask=batch.mask, labels=labels).loss
            loss.backward()
            gradient = compared.grad.clone() if compared.grad is not None else torch.zeros(0)
            optimizer.step()
            return gradient

        return run

    contenders = [
        Contender("transformers, padded", lambda: step(theirs, False, None), 0.1),
        Contender("transformers, padded, fused AdamW", lambda: step(theirs, True, None), 0.1),
        Contender("hf_ffn, packed, fused AdamW", lambda: step(ours, True, "full"), 0.1),
        Contender("hf_ffn, packed, 'pre_activation', fused", lambda: step(ours, True, "pre_activation"), 0.1),
        Contender("hf_ffn, packed, 'input', fused", lambda: step(ours, True, "input"), 0.1),
    ]
    if dtype == torch.float32:
        contenders = [Contender(each.name, each.make, 1e-4) for each in contenders]
    times = batch.ids.numel() / int(batch.mask.sum())
    title = f"fine-tuning step, ragged text ({times:.2f} times the tokens when padded), "
    title += "float32" if dtype == torch.float32 else "bfloat16 autocast"
    reference = step(theirs, False, None)()
    return compare(title, contenders, reference, timing)
