"""A whole fine-tuning run: what both scripts do once they have a model and data."""

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import accelerate
import datasets
import torch
import transformers
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedType, ProjectConfiguration
from torch import nn
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .. import __version__
from ..checkpoint_ffn import weight_files
from ..families.family import SCORING
from ..folders_ffn import staged_folder
from ..hub.manifest import sha256_of
from ..modeling_ffn import FFNPreTrainedModel
from ..packed_products import has_bfloat16
from ..sentence_files import SentenceModules, has_new_head, modules_for
from .arguments import DataArguments, ModelArguments, TrainingArguments, without_token
from .checkpoints import check_same_run, prepare_output_folder, record_model
from .class_weights import class_weights
from .data import TaskData
from .loop import Trainer
from .parameters import add_lora, choose_trainable
from .report import write_report

logger = logging.get_logger(__name__)


def make_accelerator(args: TrainingArguments) -> Accelerator:
    """The accelerator of this process, with the trackers that are asked for; checks the output folder on the way.

    Raises:
        ValueError: the output folder is in use, or a tracker is unknown or not installed.
        OSError: the output folder cannot be written to.
    """
    folder = Path(args.output_dir)
    accelerator = Accelerator(
        mixed_precision=args.mixed_precision,
        log_with=trackers(args.report_to) if args.with_tracking else None,
        project_config=ProjectConfiguration(project_dir=str(folder), logging_dir=str(folder / "logs")),
    )
    # For those who read the results: what was launched or configured counts where the flag is left out.
    args.mixed_precision = accelerator.mixed_precision
    if accelerator.is_main_process:
        warn_of_emulated_bfloat16(accelerator)
        resume = args.resume_from_checkpoint is not None
        prepare_output_folder(folder, overwrite=args.overwrite_output_dir, resume=resume)
    accelerator.wait_for_everyone()
    return accelerator


def trackers(report_to: str) -> list[str]:
    """The trackers of `report_to`, each of them installed: accelerate leaves others out and says nothing.

    Raises:
        ValueError: one is unknown, or not installed.
    """
    wanted = [name.strip() for name in report_to.split(",")]
    installed = [str(name) for name in get_available_trackers()]
    for name in wanted:
        if name not in ("all", *installed):
            raise ValueError(
                f"report_to={name}: not installed here, or unknown to accelerate (installed: "
                f"{', '.join(installed) or 'none'}): pip install {name}, or leave out with_tracking"
            )
    return wanted


def warn_of_emulated_bfloat16(accelerator: Accelerator) -> None:
    """Warn where bfloat16 is computed on a CPU without instructions for it: that takes longer than float32."""
    # torch's name for its kernels begins so on x86 alone; what other processors have, torch does not tell.
    on_x86 = accelerator.device.type == "cpu" and torch.backends.cpu.get_cpu_capability().startswith("AVX")
    if accelerator.mixed_precision == "bf16" and on_x86 and not has_bfloat16():
        logger.warning(
            "mixed_precision bf16: this processor has no instructions for bfloat16 (avx512_bf16 or AMX) and emulates "
            "it, slower than float32 (many times, with AVX2 alone); choose --mixed_precision no."
        )


def make_model(
    model_class: type[FFNPreTrainedModel],
    config_class: type[PreTrainedConfig],
    args: ModelArguments,
    data: TaskData,
    **sizes: Any,
) -> FFNPreTrainedModel:
    """The model to train: a checkpoint, converted as it loads, or a new one.

    Args:
        model_class: with the head for the task.
        config_class: of a new model.
        args: which model.
        data: gives the head its labels, by name.
        sizes: configuration that the data asks for in a new model (vocabulary, image size).
    """
    problem = {"single-label": "single_label_classification", "image-classification": "single_label_classification"}
    problem |= {"multi-label": "multi_label_classification", "regression": "regression"}
    head: dict[str, Any] = {"problem_type": problem.get(data.task)}
    if data.labels is not None:
        head["id2label"] = dict(enumerate(data.labels))
        head["label2id"] = {name: index for index, name in enumerate(data.labels)}
    else:
        head["num_labels"] = 1
    if args.model_name_or_path is not None:
        if args.config_overrides:
            raise ValueError("config_overrides is for new models; leave model_name_or_path out, or the overrides")
        where = {} if args.revision is None else {"revision": args.revision}
        loading = {"dtype": args.dtype, "attn_implementation": args.attn_implementation, **where}
        return model_class.from_pretrained(args.model_name_or_path, **head, **loading)
    config = new_config(config_class, args, **sizes, **head)
    config._attn_implementation = args.attn_implementation
    return model_class(config).to(getattr(torch, args.dtype))


def labels_of(config: PreTrainedConfig) -> list[str]:
    """What a checkpoint's head says yes or no to, each by itself; none where it does not, or has no names for them."""
    names = [config.id2label[number] for number in sorted(config.id2label)]
    named = any(name != f"LABEL_{number}" for number, name in enumerate(names))
    return names if config.problem_type == "multi_label_classification" and named else []


