"""Boxes found by place, beside a look at each of them."""

from __future__ import annotations

import random

import pytest

from kernelgraph.runtime.core.box_index import Box, BoxIndex, boxes_meet, is_box_within


def a_box(rng: random.Random, rank: int) -> Box:
    def along() -> tuple[int, int]:
        low = rng.randrange(-40, 40) if rng.random() < 0.8 else rng.randrange(-(1 << 62), 1 << 62)
        return low, low + rng.choice((0, 0, 1, 3, 17, 1 << 40))

    return tuple(along() for _ in range(rank))


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_what_is_found_is_what_is_there(rank: int) -> None:
    rng = random.Random(rank)
    index: BoxIndex[list[int]] = BoxIndex()
    known: dict[Box, list[int]] = {}
    for number in range(400):
        box = a_box(rng, rank)
        known.setdefault(box, []).append(number)
        index.put(box, []).append(number)
        while known and rng.random() < (0.4 if number // 80 % 2 else 0.6):  # there come to be more, then few again
            gone = rng.choice([*known])
            index.remove(gone)
            del known[gone]
        asked = a_box(rng, rank)
        assert sorted(index.meeting(asked)) == sorted(v for b, v in known.items() if boxes_meet(b, asked))
        assert sorted(index.within(asked)) == sorted((b, v) for b, v in known.items() if is_box_within(b, asked))


def test_a_look_at_one_place_does_not_see_all_others() -> None:
    index: BoxIndex[int] = BoxIndex()
    for i in range(100):
        for j in range(100):
            index.put(((i, i), (j, j)), 100 * i + j)
    assert index.meeting(((7, 7), (50, 51))) == [750, 751]
    assert sum(map(len, index._cells_near(((7, 7), (50, 51))))) <= 12
