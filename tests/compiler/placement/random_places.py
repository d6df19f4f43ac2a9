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
from kernelgraph.runtime.program.multi_device import CopyValue, DeviceStep, DeviceValue, MultiDevicePlan, RunPart
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.program.program import Buffer, Program
from kernelgraph.runtime.verify.multi_device import find_multi_device_violations

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


def plan_of(partition: Partition, devices: int, reads_peers: bool = False) -> MultiDevicePlan:
    """The plan, its parts without tasks."""
    parts: list[Plan] = []
    steps: list[DeviceStep] = []
    for step in partition.steps:
        if isinstance(step, Move):
            steps.append(CopyValue(step.source, step.target))
            continue
        graph = step.graph
        types = [graph.nodes[n].type for n in (*graph.inputs, *graph.outputs)]
        kinds = ["input"] * len(graph.inputs) + ["output"] * len(graph.outputs)
        buffers = tuple(Buffer(t.nbytes, kind) for t, kind in zip(types, kinds, strict=True))
        count = len(graph.inputs)
        places = tuple(range(count)), tuple(range(count, len(buffers)))
        program = Program(buffers, (), *places, tuple("float64" for _ in graph.numbers))
        steps.append(RunPart(len(parts), step.slot, step.reads, step.writes, step.numbers))
        parts.append(Plan(program, (), 1, 0, (None,) * len(buffers), 0))
    values = tuple(DeviceValue(v.type.nbytes, v.slot, v.source) for v in partition.values)
    names = tuple(("cpu", i) for i in range(devices))
    return MultiDevicePlan(names, values, tuple(parts), tuple(steps), partition.outputs, reads_peers=reads_peers)


class OnWrongDevice(Exception):
    """A step reads what its device does not have, or copies from a device to itself."""


def simulate(
    plan: MultiDevicePlan, graphs: Sequence[Graph | None], arrays: Sequence[Any], numbers: Sequence[Any]
) -> list[Any]:
    """What the plan gives, with a memory for each device: a step sees that of its own, and of others if the plan
    reads peers. graphs: of the steps."""
    memories: list[dict[int, Any]] = [{} for _ in plan.devices]

    def read(v: int, device: int) -> Any:
        return memories[plan.values[v].device if plan.reads_peers else device][v]

    for v, value in enumerate(plan.values):
        if value.source >= 0:
            memories[value.device][v] = arrays[value.source]
    for step, graph in zip(plan.steps, graphs, strict=True):
        try:
            if isinstance(step, CopyValue):
                source, target = plan.values[step.source], plan.values[step.target]
                if source.nbytes != target.nbytes or source.device == target.device:  # no GPU is a peer of itself
                    raise OnWrongDevice
                memories[target.device][step.target] = memories[source.device][step.source]
                continue
            assert graph is not None
            given = [read(v, step.device) for v in step.reads]
        except KeyError:
            raise OnWrongDevice from None
        results = interpret_graph(graph, given, [numbers[i] for i in step.scalars])
        for v, result in zip(step.writes, results, strict=True):
            if plan.values[v].device != step.device:
                raise OnWrongDevice
            memories[step.device][v] = result
    return [memories[plan.values[v].device][v] for v in plan.outputs]


Mutant = tuple[MultiDevicePlan, list[Graph | None]]


def mutants(rng: Random, plan: MultiDevicePlan, graphs: Sequence[Graph | None]) -> Iterator[tuple[str, Mutant]]:
    """Each with its kind: a step dropped, moved up or down, run elsewhere, a value elsewhere, the wrong value read."""
    steps = plan.steps
    count = len(plan.devices)

    def changed(i: int, step: DeviceStep) -> Mutant:
        return replace(plan, steps=(*steps[:i], step, *steps[i + 1 :])), list(graphs)

    for i, step in enumerate(steps):
        rest = replace(plan, steps=steps[:i] + steps[i + 1 :]), [*graphs[:i], *graphs[i + 1 :]]
        yield "dropped", rest
        order = list(range(len(steps)))
        order.insert(rng.randrange(len(steps)), order.pop(i))
        yield "moved", (replace(plan, steps=tuple(steps[k] for k in order)), [graphs[k] for k in order])
        if isinstance(step, RunPart):
            yield "device", changed(i, replace(step, device=(step.device + 1) % count))
            for k, v in enumerate(step.reads):
                near = plan.values[v].device, step.device
                far = [(w, x) for w, x in enumerate(plan.values) if x.device not in near]
                others = [w for w, _ in far if not plan.reads_peers]  # which may
                if others:
                    reads = (*step.reads[:k], rng.choice(others), *step.reads[k + 1 :])
                    yield "read", changed(i, replace(step, reads=reads))
        else:
            yield "source", changed(i, replace(step, source=step.target))
    for v, value in enumerate(plan.values):
        wrong = replace(value, device=(value.device + 1) % count)
        yield "value", (replace(plan, values=(*plan.values[:v], wrong, *plan.values[v + 1 :])), list(graphs))


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
        graphs = [s.graph if isinstance(s, Part) else None for s in partition.steps]
        arrays = [np.full((3, 4), rng.random()) for _ in graph.inputs]
        got, want = simulate(plan, graphs, arrays, [NUMBER]), interpret_graph(graph, arrays, [NUMBER])
        verdicts.plans += 1
        verdicts.refused += bool(find_multi_device_violations(plan))
        verdicts.wrong += not all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
        for kind, (mutant, its) in mutants(rng, plan, graphs):
            found = find_multi_device_violations(mutant)
            try:
                simulate(mutant, its, arrays, [NUMBER])
            except (OnWrongDevice, KeyError):
                if found:
                    verdicts.killed[kind] += 1
                else:
                    verdicts.missed.append(f"{kind}\n{mutant}")
                continue
            if found:
                verdicts.doubted[f"{kind}: {found[0].rpartition(') ')[2]}"] += 1
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
