"""Labels: read from a config.json whatever its age, and a classifier's rows brought in line with them, by name.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import logging

logger = logging.get_logger(__name__)


def in_order(labels: Mapping[Any, Any]) -> dict[int, str]:
    """Labels numbered as a classifier's rows are: by the order of their keys, which may begin at 1 or leave gaps.

    Raises:
        ValueError: no dictionary, or keys that are no numbers.
    """
    if not isinstance(labels, Mapping) or not all(re.fullmatch(r"-?\d+", str(key)) for key in labels):
        raise ValueError(
            f"id2label={str(labels)[:80]} must be a dictionary of numbers to names, as {{0: 'no', 1: 'yes'}}"
        )
    return {row: str(labels[key]) for row, key in enumerate(sorted(labels, key=int))}


def stand_ins(number: int) -> dict[int, str]:
    """transformers' names for so many labels that nobody named."""
    return {index: f"LABEL_{index}" for index in range(number)}


def unnamed(labels: Mapping[int, str]) -> bool:
    """Whether these are transformers' stand-ins for labels that nobody named."""
    return all(re.fullmatch(r"LABEL_\d+", name) for name in labels.values())


def rows_of(labels: Mapping[int, str]) -> dict[str, int]:
    """The other direction (`label2id`)."""
    return {name: row for row, name in labels.items()}


def labels_of(config_dict: Mapping[str, Any]) -> dict[int, str]:
    """The labels of a config.json, with transformers' default of two unnamed ones."""
    labels = config_dict.get("id2label")
    return stand_ins(config_dict.get("num_labels") or 2) if labels is None else in_order(labels)


def with_sound_labels(config_dict: dict[str, Any], source: str) -> dict[str, Any]:
    """A config.json whose labels are numbered from 0, without gaps; what had to be mended is said once.

    `num_labels` beside unnamed labels of another number goes before them, as in files of old versions of transformers;
    and `label2id` alone stands for both.
    """
    id2label, label2id = config_dict.get("id2label"), config_dict.get("label2id")
    number = config_dict.get("num_labels")
    if id2label is None and label2id and all(isinstance(row, int) for row in label2id.values()):
        id2label = {row: name for name, row in label2id.items()}
    if id2label is None:
        return config_dict
    labels = in_order(id2label)
    if number not in (None, len(labels)) and unnamed(labels):
        labels = stand_ins(number)
    keys = [int(key) for key in id2label]
    mended = {"id2label": labels, "label2id": rows_of(labels), "num_labels": len(labels)}
    if keys == list(range(len(labels))) and config_dict.get("id2label") is not None and number in (None, len(labels)):
        # As it stands, but for names that are written as numbers
        return config_dict if [*id2label.values()] == [*labels.values()] else {**config_dict, **mended}
    logger.warning_once(
        f"'{source}': the labels of config.json have the numbers {', '.join(map(str, keys[:8]))}"
        f"{'…' if len(keys) > 8 else ''}{f' and num_labels={number}' if number is not None else ''}; the rows of the "
        f"classifier are {', '.join(list(labels.values())[:8])}, in this order"
    )
    return {**config_dict, **mended}


def with_sound_label_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords of `from_pretrained` in which `label2id` alone stands for both directions.

    Raises:
        ValueError: `id2label` is no dictionary of numbers to names, or `num_labels` another number than it has.
    """
    if kwargs.get("label2id") and kwargs.get("id2label") is None:
        kwargs = {**kwargs, "id2label": {row: name for name, row in kwargs["label2id"].items()}}
    labels, number = kwargs.get("id2label"), kwargs.get("num_labels")
    if labels is not None and number not in (None, len(in_order(labels))):
        raise ValueError(f"num_labels={number} beside an id2label of {len(labels)} labels: leave num_labels out")
    return kwargs


def draw_anew(model: PreTrainedModel, module: nn.Module) -> None:
    """Initialise a module whose weights were loaded."""
    parts: list[Any] = [module, *module.parameters()]
    for part in parts:
        part._is_hf_initialized = False
    with torch.no_grad():
        model._init_weights(module)


def set_labels(model: PreTrainedModel, labels: dict[int, str]) -> None:
    """Name the rows of a model's classifier."""
    model.config.id2label = labels
    model.config.label2id = rows_of(labels)


