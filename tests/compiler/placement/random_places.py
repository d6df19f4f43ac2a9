"""Random graphs with random places, their plans over several devices, and plans made wrong on purpose.

python -m tests.compiler.placement.random_places COUNT [SEED]: counts what the verifier says of so many plans, and of
their mutants, beside what a machine with a memory for each device makes of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from kernelgraph.compiler.core.cost import CPU
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.placement.clusters import DeviceLink, choose_device_slots
from kernelgraph.compiler.placement.partition import Move, Part, Partition, partition_graph_by_device
from kernelgraph.compiler.placement.places import devices_of_placed_graph, place_nodes_by_arguments
from kernelgraph.runtime.program.plan import Launch, Plan, Record, is_device_copy
from kernelgraph.runtime.program.program import Buffer, Kernel, Program, Region, Scalar, Task
from kernelgraph.runtime.schedule.join import PlanJoiner
from kernelgraph.runtime.verify.plan import find_plan_violations

F64 = np.dtype(np.float64)
NUMBER = 0.5


def random_graph(rng: Random, devices: int, placing: float = 0.2) -> Graph:
    """Of sums, products, reductions and constants, some of them placed."""
    b = GraphBuilder("random")
    values: list[Value] = [b.input(ArrayType((3, 4), F64)) for _ in range(rng.randint(1, 3))]
    number = b.scalar(float)
    for _ in range(rng.randint(2, 14)):
        x, y = (rng.choice(values) for _ in range(2))
        what = rng.random()
        if what < placing:
            made = b.placed(x, ("cpu", rng.randrange(devices)))
        elif what < 0.5:
            made = b.map(rng.choice(["add", "multiply", "maximum"]), x, y)
        elif what < 0.6:
            made = b.map("multiply", x, number)
        elif what < 0.7:
            made = b.broadcast(b.const(rng.random()), (3, 4))
        elif what < 0.8 and x.shape:
            made = b.broadcast(b.reduce("sum", x, [0, 1]), (3, 4))
        else:
            made = b.map("negative", x)
        values.append(made)
    return b.finish([rng.choice(values) for _ in range(rng.randint(1, 3))])


def partitioned(rng: Random, reads_peers: bool = False) -> tuple[Graph, Partition, int]:
    """A random graph, placed by its places, by choice, or at random."""
    count = rng.randint(2, 4)
    graph = random_graph(rng, count)
    devices = devices_of_placed_graph(graph, [("cpu", i) for i in range(count)])
    places = place_nodes_by_arguments(graph, devices)
    slots = list(places.slots)
    how = rng.random()
    if how < 0.4:
        slots = choose_device_slots(graph, places, CPU, DeviceLink(rng.choice([0.0, 1e3]), 1.0))
    elif how < 0.8:
        slots = [None if s is None else rng.randrange(count) for s in slots]
    homes = [rng.randrange(count) for _ in graph.inputs] if reads_peers else None
    wanted = [rng.choice([None, rng.randrange(count)]) for _ in graph.outputs]
    return graph, partition_graph_by_device(graph, slots, wanted, homes), count


def plan_of(partition: Partition, devices: int, reads_peers: bool = False) -> Plan:
    """The plan, with one task for each part, whose number in the partition is its kernel's name."""
    outputs = {*partition.outputs}
    kinds = [
        "input" if x.source >= 0 else "output" if v in outputs else "value" for v, x in enumerate(partition.values)
    ]
    values = [
        Buffer(x.type.nbytes, kind, device=x.slot, source=x.source)
        for x, kind in zip(partition.values, kinds, strict=True)
    ]
    joiner = PlanJoiner([("cpu", i) for i in range(devices)], values)
    for number, step in enumerate(partition.steps):
        if isinstance(step, Move):
            joiner.add_copy(step.source, step.target)
        else:
            joiner.add_part(part_of_one_task(number, step), step.slot, step.reads, step.writes, step.numbers)
    return replace(joiner.finish(partition.outputs, "random", "cpu"), reads_peers=reads_peers)


def part_of_one_task(number: int, step: Part) -> Plan:
    graph = step.graph
    sizes = [graph.nodes[n].type.nbytes for n in (*graph.inputs, *graph.outputs)]
    count = len(graph.inputs)
    buffers = tuple(Buffer(nbytes, "input" if b < count else "output") for b, nbytes in enumerate(sizes))
    regions = [Region(b, 0, (nbytes,), (1,), 1, "uint8") for b, nbytes in enumerate(sizes)]
    numbers = tuple(Scalar(i, "float64") for i in range(len(graph.numbers)))
    kernel = Kernel(str(number), "cpu", "", ())
    task = Task(f"part{number}", kernel, numbers, tuple(regions[:count]), tuple(regions[count:]))
    places = tuple(range(count)), tuple(range(count, len(buffers)))
    program = Program(buffers, (task,), *places, ("float64",) * len(graph.numbers))
    return Plan(program, (Launch(0, 0), Record(0, 0)), 1, 1, (None,) * len(buffers), 0, (0,) * len(places[1]))


class OnWrongDevice(Exception):
    """A task reads what its device does not have, or is never launched."""


