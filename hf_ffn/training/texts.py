"""Texts as samples: tokenized once, by `datasets`, into files that are mapped into memory."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import datasets
import torch
from datasets import Value
from transformers import (
    BatchEncoding,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from .arguments import LABEL_COLUMNS, TEXT_COLUMNS, DataArguments
from .label_columns import IGNORED, LabelColumn, label_columns
from .labels import Labels, UnknownLabelError
from .sources import ID, Split
from .windows import Window, lost_entities, windows

logger = logging.get_logger(__name__)

# What is counted of texts; `remarks.REMARKS` says it in words.
COUNTS = ("cut", "in_windows", "lost_labels", "lost_entities")
# Where none is asked for, and the model has positions for as many.
LENGTH = 128


@dataclass(frozen=True)
class TextColumns:
    """Where a row has its texts.

    Args:
        text: the column of texts, or of lists of words.
        pair: the column of second texts, where there are pairs.
        labels: the column of labels, or several.
    """

    text: str
    pair: str | None
    labels: tuple[str, ...]

    @classmethod
    def of(cls, split: Split, args: DataArguments) -> "TextColumns":
        """As the arguments say, or as such columns are usually called.

        Raises:
            ValueError: a column that is not there.
        """
        text = split.column("text_column", args.text_column, TEXT_COLUMNS)
        pair = args.text_pair_column
        if pair is None and text == "sentence1" and "sentence2" in split.columns:
            pair = "sentence2"
        if pair is not None:
            split.column("text_pair_column", pair, ())
        return cls(text, pair, label_columns(split, args.label_column, LABEL_COLUMNS))

    @property
    def texts(self) -> list[str]:
        """The columns of texts."""
        return [self.text, self.pair] if self.pair else [self.text]

    def shown(self, row: dict[str, Any]) -> str:
        """A row's texts, for people."""
        texts = [row[column] for column in self.texts]
        return " | ".join(" ".join(text) if isinstance(text, list) else text for text in texts)

    def bad(self, row: dict[str, Any]) -> str | None:
        """What is wrong with a row that can be skipped, if anything."""
        for column in self.texts:
            text = row[column]
            if text is None or text == [] or (isinstance(text, str) and not text.strip()):
                return f"an empty text in column '{column}'"
        return None

    def wrong(self, row: dict[str, Any], task: str) -> str | None:
        """What is wrong with a row that cannot be used, if anything; its label is a good one."""
        if task != "token-classification":
            wrong = [column for column in self.texts if not isinstance(row[column], str)]
            return f"something else than a text in column '{wrong[0]}'" if wrong else None
        words, labels = row[self.text], row[self.labels[0]]
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return f"something else than a list of words in column '{self.text}'"
        return None if len(words) == len(labels) else f"{len(words)} words but {len(labels)} labels"


@dataclass(frozen=True)
class Tokenization:
    """How rows become samples. `datasets` pickles it, to know its own results again.

    Args:
        tokenizer: the model's.
        columns: where the texts are.
        label: the labels, as the split stores them.
        labels: the classes.
        max_length: longest sequence in tokens.
        in_windows: whether a list of words that is longer becomes several samples, in which each word counts once.
            Everything else that is longer is cut.
    """

    tokenizer: PreTrainedTokenizerBase
    columns: TextColumns
    label: LabelColumn
    labels: Labels
    max_length: int
    in_windows: bool = False

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Make samples of a batch of rows; of each row, COUNTS tell on its first sample what was cut."""
        values = (
            self.label.value_in({name: rows[name][i] for name in self.label.columns}) for i in range(len(rows[ID]))
        )
        labels: list[Any] = [self.labels.encode(value, self.label) for value in values]
        texts = [rows[column] for column in self.columns.texts]
        if self.label.task == "token-classification":
            return self.of_words(texts[0], labels, rows[ID])
        encoded = self.tokenizer(*texts, truncation=True, max_length=self.max_length)
        full = [i for i, ids in enumerate(encoded["input_ids"]) if len(ids) == self.max_length]
        cut = {i for i in full if len(self.whole(*(column[i] for column in texts))["input_ids"]) > self.max_length}
        counts = {name: [0] * len(labels) for name in COUNTS}
        return {
            **encoded,
            "labels": labels,
            "id": rows[ID],
            **counts,
            "cut": [int(i in cut) for i in range(len(labels))],
        }

    def whole(self, *texts: Any, words: bool = False) -> BatchEncoding:
        """Texts, not cut."""
        return self.tokenizer(*texts, is_split_into_words=words, truncation=False, verbose=False)

    def of_words(self, texts: list[list[str]], labels: list[list[int]], ids: list[int]) -> dict[str, list[Any]]:
        """Make samples of a batch of lists of words."""
        whole = self.whole(texts, words=True)
        samples: list[dict[str, Any]] = []
        for i, words in enumerate(texts):
            encoded = {name: values[i] for name, values in whole.items()}
            samples += self.of_list(words, labels[i], ids[i], encoded, whole.word_ids(i))
        return {name: [sample[name] for sample in samples] for name in samples[0]}

    def of_list(
        self, words: list[str], labels: list[int], row: int, encoded: dict[str, Any], word_ids: list[int | None]
    ) -> list[dict[str, Any]]:
        """Make the samples of one list of words, of which the tokenizer's whole result is there."""
        is_long = len(word_ids) > self.max_length
        parts = [(Window(0, 0, len(words), len(words)), encoded, word_ids)]
        if is_long:
            parts = [
                (each, *self.shortened(words[each.start : each.end])) for each in self.windows_of(word_ids, words)
            ]
        samples: list[dict[str, Any]] = []
        lost = {word for word, label in enumerate(labels) if label != IGNORED}
        for window, encoded, word_ids in parts:
            own = [label if window.first <= word < window.last else IGNORED for word, label in enumerate(labels)]
            counts = dict.fromkeys(COUNTS, 0)
            samples.append({**encoded, "labels": on_first_pieces(own[window.start :], word_ids), "id": row, **counts})
            present = {window.start + word for word in word_ids if word is not None}
            lost -= present & set(range(window.first, window.last))
        samples[0]["cut"] = int(is_long and not self.in_windows)
        samples[0]["in_windows"] = int(is_long and self.in_windows)
        samples[0]["lost_labels"] = len(lost)
        samples[0]["lost_entities"] = lost_entities(self.labels.names, labels, lost)
        return samples

    def windows_of(self, word_ids: list[int | None], words: list[str]) -> list[Window]:
        """How a list of words is shortened, of which the tokenizer's whole result is there."""
        if not self.in_windows:
            return [Window(0, 0, len(words), len(words))]
        pieces = Counter(word_ids)
        return windows([pieces[word] for word in range(len(words))], self.max_length - pieces[None])

    def shortened(self, words: list[str]) -> tuple[dict[str, Any], list[int | None]]:
        """A list of words, cut where it is longer, and of each token its word."""
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.max_length)
        return dict(encoded), encoded.word_ids()

    def features(self) -> datasets.Features:
        """The types of samples: as small as `datasets` makes them by itself."""
        label = {
            "single-label": Value("int64"),
            "regression": Value("float64"),
            "multi-label": datasets.Sequence(Value("float64")),
            "token-classification": datasets.Sequence(Value("int64")),
        }
        small = {"input_ids": "int32", "token_type_ids": "int8", "attention_mask": "int8"}
        names = self.tokenizer("a").keys()
        entries = {name: datasets.Sequence(Value(small.get(name, "int64"))) for name in names}
        numbers = dict.fromkeys(("id", *COUNTS), Value("int64"))
        return datasets.Features({**entries, "labels": label[self.label.task], **numbers})

    def of_row(self, row: dict[str, Any], seed: int, epoch: int, *, where: str) -> dict[str, Any]:
        """Make a sample of one row of a stream, in which nothing is random.

        Raises:
            ValueError: something is wrong with the row.
        """
        problem = (
            self.columns.bad(row)
            or self.label.problem_in(self.label.value_in(row))
            or self.columns.wrong(row, self.label.task)
        )
        if problem:
            raise ValueError(f"{where}: {problem} in row {row[ID]} (counted from 0)")
        try:
            batch = self({name: [value] for name, value in row.items()})
        except UnknownLabelError as error:
            raise ValueError(f"{where}: {error}, in row {row[ID]} (counted from 0)") from None
        if any(batch[name][0] for name in COUNTS):
            logger.warning_once(f"{where}: some texts are longer than {self.max_length} tokens, and are cut")
        return {name: values[0] for name, values in batch.items() if name not in COUNTS}


