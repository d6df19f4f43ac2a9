"""Is a finished plan safe, on one device or several? A Plan in, all its Violations out: no two steps can race.

It replays the plan's steps with vector clocks (Fidge; Mattern, 1988) and asks, for every two tasks that touch a common
byte of which one writes it, that one happens before the other, in the program's order where they mean the same buffer.
It shares no code with the scheduler, and trusts what tasks declare that they read and write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.errors import PlanError
from ..core.frozen import frozen, replace
from ..program.plan import Launch, Plan, Record, Wait
from ..program.program import Library, Region, Task, control_flow_bodies, packed_member_tasks
from .control_flow import control_flow_violations
from .devices import device_violations
from .overlap import byte_strides_of_verified_region, regions_share_byte

Clock = tuple[int, ...]
Memory = tuple[int, int]  # (call, buffer), or (ARENA, device)
ARENA = -1
ALIGNMENT = 64


@frozen
class Violation:
    """Two steps that may go wrong together, or one (`second` is then empty), and why.

    kind: structure, bounds, device, collective, uninitialised, in place, side by side, race, order (a race that the
    plan decides the wrong way), completion; entry and exit, of a call under a caller's stream. Bytes [low, high) are of
    the buffer or arena that `memory` names; lines are the user's.
    """

    kind: str
    first: str
    second: str
    why: str
    memory: str = ""
    low: int = 0
    high: int = 0
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = f"{self.first} and {self.second}" if self.second else self.first
        where = f", bytes {self.low}:{self.high} of {self.memory}" if self.memory else ""
        lines = f" [{', '.join(self.lines)}]" if self.lines else ""
        return f"{self.kind}: {steps}{where}: {self.why}{lines}"


@frozen
class _LaunchedAccess:
    """One region that a launch touches. base: where its buffer starts in `memory`."""

    call: int
    task: int
    step: str
    line: str
    region: Region
    base: int
    memory: Memory
    writes: bool
    stream: int
    position: int
    clock: Clock

    @property
    def low(self) -> int:
        return self.base + self.region.span[0]

    @property
    def high(self) -> int:
        return self.base + self.region.span[1]

    def precedes(self, other: _LaunchedAccess) -> bool:
        return other.clock[self.stream] >= self.position


@frozen
class _Replay:
    """What the steps order: for each launched task (stream, position, clock), for each event what it follows."""

    launches: dict[int, tuple[int, int, Clock]]
    events: dict[int, Clock]
    violations: tuple[Violation, ...]


def require_safe_plan(plan: Plan, roots: Sequence[int] | None = None, exits: Sequence[int] = ()) -> None:
    """Raises PlanError if the plan is not safe. It names the steps, the bytes and the user's lines. roots, exits: its
    borders, where these are known; see `find_boundary_violations`."""
    found = find_plan_violations(plan)
    if not found and roots is not None:
        found = find_boundary_violations(plan, roots, exits)
    if found:
        more = f"\n  and {len(found) - 5} more" if len(found) > 5 else ""
        raise PlanError(f"plan {plan.program.name} is not safe:\n  " + "\n  ".join(map(str, found[:5])) + more)


def find_plan_violations(plan: Plan) -> list[Violation]:
    """All that is wrong with one call of the plan, alone on its memory."""
    replay = _replay_plan_on_vector_clocks(plan, [[0] * plan.streams for _ in range(plan.streams)])
    found = [*replay.violations, *_out_of_bounds_region_violations(plan)]
    if any(violation.kind == "bounds" for violation in found):
        return found
    for number, task in enumerate(plan.tasks):
        parts = packed_member_tasks(task)
        if control_flow_bodies(task):
            found += _violations_within_control_flow(number, task)
        for part in parts:
            found += _in_place_violations(number, part)
        if len(parts) > 1:
            found += _packed_member_violations(number, parts)
    found += [Violation(kind, step, "", why) for kind, step, why in device_violations(plan)]
    accesses = list(_memory_accesses_of_launched_tasks(plan, replay, 0, {}))
    found += _unordered_conflict_violations(accesses)
    found += _uninitialised_read_violations(plan, accesses)
    found += _incomplete_output_violations(plan, replay)
    return found


def find_boundary_violations(plan: Plan, roots: Sequence[int], exits: Sequence[int]) -> list[Violation]:
    """What is wrong with a call under a caller's stream: work outside of what lies between its fork and its join.
    roots: the steps that wait for the stream's event. exits: the outputs whose events the stream waits for."""
    width = plan.streams + 1  # the caller's is the last
    clocks = [[0] * width for _ in range(width)]
    entry = tuple([0] * plan.streams + [1])
    steps = [plan.steps[number] for number in roots]
    awaited = {step.task: [entry] for step in steps if isinstance(step, Launch)}
    replay = _replay_plan_on_vector_clocks(plan, clocks, 0, awaited)
    ended = [replay.events[plan.completion[i]] for i in exits if plan.completion[i] in replay.events]
    found = []
    for number, (stream, position, clock) in replay.launches.items():
        step = f"t{number} {plan.tasks[number].name}"
        if not clock[-1]:
            found.append(Violation("entry", "caller's stream", step, "it may start before what the stream did before"))
        if not any(other[stream] >= position for other in ended):
            found.append(Violation("exit", step, "caller's stream", "the stream may go on before it is done"))
    return found


