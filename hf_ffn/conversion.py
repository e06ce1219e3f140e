"""From other families' checkpoints to ours and back, as whole folders."""

import inspect
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.utils import logging

from .checkpoint_ffn import read_raw_config, read_shapes, weight_files
from .digest import model_digest
from .families import FAMILIES, Family
from .folders_ffn import refuse_unwritable, staged_folder
from .image_processor_files import IMAGE_PROCESSOR_FILES, copy_image_processor
from .loading_ffn import converted, reason_unused, transformers_report_silenced
from .modeling_ffn import FFNPreTrainedModel
from .modeling_ffn_text import (
    FFNForMaskedLM,
    FFNForQuestionAnswering,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNTextModel,
)
from .modeling_ffn_vision import (
    FFNForAudioClassification,
    FFNForImageClassification,
    FFNForImageClassificationWithTeacher,
    FFNVisionModel,
)
from .registry_ffn import FOREIGN_FAMILIES, Shapes, unknown_family
from .sentence_files import (
    ENCODER_SETTINGS,
    MODULES,
    SETTINGS,
    encoder_place,
    modules_for,
    read_sentence_modules,
)
from .tasks import HEADS
from .ties_ffn import written_out
from .tokenizer_files import TOKENIZER_FILES, can_be_found, copy_tokenizer

if TYPE_CHECKING:
    from .equivalence import EquivalenceReport

logger = logging.get_logger(__name__)

_CLASSES: tuple[type[FFNPreTrainedModel], ...] = (
    FFNTextModel,
    FFNForMaskedLM,
    FFNForSequenceClassification,
    FFNForTokenClassification,
    FFNForQuestionAnswering,
    FFNVisionModel,
    FFNForImageClassification,
    FFNForImageClassificationWithTeacher,
    FFNForAudioClassification,
)
# Our model classes by the task that `hf-ffn convert --task` calls them by.
TASKS: dict[str, dict[str, type[FFNPreTrainedModel]]] = {
    model_type: {task: next(each for each in _CLASSES if each.__name__ == name) for task, name in heads.items()}
    for model_type, heads in HEADS.items()
}


class NotEquivalentError(ValueError):
    """A conversion whose proof failed. `report` says where the models part."""

    def __init__(self, report: "EquivalenceReport") -> None:
        super().__init__(
            f"the converted model is not equivalent to '{report.source}' (they part at {report.first_departure}), "
            f"so nothing was written"
        )
        self.report = report


def model_class_for(
    source: str | os.PathLike, task: str | None = None, family: str | None = None, **hub_kwargs: Any
) -> type[FFNPreTrainedModel]:
    """Which of our classes a checkpoint loads into.

    Args:
        source: a folder or a Hub id; ours or of a family that converts.
        task: one of `TASKS`; None for the checkpoint's own, by the `architectures` of its config.json, or by the head
            that its tensors make up.
        family: a name in `FAMILIES`, for a checkpoint that does not tell (see `FFNPreTrainedModel.from_pretrained`).
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Raises:
        ValueError: an unknown family, or a task that it cannot do.
    """
    raw_config = read_raw_config(source, {**hub_kwargs, "family": family})
    its_family = family_of_config(raw_config)
    native_type = its_family.native_type if its_family else raw_config.get("model_type")
    if native_type not in TASKS:
        raise unknown_family(str(source), native_type)
    tasks = TASKS[native_type]
    if task is not None:
        if task not in tasks:
            raise ValueError(f"'{source}' cannot do the task '{task}'; it can do: {', '.join(tasks)}")
        return tasks[task]
    if its_family is not None and not raw_config.get("architectures") and its_family.export is None:
        return class_of_tensors(its_family, raw_config, str(source), read_shapes(weight_files(source, hub_kwargs)))
    ours_by_name = {model_class.__name__: model_class for model_class in tasks.values()}
    architecture = (raw_config.get("architectures") or [""])[0]
    reads: dict[str, str] = {}
    if its_family is not None:
        reads = {theirs: ours for ours, theirs in its_family.heads.items()} | its_family.also_reads
        architecture = its_family.architecture(raw_config)
    ours = ours_by_name.get(reads.get(architecture, architecture), tasks["base"])
    if its_family is not None and ours is tasks.get("masked-lm"):
        # sentence-transformers keeps the name of the class that a model was pretrained with, and not its head.
        modules = read_sentence_modules(source, **hub_kwargs)
        return tasks["base"] if modules and modules.class_name == tasks["base"].__name__ else ours
    return ours


