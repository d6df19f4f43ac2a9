"""Waits are exactly those needed: against all partitions of small DAGs, and an oracle of what happens before what."""

from __future__ import annotations

from random import Random

import pytest

from kernelgraph.runtime.program.plan import Launch, Plan, Record, Wait
from kernelgraph.runtime.program.program import task_dependences_of_program
from kernelgraph.runtime.schedule.assign_streams import (
    StreamAssignment,
    assign_streams_for_max_parallelism,
    list_schedule_on_streams,
)
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from kernelgraph.runtime.schedule.waits import (
    StreamOrder,
    StreamWaits,
    add_output_completion_waits,
    emit_plan_steps,
    minimal_stream_waits,
    replace_waits_by_join_points,
)
from tests.runtime.dags import program_of, random_dag, random_program
from tests.runtime.oracles import naive_closure, naive_reduction, output_ends, task_follows

FAKE = MACHINES["fake"]
Preds = list[frozenset[int]]


def placed(preds: Preds, assignment: StreamAssignment) -> StreamOrder:
    return StreamOrder(len(preds), assignment.order, tuple(preds), assignment.stream, assignment.streams)


def plan_of(preds: Preds, nodes: StreamOrder, waits: StreamWaits) -> Plan:
    program = program_of(preds, Random(0))
    steps, events, completion = emit_plan_steps(nodes, waits, ())
    return Plan(program, steps, nodes.streams, events, (), 0, completion)


def random_assignment(rng: Random, preds: Preds) -> StreamAssignment:
    """Any order that the dependences allow, any streams."""
    k = rng.randint(1, 6)
    done: set[int] = set()
    order = []
    while len(order) < len(preds):
        v = rng.choice([v for v in range(len(preds)) if v not in done and preds[v] <= done])
        done.add(v)
        order.append(v)
    stream = [rng.randrange(k) for _ in preds]
    names = {s: i for i, s in enumerate(dict.fromkeys(stream[v] for v in order))}
    return StreamAssignment("random", tuple(order), tuple(names[s] for s in stream))


def fewest_by_brute_force(preds: Preds) -> tuple[int, int]:
    """The fewest waits and the fewest event records over all ways to put the tasks on streams such that tasks that
    may run side by side are on different ones, every wait naming one task."""
    edges = naive_reduction(preds)
    above = naive_closure(preds)
    best = [len(edges), len(preds)]

    def extend(v: int, blocks: list[list[int]]) -> None:
        if v == len(preds):
            at = {u: i for i, block in enumerate(blocks) for u in block}
            crossing = [u for u, w in edges if at[u] != at[w]]
            best[0] = min(best[0], len(crossing))
            best[1] = min(best[1], len(set(crossing)))
            return
        for block in blocks:
            if block[-1] in above[v]:
                block.append(v)
                extend(v + 1, blocks)
                block.pop()
        extend(v + 1, [*blocks, [v]])

    extend(0, [])
    return best[0], best[1]


@pytest.mark.parametrize(("size", "count"), [(5, 1500), (6, 1500), (7, 1000), (8, 500)])
def test_maximum_concurrency_has_the_fewest_waits_and_records(size: int, count: int) -> None:
    rng = Random(size)
    for _ in range(count):
        preds = random_dag(rng, rng.randint(1, size) if size < 7 else size)
        assignment = assign_streams_for_max_parallelism(preds)
        nodes = placed(preds, assignment)
        waits = minimal_stream_waits(nodes)
        assert (waits.waits, len(waits.recorded_nodes)) == fewest_by_brute_force(preds)
        chained = len(naive_reduction(preds)) - waits.waits
        heads = set(range(len(preds))) - {v for _, v in naive_reduction(preds)}
        assert chained <= len(preds) - len(heads)
        above = naive_closure(preds)
        for v in range(len(preds)):
            for u in range(v):
                assert u in above[v] or assignment.stream[u] != assignment.stream[v]
        joined, fewer = replace_waits_by_join_points(nodes, waits)
        assert fewer.waits <= waits.waits
        assert joined.tasks == len(preds)


@pytest.mark.parametrize(("least", "most", "count"), [(2, 30, 500), (30, 80, 100), (150, 200, 12)])
def test_all_dependences_are_kept_and_no_wait_can_go(least: int, most: int, count: int) -> None:
    rng = Random(most)
    for number in range(count):
        preds = random_dag(rng, rng.randint(least, most))
        costs = [rng.choice([1.0, 5.0]) for _ in preds]
        match number % 3:
            case 0:
                assignment = assign_streams_for_max_parallelism(preds, costs)
            case 1:
                assignment = list_schedule_on_streams(preds, costs, rng.choice([2, 4, 8]), gap=0.1, hop=0.3)
            case _:
                assignment = random_assignment(rng, preds)
        nodes = placed(preds, assignment)
        waits = minimal_stream_waits(nodes)
        plan = plan_of(preds, nodes, waits)
        follows = task_follows(plan)
        assert all(preds[v] <= follows[v] for v in range(len(preds)))
        joined, fewer = replace_waits_by_join_points(nodes, waits)
        assert fewer.waits <= waits.waits
        shorter = plan_of(preds, joined, fewer)
        assert task_follows(shorter) == follows, "a join point must add no order between tasks"
        for each in (plan, shorter) if least < 100 else (shorter,):
            for i, step in enumerate(each.steps):
                if isinstance(step, Wait):
                    less = task_follows(each, skip=i)
                    assert any(not preds[v] <= less[v] for v in range(len(preds))), f"{step} is not needed"


