"""Entry and exit: a call lies between what its caller's stream did before and does after, for the fewest waits."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from kernelgraph.runtime.program.plan import Plan, Wait, plan_boundary
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from kernelgraph.runtime.verify.plan import find_boundary_violations
from tests.runtime.dags import random_program


def random_plan(rng: Random) -> Plan:
    program = random_program(rng, rng.randint(1, 15))
    return schedule(program, rng.choice([1, 2, 4, "max"]), machine=MACHINES["fake"], join_points=rng.random() < 0.5)


def test_everything_lies_between_and_every_wait_is_needed() -> None:
    rng = Random(1)
    dropped = 0
    for _ in range(400):
        plan = random_plan(rng)
        ends = plan_boundary(plan)
        assert find_boundary_violations(plan, ends.roots, ends.exits) == []
        for root in ends.roots:
            fewer = [r for r in ends.roots if r != root]
            assert {v.kind for v in find_boundary_violations(plan, fewer, ends.exits)} == {"entry"}
            dropped += 1
        for exit in ends.exits:
            fewer = [e for e in ends.exits if e != exit]
            assert {v.kind for v in find_boundary_violations(plan, ends.roots, fewer)} == {"exit"}
            dropped += 1
    assert dropped > 1000


def test_a_plan_that_loses_a_wait_loses_its_borders() -> None:
    """The borders are those of the plan as it is: what a wait inside ordered, a root or an exit orders instead."""
    rng = Random(2)
    changed = 0
    for _ in range(300):
        plan = random_plan(rng)
        ends = plan_boundary(plan)
        for i, step in enumerate(plan.steps):
            if isinstance(step, Wait):
                less = replace(plan, steps=plan.steps[:i] + plan.steps[i + 1 :])
                found = [v for v in find_boundary_violations(less, [r - (r > i) for r in ends.roots], ends.exits)]
                own = plan_boundary(less)
                assert all(v.kind == "exit" for v in find_boundary_violations(less, own.roots, own.exits))
                changed += bool(found)
    assert changed > 20
