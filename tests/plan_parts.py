"""What a plan over several devices or ranks launches together: tasks of one device, and what is between them."""

from __future__ import annotations

from itertools import groupby

from kernelgraph.runtime.program.collective import Collective
from kernelgraph.runtime.program.plan import Launch, Plan, is_device_copy


def is_between(plan: Plan, task: int) -> bool:
    """Whether it is a copy between devices or a collective."""
    return isinstance(plan.tasks[task].kernel, Collective) or is_device_copy(plan.program, plan.tasks[task])


def parts(plan: Plan) -> list[tuple[int, list[int]]]:
    """(device, tasks) in the order of the steps; what is between devices is a part of its own."""
    launched = [step for step in plan.steps if isinstance(step, Launch)]
    homes = plan.homes or (0,) * plan.streams
    found = groupby(launched, lambda s: (homes[s.stream], s.task if is_between(plan, s.task) else -1))
    return [(home, [step.task for step in steps]) for (home, _), steps in found]


def computing(plan: Plan) -> list[tuple[int, list[int]]]:
    """The parts that compute."""
    return [(home, tasks) for home, tasks in parts(plan) if not is_between(plan, tasks[0])]


def read(plan: Plan, task: int) -> list[int]:
    return [region.buffer for region in plan.tasks[task].reads]


def written(plan: Plan, task: int) -> list[int]:
    return [region.buffer for region in plan.tasks[task].writes]
