"""`optimize_for_inference`: a model made faster in place, with the same weights, names and outputs.

On CPU the encoder blocks' matrix products go to oneDNN with weights in the processor's own layout, the activation is
computed within the product before it (or in place, where that is faster), queries, keys and values are one product,
and residual sums make no copies; in float32, in bfloat16 (where attention is two such products as well), or with int8
products. The model's own parameters stay what they are, so that saving writes them.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.utils import parametrize
from transformers.utils import logging

from .modeling_ffn import Encoder, EncoderBlock, FeedForward, SelfAttention
from .packed_products import missing, product_of

logger = logging.get_logger(__name__)

# The C library gives larger buffers back to the system at each release, and every page of them must be mapped anew.
LARGEST_BUFFER = 2**25
# Tokens computed at once where the feed-forward block's intermediate would be larger than that.
SLICE = 1024

# In bfloat16, attention scores of so many bytes stay in the cache of a core; below so many tokens a sequence, calling
# three operators in place of one costs more than they gain.
LARGEST_SCORES = 2**21
SHORTEST_FOR_PRODUCTS = 64

Precision = Literal["bfloat16", "int8"]

ATTENTION_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj")
FEED_FORWARD_LINEARS = ("linear_1", "linear_gate", "linear_2")


@dataclass
class InferenceReport:
    """What `optimize_for_inference` did.

    Attributes:
        dtype: what the blocks' products compute in now: `"float32"`, `"bfloat16"` or `"int8"`.
        done: what was done, in words.
        fallbacks: what was asked for and not done, with the reason.
        extra_bytes: memory that the packed copies of the weights take beside the model's own.
    """

    dtype: str
    done: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    extra_bytes: int = 0

    def __str__(self) -> str:
        lines = [f"prepared for inference, products in {self.dtype}" if self.done else "nothing was changed"]
        lines += [f"  {each}" for each in self.done]
        lines += [f"  not done: {each}" for each in self.fallbacks]
        if self.extra_bytes:
            size = f"{self.extra_bytes:,} bytes"
            lines.append(f"  the packed weights take {size} beside the model's own, which stay for saving")
        return "\n".join(lines)


def optimize_for_inference(model: nn.Module, dtype: Precision | None = None) -> InferenceReport:
    """Prepare a model of ours for inference, in place; outputs are the same within the precision's rounding.

    State dict, configuration and `save_pretrained` are untouched: saving writes the plain weights, whatever `dtype`
    is. The model is put in eval mode, and refuses to be trained or differentiated; so it does when its weights change
    afterwards. There is no way back but to load the model again.

    On CPU (torch's oneDNN): see the module. Embeddings and heads stay as they are. On a GPU the blocks are compiled by
    `torch.compile`, at their first call.

    Args:
        model: a model, `Encoder`, `EncoderBlock` or `FeedForward` of hf_ffn, in float32 or bfloat16.
        dtype: precision of the blocks. None: the model's own. `"bfloat16"`: the blocks compute in it (softmax and the
            sums inside LayerNorm in float32), about twice as fast; it takes instructions for it, AVX-512's or AMX.
            `"int8"`: weights with a scale a row, activations with a scale of their own at each call; LayerNorm,
            softmax and residual sums stay float32. As scales are taken over all tokens of a call, an output depends
            slightly on what else is in the batch. Weights have 7 bits where a processor has AVX2 alone (no VNNI).

    Returns:
        What was done, and what fell back because this machine or torch lacks something; that is logged as a warning
        too.

    Raises:
        ValueError: nothing of hf_ffn to prepare, a model that is prepared already, weights in another precision, or
            linear layers that are not plain ones (adapters: merge them first).
    """
    if dtype not in (None, "bfloat16", "int8"):
        raise ValueError(f"dtype={dtype!r} must be None, 'bfloat16' or 'int8'")
    parts = [each for each in model.modules() if isinstance(each, (FeedForward, EncoderBlock, Encoder))]
    if not parts:
        raise ValueError(
            f"{type(model).__name__} holds no feed-forward block of hf_ffn: load the checkpoint with hf_ffn's classes"
        )
    if any(isinstance(each, Prepared) or is_compiled(each) for each in parts):
        raise ValueError("this model is prepared for inference already; load it again to prepare it otherwise")
    weights = [each for part in parts for each in part.parameters()]
    model.eval()
    if all(each.device.type == "cuda" for each in weights):
        report = compile_blocks(parts, dtype)
    else:
        report = prepare_on_cpu(parts, weights, dtype)
    for fallback in report.fallbacks:
        logger.warning(f"optimize_for_inference: {fallback}")
    return report


def is_compiled(module: nn.Module) -> bool:
    """Whether `nn.Module.compile` was called on it."""
    return module._compiled_call_impl is not None


def compile_blocks(parts: list[Any], dtype: Precision | None) -> InferenceReport:
    """Leave a model on a GPU to torch's compiler, block by block, which then compiles one block and not twelve."""
    report = InferenceReport(dtype=str(next(parts[0].parameters()).dtype).removeprefix("torch."))
    blocks = [each for each in parts if isinstance(each, EncoderBlock)] or [parts[0]]
    for block in blocks:
        nn.Module.compile(block, dynamic=True)
    report.done.append(f"{len(blocks)} blocks are compiled by torch.compile at their first call")
    if dtype is not None and dtype != report.dtype:
        hint = "load the model with dtype=torch.bfloat16" if dtype == "bfloat16" else "see torchao for int8 on a GPU"
        report.fallbacks.append(f"{dtype} on a GPU: {hint}")
    return report


