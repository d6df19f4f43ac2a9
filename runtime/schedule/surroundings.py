"""What surrounds a program in a larger plan. When its inputs come, what is sent of its outputs, and orders for that.

What is sent should be there early, since it travels while the rest is computed; its own end does not tell a program so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..core.frozen import frozen
from ..program.dag import members_of_bitmask, transitive_predecessors_in_dag
from ..program.program import Program


@frozen
class Send:
    """Outputs of a program, by their places, that leave together once all are there; the microseconds that it takes."""

    outputs: tuple[int, ...]
    cost: float


@frozen
class Surroundings:
    """arrivals[i]: which in turn input `i` comes, 0 for what is there from the start; sends: one after the other.
    reads_peers: some inputs lie on other devices, whose links are all to be in use."""

    arrivals: tuple[int, ...] = ()
    sends: tuple[Send, ...] = ()
    reads_peers: bool = False

    def __bool__(self) -> bool:
        return bool(self.sends) or any(self.arrivals)


@frozen
class TaskSend:
    """The tasks that write what leaves together; the microseconds that it takes."""

    tasks: frozenset[int]
    cost: float


ALONE = Surroundings()


def scheduled_sends_of_tasks(program: Program, surroundings: Surroundings) -> tuple[TaskSend, ...]:
    """The sends, by the tasks that write what is sent."""
    writers: dict[int, set[int]] = {}
    for number, task in enumerate(program.tasks):
        for region in task.writes:
            writers.setdefault(region.buffer, set()).add(number)
    return tuple(
        TaskSend(frozenset(t for o in send.outputs for t in writers.get(program.outputs[o], ())), send.cost)
        for send in surroundings.sends
    )


def serial_order(
    program: Program, preds: Sequence[Collection[int]], surroundings: Surroundings, sends: Sequence[TaskSend]
) -> tuple[int, ...]:
    """The tasks in an order that keeps the dependences: what needs late inputs late, and of the rest first what the
    first send needs, then what the next does. Without surroundings it is the program's."""
    above = transitive_predecessors_in_dag(preds)
    done, by_sends = 0, list[int]()
    for needed in (*(above[t] | 1 << t for send in sends for t in sorted(send.tasks)), (1 << len(preds)) - 1):
        by_sends += members_of_bitmask(needed & ~done)
        done |= needed
    arrival = dict(zip(program.inputs, surroundings.arrivals, strict=False))
    late = [0] * len(preds)
    for v, task in enumerate(program.tasks):
        late[v] = max([arrival.get(r.buffer, 0) for r in task.reads] + [late[p] for p in preds[v]], default=0)
    return tuple(sorted(by_sends, key=late.__getitem__))


def scheduled_end_of_sends(sends: Sequence[TaskSend], end: Mapping[int, float]) -> float:
    """When the last is sent; end: of the tasks, in microseconds. One is sent at a time."""
    clock = 0.0
    for send in sends:
        clock = max([clock, *(end[t] for t in send.tasks)]) + send.cost
    return clock
