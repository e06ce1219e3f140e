"""What a run trains and evaluates on, of whatever task: loaded, checked, and ready to be made into batches."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import pyarrow.compute as pc  # type: ignore[import-untyped]
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .arguments import DataArguments
from .images import ImageColumns, ImagePreparation, check_images, collate_images
from .label_columns import LabelColumn, are_lists, decide, is_mixed, is_text, values_of
from .labels import (
    Labels,
    at_most,
    check_rows,
    check_seen,
    class_names,
    first_rows,
    split_off,
    warn_of_numbers,
)
from .sampling import Samples, StreamSamples
from .sources import ID, Split, load_splits
from .summary import DataSummary, PartSummary
from .texts import COUNTS, TextCollator, TextColumns, Tokenization, check_length, check_tokenizer, length_of_samples

logger = logging.get_logger(__name__)


@dataclass
class TaskData:
    """Data of a task.

    Args:
        task: one of `arguments.TASKS`.
        train: samples to train on: dictionaries with `labels` and `id`, the row's number in the original data.
        evaluation: samples to evaluate on, never augmented.
        labels: names of the classes; None where numbers are predicted.
        collate: makes a batch of samples, with their ids as `ids`; of none, an empty dictionary.
        lengths: tokens per training sample; None for images and streams.
        texts: shows an evaluation sample to a person, by its place in `evaluation`.
        fingerprint: what must not have changed when a run goes on.
        summary: what was decided, for people.
        windows: of each entry of `evaluation` the sample that it is a window of; None where each is a sample.
    """

    task: str
    train: Samples | StreamSamples
    evaluation: Samples
    labels: list[str] | None
    collate: Callable[[list[dict[str, Any]]], dict[str, torch.Tensor]]
    lengths: list[int] | None
    texts: Callable[[int], str]
    fingerprint: dict[str, Any]
    summary: DataSummary
    windows: list[int] | None = None


def load_text_data(
    args: DataArguments,
    tokenizer: PreTrainedTokenizerBase,
    *,
    seed: int,
    known_labels: Sequence[str] = (),
    longest: int | None = None,
) -> TaskData:
    """Load texts: with a class, several classes or a number each, single or in pairs, or with a class for each word.

    Args:
        args: which, and how.
        tokenizer: the model's.
        seed: the run's; a validation part is split off alike for all seeds.
        known_labels: a checkpoint's; they name what lists of as many 0 and 1 say yes or no to.
        longest: how many tokens the model has positions for; None for any number.

    Raises:
        ValueError: something is wrong with the data: what, and where; or `max_length` is more than the model's.
    """
    max_length = length_of_samples(args.max_length, tokenizer, longest)
    args.max_length = max_length  # for those who read the results: what was asked for may not be what counts
    train, evaluation = load_splits(args)
    columns = TextColumns.of(train, args)
    if evaluation is not None:
        evaluation.require([*columns.texts, *columns.labels])
    if args.task == "image-classification":
        raise ValueError(f"{train.where}: task image-classification needs images, and these are texts")
    splits = [split for split in (train, evaluation) if split is not None]
    words = any(hasattr(split.features.get(columns.text), "feature") for split in splits)
    label = decide(splits, columns.labels, args.task, words=words, known=known_labels)
    refuse_odd_texts(splits, columns.text, label)
    task = label.task
    check_tokenizer(tokenizer, task)
    check_length(tokenizer, max_length, pairs=columns.pair is not None)
    skip = args.on_bad_sample == "skip"

    def check(split: Split) -> None:
        wrong = partial(columns.wrong, task=task)
        check_rows(split, columns.texts, label.of(split), wrong=wrong, bad=columns.bad, skip=skip)

    def tokenization(split: Split, in_windows: bool = False) -> Tokenization:
        # A copy: tokenizers keep how they cut last, and the one that is saved beside the model shall stay as it was.
        return Tokenization(copy.deepcopy(tokenizer), columns, label.of(split), labels, max_length, in_windows)

    train, evaluation, labels = checked(args, train, evaluation, label, check)
    evaluated = tokenized(evaluation, tokenization(evaluation, in_windows=True), args)
    samples: Samples | StreamSamples
    if isinstance(train.rows, Dataset):
        samples = Samples(tokenized(train, tokenization(train), args), None, seed)
    else:
        prepare = partial(tokenization(train).of_row, where=train.where)
        samples = StreamSamples(
            train.rows, prepare, seed, partial(is_good, train.where, columns.bad) if skip else None
        )
    places = {"text": columns.text, "pair": columns.pair, "label": label.name}
    facts = {"task": task, "labels": labels.names} | {
        "tokenizer": type(tokenizer).__name__,
        "vocab_size": len(tokenizer),
        "max_length": args.max_length,
    }
    return TaskData(
        task=task,
        train=samples,
        evaluation=Samples(evaluated, None, seed),
        labels=labels.names or None,
        collate=TextCollator(tokenizer, words=task == "token-classification"),
        lengths=list_lengths(samples.rows, "input_ids") if isinstance(samples, Samples) else None,
        texts=lambda i: columns.shown(evaluation.rows[i]),
        fingerprint=fingerprint(args, train, evaluation) | places | facts,
        summary=summary(f"texts in column {' and '.join(map(repr, columns.texts))}", label, labels, train, evaluation),
        windows=samples_of_windows(evaluated["id"]) if len(evaluated) > len(evaluation.rows) else None,
    )


def is_good(where: str, bad: Callable[[dict[str, Any]], str | None], row: dict[str, Any]) -> bool:
    """Whether nothing is wrong with a row of a stream, which else is named once.

    Args:
        where: what to call the data.
        bad: says what is wrong with a row.
        row: of the stream.
    """
    problem = bad(row)
    if problem:
        logger.warning_once(f"{where}: {problem} in row {row[ID]} (counted from 0); left out")
    return not problem


def samples_of_windows(ids: Iterable[int]) -> list[int]:
    """The samples' numbers, of windows of which those of one sample lie side by side."""
    return [number for number, (_, same) in enumerate(groupby(ids)) for _ in same]


