"""Functions on several devices: where their values are, and that they are NumPy's."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.devices import device_plans
from kernelgraph.dsl.devices.device_calls import MultiDeviceTrialCall
from kernelgraph.dsl.jit.launcher import Launcher
from kernelgraph.runtime.tune import trial as trial_module
from tests import plan_parts

A, B, C = (np.random.default_rng(i).random((40, 40)) for i in range(3))


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    with kg.override(cpu_devices=4, verify=True):
        yield


def test_computation_follows_data() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, w: Any) -> Any:
        a = np.maximum(x @ w, 0.5)
        b = np.sqrt(kg.place(x, "cpu:1")) + 1
        with kg.device("cpu:2"):
            c = a * 2 + b.sum()
        return a, b, c, [a + b]

    for x in (A, kg.asarray(A, device="cpu:3"), kg.asarray(A, device="cpu")):
        a, b, c, [d] = f(x, B)
        assert [r.device for r in (a, b, c, d)] == ["cpu", "cpu:1", "cpu:2", "cpu:1"]
        p, q = np.maximum(A @ B, 0.5), np.sqrt(A) + 1
        for got, want in ((a, p), (b, q), (c, p * 2 + q.sum()), (d, p + q)):
            np.testing.assert_allclose(got, want, rtol=1e-13)


def test_a_place_outside_of_a_trace_is_a_copy() -> None:
    x = kg.place({"a": A, "b": (1, kg.asarray(B, device="cpu"))}, "cpu:2")
    assert (x["a"].device, x["b"][1].device, x["b"][0]) == ("cpu:2", "cpu:2", 1)
    assert kg.place(x["a"], "cpu:2") is x["a"]


def test_arguments_come_from_anywhere() -> None:
    @kg.kernel_graph(device=("cpu:0", "cpu:1"))
    def f(x: Any, y: Any) -> Any:
        return kg.place(x, "cpu:1") * y

    for at in ("cpu:0", "cpu:1", "cpu:3"):
        y = f(kg.asarray(A, device=at), kg.asarray(B, device="cpu:2"))
        assert y.device == "cpu:1"
        np.testing.assert_array_equal(y, A * B)


def test_numbers_constants_and_arrays_from_outside() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, k: float, n: int) -> Any:
        y = kg.place(x, "cpu:1") * k + C
        return (y + n).sum(axis=0), x * k, np.ones(3), x, k + 1

    for k, n in ((0.5, 2), (3.0, -1)):
        r = f(A, k, n)
        np.testing.assert_allclose(r[0], (A * k + C + n).sum(axis=0), rtol=1e-13)
        np.testing.assert_array_equal(r[1], A * k)
        np.testing.assert_array_equal(r[2], np.ones(3))
        np.testing.assert_array_equal(r[3], A)
        assert r[4] == k + 1


def test_assignment_reaches_the_callers_array() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        y = kg.place(x[0], "cpu:1") * 2
        x[1:] = y
        return y

    own = A.copy()
    mine = kg.asarray(A, device="cpu:2")
    for x in (own, mine):
        f(x)
        np.testing.assert_array_equal(np.asarray(x)[1:], np.broadcast_to(A[0] * 2, (39, 40)))
    assert mine.device == "cpu:2"


def test_failures_cross_devices() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, y: Any) -> Any:
        return kg.place(np.linalg.inv(x), "cpu:1") + 1, np.sqrt(y)

    bad, good = f(np.zeros((200, 200)), A)
    np.testing.assert_array_equal(good, np.sqrt(A))
    with pytest.raises(np.linalg.LinAlgError):
        bad.numpy()


def test_the_clock_decides_between_one_device_and_several() -> None:
    @kg.kernel_graph(device=("cpu:0", "cpu:1"))
    def f(x: Any, ws: Any) -> Any:
        total = 0
        for w in ws:
            total = total + np.tanh(np.tanh(x @ w) @ w)
        return total

    x, ws = np.ones((64, 64)), [np.full((64, 64), k / 1e3) for k in range(1, 5)]
    assert len(f.device_plan(x, ws).devices) == 2
    want = sum(np.tanh(np.tanh(x @ w) @ w) for w in ws)
    kinds, calls = set(), 0
    while Launcher not in kinds and (calls := calls + 1) < 2000:
        y = f(x, ws)
        assert y.device == "cpu"
        np.testing.assert_allclose(y, want, rtol=1e-12)
        kinds |= {type(entry) for entry in f._entries.values()}
    assert kinds == {MultiDeviceTrialCall, Launcher}


def test_one_device_is_timed_as_it_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while its own plan is still being chosen, which takes compiling and other plans' times."""
    monkeypatch.setattr(trial_module, "load_stored_tuning_winner", lambda key, sizes: None)

    @kg.kernel_graph(device=("cpu:0", "cpu:1"))
    def f(x: Any, ws: Any) -> Any:
        return sum(np.tanh(np.tanh(x @ w) @ w) for w in ws)

    x, ws = np.ones((64, 64)), [np.full((64, 64), k / 1e3) for k in range(1, 5)]
    f(x, ws)
    (trial,), (alone,) = f._entries.values(), f._versions.plans.values()
    assert alone.trial.tuner.winner is None
    while trial in f._entries.values():
        assert alone.trial.tuner.winner is not None or not trial.tuner.measurements()
        f(x, ws)
    (stays,) = f._entries.values()
    assert stays is trial._candidates[trial.tuner.winner]


