"""The verifier finds every plan that an independent oracle finds unsafe, and nothing wrong with good ones."""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import pytest

from kernelgraph.runtime.core.errors import PlanError
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.program.program import Buffer, Library, Program, Region, Task
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from kernelgraph.runtime.verify import control_flow as verify_loops_module
from kernelgraph.runtime.verify import devices as verify_devices_module
from kernelgraph.runtime.verify import overlap as common_byte_module
from kernelgraph.runtime.verify import plan as verify_module
from kernelgraph.runtime.verify.overlap import regions_share_byte
from kernelgraph.runtime.verify.plan import find_overlapping_call_violations, find_plan_violations, require_safe_plan
from tests.runtime.dags import KERNEL, random_program, region
from tests.runtime.mutants import MUTATIONS, Mutation
from tests.runtime.oracles import Calls, is_unsafe, output_ends, run, words_of

FAKE = MACHINES["fake"]


def random_plan(rng: Random, most: int = 12) -> Plan:
    program = random_program(rng, rng.randint(1, most))
    streams = rng.choice(["auto", 1, 2, 3, 4, "max", "max"])
    memory = rng.choice(["concurrency", "balanced", "balanced", "small"])
    return schedule(program, streams, memory, join_points=rng.random() < 0.7, machine=FAKE)


def test_good_plans_raise_no_alarm() -> None:
    rng = Random(1)
    for _ in range(2000):
        plan = random_plan(rng)
        assert find_plan_violations(plan) == []
        assert not is_unsafe(plan)


def test_good_plans_compute_the_same_in_any_order_that_they_allow() -> None:
    rng = Random(2)
    for _ in range(150):
        plan = random_plan(rng)
        assert all(run(plan, rng) == run(plan) for _ in range(2))


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.__name__)
def test_every_unsafe_mutant_is_caught(mutation: Mutation, record_property: pytest.RecordProperty) -> None:
    rng = Random(3)
    killed = unsafe = equivalent = cautious = 0
    while unsafe < 250:
        plan = random_plan(rng)
        mutants = list(mutation(rng, plan))
        for mutant in rng.sample(mutants, min(3, len(mutants))):
            caught = bool(find_plan_violations(mutant))
            if is_unsafe(mutant):
                unsafe += 1
                killed += caught
                assert caught, f"{mutation.__name__}:\n{plan}\n{mutant}"
            else:
                equivalent += 1
                cautious += caught
                if equivalent % 10 == 0 and not caught:
                    assert run(mutant, rng) == run(mutant)
    print(f"{mutation.__name__}: {killed} killed of {unsafe} unsafe, {equivalent} equivalent ({cautious} refused)")
    record_property("mutants", {"killed": killed, "unsafe": unsafe, "equivalent": equivalent, "refused": cautious})


def calls_are_unsafe(first: Plan, second: Plan, after: list[tuple[int | None, int]], arena: bool) -> bool:
    """Whether a call of `second` that starts during one of `first` can spoil a read of either."""
    ends = {event: over for event, over in zip(first.completion, output_ends(first), strict=True)}
    waits = []
    for buffer, event in after:
        for number, task in enumerate(second.tasks):
            areas = (*task.reads, *task.writes)
            if any(a.buffer == buffer or (buffer is None and second.offsets[a.buffer] is not None) for a in areas):
                waits.append((number, {(0, task) for task in ends[event]}))
    calls = Calls()
    calls.add(first, 0)
    calls.add(second, 1, waits, "arena" if arena else "another arena")
    return calls.unsafe_reads()


def test_two_calls_in_flight_on_one_arena_are_caught() -> None:
    rng = Random(4)
    killed = unsafe = equivalent = cautious = 0
    while unsafe < 200:
        first = random_plan(rng, 8)
        second = first if rng.random() < 0.5 else random_plan(rng, 8)
        every: list[tuple[int | None, int]] = [(None, event) for event in set(first.completion)]
        assert not find_overlapping_call_violations(first, second, after=every)
        assert not find_overlapping_call_violations(first, second, arena=False)
        for after in ([], rng.sample(every, rng.randrange(len(every) + 1))):
            caught = bool(find_overlapping_call_violations(first, second, after=after))
            if calls_are_unsafe(first, second, after, True):
                unsafe += 1
                killed += caught
                assert caught, f"{after}\n{first}\n{second}"
            else:
                equivalent += 1
                cautious += caught
    print(f"two_calls_on_one_arena: {killed} killed of {unsafe} unsafe, {equivalent} equivalent ({cautious} refused)")


