"""Batching and packing merge only independent tasks that do the same; every member still does exactly what it did."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.dsl.jit import specializations
from kernelgraph.runtime.program.program import (
    Buffer,
    Int,
    Kernel,
    Library,
    Program,
    Region,
    Task,
    packed_member_tasks,
    task_dependences_of_program,
)
from kernelgraph.runtime.schedule.batching import BATCH_MOST, pack_small_launches, schedule_matmul_batches
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import (
    batch_matmul_tasks_where_faster,
    choose_plan_candidates,
    plan_by_cost_model,
    predicted_microseconds,
    schedule,
)
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.compiler.access_audit import Touched, declared, run_program
from tests.compiler.programs import graphs
from tests.counts import examples
from tests.runtime.dags import KERNEL, program_of, random_dag, random_program, region

FAKE = replace(MACHINES["fake"], packs=True, batches=True)
GPU = replace(MACHINES["cuda"], packs=True, batches=True)


def apart(program: Program) -> Program:
    """The program with every member a task of its own."""
    return replace(program, tasks=tuple(m for t in program.tasks for m in packed_member_tasks(t)))


def stripped(task: Task) -> Task:
    """What a task does, without how it is named, estimated and explained."""
    return replace(task, name="", cost=0.0, line="", same_element=frozenset())


def order_of(program: Program) -> set[tuple[Task, Task]]:
    """Every pair that must be kept in order."""
    return {
        (stripped(program.tasks[p]), stripped(program.tasks[v]))
        for v, sources in enumerate(task_dependences_of_program(program))
        for p in sources
    }


@pytest.mark.parametrize("machine", [FAKE, GPU], ids=lambda m: m.name)
def test_packing_keeps_every_task_and_every_dependence(machine):
    rng = Random(5)
    merged = 0
    for _ in range(300):
        program = random_program(rng, rng.randint(2, 25))
        # no task of a random program writes exactly as another does but for its buffers' names
        made = pack_small_launches(program, machine)
        assert Counter(map(stripped, apart(made).tasks)) == Counter(map(stripped, program.tasks))
        assert order_of(apart(made)) == order_of(program)
        assert made.buffers == program.buffers and made.outputs == program.outputs
        merged += len(program.tasks) - len(made.tasks)
        if made is not program:
            plan = schedule(made, machine=machine)
            assert find_plan_violations(plan) == []
    assert merged > 150


def test_nothing_to_merge_gives_the_very_program():
    chain = program_of([frozenset({v - 1} if v else set()) for v in range(9)], Random(0))
    assert pack_small_launches(chain, FAKE) is chain and schedule_matmul_batches(chain, FAKE) is chain
    assert pack_small_launches(replace(chain, tasks=()), FAKE).tasks == ()


def test_large_and_long_tasks_are_left_alone():
    def program(cost: float, units: int) -> Program:
        tasks = tuple(
            Task(f"k{i}", KERNEL, (), (region(0, 0, 16),), (region(i + 1, 0, 16),), units=units, cost=cost)
            for i in range(4)
        )
        return Program((Buffer(64, "input"), *[Buffer(64, "output")] * 4), tasks, (0,), (1, 2, 3, 4))

    assert len(pack_small_launches(program(2.0, 4), FAKE).tasks) == 1
    assert len(pack_small_launches(program(2000.0, 4), FAKE).tasks) == 4
    assert len(pack_small_launches(program(2.0, 1000), FAKE).tasks) == 4


@pytest.mark.parametrize(
    ("count", "arguments"), [(1, 6), (64, 6), (64, 40), (1000, 1), (1000, 6), (1000, 40), (20_000, 6)]
)
def test_a_packed_launch_has_no_more_arguments_than_a_launch_takes(count: int, arguments: int) -> None:
    """900 launches of six arguments each were one of 43,200 bytes, which no GPU takes."""
    tasks = tuple(
        Task("k", KERNEL, (Int(i),) * arguments, (), (region(0, 16 * i, 16),), cost=0.001) for i in range(count)
    )
    program = Program((Buffer(64 * count, "output"),), tasks, (), (0,))
    made = pack_small_launches(program, GPU)
    assert max(8 * len(task.arguments) for task in made.tasks) <= 32_764 - 3 * 8
    sizes = [len(packed_member_tasks(task)) for task in made.tasks]
    assert sum(sizes) == count and max(sizes) - min(sizes) <= 1 and (count < 100 or min(sizes) > 40)
    assert [m.arguments[0] for t in made.tasks for m in packed_member_tasks(t)] == [Int(i) for i in range(count)]


@pytest.mark.parametrize("count", [1, 64, 1000])
def test_a_batch_has_no_more_products_than_a_launch_writes_addresses_of(count: int) -> None:
    made = schedule_matmul_batches(matmuls([(2, 3, 4)] * count, [False] * count), GPU)
    sizes = [len(packed_member_tasks(task)) for task in made.tasks]
    assert sum(sizes) == count and max(sizes) <= BATCH_MOST and len(sizes) == -(-count // BATCH_MOST)


def test_a_packed_launch_is_one_launch_of_all_blocks_and_costs_what_the_longest_does():
    rng = Random(1)
    for _ in range(100):
        program = program_of(random_dag(rng, 12), rng)
        for task in pack_small_launches(program, GPU).tasks:
            parts = packed_member_tasks(task)
            assert task.grid[0] == sum(p.grid[0] for p in parts) and task.units == sum(p.units for p in parts)
            if len(parts) > 1:
                assert dict(task.kernel.options)["packed"] == len(parts)
                assert {p.kernel for p in parts} == {KERNEL}
                own = [t.cost for t in program.tasks if any(stripped(t) == stripped(p) for p in parts)]
                assert max(own) <= task.cost <= sum(own) + 1e-9


# Matmuls.


def matmuls(shapes: list[tuple[int, int, int]], layouts: list[bool], cost: float = 20.0) -> Program:
    """Independent products of random arrays' shapes (m, k, n); a True layout: the second operand is transposed."""
    buffers: list[Buffer] = []
    tasks = []
    inputs, outputs = [], []
    for (m, k, n), transposed in zip(shapes, layouts, strict=True):
        a, b, c = range(len(buffers), len(buffers) + 3)
        buffers += [Buffer(4 * m * k, "input"), Buffer(4 * k * n, "input"), Buffer(4 * m * n, "output")]
        strides = (4, 4 * k) if transposed else (4 * n, 4)
        reads = (Region(a, 0, (m, k), (4 * k, 4), 4, "float32"), Region(b, 0, (k, n), strides, 4, "float32"))
        write = Region(c, 0, (m, n), (4 * n, 4), 4, "float32")
        tasks.append(Task("matmul", Library("matmul"), (), reads, (write,), cost=cost, line=f"m.py:{c}"))
        inputs += [a, b]
        outputs.append(c)
    return Program(tuple(buffers), tuple(tasks), tuple(inputs), tuple(outputs))