@pytest.mark.parametrize("times", [(1e7, 0.0), (5.0, 1e4), (5.0, 0.0)])
def test_links_that_were_timed_slow_are_not_used(times: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """times: of a small copy, and of each byte more."""
    asked: list[Any] = []
    monkeypatch.setattr(device_plans, "measured_copy_times", lambda a, b: asked.append((a, b)) or times)

    @kg.kernel_graph(device=("cpu:0", "cpu:1"))
    def branches(x: Any, *weights: Any) -> Any:
        return [np.sin(x @ w) @ w for w in weights]

    x, weights = np.ones((300, 300)), [np.full((300, 300), i / 100) for i in range(4)]
    branches(x, *weights)
    assert {(a.index, b.index) for a, b in asked} == {(0, 1)}
    assert (MultiDeviceTrialCall in map(type, branches._entries.values())) == (times == (5.0, 0.0))
    asked.clear()
    with kg.override(tune=False):
        kg.kernel_graph(lambda x: np.sqrt(x) @ x, device=("cpu:0", "cpu:1"))(x)
    assert not asked


def test_what_people_see() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        return np.sqrt(x), kg.place(x, "cpu:1") + 1

    lines = f.explain(A).splitlines()
    words = "That is on one device. plan f on d0 cpu:0, d1 cpu:1, 0 bytes copied: 2 tasks on 2 streams, "
    assert any(line.startswith(words) for line in lines)
    assert f.plan(A).tasks and f.source(A) and f.report(A, calls=0) and f.compile(kg.spec((40, 40)))
    assert "That is on one device" not in kg.kernel_graph(np.sqrt, device="cpu").explain(A)


def test_calls_on_a_stream() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any) -> Any:
        return kg.place(x, "cpu:1") + 1

    stream = kg.Stream("cpu")
    with kg.stream(stream):
        y = f(A)
    stream.synchronize()
    np.testing.assert_array_equal(y, A + 1)


def test_pickles() -> None:
    import pickle

    f = pickle.loads(pickle.dumps(on_the_second))
    y = pickle.loads(pickle.dumps(f(A)))
    assert y.device == "cpu:1"
    np.testing.assert_array_equal(y, A * 3)


@kg.kernel_graph(device="cpu")
def on_the_second(x: Any) -> Any:
    return kg.place(x, "cpu:1") * 3


