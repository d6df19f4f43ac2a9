"""A Plan: a Program's steps on streams joined by events, with every buffer's place. Plain data.

The queries: what the steps order, and where a caller's stream meets them. Loops and branches are tasks whose bodies are
plans; where the carried values of a loop live in each iteration is said here too.

The arguments of a loop's task, in order: the initial values; where the results go; the pool; the body's other inputs;
the stacked outputs; the workspace (if the body has temporaries); the count (unless a flag decides); the body's numbers
but for the first, which is the iteration's own. The arguments of a branch: the flag; the inputs; the outputs; the
workspace; the numbers. All but counts and numbers are pointers.

An iteration reads the carried values where they are and writes new ones to buffers of the pool that are free; a value
that a carried value merely takes over stays where it is. So values are never copied: which buffer holds which follows
from the number of the iteration alone, and after a few iterations the pattern repeats (`LoopRotation`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..core.frozen import field, frozen
from .collective import Collective
from .program import Argument, Kernel, Library, Program, Task, control_flow_bodies, union_bytes_of_regions
from .report import Report


@frozen
class Launch:
    """Start task number `task` of the program on `stream`."""

    stream: int
    task: int

    def __str__(self) -> str:
        return f"launch t{self.task} on s{self.stream}"


@frozen
class Record:
    """`event` happens when all that was put on `stream` before it is done."""

    stream: int
    event: int

    def __str__(self) -> str:
        return f"record e{self.event} on s{self.stream}"


@frozen
class Wait:
    """What is put on `stream` after this starts only when `event` has happened."""

    stream: int
    event: int

    def __str__(self) -> str:
        return f"wait e{self.event} on s{self.stream}"


Step = Launch | Record | Wait


@frozen
class Plan:
    """Steps in issue order.

    offsets[b] is the byte of the arena where temporary buffer `b` lives; inputs and outputs have None, they live in
    memory of their own. completion[i] is the event that output `i` is ready at (recorded last on its stream).
    high_priority: streams that hold the critical path. report: why the plan is as it is; it takes no part in equality.

    Where the program is on several devices, each has an arena, of at most `arena_bytes`. homes: the device of each
    stream; none where there is one. ranks: how many processes run this plan, each its own copy, and meet in its
    collectives, in the order of the steps. exchanged_by: what does these. axes: along which the ranks' arguments and
    results lie. reads_peers: kernels read other devices' memory.
    """

    program: Program
    steps: tuple[Step, ...]
    streams: int
    events: int
    offsets: tuple[int | None, ...]
    arena_bytes: int
    completion: tuple[int, ...] = ()
    high_priority: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()
    report: Report | None = field(default=None, compare=False, repr=False)
    homes: tuple[int, ...] = ()
    ranks: int = 1
    exchanged_by: str = field(default="", compare=False)
    axes: str = field(default="", compare=False)
    reads_peers: bool = False

    @property
    def tasks(self) -> tuple[Task, ...]:
        return self.program.tasks

    @property
    def waits(self) -> int:
        """The number of waits between streams, at join points and for outputs too."""
        return sum(isinstance(s, Wait) for s in self.steps)

    @property
    def records(self) -> int:
        """The number of event records that a wait needs. Others only complete outputs."""
        waited = {s.event for s in self.steps if isinstance(s, Wait)}
        return sum(isinstance(s, Record) and s.event in waited for s in self.steps)

    @property
    def peak_bytes(self) -> int:
        """Bytes of temporaries and outputs that one call needs beyond its inputs."""
        return self.arena_bytes + sum(b.nbytes for b in self.program.buffers if b.kind == "output")

    @property
    def devices(self) -> tuple[tuple[str, int], ...]:
        """Those of the program, where it is on several."""
        return self.program.devices

    @property
    def meeting(self) -> int:
        """How many meet in a collective: ranks, or the devices of this process."""
        return self.ranks if self.ranks > 1 else max(1, len(self.devices))

    @property
    def collectives(self) -> list[Collective]:
        """In the order of the steps."""
        kernels = (self.tasks[s.task].kernel for s in self.steps if isinstance(s, Launch))
        return [kernel for kernel in kernels if isinstance(kernel, Collective)]

    @property
    def copied_bytes(self) -> int:
        """What a call moves between devices, beside its arguments."""
        return sum(
            self.program.buffers[t.writes[0].buffer].nbytes for t in self.tasks if is_device_copy(self.program, t)
        )

    def lines(self) -> Iterator[str]:
        yield (
            f"plan {self.program.name}{self._places_in_words()}: {len(self.tasks)} tasks on {self.streams} streams, "
            f"{self.waits} waits, {self.records} records, peak {self.peak_bytes} bytes"
        )
        for step in self.steps:
            home = f" of d{self.homes[step.stream]}" if self.homes else ""
            yield f"  {step}{home}" + (f"    {self.tasks[step.task].name}" if isinstance(step, Launch) else "")
            if isinstance(step, Launch):
                for body in control_flow_bodies(self.tasks[step.task]):
                    yield from (f"    {line}" for line in body.lines())
        for number, offset in enumerate(self.offsets):
            if offset is not None:
                yield f"  b{number} at {offset}, {self.program.buffers[number].nbytes} bytes"
        yield from (f"  # {note}" for note in self.notes)

    def _places_in_words(self) -> str:
        if not self.devices:
            return ""
        names = ", ".join(f"d{i} {kind}:{number}" for i, (kind, number) in enumerate(self.devices))
        met = len(self.collectives)
        ranks = f", {met} collectives" if met or self.ranks > 1 else ""
        ranks += f" of {self.ranks} ranks" if self.ranks > 1 else ""
        ranks += f" by {self.exchanged_by}" if self.exchanged_by else ""
        return f" on {names}, {self.copied_bytes} bytes copied{ranks}"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        from ..core.readable_text import shorten_printed_lines

        return shorten_printed_lines(self.lines())


# in place of a buffer, in what a run comes after: the whole plan; the same, but the run does not fail with it
ENTRY, AFTER = -1, -2


@frozen
class PlanBoundary:
    """roots: numbers of the steps that launch the first task of a stream which follows no other: one wait for each, on
    one event of the caller's stream, and everything follows it.
    exits: the outputs whose completion events precede no other's: once these have happened, every task is done."""

    roots: tuple[int, ...]
    exits: tuple[int, ...]


