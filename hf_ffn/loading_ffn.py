"""Loading: conversion as it happens, and a verdict on what transformers' loader did.

This file travels with every saved checkpoint, so it imports only torch, transformers and its siblings.
"""

import contextlib
import copy
import inspect
import logging as python_logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, WeightTransform, rename_source_key
from transformers.utils import logging

from .checkpoint_ffn import (
    UNREADABLE,
    hub_keywords,
    open_tensors,
    read_raw_config,
    read_shapes,
    refuse_unreadable_or_integer_weights,
    unreadable,
    weight_files,
)
from .configuration_ffn_block import wrong_entry
from .labels_ffn import align_labels, draw_anew, labels_of, with_sound_label_keywords
from .registry_ffn import FOREIGN_FAMILIES, ForeignFamily
from .resizing_ffn import TABLES, hold_sizes_back, resize, take_extension
from .ties_ffn import settle_ties

logger = logging.get_logger(__name__)


@dataclass
class LoadingReport:
    """What loading did beyond copying tensors.

    Attributes:
        source: where the checkpoint came from.
        family: the family it was converted from; None for a native one.
        is_folder: whether it came from a folder, and not from the Hub.
        new: modules of the model that the checkpoint lacks, newly made.
        left_out: modules that the model could have had, left out as the checkpoint lacks them.
        unused: tensors of the checkpoint that the model has no place for, by their names here, with the reason.
        notes: what was done about labels, sizes and ties.
    """

    source: str
    family: str | None = None
    is_folder: bool = False
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
    if family is not None and kwargs.get("config") is None:
        # What was found once need not be looked for again.
        kwargs["family"] = raw_config["model_type"]
    config, kwargs = resolve_config(model_class, source, kwargs)
    extend_positions = take_extension(kwargs, config)
    # Fields as a family states them in ways of its own, or leaves to its own default
    stated = family.translate_config(raw_config) if family is not None else raw_config
    wanted_sizes = hold_sizes_back(config, stated, source)
    mapping: list[WeightTransform] = []
    if family is not None:
        # transformers looks the weight mapping up by the configuration's model_type, which only this instance bears.
        mapping = family.of(config).weight_mapping(library_class(model_class).__name__)
        config.model_type = f"hf_ffn<-{family.name}"
        register_checkpoint_conversion_mapping(config.model_type, mapping, overwrite=True)
    if source is not None:
        refuse_unreadable_or_integer_weights(weight_files(source, kwargs))
        take_sizes_of_tables(config, wanted_sizes, weight_files(source, kwargs), mapping)

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

    def stored(names: list[str]) -> dict[str, torch.Tensor]:
        assert source is not None
        return stored_tensors(source, kwargs, mapping, names)

    is_folder = source is not None and os.path.isdir(source)
    report = LoadingReport(source=str(source), family=family.name if family else None, is_folder=is_folder)
    report.notes += settle_ties(model, info["missing_keys"], stated)
    report.new += begin_own(model, info["missing_keys"], model_args, own_keywords(model_class, kwargs))
    resized = judge(model, info, report, family, stated, tolerate_mismatch)
    if stated and all(isinstance(getattr(model, name, None), torch.nn.Linear) for name in model._label_modules):
        align_labels(model, labels_of(stated), report, stored, resized, tolerate_mismatch)
    report.notes += resize(model, wanted_sizes, extend_positions)
    model.freeze_unused()
    model.loading_report = report
    if str(report):
        logger.warning(f"{model_class.__name__} from '{source}':\n{report}")
    return (model, info) if want_info else model


def take_sizes_of_tables(
    config: PreTrainedConfig,
    wanted: dict[str, Any],
    files: list[str],
    mapping: list[WeightTransform],
) -> None:
    """Load tables as they are wanted where the files have them so, and only config.json says otherwise.

    Args:
        config: to load with; changed in place.
        wanted: from `hold_sizes_back`; loses what need not be resized.
        files: of weights.
        mapping: from names in the files to ours.
    """
    held = [name for name in TABLES if name in wanted]
    shapes = {renamed(name, mapping): shape for name, shape in read_shapes(files).items()} if held else {}
    for name in held:
        rows = {shape[0] for key, shape in shapes.items() if key.endswith(f"embeddings.{TABLES[name]}.weight")}
        if rows == {wanted[name]}:
            setattr(config, name, wanted.pop(name))


