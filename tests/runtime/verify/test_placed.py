"""Plans over several devices: the one verifier proves them whole, and the mistakes that cross a part's border."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kernelgraph.runtime.core.errors import PlanError
from kernelgraph.runtime.program.plan import Launch, is_device_copy
from kernelgraph.runtime.program.sections import DeviceCopy, Section, sections_of_plan
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.counts import examples
from tests.runtime.mutants import Mutation
from tests.runtime.oracles import is_unsafe, run
from tests.runtime.placed_plans import PLACED_MUTATIONS, random_placed_plan


def test_joined_plans_raise_no_alarm_and_compute_the_same_in_any_order() -> None:
    rng = Random(1)
    for turn in range(examples(300)):
        plan = random_placed_plan(rng)
        assert find_plan_violations(plan) == []
        assert not is_unsafe(plan)
        if turn % 5 == 0:
            assert run(plan, rng) == run(plan)


def test_sections_are_safe_plans_of_one_device_that_hold_every_task_once() -> None:
    rng = Random(2)
    for _ in range(examples(200)):
        plan = random_placed_plan(rng)
        parts = sections_of_plan(plan)
        sections = [part for part in parts if isinstance(part, Section)]
        assert sum(len(section.plan.tasks) for section in sections) + len(parts) - len(sections) == len(plan.tasks)
        for section in sections:
            assert find_plan_violations(section.plan) == []
            assert not section.plan.devices and {b.device for b in section.plan.program.buffers} == {0}
            for b in (*section.reads, *section.writes):
                assert plan.reads_peers or plan.program.buffers[b].device == section.device
        copies = [part for part in parts if isinstance(part, DeviceCopy)]
        assert plan.copied_bytes == sum(plan.program.buffers[copy.target].nbytes for copy in copies)


@pytest.mark.parametrize("mutation", PLACED_MUTATIONS, ids=lambda m: m.__name__)
def test_every_unsafe_mutant_of_a_joined_plan_is_caught(mutation: Mutation) -> None:
    rng = Random(3)
    unsafe = 0
    while unsafe < 60:
        plan = random_placed_plan(rng)
        mutants = list(mutation(rng, plan))
        for mutant in rng.sample(mutants, min(3, len(mutants))):
            caught = bool(find_plan_violations(mutant))
            if is_unsafe(mutant):
                unsafe += 1
                assert caught, f"{mutation.__name__}:\n{plan}\n{mutant}"


def test_a_step_that_reads_what_is_not_there_is_not_started() -> None:
    """Sections are started one after another, whatever waits the steps have."""
    rng, refused = Random(4), 0
    while refused < 20:
        plan = random_placed_plan(rng)
        read = {r.buffer for task in plan.tasks for r in task.reads}
        for number, step in enumerate(plan.steps):
            if isinstance(step, Launch) and is_device_copy(plan.program, plan.tasks[step.task]):
                mutant = replace(plan, steps=plan.steps[:number] + plan.steps[number + 1 :])
                if plan.tasks[step.task].writes[0].buffer in read:
                    with pytest.raises(PlanError, match="before it is written"):
                        sections_of_plan(mutant)
                    refused += 1
