"""Windows hold every word once, and with what is around it."""

import numpy as np
import pytest

from hf_ffn.training.loop import join_windows
from hf_ffn.training.metrics import IGNORED
from hf_ffn.training.windows import lost_entities, windows


@pytest.mark.parametrize("room", [1, 2, 3, 4, 7, 16, 100])
@pytest.mark.parametrize("seed", range(3))
def test_each_word_counts_once_and_its_first_token_has_room(room: int, seed: int) -> None:
    pieces = np.random.default_rng(seed).integers(0, 6, 60).tolist()
    found = windows(pieces, room)
    assert [word for each in found for word in range(each.first, each.last)] == list(range(60))
    for each in found:
        assert 0 <= each.start <= each.first < each.last <= each.end <= 60
        for word in range(each.first, each.last):
            assert pieces[word] == 0 or sum(pieces[each.start : word]) < room


def test_words_have_a_quarter_of_a_window_around_them() -> None:
    found = windows([1] * 40, 16)
    assert found[:2] == [(0, 0, 12, 16), (8, 12, 20, 24)]
    assert found[-1].end == found[-1].last == 40


def test_a_word_longer_than_a_window_has_one_of_its_own() -> None:
    assert windows([1, 30, 1], 8) == [(0, 0, 1, 1), (0, 1, 2, 2), (2, 2, 3, 3)]


def test_entities_are_lost_whole() -> None:
    names = ["O", "B-A", "I-A"]
    labels = [1, 2, 0, IGNORED, 1, IGNORED, 2, 0, 1]
    assert lost_entities(names, labels, set()) == 0
    assert lost_entities(names, labels, {0, 1, 2}) == 1
    assert lost_entities(names, labels, {6, 7}) == 1
    assert lost_entities(names, labels, {1, 4, 8}) == 3
    assert lost_entities(["noun", "verb"], [0, 1], {0}) == 0


def test_what_windows_say_is_put_together_by_sample() -> None:
    logits = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows = [
        (logits[:3], np.array([IGNORED, 0, 1])),
        (logits[3:5], np.array([1, IGNORED])),
        (logits[5:], np.array([0])),
    ]
    joined = join_windows(rows, [0, 0, 1])
    assert [labels.tolist() for _, labels in joined] == [[0, 1, 1], [0]]
    assert [each.tolist() for each, _ in joined] == [[[2, 3], [4, 5], [6, 7]], [[10, 11]]]