def prepare_on_cpu(parts: list[Any], weights: list[nn.Parameter], asked: Precision | None) -> InferenceReport:
    """Turn every part into what it is for inference (its class is replaced, its tensors are not)."""
    kinds = {(each.device.type, each.dtype) for each in weights}
    device, own = next(iter(kinds))
    if len(kinds) > 1 or device != "cpu" or own not in (torch.float32, torch.bfloat16):
        found = ", ".join(sorted(f"{dtype} on {device}" for device, dtype in kinds))
        raise ValueError(f"the model's weights must be all float32 or all bfloat16, on one CPU or GPU; found: {found}")
    own_name = str(own).removeprefix("torch.")
    if asked == "int8" and own != torch.float32:
        raise ValueError(f"int8 is made from float32 weights, and these are {own_name}: load them in float32")

    report = InferenceReport(dtype=asked or own_name)
    reason = missing(report.dtype)
    if reason is not None and report.dtype != own_name:
        report.fallbacks.append(f"{report.dtype}: {reason}; using {own_name}")
        report.dtype, reason = own_name, missing(own_name)
    if reason is not None:
        report.fallbacks.append(f"packed {report.dtype} products: {reason}")
        return report

    for part in parts:
        refuse_changed_parts(part)
    made: list[Any] = []

    def product(linears: list[nn.Linear], activation: nn.Module | None = None, scale: nn.Module | None = None) -> Any:
        made.append(product_of(linears, activation, scale, report.dtype))
        return made[-1]

    compute_dtype = torch.bfloat16 if report.dtype == "bfloat16" else torch.float32
    scale_of: dict[Any, nn.Module] = {}
    for part in parts:
        part.__class__ = next(new for old, new in FOR_INFERENCE.items() if isinstance(part, old))
        part.compute_dtype = compute_dtype
        if isinstance(part, InferenceBlock):
            attention: Any = part.attention
            attention.__class__ = InferenceAttention
            attention.prepare(part.layer_scale_1, product)
            part.packed_from = state_of(part.packed_modules())
            scale_of[part.ffn] = part.layer_scale_2
        elif isinstance(part, InferenceFeedForward):
            # A block comes before what is in it.
            part.prepare(scale_of.get(part), product)
    fused = sum(each.fused for each in made)
    report.extra_bytes = sum(each.num_bytes for each in made)
    linears = sum(each.num_linears for each in made)
    libraries = " and ".join(sorted({each.library for each in made}))
    report.done.append(f"{linears} linear layers as {len(made)} products by {libraries}")
    if fused:
        report.done.append(f"the activation computed within the product before it, {fused} times")
    after = sum(each.activation is not None for each in made)
    if after:
        report.done.append(f"the activation computed after its product, {after} times")
    if report.dtype == "bfloat16" and own == torch.float32:
        report.done.append("the blocks compute in bfloat16, embeddings and heads in float32")
    return report


