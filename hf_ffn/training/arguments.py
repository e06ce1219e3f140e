"""What the fine-tuning scripts take, by flags or from one YAML file; the peers' flags keep their names."""

import difflib
import importlib.util
import math
import os
from collections.abc import Iterable
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, get_origin

from transformers import HfArgumentParser

TASKS = ("single-label", "multi-label", "regression", "token-classification", "image-classification")

# How columns are usually called, the likeliest first.
TEXT_COLUMNS = ("text", "sentence", "sentence1", "tokens")
LABEL_COLUMNS = ("label", "labels", "ner_tags")
IMAGE_COLUMNS = ("image", "img")

DTYPES = ("float32", "bfloat16")
PRECISIONS = ("no", "bf16", "fp16")
# transformers' schedules that ask for nothing but a number of steps.
SCHEDULES = (
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
)

# The least that each number may be; all are finite.
LEAST = {
    "lora_rank": 1,
    "max_length": 1,
    "max_train_samples": 1,
    "max_eval_samples": 1,
    "preprocessing_num_workers": 1,
    "dataloader_num_workers": 0,
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "learning_rate": 0,
    "weight_decay": 0,
    "max_grad_norm": 0,
    "num_train_epochs": 1,
    "max_train_steps": 1,
    "num_warmup_steps": 0,
    "checkpoints_total_limit": 1,
    "seed": 0,
}
MINUS_ONE_IS_LEFT_OUT = ("num_train_epochs", "max_train_steps", "max_train_samples", "max_eval_samples")
# What YAML calls true and false besides, which transformers' parser does not know.
BOOLEANS = {"on": "true", "off": "false"}
# Arguments of one text that holds several names, which may be a list in a file.
JOINED = ("config_overrides", "lora", "report_to")


def names(words: Iterable[str]) -> str:
    """Words for a help text: "a, b or c"."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


@dataclass
class ModelArguments:
    """Which model to train."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "A checkpoint: ours or of a family that converts. Left out: a new model from scratch."},
    )
    config_overrides: str | None = field(
        default=None,
        metadata={"help": 'Configuration of a new model, for example "hidden_size=64,num_hidden_layers=4".'},
    )
    tokenizer_name: str | None = field(default=None, metadata={"help": "Left out: the checkpoint's own."})
    revision: str | None = field(default=None, metadata={"help": "Branch, tag or commit of a checkpoint on the Hub."})
    dtype: str = field(
        default="float32",
        metadata={"help": f"Of the weights: {names(DTYPES)}.", "choices": DTYPES},
    )
    attn_implementation: str | None = field(default=None, metadata={"help": "eager, sdpa, flash_attention_2…"})
    feed_forward_memory: str | None = field(
        default=None,
        metadata={
            "help": "What feed-forward blocks keep for backward: full, pre_activation (about half, the fastest) or "
            "input (a ninth, for about full's time). Left out: as the checkpoint's configuration says.",
            "choices": [None, "full", "pre_activation", "input"],
        },
    )
    train_only: str | None = field(
        default=None, metadata={"help": "ffn: train the feed-forward blocks and the head, nothing else."}
    )
    freeze_embeddings: bool = field(default=False, metadata={"help": "Leave the embeddings as they are."})
    lora: str | None = field(
        default=None,
        metadata={"help": "Train LoRA adapters on these projections, for example linear_1,linear_2,q_proj."},
    )
    lora_rank: int = field(default=8, metadata={"help": "Rank of the LoRA adapters."})

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.train_only not in (None, "ffn"):
            raise ValueError(f"train_only='{self.train_only}' must be ffn, or be left out")