def find_overlapping_call_violations(
    first: Plan,
    second: Plan,
    *,
    arena: bool = True,
    shared: Sequence[tuple[int, int]] = (),
    after: Sequence[tuple[int | None, int]] = (),
    same_streams: bool = False,
) -> list[Violation]:
    """What may go wrong between two calls that overlap. `second` starts before `first` has ended.

    arena: both use the same arena. shared: (buffer of first, buffer of second) that are the same memory.
    after: (buffer of second, event of first): tasks that touch the buffer wait for the event; None is any temporary.
    same_streams: stream `s` of both is the same stream. Each plan alone is `find_plan_violations`'s business.
    """
    base = 0 if same_streams else first.streams
    width = max(first.streams, base + second.streams)
    clocks = [[0] * width for _ in range(width)]
    one = _replay_plan_on_vector_clocks(first, clocks)
    awaited: dict[int, list[Clock]] = {}
    for buffer, event in after:
        if event not in one.events:
            continue
        for number, task in enumerate(second.tasks):
            for region in (*task.reads, *task.writes):
                if region.buffer == buffer or (buffer is None and second.offsets[region.buffer] is not None):
                    awaited.setdefault(number, []).append(one.events[event])
    two = _replay_plan_on_vector_clocks(second, clocks, base, awaited)
    same = {buffer: (0, other) for other, buffer in shared}
    private = {} if arena else {b: (1, b) for b, offset in enumerate(second.offsets) if offset is not None}
    accesses = [
        *_memory_accesses_of_launched_tasks(first, one, 0, {}),
        *_memory_accesses_of_launched_tasks(second, two, 1, {**same, **private}),
    ]
    return [v for v in _unordered_conflict_violations(accesses, across=True)]


def _violations_within_control_flow(number: int, task: Task) -> Iterator[Violation]:
    """What is wrong inside of a loop or branch."""
    step, lines = f"t{number} {task.name}", (task.line,) if task.line else ()
    for body in control_flow_bodies(task):
        for inner in find_plan_violations(body):
            yield replace(inner, first=f"in {step}: {inner.first}", lines=inner.lines or lines)

    def races_between_bodies(first: Plan, second: Plan, shared: Sequence[tuple[int, int]]) -> list[str]:
        return [str(v) for v in find_overlapping_call_violations(first, second, shared=shared, same_streams=True)]

    for kind, why in control_flow_violations(task, races_between_bodies):
        yield Violation(kind, step, "", why, lines=lines)


def _replay_plan_on_vector_clocks(
    plan: Plan, clocks: list[list[int]], base: int = 0, awaited: dict[int, list[Clock]] | None = None
) -> _Replay:
    """Run the steps on vector clocks, one a stream, from the state `clocks`, which it advances.

    base: the clock of the plan's stream 0. awaited[task]: what the task's launch waits for besides.
    """
    launches: dict[int, tuple[int, int, Clock]] = {}
    events: dict[int, Clock] = {}
    wrong: list[Violation] = []

    def plan_structure_violation(step: object, why: str) -> None:
        wrong.append(Violation("structure", str(step), "", why))

    for step in plan.steps:
        if not 0 <= step.stream < plan.streams:
            plan_structure_violation(step, f"the plan has {plan.streams} streams")
            continue
        s = base + step.stream
        clock = clocks[s]
        if isinstance(step, Launch):
            if not 0 <= step.task < len(plan.tasks):
                plan_structure_violation(step, f"the program has {len(plan.tasks)} tasks")
                continue
            if step.task in launches:
                plan_structure_violation(step, "the task was launched before")
            for other in (awaited or {}).get(step.task, ()):
                clock[:] = map(max, clock, other)
            clock[s] += 1
            launches[step.task] = (s, clock[s], tuple(clock))
        elif isinstance(step, Record):
            if not 0 <= step.event < plan.events or step.event in events:
                plan_structure_violation(step, "an event of the plan is recorded once")
            events[step.event] = tuple(clock)
        elif isinstance(step, Wait):
            if step.event in events:
                clock[:] = map(max, clock, events[step.event])
            else:
                plan_structure_violation(step, "nothing has recorded the event")
    for number, task in enumerate(plan.tasks):
        if number not in launches:
            plan_structure_violation(f"t{number} {task.name}", "the task is never launched")
    return _Replay(launches, events, tuple(wrong))


