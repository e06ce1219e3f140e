"""Reading single feed-forward blocks, out of whole checkpoints or of state dicts of their own.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .checkpoint_ffn import hub_keywords, open_tensors, read_raw_config, weight_files
from .configuration_ffn import FFNConfig
from .loading_ffn import converted, renamed
from .registry_ffn import block_family


def read_feed_forward(
    block_class: type,
    source: str | os.PathLike,
    layer: int,
    part: str | None,
    dtype: str | torch.dtype | None,
    kwargs: dict[str, Any],
) -> Any:
    """Read one layer's feed-forward block (see `FeedForward.from_pretrained`)."""
    raw_config = read_raw_config(source, kwargs)
    config = FFNConfig.from_pretrained(source, part=part, family=kwargs.get("family"), **hub_keywords(kwargs))
    paths = config.block_paths()
    if not 0 <= layer < len(paths):
        raise ValueError(f"layer={layer}: '{source}' has the layers 0…{len(paths) - 1}")
    family = block_family(str(source), raw_config["model_type"], part)
    mapping = family.of(config).weight_mapping() if family else []
    wanted = re.compile(rf"^(?:model\.)?encoder\.{re.escape(paths[layer])}\.ffn\.(.+)$")

    found_in_files: dict[str, torch.Tensor] = {}
    for path in weight_files(source, kwargs):
        with open_tensors(path) as (names, read):
            found_in_files |= {name: read(name) for name in names if wanted.match(renamed(name, mapping))}
    tensors = {name.partition(".ffn.")[2]: tensor for name, tensor in converted(found_in_files, mapping).items()}
    if "linear_1.weight" not in tensors:
        raise ValueError(f"'{source}' holds no feed-forward block for layer {layer}, though its config.json says so")

    return block_of(block_class, config, tensors, f"'{source}', layer {layer}", dtype)


def read_state_dict(
    block_class: type,
    source: str | os.PathLike | Mapping[str, torch.Tensor],
    layer: int | None,
    dtype: str | torch.dtype | None,
) -> Any:
    """Read a block from tensors that are called as its own are (see `FeedForward.from_pretrained`).

    Args:
        block_class: `FeedForward`, or a subclass.
        source: a file of weights, or a state dict, which is copied.
        layer: index of the block among an encoder's `layers`; None where there is one block.
        dtype: of the weights; None for their own.
    """
    opened: contextlib.AbstractContextManager[tuple[list[str], Callable[[str], torch.Tensor]]]
    where = "the state dict" if isinstance(source, Mapping) else f"'{source}'"
    if isinstance(source, Mapping):
        opened = contextlib.nullcontext((list(source), source.__getitem__))
    elif os.path.isfile(source):
        opened = open_tensors(str(source))
    else:
        raise FileNotFoundError(f"there is no file {where}")
    last = "linear_1.weight"
    with opened as (names, read):
        prefixes = [name.removesuffix(last) for name in names if name == last or name.endswith(f".{last}")]
        if layer is not None:
            prefixes = [prefix for prefix in prefixes if re.search(rf"(?:^|\.)layers\.{layer}\.", prefix)]
        if len(prefixes) != 1:
            which = "" if layer is None else f" for layer {layer}"
            raise ValueError(
                f"{where} holds {len(prefixes) or 'no'} feed-forward blocks{which} (tensors called '…{last}'). "
                f"Pass layer= where there are several; a checkpoint with a config.json is read from its folder"
            )
        found = [name for name in names if name.startswith(f"{prefixes[0]}linear_")]
        tensors = {name.removeprefix(prefixes[0]): read(name).clone() for name in found}
    return block_of(block_class, None, tensors, where, dtype)


def block_of(
    block_class: type,
    config: FFNConfig | None,
    tensors: dict[str, torch.Tensor],
    where: str,
    dtype: str | torch.dtype | None,
) -> Any:
    """A feed-forward block that consists of these tensors, and is as wide as they are.

    Args:
        block_class: `FeedForward`, or a subclass.
        config: of the checkpoint; None for the defaults, and a size that follows from the tensors.
        tensors: by the block's own names.
        where: they were found, for messages.
        dtype: of the weights; None for their own.

    Raises:
        ValueError: a tensor is missing, left over, of another shape, or no floating-point numbers.
    """
    weight = tensors["linear_1.weight"]
    if weight.dim() != 2:
        raise ValueError(f"{where}: linear_1.weight is no matrix, but of shape {tuple(weight.shape)}")
    if config is None:
        config = FFNConfig(hidden_size=weight.shape[1], num_attention_heads=1)
    # Layers that were pruned are narrower than the configuration's common width.
    config.intermediate_size = weight.shape[0]
    with torch.device("meta"):
        block = block_class(config)
    expected = {name: tuple(tensor.shape) for name, tensor in block.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        raise ValueError(f"{where}: expected the tensors {expected} but found {found}")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(f"{where}: {name} is of type {tensor.dtype}, where weights are floating-point numbers")
    block.load_state_dict(tensors, assign=True)
    if dtype is not None:
        block.to(getattr(torch, dtype) if isinstance(dtype, str) else dtype)
    return block.eval()
