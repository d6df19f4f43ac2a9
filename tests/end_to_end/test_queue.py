"""Calls and operators that are queued give what NumPy gives, in order, in memory that does not grow with the queue."""

from __future__ import annotations

import inspect
import random
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.array import in_flight
from kernelgraph.dsl.jit import eager
from kernelgraph.dsl.jit.kernel_graph import KernelGraph
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from tests.faults import opened

SIZE = 1 << 12
# arguments taken, what is computed: one result or two, with and without temporaries
FUNCTIONS: list[tuple[int, Any]] = [
    (1, lambda x: x * 0.5 + 1.0),
    (1, lambda x: np.sort(x)[::-1] - np.cumsum(x) * 1e-3),
    (2, lambda x, y: x - 0.25 * y),
    (2, lambda x, y: (x + y, np.maximum(x, y))),
    (2, lambda x, y: (np.arange(float(SIZE)) * 1e-3, x * y * 0.1)),  # a result that comes from no argument
    (1, lambda x: np.abs(x).sum() * 1e-4 + x),
]
COMPILED = [(n, f, kg.kernel_graph(device="cpu")(f)) for n, f in FUNCTIONS]
OPERATORS: list[tuple[int, Any]] = [
    (2, lambda x, y: x + y),
    (1, lambda x: x * 0.5),
    (1, lambda x: np.sqrt(abs(x))),
    (2, lambda x, y: np.where(x > y, x, y)),
    (1, lambda x: 1.0 - x),
    (2, np.minimum),
]


def check_random_queue(seed: int, turns: int = 40) -> None:
    """Calls and operators on a few names, of which some are dropped, held, read and written to on the way."""
    rng = random.Random(seed)
    ours: list[Any] = [kg.asarray(np.linspace(i, i + 1.0, SIZE), device="cpu") for i in range(4)]
    numpys: list[Any] = [np.linspace(i, i + 1.0, SIZE) for i in range(4)]
    held: list[tuple[Any, Any]] = []
    for _ in range(turns):
        kind = rng.choice(("call", "call", "call", "operator", "operator", "chain", "hold", "read", "write", "drop"))
        at = rng.randrange(4)
        if kind == "call":
            count, plain, compiled = rng.choice(COMPILED)
            which = [rng.randrange(4) for _ in range(count)]
            new, expected = compiled(*(ours[i] for i in which)), plain(*(numpys[i] for i in which))
            for place, value, wanted in zip(
                rng.sample(range(4), 2),
                new if isinstance(new, tuple) else (new,),
                expected if isinstance(expected, tuple) else (expected,),
                strict=False,
            ):
                ours[place], numpys[place] = value, wanted
        elif kind == "operator":
            count, operator = rng.choice(OPERATORS)
            which = [rng.randrange(4) for _ in range(count)]
            ours[at], numpys[at] = operator(*(ours[i] for i in which)), operator(*(numpys[i] for i in which))
        elif kind == "chain":
            count, plain, compiled = COMPILED[rng.choice((0, 1, 5))]
            for _ in range(rng.randrange(2, 12)):
                ours[at], numpys[at] = compiled(ours[at]), plain(numpys[at])
        elif kind == "hold":
            held.append((ours[at], numpys[at]))
        elif kind == "read":
            np.testing.assert_allclose(np.asarray(ours[at]), numpys[at], rtol=1e-9, atol=1e-9)
            held.append((np.asarray(ours[at]), numpys[at].copy()))  # a view of the memory
        elif kind == "write":
            ours[at][3:9] = numpys[at][3:9] = rng.random()
        else:
            ours[at] = kg.asarray(np.full(SIZE, 0.5), device="cpu")
            numpys[at] = np.full(SIZE, 0.5)
    for value, wanted in [*zip(ours, numpys, strict=True), *held]:
        np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-9, atol=1e-9)


@pytest.fixture
def every_operator_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "QUEUED_BYTES", 0)
    monkeypatch.setattr(eager, "COMPILED_BYTES", 0)


@pytest.mark.parametrize("mode", ["async", "chaos"])
@pytest.mark.usefixtures("every_operator_is_queued")
@given(seed=st.integers(0, 1 << 32))
def test_what_is_queued_gives_what_numpy_gives(mode: str, seed: int) -> None:
    with kg.override(engine=mode):
        check_random_queue(seed)


