"""What the fine-tuning scripts take, by flags or from one YAML file; the peers' flags keep their names."""

from dataclasses import asdict, dataclass, field
from typing import Any

from transformers import HfArgumentParser

TASKS = ("single-label", "multi-label", "regression", "token-classification", "image-classification")


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
    dtype: str = field(default="float32", metadata={"help": "Of the weights: float32 or bfloat16."})
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
    train_dir: str | None = field(default=None, metadata={"help": "Image folder to train on: train_dir/LABEL/*.png."})
    validation_dir: str | None = field(default=None, metadata={"help": "The same to evaluate on."})
    task: str | None = field(
        default=None,
        metadata={"help": f"{', '.join(TASKS)}. Left out: as the labels are.", "choices": [None, *TASKS]},
    )
    text_column: str | None = field(default=None, metadata={"help": "Left out: text, sentence, sentence1 or tokens."})
    text_pair_column: str | None = field(default=None, metadata={"help": "Second text, where there are pairs."})
    image_column: str | None = field(default=None, metadata={"help": "Left out: image or img."})
    label_column: list[str] | None = field(
        default=None,
        metadata={
            "help": "Left out: label, labels or ner_tags. Several (toxic,threat) hold a 0 or 1 for one label each."
        },
    )
    max_length: int = field(default=128, metadata={"help": "Longest sequence in tokens; what is longer is cut."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Train on so many samples only."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Evaluate on so many samples only."})
    streaming: bool = field(default=False, metadata={"help": "Read the training data as it is needed."})
    on_bad_sample: str = field(
        default="error",
        metadata={"help": "A broken image or an empty text: error or skip.", "choices": ["error", "skip"]},
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
    num_train_epochs: int = field(default=3, metadata={"help": "Passes over the training data."})
    max_train_steps: int | None = field(default=None, metadata={"help": "Steps; overrules num_train_epochs."})
    class_weights: list[str] | None = field(
        default=None,
        metadata={
            "help": "balanced: rare classes count as much as others in the loss; or a number for each, in their order."
        },
    )
    lr_scheduler_type: str = field(default="linear", metadata={"help": "linear, cosine, constant_with_warmup…"})
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
        default=None, metadata={"help": "no, bf16 or fp16. Left out: what accelerate is configured or launched with."}
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
        if isinstance(self.class_weights, str):
            self.class_weights = [self.class_weights]
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.hub_strategy not in ("end", "epoch"):
            raise ValueError(f"hub_strategy='{self.hub_strategy}' must be end or epoch")
        if self.checkpointing_steps not in (None, "epoch") and not str(self.checkpointing_steps).isdigit():
            raise ValueError(f"checkpointing_steps='{self.checkpointing_steps}' must be a number of steps, or epoch")
        if self.overwrite_output_dir and self.resume_from_checkpoint:
            raise ValueError("overwrite_output_dir would delete what resume_from_checkpoint is to go on from")


def parse(arguments: list[str]) -> tuple[ModelArguments, DataArguments, TrainingArguments]:
    """Read flags, or the path of one YAML file followed by flags that overrule it.

    Raises:
        ValueError: an unknown key in the file, or an impossible value.
    """
    parser = HfArgumentParser([ModelArguments, DataArguments, TrainingArguments])
    if arguments and arguments[0].endswith((".yaml", ".yml")):
        import yaml

        with open(arguments[0], encoding="utf-8") as file:
            content = yaml.safe_load(file) or {}
        # As flags before the others, so that the later ones win and both are checked alike.
        arguments = [*as_flags(content), *arguments[1:]]
    model, data, training, unknown = parser.parse_args_into_dataclasses(arguments, return_remaining_strings=True)
    if unknown:
        raise ValueError(f"unknown arguments: {' '.join(unknown)} (--help lists those there are)")
    return model, data, training


def as_flags(content: dict[str, Any]) -> list[str]:
    """Turn a YAML file's entries into flags."""
    flags = []
    for name, value in content.items():
        if value is not None:
            flags += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return flags


def without_token(*arguments: Any) -> dict[str, Any]:
    """All arguments as one dictionary that may be written to files: without the token."""
    merged: dict[str, Any] = {}
    for each in arguments:
        merged |= asdict(each)
    merged.pop("hub_token", None)
    return merged
