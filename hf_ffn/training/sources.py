"""Where data come from: a dataset id, local files, image folders, embedded data; whole or as a stream."""

import glob
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, IterableDataset, load_dataset, load_dataset_builder
from datasets.exceptions import DatasetGenerationError
from datasets.packaged_modules.csv.csv import CsvConfig
from transformers.utils import logging

from .arguments import DataArguments
from .embedded import EMBEDDED
from .files import TableFile, existing, find_files
from .folders import TABLES, load_listed, load_pictures
from .tables import EMPTY_IS_MISSING, FLAGS, NO_NUMBER, lay_out, reading_options

VALIDATION_SPLITS = ("validation", "valid", "dev", "validation_matched")
logger = logging.get_logger(__name__)

# The row's number in the original data. It stays when rows are selected, and no column of anyone's is called so.
ID = "__id__"


@dataclass
class Split:
    """Rows to train or to evaluate on.

    Args:
        rows: whole, or a stream.
        where: what to call them in an error.
        content: a hash of what they contain, once it has been computed; of a stream, of its files.
        untyped: whether they come from a file that knows no types, so that every cell is a text.
        left_out: how many rows were taken out as bad.
        remarks: what was done to how many of them that their owner may not expect (see `remarks.REMARKS`).
    """

    rows: Dataset | IterableDataset
    where: str
    content: str = ""
    untyped: bool = False
    left_out: int = 0
    remarks: dict[str, int] = field(default_factory=dict)

    @property
    def features(self) -> dict[str, Any]:
        """Types by column; of a stream that does not know them, none."""
        return dict(self.rows.features or {})

    @property
    def columns(self) -> list[str]:
        """Names of the columns, without our own; of a stream that does not know them, its first row's."""
        names = self.rows.column_names or list(next(iter(self.rows), {}))
        return [name for name in names if name != ID]

    def column(self, flag: str, given: str | None, usual: Sequence[str]) -> str:
        """The column that was asked for, or the first of the usual ones that is there.

        Raises:
            ValueError: there is none; those that there are are listed.
        """
        columns = self.columns
        for name in [given] if given else usual:
            if name in columns:
                return name
        wanted = f"'{given}'" if given else " or ".join(f"'{name}'" for name in usual)
        raise ValueError(f"{self.where} has no column {wanted}; it has {', '.join(columns)}: choose one with --{flag}")

    def require(self, columns: Iterable[str]) -> None:
        """Require columns that the training data have.

        Raises:
            ValueError: one is missing.
        """
        missing = [name for name in columns if name not in self.columns]
        if missing:
            raise ValueError(
                f"{self.where} has no column '{missing[0]}', as the training data do; it has {', '.join(self.columns)}"
            )


def load_splits(args: DataArguments) -> tuple[Split, Split | None]:
    """Load what to train on and what to evaluate on; the latter is None where the data have no such part.

    Raises:
        ValueError: none or several sources, a file that is missing or cannot be read, an unknown extension or
            dataset, or a stream with nothing to evaluate on.
    """
    sources = [name for name in ("dataset_name", "train_file", "train_dir") if getattr(args, name)]
    if len(sources) != 1:
        raise ValueError(
            f"give one of --dataset_name, --train_file and --train_dir; {' and '.join(sources) or 'none'} was given"
        )
    for other, source in (("validation_file", "train_file"), ("validation_dir", "train_dir")):
        if getattr(args, other) and source not in sources:
            raise ValueError(f"--{other} goes with --{source}: beside --{sources[0]} it would not be read")
    for flag in FLAGS if not args.train_file else ():
        if getattr(args, flag) is not None:
            raise ValueError(f"--{flag} says how --train_file is read: beside --{sources[0]} it would mean nothing")
    if args.streaming and args.dataloader_num_workers:
        raise ValueError("--streaming reads in the main process: leave out --dataloader_num_workers")
    if args.train_dir:
        train, evaluation = load_folder(args.train_dir, args, args.streaming), None
        if args.validation_dir:
            evaluation = load_folder(args.validation_dir, args, streaming=False)
            warn_of_missing_classes(train, evaluation)
    elif args.train_file:
        train, evaluation = load_files(args.train_file, args, args.streaming), None
        if args.validation_file:
            evaluation = load_files(args.validation_file, args, streaming=False)
    elif args.dataset_name in EMBEDDED:
        whole = EMBEDDED[args.dataset_name]()
        train, evaluation = (
            Split(rows, f"{part} of '{args.dataset_name}'")
            for rows, part in zip(whole, ("train", "test"), strict=True)
        )
        if args.streaming:
            train.rows = train.rows.to_iterable_dataset()
    else:
        train, evaluation = load_id(args)
    if args.streaming and evaluation is None:
        raise ValueError(f"nothing can be split off from a stream: give {train.where} a validation file or split")
    train.rows = with_positions(train.rows)
    if evaluation is not None:
        evaluation.rows = with_positions(evaluation.rows)
    return train, evaluation


def load_files(given: list[str], args: DataArguments, streaming: bool) -> Split:
    """Load CSV, TSV, JSON, JSON lines or parquet files: paths, and patterns where no such file exists.

    Raises:
        ValueError: a file that is not there, or whose content cannot be read as meant: what, and where.
    """
    files = [TableFile.of(path, args.encoding) for path in find_files(given)]
    where = f"'{files[0].path}'" + (f" and {len(files) - 1} more" if len(files) > 1 else "")
    options = reading_options(files, args)
    laid, content = lay_out(files, args, options)
    # By pattern, as `datasets` takes all paths.
    options["data_files"] = [glob.escape(str(path)) for path in laid]
    untyped = files[0].format == "csv"
    if untyped:
        options["features"] = cells_as_texts(where, "csv", **options)
    rows = load(where, files[0].format, split="train", streaming=streaming, **options)
    return Split(rows, where, content=content, untyped=untyped)


