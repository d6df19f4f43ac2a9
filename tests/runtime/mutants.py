"""Plans made wrong on purpose, one kind of mistake at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from kernelgraph.runtime.program.plan import Launch, Plan, Record, Step, Wait
from kernelgraph.runtime.program.program import Task


def _without(plan: Plan, i: int) -> Plan:
    return replace(plan, steps=plan.steps[:i] + plan.steps[i + 1 :])


def _moved(plan: Plan, i: int, to: int) -> Plan:
    steps = list(plan.steps)
    steps.insert(to, steps.pop(i))
    return replace(plan, steps=tuple(steps))


def _numbers(plan: Plan, kind: type[Step]) -> list[int]:
    return [i for i, step in enumerate(plan.steps) if isinstance(step, kind)]


def dropped_wait(rng: Random, plan: Plan) -> Iterator[Plan]:
    for i in _numbers(plan, Wait):
        yield _without(plan, i)


def dropped_record(rng: Random, plan: Plan) -> Iterator[Plan]:
    for i in _numbers(plan, Record):
        yield _without(plan, i)


def dropped_launch(rng: Random, plan: Plan) -> Iterator[Plan]:
    for i in _numbers(plan, Launch):
        yield _without(plan, i)


def late_wait(rng: Random, plan: Plan) -> Iterator[Plan]:
    """A wait that is put after the launch it was meant for."""
    for i in _numbers(plan, Wait):
        launches = [j for j in _numbers(plan, Launch) if j > i and plan.steps[j].stream == plan.steps[i].stream]
        if launches:
            yield _moved(plan, i, launches[0])


def early_record(rng: Random, plan: Plan) -> Iterator[Plan]:
    """A record that is put before the launch it was meant for."""
    for i in _numbers(plan, Record):
        launches = [j for j in _numbers(plan, Launch) if j < i and plan.steps[j].stream == plan.steps[i].stream]
        if launches:
            yield _moved(plan, i, launches[-1])


def moved_stream(rng: Random, plan: Plan) -> Iterator[Plan]:
    for i in _numbers(plan, Launch):
        if plan.streams > 1:
            other = rng.choice([s for s in range(plan.streams) if s != plan.steps[i].stream])
            yield replace(plan, steps=(*plan.steps[:i], replace(plan.steps[i], stream=other), *plan.steps[i + 1 :]))


def swapped_launches(rng: Random, plan: Plan) -> Iterator[Plan]:
    """Two launches change places."""
    launches = _numbers(plan, Launch)
    for _ in range(min(3, len(launches) - 1)):
        i, j = rng.sample(launches, 2)
        steps = list(plan.steps)
        a, b = steps[i], steps[j]
        steps[i], steps[j] = replace(a, task=b.task), replace(b, task=a.task)  # type: ignore[union-attr, call-arg]
        yield replace(plan, steps=tuple(steps))


def overlapped_offset(rng: Random, plan: Plan) -> Iterator[Plan]:
    """A temporary is put where another one is, in whole or in part."""
    temps = [b for b, offset in enumerate(plan.offsets) if offset is not None]
    for b in temps:
        for other in rng.sample(temps, min(2, len(temps))):
            if plan.offsets[b] != plan.offsets[other]:
                nbytes = plan.program.buffers[b].nbytes
                offset = max(0, (plan.offsets[other] or 0) + rng.choice([0, 0, 256, -256]))
                offsets = (*plan.offsets[:b], offset, *plan.offsets[b + 1 :])
                yield replace(plan, offsets=offsets, arena_bytes=max(plan.arena_bytes, offset + nbytes))


def premature_completion(rng: Random, plan: Plan) -> Iterator[Plan]:
    """An output is said to be ready at another event, or at one recorded somewhere before."""
    for i, event in enumerate(plan.completion):
        others = [e for e in range(plan.events) if e != event]
        if others:
            yield replace(plan, completion=(*plan.completion[:i], rng.choice(others), *plan.completion[i + 1 :]))
        at = rng.randrange(len(plan.steps) + 1)
        early = Record(rng.randrange(plan.streams), plan.events)
        steps = (*plan.steps[:at], early, *plan.steps[at:])
        completion = (*plan.completion[:i], plan.events, *plan.completion[i + 1 :])
        yield replace(plan, steps=steps, events=plan.events + 1, completion=completion)


def neighbours_in_place(rng: Random, plan: Plan) -> Iterator[Plan]:
    """A task in place reads an element further on, or backwards, or does not say that it is in place."""

    def with_task(number: int, task: Task) -> Plan:
        tasks = (*plan.tasks[:number], task, *plan.tasks[number + 1 :])
        return replace(plan, program=replace(plan.program, tasks=tasks))

    for number, task in enumerate(plan.tasks):
        for i, read in enumerate(task.reads):
            if read.buffer not in task.same_element or not any(read == write for write in task.writes):
                continue
            yield with_task(number, replace(task, same_element=frozenset()))
            nbytes = plan.program.buffers[read.buffer].nbytes
            shifted = replace(read, offset=read.offset + rng.choice([-1, 1]) * read.strides[0])
            last = read.offset + (read.shape[0] - 1) * read.strides[0]
            turned = replace(read, offset=last, strides=(-read.strides[0],))
            for changed in (shifted, turned):
                if changed.span[0] >= 0 and changed.span[1] <= nbytes:
                    yield with_task(number, replace(task, reads=(*task.reads[:i], changed, *task.reads[i + 1 :])))


Mutation = Callable[[Random, Plan], Iterator[Plan]]
MUTATIONS: Sequence[Mutation] = (
    dropped_wait,
    dropped_record,
    dropped_launch,
    late_wait,
    early_record,
    moved_stream,
    swapped_launches,
    overlapped_offset,
    premature_completion,
    neighbours_in_place,
)