def refuse_changed_parts(part: nn.Module) -> None:
    """Refuse linear layers that compute something else than their weight and bias say."""
    for name, module in part.named_modules():
        if name.rpartition(".")[2] not in ATTENTION_LINEARS + FEED_FORWARD_LINEARS:
            continue
        hooked = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        if type(module) is not nn.Linear or hooked or parametrize.is_parametrized(module):
            raise ValueError(
                f"{name} is not a plain linear layer any more ({type(module).__name__}, adapters, hooks or other "
                f"weights): merge adapters (PEFT: merge_and_unload) and remove hooks before optimize_for_inference"
            )


class Prepared(nn.Module):
    """A part of a model that is for inference only.

    Attributes:
        compute_dtype: what it computes in; outputs have the inputs' precision.
        packed_from: the modules whose weights were packed, and which state of the weights that was.
    """

    compute_dtype: torch.dtype
    packed_from: tuple[Any, ...] = ()

    def packed_modules(self) -> list[Any]:
        """The modules whose weights are packed, as they are now."""
        return []

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Map `(..., hidden_size)` to the same shape, as the class that this stands for does."""
        if self.training:
            raise RuntimeError(
                "this model was prepared by optimize_for_inference and cannot be trained (model.train() was called): "
                "load it again for training, or call model.eval()"
            )
        if state_of(self.packed_modules()) != self.packed_from:
            raise RuntimeError(
                "weights were changed, moved or replaced after optimize_for_inference had packed them: load the model "
                "again, change it, and prepare it then"
            )
        if not torch.is_grad_enabled():
            return self.infer(hidden_states.to(self.compute_dtype), *args, **kwargs).to(hidden_states.dtype)
        with torch.no_grad():
            output = self.infer(hidden_states.to(self.compute_dtype), *args, **kwargs).to(hidden_states.dtype)
        # Whatever wants a gradient, the inputs or the weights, must hear that there is none.
        trainable = next((each for each in self.parameters() if each.requires_grad), hidden_states)
        return NoBackward.apply(output, hidden_states, trainable)

    @abstractmethod
    def infer(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The computation, without gradients."""


def state_of(modules: list[Any]) -> tuple[Any, ...]:
    """Which modules these are, where their weights lie, and how often those were written."""
    state = []
    for module in modules:
        for tensor in module._parameters.values():
            if tensor is not None:
                state += [module, tensor.data_ptr(), None if tensor.is_inference() else tensor._version]
    return tuple(state)


