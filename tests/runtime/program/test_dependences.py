"""Which tasks must follow which, however many of them use one buffer."""

from __future__ import annotations

import random

import pytest

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
