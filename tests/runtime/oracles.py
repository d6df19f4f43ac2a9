"""Oracles that know nothing of the scheduler's or the verifier's methods.

What happens before what is found by walking a graph of steps; whether a plan is safe, by asking for each word read
whether the right write is the last one in every order that the steps allow; what a plan computes, by running it on
symbols in a random order that the steps allow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from random import Random

import numpy as np

from kernelgraph.runtime.program.collective import Collective
from kernelgraph.runtime.program.plan import Launch, Plan, Record, Step, Wait
from kernelgraph.runtime.program.program import Library, Program, Region, Task, regions_overlap
from tests.runtime.dags import WORD

Call = tuple[int, int]  # (call, task)


def naive_reduction(preds: Sequence[frozenset[int]]) -> set[tuple[int, int]]:
    """The edges (u, v) that no longer path implies."""
    paths = naive_closure(preds)
    return {
        (u, v) for v, sources in enumerate(preds) for u in sources if not any(u in paths[w] for w in sources if w != u)
    }


def naive_closure(preds: Sequence[frozenset[int]]) -> list[set[int]]:
    """For each task all tasks that a path leads from."""
    result: list[set[int]] = []
    for sources in preds:
        result.append(set().union(sources, *(result[p] for p in sources)))
    return result


def step_follows(steps: Sequence[Step], skip: int = -1) -> list[int]:
    """For each step the set (as bits) of steps that must be over when it is, by walking the graph of steps.

    A step follows the one before it on its stream, and a wait the record of its event if that was issued before it.
    skip: a step that is left out.
    """
    latest: dict[int, int] = {}
    recorded: dict[int, int] = {}
    follows: list[int] = []
    for i, step in enumerate(steps):
        mask = 1 << i
        if i != skip:
            if step.stream in latest:
                mask |= follows[latest[step.stream]]
            if isinstance(step, Wait) and step.event in recorded:
                mask |= follows[recorded[step.event]]
            latest[step.stream] = i
            if isinstance(step, Record):
                recorded[step.event] = i
        follows.append(mask)
    return follows


def task_follows(plan: Plan, skip: int = -1) -> list[set[int]]:
    """For each task the tasks that are over when it starts."""
    launches = {i: step.task for i, step in enumerate(plan.steps) if isinstance(step, Launch) and i != skip}
    masks = step_follows(plan.steps, skip)
    result: list[set[int]] = [set() for _ in plan.tasks]
    for i, task in launches.items():
        result[task] = {other for j, other in launches.items() if j != i and masks[i] >> j & 1}
    return result


def words_of(area: Region) -> int:
    """The 4-byte words of the region's buffer that it touches, as bits."""
    starts = [area.offset]
    for length, stride in zip(area.shape, area.strides, strict=True):
        starts = [start + i * stride for start in starts for i in range(length)]
    mask = 0
    for start in starts:
        for byte in range(start, start + area.itemsize, WORD):
            mask |= 1 << byte // WORD
    return mask


