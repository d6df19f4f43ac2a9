"""What a call makes of its indices alone is kept with these arrays: as often as they stay the same, and no longer."""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.pipeline import cut_off_orders
from kernelgraph.dsl.array import devices
from kernelgraph.dsl.array.in_flight import waitall
from kernelgraph.dsl.array.made_of import MadeOfMemory, note_memory_is_rewritten
from kernelgraph.runtime.devices.fake import FakeDevice
from tests.compiler.targets.cuda.test_device_calls import graph_of
from tests.counts import examples

PLACES = 40


def random_program(rng: random.Random) -> Callable[..., Any]:
    """Sums over indices of each other's elements, of two arrays of indices and two of numbers."""
    steps = [
        (rng.randrange(5), rng.randrange(2), rng.randrange(99), rng.randrange(99)) for _ in range(rng.randrange(1, 6))
    ]

    def program(i: Any, j: Any, x: Any, y: Any) -> Any:
        found = [x, y]
        for kind, first, a, b in steps:
            one, other = (i, j) if first else (j, i)
            table, base = found[a % len(found)], found[b % len(found)]
            total = np.zeros(PLACES, np.float32) if kind < 2 else base * 2
            np.add.at(total, one % PLACES if kind == 3 else one, table[other] if kind % 2 else table[other] * 0.5)
            found.append(total / total.sum() if kind == 4 else total)
        return (*found[2:], i + 1, np.sort(j))

    return program


def arguments(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    indices = [rng.integers(-PLACES, PLACES, 90).astype(rng.choice(["i8", "i4"])) for _ in range(2)]
    return [*indices, *(rng.random(PLACES).astype("f4") for _ in range(2))]


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(40), deadline=None)
def test_both_parts_mean_what_the_whole_does(seed: int) -> None:
    given = arguments(np.random.default_rng(seed))
    graph = graph_of(random_program(random.Random(seed)), *given)
    layouts = [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs]
    cut = cut_off_orders(graph, "cuda", layouts, range(len(given)), len(given))
    assert cut is not None and {*cut.places} <= {0, 1}
    orders = interpret_graph(cut.orders, [given[place] for place in cut.places])
    wanted, got = interpret_graph(graph, given), interpret_graph(cut.rest, [*given, *orders])
    assert [x.tobytes() for x in got] == [x.tobytes() for x in wanted]
    assert not any("places_in_order" in line for line in cut.rest.lines_of_text())


def summed(i: Any, x: Any) -> Any:
    total = np.zeros(PLACES, np.float32)
    np.add.at(total, i, x[i])
    return total


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    made = FakeDevice()
    monkeypatch.setitem(devices._open, ("fake", 0), made)
    return made


class Calls:
    """Calls of one function on a device that computes nothing, whose launches are counted."""

    def __init__(self, device: FakeDevice) -> None:
        self.device, self.function = device, kg.kernel_graph(device="fake")(summed)
        self.i, self.x = (kg.asarray(np.zeros(90, kind), device="fake") for kind in ("i8", "f4"))
        self.fewest = min(self.launches() for _ in range(3))

    def launches(self, *given: Any) -> int:
        before = len(self.device.log)
        self.function(*(given or (self.i, self.x)))
        waitall()
        return sum(entry[0] == "launch" for entry in self.device.log[before:])

    def orders_anew(self, *given: Any) -> bool:
        return self.launches(*given) > self.fewest + 4


def write(calls: Calls) -> None:
    calls.i[3] = 1


def export(calls: Calls) -> None:
    note_memory_is_rewritten([calls.i._memory])


def let_go(calls: Calls) -> None:
    kg.empty_cache("fake")


def replace(calls: Calls) -> None:
    calls.i = kg.asarray(np.ones(90, "i8"), device="fake")


@pytest.mark.parametrize("change", [write, export, let_go, replace])
def test_indices_are_ordered_again_when_they_may_have_changed(
    fake: FakeDevice, change: Callable[[Calls], None]
) -> None:
    calls = Calls(fake)
    assert not any(calls.orders_anew() for _ in range(3))
    change(calls)
    assert calls.orders_anew()
    assert calls.orders_anew() is (change is export)  # others may write to them at any time


def test_other_numbers_need_no_other_order(fake: FakeDevice) -> None:
    calls = Calls(fake)
    assert not calls.orders_anew(calls.i, kg.asarray(np.ones(90, "f4"), device="fake"))


def test_arrays_that_die_take_what_was_made_of_them_along(fake: FakeDevice) -> None:
    calls = Calls(fake)
    before = fake.in_use
    calls.i = calls.x = None
    gc.collect()
    waitall()
    assert fake.in_use == 0 < before


def test_a_function_that_dies_takes_what_it_has_made_along(fake: FakeDevice) -> None:
    calls = Calls(fake)
    calls.function = None  # type: ignore[assignment]
    gc.collect()
    waitall()
    assert fake.in_use == calls.i.nbytes + calls.x.nbytes


@pytest.mark.parametrize("gpu", ["any order"], indirect=True)
def test_values_while_indices_change(gpu: Any) -> None:
    """Assigned to, written by another library before and after a call, forgotten, replaced."""
    numbers, function = np.random.default_rng(0), kg.kernel_graph(device="cuda")(summed)
    i, x = (kg.asarray(a, device="cuda") for a in (numbers.integers(0, 9, 30), numbers.random(PLACES).astype("f4")))

    def written_by_others() -> None:
        pointer = i.__cuda_array_interface__["data"][0]
        waitall()
        (ctypes.c_int64 * 30).from_address(pointer)[:] = [int(n) for n in numbers.integers(0, 9, 30)]
        i._host = None

    changes = (lambda: None, lambda: i.__setitem__(3, 7), *[written_by_others] * 2, lambda: kg.empty_cache("cuda"))
    for change in changes:
        change()
        wanted = summed(i.numpy(), x.numpy())
        assert function(i, x).numpy().tobytes() == wanted.tobytes()


def test_what_is_made_of_several_memories_is_that_of_all() -> None:
    class Memory:
        pass

    made, one, two, three = MadeOfMemory(), Memory(), Memory(), Memory()
    made.keep([one, two], "both")
    assert made.find([one, two]) == "both"
    assert [made.find(each) for each in ([one], [two], [two, one], [one, three], [one, one])] == [None] * 5
    del two
    assert made.find([one, three]) is None