def summary(inputs: str, label: LabelColumn, labels: Labels, train: Split, evaluation: Split) -> DataSummary:
    """What was decided about data."""
    parts = (PartSummary.of(split, label.of(split), labels) for split in (train, evaluation))
    return DataSummary(label.task, inputs, label.described(), *parts)


def refuse_odd_texts(splits: list[Split], text: str, label: LabelColumn) -> None:
    """Refuse what would be read as texts and is something else.

    Raises:
        ValueError: lists of words that are written as texts, or texts mixed with numbers.
    """
    for split in splits:
        if is_mixed(split.features.get(text)):
            raise ValueError(f"{split.where}: column '{text}' holds texts in some rows and something else in others")
        lists = label.cells == "list" and isinstance(split.rows, Dataset) and is_text(split, text)
        if lists and are_lists(values_of(split, text)):
            raise ValueError(
                f"{split.where}: columns '{text}' and '{label.name}' hold lists that are written as texts: write "
                f"words and their labels as lists, in JSON lines or parquet"
            )


def tokenized(split: Split, tokenization: Tokenization, args: DataArguments) -> Dataset:
    """Make samples of a split, whose fingerprint is theirs from then on.

    Types are said, for `map` would give a sample's entry the type of a column of the user's of the same name.
    """
    needed = split.rows.select_columns([*tokenization.columns.texts, *tokenization.label.columns, ID])
    samples = needed.map(
        tokenization,
        batched=True,
        remove_columns=needed.column_names,
        features=tokenization.features(),
        num_proc=args.preprocessing_num_workers,
        desc=f"Tokenizing {split.where}",
    )
    counts = samples.select_columns(list(COUNTS)).with_format("arrow")[:]
    split.remarks |= {name: number for name in COUNTS if (number := pc.sum(counts[name]).as_py()) or name == "cut"}
    samples = samples.remove_columns(list(COUNTS))
    split.content = content_hash(samples)
    return samples


def load_image_data(
    args: DataArguments,
    image_processor: Any,
    *,
    seed: int,
    num_channels: int = 3,
    image_size: int | tuple[int, int] = 224,
    known_labels: Sequence[str] = (),
) -> TaskData:
    """Load images with a class each.

    Args:
        args: which, and how.
        image_processor: the model's; None for a model from scratch: images are resized, and brought to -1…1.
        seed: the run's, of which augmentation follows; a validation part is split off alike for all seeds.
        num_channels: 3 for colours, 1 for grey.
        image_size: of a side, or height and width; only where there is no processor.
        known_labels: a checkpoint's; they name what lists of as many 0 and 1 say yes or no to.

    Raises:
        ValueError: something is wrong with the data: what, and where.
    """
    if num_channels not in (1, 3):
        raise ValueError(f"num_channels={num_channels}: images are read in grey (1) or in colours (3)")
    train, evaluation = load_splits(args)
    columns = ImageColumns.of(train, args)
    for split in (train, evaluation):
        if split is not None:
            split.require([columns.image, *columns.labels])
            columns.leave_encoded(split)
    label = decide_for_images(train, evaluation, columns, args.task, known_labels)
    skip = args.on_bad_sample == "skip"
    size = (image_size, image_size) if isinstance(image_size, int) else image_size

    def check(split: Split) -> None:
        column = label.of(split)
        check_rows(split, [], column)
        before = first_rows(split, column)
        images = check_images(split, columns, skip=skip, num_proc=args.preprocessing_num_workers)
        if lost := before.keys() - first_rows(split, column).keys():
            raise ValueError(f"{split.where}: no image of the class '{min(lost)}' can be read")
        images = images.select_columns(["checksum"])
        split.content = content_hash(images) + content_hash(split.rows.select_columns(list(columns.labels)))

    def preparation(split: Split, augment: bool) -> ImagePreparation:
        is_checked = isinstance(split.rows, Dataset)
        return ImagePreparation(
            split.where, columns, label.of(split), labels, image_processor, num_channels, size, augment, is_checked
        )

    train, evaluation, labels = checked(args, train, evaluation, label, check)
    prepare = preparation(train, args.augment)
    samples: Samples | StreamSamples
    if isinstance(train.rows, Dataset):
        samples = Samples(train.rows, prepare, seed)
    else:
        keep = partial(is_good, train.where, columns.bad) if skip else None
        samples = StreamSamples(train.rows, prepare, seed, keep)
    places = {"image": columns.image, "label": label.name}
    facts = {
        "image_processor": None if image_processor is None else json.loads(image_processor.to_json_string()),
        "num_channels": num_channels,
        "image_size": list(size),
        "augment": args.augment,
    }
    return TaskData(
        task=label.task,
        train=samples,
        evaluation=Samples(evaluation.rows, preparation(evaluation, False), seed),
        labels=labels.names,
        collate=collate_images,
        lengths=None,
        texts=lambda i: columns.shown(evaluation.rows[i]),
        fingerprint=fingerprint(args, train, evaluation) | places | facts,
        summary=summary(f"images in column '{columns.image}'", label, labels, train, evaluation),
    )


