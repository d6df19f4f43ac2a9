"""Temporaries share bytes only where all that may run side by side lets them; arenas are near the least possible."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from statistics import median

import pytest

from kernelgraph.runtime.program.dag import members_of_bitmask
from kernelgraph.runtime.program.plan import Launch, Plan
from kernelgraph.runtime.program.program import Buffer, Library, Program, Task, task_dependences_of_program
from kernelgraph.runtime.schedule.antichain import HeaviestAntichains
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.memory_plan import ALIGNMENT, buffer_lifetimes, collect_temporary_buffers
from kernelgraph.runtime.schedule.schedule import plan_memory_bound, schedule
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.runtime.dags import KERNEL, program_of, random_dag, random_program, region
from tests.runtime.oracles import naive_closure, task_follows

FAKE = MACHINES["fake"]
MODES = ("concurrency", "balanced", "small")


def users_of(program: Program) -> list[set[int]]:
    return [
        {v for v, task in enumerate(program.tasks) if any(r.buffer == b for r in (*task.reads, *task.writes))}
        for b in range(len(program.buffers))
    ]


def sharing(plan: Plan) -> list[tuple[int, int]]:
    """Pairs of temporaries that have bytes of the arena in common."""
    spans = [(b, o, o + plan.program.buffers[b].nbytes) for b, o in enumerate(plan.offsets) if o is not None]
    used = users_of(plan.program)
    return [(a, b) for (a, i, j), (b, k, m) in combinations(spans, 2) if i < m and k < j and used[a] and used[b]]


@pytest.mark.parametrize("mode", MODES)
def test_buffers_share_bytes_only_if_one_is_over_before_the_other_begins(mode: str) -> None:
    rng = Random(1)
    for _ in range(300):
        program = random_program(rng, rng.randint(1, 20))
        plan = schedule(program, rng.choice([1, 2, 4, "max"]), mode, machine=FAKE)
        follows = naive_closure(task_dependences_of_program(program)) if mode == "concurrency" else task_follows(plan)
        used = users_of(program)
        for a, b in sharing(plan):
            one = all(u in follows[v] for u in used[a] for v in used[b])
            other = all(v in follows[u] for u in used[a] for v in used[b])
            assert one or other
        for offset, buffer in zip(plan.offsets, program.buffers, strict=True):
            assert (offset is None) == (buffer.kind != "temp")
            assert offset is None or offset % ALIGNMENT == 0
        assert find_plan_violations(plan) == []


def test_lifetimes_are_what_they_are_said_to_be() -> None:
    """Also beside the look at each buffer that is open at each task, which takes the square of their number."""
    rng = Random(5)
    for _ in range(200):
        program = random_program(rng, rng.randint(1, 25))
        before = [
            sum(1 << u for u in known) | 1 << v
            for v, known in enumerate(naive_closure(task_dependences_of_program(program)))
        ]
        temps = collect_temporary_buffers(program)
        lives = buffer_lifetimes(temps, before)
        for earlier, used in zip(lives.earlier, temps.users, strict=True):
            for other, its in enumerate(temps.users):
                over = all(not its & ~(before[v] & ~(1 << v)) for v in members_of_bitmask(used))
                assert earlier >> other & 1 == over
        opened = [0] * len(before)
        for size, used in zip(temps.sizes, temps.users, strict=True):
            for v, mask in enumerate(before):
                opened[v] += size if used & mask and used & ~(mask & ~(1 << v)) else 0
        assert lives.bound == max(opened, default=0)


def heaviest_by_brute_force(weights: list[int], earlier: list[int]) -> int:
    best = 0
    for chosen in range(1 << len(weights)):
        members = [v for v in range(len(weights)) if chosen >> v & 1]
        if all(not earlier[v] & chosen for v in members):
            best = max(best, sum(weights[v] for v in members))
    return best


def test_the_heaviest_antichain_is_exact_also_when_the_order_grows() -> None:
    rng = Random(2)
    for _ in range(300):
        n = rng.randint(1, 9)
        weights = [rng.choice([0, 1, 1, 5, 17, 100]) for _ in range(n)]
        antichains = HeaviestAntichains(weights)
        preds = [frozenset[int]()] * n
        for _ in range(3):
            preds = [a | {p for p in b if rng.random() < 0.5} for a, b in zip(preds, random_dag(rng, n), strict=True)]
            earlier = [sum(1 << u for u in above) for above in naive_closure(preds)]
            found = antichains.heaviest_antichain(earlier)
            assert not any(earlier[v] >> u & 1 for u in found for v in found)
            assert sum(weights[v] for v in found) == heaviest_by_brute_force(weights, earlier)


def test_no_arena_is_below_the_bound_and_bounds_hold_each_other() -> None:
    rng = Random(3)
    for _ in range(200):
        program = random_program(rng, rng.randint(1, 25))
        for mode in MODES:
            plan = schedule(program, rng.choice(["auto", 1, 3, "max"]), mode, machine=FAKE)
            assert plan.report is not None
            assert plan.report.live <= plan.arena_bytes
            # Without stream orders less may be shared; the bound for the plan's own order is then only lower.
            assert plan_memory_bound(plan)[0] <= plan.arena_bytes
            if mode != "concurrency":
                assert plan.report.live <= plan_memory_bound(plan)[0]


@pytest.mark.parametrize("mode", ["balanced", "small"])
def test_arenas_are_near_the_bound(mode: str) -> None:
    rng = Random(4)
    ratios = []
    for number in range(160):
        if number % 2:
            program = random_program(rng, rng.randint(8, 40))
        else:
            program = program_of(random_dag(rng, rng.randint(8, 40)), rng, words=(64, 300, 1000, 5000))
        plan = schedule(program, rng.choice(["auto", 1, 2, 4, "max"]), mode, machine=FAKE)
        if bound := plan_memory_bound(plan)[0]:
            ratios.append(plan.arena_bytes / bound)
    ratios.sort()
    middle, high = median(ratios), ratios[len(ratios) * 9 // 10]
    print(f"{mode}: arena / bound: median {middle:.3f}, 90 % {high:.3f}, worst {ratios[-1]:.3f} of {len(ratios)}")
    assert len(ratios) > 100
    assert middle <= 1.10


def longest_path(preds: list[set[int]], costs: list[float], order: list[int]) -> float:
    end = dict.fromkeys(order, 0.0)
    for v in order:
        end[v] = costs[v] + max((end[p] for p in preds[v]), default=0.0)
    return max(end.values(), default=0.0)


@pytest.mark.parametrize("mode", ["concurrency", "balanced"])
def test_sharing_bytes_never_lengthens_the_critical_path(mode: str) -> None:
    """As long with what the shared bytes demand as with the dependences and streams alone."""
    rng = Random(5)
    for _ in range(300):
        program = random_program(rng, rng.randint(1, 25))
        plan = schedule(program, rng.choice([1, 2, 4, "max"]), mode, machine=FAKE)
        order = [step.task for step in plan.steps if isinstance(step, Launch)]
        place = {v: i for i, v in enumerate(order)}
        preds = [set(sources) for sources in task_dependences_of_program(program)]
        if mode == "balanced":
            tail: dict[int, int] = {}
            for step in plan.steps:
                if isinstance(step, Launch):
                    preds[step.task] |= {tail[step.stream]} if step.stream in tail else set()
                    tail[step.stream] = step.task
        costs = [task.cost for task in program.tasks]
        free = longest_path(preds, costs, order)
        used = users_of(program)
        for a, b in sharing(plan):
            first, second = (a, b) if max(place[u] for u in used[a]) < min(place[u] for u in used[b]) else (b, a)
            for v in used[second]:
                preds[v] |= used[first]
        assert longest_path(preds, costs, order) == free


def test_small_needs_no_more_than_balanced_and_states_what_it_added() -> None:
    rng = Random(6)
    smaller = 0
    for _ in range(150):
        program = program_of(random_dag(rng, rng.randint(2, 25)), rng)
        streams = rng.choice([2, 4, "max"])
        small, balanced = (schedule(program, streams, mode, machine=FAKE) for mode in ("small", "balanced"))
        assert small.report is not None
        assert plan_memory_bound(small)[0] <= plan_memory_bound(balanced)[0]
        smaller += small.arena_bytes < balanced.arena_bytes
        follows = task_follows(small)
        for edge in small.report.added:
            assert edge.before in follows[edge.after]
            assert edge.cost >= 0
        if not small.report.added:
            assert task_follows(balanced) == follows
    assert smaller > 10


def test_copies_and_kernels_are_never_made_to_wait_for_each_other_to_save_memory() -> None:
    rng = Random(7)
    for _ in range(100):
        program = program_of(random_dag(rng, rng.randint(4, 20)), rng)
        copies = {v for v in range(len(program.tasks)) if rng.random() < 0.4}
        tasks = tuple(
            replace(task, kernel=Library("upload")) if v in copies else task for v, task in enumerate(program.tasks)
        )
        plan = schedule(replace(program, tasks=tasks), rng.choice([2, 4, "max"]), "small", machine=FAKE)
        assert plan.report is not None
        used = users_of(program)
        mixed = [{u in copies for u in users} for users in used]
        for edge in plan.report.added:
            # The two buffers that made the edge: both used by copies, or neither.
            kinds = [
                (True in mixed[a], True in mixed[b])
                for a in range(len(used))
                for b in range(len(used))
                if edge.before in used[a] and edge.after in used[b]
            ]
            assert any(x == y for x, y in kinds)


def test_a_chain_needs_two_buffers_and_branches_one_each() -> None:
    rng = Random(8)
    chain = [frozenset({v - 1} if v else ()) for v in range(10)]
    for mode in MODES:
        plan = schedule(program_of(chain, rng, words=(64,)), 1, mode, machine=FAKE)
        assert plan.arena_bytes == 2 * 256
    fan = [frozenset[int]()] * 6 + [frozenset(range(6))]
    for mode in MODES:
        assert schedule(program_of(fan, rng, words=(64,)), "max", mode, machine=FAKE).arena_bytes == 6 * 256


def test_empty_and_unused_temporaries_need_no_bytes() -> None:
    buffers = (Buffer(64, "input"), Buffer(0, "temp"), Buffer(1000, "temp"), Buffer(64, "output"))
    task = Task("t", KERNEL, (), (region(0, 0, 16), region(1, 0, 0)), (region(3, 0, 16),))
    for mode in MODES:
        plan = schedule(Program(buffers, (task,), (0,), (3,)), memory=mode, machine=FAKE)
        assert plan.arena_bytes == 0
        assert find_plan_violations(plan) == []