SHAPES = st.sampled_from([(2, 3, 4), (5, 5, 5), (1, 7, 2)])


@given(st.lists(st.tuples(SHAPES, st.booleans()), min_size=1, max_size=8), st.integers(0, 2**32))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_matmuls_of_one_form_are_batched_and_mean_the_same(cases, seed):
    program = matmuls([s for s, _ in cases], [t for _, t in cases])
    made = schedule_matmul_batches(program, GPU)
    assert len(made.tasks) == len(set(cases))
    rng = np.random.default_rng(seed)
    arrays = [rng.random(program.buffers[b].nbytes // 4, np.float32) for b in program.inputs]
    for got, wanted in zip(run_program(made, arrays), run_program(program, arrays), strict=True):
        np.testing.assert_array_equal(got, wanted)
    for task in made.tasks:
        count = len(packed_member_tasks(task))
        assert len(task.reads) == 2 * count and len(task.writes) == count
        assert ("batch", count) in task.kernel.attrs or count == 1
    assert find_plan_violations(schedule(made, machine=GPU)) == []


def test_branches_of_matmuls_are_batched_level_by_level():
    branches, depth, n = 8, 4, 256
    buffers = [Buffer(4 * n * n, "input")]
    tasks = []
    whole = [Region(b, 0, (n, n), (4 * n, 4), 4, "float32") for b in range(1 + branches * depth)]
    for branch in range(branches):
        previous = 0
        for level in range(depth):
            new = 1 + branch * depth + level
            buffers.append(Buffer(4 * n * n, "output" if level == depth - 1 else "temp"))
            tasks.append(Task("matmul", Library("matmul"), (), (whole[previous],) * 2, (whole[new],), cost=8.0))
            previous = new
    outputs = tuple(b for b, buffer in enumerate(buffers) if buffer.kind == "output")
    program = Program(tuple(buffers), tuple(tasks), (0,), outputs, target="cuda")
    made = batch_matmul_tasks_where_faster(program, GPU)
    assert [len(packed_member_tasks(t)) for t in made.tasks] == [branches] * depth
    assert predicted_microseconds(schedule(made, machine=GPU)) <= predicted_microseconds(schedule(program, machine=GPU))
    assert batch_matmul_tasks_where_faster(program, MACHINES["cpu"]) is program
    assert find_plan_violations(schedule(made, machine=GPU)) == []


# What kernels really touch, packed.


@hypothesis_settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(steps=14, largest=5), st.data())
def test_packed_programs_of_graphs_mean_the_same_and_touch_what_they_declare(case, data):
    graph, arrays = case
    layouts = [MemoryLayout(a.strides, False) for a in arrays]
    program = compile_graph_to_program(graph, "cuda", layouts)
    made = pack_small_launches(program, GPU)
    touched: list[Touched] = []
    results = run_program(made, arrays, touched=touched)
    for got, wanted in zip(results, run_program(program, arrays), strict=True):
        np.testing.assert_array_equal(got, wanted)
    for task, record in zip(made.tasks, touched, strict=True):
        if isinstance(task.kernel, Kernel):
            assert record.reads <= declared(task.reads)
            assert record.writes <= declared(task.writes)
    assert find_plan_violations(schedule(made, machine=GPU)) == []


def test_sixty_four_tiny_branches_are_one_launch():
    import kernelgraph as kg

    def stacked(*xs):
        return np.stack([np.exp(x) * 2 + 1 for x in xs])

    f = kg.kernel_graph(device="fake")(stacked)
    graph = f.graph(*[np.ones(100, np.float32)] * 64)
    program = compile_graph_to_program(graph, "cuda")
    made = pack_small_launches(program, GPU)
    if len(program.tasks) == 64:
        assert len(made.tasks) == 1 and len(packed_member_tasks(made.tasks[0])) == 64
        assert (
            predicted_microseconds(plan_by_cost_model(program, "auto", "balanced", GPU))
            < predicted_microseconds(schedule(program, machine=GPU)) / 4
        )
        names = [c.name for c in choose_plan_candidates(program, "auto", "balanced", GPU)]
        assert "1 stream, packed" in names and "1 stream" in names


# The verifier on launches of several.


def conflict(one: Task, two: Task) -> bool:
    """Whether a byte that one of them writes is touched by the other."""
    return any(declared(a.writes) & declared((*b.reads, *b.writes)) for a, b in ((one, two), (two, one)))


def test_the_verifier_objects_to_members_that_touch_each_other():
    """Packing tasks although one follows the other, or both write the same bytes."""
    rng = Random(7)
    bad = 0
    for _ in range(400):
        program = random_program(rng, rng.randint(2, 8))
        preds, tasks = task_dependences_of_program(program), program.tasks
        pairs = [
            (p, v)
            for v, sources in enumerate(preds)
            for p in sources
            if len(tasks[p].reads) == len(tasks[v].reads) and conflict(tasks[p], tasks[v])
        ]
        if not pairs:
            continue
        p, v = rng.choice(pairs)
        one, two = tasks[p], tasks[v]
        kernel = replace(KERNEL, options=(("packed", 2),))
        both = replace(
            one,
            kernel=kernel,
            reads=one.reads + two.reads,
            writes=one.writes + two.writes,
            same_element=one.same_element | two.same_element,
            units=2,
            grid=(2, 1, 1),
        )
        merged = tuple(both if i == p else t for i, t in enumerate(tasks) if i != v)
        found = find_plan_violations(schedule(replace(program, tasks=merged), machine=FAKE))
        assert any(x.kind == "side by side" for x in found), (one, two)
        bad += 1
    assert bad > 100


@pytest.mark.parametrize("seed", range(12))
def test_which_products_are_batched_is_no_matter_of_streams(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may round in another way: the same function on one stream would give other bits."""
    real = specializations.machine_model_of_device
    monkeypatch.setattr(
        specializations,
        "machine_model_of_device",
        lambda kind, gpu: replace(real(kind, gpu), batches=True, packs=True),
    )
    rng = Random(seed)
    rows, inner = rng.choice((32, 64, 128, 256, 512)), rng.choice((32, 128, 512, 1024))
    weights = [np.ones((inner, inner), np.float32) for _ in range(rng.randint(2, 6))]

    def branches(x, *weights):
        return [np.maximum(x @ w, 0) @ w for w in weights]

    def products(streams):
        plan = kg.kernel_graph(branches, device="fake", streams=streams).plan(np.ones((rows, inner), "f4"), *weights)
        return sorted(task.name for task in plan.tasks if isinstance(task.kernel, Library))

    assert len({tuple(products(streams)) for streams in ("auto", "max", 1, 2, 4)}) == 1
