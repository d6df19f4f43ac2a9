"""Calls of decorated functions on a GPU in memory: whatever way a call takes, it means what NumPy says."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices, in_flight
from kernelgraph.dsl.array.in_flight import waitall
from kernelgraph.dsl.jit.launcher import NOT_TAKEN
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.driver.events import CudaEvent
from kernelgraph.runtime.devices.cuda.graphs import one_launch
from kernelgraph.runtime.engine import unread_errors
from tests.runtime.cuda_fake import FakeBlas, FakeContext


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device that `cuda` is."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(one_launch, "PLAIN", 2)
    made = cuda.CUDADevice(0, FakeContext(7))
    made.blas = FakeBlas(made.context, made.pool.allocate)  # type: ignore[assignment]
    monkeypatch.setitem(devices._open, ("cuda", 0), made)
    yield made
    waitall()


def double(x: Any) -> Any:
    return x + x


def join(x: Any, y: Any) -> Any:
    return x - y, x * y


def differences(calls: int, seed: int, synchronize: Any) -> int:
    """Calls of two functions on each other's results, some waited for, in a random order: how many are wrong."""
    one, two = (kg.kernel_graph(device="cuda")(f) for f in (double, join))
    rng = np.random.default_rng(seed)
    pool = [(kg.asarray(x, device="cuda"), x) for x in rng.integers(0, 9, (3, 40)).astype("f4")]
    seen = []
    for _ in range(calls):
        i, j = rng.integers(0, len(pool), 2)
        (a, x), (b, y) = pool[i], pool[j]
        both = rng.random() < 0.5
        made = list(zip(two(a, b), join(x, y), strict=True)) if both else [(one(a), x + x)]
        seen += made
        pool = [*pool[:3], *[(m, w) for m, w in made if np.abs(w).max() < 1e6], *pool[3:8]]
        if rng.random() < 0.1:
            made[0][0].wait()
        if rng.random() < 0.1:
            synchronize()
    return sum(array.numpy().tobytes() != wanted.tobytes() for array, wanted in seen)


def test_any_order_of_calls(gpu: Any) -> None:
    assert differences(120, 0, gpu.synchronize) == 0
    assert [entry[0] for entry in gpu.context.driver.log].count("launch_graph") > 40


