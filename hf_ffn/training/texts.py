"""Texts as samples: tokenized once, by `datasets`, into files that are mapped into memory."""

from dataclasses import dataclass
from typing import Any

import datasets
import torch
from datasets import Value
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding, PreTrainedTokenizerBase

from .arguments import LABEL_COLUMNS, TEXT_COLUMNS, DataArguments
from .label_columns import IGNORED, LabelColumn, label_columns
from .labels import Labels, UnknownLabelError
from .sources import ID, Split


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
    """

    tokenizer: PreTrainedTokenizerBase
    columns: TextColumns
    label: LabelColumn
    labels: Labels
    max_length: int

    def __call__(self, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """Make samples of a batch of rows."""
        words = self.label.task == "token-classification"
        texts = [rows[column] for column in self.columns.texts]
        encoded = self.tokenizer(*texts, is_split_into_words=words, truncation=True, max_length=self.max_length)
        values = (
            self.label.value_in({name: rows[name][i] for name in self.label.columns}) for i in range(len(rows[ID]))
        )
        labels: list[Any] = [self.labels.encode(value, self.label) for value in values]
        if words:
            labels = [on_first_pieces(each, encoded.word_ids(i)) for i, each in enumerate(labels)]
        return {**encoded, "labels": labels, "id": rows[ID]}

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
        return datasets.Features({**entries, "labels": label[self.label.task], "id": Value("int64")})

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
        return {name: values[0] for name, values in batch.items()}


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


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, task: str) -> None:
    """Refuse a tokenizer that cannot do a task.

    Raises:
        ValueError: it cannot pad, or cannot tell which word a piece belongs to.
    """
    if tokenizer.pad_token is None:
        raise ValueError(f"the tokenizer ({type(tokenizer).__name__}) has no padding token, which batches need")
    if task == "token-classification" and not tokenizer.is_fast:
        raise ValueError(f"token-classification needs a fast tokenizer; {type(tokenizer).__name__} is not one")