def new_config(config_class: type[PreTrainedConfig], args: ModelArguments, **values: Any) -> PreTrainedConfig:
    """The configuration of a new model: the class's defaults, `values`, and over them the user's overrides.

    Raises:
        ValueError: an override that is no field, or impossible values.
    """
    config = config_class(**values)
    if args.config_overrides:
        config.update_from_string(args.config_overrides)
    # Built again from its values, so that they are checked together; heads follow from the size where none were given.
    checked = config.to_dict()
    given = {pair.partition("=")[0].strip() for pair in (args.config_overrides or "").split(",")}
    if "num_attention_heads" not in {*values, *given}:
        checked.pop("num_attention_heads")
    return config_class(**checked)


def finetune(
    accelerator: Accelerator,
    model: FFNPreTrainedModel,
    data: TaskData,
    processor: Any | None,
    model_args: ModelArguments,
    data_args: DataArguments,
    args: TrainingArguments,
    share: Callable[[Path, str], Any] | None = None,
) -> dict[str, Any]:
    """Train, evaluate, and leave model, processor, results and pictures in the output folder.

    Args:
        accelerator: from `make_accelerator`.
        model: with a head for the task.
        data: from `load_text_data` or `load_image_data`.
        processor: tokenizer or image processor, saved beside the model.
        model_args: what was asked for.
        data_args: what was asked for.
        args: what was asked for.
        share: publishes the model in a folder, with a message; called at the end, and after each epoch if asked.

    Returns:
        The content of `all_results.json`.

    Raises:
        ValueError: a resumed run was begun with something else, adapters are asked for under FSDP, or class weights
            do not fit the classes; the message names it.
        NonFiniteLossError: the loss is infinite or not a number.
    """
    if model_args.lora is not None and accelerator.distributed_type == DistributedType.FSDP:
        raise ValueError("lora and FSDP do not go together here: leave out lora, or launch without FSDP")
    weights = None
    if args.class_weights:
        weights = class_weights(args.class_weights, data.task, data.labels, data.summary.train)
    if accelerator.is_main_process:
        print(data.summary, *weights_said(weights, data), sep="\n", file=sys.stderr)
    folder, started = Path(args.output_dir), time.monotonic()
    facts = {
        "arguments": without_token(model_args, data_args, args),
        "data": data.fingerprint,
        "processes": {"num_processes": accelerator.num_processes},
    }
    if accelerator.is_main_process:
        longer = check_same_run(folder, {**facts, "start": start_of(model_args)})
        if longer is not None:
            print(longer, file=sys.stderr)
    accelerator.wait_for_everyone()
    if accelerator.trackers or args.with_tracking:
        plain = {name: value for name, value in facts["arguments"].items() if isinstance(value, (int, float, str))}
        accelerator.init_trackers(folder.name, config=plain)

    trained = prepare_for_training(model, model_args, args)
    save = saver(accelerator, folder, processor, sentence_modules(model, model_args))

    def after_epoch(each: nn.Module, epoch: int) -> None:
        if share is not None and args.hub_strategy == "epoch":
            save(each, "")
            if accelerator.is_main_process:
                record_model(folder)
                share_or_say(share, folder, f"After epoch {epoch}")
            accelerator.wait_for_everyone()

    workers = data_args.dataloader_num_workers
    trainer = Trainer(accelerator, trained, data, args, workers, lambda each: save(each, "best"), after_epoch, weights)
    progress = trainer.run()
    metrics, logits, labels = trainer.evaluate()
    save(trainer.model, "")
    summary = {
        **describe(trained, progress.step, time.monotonic() - started),
        "best": progress.best,
        "data": data.summary.facts(),
        **({} if weights is None else {"class_weights": named_weights(weights, data)}),
        **padding_saved(progress.real_tokens, progress.computed_tokens, progress.uniform_tokens),
    }
    if accelerator.is_main_process:
        write_report(
            folder,
            task=data.task,
            history=progress.history,
            evaluations=progress.evaluations,
            metrics=metrics,
            logits=logits,
            labels=labels,
            names=data.labels,
            texts=data.texts,
            summary=summary,
            model_sha256=record_model(folder),
        )
        if share is not None:
            print(share(folder, "Fine-tuned" if model_args.model_name_or_path else "Trained"))
    # Torch's wrapper for several processes goes before their group does: as the group's last owner it would wait for
    # gloo's threads, and keep from them the lock of Python's that they wait for.
    del trainer
    accelerator.free_memory()
    accelerator.wait_for_everyone()
    accelerator.end_training()
    return {**metrics, **summary}


def named_weights(weights: torch.Tensor, data: TaskData) -> dict[str, float]:
    """The classes' weights by name, to so many digits as float32 has."""
    return {name: float(f"{weight:.7g}") for name, weight in zip(data.labels or [], weights.tolist(), strict=True)}


def weights_said(weights: torch.Tensor | None, data: TaskData) -> list[str]:
    """Say that the loss is weighted, and how, if it is."""
    if weights is None:
        return []
    each = ", ".join(f"{name}: {weight:.4g}" for name, weight in named_weights(weights, data).items())
    return [f"class weights, in the loss of training and of evaluation: {each}"]


