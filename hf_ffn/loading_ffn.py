"""Loading: conversion as it happens, a verdict on what transformers' loader did, labels by name.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import contextlib
import copy
import logging as python_logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, WeightTransform, rename_source_key
from transformers.utils import logging

from .checkpoint_ffn import (
    UNREADABLE,
    hub_keywords,
    read_raw_config,
    refuse_unreadable_or_integer_weights,
    unreadable,
    weight_files,
)
from .registry_ffn import FOREIGN_FAMILIES, ForeignFamily
from .resizing_ffn import hold_sizes_back, resize_positions, take_extension

logger = logging.get_logger(__name__)


@dataclass
class LoadingReport:
    """What loading did beyond copying tensors.

    Attributes:
        source: where the checkpoint came from.
        family: the family it was converted from; None for a native one.
        new: modules of the model that the checkpoint lacks, newly made.
        left_out: modules that the model could have had, left out as the checkpoint lacks them.
        unused: tensors of the checkpoint that the model has no place for, by their names here, with the reason.
        notes: what was done about labels and sizes.
    """

    source: str
    family: str | None = None
    new: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    unused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"newly made, train it before use: {name}" for name in self.new]
        lines += [f"left out, the checkpoint has none: {name}" for name in self.left_out]
        for reason in dict.fromkeys(self.unused.values()):
            names = [name for name, its_reason in self.unused.items() if its_reason == reason]
            # Of a whole tower the first will do: all are in `unused`.
            lines += [f"not used: {name} ({reason})" for name in (names if len(names) <= 8 else names[:1])]
            if len(names) > 8:
                lines.append(f"not used: {len(names) - 1} more like this")
        return "\n".join(f"  {line}" for line in [*lines, *self.notes])


def load_model(
    model_class: type[PreTrainedModel],
    load: Callable[..., Any],
    source: str | os.PathLike | None,
    model_args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Load through transformers' own loader, and judge what it did (see `FFNPreTrainedModel.from_pretrained`).

    Args:
        model_class: the class to load.
        load: transformers' `from_pretrained`, bound to it.
        source: a folder, a Hub id, or None where `state_dict` and `config` are passed.
        model_args: positional arguments for the model's `__init__`.
        kwargs: of `from_pretrained`.
    """
    if not kwargs.pop("weights_only", True):
        raise ValueError("weights_only=False would run code stored in the checkpoint; hf_ffn never does that")
    want_info = kwargs.pop("output_loading_info", False)
    tolerate_mismatch = kwargs.pop("ignore_mismatched_sizes", False)
    raw_config = read_raw_config(source, kwargs)
    family = FOREIGN_FAMILIES.get(raw_config.get("model_type", ""))
    config, kwargs = resolve_config(model_class, source, kwargs)
    extend_positions = take_extension(kwargs, config)
    # Fields as a family states them in ways of its own, or leaves to its own default
    stated = family.translate_config(raw_config) if family is not None else raw_config
    wanted_sizes = hold_sizes_back(config, stated, source)
    if family is not None:
        # transformers looks the weight mapping up by the configuration's model_type, which only this instance bears.
        config.model_type = register_mapping(family.of(config), model_class)
    if source is not None and kwargs.get("use_safetensors") is not False and kwargs.get("variant") is None:
        refuse_unreadable_or_integer_weights(weight_files(source, kwargs))

    with transformers_report_silenced():
        try:
            model, info = load(
                source, *model_args, config=config, ignore_mismatched_sizes=True, output_loading_info=True, **kwargs
            )
        except (*UNREADABLE, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "PytorchStreamReader" not in str(error):
                raise
            raise unreadable(str(source), error) from error
    vars(model.config).pop("model_type", None)
    # From here on the model is ours: saving must not turn the names back into the source's.
    model._weight_conversions = []

    report = LoadingReport(source=str(source), family=family.name if family else None)
    new_rows = judge(model, info, report, family, stated, tolerate_mismatch)
    if any(hasattr(model, name) for name in model._label_modules):
        align_labels(model, labels_of(stated), report, new_rows, tolerate_mismatch)
    report.notes += resize_positions(model, wanted_sizes, extend_positions)
    model.freeze_unused()
    model.loading_report = report
    if str(report):
        logger.warning(f"{model_class.__name__} from '{source}':\n{report}")
    return (model, info) if want_info else model


def resolve_config(
    model_class: type[PreTrainedModel], source: str | os.PathLike | None, kwargs: dict[str, Any]
) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """The configuration to load with (a copy of the caller's own), and the keywords that are left for the loader."""
    config = kwargs.pop("config", None)
    if isinstance(config, PreTrainedConfig):
        return copy.deepcopy(config), kwargs
    # These two are the loader's, although configurations have fields of these names.
    loader_only = {name: kwargs.pop(name) for name in ("dtype", "torch_dtype") if name in kwargs}
    where = hub_keywords(kwargs)
    config, unused = model_class.config_class.from_pretrained(
        source if config is None else config, return_unused_kwargs=True, **kwargs
    )
    return config, {**unused, **where, **loader_only}


def register_mapping(family: ForeignFamily, model_class: type[PreTrainedModel]) -> str:
    """Tell transformers how the family's weights are called here, under a name that only our loading uses."""
    name = f"hf_ffn<-{family.name}"
    register_checkpoint_conversion_mapping(name, family.weight_mapping(model_class.__name__), overwrite=True)
    return name


def by_kind(mapping: list[WeightTransform]) -> tuple[list[WeightRenaming], list[WeightConverter]]:
    """Renamings, and what takes fused tensors apart, as transformers' functions want them."""
    renamings = [each for each in mapping if isinstance(each, WeightRenaming)]
    return renamings, [each for each in mapping if isinstance(each, WeightConverter)]


def renamed(name: str, mapping: list[WeightTransform]) -> str:
    """What a tensor, or the first of those in a fused one, is called here."""
    return rename_source_key(name, *by_kind(mapping))[0]


def converted(tensors: dict[str, torch.Tensor], mapping: list[WeightTransform]) -> dict[str, torch.Tensor]:
    """Rename tensors and take fused ones apart, as transformers' loader does while it loads."""
    renamings, converters = by_kind(mapping)
    of_pattern = {pattern: converter for converter in converters for pattern in converter.source_patterns}
    result: dict[str, torch.Tensor] = {}
    to_convert: dict[str, WeightConverter] = {}
    for name, tensor in tensors.items():
        new_name, pattern = rename_source_key(name, renamings, converters)
        if pattern is None:
            result[new_name] = tensor
            continue
        converter = to_convert.setdefault(new_name, copy.deepcopy(of_pattern[pattern]))
        converter.add_tensor(new_name, name, pattern, tensor)
    for new_name, converter in to_convert.items():
        parts = converter.convert(new_name).items()
        result |= {name: part[0] if isinstance(part, list) else part for name, part in parts}
    return result


@contextlib.contextmanager
def transformers_report_silenced() -> Iterator[None]:
    """Hold transformers' load report back: it warns of parts that are errors here, or that are left out on purpose."""

    def is_not_load_report(record: python_logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    transformers_logger = python_logging.getLogger("transformers.modeling_utils")
    transformers_logger.addFilter(is_not_load_report)
    try:
        yield
    finally:
        transformers_logger.removeFilter(is_not_load_report)


def judge(
    model: PreTrainedModel,
    info: dict[str, Any],
    report: LoadingReport,
    family: ForeignFamily | None,
    raw_config: dict[str, Any],
    tolerate_mismatch: bool,
) -> bool:
    """Sort what loading left open into what the report explains and what is an error.

    Returns:
        Whether the classifier was made anew because another number of labels was asked for.

    Raises:
        ValueError: a part of the encoder, or half a head, is missing, left over or of another shape.
    """
    missing = {name for name in info["missing_keys"] if not name.endswith(model._computed_buffers)}
    for head in model._new_head_modules if missing else ():
        # Tied parameters by every name that they have, for each is listed as missing.
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        own = {name for name in names if name == head or name.startswith(f"{head}.")}
        if own and own <= missing | model.all_tied_weights_keys.keys():
            missing -= own
            # A base model is used for what it encodes, so a random pooler would only mislead.
            if head == "pooler":
                model.pooler = None
                report.left_out.append(head)
            else:
                report.new.append(head)

    # Behind a layer that is newly made, a classifier of another task says nothing.
    if "head" in report.new and "classifier" not in report.new and hasattr(model, "classifier"):
        draw_anew(model, model.classifier)
        report.new.append("classifier")
    new_rows, faults = False, [f"missing: {name}" for name in sorted(missing)]
    for name, in_checkpoint, in_model in sorted(info["mismatched_keys"]):
        labels_differ = len(labels_of(raw_config)) == in_checkpoint[0] != in_model[0]
        if name.rpartition(".")[0] in model._label_modules and labels_differ:
            new_rows = True
        elif tolerate_mismatch:
            report.new.append(f"{name} ({tuple(in_checkpoint)} in the checkpoint)")
        else:
            faults.append(f"of another shape: {name} is {tuple(in_checkpoint)}, and {tuple(in_model)} in the model")

    for name in sorted(info["unexpected_keys"]):
        reason = reason_unused(name, family)
        if reason is None:
            faults.append(f"left over: {name}")
        else:
            report.unused[name] = reason
    if faults:
        shown = "\n".join(f"  {fault}" for fault in faults[:8])
        more = f"\n  … and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise ValueError(
            f"'{report.source}' does not fit {type(model).__name__}: its config.json and its weights disagree, or "
            f"the file is incomplete.\n{shown}{more}"
        )
    return new_rows


def reason_unused(name: str, family: ForeignFamily | None) -> str | None:
    """Why a tensor of the checkpoint may go unused; None where it may not."""
    for pattern, reason in (family.unused if family else {}).items():
        if re.search(pattern, name):
            return reason
    in_encoder = name.startswith(("model.", "embeddings.", "encoder."))
    if in_encoder and not name.startswith("model.pooler."):
        return None
    return "this model has no such head"


def labels_of(raw_config: dict[str, Any]) -> dict[int, str]:
    """The labels of a config.json, with transformers' default of two unnamed ones."""
    labels = raw_config.get("id2label")
    if labels is None:
        return {index: f"LABEL_{index}" for index in range(raw_config.get("num_labels", 2))}
    return {int(index): name for index, name in labels.items()}


def align_labels(
    model: PreTrainedModel, old: dict[int, str], report: LoadingReport, new_rows: bool, make_anew: bool
) -> None:
    """Bring the classifier's rows in line with the wanted labels, by name (see `FFNPreTrainedModel.from_pretrained`).

    Args:
        model: just loaded; its configuration holds the labels that are wanted.
        old: the checkpoint's labels.
        new_rows: the classifier was already made anew, for another number of labels.
        make_anew: the caller agreed to a new classifier where names cannot be aligned.

    Raises:
        ValueError: the checkpoint's classifier has unnamed labels (`LABEL_0`…), and names are asked for.
    """
    classifiers = [getattr(model, name) for name in model._label_modules]
    names = " and ".join(model._label_modules)
    new = {int(index): name for index, name in model.config.id2label.items()}
    model.config.id2label = new
    model.config.label2id = {name: index for index, name in new.items()}
    if new_rows:
        report.new.append(f"{names} (for {len(new)} labels in place of {len(old)})")
    elif set(model._label_modules) <= set(report.new) or old == new:
        return
    elif sorted(old.values()) == sorted(new.values()):
        row_of = {name: index for index, name in old.items()}
        rows = torch.tensor([row_of[new[index]] for index in range(len(new))])
        with torch.no_grad():
            for parameter in (each for classifier in classifiers for each in classifier.parameters()):
                parameter.copy_(parameter[rows.to(parameter.device)])
        report.notes.append(f"labels in another order than the checkpoint's: rows moved, now {list(new.values())}")
    elif unnamed(new):
        model.config.id2label = old
        model.config.label2id = {name: index for index, name in old.items()}
    elif unnamed(old) and not make_anew:
        raise ValueError(
            f"'{report.source}' has a trained classifier whose labels are unnamed ({', '.join(old.values())}), so "
            f"they cannot be matched with {list(new.values())}. Load it without id2label and set config.id2label "
            f"yourself where you know their order, or pass ignore_mismatched_sizes=True for a new classifier."
        )
    else:
        for classifier in classifiers:
            draw_anew(model, classifier)
        report.new.append(f"{names} (for the labels {list(new.values())} in place of {list(old.values())})")
    if new_rows and unnamed(new):
        report.notes.append(f"the new labels are unnamed ({', '.join(new.values())}): pass id2label to name them")


def draw_anew(model: PreTrainedModel, module: torch.nn.Module) -> None:
    """Initialise a module whose weights were loaded."""
    parts: list[Any] = [module, *module.parameters()]
    for part in parts:
        part._is_hf_initialized = False
    with torch.no_grad():
        model._init_weights(module)


def unnamed(labels: dict[int, str]) -> bool:
    """Whether these are transformers' stand-ins for labels that nobody named."""
    return all(re.fullmatch(r"LABEL_\d+", name) for name in labels.values())