def test_every_wait_names_a_record_before_it_and_every_record_is_used() -> None:
    rng = Random(3)
    for _ in range(200):
        plan = schedule(random_program(rng, rng.randint(1, 20)), rng.choice([2, 4, "max"]), machine=FAKE)
        seen: set[int] = set()
        for step in plan.steps:
            if isinstance(step, Record):
                assert step.event not in seen
                seen.add(step.event)
            elif isinstance(step, Wait):
                assert step.event in seen
        waited = {step.event for step in plan.steps if isinstance(step, Wait)}
        assert seen == set(range(plan.events)) == waited | set(plan.completion)


@pytest.mark.parametrize("width", [2, 3, 5, 8])
def test_complete_bipartite_waits_go_through_one_join_point(width: int) -> None:
    preds = [frozenset[int]()] * width + [frozenset(range(width))] * width
    nodes = placed(preds, assign_streams_for_max_parallelism(preds))
    direct = minimal_stream_waits(nodes)
    assert direct.waits == width * width - width
    joined, fewer = replace_waits_by_join_points(nodes, direct)
    assert fewer.waits == min(direct.waits, 2 * width - 2)
    assert joined.streams == nodes.streams


def test_an_output_is_complete_when_its_writers_are_and_every_task_is_waited_for() -> None:
    rng = Random(4)
    for _ in range(300):
        program = random_program(rng, rng.randint(1, 20))
        plan = schedule(program, rng.choice([1, 2, 4, "max"]), machine=FAKE)
        ends = output_ends(plan)
        for buffer, over in zip(program.outputs, ends, strict=True):
            writers = {v for v, task in enumerate(plan.tasks) if any(w.buffer == buffer for w in task.writes)}
            assert writers <= over
        assert not program.outputs or set().union(*ends) == set(range(len(plan.tasks)))


def test_completion_joins_delay_no_task() -> None:
    rng = Random(5)
    for _ in range(300):
        preds = random_dag(rng, rng.randint(2, 20))
        nodes = placed(preds, random_assignment(rng, preds))
        waits = minimal_stream_waits(nodes)
        writers = [rng.getrandbits(len(preds)) or 1 for _ in range(rng.randint(1, 4))]
        ended, after, completion = add_output_completion_waits(nodes, waits, writers)
        before = task_follows(plan_of(preds, nodes, waits))
        steps, events, marks = emit_plan_steps(ended, after, completion)
        plan = Plan(program_of(preds, rng), steps, ended.streams, events, (), 0, marks)
        assert task_follows(plan) == before
        # Each output waits for its writers, what those follow, and nothing else; the last one for all the rest too.
        for mask, over in list(zip(writers, output_ends(plan), strict=True))[:-1]:
            members = {v for v in range(len(preds)) if mask >> v & 1}
            assert over == members.union(*(before[v] for v in members)) or len(writers) == 1


def test_a_foreign_stream_is_forked_from_and_joined() -> None:
    rng = Random(7)
    for _ in range(200):
        program = random_program(rng, rng.randint(1, 15))
        plan = schedule(program, rng.choice([1, 3, "max"]), machine=FAKE, join_points=False)
        assert plan.report is not None
        follows = task_follows(plan)
        streams = {step.stream for step in plan.steps if isinstance(step, Launch)}
        by_stream = {s: [p.task for p in plan.steps if isinstance(p, Launch) and p.stream == s] for s in streams}
        free = [s for s, tasks in by_stream.items() if not follows[tasks[0]]]
        tails = [tasks[-1] for tasks in by_stream.values()]
        ends = [v for v in tails if not any(v in follows[w] for w in tails)]
        assert plan.report.entry.waits == len(free)
        assert plan.report.exit.records == 0  # the outputs' own events serve, and one may stand for several ends
        assert 1 <= plan.report.exit.waits <= len(ends)


def test_crossing_edges_are_never_fewer_than_the_waits() -> None:
    rng = Random(8)
    for _ in range(200):
        program = random_program(rng, rng.randint(1, 20))
        plan = schedule(program, rng.choice([2, 4, "max"]), machine=FAKE)
        assert plan.report is not None
        stream = {step.task: step.stream for step in plan.steps if isinstance(step, Launch)}
        preds = task_dependences_of_program(program)
        assert plan.report.crossing == sum(stream[p] != stream[v] for v, ps in enumerate(preds) for p in ps)
        assert plan.report.inner.waits <= plan.report.crossing
