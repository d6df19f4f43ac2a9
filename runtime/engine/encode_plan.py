"""A plan and the addresses of its kernels in, words out. The native engine runs it from them.

A call passes a table of words: the addresses of the buffers in `order`, the arena's if `uses_arena`, then the scalars'
bits. Patches put them into the argument slots; sizes, strides and constants are in the template. A loop or branch is a
kernel to the engine: one function, whose first argument is the record of the loop (`words.loops`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, Protocol

from ..core.frozen import frozen, replace
from ..interpret.serial import serial_error_sources_of_plan
from ..program.collective import Collective
from ..program.plan import AFTER, Branch, Launch, Loop, Plan, Record, Wait, control_flow_arguments, root_tasks_of_plan
from ..program.program import Constant, Int, Kernel, Library, Pointer, Task, control_flow_bodies
from .engine import EngineFunctions, allocate_aligned_words, native_engine_thread_count
from .words import records as e
from .words.loops import BY_ADDRESS, BY_FLAG, BY_NUMBER

SHARE_FROM_US = 5.0  # a launch below this is not worth a second thread
CHUNKS_A_CORE = 6
CHUNK_US = 2.0  # and a chunk below this costs more to hand out than it gives
LONG_US = 200.0  # no chunk need be longer, so that the last one to end leaves no core idle for long
WATCHED_US = 20.0  # after a launch that takes longer, a look at the clock costs nothing


@frozen
class PlanLayout:
    """Native words of a plan. `keep` owns the memory behind the addresses.

    plan: address of the plan's record. image: a run's words, but for the places that depend on its own address
    (`streams`, their first steps). events, gates: offsets in the run; gates[b] lists the gates of buffer b, and
    gates[AFTER] those that all of the plan is behind.
    needs: for the offset of a completion event, the address of its list of last steps; see `words.records`.
    meetings: for the number of a collective, behind those of the buffers, the offset of the event when all that it
    reads is there. Its gate, in `gates` under the same number, opens when it is done.
    poison: the offset in the run of each place of `poison`, and behind them of that of AFTER, which nobody reads.
    stamps: for the plan's steps that are timed, the offset in the run of the times of their start and end.
    stretches: the tasks in issue order: some that run natively one after another, and the address of a record of these
    alone; or some that Python does, and 0.
    """

    plan: int
    image: tuple[int, ...]
    arguments: int
    streams: tuple[int, ...]
    events: tuple[int, ...]
    gates: Mapping[int, tuple[int, ...]]
    needs: Mapping[int, int]
    meetings: Mapping[int, int]
    order: tuple[int, ...]
    uses_arena: bool
    argument_bytes: int
    poison: tuple[int, ...]
    stamps: Mapping[int, int]
    stretches: tuple[tuple[int, tuple[int, ...]], ...]
    keep: tuple[Any, ...]


def split_engine_launch_into_chunks(task: Task, cores: int) -> tuple[int, int]:
    """Units in a chunk, and the number of chunks. A chunk is a multiple of the task's grain; it is one if sharing does
    not pay."""
    grains = -(-task.units // max(1, task.grain))
    if task.cost < SHARE_FROM_US or grains < 2 or cores < 2:
        return (max(1, task.units), 1)
    most = min(grains, max(CHUNKS_A_CORE * cores, int(task.cost / LONG_US)), int(task.cost / CHUNK_US))
    size = -(-grains // most) * max(1, task.grain)
    return (size, -(-task.units // size))


def _task_may_take_long(task: Task) -> bool:
    """How long loops take is not known."""
    return task.cost >= WATCHED_US or bool(control_flow_bodies(task))


def encode_plan(
    plan: Plan, functions: Sequence[int], cores: int, engine: int, keep: Sequence[Any] = (), timed: bool = False
) -> PlanLayout:
    """functions[t] is the address of task t's kernel (0 for one that Python does). keep: what has to live as long.
    timed: launches and waits note when they began and ended."""
    slots = _native_argument_slots(plan, range(len(plan.tasks)))
    places = _offsets_in_run_record(plan, 8 * len(slots.template), timed)

    keep_sources, task_sources, event_sources = _encode_error_sources(plan, places.poison)

    def encode_launch(task: int, first: int) -> list[int]:
        size, chunks = split_engine_launch_into_chunks(plan.tasks[task], cores)
        units, long = plan.tasks[task].units, _task_may_take_long(plan.tasks[task])
        return _words_of_one_step(e.LAUNCH, functions[task], first, units, size, chunks, task_sources[task], long)

    def encode_step(step: Launch | Record | Wait) -> list[int]:
        if isinstance(step, Wait):
            return _words_of_one_step(e.WAIT, places.events[step.event])
        if isinstance(step, Record):
            return _words_of_one_step(e.RECORD, places.events[step.event], event_sources.get(step.event, 0))
        if step.task in places.meetings:
            recorded = _words_of_one_step(e.RECORD, places.meetings[step.task], task_sources[step.task])
            return recorded + _words_of_one_step(e.GATE, places.gates[_gate_of_collective(step.task)])
        if functions[step.task]:
            return encode_launch(step.task, places.arguments + slots.first[step.task])
        return _words_of_one_step(e.PYTHON, step.task, 0, 0, 0, 0, task_sources[step.task])

    steps, first_step, last_step = _encode_step_words(plan, places, encode_step)
    keep_steps, steps_address = write_native_words(steps)

    def encode_record(tasks: Sequence[int], slots: _ArgumentSlots) -> tuple[tuple[Any, ...], int]:
        return _encode_plan_record(slots, [w for t in tasks for w in encode_launch(t, slots.first[t])], engine)

    launched = tuple(s.task for s in plan.steps if isinstance(s, Launch))
    keep_plan, plan_address = encode_record(launched, slots)
    stretches, keep_stretches = [(plan_address, launched)], list[Any]()
    if not all(functions):
        stretches = []
        for native, group in groupby(launched, lambda task: functions[task] != 0):
            tasks = tuple(group)
            owners, record = encode_record(tasks, _native_argument_slots(plan, tasks)) if native else ((), 0)
            stretches.append((record, tasks))
            keep_stretches.append(owners)
    needs, keep_needs = {}, []
    for place, clock in _encoded_clocks_at_completions(plan, places).items():
        last = [steps_address + last_step[s, n] if n else 0 for s, n in zip(places.streams, clock, strict=True)]
        owner, needs[place] = write_native_words(last)
        keep_needs.append(owner)
    count = len(plan.program.buffers)
    return PlanLayout(
        plan_address,
        _encode_run_image(plan, places, [steps_address + first for first in first_step]),
        places.arguments,
        tuple(e.RUN_BYTES + i * e.STREAM_BYTES for i in range(len(places.streams))),
        places.events,
        {b: tuple(gates) for b, gates in _gates_of_buffers(plan, places).items()},
        needs,
        {count + task: place for task, place in places.meetings.items()},
        slots.order,
        slots.uses_arena,
        8 * len(slots.template),
        places.poison,
        places.stamps,
        tuple(stretches),
        (keep_steps, keep_sources, *keep_plan, *keep_stretches, *keep_needs, *keep),
    )


@frozen
class _ArgumentSlots:
    """The kernels' argument slots.

    first[t]: the offset of task t's, if it is among them; the rest as in `PlanLayout` and `words.records`.
    """

    template: list[int]
    patches: list[int]
    first: dict[int, int]
    order: tuple[int, ...]
    uses_arena: bool


def _native_argument_slots(plan: Plan, tasks: Sequence[int]) -> _ArgumentSlots:
    """Of these tasks, for a call's table of the whole plan."""
    pointed = {a.buffer for t in plan.tasks for a in t.arguments if isinstance(a, Pointer)}
    order = tuple(sorted(b for b in pointed if plan.offsets[b] is None))
    slots = _ArgumentSlots([], [], {}, order, any(plan.offsets[b] is not None for b in pointed))
    column = {b: i for i, b in enumerate(order)}
    arena_column = len(order)
    scalar_column = arena_column + slots.uses_arena
    for task in tasks:
        slots.first[task] = 8 * len(slots.template)
        for argument in plan.tasks[task].arguments:
            place = 8 * len(slots.template)
            if isinstance(argument, Int | Constant):
                slots.template.append(argument.word)
                continue
            slots.template.append(0)
            if not isinstance(argument, Pointer):
                slots.patches.extend((place, 8 * (scalar_column + argument.index), 0))
            elif (offset := plan.offsets[argument.buffer]) is None:
                slots.patches.extend((place, 8 * column[argument.buffer], argument.offset))
            else:
                slots.patches.extend((place, 8 * arena_column, offset + argument.offset))
    return slots