def library_class(model_class: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class of ours that a model's class is, or was derived from."""
    files = ("modeling_ffn", "modeling_ffn_text", "modeling_ffn_vision")
    return next(each for each in model_class.__mro__ if each.__module__.rpartition(".")[2] in files)


def own_keywords(model_class: type[PreTrainedModel], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those of the loader's keywords that the model's own `__init__` takes."""
    parameters = inspect.signature(model_class.__init__).parameters
    return {name: value for name, value in kwargs.items() if name in parameters and name not in ("self", "config")}


def begin_own(
    model: PreTrainedModel, missing: set[str], model_args: tuple[Any, ...], keywords: dict[str, Any]
) -> list[str]:
    """Give what a subclass adds, and the checkpoint lacks, the values that its own code begins with.

    transformers' loader leaves parameters that `_init_weights` does not know as they lay in memory, and buffers too.

    Args:
        model: just loaded.
        missing: parameters that the checkpoint lacks; those that are set here are taken out.
        model_args: the model was made with.
        keywords: the same, by name.

    Returns:
        The modules and parameters that were set.
    """
    base = library_class(type(model))
    if base is type(model):
        return []
    names = tensor_names(model)
    of_ours, prefix = base, ""
    if base.__name__.endswith("PreTrainedModel"):
        # A head that is none of ours, around an encoder of ours or one that was derived from it
        of_ours, prefix = library_class(type(model.base_model)), f"{base.base_model_prefix}."
    with torch.device("meta"):
        known = {f"{prefix}{name}" for name in tensor_names(of_ours(copy.deepcopy(model.config)))}
    added: dict[str, set[str]] = {}
    for name in names - known:
        parts = name.split(".")
        paths = [".".join(parts[: end + 1]) for end in range(len(parts))]
        top = next((path for path in paths if not any(each.startswith(f"{path}.") for each in known)), name)
        added.setdefault(top, set()).add(name)
    unsaved = names - model.state_dict().keys()
    # Half of what belongs together is a fault, which is left for `judge`.
    absent = {top: each for top, each in added.items() if each <= missing | unsaved}
    # What is never saved begins anew each time.
    to_set = set().union(*absent.values()) | (set().union(*added.values()) & unsaved)
    if not to_set:
        return []
    fresh = type(model)(copy.deepcopy(model.config), *model_args, **keywords)
    with torch.no_grad():
        for name in to_set:
            model.get_parameter_or_buffer(name).copy_(fresh.get_parameter_or_buffer(name))
    missing -= to_set
    return sorted(top for top, each in absent.items() if not each <= unsaved)


def tensor_names(model: PreTrainedModel) -> set[str]:
    """All names of parameters and buffers, tied ones and those that are never saved included."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {name for name, _ in (*parameters, *model.named_buffers(remove_duplicate=False))}


def stored_tensors(
    source: str | os.PathLike, kwargs: dict[str, Any], mapping: list[WeightTransform], names: list[str]
) -> dict[str, torch.Tensor]:
    """Tensors of a checkpoint, by their names here; read once more, for loading keeps none that do not fit."""
    found: dict[str, torch.Tensor] = {}
    for path in weight_files(source, kwargs):
        with open_tensors(path) as (in_file, read):
            found |= {name: read(name) for name in in_file if renamed(name, mapping) in names}
    return converted(found, mapping)


def resolve_config(
    model_class: type[PreTrainedModel], source: str | os.PathLike | None, kwargs: dict[str, Any]
) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """The configuration to load with (a copy of the caller's own), and the keywords that are left for the loader."""
    config = kwargs.pop("config", None)
    if isinstance(config, PreTrainedConfig):
        kwargs.pop("family", None)
        return copy.deepcopy(config), kwargs
    kwargs = with_sound_label_keywords(kwargs)
    # These two are the loader's, although configurations have fields of these names.
    loader_only = {name: kwargs.pop(name) for name in ("dtype", "torch_dtype") if name in kwargs}
    where = hub_keywords(kwargs)
    try:
        config, unused = model_class.config_class.from_pretrained(
            source if config is None else config, return_unused_kwargs=True, **kwargs
        )
    except StrictDataclassError as error:
        raise wrong_entry(str(source), error) from error
    return config, {**unused, **where, **loader_only}


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
        Whether the classifier has another number of rows than the checkpoint's, as was asked for.

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
    before_it = {"head", "model.pooler"} & set(report.new)
    if before_it and "classifier" not in report.new and hasattr(model, "classifier"):
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