def test_a_later_call_that_writes_an_earlier_ones_input_must_wait() -> None:
    buffers = (Buffer(64, "input"), Buffer(64, "output"))
    task = Task("t", KERNEL, (), (region(0, 0, 16),), (region(1, 0, 16),), line="model.py:3")
    plan = schedule(Program(buffers, (task,), (0,), (1,)), machine=FAKE)
    assert not find_overlapping_call_violations(plan, plan)
    (found,) = find_overlapping_call_violations(plan, plan, shared=[(0, 1)])
    assert (found.kind, found.low, found.high, found.lines) == ("race", 0, 64, ("model.py:3",))
    assert "call 2" in found.second
    assert not find_overlapping_call_violations(plan, plan, shared=[(0, 1)], after=[(1, plan.completion[0])])
    assert not find_overlapping_call_violations(plan, plan, shared=[(0, 1)], same_streams=True)


def test_a_refused_plan_names_steps_bytes_and_lines() -> None:
    buffers = (Buffer(64, "input"), Buffer(64, "temp"), Buffer(64, "output"))
    tasks = (
        Task("first", KERNEL, (), (region(0, 0, 16),), (region(1, 0, 16),), line="model.py:1"),
        Task("second", KERNEL, (), (region(1, 4, 4),), (region(2, 0, 16),), line="model.py:2"),
    )
    plan = schedule(Program(buffers, tasks, (0,), (2,)), machine=FAKE)
    require_safe_plan(plan)
    apart = replace(plan, streams=2, steps=(plan.steps[0], replace(plan.steps[1], stream=1), plan.steps[2]))
    with pytest.raises(PlanError) as raised:
        require_safe_plan(apart)
    for part in ("t0 first", "t1 second", "16:32", "model.py:1", "model.py:2"):
        assert part in str(raised.value)


def test_a_task_in_place_must_touch_the_very_same_elements() -> None:
    def plan(read: Region, write: Region, task: Task) -> Plan:
        buffers = (Buffer(256, "input"),)
        whole = replace(task, reads=(read,), writes=(write,))
        return schedule(Program(buffers, (whole,), (0,), (0,)), machine=FAKE)

    def kinds(plan: Plan) -> set[str]:
        return {violation.kind for violation in find_plan_violations(plan)}

    kernel = Task("t", KERNEL, (), (), (), frozenset({0}))
    silent = replace(kernel, same_element=frozenset())
    library = replace(silent, kernel=Library("sort"))
    square, turned = Region(0, 0, (8, 8), (32, 4), 4), Region(0, 0, (8, 8), (4, 32), 4)
    flat, column = Region(0, 0, (64,), (4,), 4), Region(0, 0, (8, 1, 8), (32, 0, 4), 4)
    assert not kinds(plan(square, square, kernel))
    assert not kinds(plan(flat, square, kernel))
    assert not kinds(plan(column, square, kernel))
    assert not kinds(plan(square, square, library))
    assert kinds(plan(square, square, silent)) == {"in place"}
    assert kinds(plan(turned, square, kernel)) == {"in place"}
    assert kinds(plan(turned, square, library)) == {"in place"}
    assert kinds(plan(region(0, 0, 8), region(0, 1, 8), kernel)) == {"in place"}
    assert not kinds(plan(region(0, 0, 8), region(0, 8, 8), silent))
    assert not kinds(plan(region(0, 0, 8, 2), region(0, 1, 8, 2), silent))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"offsets": (None, 0)}, "bounds"),
        ({"offsets": (None, None, None)}, "bounds"),
        ({"offsets": (None, 1 << 20, None)}, "bounds"),
        ({"offsets": (None, 16, None), "arena_bytes": 4096}, "bounds"),
        ({"offsets": (None, -256, None)}, "bounds"),
        ({"streams": 0}, "structure"),
        ({"completion": ()}, "completion"),
        ({"completion": (7,)}, "completion"),
        ({"events": 0}, "structure"),
    ],
)
def test_malformed_plans_are_refused(change: dict[str, object], kind: str) -> None:
    buffers = (Buffer(64, "input"), Buffer(64, "temp"), Buffer(64, "output"))
    tasks = tuple(Task(f"t{i}", KERNEL, (), (region(i, 0, 16),), (region(i + 1, 0, 16),)) for i in range(2))
    plan = schedule(Program(buffers, tasks, (0,), (2,)), machine=FAKE)
    assert kind in {violation.kind for violation in find_plan_violations(replace(plan, **change))}  # type: ignore[arg-type]