@frozen
class _RunOffsets:
    """Offsets in a run.

    gated: see `_buffers_gated_by_task`; gates[t]: task t's gate; meetings[t]: the event of collective t; nbytes: of it
    all; the rest as in `PlanLayout`.
    """

    streams: tuple[int, ...]
    events: tuple[int, ...]
    gated: Mapping[int, list[int]]
    gates: Mapping[int, int]
    meetings: Mapping[int, int]
    poison: tuple[int, ...]
    arguments: int
    stamps: Mapping[int, int]
    nbytes: int


def _offsets_in_run_record(plan: Plan, argument_bytes: int, timed: bool) -> _RunOffsets:
    streams = tuple(sorted({s.stream for s in plan.steps}))
    events_at = e.RUN_BYTES + e.STREAM_BYTES * len(streams)
    met = [t for t, task in enumerate(plan.tasks) if isinstance(task.kernel, Collective)]
    meetings = {t: events_at + e.EVENT_BYTES * (plan.events + i) for i, t in enumerate(met)}
    gates_at = events_at + e.EVENT_BYTES * (plan.events + len(met))
    gated = _buffers_gated_by_task(plan)
    gates = {key: gates_at + 8 * i for i, key in enumerate([*gated, *map(_gate_of_collective, met)])}
    poison_at = gates_at + 8 * len(gates)
    poison = tuple(range(poison_at, poison_at + 8 * (len(plan.program.buffers) + len(plan.tasks) - AFTER), 8))
    arguments_at = poison_at + 8 * len(poison)
    recorded = {s.event for s in plan.steps if isinstance(s, Record)}
    events = tuple(events_at + e.EVENT_BYTES * i if i in recorded else e.RUN_EVENT for i in range(plan.events))
    stamps_at = arguments_at + argument_bytes
    stamped = [i for i, s in enumerate(plan.steps) if timed and not isinstance(s, Record)]
    stamps = {i: stamps_at + 16 * n for n, i in enumerate(stamped)}
    nbytes = stamps_at + 16 * len(stamps)
    return _RunOffsets(streams, events, gated, gates, meetings, poison, arguments_at, stamps, nbytes)


