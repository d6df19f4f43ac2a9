"""Joined iterations of loops, and loops that swap or append: they change no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.joining import iterations
from kernelgraph.runtime.program.plan import Loop, Plan
from kernelgraph.runtime.program.program import Program, Task
from tests.compiler.access_audit import declared
from tests.counts import examples
from tests.turn_programs import repeated

RNG = np.random.default_rng(0)


def jacobi(u: Any, n: int) -> Any:
    for _ in range(n):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def heat(u: Any, n: int) -> Any:
    v = np.zeros_like(u)
    for _ in range(n):
        v[1:-1] = u[1:-1] + 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u, v = v, u
    return u


def wave(u: Any, n: int) -> Any:
    before, seen = u * 0.5, []
    for i in range(n):
        after = np.zeros_like(u)
        after[1:-1] = 2 * u[1:-1] - before[1:-1] + 0.2 * (u[2:] - 2 * u[1:-1] + u[:-2])
        after[0] = np.sin(0.1 * i)
        before, u = u, after
        seen.append(u[20])
    return u, before, np.stack(seen)


def gray_scott(u: Any, n: int) -> Any:
    v = u * 0.5
    for _ in range(n):
        lu = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
        lv = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:] - 4 * v[1:-1, 1:-1]
        uc, vc = u[1:-1, 1:-1], v[1:-1, 1:-1]
        uvv = uc * vc * vc
        uc += 0.16 * lu - uvv + 0.04 * (1 - uc)
        vc += 0.08 * lv + uvv - 0.1 * vc
        for z in (u, v):
            z[0, :] = z[1, :]
            z[-1, :] = z[-2, :]
            z[:, 0] = z[:, 1]
            z[:, -1] = z[:, -2]
    return v, u


def lorenz(start: Any, n: int) -> Any:
    xs = np.empty((n + 1, 3))
    xs[0] = start
    for i in range(n):
        x, y, z = xs[i]
        xs[i + 1] = xs[i] + 0.01 * np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
    return xs


def runge_kutta(y: Any, n: int) -> Any:
    h, t, ys = 0.01, 0.0, [y]

    def f(t: float, y: Any) -> Any:
        return -y * np.cos(t) + y[::-1]

    for _ in range(n):
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        t += h
        ys.append(y)
    return np.stack(ys)


def residuals(u: Any, n: int) -> Any:
    found = []
    for i in range(n):
        new = u.copy()
        new[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        found.append(((new - u) ** 2).sum() * i)
        u = new
    return u, np.stack(found, axis=-1)


def rows(x: Any, n: int) -> Any:
    """Reads a row a turn, from the end, and writes two columns."""
    out = np.zeros((4, 2 * n))
    s, twice = x[0] * 0, x * 2
    for i in range(n):
        s = s * 0.5 + twice[n - 1 - i] + x[i].sum()
        out[:, 2 * i + 1] = s
    return out, s


def nested(u: Any, n: int) -> Any:
    for _ in range(n):
        for _ in range(10):
            u[1:-1] = 0.5 * (u[:-2] + u[2:])
        u = u / u.max()
    return u


PROGRAMS = {
    "jacobi": (jacobi, RNG.normal(size=(20, 30))),
    "heat": (heat, RNG.normal(size=60)),
    "wave": (wave, RNG.normal(size=60)),
    "gray_scott": (gray_scott, RNG.random((12, 14))),
    "lorenz": (lorenz, np.ones(3)),
    "runge_kutta": (runge_kutta, RNG.normal(size=20)),
    "residuals": (residuals, RNG.normal(size=(12, 12))),
    "rows": (rows, RNG.normal(size=(40, 4))),
    "nested": (nested, RNG.normal(size=40)),
}


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations are joined whatever it costs."""
    monkeypatch.setattr(iterations, "GAIN", 1e9)


SUMS = ("residuals", "rows", "wave")  # sums in another order, and a sine in a kernel


def loops(program: Program) -> list[Task]:
    return [t for t in program.tasks if isinstance(t.kernel, Loop)]


def tasks(plan: Plan) -> int:
    return sum(1 + sum(tasks(b) for b in getattr(t.kernel, "bodies", ())) for t in plan.tasks)


@pytest.mark.parametrize("name", PROGRAMS)
def test_time_steps_become_one_loop_and_keep_every_bit(name: str) -> None:
    function, start = PROGRAMS[name]
    for turns in (24,):

        def run(x: Any, turns: int = turns) -> Any:
            return function(x, turns)

        unrolled = kg.kernel_graph(device="cpu")(run)
        with kg.override(roll=False):
            wanted = unrolled(start.copy())
        with kg.override(verify=True), repeated():
            decorated = kg.kernel_graph(device="cpu")(run)
            found = decorated(start.copy())
        assert 1 <= len(loops(decorated.program(start))) <= 2  # one of a nest stands for the first turn
        each = isinstance(found, tuple)
        for one, other in zip(found if each else [found], wanted if each else [wanted], strict=True):
            if name in SUMS:
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-14)
            else:
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_hardly_grows_with_the_turns(name: str) -> None:
    """That of many is at most twice that of ten, or a few tasks."""
    function, start = PROGRAMS[name]
    if name == "rows":
        start = RNG.normal(size=(200, 4))
    few, many = (tasks(kg.kernel_graph(device="cpu")(lambda x, n=n: function(x, n)).plan(start)) for n in (10, 180))
    assert many <= max(2 * few, 10)