def test_programs_that_leave_a_buffer_or_read_nothing_are_refused() -> None:
    buffers = (Buffer(64, "input"), Buffer(64, "temp"), Buffer(64, "output"))

    def kinds(read: Region, write: Region) -> set[str]:
        task = Task("t", KERNEL, (), (read,), (write,))
        return {
            violation.kind
            for violation in find_plan_violations(schedule(Program(buffers, (task,), (0,), (2,)), machine=FAKE))
        }

    assert kinds(region(0, 0, 17), region(2, 0, 16)) == {"bounds"}
    assert kinds(replace(region(0, 0, 16), strides=(-4,)), region(2, 0, 16)) == {"bounds"}
    assert kinds(region(1, 0, 16), region(2, 0, 16)) == {"uninitialised"}
    assert kinds(region(0, 0, 16), region(2, 0, 16)) == set()


def test_common_bytes_are_found_exactly() -> None:
    rng = Random(5)
    for _ in range(4000):
        areas = []
        for _ in range(2):
            dims = rng.randint(0, 3)
            shape = tuple(rng.choice([0, 1, 2, 3, 4, 4, 4, 5]) for _ in range(dims))
            strides = tuple(rng.choice([4, 8, 12, 16, 20, 48, 0, -4, -16]) for _ in range(dims))
            areas.append(Region(0, rng.randint(0, 30) * 4 + 200, shape, strides, 4))
        a, b = areas
        assert regions_share_byte(a, 0, b, 0) == bool(words_of(a) & words_of(b)), f"{a} {b}"


def test_common_bytes_with_other_item_sizes_and_bases() -> None:
    rng = Random(6)

    def touched(area: Region, base: int) -> set[int]:
        found = set()
        for index in product(*map(range, area.shape)):
            start = base + area.offset + sum(i * s for i, s in zip(index, area.strides, strict=True))
            found |= set(range(start, start + area.itemsize))
        return found

    for _ in range(2000):
        areas = []
        for _ in range(2):
            dims = rng.randint(0, 2)
            shape = tuple(rng.randint(1, 4) for _ in range(dims))
            strides = tuple(rng.choice([1, 2, 3, 5, 7, 8, 16, -3, -8]) for _ in range(dims))
            area = Region(0, rng.randint(40, 70), shape, strides, rng.choice([1, 2, 4, 8, 16]))
            areas.append((area, rng.randint(0, 9)))
        (a, p), (b, q) = areas
        assert regions_share_byte(a, p, b, q) == bool(touched(a, p) & touched(b, q))


def test_large_regions_are_compared_quickly() -> None:
    n = 100_000
    for a, b, answer in [
        (Region(0, 0, (n, n), (4 * n, 4), 4), Region(0, 0, (n, n), (4, 4 * n), 4), True),
        (Region(0, 0, (n, n), (8 * n, 8), 4), Region(0, 4, (n, n), (8 * n, 8), 4), False),
        (Region(0, 0, (n, 5), (4 * n, 4), 4), Region(0, 20, (n, 5), (4 * n, 4), 4), False),
        (Region(0, 0, (n,), (8,), 4), Region(0, 4, (n // 2,), (16,), 4), False),
    ]:
        assert regions_share_byte(a, 0, b, 0) is answer


def test_the_verifier_shares_no_code_with_the_scheduler() -> None:
    """It knows what plans and programs are, and nothing that computes on them."""
    wanted = {
        verify_module: {
            "overlap",
            "core.errors",
            "program.plan",
            "program.program",
            "core.frozen",
            "control_flow",
            "devices",
        },
        verify_devices_module: {"program.plan", "program.program", "program.collective"},
        verify_loops_module: {"program.plan", "program.program"},
        common_byte_module: {"program.program"},
    }
    for module, others in wanted.items():
        tree = ast.parse(Path(module.__file__ or "").read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
        assert {node.module for node in imports} == others
        data = ("program.plan", "program.program")
        known = {name.name for node in imports if node.module in data for name in node.names}
        types = {"Argument", "Launch", "Library", "Plan", "Pointer", "Record", "Region", "Scalar", "Task", "Wait"}
        types |= {"Branch", "ControlFlowArguments", "FRESH", "Loop", "LoopRotation"}
        assert known <= {*types, "control_flow_arguments", "control_flow_bodies", "packed_member_tasks"}