def _gates_of_buffers(plan: Plan, places: _RunOffsets) -> dict[int, list[int]]:
    """See `PlanLayout.gates`, and `meetings` there."""
    found: dict[int, list[int]] = {}
    for first, buffers in places.gated.items():
        for b in buffers:
            found.setdefault(b, []).append(places.gates[first])
    roots, count = root_tasks_of_plan(plan), len(plan.program.buffers)
    found[AFTER] = [places.gates[task] for task in places.gated if plan.tasks[task] in roots]
    return found | {count + task: [places.gates[_gate_of_collective(task)]] for task in places.meetings}


def _gate_of_collective(task: int) -> int:
    """Beside that of its buffers, the gate behind which it is done: the key that it has among gates."""
    return -1 - task


def _encode_step_words(
    plan: Plan, places: _RunOffsets, step_of: Callable[[Launch | Record | Wait], list[int]]
) -> tuple[list[int], list[int], dict[tuple[int, int], int]]:
    """The steps' words, stream after stream; the offset of each stream's first; and that of the last one of
    (stream, its steps so far)."""
    words: list[int] = []
    first: list[int] = []
    last: dict[tuple[int, int], int] = {}
    last_launch = _encoded_last_launch_of_streams(plan)
    for stream in places.streams:
        first.append(8 * len(words))
        mine = [(i, s) for i, s in enumerate(plan.steps) if s.stream == stream]
        for count, (number, step) in enumerate(mine):
            if isinstance(step, Launch) and step.task in places.gates:
                words += _words_of_one_step(e.GATE, places.gates[step.task])
            if number in places.stamps:
                words += _words_of_one_step(e.STAMP, places.stamps[number])
            words += step_of(step)
            if number in places.stamps:
                words += _words_of_one_step(e.STAMP, places.stamps[number] + 8)
            last[stream, count + 1] = 8 * len(words) - e.STEP_BYTES
            if last_launch.get(stream) is step:
                words += _words_of_one_step(e.CEASE)
        words += _words_of_one_step(e.END)
    return words, first, last


