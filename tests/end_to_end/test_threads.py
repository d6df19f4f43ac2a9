"""Any number of threads may call the same function and share arrays: right results, one compilation, no deadlock."""

from __future__ import annotations

import ctypes
import faulthandler
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.codegen import llvm_jit
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from tests.faults import opened
from tests.soak import soak

THREADS = 16


@pytest.fixture(autouse=True)
def _stacks_of_a_deadlock() -> Iterator[None]:
    """A test that hangs ends the process and shows where every thread is."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change at any point
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(interval)


def at_once(work: Callable[[int], Any], threads: int = THREADS) -> list[Any]:
    """What `work` gives to each of several threads that start together; the first error is raised."""
    door, found, errors = threading.Barrier(threads), [None] * threads, []

    def run(me: int) -> None:
        try:
            door.wait()
            found[me] = work(me)
        except BaseException as error:
            errors.append(error)

    team = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    if errors:
        raise errors[0]
    return found


@pytest.mark.parametrize("on_device", [False, True])
def test_a_first_call_from_many_threads_traces_and_compiles_once(
    on_device: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = Counter[str]()
    compile_object = llvm_jit.compile_llvm_ir_to_object_file

    def counted(text: str, name: str = "text") -> bytes:
        compiled[name] += 1
        return compile_object(text, name)

    monkeypatch.setattr(llvm_jit, "compile_llvm_ir_to_object_file", counted)
    with opened("cpu", CPUDevice()), kg.override(cache_dir=""):

        @kg.kernel_graph(device="cpu")
        def f(x: Any) -> Any:
            y = np.exp(-x) * 3
            return y.sum(0), np.sort(y, axis=0)

        x = np.linspace(0, 1, 600).reshape(30, 20)
        given = kg.asarray(x, device="cpu") if on_device else x
        for total, ordered in at_once(lambda me: f(given)):
            np.testing.assert_allclose(total, (np.exp(-x) * 3).sum(0))
            np.testing.assert_allclose(ordered, np.sort(np.exp(-x) * 3, axis=0))
    assert f.why().count("traced for") == f.why().count("compiled") == 1
    assert compiled and set(compiled.values()) == {1}


def test_threads_with_arguments_of_different_kinds() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, n: Any) -> Any:
        return (x * n).sum(-1)

    kinds = [np.ones((n, 3 + n), dtype) for n in range(1, 9) for dtype in ("f4", "f8")]

    def work(me: int) -> None:
        for turn in range(30):
            x = kinds[(me + turn) % len(kinds)]
            np.testing.assert_allclose(f(x, float(turn)), (x * turn).sum(-1))

    at_once(work)


def test_threads_share_arrays_that_are_still_on_their_way() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x: np.sort(x, axis=0) + 1)
    g = kg.kernel_graph(device="cpu")(lambda x, y: (x - y, (x * y).sum()))
    x = np.random.default_rng(0).random((400, 100))
    wanted = np.sort(x, axis=0) + 1
    flying = [f(kg.asarray(x, device="cpu")) for _ in range(4)]

    def work(me: int) -> None:
        for turn in range(20):
            a, b = flying[(me + turn) % 4], flying[(me * turn) % 4]
            nothing, total = g(a, b)
            if me % 3 == 0:
                a.wait()
            assert not np.asarray(nothing).any()
            np.testing.assert_allclose(total, (wanted * wanted).sum())

    at_once(work)


def test_threads_that_fail_do_not_disturb_those_that_do_not() -> None:
    @kg.kernel_graph(device="cpu")
    def solve(a: Any, b: Any) -> Any:
        return np.linalg.solve(a, b)

    good, bad, b = (kg.asarray(x, device="cpu") for x in (np.eye(4) * 2, np.zeros((4, 4)), np.ones(4)))

    def work(me: int) -> None:
        for _ in range(30):
            result = solve(bad if me % 2 else good, b)
            if me % 2:
                for _ in range(2):
                    with pytest.raises(np.linalg.LinAlgError):
                        result.wait()
            else:
                np.testing.assert_array_equal(result, np.full(4, 0.5))

    at_once(work)


def test_threads_wait_for_everything_while_others_call() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x: np.cumsum(np.tanh(x), axis=0))
    x = kg.asarray(np.ones((300, 50)), device="cpu")
    wanted = np.cumsum(np.tanh(np.ones((300, 50))), axis=0)

    def work(me: int) -> None:
        for turn in range(25):
            if me % 4 == 0:
                kg.waitall()
            elif me % 4 == 1 and turn % 8 == 0:
                assert kg.memory_stats("cpu")["in_use"] > 0
            else:
                np.testing.assert_allclose(f(f(x) * 0 + x), wanted)

    at_once(work)


def test_ten_thousand_calls_of_mixed_programs_from_eight_threads() -> None:
    """`make soak` makes 100,000."""
    report = soak(10_000, 8)
    assert report.wrong == 0
    assert len(set(report.in_use)) == len(set(report.arrays)) == 1, report
    assert report.resident[-1] - report.resident[0] < 64 << 20, report


def blas_threads() -> int:
    """How many threads the OpenBLAS of NumPy uses."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    except OSError:
        pytest.skip("no list of what is loaded")
    for path in dict.fromkeys(line.split()[-1] for line in maps.splitlines() if "openblas" in line):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                return int(getattr(library, name)())
    pytest.skip("NumPy's BLAS is another one")


def test_products_side_by_side_leave_blas_its_threads() -> None:
    """Whatever else uses it in the process counts on them."""

    def chain(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = np.maximum(x @ w, 0)
        return x

    before, seen = blas_threads(), set[int]()
    f = kg.kernel_graph(lambda a, b, w: (chain(a, w), chain(b, w)), device="cpu", streams="max")
    w = np.eye(200)[::-1].copy()
    for turn in range(5):
        a = np.full((200, 200), float(turn))
        for found in f(a, a + 1, w):
            seen.add(blas_threads())
            assert found.numpy()[0, 0] in (turn, turn + 1)
    assert seen | {blas_threads()} == {before}