def test_what_is_told_by_order_has_happened(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads queue calls on few streams; what is over is asked at random."""
    told: list[bool] = []

    def finish(event: CudaEvent) -> None:
        if not event.done:
            told.append(gpu.context.driver.query(event.handle) == 0)
        plain(event)

    plain = CudaEvent.finish
    monkeypatch.setattr(CudaEvent, "finish", finish)
    lock, failures = threading.Lock(), list[BaseException]()

    def call_in_thread(seed: int) -> None:
        rng = random.Random(seed)
        try:
            f = kg.kernel_graph(device="cuda")(double)
            x = kg.asarray(np.ones(40, "f4"), device="cuda")
            for _ in range(60):
                with lock:  # the fake driver serves one at a time
                    x = f(x) if rng.random() < 0.7 else f(kg.asarray(np.ones(40, "f4"), device="cuda"))
                    if rng.random() < 0.1:
                        x.wait()
                    if rng.random() < 0.2:
                        in_flight._on_devices.forget_finished()
                time.sleep(0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call_in_thread, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert told and all(told)


def test_a_short_call_enters_four_functions_of_python(gpu: Any) -> None:
    """What a call makes is made natively: blocks, events and arrays. What dies of earlier calls, and the
    generated function itself, are not counted."""
    f, x = settled()
    kept = [f(x) for _ in range(32)]
    kept[-1].wait()
    kg.waitall()
    kept.clear()  # there are blocks and events now
    entered: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and "kernelgraph/" in code.co_filename and code.co_name != "__del__":
            entered.append(code.co_name)

    for _ in range(8):
        entered.clear()
        sys.setprofile(note)
        kept.append(f(x))
        sys.setprofile(None)
        assert entered == ["allocate", "start_graph", "choose", "track"]


def test_few_questions_tell_which_calls_are_over(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = settled()
    kg.waitall()
    asked: list[int] = []
    query = gpu.events.query
    monkeypatch.setattr(gpu.events, "query", lambda handle: asked.append(handle) or query(handle))
    for _ in range(10):
        for _ in range(in_flight.ASKED):
            y = f(x)
        gpu.synchronize()
    assert in_flight.in_flight_counts()[0] <= 2 * in_flight.ASKED
    assert len(asked) <= 10 * in_flight.ASKED // 3
    np.testing.assert_array_equal(y.numpy(), np.full(40, 2, "f4"))


@pytest.mark.parametrize("rows", [1, 4])
def test_lengths_that_a_trace_knows_keep_no_call_from_the_short_way(gpu: Any, rows: int) -> None:
    """Two functions whose graphs are equal but for a count, called by turns; of one launch and of several."""

    def variance(x: Any, ddof: int) -> Any:
        found = [x.var(axis=1, ddof=ddof)]
        for _ in range(rows - 1):
            found.append((x * found[-1].max()).var(axis=0, ddof=ddof))
        return found

    def function_of(ddof: int) -> Any:
        return kg.kernel_graph(lambda x: variance(x, ddof), device="cuda")

    functions = [function_of(ddof) for ddof in (0, 1)]
    x = np.arange(40, dtype="f8").reshape(8, 5) % 7
    given = kg.asarray(x, device="cuda").wait()
    for _ in range(12):
        for ddof, function in enumerate(functions):
            for got, want in zip(function(given), variance(x, ddof), strict=True):
                np.testing.assert_allclose(got.numpy(), want, 1e-12)

    def is_short(function: Any) -> bool:
        """Some call is: one whose graph is still in flight is none."""
        kg.waitall()
        return function._fast((given,)) is not NOT_TAKEN

    if rows == 1:  # of several launches the clock may have chosen streams
        assert all(any(is_short(function) for _ in range(20)) for function in functions)


def shifted(x: Any, a: Any, b: Any) -> Any:
    return x * a + b


def normed(x: Any, a: Any, b: Any) -> Any:
    return x / (np.abs(x).max() * a + b)


NUMBERS = (0.0, -0.0, 1.5, -2.25, 1e300, 3, -7, 0, 1 << 40, True)


@pytest.mark.parametrize("function", [shifted, normed, lambda x, a, b: (x - a, x * b), lambda x, a, b: x + (a - b) * 2])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4", "i8", "u1"])
def test_numbers_of_a_call_go_the_short_way(gpu: Any, function: Any, dtype: str) -> None:
    """Each call has its own numbers, also where those of the call before are equal to them."""
    rng = np.random.default_rng(5)
    x = rng.integers(1, 9, (8, 5)).astype(dtype)
    given = kg.asarray(x, device="cuda").wait()
    f = kg.kernel_graph(function, device="cuda")
    short = 0
    for turn in range(60):
        a, b = (NUMBERS[i] for i in rng.integers(0, len(NUMBERS), 2))
        if turn < 20:
            a, b = NUMBERS[turn % 4], NUMBERS[2 + turn % 3]  # floats, until all is ready
        try:
            with np.errstate(all="ignore"):
                wanted = function(x, a, b)
        except OverflowError:
            continue
        gpu.context.driver.log.clear()
        got = f(given, a, b)
        short += {entry[0] for entry in gpu.context.driver.log} <= {"launch_graph", "update_kernel", "record"}
        pairs = zip(*((each if isinstance(each, tuple) else (each,)) for each in (got, wanted)), strict=True)
        for ours, numpys in pairs:
            assert ours.dtype == numpys.dtype
            np.testing.assert_allclose(ours.numpy(), numpys, 1e-3 if dtype == "f2" else 1e-6)
    assert short > 15


@pytest.mark.parametrize("number", [1.0, 2, True])
def test_an_operator_with_a_number_goes_the_short_way(gpu: Any, number: Any) -> None:
    x = np.arange(40, dtype="f8")
    given = kg.asarray(x, device="cuda").wait()
    for turn in range(12):
        gpu.context.driver.log.clear()
        got, other = given + (number + turn), number - given
        short = {entry[0] for entry in gpu.context.driver.log} <= {"launch_graph", "update_kernel", "record"}
        np.testing.assert_array_equal(got.numpy(), x + (number + turn))
        np.testing.assert_array_equal(other.numpy(), number - x)
    assert short


def settled() -> tuple[Any, Any]:
    """A function that launches graphs from now on, and an array for it."""
    f = kg.kernel_graph(device="cuda")(double)
    x = kg.asarray(np.ones(40, "f4"), device="cuda").wait()
    for _ in range(8):
        f(x).wait()
    return f, x


def test_calls_after_each_other_stay_on_a_stream_without_waits(gpu: Any) -> None:
    f, x = settled()
    log = gpu.context.driver.log
    log.clear()
    y = f(f(f(x)))
    assert {entry[0] for entry in log} <= {"launch_graph", "update_kernel", "record"}
    assert len({entry[1] for entry in log if entry[0] == "launch_graph"}) == 1
    np.testing.assert_array_equal(y.numpy(), np.full(40, 8, "f4"))


def test_a_launch_that_fails_poisons_its_result(gpu: Any) -> None:
    f, x = settled()
    driver = gpu.context.driver
    driver.refuse.update(launch_graph=1, launch=1)
    y = f(x)
    with pytest.raises(cuda.LaunchError):
        y.wait()
    z = f(y)
    with pytest.raises(cuda.LaunchError):
        z.numpy()
    np.testing.assert_array_equal(f(x).numpy(), np.full(40, 2, "f4"))


def read(y: Any) -> None:
    with pytest.raises(cuda.LaunchError):
        y.wait()


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda f, y: None, 1),
        (lambda f, y: kg.waitall(), 1),
        (lambda f, y: f(f(y)), 1),
        (lambda f, y: read(y), 0),
        (lambda f, y: read(f(y)), 0),
        (lambda f, y: (kg.waitall(), read(y), read(f(y)), kg.waitall()), 0),
    ],
)
def test_an_error_that_nobody_has_seen_is_told_at_the_end(gpu: Any, capsys: Any, use: Any, told: int) -> None:
    unread_errors.clear_unread_errors()
    f, x = settled()
    for turn in (1, 2):
        gpu.context.driver.refuse.update(launch_graph=1, launch=1)
        use(f, f(x))
        f(x).wait()
        unread_errors.print_unread_errors()  # as the interpreter does
        found = capsys.readouterr().err.splitlines()
        assert len(found) == told, (turn, found)
        assert all(
            "nobody read the result" in line and "LaunchError" in line and "test_cuda_calls.py:" in line
            for line in found
        )


def test_work_that_fails_later_is_told_too(gpu: Any, capsys: Any) -> None:
    unread_errors.clear_unread_errors()
    f, x = settled()
    y = f(x)
    gpu.context.driver.refuse.update(synchronize_event=1, query=1)
    kg.waitall()
    unread_errors.print_unread_errors()
    assert "LaunchError" in capsys.readouterr().err
    read(y)


def test_one_step_at_a_time_takes_the_ordinary_way(gpu: Any) -> None:
    f, x = settled()
    log = gpu.context.driver.log
    log.clear()
    with override(engine="sync"):
        f(x).wait()
    assert "launch_graph" not in {entry[0] for entry in log}


def test_memory_of_calls_that_are_over_is_used_again(gpu: Any) -> None:
    f = kg.kernel_graph(device="cuda")(double)
    x = kg.asarray(np.ones(40, "f4"), device="cuda").wait()
    for _ in range(400):
        f(x).wait()
    assert gpu.statistics()["reserved"] < 100 * 256


def test_assignments_reach_the_argument_at_every_call(gpu: Any) -> None:
    def change(x: Any) -> None:
        x[...] = x * 2 + 1

    def add(x: Any, y: Any) -> Any:
        x += y
        return x

    one, two = (kg.kernel_graph(f, device="cuda") for f in (change, add))
    for turn in range(8):
        expected = np.arange(12.0, dtype=np.float32) + turn
        x = kg.asarray(expected, device="cuda")
        y = kg.asarray(expected, device="cuda")
        one(x)
        assert two(x, y) is x
        np.testing.assert_array_equal(x, expected * 3 + 1)
        assert two(x, x) is x  # in NumPy
        np.testing.assert_array_equal(x, (expected * 3 + 1) * 2)