def cells_as_texts(what: str, *args: Any, **options: Any) -> datasets.Features:
    """The types by which CSV's cells stay the texts that they are: `datasets` alone takes 01 and 1 for one number.

    Args:
        what: to call the data in an error.
        args: of `load_dataset`.
        options: of `load_dataset`, without the split.
    """
    # A stream of one row, as the columns' names are all that is wanted.
    parts = load(what, *args, streaming=True, nrows=1, **options)
    first: dict[str, Any] = next(iter(next(iter(parts.values()))), {})
    return datasets.Features({name: datasets.Value("string") for name in first})


def load_folder(name: str, args: DataArguments, streaming: bool) -> Split:
    """Load a folder of pictures: `CLASS/…/*.png`, or with a table `metadata.csv` (.jsonl, .parquet) of their labels.

    Raises:
        ValueError: something is wrong with a file: what, and with which.
    """
    skip = args.on_bad_sample == "skip"
    tables = [path for each in TABLES if (path := existing(name) / each).is_file()]
    if tables:
        split = load_files(list(map(str, tables)), DataArguments(), streaming=False)
        split.rows, split.left_out = load_listed(name, tables, split.rows, skip=skip)
        split.where = f"'{name}'"
    else:
        rows, content, left_out = load_pictures(name, skip=skip)
        split = Split(rows, f"'{name}'", content, left_out=left_out)
    if streaming:
        split.rows = split.rows.to_iterable_dataset()
    return split


def warn_of_missing_classes(train: Split, evaluation: Split) -> None:
    """Say which of the folders' classes are not evaluated."""
    trained, evaluated = (getattr(split.features.get("label"), "names", None) or [] for split in (train, evaluation))
    if missing := [name for name in trained if evaluated and name not in evaluated]:
        logger.warning(f"{evaluation.where} has no pictures of {', '.join(missing)}, as {train.where} has")


def load_id(args: DataArguments) -> tuple[Split, Split | None]:
    """Load a dataset of the Hub, or a folder that `load_dataset` knows how to read."""
    name = f"dataset '{args.dataset_name}'"
    folder = Path(str(args.dataset_name))
    if folder.is_dir() and glob.has_magic(str(folder.resolve())):
        raise ValueError(f"{name}: load_dataset takes *, ? and [ in a folder's path for a pattern: give files instead")
    where = args.dataset_name, args.dataset_config_name
    builder = load(name, *where, loader=load_dataset_builder)
    options: dict[str, Any] = dict(EMPTY_IS_MISSING) if isinstance(builder.config, CsvConfig) else {}
    untyped = bool(options) and builder.info.features is None  # its card may declare them
    if untyped:
        options["features"] = cells_as_texts(name, *where, **options)
    elif options:
        # Told to the reader too, which else would take 01 for 1 before the cells become texts.
        options["features"] = builder.info.features
        options["na_values"] = {column: missing_words(kind) for column, kind in builder.info.features.items()}
    if folder.is_dir() and builder.info.builder_name == "imagefolder":
        logger.warning(f"{name}: load_dataset leaves out files that are no pictures to it; --train_dir names them")
    parts = load(name, *where, streaming=args.streaming, **options)
    if "train" not in parts:
        raise ValueError(f"{name} has no split 'train'; it has {', '.join(parts)}")
    train = Split(parts["train"], f"train of '{args.dataset_name}'", untyped=untyped)
    for part in VALIDATION_SPLITS:  # never "test": the best checkpoint is chosen by it
        if part in parts:
            rows = parts[part]
            if args.streaming:
                rows = Dataset.from_list(list(itertools.islice(rows, args.max_eval_samples)), features=rows.features)
            return train, Split(rows, f"{part} of '{args.dataset_name}'", untyped=untyped)
    return train, None


def missing_words(feature: Any) -> list[str]:
    """How CSV writes that a cell of this type is missing: of a number or a truth value, also in words."""
    is_text = not isinstance(feature, datasets.Value) or "string" in feature.dtype
    return [""] if is_text else ["", *(word for each in NO_NUMBER for word in (each, each.upper())), "NaN", "None"]


def load(what: str, *args: Any, loader: Callable[..., Any] = load_dataset, **kwargs: Any) -> Any:
    """`load_dataset`, or another of its kind, whose errors say in one line what could not be read and why."""
    try:
        return loader(*args, **kwargs)
    except DatasetGenerationError as error:
        raise ValueError(f"{what} cannot be read: {' '.join(str(error.__cause__ or error).split())}") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} cannot be loaded: {' '.join(str(error).split())}") from error


def with_positions(rows: Dataset | IterableDataset) -> Dataset | IterableDataset:
    """Give each row its number, counted from 0; in a stream of several files, as they are read."""
    if isinstance(rows, Dataset):
        others = [name for name in rows.column_names if name != ID]
        return rows.select_columns(others).add_column(ID, list(range(len(rows))))
    features = None
    if rows.features is not None:
        for name, feature in rows.features.items():
            if isinstance(feature, datasets.Image):
                # `map` would decode images that are then skipped, or broken.
                rows = rows.cast_column(name, datasets.Image(decode=False))
        features = datasets.Features({**rows.features, ID: datasets.Value("int64")})
    return rows.map(add_position, with_indices=True, features=features)


def add_position(row: dict[str, Any], position: int) -> dict[str, Any]:
    """A row with its number."""
    return {**row, ID: position}