def test_what_has_one_branch_runs_on_one_device() -> None:
    @kg.kernel_graph(device=("cpu:0", "cpu:1"))
    def f(x: Any) -> Any:
        return np.sqrt(x) + 1

    np.testing.assert_array_equal(f(A), np.sqrt(A) + 1)
    assert len(plan_parts.parts(f.device_plan(A))) == 1


def test_gradients_pass_places() -> None:
    @kg.kernel_graph(device="cpu")
    def loss(w: Any, x: Any) -> Any:
        h = np.tanh(x @ w)
        return (kg.place(h, "cpu:1") ** 2).sum()

    plain = kg.grad(lambda w, x: (np.tanh(x @ w) ** 2).sum())
    np.testing.assert_allclose(kg.kernel_graph(kg.grad(loss), device="cpu")(A, B), plain(A, B), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_random_programs(seed: int) -> None:
    rng = Random(seed)
    steps = [(rng.random(), rng.randrange(9), rng.randrange(9), rng.randrange(4)) for _ in range(10)]

    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for what, i, j, device in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            if what < 0.4:
                a = kg.place(a, f"cpu:{device}")
            values.append(np.minimum(a, b) if what < 0.6 else a * b if what < 0.8 else a - b.sum(axis=0))
        return values[-3:]

    placed = kg.kernel_graph(program, device="cpu")
    for engine in ("async", "sync", "chaos"):
        with kg.override(engine=engine):
            got = [np.asarray(r) for r in placed(A, B)]
    with kg.override(disable=True):
        want = kg.kernel_graph(program, device="cpu")(A, B)
    for p, q in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(p), np.asarray(q), rtol=1e-11)


def test_split_programs_run_on_one_device() -> None:
    @kg.kernel_graph(device="cpu", untraceable="split")
    def f(x: Any) -> Any:
        y = kg.place(x, "cpu:1") * 2
        return y + 1 if float(y.sum()) > 0 else y - 1

    with pytest.raises(kg.OptionError, match=r"test_places.py:\d+: a function with untraceable='split'"):
        f(A)
    with pytest.raises(kg.OptionError, match="name one"):
        kg.kernel_graph(lambda x: x, device=("cpu:0", "cpu:1"), untraceable="split")


def test_threads_share_a_program() -> None:
    from concurrent.futures import ThreadPoolExecutor

    @kg.kernel_graph(device="cpu")
    def f(x: Any, k: Any) -> Any:
        return kg.place(np.tanh(x @ x), "cpu:1") * k

    f(A, 1.0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: f(A, k).numpy(), [float(k) for k in range(20)]))
    for k, got in enumerate(found):
        np.testing.assert_allclose(got, np.tanh(A @ A) * k, rtol=1e-12)


def test_bad_devices() -> None:
    with pytest.raises(kg.OptionError, match="names a device twice"):
        kg.kernel_graph(device=("cpu:0", "cpu"))(lambda x: x)
    with pytest.raises(kg.OptionError, match="of one kind"):
        kg.kernel_graph(device=("cpu", "fake"))(lambda x: x)
    with pytest.raises(kg.OptionError, match="write the name"):
        kg.kernel_graph(device=())(lambda x: x)
    with pytest.raises(kg.OptionError, match="KERNELGRAPH_CPU_DEVICES"):
        kg.kernel_graph(lambda x: kg.place(x, "cpu:7"), device="cpu")(A)
    with pytest.raises(kg.UserError, match=r"test_places.py:\d+: devices of one program are of one kind"):
        kg.kernel_graph(lambda x: kg.place(x, "fake") + 1, device="cpu")(A)

    def turned(x: Any) -> Any:
        return kg.fori_loop(0, 3, lambda i, x: kg.place(x, "cpu:1") * 2, x)

    with pytest.raises(kg.UserError, match=r"test_places.py:\d+: the body of a loop or branch runs on one device"):
        kg.kernel_graph(turned, device="cpu")(A)
