"""Linear layers as products by oneDNN (by MKL and FBGEMM too, with AVX2 alone), with weights packed once."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers.activations import FastGELUActivation, GELUActivation, GELUTanh, NewGELUActivation, SiLUActivation

from .frugal_ffn import only_avx2
from .modeling_ffn import LayerScale

# With AVX2 alone two products of 8 bits are added up in 16: 2 * 255 * 63 fits, and the weights have 7 bits of the two,
# because activations, whose scale is one for all, need theirs more.
LARGEST_FOR_FBGEMM = 63


@dataclass(frozen=True)
class Known:
    """An activation that oneDNN computes within a product, and torch in place after one.

    Attributes:
        name: oneDNN's for it.
        algorithm: oneDNN's name for the way of computing it.
        in_place: torch's operator; a new tensor would take as long to map its pages as the activation itself.
    """

    name: str
    algorithm: str
    in_place: Callable[[torch.Tensor], torch.Tensor]


GELU = Known("gelu", "none", torch.ops.aten.gelu_)
GELU_BY_TANH = Known("gelu", "tanh", partial(torch.ops.aten.gelu_, approximate="tanh"))
SILU = Known("swish", "", torch.ops.aten.silu_)
KNOWN: dict[type | None, Known] = {
    GELUActivation: GELU,
    NewGELUActivation: GELU_BY_TANH,
    GELUTanh: GELU_BY_TANH,
    FastGELUActivation: GELU_BY_TANH,
    nn.ReLU: Known("relu", "", torch.ops.aten.relu_),
    nn.SiLU: SILU,
    SiLUActivation: SILU,
}

# Rows a thread from which on MKL is faster than oneDNN with AVX2 alone.
ROWS_A_THREAD_FOR_MKL = 192

# The layout chosen for so many rows serves all numbers of rows; the one for a single row is slow on others.
ROWS = 64


def missing(dtype: str) -> str | None:
    """Why this machine or torch has no packed products in a precision; None where it has.

    Args:
        dtype: `"float32"`, `"bfloat16"` or `"int8"`.
    """
    if dtype == "bfloat16" and not has_bfloat16():
        return "this processor has no instructions for it (avx512_bf16 or AMX), and would be slower than in float32"
    if dtype == "int8" and not (has("vnni") or has("avx2")):
        return "this processor has no instructions for it (VNNI or AVX2)"
    if dtype == "int8" and int8_engine() not in torch.backends.quantized.supported_engines:
        return f"this torch has no {int8_engine()} engine for quantised products"
    linear = nn.Linear(ROWS, ROWS, dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    # The operators are private to torch, so only trying tells.
    try:
        with torch.no_grad():
            product_of([linear], nn.ReLU(), None, dtype)(linear.weight)
    except (AttributeError, RuntimeError, TypeError) as error:
        return f"torch {torch.__version__} lacks an operator ({str(error).splitlines()[0]})"
    return None


def has(instructions: str) -> bool:
    """Whether this processor has a set of instructions, by torch's name for it."""
    return getattr(torch.cpu, f"_is_{instructions}_supported", lambda: False)()


def has_bfloat16() -> bool:
    """Whether this processor multiplies matrices in bfloat16 by instructions of its own."""
    return has("avx512_bf16") or has("amx_tile")


def int8_engine() -> str:
    """torch's engine for int8 products: oneDNN's where the processor has VNNI instructions, FBGEMM for AVX2 alone."""
    return "onednn" if has("vnni") else "fbgemm"


@torch.no_grad()
def product_of(linears: list[nn.Linear], activation: nn.Module | None, scale: nn.Module | None, dtype: str) -> Any:
    """Pack linear layers of one input, side by side, as one product.

    Args:
        linears: the layers.
        activation: applied to the output.
        scale: of the output; a `LayerScale` is multiplied into the weights.
        dtype: `"float32"`, `"bfloat16"` or `"int8"`.
    """
    # (out, in), (out)
    weight = linears[0].weight.detach()
    if len(linears) > 1:
        weight = torch.cat([each.weight.detach() for each in linears])
    bias = None
    if any(each.bias is not None for each in linears):
        # Keys may have none beside queries' and values'.
        none = weight.new_zeros
        bias = torch.cat([none(each.out_features) if each.bias is None else each.bias.detach() for each in linears])
    if isinstance(scale, LayerScale):
        weight = weight * scale.scale[:, None]
        bias = bias * scale.scale if bias is not None else None
    if dtype == "int8":
        return Int8Linear(weight, bias, activation, len(linears))
    is_copy = weight.data_ptr() != linears[0].weight.data_ptr()
    return OneDNNLinear(weight.to(getattr(torch, dtype)), bias, activation, len(linears), is_copy)