@pytest.mark.parametrize("size", [3, 2000])
@pytest.mark.parametrize("turns", [171, 400, 997])
def test_turns_of_elementwise_work_are_joined(turns: int, size: int) -> None:
    """Several in one turn of the loop, in one kernel; those left over in another."""

    def run(x: Any, y: Any, z: Any) -> Any:
        for i in range(turns):
            x, y, z = y * 0.5 + z[i], z[i].astype(np.float32) - x, z
        return x, y

    args = (RNG.normal(size=size), RNG.normal(size=size), RNG.normal(size=(turns, size)))
    decorated = kg.kernel_graph(device="cpu")(run)
    with kg.override(verify=True):
        found = decorated(*args)
    (loop,) = loops(program := decorated.program(*args))
    assert isinstance(loop.kernel, Loop) and loop.kernel.count is not None
    assert "of them in one turn: " in decorated.explain(*args, verbose=True)
    assert loop.kernel.count < turns / 5 and len(loop.kernel.body.tasks) <= 2 and len(program.tasks) <= 3
    for one, other in zip(found, run(*args), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


@settings(max_examples=examples(12), deadline=None)
@given(
    st.sampled_from([(1,), (3,), (4,), (2, 3)]),
    st.integers(0, 3),
    st.sampled_from([130, 171, 256]),
    st.sampled_from(["rows", "list", "columns", "reversed"]),
)
def test_what_turns_stack_is_written_where_it_belongs(shape: Any, first: int, turns: int, form: str) -> None:
    """The loop writes the rows of the result; turns that are joined write several."""

    def run(x: Any, z: Any) -> Any:
        if form == "list":
            seen = [x * n for n in range(first)]
            for i in range(turns):
                x = x * 0.5 + z[i]
                seen.append(x)
            return np.stack([*seen, x - 1]), x
        out = np.ones((*x.shape, turns + 4)) if form == "columns" else np.ones((turns + 4, *x.shape))
        for i in range(turns):
            x = x * 0.5 + z[i]
            if form == "columns":
                out[..., i + first] = x
            else:
                out[turns + 3 - i - first if form == "reversed" else i + first] = x
        return out, x

    args = RNG.normal(size=shape), RNG.normal(size=(turns, *shape))
    decorated = kg.kernel_graph(device="cpu")(run)
    with kg.override(verify=True):
        found = decorated(*args)
    (loop,) = loops(program := decorated.program(*args))
    for one, other in zip(found, run(*args), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
    assert isinstance(loop.kernel, Loop) and loop.kernel.count is not None and loop.kernel.count < turns / 2
    if form in ("rows", "list"):
        assert program.outputs[0] in {w.buffer for w in loop.writes}


def test_a_long_filter_is_a_few_kernels() -> None:
    """Views and casts keep elementwise turns from fusing no more than anything else elementwise."""

    def run(x: Any, taps: Any) -> Any:
        y = np.zeros(len(x) - len(taps) + 1)
        for k in range(len(taps)):
            y = y + taps[k] * x[k : k + len(y)].astype(np.float64)
        return y

    filtered = kg.kernel_graph(device="cpu")(run)
    x, taps = RNG.normal(size=200), RNG.normal(size=64)
    program = filtered.program(x, taps)
    assert not loops(program) and len(program.tasks) <= 3
    np.testing.assert_allclose(np.asarray(filtered(x, taps)), run(x, taps), rtol=0, atol=1e-13)  # a convolution


def test_a_jacobi_sweep_moves_two_arrays() -> None:
    """Read once and written once a turn, whatever the turns: 2 n^2 elements, no copies between turns, no workspace."""
    n = 64
    for turns in (80, 81):
        (task,) = kg.kernel_graph(device="cpu")(lambda u, t=turns: jacobi(u, t)).program(kg.spec((n, n), "f8")).tasks
        assert isinstance(task.kernel, Loop) and task.kernel.count == turns
        body = task.kernel.body
        read = {byte for t in body.tasks for byte in declared(t.reads)}
        written = [byte for t in body.tasks for byte in declared(t.writes)]
        assert len(read) == n * n * 8 and len(written) == len(set(written)) == n * n * 8
        assert not body.arena_bytes and len(task.kernel.rotation.held) == 3
        stencils = [t for t in body.tasks if len(t.reads) == 4]
        copies = [t for t in body.tasks if len(t.reads) == 1]
        assert len(stencils) == 1 and len(stencils) + len(copies) == len(body.tasks)
        assert sum(np.prod(t.writes[0].shape) for t in copies) == 4 * n - 4


@st.composite
def turns_of(draw: st.DrawFn) -> Any:
    """A random turn on a few arrays, then repeated by a Python loop."""
    count = draw(st.integers(1, 3))
    moves = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=7))
    order = draw(st.permutations(range(count)))

    def run(state: list[Any], turns: int) -> Any:
        xs, seen = list(state), []
        invariant = xs[0] + 1
        for i in range(turns):
            for kind, a, b in moves:
                a, b = a % count, b % count
                if kind == 0:
                    xs[a] = xs[a] * 0.5 + xs[b]
                elif kind == 1:
                    xs[a] = xs[a] - invariant[::-1]
                elif kind == 2:
                    new = xs[a].copy()
                    new[1:-1] = (xs[a][:-2] + xs[b][2:]) * 0.5
                    xs[a] = new
                elif kind == 3:
                    xs[a] = xs[b].T * 1.0 + 0.125 * i
                elif kind == 4:
                    xs[a] = xs[a] + xs[b].max(axis=0)
                elif kind == 5:
                    new = xs[a].copy()
                    new[0] = xs[b][-1]
                    xs[a] = new
                elif kind == 6:
                    seen.append(xs[a][1] * 2)
                elif kind == 7:
                    xs[a] = np.maximum(xs[a], -xs[b])
                else:
                    xs[a], xs[b] = xs[b], xs[a]
            xs = [xs[k] for k in order]
        return tuple(xs) + ((np.stack(seen),) if seen else ())

    return run, count