def on_first_pieces(labels: list[int], word_ids: list[int | None]) -> list[int]:
    """Give a word's label to its first piece; the other pieces, and what is no word, are ignored."""
    return [
        labels[word] if word is not None and (i == 0 or word_ids[i - 1] != word) else IGNORED
        for i, word in enumerate(word_ids)
    ]


@dataclass
class TextCollator:
    """Pads texts to a batch.

    Args:
        tokenizer: knows how to pad.
        words: whether each word has its label.
    """

    tokenizer: PreTrainedTokenizerBase
    words: bool

    def __call__(self, samples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Make a batch, with the samples' ids beside; of no samples, an empty one."""
        if not samples:
            return {}
        collator = (DataCollatorForTokenClassification if self.words else DataCollatorWithPadding)(self.tokenizer)
        features = [{name: value for name, value in sample.items() if name != "id"} for sample in samples]
        return {**collator(features), "ids": torch.tensor([sample["id"] for sample in samples])}


def check_length(tokenizer: PreTrainedTokenizerBase, max_length: int, *, pairs: bool) -> None:
    """Refuse a length at which nothing is left of a text.

    Raises:
        ValueError: the tokenizer's own tokens fill it.
    """
    own = tokenizer.num_special_tokens_to_add(pair=pairs)
    if max_length <= own:
        raise ValueError(
            f"max_length={max_length} leaves no room for a text: the tokenizer adds {own} tokens of its own"
        )


def length_of_samples(max_length: int | None, tokenizer: PreTrainedTokenizerBase, longest: int | None) -> int:
    """The longest sequence in tokens; a smaller length that the tokenizer was made for counts, and is said.

    Args:
        max_length: what is asked for; None for LENGTH, or what the model and the tokenizer have.
        tokenizer: the model's.
        longest: how many tokens the model has positions for; None for any number.

    Raises:
        ValueError: more is asked for than the model has positions for.
    """
    if max_length is None:
        return min(LENGTH, tokenizer.model_max_length, longest or LENGTH)
    if longest is not None and max_length > longest:
        raise ValueError(f"max_length={max_length} is more than the {longest} tokens that the model has positions for")
    if max_length > tokenizer.model_max_length:
        logger.warning(
            f"max_length={max_length}: the tokenizer's model_max_length is {tokenizer.model_max_length}, and counts"
        )
    return min(max_length, tokenizer.model_max_length)


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, task: str) -> None:
    """Refuse a tokenizer that cannot do a task.

    Raises:
        ValueError: it cannot pad, or cannot tell which word a piece belongs to.
    """
    if tokenizer.pad_token is None:
        raise ValueError(f"the tokenizer ({type(tokenizer).__name__}) has no padding token, which batches need")
    if task == "token-classification" and not tokenizer.is_fast:
        raise ValueError(f"token-classification needs a fast tokenizer; {type(tokenizer).__name__} is not one")