class Calls:
    """One or more calls of plans: everything read and written by word, and what follows what."""

    def __init__(self) -> None:
        self.follows: dict[Call, set[Call]] = {}
        self.reads: list[tuple[Call, object, object, int]] = []
        self.writes: list[tuple[Call, object, object, int]] = []

    def add(
        self, plan: Plan, call: int = 0, after: Sequence[tuple[int, set[Call]]] = (), arena: object = "arena"
    ) -> None:
        """after: (task, what else is over when it starts)."""
        inside = task_follows(plan)
        extra: dict[int, set[Call]] = {}
        for task, others in after:
            extra.setdefault(task, set()).update(others)
        for number, task in enumerate(plan.tasks):
            me = (call, number)
            over = {(call, other) for other in inside[number]}
            for other in (*inside[number], number):
                over |= extra.get(other, set())
            self.follows[me] = over
            for areas, accesses in ((task.reads, self.reads), (task.writes, self.writes)):
                for area in areas:
                    offset = plan.offsets[area.buffer]
                    mask = words_of(area)
                    memory: object = (call, area.buffer)
                    if offset is not None:
                        memory = arena, plan.program.buffers[area.buffer].device
                        mask <<= offset // WORD
                    accesses.append((me, (call, area.buffer), memory, mask))

    def unsafe_reads(self, ends: Sequence[tuple[int, int, set[int]]] = (), inputs: set[object] = frozenset()) -> bool:
        """Whether some word read may hold another value than when the tasks run in program order.

        ends: (call, output buffer, the tasks over when the caller reads it). inputs: buffers that hold values at the
        start of a call.
        """
        readers = [(me, buffer, memory, mask, self.follows[me]) for me, buffer, memory, mask in self.reads]
        for call, buffer, over in ends:
            full = 0
            for _, other, _, mask in self.writes:
                if other == (call, buffer):
                    full |= mask
            readers.append(((call, 1 << 60), (call, buffer), (call, buffer), full, {(call, t) for t in over}))
        for me, buffer, memory, mask, over in readers:
            rest = mask
            for writer, other, _, written in reversed(self.writes):
                if other != buffer or not writer < me or not (part := rest & written):
                    continue
                rest &= ~written
                if writer not in over or self._disturbed(me, writer, memory, part):
                    return True
            if rest and buffer in inputs and self._disturbed(me, None, memory, rest):
                return True
        return False

    def _disturbed(self, reader: Call, writer: Call | None, memory: object, part: int) -> bool:
        """Whether a third task may write into `part` between the writer and the reader."""
        for third, _, place, mask in self.writes:
            if place != memory or not mask & part or third in (reader, writer):
                continue
            before_writer = writer is not None and third in self.follows[writer]
            if not before_writer and reader not in self.follows[third]:
                return True
        return False


def is_unsafe(plan: Plan) -> bool:
    """Whether one call of the plan, alone on its memory, can go wrong: a read or an output that may get another value,
    a task with neighbours in place, a task that is missing, or one still running when the call has ended."""
    launched = [step.task for step in plan.steps if isinstance(step, Launch)]
    if sorted(launched) != list(range(len(plan.tasks))) or any(map(neighbours_in_place, plan.tasks)):
        return True
    if plan.devices and is_on_wrong_device(plan):
        return True
    calls = Calls()
    calls.add(plan)
    ends = output_ends(plan)
    if plan.program.outputs and set().union(*ends) != set(launched):
        return True
    inputs = {(0, b) for b in plan.program.inputs}
    return calls.unsafe_reads([(0, b, over) for b, over in zip(plan.program.outputs, ends, strict=True)], inputs)


