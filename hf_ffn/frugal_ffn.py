"""The frugal backward: what the feed-forward block keeps between forward and backward, and how it does with less.

Autograd keeps `hidden + 2 * intermediate` numbers a token. Here the block's input is kept, and at most what goes into
the activation; backward works in slices of tokens that stay in the processor's cache, and computes again what was not
kept.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, get_device_states, set_device_states
from transformers.utils import is_tracing, logging

logger = logging.get_logger(__name__)

# A slice's intermediate numbers take so many bytes on CPU (512 tokens of 3,072 float32 numbers), within most
# processors' last cache; and never less than so many tokens, for small products cost more a token.
SLICE_BYTES = 512 * 3072 * 4
FEWEST_TOKENS = 256
# A GPU has no such cache; there a slice only bounds the memory of backward itself.
TOKENS_ON_GPU = 16_384
# Where Linux describes the processor.
CPUINFO = Path("/proc/cpuinfo")


def frugal_feed_forward(
    block: Any, plain: Callable[[torch.Tensor], torch.Tensor], hidden_states: torch.Tensor, memory: str
) -> torch.Tensor:
    """Run a `FeedForward` so that it keeps less for backward; outputs and gradients are the plain ones.

    Where its parts are not the plain ones (LoRA adapters, hooks, sharded weights), or a graph is being captured
    (`torch.compile`), the whole block is recomputed by activation checkpointing instead, which takes more time but no
    more memory.

    Args:
        block: a `FeedForward`.
        plain: its plain forward.
        hidden_states: `(..., hidden_size)`.
        memory: `"pre_activation"` or `"input"`.
    """
    changed = changed_part(block)
    if changed is not None:
        logger.warning_once(
            f"feed_forward_memory='{memory}': {changed} is not the block's own any more (adapter, hook or sharding), "
            f"so the block is recomputed as a whole in backward. That keeps as little, and takes more time."
        )
    if changed is not None or is_tracing(hidden_states):
        return checkpoint(plain, hidden_states, use_reentrant=False)

    training = block.training
    run = Run(
        activation=block.activation,
        activation_dropout=block.activation_dropout.p if training else 0.0,
        dropout=block.dropout.p if training else 0.0,
        keeps_pre_activation=memory == "pre_activation",
        dtype=autocast_dtype(hidden_states),
        device_type=hidden_states.device.type,
    )
    linears = [each for each in (block.linear_gate, block.linear_1, block.linear_2) if each is not None]
    weights = [each.weight for each in linears]
    biases = [each.bias for each in linears]
    tokens = hidden_states.reshape(-1, hidden_states.shape[-1])
    output = FrugalFeedForward.apply(tokens, run, len(linears), *weights, *biases, *block.activation.parameters())
    return output.view(hidden_states.shape)


def changed_part(block: nn.Module) -> str | None:
    """The name of a part that is not as `FeedForward` makes it, whose computation is therefore not known here."""
    expected: dict[str, type] = {"linear_1": nn.Linear, "linear_gate": nn.Linear, "linear_2": nn.Linear}
    expected |= {"activation_dropout": nn.Dropout, "dropout": nn.Dropout}
    for name, part in block.named_children():
        hooks = part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks
        # accelerate's hooks replace the forward of an instance.
        if hooks or "forward" in vars(part) or type(part) is not expected.get(name, type(part)):
            return name
        if any(type(each) not in (nn.Parameter, torch.Tensor) for each in part.parameters()):
            return name
    return None


def autocast_dtype(hidden_states: torch.Tensor) -> torch.dtype | None:
    """The precision that autocast asks of matrix products; None outside it."""
    device_type = hidden_states.device.type
    if not torch.is_autocast_enabled(device_type) or hidden_states.dtype == torch.float64:
        return None
    return torch.get_autocast_dtype(device_type)


@dataclass(frozen=True)
class Run:
    """What one pass through a block needs beside tensors.

    Attributes:
        activation: of the block.
        activation_dropout: probability, 0 outside training.
        dropout: probability, 0 outside training.
        keeps_pre_activation: whether what goes into the activation is kept.
        dtype: of autocast; None outside it.
        device_type: `"cpu"`, `"cuda"`…
    """

    activation: nn.Module
    activation_dropout: float
    dropout: float
    keeps_pre_activation: bool
    dtype: torch.dtype | None
    device_type: str

    def autocast(self) -> torch.autocast:
        """Autocast as it was in forward: some activations are computed in float32 under it."""
        return torch.autocast(self.device_type, dtype=self.dtype, enabled=self.dtype is not None)

    def intermediate(self, first: list[torch.Tensor]) -> torch.Tensor:
        """From the first linear layers' outputs (one, or gate and value) to the input of the second."""
        with self.autocast():
            result = self.activation(first[0])
            if len(first) == 2:
                result = result * first[1]
            # Without the check autograd would note a pass through dropout that does nothing.
            if self.activation_dropout > 0:
                result = F.dropout(result, self.activation_dropout)
        return result.to(first[0].dtype)


