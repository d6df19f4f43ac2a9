"""Worlds whose ranks are threads, and of one rank: collectives on arrays, and ranks that are lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgraph.runtime.core.errors import RankError
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.program.world import World
from kernelgraph.runtime.worlds.alone import SingleRankWorld
from kernelgraph.runtime.worlds.threads import ThreadsWorld, run_ranks_as_threads


def every_collective(world: World) -> list[Any]:
    size, rank = world.size, world.rank
    x = np.arange(6 * size).reshape(2 * size, 3) + 100 * rank
    results = [np.empty_like(x), np.empty_like(x[:2]), np.empty((size, *x.shape), x.dtype), np.empty_like(x), x.copy()]
    world.all_reduce(x, results[0], "sum")
    world.reduce_scatter(x, results[1], "max")
    world.all_gather(x, results[2])
    world.all_to_all(x, results[3])
    world.broadcast(results[4], size - 1)
    sent = np.empty_like(x)
    world.permute(x, sent, [(0, size - 1)])
    world.barrier()
    return [*results, sent]


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_collectives(size: int) -> None:
    found = run_ranks_as_threads(size, every_collective) if size else [every_collective(SingleRankWorld())]
    size = max(1, size)
    given = [np.arange(6 * size).reshape(2 * size, 3) + 100 * r for r in range(size)]
    for rank, (added, most, gathered, exchanged, told, sent) in enumerate(found):
        own = slice(2 * rank, 2 * rank + 2)
        np.testing.assert_array_equal(added, sum(given))
        np.testing.assert_array_equal(most, given[-1][own])
        np.testing.assert_array_equal(gathered, given)
        np.testing.assert_array_equal(exchanged, np.concatenate([x[own] for x in given]))
        np.testing.assert_array_equal(told, given[-1])
        np.testing.assert_array_equal(sent, given[0] if rank == size - 1 else np.zeros_like(given[0]))


def test_arrays_that_differ_in_shape_are_an_error_on_all() -> None:
    errors = []

    def run(world: World) -> None:
        x = np.zeros(3 + world.rank)
        try:
            world.all_reduce(x, x.copy(), "sum")
        except RankError as error:
            errors.append(str(error))

    run_ranks_as_threads(2, run)
    assert errors == ["ranks differ: rank 0 has float64[3], rank 1 has float64[4]"] * 2


def test_survivors_go_on_without_those_that_are_lost() -> None:
    def run(world: ThreadsWorld) -> Any:
        if world.rank == 1:
            return None
        with pytest.raises(RankError, match="rank 1 has ended"):
            world.barrier()
        left = world.shrink()
        result = np.empty(1)
        left.all_reduce(np.array([10.0 + world.rank]), result, "sum")
        return left.rank, left.size, float(result[0])

    with override(collective_timeout=30):
        assert run_ranks_as_threads(4, run) == [(0, 3, 35.0), None, (1, 3, 35.0), (2, 3, 35.0)]


def test_a_world_of_one_has_nobody_left() -> None:
    with pytest.raises(RankError, match="only rank"):
        SingleRankWorld().shrink()
