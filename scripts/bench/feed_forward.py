"""One feed-forward block, inference."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertIntermediate, BertOutput

from hf_ffn import FeedForward, FFNConfig

from . import peers
from .measure import Contender, Section, Timing, compare, without_gradients
from .products import bare

TOLERANCES = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.05}


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """Tables for several numbers of tokens, in float32 and bfloat16."""
    hidden, intermediate = (64, 256) if quick else (768, 3072)
    counts = (16, 64) if quick else (128, 512, 4096)
    settings = [(count, dtype) for dtype in ("float32", "bfloat16") for count in counts]
    for count, dtype in settings:
        yield section(hidden, intermediate, count, dtype, timing.part(len(settings)))


def section(hidden: int, intermediate: int, tokens: int, dtype: str, timing: Timing) -> Section:
    """One table; the bound, its two bare matrix products, is what ratios refer to."""
    torch.manual_seed(0)
    ffn = FeedForward(FFNConfig(hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=1)).eval()
    x = torch.randn(tokens, hidden)
    with torch.no_grad():
        reference = ffn(x)
    kind = getattr(torch, dtype)
    contenders = [
        Contender("bound: bare products", lambda: bare_products(ffn, x.to(kind)), precision=dtype),
        Contender("hf_ffn", lambda: plain(ffn, x.to(kind), kind), TOLERANCES[dtype], dtype),
        Contender("hf_ffn, optimize_for_inference", lambda: ours(ffn, x.to(kind), dtype), TOLERANCES[dtype], dtype),
        Contender("transformers", lambda: theirs(ffn, x.to(kind), kind), TOLERANCES[dtype], dtype),
        Contender("OpenVINO", lambda: openvino(ffn, x, dtype), TOLERANCES[dtype], dtype),
    ]
    if dtype == "float32":
        contenders += [
            Contender("ONNX Runtime", lambda: onnx_runtime(ffn, x, int8=False), TOLERANCES[dtype]),
            Contender("hf_ffn, optimize_for_inference, int8", lambda: ours(ffn, x, "int8"), TOLERANCES["int8"]),
            Contender("ONNX Runtime, int8", lambda: onnx_runtime(ffn, x, int8=True), TOLERANCES["int8"]),
        ]
    title = f"feed-forward {hidden}/{intermediate}, {tokens} tokens, {dtype}"
    return compare(title, contenders, reference, timing)


def copy_of(ffn: FeedForward) -> FeedForward:
    """The block again, with weights of its own."""
    copied = FeedForward(ffn.config).eval()
    copied.load_state_dict(ffn.state_dict())
    return copied


def plain(ffn: FeedForward, x: torch.Tensor, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    return without_gradients(copy_of(ffn).to(dtype), x)


def ours(ffn: FeedForward, x: torch.Tensor, dtype: str) -> Callable[[], torch.Tensor]:
    return without_gradients(peers.optimised(copy_of(ffn), dtype), x)


def theirs(ffn: FeedForward, x: torch.Tensor, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """BERT's two modules, without the residual sum and LayerNorm of the second."""
    config = BertConfig(hidden_size=ffn.config.hidden_size, intermediate_size=ffn.config.intermediate_size)
    first, second = BertIntermediate(config), BertOutput(config).dense
    first.dense.load_state_dict(ffn.linear_1.state_dict())
    second.load_state_dict(ffn.linear_2.state_dict())
    return without_gradients(nn.Sequential(first, second).eval().to(dtype), x)


def openvino(ffn: FeedForward, x: torch.Tensor, dtype: str) -> Callable[[], torch.Tensor]:
    run = peers.openvino_compiled(peers.openvino_graph(ffn, (x,)), dtype)
    return lambda: run(x)


def onnx_runtime(ffn: FeedForward, x: torch.Tensor, int8: bool) -> Callable[[], torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        path = peers.export_onnx(ffn, (x,), Path(folder) / "model.onnx", ("tokens",))
        return peers.onnx_runtime(peers.int8_onnx(path) if int8 else path, (x,))


def bare_products(ffn: FeedForward, x: torch.Tensor) -> Callable[[], None]:
    """The block's two products and nothing else."""
    with torch.no_grad():
        weights = [each.weight.to(x.dtype).clone() for each in (ffn.linear_1, ffn.linear_2)]
    middle = torch.randn(x.shape[0], ffn.config.intermediate_size).to(x.dtype)
    return bare([(x, weights[0]), (middle, weights[1])])
