"""Linear layers as products by oneDNN, with weights packed once in the layout that the processor likes best."""

import warnings
from typing import Any

import torch
from torch import nn
from transformers.activations import FastGELUActivation, GELUActivation, GELUTanh, NewGELUActivation, SiLUActivation

from .modeling_ffn import LayerScale

# Activations that oneDNN computes within the product: its name for them, and for the way of computing.
FUSED: dict[type, tuple[str, str]] = {
    GELUActivation: ("gelu", "none"),
    NewGELUActivation: ("gelu", "tanh"),
    GELUTanh: ("gelu", "tanh"),
    FastGELUActivation: ("gelu", "tanh"),
    nn.ReLU: ("relu", ""),
    nn.SiLU: ("swish", ""),
    SiLUActivation: ("swish", ""),
}

# The layout chosen for so many rows serves all numbers of rows; the one for a single row is slow on others.
ROWS = 64


def missing(dtype: str) -> str | None:
    """Why this machine or torch has no packed products in a precision; None where it has.

    Args:
        dtype: `"float32"`, `"bfloat16"` or `"int8"`.
    """
    has: dict[str, bool] = {
        name: getattr(torch.cpu, f"_is_{name}_supported", lambda: False)()
        for name in ("avx512_bf16", "amx_tile", "vnni")
    }
    if dtype == "bfloat16" and not (has["avx512_bf16"] or has["amx_tile"]):
        return "this processor has no instructions for it (avx512_bf16 or AMX), and would be slower than in float32"
    if dtype == "int8" and not has["vnni"]:
        return "this processor has no instructions for it (VNNI)"
    if dtype == "int8" and "onednn" not in torch.backends.quantized.supported_engines:
        return "this torch has no onednn engine for quantised products"
    linear = nn.Linear(ROWS, ROWS, dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    # The operators are private to torch, so only trying tells.
    try:
        with torch.no_grad():
            product_of([linear], nn.ReLU(), None, dtype)(linear.weight)
    except (AttributeError, RuntimeError, TypeError) as error:
        return f"torch {torch.__version__} lacks an operator ({str(error).splitlines()[0]})"
    return None


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
    weight = torch.cat([each.weight.detach() for each in linears])
    biases = [each.bias.detach() for each in linears if each.bias is not None]
    bias = torch.cat(biases) if biases else None
    if isinstance(scale, LayerScale):
        weight = weight * scale.scale[:, None]
        bias = bias * scale.scale if bias is not None else None
    if dtype == "int8":
        return Int8Linear(weight, bias, activation, len(linears))
    return OneDNNLinear(weight.to(getattr(torch, dtype)), bias, activation, len(linears))


class Packed:
    """What both kinds of products share.

    Attributes:
        num_linears: how many linear layers are in it.
        num_bytes: of the packed weights.
        fused: whether the activation is computed within the product.
    """

    def __init__(self, num_linears: int, num_bytes: int, fused: bool) -> None:
        self.num_linears, self.num_bytes, self.fused = num_linears, num_bytes, fused

    def __reduce__(self) -> Any:
        raise TypeError(
            "a model prepared by optimize_for_inference cannot be copied or pickled, for its packed weights are in a "
            "layout of this processor's: copy the model before preparing it, or save it with save_pretrained"
        )


class OneDNNLinear(Packed):
    """`activation(x @ weight^T + bias)` in float32 or bfloat16.

    Args:
        weight: `(out, in)`, in the precision of the product.
        bias: `(out)`, or None.
        activation: within the product where oneDNN knows it, after it elsewhere.
        num_linears: how many linear layers the weight comes from.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, activation: nn.Module | None, num_linears: int
    ) -> None:
        known = FUSED.get(type(activation))
        super().__init__(num_linears, weight.numel() * weight.itemsize, known is not None)
        self.dtype = weight.dtype
        self.attr, self.algorithm = known or ("none", "")
        self.activation = activation if known is None else None
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        self.bias = None if bias is None else bias.to(weight.dtype).clone()
        self.multiply = torch.ops.mkldnn._linear_pointwise

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map `(..., in)` to `(..., out)` in the product's precision."""
        output = self.multiply(x.to(self.dtype), self.weight, self.bias, self.attr, [], self.algorithm)
        return output if self.activation is None else self.activation(output)


class Int8Linear(Packed):
    """`activation(x @ weight^T + bias)` with int8 weights and 8-bit activations, from float32 to float32.

    Weights have a scale for each row of theirs, symmetric about 0; activations one scale and zero point for all of a
    call's, from their smallest and largest.

    Args:
        weight: `(out, in)`, float32.
        bias: `(out)`, or None.
        activation: applied to the output.
        num_linears: how many linear layers the weight comes from.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, activation: nn.Module | None, num_linears: int
    ) -> None:
        super().__init__(num_linears, weight.numel(), fused=False)
        self.activation = activation
        self.out_features = weight.shape[0]
        # A row of zeros needs a scale too.
        scales = (weight.abs().amax(1) / 127).clamp(min=torch.finfo(torch.float32).tiny)
        zero_points = torch.zeros(len(scales), dtype=torch.long)
        engine = torch.backends.quantized.engine
        torch.backends.quantized.engine = "onednn"
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
        if self.activation is None:
            return output
        # In place, for mapping the pages of another large buffer takes as long as the activation.
        if type(self.activation) is GELUActivation:
            return torch.ops.aten.gelu_(output)
        return self.activation(output)