@pytest.mark.usefixtures("every_operator_is_queued")
def test_threads_queue_beside_each_other() -> None:
    failures: list[BaseException] = []

    def check_in_thread(seed: int) -> None:
        try:
            for turn in range(4):
                check_random_queue(100 * seed + turn)
        except BaseException as error:
            failures.append(error)

    with kg.override(engine="chaos"):
        threads = [threading.Thread(target=check_in_thread, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


halved = kg.kernel_graph(device="cpu")(lambda x: x * 0.5 + 1.0)
sorted_ = kg.kernel_graph(device="cpu")(FUNCTIONS[1][1])
both = kg.kernel_graph(device="cpu")(FUNCTIONS[3][1])


def alternate(x: Any, y: Any) -> tuple[Any, Any]:
    return sorted_(halved(x)), y


def with_operators(x: Any, y: Any) -> tuple[Any, Any]:
    return np.sqrt(abs(x * 0.5 + y)), y


def with_momentum(x: Any, y: Any) -> tuple[Any, Any]:
    y = kg_momentum(x, y)
    return x - y * 0.125, y


kg_momentum = kg.kernel_graph(device="cpu")(lambda x, y: y * 0.5 + x * 0.125)
LOOPS: list[Any] = [
    lambda x, y: (halved(x), y),
    lambda x, y: (sorted_(x), y),
    both,
    alternate,
    with_operators,
    with_momentum,
]


@pytest.mark.parametrize("turn", LOOPS, ids=["one", "sort", "two results", "alternate", "operators", "momentum"])
@pytest.mark.usefixtures("every_operator_is_queued")
def test_a_queued_loop_needs_no_more_memory_the_longer_it_is(turn: Any) -> None:
    """Without a wait, whether its calls are over soon or late; the bound of dropped bytes is out of reach."""
    used: set[int] = set()
    with opened("cpu", CPUDevice()), kg.override(engine="chaos"):
        x, y = (kg.asarray(np.linspace(0.0, 1.0, SIZE), device="cpu") for _ in range(2))
        for _ in range(200):
            x, y = turn(x, y)
            used |= {x._memory.address, y._memory.address}
        kg.waitall()
    assert len(used) <= 24


def test_results_that_nobody_holds_do_not_pile_up() -> None:
    """Calls that follow none of each other."""
    device = CPUDevice()
    with opened("cpu", device), kg.override(engine="chaos"):
        x = kg.asarray(np.ones(1 << 18), device="cpu")
        for _ in range(100):
            halved(x)
        kg.waitall()
        assert device.statistics()["peak"] <= in_flight.DROPPED_BYTES + 4 * x.nbytes


@pytest.mark.parametrize("seed", range(6))
def test_chains_that_join_now_and_then_hold_no_more_the_longer_they_are(seed: int) -> None:
    """Each goes on by itself between joins, which are rare or frequent."""
    rng, device = random.Random(seed), CPUDevice()
    step, rare = (halved, kg.kernel_graph(device="cpu")(lambda x: np.sqrt(np.abs(x)))), rng.choice((2, 10, 40))
    join = kg.kernel_graph(device="cpu")(lambda x, y: x * 0.5 + y * 0.25)
    with opened("cpu", device):
        chains = [kg.asarray(np.ones(1 << 18), device="cpu") for _ in range(rng.randrange(2, 4))]
        for turn in range(1200):
            i, j = rng.sample(range(len(chains)), 2)
            chains[i] = join(chains[i], chains[j]) if not turn % rare else step[turn % 2](chains[i])
        kg.waitall()
        assert device.statistics()["peak"] <= 4 * in_flight.DROPPED_BYTES


def test_who_runs_ahead_of_the_budget_waits_and_a_profile_says_so() -> None:
    waits = 0
    for _ in range(50):  # a caller who is slow himself runs ahead of nothing
        device = CPUDevice()
        sorted_big = kg.kernel_graph(device="cpu")(lambda x: np.sort(x) + np.cumsum(x))
        with opened("cpu", device), kg.override(in_flight_bytes=8 << 20), kg.profile() as profile:
            x = kg.asarray(np.ones(1 << 18), device="cpu")
            kept = [sorted_big(x * float(i)) for i in range(12)]
            assert in_flight.in_flight_counts()[1] <= (8 << 20) + 3 * (2 << 20) * 3
        assert len(kept) == 12 and device.statistics()["in_use"] >= 12 * x.nbytes
        waits += sum(span.name == "memory of calls in flight" for span in profile.spans)
        if waits:
            break
    assert waits


@pytest.mark.parametrize(
    "operation",
    [lambda x: x + x, lambda x: x * 2.0, lambda x: np.sqrt(x), lambda x: -x, lambda x: x @ x, lambda x: 3 - x],
)
@pytest.mark.usefixtures("every_operator_is_queued")
def test_an_operator_does_not_wait_for_its_operand(operation: Any) -> None:
    """The operand comes from a host call that ends only when the operator has returned."""
    returned = threading.Event()

    def copy_late(x: Any, out: Any) -> None:
        assert returned.wait(20)
        out[...] = x

    @kg.kernel_graph(device="cpu")
    def late(x: Any) -> Any:
        return kg.host(copy_late, x * 1.0, kg.spec(x.shape, x.dtype))

    values = np.arange(16.0).reshape(4, 4)
    with kg.override(engine="chaos"):  # small work is queued too
        result = operation(late(kg.asarray(values, device="cpu")))
    returned.set()
    np.testing.assert_array_equal(np.asarray(result), operation(values))


def test_what_fails_is_told_at_each_read_with_the_line_that_fails() -> None:
    def fail(x: Any, out: Any) -> None:
        raise ValueError("seven")

    @kg.kernel_graph(device="cpu")
    def fails(x: Any) -> Any:
        return kg.host(fail, x * 1.0, kg.spec(x.shape, x.dtype))

    y = fails(kg.asarray(np.ones(8), device="cpu")) * 2.0 + 1.0
    line = inspect.getsourcelines(test_what_fails_is_told_at_each_read_with_the_line_that_fails)[1] + 6
    for _ in range(2):
        with pytest.raises(ValueError, match="seven") as raised:
            y.wait()
        assert any(f"test_queue.py:{line}" in note for note in raised.value.__notes__)


@pytest.mark.usefixtures("every_operator_is_queued")
def test_operators_on_arrays_of_several_kinds_in_turn_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of operands has a compiled function of its own, which takes them without a look at their key."""
    xs = [kg.asarray(np.ones(n, dtype), device="cpu") for n in (16, 1024) for dtype in ("f4", "f8")]

    def compute_all() -> list[Any]:
        found = [f(x) for f in (lambda x: x + x, lambda x: x * 2.0, lambda x: 1 - x, np.sqrt) for x in xs]
        kg.waitall()
        return found

    for _ in range(3):
        before = compute_all()
    monkeypatch.setattr(KernelGraph, "_call_anywhere", lambda *_: pytest.fail("its own function does not take it"))
    for found, known in zip(compute_all(), before, strict=True):
        np.testing.assert_array_equal(found, known)


def test_small_arrays_are_computed_at_once() -> None:
    x = kg.asarray(np.ones(1024), device="cpu")
    with pytest.warns(RuntimeWarning, match="divide"):
        assert (x / 0.0).is_ready()


@pytest.mark.usefixtures("every_operator_is_queued")
def test_operators_raise_what_numpy_raises_at_the_operator() -> None:
    x = kg.asarray(np.arange(3), device="cpu")
    with pytest.raises(ValueError, match="broadcast"):
        x + kg.asarray(np.arange(4), device="cpu")
    with pytest.raises(ValueError, match="negative integer powers"):
        x**-1
    with pytest.raises(TypeError):
        ~(x * 1.5)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        (x * 1.0) / 0.0


def test_a_call_takes_memory_of_its_own_device_alone() -> None:
    values = np.ones(1 << 12)
    with kg.override(cpu_devices=2, engine="chaos"):
        places = [kg.kernel_graph(device=name)(lambda x: x * 0.5 + 1.0) for name in ("cpu", "cpu:1")]
        x = kg.asarray(values, device="cpu")
        for turn in range(30):
            x = places[turn % 2](places[turn % 2](x.to_device(("cpu", "cpu:1")[turn % 2])))
            values = (values * 0.5 + 1.0) * 0.5 + 1.0
            assert x._device.owns(x._memory)
        np.testing.assert_allclose(np.asarray(x), values)