@pytest.mark.usefixtures("joined")
@settings(max_examples=examples(40), deadline=None)
@given(turns_of(), st.integers(9, 40), st.integers(0, 9))
def test_random_turns(case: Any, turns: int, seed: int) -> None:
    """What is captured means what NumPy does, joined turns too."""
    run, count = case
    rng = np.random.default_rng(seed)
    start = [rng.integers(-4, 4, (5, 5)).astype(np.float64) for _ in range(count)]
    with repeated():
        found = kg.kernel_graph(device="cpu")(lambda *xs: run(list(xs), turns))(*start)
    for one, other in zip(found, run([x.copy() for x in start], turns), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def test_numbers_of_the_call_may_differ_from_turn_to_turn() -> None:
    def run(u: Any, dt: float, turns: int) -> Any:
        for i in range(turns):
            u[1:-1] = u[1:-1] + dt * (u[2:] - u[:-2]) + np.sin(dt * i)
        return u

    u = RNG.normal(size=30)
    decorated = kg.kernel_graph(device="cpu")(run)
    for dt in (0.1, 0.2):
        np.testing.assert_allclose(
            np.asarray(decorated(u.copy(), dt, 80)), run(u.copy(), dt, 80), rtol=1e-12, atol=1e-12
        )
        assert len(loops(decorated.program(u, dt, 80))) == 1
    assert decorated.why().count("compiled") == 1
    few = kg.kernel_graph(device="cpu")(run)
    for dt in (0.1, 0.2):
        np.testing.assert_allclose(np.asarray(few(u.copy(), dt, 10)), run(u.copy(), dt, 10), rtol=1e-13)
    assert few.why().count("compiled") == 1


def test_short_loops_stay_as_they_are() -> None:
    spec = kg.spec((16, 16), np.float64)
    assert not loops(kg.kernel_graph(device="cpu")(lambda u: jacobi(u, 8)).program(spec))


def test_turns_that_fuse_into_one_kernel_stay_as_they_are() -> None:
    def run(x: Any) -> Any:
        for _ in range(20):
            x = x * x + 0.25
        return x

    assert len(kg.kernel_graph(device="cpu")(run).program(kg.spec((1000,), np.float32)).tasks) == 1


def test_what_differs_from_turn_to_turn_is_not_rolled() -> None:
    def run(x: Any) -> Any:
        for i in range(30):
            x[i * i % 7 + 1 :] = np.roll(x, 1)[i * i % 7 + 1 :] * 0.5
        return x

    x = RNG.normal(size=12)
    same = kg.kernel_graph(device="cpu")(run)(x.copy())
    np.testing.assert_array_equal(np.asarray(same), run(x.copy()))


def test_a_view_of_itself_every_turn() -> None:
    def run(a: Any, b: Any) -> Any:
        total = 0.0
        for _ in range(40):
            a = a[::-1]
            total = total + np.sin((a * b).sum())
        return a, total

    a, b = RNG.normal(size=5), RNG.normal(size=5)
    for got, want in zip(kg.kernel_graph(device="cpu")(run)(a, b), run(a, b), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-13)