def is_on_wrong_device(plan: Plan) -> bool:
    """Whether some device stumbles over a plan: over memory that is not its own, a copy that does not bring all of a
    buffer to another device, or collectives that come in two orders or miss a device."""
    meeting: list[int] = []
    for step in plan.steps:
        if not isinstance(step, Launch):
            continue
        task, home = plan.tasks[step.task], plan.homes[step.stream]
        read, written = ([plan.program.buffers[r.buffer] for r in rs] for rs in (task.reads, task.writes))
        if isinstance(task.kernel, Collective):
            meeting.append(step.task)
            nbytes = task.kernel.counts[0] * np.dtype(task.kernel.dtype).itemsize
            if any(words_of(r).bit_count() * WORD < nbytes for r in (*task.reads, *task.writes)):
                return True
            devices = list(range(len(plan.devices) if plan.ranks == 1 else 1))
            if [b.device for b in read] != devices or [b.device for b in written] != devices:
                return True
        elif task.name == "copy" and read[0].device != written[0].device:
            spans = {words_of(r) for r in (task.reads[0], task.writes[0])}
            if spans != {(1 << read[0].nbytes // WORD) - 1} or read[0].nbytes != written[0].nbytes:
                return True
        elif any(b.device != home for b in written) or (not plan.reads_peers and any(b.device != home for b in read)):
            return True
    follows = task_follows(plan)
    return any(a not in follows[b] and b not in follows[a] for a in meeting for b in meeting if a != b)


def output_ends(plan: Plan) -> list[set[int]]:
    """For each output the tasks that are over when its completion event has happened."""
    masks = step_follows(plan.steps)
    result = []
    for event in plan.completion:
        records = [i for i, step in enumerate(plan.steps) if isinstance(step, Record) and step.event == event]
        mask = masks[records[-1]] if records else 0
        result.append({s.task for i, s in enumerate(plan.steps) if isinstance(s, Launch) and mask >> i & 1})
    return result


def neighbours_in_place(task: Task) -> bool:
    """Whether some iteration of a kernel reads a word that another one writes."""
    for read in task.reads:
        for write in task.writes:
            if read.buffer != write.buffer or not words_of(read) & words_of(write):
                continue
            if write.buffer not in task.same_element and not isinstance(task.kernel, Library):
                return True
            if read.shape != write.shape:
                return True
            pairs = list(zip(_elements(read), _elements(write), strict=True))
            written = {element: i for i, (_, element) in enumerate(pairs)}
            if any(written.get(element, i) != i for i, (element, _) in enumerate(pairs)):
                return True
    return False


def _elements(area: Region) -> list[int]:
    starts = [area.offset]
    for length, stride in zip(area.shape, area.strides, strict=True):
        starts = [start + i * stride for start in starts for i in range(length)]
    return starts


def run(plan: Plan, rng: Random | None = None) -> list[dict[int, object]]:
    """Each output as the caller sees it, {word: symbol}, after running the steps.

    Without `rng` the tasks run in program order. With it the streams advance in a random order that the events allow,
    and an output is looked at as soon as its event happens.
    """
    memory: dict[object, dict[int, object]] = {}

    def cells(area: Region) -> Iterator[tuple[dict[int, object], int, bool]]:
        offset, buffer = plan.offsets[area.buffer] if rng else None, plan.program.buffers[area.buffer]
        place = memory.setdefault(area.buffer if offset is None else ("arena", buffer.device), {})
        given = buffer.kind == "input"
        for word in bits_of(words_of(area)):
            yield place, word + (offset or 0) // WORD, given

    def launch(number: int) -> None:
        task = plan.tasks[number]
        values: list[object] = []
        for i, area in enumerate(task.reads):
            for place, word, given in cells(area):
                values.append(place.get(word, (area.buffer, word)) if given else place.get(word, "nothing"))
            values.append(i)
        symbol = hash(tuple(values))
        for i, area in enumerate(task.writes):
            for at, (place, word, _) in enumerate(cells(area)):
                place[word] = hash((symbol, number, i, at))

    seen: dict[int, dict[int, object]] = {}
    if rng is None:
        for number in range(len(plan.tasks)):
            launch(number)
        return [dict(memory.get(b, {})) for b in plan.program.outputs]
    queues: dict[int, list[Step]] = {}
    for step in plan.steps:
        queues.setdefault(step.stream, []).append(step)
    happened: set[int] = set()

    def may_go(queue: list[Step]) -> bool:
        return bool(queue) and not (isinstance(queue[0], Wait) and queue[0].event not in happened)

    while ready := [s for s, queue in queues.items() if may_go(queue)]:
        queue = queues[rng.choice(ready)]
        for _ in range(rng.choice([1, 1, 3, 100])):
            if not may_go(queue):
                break
            match queue.pop(0):
                case Launch(_, number):
                    launch(number)
                case Record(_, event):
                    happened.add(event)
                    for i, (wanted, b) in enumerate(zip(plan.completion, plan.program.outputs, strict=True)):
                        if wanted == event:
                            seen[i] = dict(memory.get(b, {}))
    assert not any(queues.values()), "the plan is stuck"
    return [seen[i] for i in range(len(plan.program.outputs))]


def bits_of(mask: int) -> Iterator[int]:
    word = 0
    while mask:
        if mask & 1:
            yield word
        mask >>= 1
        word += 1


def spoiled_outputs(program: Program, failing: Collection[int]) -> list[bool]:
    """For each output whether it is bad if some tasks fail: by following, from each of those, the words that tasks
    write to those who touch them later."""
    bad: set[int] = set()
    for first in failing:
        reached = _reached(program, first)
        ends = _written(program, reached) & set(program.outputs)
        bad |= ends
        if any(not _written(program, _reached(program, t)) & set(program.outputs) for t in reached):
            bad |= set(program.outputs)
    return [o in bad for o in program.outputs]


def _reached(program: Program, first: int) -> set[int]:
    reached = {first}
    for number, task in enumerate(program.tasks[first + 1 :], first + 1):
        touched = (*task.reads, *task.writes)
        if any(regions_overlap(w, r) for t in reached for w in program.tasks[t].writes for r in touched):
            reached.add(number)
    return reached


def _written(program: Program, tasks: Collection[int]) -> set[int]:
    return {w.buffer for t in tasks for w in program.tasks[t].writes}
