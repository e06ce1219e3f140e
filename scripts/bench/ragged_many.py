"""Ragged text in a batch of 64, beside the libraries that leave padding out or sort by length.

The more sequences, the more padding remains after sorting. Padded all together they would take minutes a run, so that
the contenders are only those that do not.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from .measure import Section, Timing
from .ragged import TextBench, base, ragged_lengths, small

CONTENDERS = (
    "hf_ffn, optimised",
    "hf_ffn, optimised, int8",
    "OpenVINO, sorted in 2",
    "CTranslate2",
    "CTranslate2, int8",
)


def sections(quick: bool, timing: Timing) -> Iterator[Section]:
    """Short and longer ragged text."""
    count = 8 if quick else 64
    batches = {
        "many ragged, short": ragged_lengths(count, mean=25, longest=68),
        "many ragged, longer": ragged_lengths(count, mean=120, longest=394),
    }
    with tempfile.TemporaryDirectory() as folder:
        bench = TextBench(small() if quick else base(), Path(folder))
        for title, lengths in batches.items():
            yield bench.section(title, lengths, timing.part(len(batches)), CONTENDERS)
