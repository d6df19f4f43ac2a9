"""When the cost model has each task of a Plan start and end. And what it starts after. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.frozen import frozen
from ..program.plan import Launch, Plan, Record
from .cost_model import MachineModel, machine_share_of_task, predict_task_times


@frozen
class Interval:
    """A task's predicted time on its stream, in microseconds from the call.

    cause: why it starts no sooner: `launch` (the host has not come to it), `stream` (the task before it on its stream),
    or `event` (a task of another stream). after: that task, or None.
    """

    task: int
    stream: int
    start: float
    end: float
    cause: str
    after: int | None = None


def predict_timeline(plan: Plan, machine: MachineModel) -> tuple[Interval, ...]:
    """The predicted time of each task, in task order. The last end is what `simulate` predicts for the plan's steps.

    >>> [f"t{i.task} {i.start}-{i.end} {i.cause}" for i in timeline(plan, machine)]  # doctest: +SKIP
    ['t0 0.2-9.0 launch', 't1 9.1-12.0 stream']
    """
    order, stream, waits = tasks_in_issue_order(plan)
    costs = [task.cost for task in plan.tasks]
    shares = [machine_share_of_task(task, machine) for task in plan.tasks]
    issued, start, end = predict_task_times(order, stream, waits, costs, shares, machine)
    found: list[Interval | None] = [None] * len(plan.tasks)
    latest: dict[int, int] = {}
    for v in order:
        before = latest.get(stream[v])
        bounds: list[tuple[float, str, int | None]] = [(issued[v], "launch", None)]
        bounds += [] if before is None else [(end[before] + machine.gap, "stream", before)]
        bounds += [(end[p] + machine.hop, "event", p) for p in waits[v]]
        _, cause, after = max(bounds, key=lambda bound: bound[0])
        found[v] = Interval(v, stream[v], start[v], end[v], cause, after)
        latest[stream[v]] = v
    return tuple(interval for interval in found if interval is not None)


def tasks_in_issue_order(plan: Plan) -> tuple[list[int], list[int], list[Sequence[int]]]:
    """The tasks as issued. For each its stream, and the tasks of other streams that it waits for.

    An event recorded where several streams are joined stands for the last tasks of all of them."""
    order: list[int] = []
    stream = [0] * len(plan.tasks)
    waits: list[Sequence[int]] = [()] * len(plan.tasks)
    last: list[tuple[int, ...]] = [()] * plan.streams  # the tasks that what comes next on a stream directly follows
    recorded: dict[int, tuple[int, ...]] = {}
    for step in plan.steps:
        s = step.stream
        if isinstance(step, Launch):
            stream[step.task] = s
            waits[step.task] = tuple(p for p in last[s] if stream[p] != s)
            last[s] = (step.task,)
            order.append(step.task)
        elif isinstance(step, Record):
            recorded[step.event] = last[s]
        else:
            last[s] = tuple(dict.fromkeys((*last[s], *recorded[step.event])))
    return order, stream, waits


def critical_path_of_timeline(intervals: Sequence[Interval]) -> tuple[int, ...]:
    """The tasks that the predicted end waits for, in order: each starts when the one before it lets it."""
    path: list[int] = []
    at: int | None = max(intervals, key=lambda i: i.end).task if intervals else None
    while at is not None:
        path.append(at)
        at = intervals[at].after
    return tuple(reversed(path))
