"""What the steps of a finished plan order: a Plan in, what happens before what out."""

from __future__ import annotations

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