def plan_boundary(plan: Plan) -> PlanBoundary:
    """The borders of a plan whose every task precedes some output's completion. The verifier proves that."""
    known = [0] * plan.streams  # the set of tasks that what comes on a stream follows
    recorded: dict[int, int] = {}
    for step in plan.steps:
        s = step.stream
        if isinstance(step, Record):
            recorded[step.event] = known[s]
        elif isinstance(step, Wait):
            known[s] |= recorded[step.event]
        elif isinstance(step, Launch):
            known[s] |= 1 << step.task
    done = {recorded[e]: i for i, e in reversed(list(enumerate(plan.completion))) if recorded[e]}
    exits = [i for tasks, i in done.items() if not any(tasks != other and tasks & ~other == 0 for other in done)]
    return PlanBoundary(_root_steps_of_plan(plan), tuple(sorted(exits)))


def root_tasks_of_plan(plan: Plan) -> list[Task]:
    """The tasks that follow no other."""
    return [plan.tasks[step.task] for n in _root_steps_of_plan(plan) if isinstance(step := plan.steps[n], Launch)]


def _root_steps_of_plan(plan: Plan) -> tuple[int, ...]:
    """The numbers of the steps that launch the first task of a stream which follows no other."""
    entered: set[int] = set()  # streams, on which all that comes follows a root
    recorded: set[int] = set()  # events that follow a root
    roots: list[int] = []
    for number, step in enumerate(plan.steps):
        if isinstance(step, Record) and step.stream in entered:
            recorded.add(step.event)
        elif isinstance(step, Wait) and step.event in recorded:
            entered.add(step.stream)
        elif isinstance(step, Launch) and step.stream not in entered:
            roots.append(number)
            entered.add(step.stream)
    return tuple(roots)


def happens_before_relation_of_plan(plan: Plan) -> list[int]:
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