def simulate(plan: Plan, partition: Partition, arrays: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
    """What the plan gives, with a memory for each device: a task sees that of its stream's, and of others if the plan
    reads peers."""
    memories: list[dict[int, Any]] = [{} for _ in plan.devices]
    buffers = plan.program.buffers

    def read(b: int, device: int) -> Any:
        try:
            return memories[buffers[b].device if plan.reads_peers else device][b]
        except KeyError:
            raise OnWrongDevice from None

    for b, buffer in enumerate(buffers):
        if buffer.source >= 0:
            memories[buffer.device][b] = arrays[buffer.source]
    launched = [step for step in plan.steps if isinstance(step, Launch)]
    if len(launched) < len(plan.tasks):
        raise OnWrongDevice
    for step in launched:
        task, home = plan.tasks[step.task], plan.homes[step.stream]
        if is_device_copy(plan.program, task):
            source, target = task.reads[0].buffer, task.writes[0].buffer
            memories[buffers[target].device][target] = read(source, buffers[source].device)
            continue
        given = [read(r.buffer, home) for r in task.reads]
        results = given
        if task.name != "copy":
            assert isinstance(task.kernel, Kernel)
            part = partition.steps[int(task.kernel.name)]
            assert isinstance(part, Part)
            results = interpret_graph(
                part.graph, given, [numbers[a.index] for a in task.arguments if isinstance(a, Scalar)]
            )
        for region, result in zip(task.writes, results, strict=True):
            if buffers[region.buffer].device != home:
                raise OnWrongDevice
            memories[home][region.buffer] = result
    return [read(b, buffers[b].device) for b in plan.program.outputs]


def mutants(rng: Random, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Each with its kind: a task dropped, started earlier or later, run elsewhere, a value elsewhere, the wrong value
    read."""
    steps, program, count = plan.steps, plan.program, len(plan.devices)
    launches = [i for i, step in enumerate(steps) if isinstance(step, Launch)]
    own = {i: [j for j, s in enumerate(steps) if s.stream == steps[i].stream and j <= i + 1] for i in launches}
    for i in launches:
        yield "dropped", replace(plan, steps=steps[:i] + steps[i + 1 :])
        since = max((j + 1 for j in own[i] if j < i and isinstance(steps[j], Record)), default=min(own[i]))
        block = [j for j in own[i] if j >= since]  # what it waits for, the launch, the record
        rest = [j for j in range(len(steps)) if j not in block]
        at = rng.randrange(len(rest) + 1)
        yield "moved", replace(plan, steps=tuple(steps[j] for j in (*rest[:at], *block, *rest[at:])))
        step = steps[i]
        assert isinstance(step, Launch)
        task, home = program.tasks[step.task], plan.homes[step.stream]
        homes = tuple((h + 1) % count if s == step.stream else h for s, h in enumerate(plan.homes))
        if is_device_copy(program, task):
            yield "source", with_task(plan, step.task, replace(task, reads=task.writes))
            continue
        yield "device", replace(plan, homes=homes)
        for k, region in enumerate(task.reads):
            near = program.buffers[region.buffer].device, home
            far = [w for w, x in enumerate(program.buffers) if x.device not in near and x.nbytes >= region.span[1]]
            if far and not plan.reads_peers:  # which may
                wrong = replace(region, buffer=rng.choice(far))
                yield (
                    "read",
                    with_task(plan, step.task, replace(task, reads=(*task.reads[:k], wrong, *task.reads[k + 1 :]))),
                )
    for b, buffer in enumerate(program.buffers):
        wrong_buffer = replace(buffer, device=(buffer.device + 1) % count)
        buffers = (*program.buffers[:b], wrong_buffer, *program.buffers[b + 1 :])
        yield "value", replace(plan, program=replace(program, buffers=buffers))


def with_task(plan: Plan, number: int, task: Task) -> Plan:
    tasks = (*plan.tasks[:number], task, *plan.tasks[number + 1 :])
    return replace(plan, program=replace(plan.program, tasks=tasks))


@dataclass
class Verdicts:
    """What the verifier says. refused: right plans; wrong: plans that give something else than their graph. killed:
    unsafe mutants that it refuses, by kind; missed: those that it lets pass. accepted: mutants that give what the plan
    gives; doubted: such ones that it refuses all the same, by kind and reason."""

    plans: int = 0
    refused: int = 0
    wrong: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    accepted: int = 0
    doubted: Counter[str] = field(default_factory=Counter)


def verify_random_plans(rng: Random, count: int) -> Verdicts:
    """Each simulated and verified, and each of its mutants."""
    verdicts = Verdicts()
    for _ in range(count):
        reads_peers = rng.random() < 0.4
        graph, partition, devices = partitioned(rng, reads_peers)
        plan = plan_of(partition, devices, reads_peers)
        arrays = [np.full((3, 4), rng.random()) for _ in graph.inputs]
        got, want = simulate(plan, partition, arrays, [NUMBER]), interpret_graph(graph, arrays, [NUMBER])
        verdicts.plans += 1
        verdicts.refused += bool(find_plan_violations(plan))
        verdicts.wrong += not all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
        for kind, mutant in mutants(rng, plan):
            found = find_plan_violations(mutant)
            try:
                simulate(mutant, partition, arrays, [NUMBER])
            except OnWrongDevice:
                if found:
                    verdicts.killed[kind] += 1
                else:
                    verdicts.missed.append(f"{kind}\n{mutant}")
                continue
            if found:
                verdicts.doubted[f"{kind}: {found[0]}"] += 1
            else:
                verdicts.accepted += 1
    return verdicts


def main(count: int, seed: int = 0) -> None:
    verdicts = verify_random_plans(Random(seed), count)
    kinds = ", ".join(f"{n} {kind}" for kind, n in verdicts.killed.items())
    unsafe = verdicts.killed.total() + len(verdicts.missed)
    print(f"{verdicts.plans} plans: {verdicts.refused} refused, {verdicts.wrong} wrong")
    print(f"{verdicts.killed.total()} of {unsafe} unsafe mutants killed ({kinds})")
    print(
        f"{verdicts.accepted} harmless mutants accepted, {verdicts.doubted.total()} refused: {dict(verdicts.doubted)}"
    )
    for missed in verdicts.missed:
        print(missed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