def class_of_tensors(
    family: Family, raw_config: dict[str, Any], source: str, shapes: Shapes
) -> type[FFNPreTrainedModel]:
    """Which of our classes has the head whose tensors these are, for a config.json that names no class.

    Args:
        family: of the checkpoint.
        raw_config: its config.json.
        source: the checkpoint, for messages.
        shapes: of its tensors, by their names there; only names are looked at.

    Raises:
        ValueError: they are those of several.
    """
    tasks = TASKS[family.native_type]
    config = tasks["base"].config_class(**family.translate_config(raw_config))
    fitting = {}
    for task, model_class in tasks.items():
        if model_class.__name__ not in family.heads or task == "base":
            continue
        try:
            with torch.device("meta"):
                model: Any = model_class(config)
                stored = {name: torch.empty(shape) for name, shape in shapes.items()}
        except ValueError:
            # A head that this configuration cannot have, as a teacher's without a distillation token
            continue
        found = converted(stored, family.of(config).weight_mapping(model_class.__name__)).keys()
        own = model.state_dict().keys()
        head = {name for name in own - model.all_tied_weights_keys.keys() if not name.startswith("model.")}
        others = {name for name in found - own if reason_unused(name, None) and not name.startswith("model.pooler.")}
        others = {name for name in others if not any(re.search(pattern, name) for pattern in family.unused)}
        if head <= found and not others:
            fitting[task] = model_class
    if len(fitting) > 1:
        raise ValueError(
            f"'{source}' names no architectures in its config.json, and its tensors are those of several tasks: pass "
            f"task= (hf-ffn convert: --task), one of {', '.join(fitting)}"
        )
    return next(iter(fitting.values()), tasks["base"])


def family_of_config(raw_config: dict[str, Any]) -> Family | None:
    """The family of a config.json; None for one of ours or an unknown one."""
    family = FOREIGN_FAMILIES.get(raw_config.get("model_type", ""))
    return FAMILIES[family.name] if family is not None else None


