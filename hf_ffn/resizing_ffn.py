"""Sizes that change as a checkpoint loads: more or fewer positions of a text, images of another size, vocabularies.

The checkpoint loads at its own size, so that every tensor of it is checked; tables are resized afterwards.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import os
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from .configuration_ffn import FFNConfig, height_and_width
from .configuration_ffn_block import NATIVE_MODEL_TYPES
from .grids_ffn import WindowPositionBias
from .ties_ffn import untie

# Tables with a row for each id, by the field that counts them.
TABLES = {
    "vocab_size": "word_embeddings",
    "type_vocab_size": "token_type_embeddings",
    "task_type_vocab_size": "task_type_embeddings",
}

# The fields that may differ from the checkpoint's, as its tables can be made to fit.
SIZES = (*TABLES, "max_position_embeddings", "image_size")

# How the rows of positions beyond the checkpoint's are made.
EXTENSIONS = ("tile", "interpolate")


def hold_sizes_back(config: FFNConfig, stated: dict[str, Any], source: str | os.PathLike | None) -> dict[str, Any]:
    """Give `config` the checkpoint's own sizes to load with.

    Args:
        config: what is wanted; changed in place.
        stated: the checkpoint's config.json, in fields of ours.
        source: the checkpoint, for messages.

    Returns:
        The sizes that are wanted in their place, for `resize` after loading.

    Raises:
        ValueError: an impossible size, another size of patches, or segments where there are none, or none any more.
    """
    if stated.get("model_type") not in NATIVE_MODEL_TYPES:
        return {}
    config.validate_architecture()
    stored = type(config)._as_native(stated, str(source))
    wanted = {}
    for name in ("patch_size", *SIZES):
        if not hasattr(config, name):
            continue
        own, other = stored.get(name, getattr(type(config), name)), getattr(config, name)
        if height_and_width(own) == height_and_width(other):
            continue
        if name == "patch_size":
            raise ValueError(
                f"patch_size={other}: '{source}' projects patches of {own} pixels, and patches cannot be resized. "
                f"Leave patch_size out; image_size may be another."
            )
        if name in TABLES and 0 in (own, other):
            raise ValueError(
                f"{name}={other}: '{source}' has {own}. A table can grow or shrink, but not begin or end as a "
                f"checkpoint loads; leave {name} out."
            )
        wanted[name] = other
        setattr(config, name, own)
    pad = getattr(config, "pad_token_id", None)
    if "vocab_size" in wanted and pad is not None and pad >= config.vocab_size:
        if config.positions_after_padding:
            raise ValueError(f"pad_token_id={pad}: '{source}' counts positions from its own one; leave it out")
        wanted["pad_token_id"] = pad
        config.pad_token_id = stored.get("pad_token_id")
    return wanted


def take_extension(kwargs: dict[str, Any], config: FFNConfig) -> str:
    """Take `extend_positions` out of the keywords of `from_pretrained`; "tile" where it is left out.

    Raises:
        ValueError: another value, or a model whose positions are not a text's.
    """
    extend_positions = kwargs.pop("extend_positions", None)
    if extend_positions is None:
        return EXTENSIONS[0]
    if extend_positions not in EXTENSIONS:
        raise ValueError(f"extend_positions={extend_positions!r} must be one of {', '.join(map(repr, EXTENSIONS))}")
    if not hasattr(config, "max_position_embeddings"):
        raise ValueError(
            f"extend_positions={extend_positions!r} is for the positions of a text; those of an image are "
            f"interpolated bicubically for another image_size"
        )
    return extend_positions


def resize(model: PreTrainedModel, wanted: dict[str, Any], extend_positions: str) -> list[str]:
    """Bring a loaded model's tables to the sizes that are wanted.

    Args:
        model: loaded at the checkpoint's own sizes.
        wanted: what `hold_sizes_back` returned.
        extend_positions: one of `EXTENSIONS`, for texts.

    Returns:
        What was done, for the loading report.

    Raises:
        ValueError: the tables are not in memory.
    """
    if wanted and any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError(
            f"{', '.join(wanted)} cannot change while weights are offloaded: load the model without "
            f"offloading, save it, and load that"
        )
    notes = []
    for name, size in wanted.items():
        if name in TABLES:
            notes.append(resize_table(model, name, size))
            continue
        if name == "pad_token_id":
            model.config.pad_token_id = model.base_model.embeddings.word_embeddings.padding_idx = size
            continue
        positions = resize_images if name == "image_size" else resize_texts
        setattr(model.config, name, size)
        notes.append(positions(model, extend_positions))
    return [note for note in notes if note]


def resize_table(model: PreTrainedModel, name: str, size: int) -> str:
    """Bring a table of embeddings, and the decoder that belongs to it, to another number of rows, and say how."""
    table = getattr(model.base_model.embeddings, TABLES[name])
    old_size = getattr(model.config, name)
    if name == "vocab_size":
        if model.config.tie_word_embeddings and (model._tied_weights_keys or {}).keys() - model.all_tied_weights_keys:
            # The checkpoint holds a decoder of its own, which transformers would tie as it resizes.
            untie(model)
        model.resize_token_embeddings(size)
    elif table is not None:
        model._get_resized_embeddings(table, size)
    setattr(model.config, name, size)
    if table is None:
        return ""
    if size < old_size:
        return f"{name}={size}: the checkpoint's rows {size}…{old_size - 1} were cut off"
    return (
        f"{name}={size}: the checkpoint's {old_size} rows stay as they are, and the new ones {old_size}…{size - 1} "
        f"begin at their mean, as transformers' resize_token_embeddings has it; train them before use"
    )


def resize_texts(model: PreTrainedModel, extend_positions: str) -> str:
    """Bring a text model's positions to `config.max_position_embeddings`, and say how."""
    config, table = model.config, model.base_model.embeddings.position_embeddings
    size = config.max_position_embeddings
    if config.longest_sequence is None:
        return f"max_position_embeddings={size}: there are no learnt positions; longer texts need fine-tuning"
    old_size, first = table.num_embeddings, size - config.longest_sequence
    replace_parameter(table, "weight", resized_rows(table.weight, size, first, extend_positions))
    table.num_embeddings = size
    if size < old_size:
        return f"max_position_embeddings={size}: the checkpoint's positions {size}…{old_size - 1} were cut off"
    how = {
        "tile": f"the new positions {old_size}…{size - 1} repeat the checkpoint's {first}…{old_size - 1}, which stay "
        f"as they are (tile)",
        "interpolate": f"the checkpoint's positions {first}…{old_size - 1} were stretched to {first}…{size - 1} "
        f"(interpolate), so short texts give other outputs too",
    }[extend_positions]
    return f"max_position_embeddings={size}: {how}; long texts need fine-tuning"


