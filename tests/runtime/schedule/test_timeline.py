"""The predicted timeline is the cost model's own: it ends where `simulate` ends, and each start has a cause."""

from __future__ import annotations

from random import Random

import pytest

from kernelgraph.runtime.program.plan import happens_before_relation_of_plan
from kernelgraph.runtime.schedule.cost_model import MACHINES, MachineModel
from kernelgraph.runtime.schedule.schedule import predicted_microseconds, schedule
from kernelgraph.runtime.schedule.timeline import critical_path_of_timeline, predict_timeline
from tests.runtime.dags import random_program


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda m: m.name)
def test_a_timeline_ends_where_the_model_predicts(machine: MachineModel) -> None:
    rng = Random(3)
    for _ in range(300):
        program = random_program(rng, rng.randint(1, 20))
        plan = schedule(program, rng.choice(["auto", "max", 3]), join_points=False, machine=machine)
        found = predict_timeline(plan, machine)
        assert [i.task for i in found] == list(range(len(plan.tasks)))
        assert max(i.end for i in found) == predicted_microseconds(plan)


def test_a_start_follows_its_cause_and_all_that_it_must() -> None:
    """With join points too; and the critical path is a chain of causes from a launch to the end."""
    machine, rng = MACHINES["fake"], Random(4)
    for _ in range(200):
        plan = schedule(random_program(rng, rng.randint(1, 20)), rng.choice(["max", 4]), machine=machine)
        found, before = predict_timeline(plan, machine), happens_before_relation_of_plan(plan)
        for each in found:
            assert all(
                found[p].end <= each.start for p in range(len(found)) if before[each.task] >> p & 1 and p != each.task
            )
            if each.after is not None:
                assert each.cause == ("stream" if found[each.after].stream == each.stream else "event")
                gap = machine.gap if each.cause == "stream" else machine.hop
                assert each.start == pytest.approx(found[each.after].end + gap)
        path = critical_path_of_timeline(found)
        assert found[path[0]].cause == "launch" and found[path[-1]].end == max(i.end for i in found)
