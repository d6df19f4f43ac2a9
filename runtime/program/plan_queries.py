"""What the steps of a plan order, and where a caller's stream meets it."""

from __future__ import annotations

from ..core.frozen import dataclass
from .plan import Launch, Plan, Record, Wait

ENTRY = -1  # in place of a buffer, in what a run comes after: the whole plan


@dataclass(frozen=True, slots=True)
class PlanBoundary:
    """roots: numbers of the steps that launch the first task of a stream which follows no other: one wait for each, on
    one event of the caller's stream, and everything follows it.
    exits: the outputs whose completion events precede no other's: once these have happened, every task is done."""

    roots: tuple[int, ...]
    exits: tuple[int, ...]


def plan_boundary(plan: Plan) -> PlanBoundary:
    """The borders of a plan whose every task precedes some output's completion. The verifier proves that."""
    entered = [False] * plan.streams  # whether all that comes on a stream follows a root
    roots: list[int] = []
    known = [0] * plan.streams  # the set of tasks that what comes on a stream follows
    recorded: dict[int, tuple[int, bool]] = {}
    for number, step in enumerate(plan.steps):
        s = step.stream
        if isinstance(step, Record):
            recorded[step.event] = known[s], entered[s]
        elif isinstance(step, Wait):
            before, follows = recorded[step.event]
            known[s] |= before
            entered[s] |= follows
        elif isinstance(step, Launch):
            if not entered[s]:
                roots.append(number)
                entered[s] = True
            known[s] |= 1 << step.task
    done = {recorded[e][0]: i for i, e in reversed(list(enumerate(plan.completion))) if recorded[e][0]}
    exits = [i for tasks, i in done.items() if not any(tasks != other and tasks & ~other == 0 for other in done)]
    return PlanBoundary(tuple(roots), tuple(sorted(exits)))


def happens_before(plan: Plan) -> list[int]:
    """For each task, as bits, the tasks that are done when it is. It is one of them; the plan's steps alone decide."""
    before = [0] * len(plan.tasks)
    known = [0] * plan.streams
    events = [0] * plan.events
    for step in plan.steps:
        match step:
            case Launch(s, task):
                known[s] |= 1 << task
                before[task] = known[s]
            case Record(s, event):
                events[event] = known[s]
            case Wait(s, event):
                known[s] |= events[event]
    return before