def family_for(model: PreTrainedModel, family: str | None) -> Family:
    """The family of that name, or the one that a model was converted from.

    Raises:
        ValueError: there is none.
    """
    name = family or model.config.source_family
    if name not in FAMILIES:
        reason = f"'{name}' is not a family" if name else "the model was not converted from a family of checkpoints"
        raise ValueError(f"{reason}: pass family= one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def source_class_for(model: PreTrainedModel, family: Family) -> type[PreTrainedModel]:
    """The family's own class that corresponds to a model of ours.

    Raises:
        ValueError: the family has no such head.
    """
    name = family.heads.get(type(model).__name__)
    if name is None:
        raise ValueError(
            f"{family.name} has no counterpart of {type(model).__name__}; it has {', '.join(family.heads)}"
        )
    return getattr(transformers, name)


def pooler_keyword(model: PreTrainedModel, source_class: type[PreTrainedModel]) -> dict[str, bool]:
    """What the family's base class must be told, so that it has a pooler where ours has one, and no random one."""
    if "add_pooling_layer" not in inspect.signature(source_class).parameters:
        return {}
    return {"add_pooling_layer": getattr(model, "pooler", None) is not None}


def to_source_model(model: PreTrainedModel, family: str | None = None) -> PreTrainedModel:
    """The same weights in the original family's own class (shared with `model`, not copied).

    Args:
        model: one of ours.
        family: a name in `FAMILIES`; None for the family that the model was converted from.

    Raises:
        ValueError: no family is known for the model, or it cannot express the model; the message names the field or
            the tensor.
    """
    chosen = family_for(model, family)
    source_class = source_class_for(model, chosen)
    config = chosen.source_config(model.config, source_class.config_class.model_type)
    # The one back end that gives attention weights, without which such a configuration is not saved
    attention = {"attn_implementation": "eager"} if config.output_attentions else {}
    parts = {name: part.dtype for name in config.sub_configs if (part := getattr(config, name)) is not None}
    state_dict = source_state_dict(model, chosen)
    with transformers_report_silenced():
        source_model, info = source_class.from_pretrained(
            None,
            config=config,
            state_dict=state_dict,
            dtype=model.dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **attention,
            **pooler_keyword(model, source_class),
        )
    # Loading writes its precision into the configurations of a larger model's parts, which may have had none.
    for name, dtype in parts.items():
        getattr(source_model.config, name).dtype = dtype
    left = [f"{key}: {', '.join(sorted(map(str, names)))}" for key, names in info.items() if names]
    if left:
        raise ValueError(f"{source_class.__name__} does not take this {type(model).__name__}: {'; '.join(left)}")
    return source_model


def source_state_dict(model: PreTrainedModel, family: Family) -> dict[str, torch.Tensor]:
    """The weights of a model of ours under the family's names."""
    own = getattr(model, "_weight_conversions", None)
    # transformers reverts what it finds here, and would look for a mapping of its own where this is None.
    model._weight_conversions = family.of(model.config).source_mapping(type(model).__name__)
    try:
        return revert_weight_conversion(model, written_out(model, model.state_dict()))
    finally:
        model._weight_conversions = own


def export_pretrained(
    model: PreTrainedModel,
    folder: str | os.PathLike,
    *,
    family: str | None = None,
    max_shard_size: int | str = "5GB",
) -> None:
    """Write a model of ours as a checkpoint of its original family, which the family's own classes load.

    Weights, configuration, and what the model's own folder has beside them: tokenizer, image processor, and modules of
    sentence-transformers. The tensors of an unchanged model are those of the checkpoint that it was converted from,
    bit for bit.

    Args:
        model: one of ours.
        folder: written beside and moved into place, so that a failure leaves what was there.
        family: a name in `FAMILIES`; None for the family that the model was converted from.
        max_shard_size: weights beyond this size go into several files.

    Raises:
        ValueError: no family is known for the model, or it cannot express the model; the message names the field.
    """
    refuse_same_folder(model.config.name_or_path, folder)
    with staged_folder(folder) as stage:
        write_source_format(model, stage, family, max_shard_size)
        copy_companions(model, model.config.name_or_path, stage)
        say_what_stays(folder, stage)


def write_source_format(
    model: PreTrainedModel, folder: Path, family: str | None = None, max_shard_size: int | str = "5GB"
) -> None:
    """Write weights and configuration of a model of ours as its family's (see `export_pretrained`)."""
    chosen = family_for(model, family)
    if chosen.export is not None:
        source_class_for(model, chosen)
        chosen.export(model, folder, source_state_dict(model, chosen))
    else:
        to_source_model(model, family).save_pretrained(folder, max_shard_size=max_shard_size)


def refuse_same_folder(source: str | os.PathLike, folder: str | os.PathLike) -> None:
    """Refuse to write one format over the other."""
    if str(source) and Path(source).resolve() == Path(folder).resolve():
        raise ValueError(f"'{folder}' holds the checkpoint itself: write to another folder")


def copy_companions(
    model: FFNPreTrainedModel, source: str | os.PathLike, folder: Path, *, readable: bool = False, **hub_kwargs: Any
) -> None:
    """Bring along what lies beside a checkpoint's weights and fits a model that was made from it.

    Args:
        model: loaded from there, and maybe trained since.
        source: a folder or a Hub id; empty for none.
        folder: to write to.
        readable: leave behind a tokenizer that cannot be read here, for want of a package.
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…
    """
    report = getattr(model, "loading_report", None)
    was_folder = report is not None and report.is_folder and report.source == str(source)
    if str(source) and (not can_be_found(source) or (was_folder and not os.path.isdir(source))):
        logger.warning(f"'{source}' is there no more, so that what lay beside its weights does not come along")
        source = ""
    copy_tokenizer(model.config, source, folder, readable=readable, **hub_kwargs)
    copy_image_processor(model.config, source, folder, **hub_kwargs)
    modules = modules_for(model, source, **hub_kwargs)
    if modules is not None:
        modules.write(folder)


def say_what_stays(folder: str | os.PathLike, stage: Path) -> None:
    """Warn of what an earlier checkpoint left in a folder, where the one that is written now brings nothing of it."""
    known = (*TOKENIZER_FILES, *IMAGE_PROCESSOR_FILES, MODULES, SETTINGS, *ENCODER_SETTINGS)
    stay = sorted(name for name in known if (Path(folder) / name).is_file() and not (stage / name).exists())
    if stay:
        logger.warning(f"'{folder}' keeps from before: {', '.join(stay)}. Take away what is not this model's")


def convert(
    source: str | os.PathLike,
    folder: str | os.PathLike,
    *,
    task: str | None = None,
    dtype: str | torch.dtype = "auto",
    check: bool = True,
    family: str | None = None,
    **hub_kwargs: Any,
) -> "tuple[FFNPreTrainedModel, EquivalenceReport | None]":
    """Convert a checkpoint of another family to a folder of ours: weights, configuration, code, tokenizer, proof.

    What sentence-transformers keeps beside an encoder comes along as well.

    Args:
        source: a folder or a Hub id.
        folder: written beside and moved into place, so that a failure leaves what was there.
        task: one of `TASKS`; None for the checkpoint's own.
        dtype: of the weights; "auto" for the checkpoint's own.
        check: run `verify` before anything is written, and write its report as `equivalence.json`.
        family: a name in `FAMILIES`, for a checkpoint that does not tell (see `FFNPreTrainedModel.from_pretrained`).
        hub_kwargs: `revision`, `token`, `cache_dir`, `subfolder`…

    Returns:
        The model, and the report (None without `check`).

    Raises:
        ValueError: the checkpoint does not convert.
        NotEquivalentError: the proof fails.
    """
    from .equivalence import verify

    refuse_same_folder(source, folder)
    refuse_unwritable(folder)
    hub_kwargs = encoder_place(source, hub_kwargs)
    model_class = model_class_for(source, task, family, **hub_kwargs)
    model = model_class.from_pretrained(source, dtype=dtype, family=family, **hub_kwargs)
    report = verify(source, model, family=family, **hub_kwargs) if check else None
    if report is not None and not report.ok:
        raise NotEquivalentError(report)
    with staged_folder(folder) as stage:
        model.save_pretrained(stage)
        copy_companions(model, source, stage, **hub_kwargs)
        say_what_stays(folder, stage)
        if report is not None:
            report.model_sha256 = model_digest(stage)
            (stage / "equivalence.json").write_text(report.to_json() + "\n", encoding="utf-8")
    return model, report