class FrugalFeedForward(torch.autograd.Function):
    """`dropout(linear_2(intermediate(linear_1(x))))` on `(tokens, hidden_size)`; see `frugal_feed_forward`."""

    @staticmethod
    def forward(ctx: Any, tokens: torch.Tensor, run: Run, num_linears: int, *parameters: Any) -> torch.Tensor:
        weights, biases = parameters[:num_linears], parameters[num_linears : 2 * num_linears]
        dtype = run.dtype or tokens.dtype
        slices = slices_of(tokens, weights[0].shape[0], dtype)
        product = products(tokens.device, dtype)
        # (out, in) each, in the precision of the products
        cast = [product.prepare(weight.to(dtype), len(slices)) for weight in weights]
        bias = [None if each is None else each.to(dtype) for each in biases]

        output = tokens.new_empty(tokens.shape[0], weights[-1].shape[0], dtype=dtype)
        shape = (tokens.shape[0], weights[0].shape[0])
        kept = [tokens.new_empty(shape, dtype=dtype) for _ in weights[:-1]] if run.keeps_pre_activation else []
        ctx.before_activation_dropout = random_state(tokens, run.activation_dropout)
        for rows in slices:
            first = [product(tokens[rows].to(dtype), w, b) for w, b in zip(cast[:-1], bias[:-1], strict=True)]
            for buffer, each in zip(kept, first, strict=False):
                buffer[rows] = each
            output[rows] = product(run.intermediate(first), cast[-1], bias[-1])
        ctx.before_dropout = random_state(tokens, run.dropout)
        if run.dropout > 0:
            output = F.dropout(output, run.dropout)
        ctx.run, ctx.num_linears, ctx.dtype = run, num_linears, dtype
        ctx.save_for_backward(tokens, *parameters, *kept)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "feed_forward_memory keeps too little for a second derivative (create_graph=True): set "
                "config.feed_forward_memory = 'full'"
            )
        run, num_linears, dtype = ctx.run, ctx.num_linears, ctx.dtype
        tokens, *saved = ctx.saved_tensors
        num_kept = num_linears - 1 if run.keeps_pre_activation else 0
        parameters, kept = saved[: len(saved) - num_kept], saved[len(saved) - num_kept :]
        weights, biases = parameters[:num_linears], parameters[num_linears : 2 * num_linears]
        of_activation = [each for each in parameters[2 * num_linears :] if each.requires_grad]
        (output_gradient,) = gradients
        if run.dropout > 0:
            with replayed(ctx.before_dropout, run.device_type):
                output_gradient = F.dropout(output_gradient, run.dropout)

        slices = slices_of(tokens, weights[0].shape[0], dtype)
        product = products(tokens.device, dtype)
        cast = [weight.to(dtype) for weight in weights]
        forward_weights = [] if kept else [product.prepare(each, len(slices)) for each in cast[:-1]]
        bias = [None if each is None else each.to(dtype) for each in biases]
        needed = ctx.needs_input_grad
        sums = [Sum(each if need else None) for each, need in zip(parameters, needed[3:], strict=True)]
        of_weights, of_biases = sums[:num_linears], sums[num_linears : 2 * num_linears]
        activation_sums = [each for each in sums[2 * num_linears :] if each.like is not None]
        tokens_gradient = torch.empty_like(tokens) if needed[0] else None

        with replayed(ctx.before_activation_dropout, run.device_type):
            for rows in slices:
                x, gradient = tokens[rows].to(dtype), output_gradient[rows]
                if kept:
                    first = [each[rows] for each in kept]
                else:
                    first = [product(x, w, b) for w, b in zip(forward_weights, bias[:-1], strict=True)]
                with torch.enable_grad():
                    first = [each.detach().requires_grad_() for each in first]
                    intermediate = run.intermediate(first)
                of_weights[-1].add_product(gradient, intermediate.detach(), product)
                of_biases[-1].add_column_sums(gradient)
                first_gradients = torch.autograd.grad(
                    intermediate, [*first, *of_activation], product(gradient, cast[-1].t(), None)
                )
                for total, each in zip(activation_sums, first_gradients[len(first) :], strict=True):
                    total.add(each)
                x_gradient = None
                for index, each in enumerate(first_gradients[: len(first)]):
                    of_weights[index].add_product(each, x, product)
                    of_biases[index].add_column_sums(each)
                    if tokens_gradient is not None:
                        part = product(each, cast[index].t(), None)
                        x_gradient = part if x_gradient is None else x_gradient + part
                if tokens_gradient is not None and x_gradient is not None:
                    tokens_gradient[rows] = x_gradient
        return tokens_gradient, None, None, *(each.result() for each in sums)