class Packed:
    """What both kinds of products share.

    Attributes:
        num_linears: how many linear layers are in it.
        num_bytes: of the packed weights.
        fused: whether the activation is computed within the product.
        activation: what is applied to the product, or None.
        library: that multiplies.
    """

    library = "oneDNN"

    def __init__(self, num_linears: int, num_bytes: int, fused: bool, activation: nn.Module | None) -> None:
        self.num_linears, self.num_bytes, self.fused = num_linears, num_bytes, fused
        known = KNOWN.get(type(activation))
        self.activation: Callable[[torch.Tensor], torch.Tensor] | None
        self.activation = None if fused else known.in_place if known is not None else activation

    def __reduce__(self) -> Any:
        raise TypeError(
            "a model prepared by optimize_for_inference cannot be copied or pickled, for its packed weights are in a "
            "layout of this processor's: copy the model before preparing it, or save it with save_pretrained"
        )


class OneDNNLinear(Packed):
    """`activation(x @ weight^T + bias)` in float32 or bfloat16.

    With AVX2 alone, activations come after the product, and MKL multiplies where there are many rows.

    Args:
        weight: `(out, in)`, in the precision of the product.
        bias: `(out)`, or None.
        activation: within the product where oneDNN knows it and is fast at it, after it elsewhere.
        num_linears: how many linear layers the weight comes from.
        is_copy: whether the weight is not the model's own.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        activation: nn.Module | None,
        num_linears: int,
        is_copy: bool,
    ) -> None:
        known = None if only_avx2() else KNOWN.get(type(activation))
        super().__init__(num_linears, weight.numel() * weight.itemsize, known is not None, activation)
        self.dtype = weight.dtype
        self.attr, self.algorithm = ("none", "") if known is None else (known.name, known.algorithm)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self.bias = None if bias is None else bias.to(weight.dtype).clone()
        self.multiply = torch.ops.mkldnn._linear_pointwise
        self.for_mkl = None
        if only_avx2() and weight.dtype == torch.float32 and torch.backends.mkl.is_available():
            self.for_mkl, self.many_rows = weight, ROWS_A_THREAD_FOR_MKL * torch.get_num_threads()
            self.num_bytes += weight.numel() * weight.itemsize * is_copy
            self.library = "oneDNN, or MKL where there are many rows"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map `(..., in)` to `(..., out)` in the product's precision."""
        if self.for_mkl is not None and x.numel() >= self.many_rows * x.shape[-1]:
            # Autocast knows this one, and would have it computed in another precision.
            with torch.autocast("cpu", enabled=False):
                output = nn.functional.linear(x.to(self.dtype), self.for_mkl, self.bias)
        else:
            output = self.multiply(x.to(self.dtype), self.weight, self.bias, self.attr, [], self.algorithm)
        return output if self.activation is None else self.activation(output)


class Int8Linear(Packed):
    """`activation(x @ weight^T + bias)` with int8 weights and 8-bit activations, from float32 to float32.

    Weights have a scale for each row of theirs, symmetric about 0; activations one scale and zero point for all of a
    call's, from their smallest and largest. On processors without VNNI instructions weights have 7 bits.

    Args:
        weight: `(out, in)`, float32.
        bias: `(out)`, or None.
        activation: applied to the output.
        num_linears: how many linear layers the weight comes from.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, activation: nn.Module | None, num_linears: int
    ) -> None:
        super().__init__(num_linears, weight.numel(), False, activation)
        self.out_features = weight.shape[0]
        engine, wanted = torch.backends.quantized.engine, int8_engine()
        self.library, largest = ("oneDNN", 127) if wanted == "onednn" else ("FBGEMM", LARGEST_FOR_FBGEMM)
        # A row of zeros needs a scale too.
        scales = (weight.abs().amax(1) / largest).clamp(min=torch.finfo(torch.float32).tiny)
        zero_points = torch.zeros(len(scales), dtype=torch.long)
        torch.backends.quantized.engine = wanted
        try:
            with warnings.catch_warnings():
                # torch announces that quantised tensors will go; `missing` finds out when they have.
                warnings.simplefilter("ignore")
                quantized = torch.quantize_per_channel(weight, scales.double(), zero_points, 0, torch.qint8)
            self.weight = torch.ops.quantized.linear_prepack(quantized, None if bias is None else bias)
        finally:
            torch.backends.quantized.engine = engine
        self.multiply = torch.ops.quantized.linear_dynamic

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map `(..., in)` to `(..., out)`, float32."""
        rows = x.reshape(-1, x.shape[-1]).to(torch.float32)
        output = self.multiply(rows, self.weight, False).view(*x.shape[:-1], self.out_features)
        return output if self.activation is None else self.activation(output)