def decide_for_images(
    train: Split, evaluation: Split | None, columns: ImageColumns, task: str | None, known: Sequence[str]
) -> LabelColumn:
    """Decide what the labels of images are.

    Raises:
        ValueError: a task that is none of images, or labels that are numbers with fractions.
    """
    if task not in (None, "image-classification", "multi-label"):
        raise ValueError(f"{train.where}: task {task} needs texts, and these are images")
    splits = [split for split in (train, evaluation) if split is not None]
    label = decide(splits, columns.labels, task, known=known)
    if label.task == "regression":
        raise ValueError(
            f"{train.where}: column '{label.name}' holds numbers with fractions, and images have classes; if these "
            f"are classes' names, say --task image-classification"
        )
    return replace(label, task="image-classification") if label.task == "single-label" else label


def checked(
    args: DataArguments,
    train: Split,
    evaluation: Split | None,
    label: LabelColumn,
    check: Callable[[Split], None],
) -> tuple[Split, Split, Labels]:
    """Check both parts, name the classes, split off a validation part where there is none, and cut to the sizes asked.

    A stream is checked as it is read: its classes are those that its type declares, or else those evaluated on.
    """
    for split in (train, evaluation):
        if split is not None and isinstance(split.rows, Dataset):
            check(split)
            if not len(split.rows):
                raise ValueError(f"{split.where} has no rows")
    trained = label.of(train)
    if args.streaming and evaluation is not None:
        evaluated = label.of(evaluation)
        seen = first_rows(evaluation, evaluated)
        labels = class_names(evaluation.where, trained if trained.feature is not None else evaluated, seen)
        train.rows = train.rows if args.max_train_samples is None else train.rows.take(args.max_train_samples)
    else:
        if len(train.rows) < 2:
            raise ValueError(f"{train.where} has one row only: too few to train on")
        seen = first_rows(train, trained)
        labels = class_names(train.where, trained, seen)
        if args.task is None:
            warn_of_numbers(train, trained, seen)
        if evaluation is None:
            evaluation = split_off(train, seen)
        check_seen(train, evaluation, seen, first_rows(evaluation, label.of(evaluation)))
        train.rows = at_most(train.rows, args.max_train_samples)
    evaluation.rows = at_most(evaluation.rows, args.max_eval_samples)
    return train, evaluation, labels


def fingerprint(args: DataArguments, train: Split, evaluation: Split) -> dict[str, Any]:
    """What identifies data: their contents, not their names or dates. Of a stream without files: its name."""
    parts: dict[str, Any] = {}
    for name, split in (("train", train), ("evaluation", evaluation)):
        if isinstance(split.rows, Dataset):
            parts[name] = {"samples": len(split.rows), "content": split.content}
        else:
            parts[name] = {"stream": split.content or split.where, "max_samples": args.max_train_samples}
    return parts


def content_hash(rows: Dataset) -> str:
    """A hash of columns of numbers, texts, or lists of numbers."""
    digest = hashlib.sha256()
    for table in rows.with_format("arrow").iter(batch_size=10_000):
        for name in sorted(table.column_names):
            values = table[name]
            if hasattr(values.type, "value_type"):
                digest.update(pc.list_value_length(values).to_numpy().tobytes())
                values = pc.list_flatten(values)
            array = values.to_numpy()
            digest.update(
                json.dumps(array.tolist(), default=str).encode() if array.dtype == object else array.tobytes()
            )
    return digest.hexdigest()


def list_lengths(rows: Dataset, column: str) -> list[int]:
    """Lengths of a column's lists, without making Python's lists of them."""
    batches = rows.select_columns([column]).with_format("arrow").iter(batch_size=10_000)
    return [length for table in batches for length in pc.list_value_length(table[column]).to_pylist()]