class Sum:
    """A parameter's gradient, summed over slices in float32 at least; nothing where none is needed.

    Args:
        like: the parameter; None where it needs no gradient (or is not there).
    """

    def __init__(self, like: torch.Tensor | None) -> None:
        self.like = like
        self.total: torch.Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        assert self.like is not None
        return self.like.dtype if self.like.dtype == torch.float64 else torch.float32

    def add(self, part: torch.Tensor) -> None:
        """Add a slice's gradient."""
        if self.total is None:
            self.total = part.to(self.dtype)
        else:
            self.total += part

    def add_product(self, gradient: torch.Tensor, x: torch.Tensor, product: "Products") -> None:
        """Add `gradient^T @ x`: `(tokens, out)` and `(tokens, in)` to `(out, in)`."""
        if self.like is None:
            return
        if self.total is not None and self.total.dtype == x.dtype and not product.by_onednn:
            self.total.addmm_(gradient.t(), x)
        else:
            self.add(product(gradient.t(), x.t(), None))

    def add_column_sums(self, gradient: torch.Tensor) -> None:
        """Add a bias's gradient: `(tokens, out)` to `(out)`."""
        if self.like is not None:
            self.add(gradient.sum(0, dtype=self.dtype))

    def result(self) -> torch.Tensor | None:
        """The gradient in the parameter's own precision."""
        if self.like is None:
            return None
        return torch.zeros_like(self.like) if self.total is None else self.total.to(self.like.dtype)