@dataclass
class DataArguments:
    """What to train on."""

    dataset_name: str | None = field(
        default=None,
        metadata={"help": "docstrings or digits (embedded, nothing to download), or an id for datasets.load_dataset."},
    )
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of that dataset."})
    train_file: list[str] | None = field(
        default=None,
        metadata={"help": "CSV, TSV, JSON (lines) or parquet files to train on, or patterns such as 'data/*.csv'."},
    )
    validation_file: list[str] | None = field(
        default=None, metadata={"help": "The same to evaluate on. Left out: a tenth of the training data."}
    )
    delimiter: str | None = field(
        default=None, metadata={"help": "Between the cells of CSV files. Left out: a comma, or a tab in .tsv files."}
    )
    quoting: str | None = field(
        default=None,
        metadata={"help": "none: quotation marks in CSV files are text, as in GLUE's.", "choices": [None, "none"]},
    )
    encoding: str | None = field(default=None, metadata={"help": "Of CSV and JSON files. Left out: utf-8."})
    train_dir: str | None = field(
        default=None, metadata={"help": "Image folder to train on: train_dir/LABEL/*.png, or deeper."}
    )
    validation_dir: str | None = field(default=None, metadata={"help": "The same to evaluate on."})
    task: str | None = field(
        default=None,
        metadata={"help": f"{', '.join(TASKS)}. Left out: as the labels are.", "choices": [None, *TASKS]},
    )
    text_column: str | None = field(default=None, metadata={"help": f"Left out: {names(TEXT_COLUMNS)}."})
    text_pair_column: str | None = field(default=None, metadata={"help": "Second text, where there are pairs."})
    image_column: str | None = field(default=None, metadata={"help": f"Left out: {names(IMAGE_COLUMNS)}."})
    label_column: list[str] | None = field(
        default=None,
        metadata={
            "help": f"Left out: {names(LABEL_COLUMNS)}. Several (toxic,threat) hold a 0 or 1 for one label each."
        },
    )
    max_length: int | None = field(
        default=None,
        metadata={"help": "Longest sequence in tokens; what is longer is cut. Left out: 128, or what the model can."},
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on so many samples only."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Evaluate on so many samples only."})
    streaming: bool = field(default=False, metadata={"help": "Read the training data as it is needed."})
    on_bad_sample: str = field(
        default="error",
        metadata={
            "help": "An empty text, a broken image, a file that is none: error, or skip and name it.",
            "choices": ["error", "skip"],
        },
    )
    augment: bool = field(default=False, metadata={"help": "Shift and scale training images a little at random."})
    preprocessing_num_workers: int | None = field(default=None, metadata={"help": "Processes for tokenizing."})
    dataloader_num_workers: int = field(default=0, metadata={"help": "Processes that prepare batches."})
    # The last, for it hides the function of its name.
    field: str | None = field(
        default=None,
        metadata={"help": "Which field of a JSON file holds the rows. Left out: the only list of rows there is."},
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        if isinstance(self.train_file, str):
            self.train_file = [self.train_file]
        if isinstance(self.validation_file, str):
            self.validation_file = [self.validation_file]
        if isinstance(self.label_column, str):
            self.label_column = [self.label_column]


@dataclass
class TrainingArguments:
    """How to train."""

    output_dir: str = field(metadata={"help": "Where checkpoints, results, pictures and the model go."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Delete another run that is there."})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "A checkpoint's folder, or latest: go on as if nothing had happened."}
    )
    per_device_train_batch_size: int = field(default=8, metadata={"help": "Samples per process and micro-batch."})
    per_device_eval_batch_size: int = field(default=32, metadata={"help": "Samples per process in evaluation."})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Micro-batches per step."})
    learning_rate: float = field(default=5e-5, metadata={"help": "Largest learning rate."})
    weight_decay: float = field(default=0.01, metadata={"help": "On matrices only."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Gradients are cut to this norm; 0 for not at all."})
    num_train_epochs: int = field(
        default=3,
        metadata={"help": "Passes over the training data. A run that is resumed with more of them goes on for these."},
    )
    max_train_steps: int | None = field(default=None, metadata={"help": "Steps; overrules num_train_epochs."})
    class_weights: list[str] | None = field(
        default=None,
        metadata={
            "help": "balanced: rare classes count as much as others in the loss; or a number for each, in their order."
        },
    )
    lr_scheduler_type: str = field(default="linear", metadata={"help": f"{names(SCHEDULES)}.", "choices": SCHEDULES})
    num_warmup_steps: int = field(default=0, metadata={"help": "Steps in which the learning rate rises."})
    group_by_length: bool = field(default=True, metadata={"help": "Batch texts of like length, to pad less."})
    checkpointing_steps: str | None = field(
        default=None, metadata={"help": "Save each so many steps, or each epoch. Left out: at the end only."}
    )
    checkpoints_total_limit: int | None = field(
        default=None, metadata={"help": "Keep so many checkpoints; the best by metric is kept besides."}
    )
    metric_for_best_model: str | None = field(default=None, metadata={"help": "Left out: the task's first metric."})
    mixed_precision: str | None = field(
        default=None,
        metadata={
            "help": f"{names(PRECISIONS)}. Left out: what accelerate is configured or launched with.",
            "choices": [None, *PRECISIONS],
        },
    )
    gradient_checkpointing: bool = field(default=False, metadata={"help": "Less memory, more time."})
    torch_compile: bool = field(default=False, metadata={"help": "Compile the model."})
    with_tracking: bool = field(default=False, metadata={"help": "Log to the trackers of report_to."})
    report_to: str = field(default="tensorboard", metadata={"help": "tensorboard, wandb, trackio… or all."})
    push_to_hub: bool = field(default=False, metadata={"help": "Push the trained model to the Hub."})
    hub_model_id: str | None = field(default=None, metadata={"help": "Repository to push to. Left out: output_dir's."})
    hub_strategy: str = field(default="end", metadata={"help": "end, or epoch: push after each epoch as well."})
    hub_private_repo: bool = field(default=False, metadata={"help": "Make the repository private."})
    card: str | None = field(
        default=None, metadata={"help": "YAML file with what only you can say of the model: license, limits…"}
    )
    hub_token: str | None = field(default=None, metadata={"help": "Left out: the token you logged in with."})
    seed: int = field(default=42, metadata={"help": "Everything random follows from it."})

    def __post_init__(self) -> None:
        check_numbers(self)
        if isinstance(self.class_weights, str):
            self.class_weights = [self.class_weights]
        if self.hub_strategy not in ("end", "epoch"):
            raise ValueError(f"hub_strategy='{self.hub_strategy}' must be end or epoch")
        steps = str(self.checkpointing_steps)
        if self.checkpointing_steps not in (None, "epoch") and not (steps.isdecimal() and int(steps)):
            raise ValueError(f"checkpointing_steps='{steps}' must be a number of steps, or epoch")
        if self.overwrite_output_dir and self.resume_from_checkpoint:
            raise ValueError("overwrite_output_dir would delete what resume_from_checkpoint is to go on from")


def check_numbers(arguments: Any) -> None:
    """Refuse numbers that mean nothing, and take -1 for left out where the Trainer of transformers does.

    Raises:
        ValueError: naming the argument, its value and what is allowed.
    """
    for each in fields(arguments):
        value = getattr(arguments, each.name)
        if each.name in MINUS_ONE_IS_LEFT_OUT and value == -1:
            setattr(arguments, each.name, each.default)
            continue
        if each.name not in LEAST or value is None:
            continue
        if not math.isfinite(value) or value < LEAST[each.name]:
            hint = ", or -1 as if it were left out" if each.name in MINUS_ONE_IS_LEFT_OUT else ""
            finite = "" if math.isfinite(value) else ", and finite"
            raise ValueError(f"{each.name}={value} must be at least {LEAST[each.name]}{finite}{hint}")


class Parser(HfArgumentParser):
    """transformers' parser, whose errors are one line and not two hundred of usage."""

    def error(self, message: str) -> NoReturn:
        """Raise what is wrong."""
        raise ValueError(f"{message} (--help lists all arguments)")


def parse(arguments: list[str]) -> tuple[ModelArguments, DataArguments, TrainingArguments]:
    """Read flags, or the path of one YAML file followed by flags that overrule it.

    Raises:
        ValueError: an unknown key or flag, an impossible value, or a file that is no YAML of entries.
        ModuleNotFoundError: a package that the arguments need is missing.
    """
    parser = Parser([ModelArguments, DataArguments, TrainingArguments])
    known = {each.name: each for part in parser.dataclass_types for each in fields(part)}
    if arguments and arguments[0].endswith((".yaml", ".yml")):
        # As flags before the others, so that the later ones win and both are checked alike.
        arguments = [*as_flags(read_yaml(arguments[0]), arguments[0], known), *arguments[1:]]
    model, data, training, unknown = parser.parse_args_into_dataclasses(
        arguments, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        flag = next((each for each in unknown if each.startswith("--")), unknown[0])
        hint = near(flag.removeprefix("--").partition("=")[0], known, "--")
        if unknown[0].endswith((".yaml", ".yml")):
            hint = "a YAML file comes first"
        raise ValueError(f"unknown arguments: {' '.join(unknown)} ({hint})")
    if model.lora is not None and importlib.util.find_spec("peft") is None:
        raise ModuleNotFoundError("--lora needs peft", name="peft")
    if training.overwrite_output_dir:
        refuse_to_delete_what_is_read(training, model, data)
    return model, data, training


def read_yaml(path: str) -> dict[str, Any]:
    """Read a YAML file's entries, all values as they are written: only what is left empty is None.

    So `no` is the word, and a column may be called so; the arguments' types say what a word means.

    Raises:
        ValueError: it is no YAML of entries, or has one of them twice.
    """
    import yaml

    class Words(yaml.SafeLoader):
        """Takes nothing but null for more than a word, and no key twice."""

        yaml_implicit_resolvers = {
            first: [each for each in resolvers if each[0] == "tag:yaml.org,2002:null"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [key.value for key, _ in node.value]
            twice = sorted({str(key) for key in keys if keys.count(key) > 1})
            if twice:
                raise ValueError(f"'{path}' has {', '.join(twice)} twice: leave one")
            return super().construct_mapping(node, deep)

    try:
        with open(path, encoding="utf-8-sig") as file:
            content = yaml.load(file, Loader=Words)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())
        hint = "; indent with spaces, not tabs" if "\\t" in what else ""
        raise ValueError(f"'{path}' is not YAML: {what}{hint}") from error
    if content is not None and not isinstance(content, dict):
        raise ValueError(f"'{path}' must hold entries such as `learning_rate: 1e-4`, not {content!r}")
    return content or {}


def as_flags(content: dict[str, Any], path: str, known: dict[str, Field]) -> list[str]:
    """Turn a YAML file's entries into flags.

    Raises:
        ValueError: an unknown key, or a list or entries where one value is expected.
    """
    flags: list[str] = []
    for key, value in content.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise ValueError(f"'{path}' has the entry '{key}', which is no argument ({near(name, known)})")
        if isinstance(value, dict) and name == "config_overrides":
            value = [f"{field}={each}" for field, each in value.items()]
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(each, str) for each in several) and value is not None:
            raise ValueError(f"'{path}': {name} must be a value or a list of values, not {value!r}")
        if value is None or not several:
            continue
        # The parser has taken "or None" off the types.
        if get_origin(known[name].type) is list:
            flags += [f"--{name}", *several]
        elif isinstance(value, (list, dict)) and name not in JOINED:
            raise ValueError(f"'{path}': {name} must be one value, not {value!r}")
        elif known[name].type is bool:
            flags.append(f"--{name}={BOOLEANS.get(several[0].lower(), several[0])}")
        else:
            flags.append(f"--{name}={','.join(several)}")
    return flags


def refuse_to_delete_what_is_read(training: TrainingArguments, *others: Any) -> None:
    """Refuse to overwrite a folder in which lies what the run is to read.

    Raises:
        ValueError: naming the argument.
    """
    folder = Path(training.output_dir).resolve()
    for name, value in ((name, value) for each in (*others, training) for name, value in vars(each).items()):
        for path in value if isinstance(value, list) else [value]:
            is_read = isinstance(path, str) and name != "output_dir" and os.path.exists(path)
            if is_read and folder in (Path(path).resolve(), *Path(path).resolve().parents):
                raise ValueError(f"--overwrite_output_dir would delete what --{name} is to be read from: '{path}'")


def near(name: str, known: Iterable[str], prefix: str = "") -> str:
    """A hint for a name that is not known."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {prefix}{close[0]}?" if close else "--help lists those there are"


def without_token(*arguments: Any) -> dict[str, Any]:
    """All arguments as one dictionary that may be written to files: without the token."""
    merged: dict[str, Any] = {}
    for each in arguments:
        merged |= asdict(each)
    merged.pop("hub_token", None)
    return merged
