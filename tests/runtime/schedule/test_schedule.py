"""Plans are valid, deterministic and never predicted slower than one stream; the cost model keeps its own bounds."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest

from kernelgraph.runtime.program.dag import (
    critical_path_ranks_of_dag,
    depth_first_order_of_dag,
    max_parallelism_of_dag,
    maximum_matching_of_bitmasks,
    transitive_predecessors_in_dag,
    transitive_reduction_of_dag,
)
from kernelgraph.runtime.program.plan import Launch, Plan
from kernelgraph.runtime.program.program import Buffer, Library, Program, Region, Task, task_dependences_of_program
from kernelgraph.runtime.schedule.assign_streams import (
    MARGIN,
    assign_streams_for_max_parallelism,
    assign_tasks_to_one_stream,
    list_schedule_on_streams,
    stream_order_of_assignment,
)
from kernelgraph.runtime.schedule.cost_model import MACHINES, MachineModel, machine_share_of_task, predict_makespan
from kernelgraph.runtime.schedule.schedule import explain_plan, schedule
from kernelgraph.runtime.schedule.waits import minimal_stream_waits
from tests.runtime.dags import KERNEL, program_of, random_dag, random_program, region
from tests.runtime.oracles import naive_closure, task_follows

FAKE = MACHINES["fake"]
IDEAL = MachineModel("ideal", 1 << 30)


def branches(count: int, depth: int, cost: float, units: int = 1) -> Program:
    """Independent chains of equal tasks, each with an output."""
    buffers = [Buffer(64, "input")]
    tasks = []
    for _ in range(count):
        previous = 0
        for level in range(depth):
            buffers.append(Buffer(64, "output" if level == depth - 1 else "temp"))
            new = len(buffers) - 1
            area, made = (region(previous, 0, 16),), (region(new, 0, 16),)
            tasks.append(Task(f"t{new}", KERNEL, (), area, made, units=units, grid=(units, 1, 1), cost=cost))
            previous = new
    outputs = tuple(b for b, buffer in enumerate(buffers) if buffer.kind == "output")
    return Program(tuple(buffers), tuple(tasks), (0,), outputs)


def launched(plan: Plan) -> dict[int, int]:
    return {step.task: step.stream for step in plan.steps if isinstance(step, Launch)}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda m: m.name)
def test_auto_is_never_predicted_slower_than_any_candidate_and_one_stream_is_always_one(machine: MachineModel) -> None:
    rng = Random(1)
    for _ in range(150):
        plan = schedule(random_program(rng, rng.randint(1, 25)), machine=machine)
        assert plan.report is not None
        predicted = {c.name: c.predicted for c in plan.report.candidates}
        assert predicted[plan.report.chosen] <= predicted["1 stream"]
        assert predicted[plan.report.chosen] * (1 - MARGIN) <= min(predicted.values()) + 1e-9
        if plan.report.chosen != "1 stream":
            assert predicted[plan.report.chosen] <= predicted["1 stream"] * (1 - MARGIN)


def test_programs_without_gain_from_overlap_stay_on_one_stream() -> None:
    for machine in MACHINES.values():
        chain = schedule(branches(1, 20, 50.0), machine=machine)
        full = schedule(branches(8, 4, 50.0, units=1 << 20), machine=machine)
        tiny = schedule(branches(1, 1, 0.1), machine=machine)
        assert chain.streams == full.streams == tiny.streams == 1
        wide = schedule(branches(8, 4, 50.0), machine=machine)
        assert machine.cores == 1 or wide.streams > 1
        assert chain.report is not None and "longest chain" in chain.report.reason
        assert full.report is not None and "full" in full.report.reason
        assert wide.report is not None and wide.report.width == 8


def test_plans_are_deterministic_and_plain_data() -> None:
    def made(rng: Random) -> Plan:
        program = random_program(rng, 12)
        return schedule(program, rng.choice(["auto", 3, "max"]), rng.choice(["balanced", "small"]), machine=FAKE)

    for seed in range(40):
        one, two = made(Random(seed)), made(Random(seed))
        assert one == two
        assert str(one) == str(two)
        assert hash(one) == hash(two)
        assert pickle.loads(pickle.dumps(one)) == one


def test_a_number_of_streams_is_the_most_that_are_used() -> None:
    rng = Random(2)
    for _ in range(150):
        program = program_of(random_dag(rng, rng.randint(1, 30)), rng)
        k = rng.randint(1, 6)
        plan = schedule(program, k, machine=FAKE, join_points=False)
        used = set(launched(plan).values())
        assert len(used) <= k
        assert used == set(range(len(used)))
        assert plan.report is not None
        assert len(used) <= max(1, plan.report.width or 0)


def test_max_runs_side_by_side_whatever_may() -> None:
    rng = Random(3)
    for _ in range(150):
        preds = random_dag(rng, rng.randint(1, 30))
        plan = schedule(program_of(preds, rng), "max", machine=FAKE)
        stream, follows, paths = launched(plan), task_follows(plan), naive_closure(preds)
        for u, v in combinations(range(len(preds)), 2):
            assert (u in follows[v]) == (u in paths[v])
            assert v not in follows[u]
            assert u in paths[v] or stream[u] != stream[v]


@pytest.mark.parametrize(
    "streams", [0, -1, 2.0, 2.5, float("nan"), float("inf"), True, False, "many", "", "2", None, [2], np.bool_(True)]
)
def test_other_streams_are_refused_with_what_to_write(streams: object) -> None:
    with pytest.raises(ValueError, match=r'streams=.*"auto", "max" or a whole number') as raised:
        schedule(branches(2, 2, 1.0), streams, machine=FAKE)  # type: ignore[arg-type]
    assert repr(streams) in str(raised.value)


def test_numpy_integers_and_large_numbers_of_streams_are_fine() -> None:
    program = branches(3, 2, 10.0)
    assert schedule(program, np.int64(2), machine=FAKE) == schedule(program, 2, machine=FAKE)  # type: ignore[arg-type]
    assert schedule(program, 10**12, machine=FAKE).streams == 3


def test_an_unknown_memory_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="memory='tiny': write one of 'concurrency', 'balanced', 'small'"):
        schedule(branches(2, 2, 1.0), memory="tiny", machine=FAKE)


def test_an_empty_program_has_an_empty_plan() -> None:
    for streams in ("auto", "max", 4):
        plan = schedule(Program((), (), (), ()), streams, machine=FAKE)
        assert (plan.steps, plan.streams, plan.events, plan.arena_bytes) == ((), 0, 0, 0)


def test_an_output_that_nothing_writes_is_complete_at_once() -> None:
    program = Program((Buffer(64, "input"), Buffer(64, "output")), (), (0,), (0, 1))
    plan = schedule(program, machine=FAKE)
    assert len(plan.completion) == 2
    with_task = replace(branches(1, 1, 1.0), outputs=(1, 0))
    assert len(schedule(with_task, machine=FAKE).completion) == 2


def test_the_critical_path_has_high_priority() -> None:
    program = branches(3, 3, 5.0)
    slow = tuple(replace(task, cost=50.0) if v == 4 else task for v, task in enumerate(program.tasks))
    plan = schedule(replace(program, tasks=slow), "max", machine=FAKE)
    assert plan.high_priority == {launched(plan)[4]}
    assert schedule(program, 1, machine=FAKE).high_priority == frozenset()


def test_explain_names_the_choice_the_counts_and_the_memory() -> None:
    plan = schedule(branches(4, 3, 20.0), machine=FAKE)
    text = explain_plan(plan)
    for part in ("width 4", "* max: 4 streams", "predicted", "one event per crossing edge", "critical path", "least"):
        assert part in text


def antichains(preds: list[frozenset[int]]) -> int:
    paths = naive_closure(preds)
    best = 0
    for chosen in range(1 << len(preds)):
        members = [v for v in range(len(preds)) if chosen >> v & 1]
        if len(members) > best and not any(u in paths[v] for v in members for u in members):
            best = len(members)
    return best


def test_width_and_reduction_and_matching_against_brute_force() -> None:
    rng = Random(4)
    for _ in range(200):
        preds = random_dag(rng, rng.randint(1, 9))
        above = transitive_predecessors_in_dag(preds)
        assert [{u for u in range(len(preds)) if mask >> u & 1} for mask in above] == naive_closure(preds)
        assert max_parallelism_of_dag(above) == antichains(preds)
        reduced = transitive_reduction_of_dag(preds, above)
        assert transitive_predecessors_in_dag(reduced) == above
        for v, sources in enumerate(reduced):
            for p in sources:
                fewer = [set(s) - ({p} if w == v else set()) for w, s in enumerate(reduced)]
                assert transitive_predecessors_in_dag(fewer) != above


def test_a_matching_serves_the_first_left_vertices_as_well_as_any_can() -> None:
    rng = Random(5)

    def most(rows: list[int]) -> int:
        """The most rows that can have a bit of their own, by trying all choices."""
        if not rows:
            return 0
        best = most(rows[1:])
        for bit in range(8):
            if rows[0] >> bit & 1:
                best = max(best, 1 + most([row & ~(1 << bit) for row in rows[1:]]))
        return best

    for _ in range(200):
        rows = [rng.getrandbits(5) & rng.getrandbits(5) for _ in range(rng.randint(1, 5))]
        order = list(range(len(rows)))
        rng.shuffle(order)
        partner = maximum_matching_of_bitmasks(rows, order)
        given = [right for right in partner if right >= 0]
        assert len(set(given)) == len(given)
        assert all(right < 0 or rows[left] >> right & 1 for left, right in enumerate(partner))
        for size in range(len(rows) + 1):
            assert sum(partner[left] >= 0 for left in order[:size]) == most([rows[left] for left in order[:size]])


def test_orders_keep_the_dependences() -> None:
    rng = Random(6)
    for _ in range(200):
        preds = random_dag(rng, rng.randint(1, 40))
        costs = [rng.choice([0.0, 1.0, 7.0]) for _ in preds]
        orders = [
            assign_tasks_to_one_stream(preds).order,
            assign_streams_for_max_parallelism(preds, costs).order,
            depth_first_order_of_dag(preds, transitive_predecessors_in_dag(preds)),
        ]
        orders += [list_schedule_on_streams(preds, costs, k, gap=0.5, hop=1.0).order for k in (1, 2, 8)]
        for order in orders:
            place = {v: i for i, v in enumerate(order)}
            assert sorted(order) == list(range(len(preds)))
            assert all(place[p] < place[v] for v, sources in enumerate(preds) for p in sources)


def test_list_scheduling_is_within_grahams_bound() -> None:
    """Length <= work / k + (1 - 1/k) longest path (Graham, 1966), without the cost of launches and hops."""
    rng = Random(7)
    for _ in range(200):
        preds = random_dag(rng, rng.randint(1, 40))
        costs = tuple(rng.choice([1.0, 2.0, 5.0, 20.0]) for _ in preds)
        k = rng.choice([1, 2, 4, 8])
        assignment = list_schedule_on_streams(preds, costs, k)
        waits = minimal_stream_waits(stream_order_of_assignment(tuple(preds), assignment))
        length = predict_makespan(assignment.order, assignment.stream, waits.needed, costs, [0.0] * len(preds), IDEAL)
        path, work = max(critical_path_ranks_of_dag(preds, costs)), sum(costs)
        assert max(path, work / k) - 1e-9 <= length <= work / k + (1 - 1 / k) * path + 1e-9


def test_predictions_are_within_the_bounds_of_work_and_path() -> None:
    rng = Random(8)
    for _ in range(200):
        preds = random_dag(rng, rng.randint(1, 30))
        costs = [rng.choice([1.0, 2.0, 5.0, 20.0]) for _ in preds]
        shares = [rng.choice([0.01, 0.3, 0.6, 1.0]) for _ in preds]
        for assignment in (
            assign_tasks_to_one_stream(preds),
            assign_streams_for_max_parallelism(preds, costs),
            list_schedule_on_streams(preds, costs, 3),
        ):
            waits = minimal_stream_waits(stream_order_of_assignment(tuple(preds), assignment)).needed
            length = predict_makespan(assignment.order, assignment.stream, waits, costs, shares, IDEAL)
            full = sum(c * s for c, s in zip(costs, shares, strict=True))
            assert max(full, max(critical_path_ranks_of_dag(preds, costs))) <= length + 1e-9
            assert length <= sum(costs) + 1e-9
            # Overheads only add, and tasks that need less of the machine only help.
            slow = replace(IDEAL, launch=0.5, gap=0.2, hop=0.7, event=0.1, stream=1.0)
            assert predict_makespan(assignment.order, assignment.stream, waits, costs, shares, slow) >= length - 1e-9
            free = predict_makespan(assignment.order, assignment.stream, waits, costs, [0.0] * len(preds), IDEAL)
            assert free <= length + 1e-9
    one = assign_tasks_to_one_stream(preds)
    assert predict_makespan(one.order, one.stream, [()] * len(preds), costs, shares, IDEAL) == pytest.approx(sum(costs))


def test_shares_are_occupancies() -> None:
    cpu, gpu = MachineModel("cpu", 4), MachineModel("gpu", 100, 2048, 32)
    task = Task("t", KERNEL, (), (), ())
    assert machine_share_of_task(replace(task, units=1000, grain=1000), cpu) == 0.25
    assert machine_share_of_task(replace(task, units=1001, grain=1000), cpu) == 0.5
    assert machine_share_of_task(replace(task, units=1 << 20, grain=1000), cpu) == 1.0
    assert machine_share_of_task(replace(task, grid=(100, 1, 1), block=(1024, 1, 1)), gpu) == 0.5
    assert machine_share_of_task(replace(task, grid=(320, 5, 1), block=(32, 1, 1)), gpu) == 0.5
    assert machine_share_of_task(replace(task, grid=(1 << 20, 1, 1), block=(256, 1, 1)), gpu) == 1.0
    product = Task("matmul", Library("matmul"), (), (), (Region(0, 0, (256, 256), (1024, 4), 4),))
    assert machine_share_of_task(product, gpu) == 0.04
    assert machine_share_of_task(replace(product, grid=(50, 1, 1), block=(2048, 1, 1)), gpu) == 0.5
    assert machine_share_of_task(replace(product, kernel=Library("upload")), gpu) == 0.0


def test_dependences_of_a_program_are_kept_by_its_plans() -> None:
    rng = Random(9)
    for _ in range(200):
        program = random_program(rng, rng.randint(1, 25))
        plan = schedule(program, rng.choice(["auto", 2, 5, "max"]), rng.choice(["balanced", "small"]), machine=FAKE)
        follows = task_follows(plan)
        assert all(sources <= follows[v] for v, sources in enumerate(task_dependences_of_program(program)))
