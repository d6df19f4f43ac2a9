"""Where carried values live, turn by turn; and a loop's task, which is safe as lowered, and not if changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.control_flow import Loop as LoopNode
from kernelgraph.compiler.graph.control_flow import Window, add_control_flow_node
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.devices.fake import FakeDevice
from kernelgraph.runtime.program.plan import FRESH, Loop, Plan, loop_rotation_of_plan
from kernelgraph.runtime.program.program import Pointer
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.counts import examples

F8 = np.dtype(np.float64)


@st.composite
def carried(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What takes over what, among values of two sizes."""
    sizes = draw(st.lists(st.sampled_from([8, 64]), min_size=1, max_size=6))
    follows: list[int] = []
    for size in sizes:
        free = [j for j, other in enumerate(sizes) if other == size and j not in follows]
        follows.append(draw(st.sampled_from([FRESH, *free])))
    return tuple(follows), tuple(sizes)


@given(carried(), st.integers(0, 40), st.booleans())
def test_no_value_is_lost_whatever_the_turns(case: tuple[tuple[int, ...], tuple[int, ...]], turns: int, flag: bool):
    """Values are tokens here: each turn makes new ones, and what is read is always what was carried."""
    follows, sizes = case
    found = loop_rotation_of_plan(follows, sizes, flag)
    count = len(follows)
    memory = {place: ("initial", place) for place in range(count)}
    wanted = [("initial", i) for i in range(count)]
    owners = [*range(count), *(i for i in range(count) if follows[i] == FRESH)]
    for turn in range(turns):
        row = found.at(turn)
        assert [memory[place] for place in found.held[row]] == wanted
        new = [("made", (turn, i)) for i in range(count) if follows[i] == FRESH]
        fresh = iter(new)
        wanted = [next(fresh) if source == FRESH else wanted[source] for source in follows]
        for place, token in zip(found.fresh[row], new, strict=True):
            assert place >= count and place not in found.held[row]
            assert sizes[owners[place - count]] == sizes[token[1][1]]  # type: ignore[index]
            memory[place] = token
    last = found.at(turns)
    assert [memory[place] for place in found.held[last]] == wanted
    assert sorted(found.names[last]) == list(range(len(owners)))
    if not flag:
        for i, place in enumerate(found.held[last]):
            assert place < count or found.names[last][place - count] == i


def test_two_buffers_change_places_and_three_go_round() -> None:
    assert loop_rotation_of_plan((FRESH,), (8,), False).held == ((0,), (1,), (2,))
    assert loop_rotation_of_plan((FRESH,), (8,), False).lead == 1
    wave = loop_rotation_of_plan((1, FRESH), (8, 8), False)
    assert len(wave.held) - wave.lead == 3


def test_one_value_is_taken_over_once() -> None:
    with pytest.raises(ValueError, match="same one"):
        loop_rotation_of_plan((1, 1), (8, 8), False)


def looping(count: int = 5) -> Graph:
    """Two carried values, of which one takes over the other; a window; stacked sums."""
    body = GraphBuilder("body")
    a, b = (body.input(ArrayType((4, 4), F8)) for _ in range(2))
    row = body.input(ArrayType((1, 4), F8))
    body.add("number", (), ArrayType((), np.dtype(np.int64)), (("index", 0),))
    body.numbers.append(3)
    new = body.map("add", body.matmul(body.map("multiply", a, b), b), row)
    inner = body.finish([b, new, body.reduce("sum", new, (0, 1))])
    loop = LoopNode(inner, 2, (Window((0, 0), (1, 1), (1, 0)),), count)
    builder = GraphBuilder("looping")
    args: list[Value] = [builder.input(ArrayType((4, 4), F8)) for _ in range(2)]
    return builder.finish(add_control_flow_node(builder, loop, [*args, builder.input(ArrayType((count, 4), F8))]))


def planned() -> Plan:
    return schedule(compile_graph_to_program(looping()), machine=MACHINES["cpu"])


