"""Which tasks must follow which, however many of them use one buffer."""

from __future__ import annotations

import dataclasses
import itertools
import random

import numpy as np
import pytest

from kernelgraph.runtime.program.dag import transitive_predecessors_in_dag
from kernelgraph.runtime.program.program import (
    Buffer,
    Library,
    Program,
    Region,
    Task,
    regions_overlap,
    task_dependences_of_program,
)


def random_region(rng: random.Random) -> Region:
    count, step = rng.randint(0, 4), rng.choice([-8, 8, 16])
    return Region(rng.randrange(2), rng.randrange(8, 25) * 8, (count,), (step,), 8)


@pytest.mark.parametrize("anti", [True, False])
@pytest.mark.parametrize("tasks", [5, 20, 90])
def test_tasks_follow_those_that_write_what_they_touch(tasks: int, anti: bool) -> None:
    rng = random.Random(tasks)
    for _ in range(20):
        made = tuple(
            Task(
                "t",
                Library("host"),
                (),
                tuple(random_region(rng) for _ in range(rng.randrange(3))),
                tuple(random_region(rng) for _ in range(rng.randrange(2))),
            )
            for _ in range(tasks)
        )
        program = Program((Buffer(400, "temp"),) * 2, made, (), ())
        for number, found in enumerate(task_dependences_of_program(program, anti)):
            task = made[number]
            expected = {
                other
                for other, earlier in enumerate(made[:number])
                if any(regions_overlap(a, b) for a in (*task.reads, *task.writes) for b in earlier.writes)
                or (anti and any(regions_overlap(a, b) for a in task.writes for b in earlier.reads))
            }
            assert found == expected


def on_few_elements(tasks: int) -> Program:
    rng = random.Random(tasks)

    def an_element() -> Region:
        return Region(0, rng.randrange(20) * 8, (1,), (8,), 8) if rng.random() < 0.95 else Region(0, 0, (20,), (8,), 8)

    made = tuple(Task("t", Library("host"), (), (an_element(),), (an_element(),)) for _ in range(tasks))
    return Program((Buffer(160, "temp"),), made, (), ())


@pytest.mark.parametrize("anti", [True, False])
def test_who_follows_the_last_writer_follows_all(anti: bool) -> None:
    program, expected = on_few_elements(400), list[int]()
    for number, task in enumerate(program.tasks):
        mask = 0
        for other, earlier in enumerate(program.tasks[:number]):
            meets = any(regions_overlap(a, b) for a in (*task.reads, *task.writes) for b in earlier.writes)
            if meets or (anti and any(regions_overlap(a, b) for a in task.writes for b in earlier.reads)):
                mask |= expected[other] | 1 << other
        expected.append(mask)
    assert transitive_predecessors_in_dag(task_dependences_of_program(program, anti)) == expected


def test_dependences_grow_with_the_tasks() -> None:
    few, many = (sum(map(len, task_dependences_of_program(on_few_elements(n)))) for n in (1000, 4000))
    assert many < 6 * few  # pairs of all: 16


def test_regions_of_other_ranks_overlap_where_they_share_bytes() -> None:
    rng, apart = np.random.default_rng(5), 0
    for _ in range(2000):
        regions = []
        for _ in range(2):
            rank = int(rng.integers(1, 4))
            strides = tuple(int(s) for s in rng.choice([4, 4, 40, -40, 12], rank))
            regions.append(Region(0, 200, tuple(map(int, rng.integers(1, 4, rank))), strides, 4))
        moved = dataclasses.replace(regions[1], offset=200 + 4 * int(rng.integers(-20, 20)))
        places = []
        for region in (regions[0], moved):
            steps = (range(0, n * s, s) for n, s in zip(region.shape, region.strides, strict=True))
            places.append({region.offset + sum(step) for step in itertools.product(*steps)})
        meet = bool(places[0] & places[1])
        apart += not meet and not regions_overlap(regions[0], moved)
        assert regions_overlap(regions[0], moved) or not meet, (regions[0], moved)
    assert apart > 400