def slices_of(tokens: torch.Tensor, intermediate_size: int, dtype: torch.dtype) -> list[slice]:
    """How `(tokens, hidden_size)` is cut into slices of rows."""
    rows = TOKENS_ON_GPU
    if tokens.device.type == "cpu":
        rows = max(FEWEST_TOKENS, SLICE_BYTES // (intermediate_size * dtype.itemsize))
    return [slice(start, start + rows) for start in range(0, tokens.shape[0], rows)]


# What a place in the random sequence is: the state on CPU, devices, and their states.
RandomState = tuple[torch.Tensor, list[int], list[torch.Tensor]]


def random_state(tokens: torch.Tensor, dropout: float) -> RandomState | None:
    """Where the random sequence stands before a dropout, so that its mask need not be kept; None without dropout."""
    return (torch.get_rng_state(), *get_device_states(tokens)) if dropout > 0 else None


@contextmanager
def replayed(state: RandomState | None, device_type: str) -> Iterator[None]:
    """Draw what was drawn from `state` on, and leave the random sequence where it is."""
    if state is None:
        yield
        return
    cpu_state, devices, device_states = state
    other = "cuda" if device_type == "cpu" else device_type
    with torch.random.fork_rng(devices, device_type=other):
        torch.set_rng_state(cpu_state)
        set_device_states(devices, device_states, device_type=other)
        yield


class Products:
    """Matrix products by torch's own choice of library.

    Attributes:
        by_onednn: whether float32 products on CPU go to oneDNN.
    """

    by_onednn = False

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """`x @ weight^T + bias`, of `(rows, in)` and `(out, in)`."""
        return F.linear(x, weight, bias)

    def prepare(self, weight: torch.Tensor, times: int) -> torch.Tensor:
        """A weight in the layout that is best where it is used so many times."""
        return weight


class OneDNNProducts(Products):
    """Float32 matrix products by oneDNN, where torch would use MKL."""

    by_onednn = True

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    def prepare(self, weight: torch.Tensor, times: int) -> torch.Tensor:
        # Reordering once costs about what two products lose by reordering for themselves.
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), FEWEST_TOKENS) if times > 2 else weight


def products(device: torch.device, dtype: torch.dtype) -> Products:
    """The library for products of this kind: torch's choice, or oneDNN for float32 on CPU where that is chosen."""
    by_onednn = device.type == "cpu" and dtype == torch.float32 and PRODUCT_LIBRARY.onednn_is_chosen()
    return OneDNNProducts() if by_onednn else Products()


@dataclass
class ProductLibrary:
    """Which library multiplies float32 matrices on CPU, in this process.

    The two round differently, so a run that is resumed must go on with its own, wherever that is.

    Attributes:
        by_onednn: whether it is oneDNN; None leaves it to what the processor is.
    """

    by_onednn: bool | None = None

    def onednn_is_chosen(self) -> bool:
        """Whether it is oneDNN."""
        return onednn_suits_the_processor() if self.by_onednn is None else self.by_onednn

    def state_dict(self) -> dict[str, bool]:
        """What is chosen, for a checkpoint."""
        return {"by_onednn": self.onednn_is_chosen()}

    def load_state_dict(self, state: dict[str, bool]) -> None:
        """Take over the choice of another process; without oneDNN, torch's own library, and a warning."""
        self.by_onednn = state["by_onednn"] and onednn_is_there()
        if self.by_onednn != state["by_onednn"]:
            logger.warning(
                "this run was begun with oneDNN's matrix products, which this build of torch lacks: it goes on with "
                "torch's own, which round differently"
            )


def onednn_is_there() -> bool:
    """Whether this build of torch can be told to multiply by oneDNN."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def only_avx2() -> bool:
    """Whether this processor has AVX2 and no AVX-512, where oneDNN is not the fastest at everything.

    Within a product it then takes a third of the product's own time for GELU or SiLU, and torch a sixteenth after it;
    and MKL multiplies many rows faster by a tenth.
    """
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def onednn_suits_the_processor() -> bool:
    """Whether oneDNN multiplies float32 matrices in backward: on AMD's processors with AVX-512, and on no others.

    There MKL took a tenth more time; on Intel's oneDNN took a half more, and with AVX2 alone a sixth more. This is
    never measured where it runs: equal runs must give equal numbers, whatever else the machine does.
    """
    has_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return has_avx512 and processor_vendor() == "AuthenticAMD" and onednn_is_there()


@cache
def processor_vendor() -> str:
    """Who made the processor, in its own words ("GenuineIntel"); empty where the system does not tell (not Linux)."""
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")


PRODUCT_LIBRARY = ProductLibrary()