def test_a_loop_is_safe_as_lowered() -> None:
    plan = planned()
    assert len(plan.tasks) == 1 and isinstance(plan.tasks[0].kernel, Loop)
    assert find_plan_violations(plan) == []


def _changed(plan: Plan, **fields: object) -> Plan:
    task = replace(plan.tasks[0], **fields)  # type: ignore[arg-type]
    return replace(plan, program=replace(plan.program, tasks=(task,)))


@pytest.mark.parametrize("number", range(11))
def test_a_wrong_pointer_is_found(number: int) -> None:
    """Every pointer of the task, moved by half an array: out of what is declared, or into another's bytes."""
    plan = planned()
    arguments = list(plan.tasks[0].arguments)
    if number >= len(arguments) or not isinstance(arguments[number], Pointer):
        return
    pointer = arguments[number]
    assert isinstance(pointer, Pointer)
    arguments[number] = replace(pointer, offset=pointer.offset + 64)
    assert find_plan_violations(_changed(plan, arguments=tuple(arguments)))


def test_shared_buffers_are_found() -> None:
    plan = planned()
    arguments = list(plan.tasks[0].arguments)
    temp = arguments[6]
    for place in (2, 3):
        changed = [arguments[place] if a == temp else a for a in arguments]
        assert find_plan_violations(_changed(plan, arguments=tuple(changed)))


def test_a_window_that_leaves_its_array_is_found() -> None:
    plan = planned()
    loop = plan.tasks[0].kernel
    assert isinstance(loop, Loop)
    longer = replace(loop, moves=(2 * loop.moves[0], *loop.moves[1:]))
    assert any("does not declare" in str(v) for v in find_plan_violations(_changed(plan, kernel=longer)))
    overlapping = replace(loop, moves=(loop.moves[0], 4))
    assert any("moves on by 4" in str(v) for v in find_plan_violations(_changed(plan, kernel=overlapping)))


def test_a_race_in_the_body_is_found() -> None:
    """The body's steps in another order: a violation of the inner plan, named with the loop."""
    plan = planned()
    loop = plan.tasks[0].kernel
    assert isinstance(loop, Loop)
    body = loop.body
    assert len(body.tasks) > 1
    steps = tuple(reversed(body.steps))
    wrong = find_plan_violations(_changed(plan, kernel=replace(loop, body=replace(body, steps=steps))))
    assert any(v.first.startswith("in t0") for v in wrong)


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 9))
def test_the_size_of_a_plan_does_not_depend_on_the_turns(count: int) -> None:
    def shape(plan: Plan) -> tuple[int, int, int]:
        loop = plan.tasks[0].kernel
        assert isinstance(loop, Loop)
        return len(plan.steps), len(loop.body.steps), len(loop.rotation.held)

    assert shape(schedule(compile_graph_to_program(looping(count + 1)), machine=MACHINES["cpu"])) == shape(planned())


@given(st.integers(0, 12))
@settings(max_examples=examples(13), deadline=None)
def test_the_fake_device_launches_every_turn(count: int) -> None:
    """Each turn launches the body's tasks, never on memory that it reads, and the last one writes the results."""
    plan = schedule(compile_graph_to_program(looping(count)), machine=MACHINES["cpu"])
    device = FakeDevice()
    sizes = [b.nbytes for b in plan.program.buffers]
    outer = [device.allocate(max(1, n)) if plan.offsets[i] is None else None for i, n in enumerate(sizes)]
    arena = device.allocate(max(1, plan.arena_bytes))
    device.prepare(plan).run([m and m.address for m in outer], arena.address, (), ())
    launches = [entry for entry in device.log if entry[0] == "launch"]
    loop = plan.tasks[-1].kernel
    assert isinstance(loop, Loop)
    assert len(launches) == len(plan.tasks) + count * len(loop.body.tasks)
    if count > 1:
        (last,) = (outer[b] for i, b in enumerate(plan.program.outputs) if i == 1)
        assert last is not None and any(last.address in entry[3] for entry in launches[-len(loop.body.tasks) :])