def start_of(args: ModelArguments) -> dict[str, Any]:
    """What identifies the checkpoint that a run starts from: the contents of a folder's weights, or the Hub's id."""
    source = args.model_name_or_path
    if source is None or not Path(source).is_dir():
        return {"model": source}
    return {"model": [sha256_of(Path(path)) for path in weight_files(source, {})]}


def share_or_say(share: Callable[[Path, str], Any], folder: Path, message: str) -> None:
    """Publish in the midst of a run, which goes on where that fails: its end is another chance."""
    try:
        share(folder, message)
    except (ValueError, OSError) as error:
        logger.warning(f"not pushed ({message}), and the training goes on: {error}")


def prepare_for_training(model: FFNPreTrainedModel, model_args: ModelArguments, args: TrainingArguments) -> nn.Module:
    """Freeze, adapt, checkpoint and compile the model as asked."""
    if model_args.feed_forward_memory is not None:
        model.config.update({"feed_forward_memory": model_args.feed_forward_memory})
    choose_trainable(model, model_args.train_only, model_args.freeze_embeddings)
    if args.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    trained: nn.Module = model
    if model_args.lora is not None:
        trained = add_lora(model, model_args.lora, model_args.lora_rank)
    if args.torch_compile:
        trained.compile()
    return trained


def sentence_modules(model: FFNPreTrainedModel, args: ModelArguments) -> SentenceModules | None:
    """What sentence-transformers keeps beside the checkpoint and the trained model still fits; drops what does not."""
    if args.model_name_or_path is None:
        return None
    if has_new_head(model):
        # How the old head's logits became scores
        for name in [name for name in SCORING if hasattr(model.config, name)]:
            delattr(model.config, name)
    where = {} if args.revision is None else {"revision": args.revision}
    return modules_for(model, args.model_name_or_path, **where)


def saver(
    accelerator: Accelerator, folder: Path, processor: Any | None, modules: SentenceModules | None
) -> Callable[[nn.Module, str], None]:
    """How this run saves a model, with what lies beside it, into a folder within its own (or its own, for "")."""

    def save(model: nn.Module, name: str) -> None:
        unwrapped = accelerator.unwrap_model(model, keep_torch_compile=False)
        state_dict = accelerator.get_state_dict(model)
        if not accelerator.is_main_process:
            return
        needed = sum(parameter.nbytes for parameter in unwrapped.parameters())
        with staged_folder(folder / name, needed=needed) as stage:
            if isinstance(unwrapped, PreTrainedModel):
                unsharded(unwrapped).save_pretrained(stage, state_dict=state_dict)
            else:
                save_merged(unwrapped, stage)
            if processor is not None:
                processor.save_pretrained(stage)
            if modules is not None:
                modules.write(stage)

    return save


def unsharded(model: PreTrainedModel) -> PreTrainedModel:
    """The model as its own class, without weights, where FSDP has put a class of torch's in its place.

    Saving asks a model's class for its name and its code.
    """
    bases = [base for base in type(model).__mro__ if issubclass(base, PreTrainedModel)]
    own: type[PreTrainedModel] = next(base for base in bases if not issubclass(base, FSDPModule))
    if own is type(model):
        return model
    with torch.device("meta"):
        return own(model.config)


def save_merged(adapted: Any, target: Path) -> None:
    """Save PEFT's adapters, and beside them the model with the adapters merged into its weights."""
    adapted.save_pretrained(target / "adapter")
    adapted.merge_adapter()
    try:
        base = adapted.get_base_model()
        merged = {
            name.replace(".base_layer", "").replace(".modules_to_save.default", ""): tensor
            for name, tensor in base.state_dict().items()
            if "lora_" not in name and ".original_module." not in name
        }
        base.save_pretrained(target, state_dict=merged)
    finally:
        adapted.unmerge_adapter()


def describe(model: nn.Module, steps: int, seconds: float) -> dict[str, Any]:
    """Facts of a run for its summary and its card."""
    return {
        "train_steps": steps,
        "train_seconds": round(seconds, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "trained_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "versions": {
            "hf_ffn": __version__,
            "python": platform.python_version(),
            **{package.__name__: package.__version__ for package in (torch, transformers, accelerate, datasets)},
        },
    }


def padding_saved(real: int, computed: int, uniform: int) -> dict[str, Any]:
    """How much padding was computed in training, and how much was not that equal padding would have cost."""
    if not real:
        return {}
    return {
        "tokens": real,
        "padding_computed": round(computed / real - 1, 4),
        "padding_of_equal_lengths": round(uniform / real - 1, 4),
        "padding_not_computed": round(1 - (computed - real) / max(uniform - real, 1), 4),
    }


def print_results(results: dict[str, Any]) -> None:
    """Print a run's results for people."""
    plain = {name: value for name, value in results.items() if not isinstance(value, (dict, list))}
    print(json.dumps(plain, indent=2))