def _encoded_last_launch_of_streams(plan: Plan) -> dict[int, Launch]:
    return {s.stream: s for s in plan.steps if isinstance(s, Launch)}


def _encode_plan_record(slots: _ArgumentSlots, launches: Sequence[int], engine: int) -> tuple[tuple[Any, ...], int]:
    """What owns the plan's record and the lists that it points to, and its address."""
    keep_launches, launches_address = write_native_words(launches)
    keep_template, template_address = write_native_words(slots.template)
    keep_patches, patches_address = write_native_words(slots.patches)
    keep, address = write_native_words(
        [template_address, 8 * len(slots.template), patches_address, len(slots.patches) * 8 // e.PATCH_BYTES,
         launches_address, len(launches) * 8 // e.STEP_BYTES, engine]
    )  # fmt: skip
    return (keep_launches, keep_template, keep_patches, keep), address


def _encode_run_image(plan: Plan, places: _RunOffsets, first_steps: Sequence[int]) -> tuple[int, ...]:
    """first_steps: the addresses of the streams' first steps."""
    image = [0] * (places.nbytes // 8)
    image[e.STREAM_COUNT // 8] = len(places.streams)
    image[e.LAUNCHING // 8] = len(_encoded_last_launch_of_streams(plan))
    for i, stream in enumerate(places.streams):
        at = (e.RUN_BYTES + i * e.STREAM_BYTES) // 8
        image[at + e.FIRST_STEP // 8] = first_steps[i]
        image[at + e.URGENT // 8] = stream in plan.high_priority
    return tuple(image)


def _buffers_gated_by_task(plan: Plan) -> dict[int, list[int]]:
    """For each task that is the first of its stream to touch some buffers: those buffers."""
    seen: set[tuple[int, int]] = set()
    found: dict[int, list[int]] = {}
    for step in plan.steps:
        if isinstance(step, Launch):
            task = plan.tasks[step.task]
            for b in dict.fromkeys(r.buffer for r in task.reads + task.writes):
                if (step.stream, b) not in seen:
                    seen.add((step.stream, b))
                    found.setdefault(step.task, []).append(b)
    return found


def _encode_error_sources(plan: Plan, poison: Sequence[int]) -> tuple[Any, list[int], dict[int, int]]:
    """What owns the lists of `serial_error_sources_of_plan`; the address of each task's, after its own place; that of
    each completion event's, for all its outputs."""
    found, first = serial_error_sources_of_plan(plan), len(plan.program.buffers)
    words: list[int] = []
    tasks: list[int] = []
    events: dict[int, int] = {}
    for number, places in enumerate(found.tasks):
        tasks.append(8 * len(words))
        words += [poison[p] for p in (first + number, *places)] + [0]
    for event in dict.fromkeys(plan.completion):
        events[event] = 8 * len(words)
        shared = (places for e, places in zip(plan.completion, found.outputs, strict=False) if e == event)
        words += [poison[p] for p in dict.fromkeys(chain.from_iterable(shared))] + [0]
    owner, address = write_native_words(words)
    return owner, [address + place for place in tasks], {event: address + place for event, place in events.items()}


def _encoded_clocks_at_completions(plan: Plan, places: _RunOffsets) -> dict[int, list[int]]:
    """For the place of each completion event that is recorded, and of each collective's: how many steps of each stream
    come before it."""
    clocks = {s: [0] * len(places.streams) for s in places.streams}
    at = {s: i for i, s in enumerate(places.streams)}
    recorded: dict[int, list[int]] = {}
    met: dict[int, list[int]] = {}
    for step in plan.steps:
        clock = clocks[step.stream]
        clock[at[step.stream]] += 1
        if isinstance(step, Record):
            recorded[step.event] = list(clock)
        elif isinstance(step, Wait):
            clock[:] = map(max, clock, recorded[step.event])
        elif step.task in places.meetings:
            met[places.meetings[step.task]] = list(clock)
    return met | {places.events[event]: recorded[event] for event in plan.completion if event in recorded}


def _words_of_one_step(operation: int, *operands: int) -> list[int]:
    return [operation, *operands] + [0] * (e.STEP_BYTES // 8 - 1 - len(operands))


def write_native_words(values: Sequence[int]) -> tuple[Any, int]:
    owner, address, view = allocate_aligned_words(max(1, len(values)))
    for i, value in enumerate(values):
        view[i] = value & (1 << 64) - 1
    return owner, address


Function = Callable[[Kernel], int]
HostStep = Callable[[Task], tuple[Task, int]]  # a step that needs Python, as a task with arguments and its function


def is_native_plan(plan: Plan) -> bool:
    """Whether no step needs Python, those of bodies included."""
    return all(_is_native_task(task) for task in plan.tasks)


def _is_native_task(task: Task) -> bool:
    return not isinstance(task.kernel, (Library, Collective)) and all(
        is_native_plan(body) for body in control_flow_bodies(task)
    )


class Owner(Protocol):
    """What bodies run on. An engine, or what stands for one where there are no other threads."""

    native: EngineFunctions
    address: int


def encode_nested_plan(
    plan: Plan, function: Function, owner: Owner, timed: bool = False, host_step: HostStep | None = None
) -> PlanLayout:
    """`encode_plan`, with a record for each loop and branch that runs natively. function: the address of a kernel.
    host_step: does the steps that need Python; without it they, and what holds them, have no function."""
    functions: list[int] = []
    tasks: list[Task] = []
    keep: list[Any] = []
    for task in plan.tasks:
        if isinstance(task.kernel, Kernel):
            functions.append(function(task.kernel))
        elif isinstance(task.kernel, Library) and host_step is not None:
            task, address = host_step(task)
            functions.append(address)
        elif isinstance(task.kernel, (Library, Collective)) or (host_step is None and not _is_native_task(task)):
            functions.append(0)
        else:
            task, address, owners = encode_control_task(task, function, owner, host_step)
            keep.append(owners)
            functions.append(address)
        tasks.append(task)
    changed = tuple(tasks) != plan.program.tasks
    laid = replace(plan, program=replace(plan.program, tasks=tuple(tasks)), report=None) if changed else plan
    return encode_plan(laid, functions, native_engine_thread_count(), owner.address, keep, timed)


def encode_control_task(
    task: Task, function: Function, owner: Owner, host_step: HostStep | None = None
) -> tuple[Task, int, Any]:
    """A loop or branch as a kernel: the task with its record as first argument, the function that runs it, and what
    has to live as long."""
    assert isinstance(task.kernel, (Loop, Branch))
    bodies = [encode_nested_plan(body, function, owner, host_step=host_step) for body in task.kernel.bodies]
    looped = isinstance(task.kernel, Loop)
    owners, record = (_encode_loop_words if looped else _encode_branch_words)(task, bodies, owner)
    run = owner.native.run_loop if looped else owner.native.run_branch
    return replace(task, arguments=(Int(record), *task.arguments)), run, (bodies, owners)


def _encode_loop_words(task: Task, layouts: Sequence[PlanLayout], owner: Owner) -> tuple[Any, int]:
    loop = task.kernel
    assert isinstance(loop, Loop)
    given, rotation, program = control_flow_arguments(task), loop.rotation, loop.body.program
    carried, pool = len(loop.follows), len(given.pool)
    inputs = program.inputs[carried:]
    first = carried + pool
    moves: dict[int, int] = {}
    rows: list[dict[int, int]] = []
    for held, fresh in zip(rotation.held, rotation.fresh, strict=True):
        outs = program.outputs[len(fresh) :]
        places = [*held, *range(first, first + len(inputs))]
        row = dict(zip(program.inputs, places, strict=True))
        row |= dict(zip(program.outputs, fresh, strict=False))
        row |= {b: first + len(inputs) + i for i, b in enumerate(outs)}
        moves = dict(zip((*inputs, *outs), loop.moves, strict=True))
        rows.append(row)
    others = len(given.others) + len(given.stacked) + (given.workspace is not None)
    owners, body = _encode_words_of_body(loop.body, layouts[0], rows, moves, first + others - 1, owner)
    names = write_native_words([8 * name for names in rotation.names for name in names])
    final = write_native_words([8 * place for held in rotation.held for place in held])
    sizes = write_native_words(loop.sizes)
    count_at = len(task.arguments) - len(given.numbers) - 1
    kind = BY_FLAG if loop.flag else BY_ADDRESS if isinstance(given.count, Pointer) else BY_NUMBER
    head = [carried, pool, others, rotation.lead, len(rows), names[1], final[1], sizes[1], kind, 8 * count_at]
    record = write_native_words([*head, 8 * (len(task.arguments) - len(given.numbers)), 1, 0, *body])
    return (record, names, final, sizes, owners), record[1]


def _encode_branch_words(task: Task, layouts: Sequence[PlanLayout], owner: Owner) -> tuple[Any, int]:
    branch = task.kernel
    assert isinstance(branch, Branch)
    owners, words = [], []
    numbers = len(branch.bodies[0].program.scalars)
    for body, layout in zip(branch.bodies, layouts, strict=True):
        program = body.program
        row = {b: 1 + i for i, b in enumerate((*program.inputs, *program.outputs))}
        workspace = len(task.arguments) - numbers - 1
        found, part = _encode_words_of_body(body, layout, [row], {}, workspace, owner)
        owners.append(found)
        words += part
    record = write_native_words([*words, 8 * (len(task.arguments) - numbers)])
    return (record, owners), record[1]


def _encode_words_of_body(
    plan: Plan, layout: PlanLayout, rows: Sequence[dict[int, int]], moves: dict[int, int], workspace: int, owner: Owner
) -> tuple[Any, list[int]]:
    """The words of a body. rows: for each state the place of every buffer; workspace: that of the temporaries."""
    last = [workspace] if layout.uses_arena else []
    places = write_native_words([8 * p for row in rows for p in (*(row[b] for b in layout.order), *last)])
    moving = write_native_words([*(moves.get(b, 0) for b in layout.order), *(0 for _ in last)])
    helpers = max(
        chain((split_engine_launch_into_chunks(task, native_engine_thread_count())[1] - 1 for task in plan.tasks), [0])
    )
    columns = len(layout.order) + len(last)
    numbers = len(plan.program.scalars)
    words = [
        layout.plan,
        columns,
        numbers,
        places[1],
        moving[1],
        owner.address,
        min(helpers, native_engine_thread_count() - 1),
    ]
    return (places, moving, layout), words
