"""Random plans over several devices or ranks: random plans of one device, joined by copies and collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from kernelgraph.runtime.program.collective import Collective
from kernelgraph.runtime.program.plan import Launch, Plan, Wait, is_device_copy
from kernelgraph.runtime.program.program import Buffer, Region, Task
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.join import PlanJoiner
from kernelgraph.runtime.schedule.schedule import schedule
from tests.plan_parts import is_between, parts
from tests.runtime.dags import WORD, program_of, random_dag, random_program
from tests.runtime.mutants import MUTATIONS, Mutation

FAKE = MACHINES["fake"]


def random_part(rng: Random) -> Plan:
    """A plan of one device that writes no input."""
    while True:
        program = random_program(rng, rng.randint(1, 5))
        if rng.random() < 0.3:
            program = program_of(random_dag(rng, rng.randint(1, 5)), rng, (4, 16, 64))
        if not {w.buffer for task in program.tasks for w in task.writes} & {*program.inputs}:
            return schedule(program, rng.choice([1, 2, 3, "max"]), rng.choice(["balanced", "small"]), machine=FAKE)


class _RandomPlaces:
    """What is to be joined, as it grows: the joiner wants to know all values first."""

    def __init__(self, rng: Random, ranks: int) -> None:
        self.rng, self.ranks = rng, ranks
        self.count = 1 if ranks > 1 else rng.randint(2, 4)
        self.values: list[Buffer] = []
        self.used: set[int] = set()
        self.steps: list[tuple[str, tuple[object, ...]]] = []
        self.reads_peers = self.count > 1 and rng.random() < 0.3

    def value(self, nbytes: int, device: int, given: bool = False) -> int:
        self.values.append(Buffer(nbytes, "input" if given else "value", device=device, source=-1 + given))
        return len(self.values) - 1

    def value_on(self, device: int, nbytes: int, exact: bool = False) -> int:
        """Of at least so many bytes: one that is there, a copy of another, or a new input."""
        fit = [v for v, b in enumerate(self.values) if (b.nbytes == nbytes if exact else b.nbytes >= nbytes)]
        if not fit or self.rng.random() < 0.1:
            return self.value(nbytes, device, given=True)
        chosen = self.rng.choice(fit)
        self.used.add(chosen)
        if self.values[chosen].device == device or (self.reads_peers and not exact and self.rng.random() < 0.5):
            return chosen
        copied = self.value(self.values[chosen].nbytes, device)
        self.steps.append(("copy", (chosen, copied)))
        self.used.add(copied)
        return copied

    def add_part(self) -> None:
        part, device = random_part(self.rng), self.rng.randrange(self.count)
        program, buffers = part.program, part.program.buffers
        reads = [self.value_on(device, buffers[b].nbytes) for b in program.inputs]
        writes = [self.value(buffers[b].nbytes, device) for b in program.outputs]
        self.steps.append(("part", (part, device, reads, writes, ())))

    def add_collective(self) -> None:
        words = self.rng.choice([b.nbytes for b in self.values if b.kind != "input"]) // WORD
        reads = [self.value_on(d, words * WORD, exact=True) for d in range(self.count)]
        writes = [self.value(words * WORD, d) for d in range(self.count)]
        kernel = Collective("all_reduce", (words,), "float32", "sum", devices=self.count)
        self.steps.append(("collective", (kernel, reads, writes)))


def random_placed_plan(rng: Random) -> Plan:
    """Of two to four devices, or of a rank of several."""
    made = _RandomPlaces(rng, rng.choice([1, 1, 1, 2]))
    made.add_part()
    for _ in range(rng.randint(1, 5)):
        made.add_collective() if rng.random() < 0.3 else made.add_part()
    unused = [v for v, b in enumerate(made.values) if b.kind != "input" and v not in made.used]
    outputs = list(dict.fromkeys([*unused, *rng.sample(range(len(made.values)), rng.randint(0, 2))]))
    values = [replace(b, kind="output") if v in outputs and b.kind != "input" else b for v, b in enumerate(made.values)]
    joiner = PlanJoiner([("fake", d) for d in range(made.count)], values)
    for what, given in made.steps:
        getattr(joiner, f"add_{what}")(*given)
    return replace(joiner.finish(outputs, "placed", "fake"), ranks=made.ranks, reads_peers=made.reads_peers)


# Mistakes that cross the border of a part.


def _with_task(plan: Plan, number: int, task: Task) -> Plan:
    tasks = (*plan.tasks[:number], task, *plan.tasks[number + 1 :])
    return replace(plan, program=replace(plan.program, tasks=tasks))


def _with_buffer(plan: Plan, b: int, buffer: Buffer) -> Plan:
    buffers = (*plan.program.buffers[:b], buffer, *plan.program.buffers[b + 1 :])
    return replace(plan, program=replace(plan.program, buffers=buffers))


def _copies(plan: Plan) -> list[int]:
    return [t for t, task in enumerate(plan.tasks) if is_device_copy(plan.program, task)]


def _collectives(plan: Plan) -> list[int]:
    return [t for t, task in enumerate(plan.tasks) if isinstance(task.kernel, Collective)]


def _moved_region(region: Region, buffers: dict[int, int]) -> Region:
    return replace(region, buffer=buffers.get(region.buffer, region.buffer))


def dropped_wait_between_parts(rng: Random, plan: Plan) -> Iterator[Plan]:
    """A part, copy or collective starts before what another writes for it is there."""
    streams = {step.event: step.stream for step in plan.steps if not isinstance(step, (Launch, Wait))}
    between = {s.stream for s in plan.steps if isinstance(s, Launch) and is_between(plan, s.task)}
    for i, step in enumerate(plan.steps):
        if isinstance(step, Wait) and {streams[step.event], step.stream} & between:
            yield replace(plan, steps=plan.steps[:i] + plan.steps[i + 1 :])


def buffer_elsewhere(rng: Random, plan: Plan) -> Iterator[Plan]:
    for b, buffer in enumerate(plan.program.buffers):
        if len(plan.devices) > 1:
            yield _with_buffer(plan, b, replace(buffer, device=(buffer.device + 1) % len(plan.devices)))


def stream_elsewhere(rng: Random, plan: Plan) -> Iterator[Plan]:
    for s, home in enumerate(plan.homes):
        if len(plan.devices) > 1:
            yield replace(plan, homes=(*plan.homes[:s], (home + 1) % len(plan.devices), *plan.homes[s + 1 :]))


def skipped_copy(rng: Random, plan: Plan) -> Iterator[Plan]:
    """A reader takes what was copied where it lies, on the other device."""
    for t in _copies(plan):
        buffers = {plan.tasks[t].writes[0].buffer: plan.tasks[t].reads[0].buffer}
        for number, task in enumerate(plan.tasks):
            reads = tuple(_moved_region(r, buffers) for r in task.reads)
            if reads != task.reads:
                yield _with_task(plan, number, replace(task, reads=reads))


def shortened_copy(rng: Random, plan: Plan) -> Iterator[Plan]:
    for t in _copies(plan):
        task = plan.tasks[t]
        reads, writes = (
            (replace(r, shape=(r.shape[0] - WORD,)),) if r.shape[0] > WORD else () for r in (*task.reads, *task.writes)
        )
        if reads and writes:
            yield _with_task(plan, t, replace(task, reads=reads, writes=writes))


def copied_onto_itself(rng: Random, plan: Plan) -> Iterator[Plan]:
    for t in _copies(plan):
        yield _with_task(plan, t, replace(plan.tasks[t], reads=plan.tasks[t].writes))


def two_parts_in_one_place(rng: Random, plan: Plan) -> Iterator[Plan]:
    """Two temporaries of different parts of one device share bytes of its arena."""
    homes = {t: i for i, (_, tasks) in enumerate(parts(plan)) for t in tasks}
    owners = {r.buffer: homes[t] for t, task in enumerate(plan.tasks) for r in (*task.reads, *task.writes)}
    temps = [b for b, offset in enumerate(plan.offsets) if offset is not None and b in owners]
    for b in temps:
        device = plan.program.buffers[b].device
        others = [o for o in temps if owners[o] != owners[b] and plan.program.buffers[o].device == device]
        if others:
            offset = plan.offsets[rng.choice(others)]
            assert offset is not None
            arena = max(plan.arena_bytes, offset + plan.program.buffers[b].nbytes)
            yield replace(plan, offsets=(*plan.offsets[:b], offset, *plan.offsets[b + 1 :]), arena_bytes=arena)


def collective_of_the_wrong(rng: Random, plan: Plan) -> Iterator[Plan]:
    """Devices, or sizes."""
    for t in _collectives(plan):
        task = plan.tasks[t]
        assert isinstance(task.kernel, Collective)
        if len(task.reads) > 1:
            turned = (*task.reads[1:], task.reads[0])
            yield _with_task(plan, t, replace(task, reads=turned))
            yield _with_task(plan, t, replace(task, reads=task.reads[:1] * len(task.reads)))
        yield _with_task(plan, t, replace(task, kernel=replace(task.kernel, counts=(task.kernel.counts[0] + 1,))))


def collectives_in_any_order(rng: Random, plan: Plan) -> Iterator[Plan]:
    """One is put on a stream of its own."""
    numbers = _collectives(plan)
    for i, step in enumerate(plan.steps):
        if isinstance(step, Launch) and step.task in numbers and len(numbers) > 1:
            own = plan.streams
            before = [j for j in range(i) if plan.steps[j].stream == step.stream]
            launches = [j for j in before if isinstance(plan.steps[j], Launch)]
            waits = {j for j in before if j > max(launches, default=-1)}
            moved = {i, *(j for j in waits if isinstance(plan.steps[j], Wait)), i + 1}
            steps = [replace(s, stream=own) if j in moved else s for j, s in enumerate(plan.steps)]
            yield replace(
                plan,
                steps=tuple(steps),
                streams=own + 1,
                homes=(*plan.homes, 0),
            )


PLACED_MUTATIONS: Sequence[Mutation] = (
    *MUTATIONS,
    dropped_wait_between_parts,
    buffer_elsewhere,
    stream_elsewhere,
    skipped_copy,
    shortened_copy,
    copied_onto_itself,
    two_parts_in_one_place,
    collective_of_the_wrong,
    collectives_in_any_order,
)
