"""The least of all cuts, beside all cuts."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from kernelgraph.compiler.core.minimum_cut import SINK, SOURCE, FlowNetwork


def least_cut(count: int, edges: list[tuple[int, int, int]]) -> int:
    """By trying every side for every vertex but the source and the sink."""
    best = 1 << 60
    for inner in itertools.product((False, True), repeat=count - 2):
        side = (True, False, *inner)
        best = min(best, sum(c for a, b, c in edges if side[a] and not side[b]))
    return best


@pytest.mark.parametrize("seed", range(60))
def test_a_minimum_cut_is_the_least_of_all(seed: int) -> None:
    rng = Random(seed)
    count = rng.randint(3, 8)
    edges = [(*rng.sample(range(count), 2), rng.randint(0, 9)) for _ in range(rng.randint(2, 20))]
    network = FlowNetwork()
    for _ in range(count - 2):
        network.vertex()
    for edge in edges:
        network.edge(*edge)
    side = network.source_side()
    assert side[SOURCE] and not side[SINK]
    assert sum(c for a, b, c in edges if side[a] and not side[b]) == least_cut(count, edges)