def align_labels(
    model: PreTrainedModel,
    old: dict[int, str],
    report: Any,
    stored: Callable[[list[str]], dict[str, torch.Tensor]],
    resized: bool,
    make_anew: bool,
) -> None:
    """Bring the classifier's rows in line with the wanted labels, by name (see `FFNPreTrainedModel.from_pretrained`).

    Args:
        model: just loaded; its configuration holds the labels that are wanted.
        old: the checkpoint's labels.
        report: a `LoadingReport`, which is told.
        stored: reads tensors of the checkpoint, by their names here.
        resized: the classifier was made anew as the checkpoint's has another number of rows.
        make_anew: the caller agreed to a new classifier where names cannot be aligned.

    Raises:
        ValueError: the checkpoint's classifier has unnamed labels (`LABEL_0`…), and as many names are asked for.
    """
    new = in_order(model.config.id2label)
    set_labels(model, new)
    if set(model._label_modules) <= set(report.new) or old == new:
        return
    same_number = len(old) == len(new)
    if unnamed(new) and (same_number or 1 not in (len(old), len(new))):
        # Nobody asks for names: rows keep theirs, and the first ones stay.
        new = {row: old.get(row, name) for row, name in new.items()}
        set_labels(model, new)
        kept = {row: row for row in new if row in old}
    elif unnamed(old) and same_number and not make_anew:
        raise ValueError(
            f"'{report.source}' has a trained classifier whose labels are unnamed ({', '.join(old.values())}), so "
            f"they cannot be matched with {list(new.values())}. Load it without id2label and set config.id2label "
            f"yourself where you know their order, or pass ignore_mismatched_sizes=True for a new classifier."
        )
    else:
        kept = rows_by_name(old, new)
    if same_number and kept == {row: row for row in new}:
        return
    move_rows(model, kept, stored if resized else None)
    tell_of_rows(report, " and ".join(model._label_modules), old, new, kept)


def tell_of_rows(report: Any, names: str, old: dict[int, str], new: dict[int, str], kept: dict[int, int]) -> None:
    """Say in a loading report which rows of the classifier are the checkpoint's, and which are newly made."""
    fresh = [name for row, name in new.items() if row not in kept]
    same_number = len(old) == len(new)
    how = f"for {len(new)} labels in place of {len(old)}"
    if not kept:
        what = "" if same_number else f"{how}, "
        report.new.append(f"{names} ({what}the labels {list(new.values())} in place of {list(old.values())})")
    elif fresh:
        stay = [new[row] for row in kept]
        report.new.append(f"{names}, its rows of {fresh} ({how}; those of {stay} are the checkpoint's)")
    elif same_number:
        report.notes.append(f"labels in another order than the checkpoint's: rows moved, now {list(new.values())}")
    else:
        report.notes.append(f"{names}: {how}; the checkpoint's rows of {list(new.values())} stay")
    without_name = [name for name in fresh if unnamed({0: name})]
    if without_name:
        report.notes.append(f"new labels are unnamed ({', '.join(without_name)}): pass id2label to name them")


def rows_by_name(old: dict[int, str], new: dict[int, str]) -> dict[int, int]:
    """Rows of the wanted labels -> the checkpoint's of the same names; none where names do not tell rows apart."""
    where = rows_of(old)
    if unnamed(old) or len(where) < len(old) or len(rows_of(new)) < len(new):
        return {}
    return {row: where[name] for row, name in new.items() if name in where}


def move_rows(
    model: PreTrainedModel, kept: dict[int, int], stored: Callable[[list[str]], dict[str, torch.Tensor]] | None
) -> None:
    """Give the classifier's rows the checkpoint's that they keep, and draw the others anew.

    Args:
        model: just loaded.
        kept: rows of the model -> the checkpoint's.
        stored: reads the checkpoint's tensors, where the model's are of another number of rows; None where they are in
            the model.

    Raises:
        ValueError: the classifier is not in memory.
    """
    own = dict(model.named_parameters())
    names = [name for name in own if name.rpartition(".")[0] in model._label_modules]
    if any(own[name].is_meta for name in names):
        raise ValueError(
            "labels cannot change while the classifier is offloaded: load the model without offloading, save it, and "
            "load that"
        )
    before = {name: own[name].detach().clone() for name in names} if stored is None else stored(names)
    for module in model._label_modules:
        if len(kept) < model.config.num_labels:
            draw_anew(model, getattr(model, module))
    with torch.no_grad():
        for name in names:
            for row, its_row in kept.items():
                own[name][row].copy_(before[name][its_row])


__all__ = ["align_labels", "in_order", "labels_of", "unnamed"]