class NoBackward(torch.autograd.Function):
    """Passes an output on, and says so where a gradient is asked for."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, *wanting_gradients: torch.Tensor) -> torch.Tensor:
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise RuntimeError(
            "this model was prepared by optimize_for_inference and has no gradients: load it again for training"
        )


class InferenceFeedForward(Prepared, FeedForward):
    """A `FeedForward` for inference."""

    def prepare(self, layer_scale: nn.Module | None, product: Callable[..., Any]) -> None:
        """Pack the weights, the layer scale's with them."""
        gated = self.linear_gate is not None
        self.gate = product([self.linear_gate], self.activation) if gated else None
        self.first = product([self.linear_1], None if gated else self.activation)
        self.second = product([self.linear_2], None, layer_scale)
        self.packed_from = state_of(self.packed_modules())

    def packed_modules(self) -> list[Any]:
        found = [self._modules.get(name) for name in FEED_FORWARD_LINEARS]
        return [each for each in found if each is not None]

    def infer(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        tokens = hidden_states.numel() // max(hidden_states.shape[-1], 1)
        if tokens * self.linear_1.out_features * hidden_states.itemsize <= LARGEST_BUFFER:
            return self.of_slice(hidden_states)
        rows = hidden_states.reshape(tokens, -1)
        output = torch.empty_like(rows)
        for source, target in zip(rows.split(SLICE), output.split(SLICE), strict=True):
            target.copy_(self.of_slice(source))
        return output.view(hidden_states.shape)

    def of_slice(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The block, on as many tokens as fit a buffer."""
        intermediate = self.first(hidden_states)
        if self.gate is not None:
            intermediate.mul_(self.gate(hidden_states))
        return self.second(intermediate)


class InferenceAttention(SelfAttention):
    """A `SelfAttention` for inference; it runs within an `InferenceBlock` alone."""

    def prepare(self, layer_scale: nn.Module | None, product: Callable[..., Any]) -> None:
        """Pack the weights, the layer scale's with them."""
        self.to_heads = product([self.q_proj, self.k_proj, self.v_proj])
        self.from_heads = product([self.o_proj], None, layer_scale)

    def project(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.to_heads(hidden_states).chunk(3, dim=-1)

    def project_output(self, attended: torch.Tensor) -> torch.Tensor:
        return self.from_heads(attended)

    def back_end(self, implementation: str) -> Callable:
        attention = super().back_end(implementation)
        return partial(attention_in_bfloat16, attention) if implementation == "sdpa" else attention


def attention_in_bfloat16(
    fused: Callable,
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **kwargs: Any,
) -> tuple[torch.Tensor, Any]:
    """Attention on `(batch, heads, sequence, head_dim)` as two products of oneDNN's, some heads at a time.

    In bfloat16 torch's fused kernel is as slow as in float32, and these products are not. The scores are rounded to
    bfloat16 once, as the eager back end's are.

    Args:
        fused: what computes everything else: other precisions, masks, and sequences too short to gain.
    """
    length = query.shape[2]
    if query.dtype != torch.bfloat16 or attention_mask is not None or length < SHORTEST_FOR_PRODUCTS:
        return fused(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    # (batch * heads, sequence, head_dim)
    heads = [each.reshape(-1, length, each.shape[-1]) for each in (query, key, value)]
    at_once = max(1, LARGEST_SCORES // (length * length * query.itemsize))
    outputs = []
    for query_part, key_part, value_part in zip(*(each.split(at_once) for each in heads), strict=True):
        nothing = query_part.new_empty(1, 1, 1)
        scores = torch.baddbmm(nothing, query_part, key_part.transpose(1, 2), beta=0, alpha=scaling)
        outputs.append(torch.bmm(torch.softmax(scores, dim=-1), value_part))
    # (batch, heads, sequence, head_dim) -> (batch, sequence, heads, head_dim)
    return torch.cat(outputs).view(query.shape).transpose(1, 2).contiguous(), None


class InferenceBlock(Prepared, EncoderBlock):
    """An `EncoderBlock` for inference; its layer scales are in the packed weights."""

    def packed_modules(self) -> list[Any]:
        attention = self._modules["attention"]
        own = [attention._modules[name] for name in ATTENTION_LINEARS]  # type: ignore[union-attr]
        return [*own, self._modules["layer_scale_1"], self._modules["layer_scale_2"]]

    def infer(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        # The sums are written into what the products made, which nothing else holds.
        if self.pre_norm:
            attended, _ = self.attention(self.norm_1(hidden_states), *args, **kwargs)
            hidden_states = attended.add_(hidden_states)
            return self.ffn(self.norm_2(hidden_states)).add_(hidden_states)
        attended, _ = self.attention(hidden_states, *args, **kwargs)
        hidden_states = self.norm_1(attended.add_(hidden_states))
        return self.norm_2(self.ffn(hidden_states).add_(hidden_states))


class InferenceEncoder(Prepared, Encoder):
    """An `Encoder` for inference: its blocks work in `compute_dtype`, what is outside sees the inputs' precision."""

    def infer(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return Encoder.forward(self, hidden_states, *args, **kwargs)


FOR_INFERENCE: dict[type[nn.Module], type[Prepared]] = {
    FeedForward: InferenceFeedForward,
    EncoderBlock: InferenceBlock,
    Encoder: InferenceEncoder,
}
