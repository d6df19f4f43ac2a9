"""What is sent leaves early and what comes late is read late; times include what is sent."""

from __future__ import annotations

from random import Random

import pytest

from kernelgraph.runtime.program.dag import members_of_bitmask, transitive_predecessors_in_dag
from kernelgraph.runtime.program.plan import Launch
from kernelgraph.runtime.program.program import Program, task_dependences_of_program
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import predicted_microseconds, schedule
from kernelgraph.runtime.schedule.surroundings import Send, Surroundings, scheduled_sends_of_tasks, serial_order
from kernelgraph.runtime.schedule.timeline import predict_timeline
from kernelgraph.runtime.verify.plan import require_safe_plan
from tests.runtime.dags import random_program

FAKE = MACHINES["fake"]


def surrounded(rng: Random, program: Program) -> Surroundings:
    outputs = [*range(len(program.outputs))]
    rng.shuffle(outputs)
    sends = tuple(Send((o,), rng.uniform(0, 40)) for o in outputs[: rng.randint(0, len(outputs))])
    return Surroundings(tuple(rng.choice([0, 0, 1, 2]) for _ in program.inputs), sends)


@pytest.mark.parametrize("seed", range(5))
def test_orders_and_plans_of_random_surroundings(seed: int) -> None:
    """Orders keep the dependences; without late inputs only what a send or one before it needs comes before it; plans
    are safe, and their predicted time has what is sent."""
    rng = Random(seed)
    for _ in range(60):
        program = random_program(rng, rng.randint(1, 20))
        around = surrounded(rng, program)
        preds = task_dependences_of_program(program)
        sends = scheduled_sends_of_tasks(program, around)
        order = serial_order(program, preds, around, sends)
        place = {v: i for i, v in enumerate(order)}
        assert sorted(order) == [*range(len(preds))]
        assert all(place[p] < place[v] for v, sources in enumerate(preds) for p in sources)
        early = serial_order(program, preds, Surroundings((), around.sends), sends)
        above = transitive_predecessors_in_dag(preds)
        needed: set[int] = set()
        for send in sends:
            needed |= {*send.tasks} | {p for t in send.tasks for p in members_of_bitmask(above[t])}
            assert {*early[: len(needed)]} == needed
        plan = schedule(program, rng.choice(["auto", 1, 3, "max"]), machine=FAKE, surroundings=around)
        require_safe_plan(plan)
        end = {i.task: i.end for i in predict_timeline(plan, FAKE)}
        clock = 0.0
        for send in sends:
            clock = max([clock, *(end[t] for t in send.tasks)]) + send.cost
        assert predicted_microseconds(plan) == pytest.approx(max([clock, *end.values()]))


def test_late_inputs_are_read_last() -> None:
    rng = Random(3)
    program = random_program(rng, 12)
    preds = task_dependences_of_program(program)
    for turn, last in enumerate(program.inputs):
        around = Surroundings(tuple(int(b == last) for b in program.inputs))
        order = serial_order(program, preds, around, ())
        above = transitive_predecessors_in_dag(preds)
        reading = {v for v, task in enumerate(program.tasks) if any(r.buffer == last for r in task.reads)}
        waiting = [v in reading or any(above[v] >> r & 1 for r in reading) for v in order]
        assert waiting == sorted(waiting), turn


def test_without_surroundings_the_order_is_the_programs() -> None:
    rng = Random(1)
    for _ in range(20):
        program = random_program(rng, rng.randint(1, 20))
        preds = task_dependences_of_program(program)
        assert serial_order(program, preds, Surroundings(), ()) == (*range(len(preds)),)
        plan = schedule(program, 1, machine=FAKE)
        assert [s.task for s in plan.steps if isinstance(s, Launch)] == [*range(len(preds))]
