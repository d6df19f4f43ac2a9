"""What the steps of a finished plan order: a Plan in, what happens before what out."""

from __future__ import annotations

from .dag import bits
from .plan import Launch, Plan, Record, Wait


def happens_before(plan: Plan) -> list[int]:
    """For each task the set of tasks, itself included, that are done when it is done, by the plan's steps alone."""
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


def first_users(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """For each buffer the tasks that touch it first: those that an event of the buffer must be waited for by.

    All other tasks that touch the buffer follow one of them.
    """
    users = [0] * len(plan.program.buffers)
    for number, task in enumerate(plan.tasks):
        for region in (*task.reads, *task.writes):
            users[region.buffer] |= 1 << number
    before = happens_before(plan)
    return tuple(tuple(v for v in bits(mask) if not before[v] & ~(1 << v) & mask) for mask in users)