FRESH = -1
FOREVER = 1 << 62  # iterations, where a flag decides


@frozen
class Loop:
    """A body that runs iteration after iteration, each after the one before.

    body: its inputs are the carried values, then others; its outputs are the new ones of the carried values that are
    FRESH, then one part of each stacked output; its first number is the iteration's, from 0. follows[i]: the carried
    value that value i takes over, or FRESH. moves: the bytes that each other input, then each stacked output, moves on
    by at each iteration. count: the iterations, None where an argument says it, or `flag` is set: then a iteration runs
    only while carried value 0, a bool, is true.
    """

    body: Plan
    follows: tuple[int, ...]
    moves: tuple[int, ...]
    count: int | None = None
    flag: bool = False

    @property
    def bodies(self) -> tuple[Plan, ...]:
        return (self.body,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each carried value."""
        program = self.body.program
        return tuple(program.buffers[b].nbytes for b in program.inputs[: len(self.follows)])

    @property
    def rotation(self) -> LoopRotation:
        return loop_rotation_of_plan(self.follows, self.sizes, self.flag)

    def __str__(self) -> str:
        return "while" if self.flag else f"loop of {'a number of' if self.count is None else self.count} turns"


@frozen
class Branch:
    """Two bodies with the same inputs, outputs and numbers. A bool in memory says which one runs: the first if true."""

    bodies: tuple[Plan, Plan]

    def __str__(self) -> str:
        return "branch"


@frozen
class LoopRotation:
    """Where carried values live. Places 0, 1, ... are the initial values', those from `carried` on the pool's.

    Row `at(t)` is iteration t's. held[row][i]: the place of carried value i before the iteration; fresh[row]: the
    places that the iteration writes. names[row]: for a loop that ends there, which buffer of the pool is each of its
    places: results then lie where they belong. After the last row comes row `lead`.
    """

    lead: int
    held: tuple[tuple[int, ...], ...]
    fresh: tuple[tuple[int, ...], ...]
    names: tuple[tuple[int, ...], ...]

    def at(self, iteration: int) -> int:
        rows = len(self.held)
        return iteration if iteration < rows else self.lead + (iteration - self.lead) % (rows - self.lead)


@lru_cache(1024)
def loop_rotation_of_plan(follows: tuple[int, ...], sizes: tuple[int, ...], flag: bool) -> LoopRotation:
    """The rotation of a loop, by trying it until a state comes back. flag: nothing is known of the last iteration.

    Raises ValueError where two values take over the same one."""
    count = len(follows)
    taken = [source for source in follows if source != FRESH]
    if len(set(taken)) != len(taken):
        raise ValueError("two carried values take over the same one")
    owners = [*range(count), *(i for i in range(count) if follows[i] == FRESH)]  # a pool place has its size
    free = [count + place for place in range(len(owners))]
    held = tuple(range(count))
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    every: list[tuple[int, ...]] = []
    fresh: list[tuple[int, ...]] = []
    while (state := (held, tuple(free))) not in seen:
        seen[state] = len(every)
        every.append(held)
        written, left = [], list(free)
        for i in range(count):
            if follows[i] == FRESH:
                place = next(p for p in left if sizes[owners[p - count]] == sizes[i])
                left.remove(place)
                written.append(place)
        fresh.append(tuple(written))
        new = iter(written)
        following = tuple(next(new) if source == FRESH else held[source] for source in follows)
        free = left + [place for i, place in enumerate(held) if i not in follows and place >= count]
        held = following
    names = tuple(_pool_buffers_of_planned_loop(row, owners, sizes, count, flag) for row in every)
    return LoopRotation(seen[state], tuple(every), tuple(fresh), names)


def _pool_buffers_of_planned_loop(
    held: Sequence[int], owners: Sequence[int], sizes: Sequence[int], count: int, flag: bool
) -> tuple[int, ...]:
    """For each place of the pool its buffer: number i is where result i goes, if the place holds it in the end."""
    if flag:
        return tuple(range(len(owners)))
    found: dict[int, int] = {}
    for i, place in enumerate(held):
        if place >= count and place not in found:
            found[place] = i
    left = [b for b in range(len(owners)) if b not in found.values()]
    for place in range(count, count + len(owners)):
        if place not in found:
            size = sizes[owners[place - count]]
            found[place] = next(b for b in left if sizes[owners[b]] == size)
            left.remove(found[place])
    return tuple(found[count + p] for p in range(len(owners)))


@frozen
class ControlFlowArguments:
    """A loop task's arguments by what they are for."""

    initial: tuple[Argument, ...]
    results: tuple[Argument, ...]
    pool: tuple[Argument, ...]
    others: tuple[Argument, ...]
    stacked: tuple[Argument, ...]
    workspace: Argument | None
    count: Argument | None
    numbers: tuple[Argument, ...]


def pool_sizes_of_planned_loop(loop: Loop) -> tuple[int, ...]:
    """The bytes of each buffer of the pool. Unless the loop has a flag, the first are those of the results."""
    sizes = loop.sizes
    return (*sizes, *(size for size, source in zip(sizes, loop.follows, strict=True) if source == FRESH))


def control_flow_arguments(task: Task) -> ControlFlowArguments:
    loop = task.kernel
    assert isinstance(loop, Loop)
    given = iter(task.arguments)
    program = loop.body.program

    def take_arguments(n: int) -> tuple[Argument, ...]:
        return tuple(next(given) for _ in range(n))

    carried, fresh = len(loop.follows), loop.follows.count(FRESH)
    return ControlFlowArguments(
        take_arguments(carried),
        take_arguments(carried),
        take_arguments(carried + fresh),
        take_arguments(len(program.inputs) - carried),
        take_arguments(len(program.outputs) - fresh),
        next(given) if loop.body.arena_bytes else None,
        None if loop.flag else next(given),
        take_arguments(len(program.scalars) - 1),
    )


def nested_plans(plan: Plan) -> Iterator[tuple[Task, Plan]]:
    """The bodies of the loops and branches of a plan, each with its task."""
    for task in plan.tasks:
        for body in control_flow_bodies(task):
            yield task, body


def is_device_copy(program: Program, task: Task) -> bool:
    """Whether a task copies a buffer to another device."""
    if task.kernel != Library("copy"):
        return False
    return program.buffers[task.reads[0].buffer].device != program.buffers[task.writes[0].buffer].device


def all_kernels_of_plan(plan: Plan) -> list[Kernel]:
    """All kernels of a plan, those of bodies too, each once."""
    return all_kernels_of_tasks(plan.tasks)


def all_kernels_of_tasks(tasks: Sequence[Task]) -> list[Kernel]:
    """All kernels of tasks, those of bodies too, each once."""
    found = [task.kernel for task in tasks if isinstance(task.kernel, Kernel)]
    for task in tasks:
        for body in control_flow_bodies(task):
            found += all_kernels_of_plan(body)
    return list(dict.fromkeys(found))


def least_bytes_of_task(task: Task) -> int:
    """The bytes that a task moves when it reads and writes each element once. Of a loop those of all its iterations.

    Reads that overlap, as a stencil's shifted ones do, count once: for each buffer at most the bytes between the first
    and the last one touched."""
    if isinstance(task.kernel, (Kernel, Library, Collective)):
        return union_bytes_of_regions(task.reads) + union_bytes_of_regions(task.writes)
    return sum(count * sum(map(least_bytes_of_task, tasks)) for count, tasks in _body_runs_of_control_task(task.kernel))


def flops_of_task(task: Task) -> float:
    """The floating-point operations of a task, as the cost model counts them. Of a loop those of all its iterations."""
    if isinstance(task.kernel, (Kernel, Library, Collective)):
        return task.flops
    return sum(count * sum(map(flops_of_task, tasks)) for count, tasks in _body_runs_of_control_task(task.kernel))


def _body_runs_of_control_task(control: Loop | Branch) -> Iterator[tuple[int, tuple[Task, ...]]]:
    """How often each body runs, as far as that is known, else once; of a branch the first body alone."""
    count = control.count if isinstance(control, Loop) else 1
    yield (1 if count in (None, FOREVER) else count or 0), control.bodies[0].tasks