def _memory_accesses_of_launched_tasks(
    plan: Plan, replay: _Replay, call: int, same: dict[int, Memory]
) -> Iterator[_LaunchedAccess]:
    """Everything that launched tasks touch. same: buffers that live somewhere else than usual."""
    for number, (stream, position, clock) in replay.launches.items():
        task = plan.tasks[number]
        step = f"t{number} {task.name}" + (f" of call {call + 1}" if call else "")
        for writes, regions in ((False, task.reads), (True, task.writes)):
            for region in regions:
                offset = plan.offsets[region.buffer]
                usual = (call, region.buffer) if offset is None else (ARENA, plan.program.buffers[region.buffer].device)
                memory = same.get(region.buffer, usual)
                base = offset or 0
                if region.span[0] < region.span[1]:
                    yield _LaunchedAccess(
                        call, number, step, task.line, region, base, memory, writes, stream, position, clock
                    )


def _unordered_conflict_violations(accesses: Sequence[_LaunchedAccess], across: bool = False) -> Iterator[Violation]:
    """Pairs that touch a common byte, one writing, and are not ordered as they must be. across: of two calls only."""
    directions: dict[tuple[int, int], tuple[bool, _LaunchedAccess, _LaunchedAccess]] = {}
    by_memory: dict[Memory, list[_LaunchedAccess]] = {}
    for access in accesses:
        by_memory.setdefault(access.memory, []).append(access)
    for memory in sorted(by_memory):
        active: list[tuple[int, _LaunchedAccess]] = []
        for low, high, _, new in sorted((a.low, a.high, i, a) for i, a in enumerate(by_memory[memory])):
            active = [item for item in active if item[0] > low]
            for _, old in active:
                if not (old.writes or new.writes) or (old.call, old.task) == (new.call, new.task):
                    continue
                if across == (old.call == new.call) or not _memory_accesses_overlap(old, new):
                    continue
                a, b = sorted((old, new), key=lambda access: (access.call, access.task))
                yield from _conflict_violation(a, b, directions)
            active.append((high, new))


def _conflict_violation(
    a: _LaunchedAccess,
    b: _LaunchedAccess,
    directions: dict[tuple[int, int], tuple[bool, _LaunchedAccess, _LaunchedAccess]],
) -> Iterator[Violation]:
    """What is wrong with a conflicting pair; `a` comes first in the program, or in the earlier call.

    Buffers that share bytes of the arena may come in either order, the same one for all their tasks (`directions`).
    """
    if not (a.precedes(b) or b.precedes(a)):
        yield _describe_conflict("race", a, b, "neither happens before the other")
    elif a.call == b.call and a.region.buffer != b.region.buffer:
        x, y = sorted((a, b), key=lambda access: access.region.buffer)
        key, forward = (x.region.buffer, y.region.buffer), x.precedes(y)
        known = directions.setdefault(key, (forward, a, b))
        if known[0] != forward:
            why = f"{known[1].step} and {known[2].step} share these bytes the other way round"
            yield _describe_conflict("order", a, b, why)
    elif not a.precedes(b):
        yield _describe_conflict("order", a, b, "the second happens before the first")


def _describe_conflict(kind: str, a: _LaunchedAccess, b: _LaunchedAccess, why: str) -> Violation:
    memory = "the arena" if a.memory[0] == ARENA else f"b{a.region.buffer}"
    lines = tuple(dict.fromkeys(line for line in (a.line, b.line) if line))
    first, second = (f"{x.step} {'writes' if x.writes else 'reads'} b{x.region.buffer}" for x in (a, b))
    return Violation(kind, first, second, why, memory, max(a.low, b.low), min(a.high, b.high), lines)


def _memory_accesses_overlap(a: _LaunchedAccess, b: _LaunchedAccess) -> bool:
    return regions_share_byte(a.region, a.base, b.region, b.base)


def _in_place_violations(number: int, task: Task) -> Iterator[Violation]:
    """Reads and writes of one buffer by one task: allowed on the very same elements, if the task says so.

    A library call may take and give the very same elements without saying so: that is its own contract.
    """
    step = f"t{number} {task.name}"
    lines = (task.line,) if task.line else ()
    for i, write in enumerate(task.writes):
        for what, others in (("reads", task.reads), ("writes", task.writes[:i])):
            for other in others:
                if other.buffer != write.buffer or not regions_share_byte(other, 0, write, 0):
                    continue
                same = byte_strides_of_verified_region(other) == byte_strides_of_verified_region(write)
                said = write.buffer in task.same_element or isinstance(task.kernel, Library) or what == "writes"
                if same and said:
                    continue
                why = f"it {what} elements that another of its iterations writes"
                if same:
                    why = "it does not say that each element is read by the iteration that writes it alone"
                low, high = max(write.span[0], other.span[0]), min(write.span[1], other.span[1])
                yield Violation("in place", step, "", why, f"b{write.buffer}", low, high, lines)


