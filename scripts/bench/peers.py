"""Ours prepared, and the other libraries, each behind a function that prepares a model and returns what is timed."""

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hf_ffn import optimize_for_inference
from hf_ffn.packed_products import has


def optimised(model: Any, dtype: str) -> Any:
    """A model of ours, prepared for inference in `dtype`.

    Raises:
        RuntimeError: the preparation fell back, and would be measured as something that it is not.
    """
    precision: Any = None if dtype == "float32" else dtype
    report = optimize_for_inference(model, precision)
    if report.fallbacks:
        raise RuntimeError(report.fallbacks[0])
    return model


def export_onnx(model: nn.Module, inputs: tuple[torch.Tensor, ...], path: Path, sizes: tuple[str, ...]) -> Path:
    """Write a model as ONNX; `sizes` names the first dimensions of its inputs, which are left open."""
    names = [f"input_{index}" for index in range(len(inputs))]
    axes = {name: dict(enumerate(sizes)) for name in names}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), inputs, str(path), input_names=names, output_names=["y"], dynamic_axes=axes, dynamo=False
        )
    return path


def bert_onnx(path: Path, heads: int, hidden: int) -> Path:
    """ONNX Runtime's own fusions for BERT."""
    from onnxruntime.transformers import optimizer

    target = path.with_suffix(".bert.onnx")
    fused = optimizer.optimize_model(str(path), model_type="bert", num_heads=heads, hidden_size=hidden)
    fused.save_model_to_file(str(target))
    return target


def int8_onnx(path: Path) -> Path:
    """Quantised dynamically, with one scale a weight, its default: by channel takes a quarter of a minute."""
    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic

    target = path.with_suffix(".int8.onnx")
    # Without VNNI instructions its sums of 8-bit products overflow, and weights of 7 bits are what it asks for.
    options = {"reduce_range": not has("vnni"), "extra_options": {"DefaultTensorType": TensorProto.FLOAT}}
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        quantize_dynamic(path, target, weight_type=QuantType.QInt8, **options)
    finally:
        root.setLevel(level)
    return target


def onnx_session(path: Path) -> Callable[..., torch.Tensor]:
    """A function from inputs to the output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        given = {name: each.numpy() for name, each in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(None, given)[0])

    return run


def onnx_runtime(path: Path, inputs: tuple[torch.Tensor, ...]) -> Callable[[], torch.Tensor]:
    session = onnx_session(path)
    return lambda: session(*inputs)


def openvino_graph(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """A model converted for OpenVINO, which compiles it for each precision."""
    # With this package, every conversion is reported to OpenVINO's makers by processes that take a processor for
    # seconds, beside what is measured; without it, nothing is.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    import openvino

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return openvino.convert_model(model.eval(), example_input=inputs)


def openvino_compiled(graph: Any, dtype: str) -> Callable[..., torch.Tensor]:
    """A function from inputs to the output, in float32 or bfloat16."""
    import openvino

    precision = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.compile_model(graph, "CPU", {**settings, "INFERENCE_NUM_THREADS": torch.get_num_threads()})

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(compiled([each.numpy() for each in inputs])[0].copy())

    return run


def ctranslate2_files(model: Any, folder: Path) -> Path:
    """A BERT in CTranslate2's format; its converter reads a saved one."""
    import ctranslate2
    from transformers import BertModel, BertTokenizer

    source, converted = folder / "bert", folder / "ctranslate2"
    if not converted.exists():
        # Its converter wants a pooler, a tokenizer, and a field that transformers 5 has dropped.
        with_pooler = BertModel(model.config)
        with_pooler.load_state_dict(model.state_dict(), strict=False)
        with_pooler.config.position_embedding_type = "absolute"
        with_pooler.save_pretrained(source)
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words = special + [f"word{index}" for index in range(model.config.vocab_size - len(special))]
        (folder / "vocab.txt").write_text("\n".join(words))
        BertTokenizer(str(folder / "vocab.txt")).save_pretrained(source)
        ctranslate2.converters.TransformersConverter(str(source)).convert(str(converted))
    return converted


def ctranslate2_encoder(files: Path, compute_type: str) -> Callable[[list[list[int]]], Any]:
    """A function from sequences of ids to an array `(batch, sequence, hidden_size)`."""
    import ctranslate2
    import numpy

    encoder = ctranslate2.Encoder(
        str(files), compute_type=compute_type, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    return lambda ids: numpy.array(encoder.forward_batch(ids).last_hidden_state)