def resized_rows(rows: torch.Tensor, size: int, first: int, extend_positions: str) -> torch.Tensor:
    """Make `(positions, hidden_size)` to `(size, hidden_size)`; fewer rows are the first ones.

    Args:
        rows: the learnt positions.
        size: number of rows that are wanted.
        first: row of the first token; those before it mark padding, stay, and are not repeated.
        extend_positions: `"tile"` repeats the rows, as Longformer's authors did with RoBERTa's
            ([Beltagy et al. 2020](https://huggingface.co/papers/2004.05150), section 5); `"interpolate"` stretches
            them linearly over the new length.
    """
    if size <= len(rows):
        return rows[:size]
    kept, learnt = rows[:first], rows[first:]
    if extend_positions == "tile":
        made = learnt[torch.arange(size - first, device=rows.device) % len(learnt)]
    else:
        # (positions, hidden_size) -> (1, hidden_size, positions), and back; half precision would lose digits
        columns = learnt.float().T.unsqueeze(0)
        columns = nn.functional.interpolate(columns, size=size - first, mode="linear", align_corners=True)
        made = columns.squeeze(0).T.to(rows.dtype)
    return torch.cat((kept, made))


def resize_images(model: PreTrainedModel, extend_positions: str) -> str:
    """Bring an image model's positions to `config.image_size`, and say how."""
    embeddings, grid = model.base_model.embeddings, model.config.grid_size
    old, new = embeddings.image_size, height_and_width(model.config.image_size)
    same_grid = embeddings.grid_size == grid
    embeddings.image_size = new
    said = f"image_size={new[0]}x{new[1]}"
    if same_grid:
        return f"{said}: as many patches as for {old[0]}x{old[1]}, so the positions stay"
    if embeddings.any_size:
        embeddings.grid_size = grid
        return f"{said}: no position is learnt for each patch; such a model needs fine-tuning"
    replace_parameter(embeddings, "position_embeddings", embeddings.positions_for(grid))
    embeddings.grid_size = grid
    for module in model.modules():
        if isinstance(module, WindowPositionBias):
            replace_parameter(module, "table", module.rows_for(grid))
            module.grid_size = grid
    return (
        f"{said}: the checkpoint's positions, for {old[0]}x{old[1]}, were interpolated; such a model needs fine-tuning"
    )


def replace_parameter(module: nn.Module, name: str, value: torch.Tensor | None) -> None:
    """Put a tensor in a parameter's place, where the module has it."""
    if value is not None:
        trained = getattr(module, name).requires_grad
        setattr(module, name, nn.Parameter(value.detach().clone(), requires_grad=trained))
