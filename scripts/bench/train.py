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
    models = classifiers(config)
    reference = step(models[0], batch, torch.float32)()
    for dtype in (torch.float32, torch.bfloat16):
        yield step_section(models, batch, dtype, reference, timing.part(8 / 3))


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
    """The products of a block's forward and backward."""
    narrow, wide = torch.randn(tokens, hidden), torch.randn(tokens, 4 * hidden)
    up, down = torch.randn(4 * hidden, hidden), torch.randn(hidden, 4 * hidden)
    # Forward, the inputs' gradients, the weights' gradients: x @ w^T each
    pairs = [(narrow, up), (wide, down), (narrow, down.t()), (wide, up.t())]
    pairs += [(narrow.t(), wide.t()), (wide.t(), narrow.t())]
    return bare(pairs, constant=False)


def classifiers(config: BertConfig) -> tuple[nn.Module, nn.Module]:
    """transformers' classifier and ours with the same weights, without dropout so that gradients can be compared."""
    config = copy.deepcopy(config)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    torch.manual_seed(0)
    theirs = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return theirs, FFNForSequenceClassification.from_pretrained(folder)


def step(
    model: Any, batch: Batch, dtype: torch.dtype, fused: bool = False, memory: str | None = None
) -> Callable[[], torch.Tensor]:
    """A step of fine-tuning a copy of a model; returns the gradient of the word embeddings."""
    model = copy.deepcopy(model).train()
    if memory is not None:
        model.config.feed_forward_memory = memory
    # So small a rate that the weights, and with them what is compared, stay the same.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-12, weight_decay=0.0, fused=fused)
    compared = next(each for name, each in model.named_parameters() if name.endswith("word_embeddings.weight"))
    labels = torch.arange(len(batch.sequences)) % 2

    def run() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = model(batch.ids, attention_mask=batch.mask, labels=labels).loss
        loss.backward()
        gradient = compared.grad.clone()
        optimizer.step()
        return gradient

    return run


def step_section(
    models: tuple[nn.Module, nn.Module], batch: Batch, dtype: torch.dtype, reference: torch.Tensor, timing: Timing
) -> Section:
    """Steps in float32, or under bfloat16 autocast; gradients are compared with float32's."""
    theirs, ours = models
    precision, tolerance = ("float32", 1e-4) if dtype == torch.float32 else ("bfloat16", 0.1)
    steps = {
        "transformers, padded": lambda: step(theirs, batch, dtype),
        "transformers, padded, fused AdamW": lambda: step(theirs, batch, dtype, fused=True),
        "hf_ffn, packed, fused AdamW": lambda: step(ours, batch, dtype, fused=True),
    }
    for memory in MEMORY[1:]:
        name = f"hf_ffn, packed, '{memory}', fused"
        steps[name] = lambda memory=memory: step(ours, batch, dtype, fused=True, memory=memory)
    contenders = [Contender(name, make, tolerance, precision) for name, make in steps.items()]
    times = batch.ids.numel() / int(batch.mask.sum())
    title = f"fine-tuning step, ragged text ({times:.2f} times the tokens when padded), "
    title += "float32" if dtype == torch.float32 else "bfloat16 autocast"
    return compare(title, contenders, reference, timing)