def _packed_member_violations(number: int, parts: Sequence[Task]) -> Iterator[Violation]:
    """Members of one launch come in no order: none may write what another touches."""
    for i, one in enumerate(parts):
        for j, other in enumerate(parts):
            for write in one.writes:
                for touched in (*other.reads, *other.writes):
                    if i == j or touched.buffer != write.buffer or not regions_share_byte(touched, 0, write, 0):
                        continue
                    low, high = max(write.span[0], touched.span[0]), min(write.span[1], touched.span[1])
                    lines = (one.line,) if one.line else ()
                    first, second = (f"member {m} of t{number} {one.name}" for m in (i, j))
                    why = "nothing orders the members of one launch"
                    yield Violation("side by side", first, second, why, f"b{write.buffer}", low, high, lines)


def _out_of_bounds_region_violations(plan: Plan) -> Iterator[Violation]:
    """Regions that leave their buffer, and temporaries that leave the arena."""
    buffers, touched = plan.program.buffers, set[int]()
    if len(plan.offsets) != len(buffers):
        yield Violation("bounds", "plan", "", f"{len(plan.offsets)} offsets for {len(buffers)} buffers")
        return
    for number, task in enumerate(plan.tasks):
        lines = (task.line,) if task.line else ()
        for region in (*task.reads, *task.writes):
            name, (low, high) = f"b{region.buffer}", region.span
            if not 0 <= region.buffer < len(buffers):
                yield Violation("bounds", f"t{number} {task.name}", "", f"there is no {name}", lines=lines)
            elif low < 0 or high > buffers[region.buffer].nbytes:
                yield Violation("bounds", f"t{number} {task.name}", "", f"outside of {name}", name, low, high, lines)
            else:
                touched.add(region.buffer)
    for b in sorted(touched):
        nbytes, offset = buffers[b].nbytes, plan.offsets[b]
        if (offset is None) == (buffers[b].kind == "temp"):
            yield Violation("bounds", f"b{b}", "", "temporaries have an offset in the arena, others have none")
        elif offset is not None and (offset < 0 or offset + nbytes > plan.arena_bytes or offset % ALIGNMENT):
            why = f"it must be aligned to {ALIGNMENT} bytes and lie in the arena's {plan.arena_bytes}"
            yield Violation("bounds", f"b{b}", "", why, "the arena", offset, offset + nbytes)


def _uninitialised_read_violations(plan: Plan, accesses: Sequence[_LaunchedAccess]) -> Iterator[Violation]:
    """Reads of what is no input of which no task writes a common byte first."""
    writes: dict[int, list[_LaunchedAccess]] = {}
    for access in accesses:
        if access.writes:
            writes.setdefault(access.region.buffer, []).append(access)
    for read in accesses:
        b = read.region.buffer
        if read.writes or plan.program.buffers[b].kind == "input":
            continue
        if not any(w.task < read.task and _memory_accesses_overlap(w, read) for w in writes.get(b, ())):
            lines = (read.line,) if read.line else ()
            why = "nothing has been written there"
            yield Violation("uninitialised", read.step, "", why, f"b{b}", *read.region.span, lines)


def _incomplete_output_violations(plan: Plan, replay: _Replay) -> Iterator[Violation]:
    """An output's event must follow all its writers, and some output's event every task."""
    outputs = plan.program.outputs
    if len(plan.completion) != len(outputs):
        why = f"{len(plan.completion)} completion events for {len(outputs)} outputs"
        yield Violation("completion", "plan", "", why)
    ended: list[Clock] = []
    for i, (buffer, event) in enumerate(zip(outputs, plan.completion, strict=False)):
        what = f"output {i}"
        if event not in replay.events:
            yield Violation("completion", what, "", f"nothing records e{event}")
            continue
        clock = replay.events[event]
        ended.append(clock)
        for number, (stream, position, _) in replay.launches.items():
            task = plan.tasks[number]
            if clock[stream] < position and any(region.buffer == buffer for region in task.writes):
                lines = (task.line,) if task.line else ()
                nbytes = plan.program.buffers[buffer].nbytes
                first, second = f"t{number} {task.name} writes b{buffer}", f"e{event} completes {what}"
                yield Violation("completion", first, second, "too early", f"b{buffer}", 0, nbytes, lines)
    for number, (stream, position, _) in replay.launches.items():
        if outputs and not any(clock[stream] >= position for clock in ended):
            step = f"t{number} {plan.tasks[number].name}"
            yield Violation("completion", step, "", "no output's event follows it, so the call cannot be known to end")
