"""Long lists of words with labels in windows, so that no word loses its label; and what cutting them loses."""

from collections.abc import Sequence
from typing import NamedTuple

from .metrics import IGNORED, entities, is_iob


class Window(NamedTuple):
    """A run of words, all as numbers of words.

    Args:
        start: the first.
        first: the first that counts; those before are context.
        last: the one after the last that counts; those from here on are context.
        end: the one after the last.
    """

    start: int
    first: int
    last: int
    end: int


def windows(pieces: Sequence[int], room: int) -> list[Window]:
    """Cut words into windows, in which each word counts once, with up to a quarter of a window on either side of it.

    Args:
        pieces: how many tokens each word has.
        room: for how many tokens a window has room. A word with more of them has a window of its own, and is cut.
    """
    context = room // 4
    found, first = [], 0
    while first < len(pieces):
        start, used = first, 0
        while start > 0 and used + pieces[start - 1] <= context:
            start -= 1
            used += pieces[start]
        last, used = first + 1, used + pieces[first]
        while last < len(pieces) and used + pieces[last] <= room - context:
            used += pieces[last]
            last += 1
        end = last
        while end < len(pieces) and used + pieces[end] <= room:
            used += pieces[end]
            end += 1
        if end == len(pieces):
            last = end
        found.append(Window(start, first, last, end))
        first = last
    return found


def lost_entities(names: list[str], labels: list[int], lost: set[int]) -> int:
    """How many entities have words that lost their labels; 0 where labels are no IOB tags.

    Args:
        names: of the classes.
        labels: of each word its class, or -100.
        lost: numbers of the words that lost them.
    """
    if not is_iob(names):
        return 0
    words = [word for word, label in enumerate(labels) if label != IGNORED]
    found = entities([names[labels[word]] for word in words])
    return sum(not lost.isdisjoint(words[start:end]) for start, end, _ in found)
