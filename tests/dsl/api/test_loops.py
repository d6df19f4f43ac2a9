"""`kg.fori_loop`, `while_loop`, `cond` and `scan`: NumPy's own loops are what they mean, traced and at once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.core.errors import ArgumentsError, DTypeError, EscapedValueError, ShapeError, TraceError
from kernelgraph.runtime.program.plan import Loop
from tests.counts import examples

MODES = ("async", "sync", "chaos")


def same(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


def check(function: Any, *args: Any) -> None:
    """Traced, in every engine mode and verified, it gives what it gives outside of a trace."""
    wanted = function(*args)
    for mode in MODES:
        with kg.override(engine=mode, verify=True):
            found = kg.kernel_graph(device="cpu")(function)(*args)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Any, int]:
    """A random body on a tuple of arrays: elementwise work, views, updates, reductions, swaps."""
    count = draw(st.integers(1, 4))
    moves = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6))
    order = draw(st.permutations(range(count)))

    def body(i: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        xs = list(state)
        for kind, a, b in moves:
            x, y = xs[a % count], xs[b % count]
            if kind == 0:
                xs[a % count] = x * 0.5 + y
            elif kind == 1:
                xs[a % count] = x - y[::-1]
            elif kind == 2:
                x = x.copy()
                x[1:-1] = (x[:-2] + y[2:]) * 0.5
                xs[a % count] = x
            elif kind == 3:
                xs[a % count] = y.T * 1.0 + i
            elif kind == 4:
                xs[a % count] = x + y.sum(axis=0)
            elif kind == 5:
                x = x.copy()
                x[0] = y[-1]
                xs[a % count] = x
            else:
                xs[a % count], xs[b % count] = y, x
        return tuple(xs[i] for i in order)

    return body, count


@settings(max_examples=examples(25), deadline=None)
@given(bodies(), st.integers(0, 7), st.integers(0, 9))
def test_random_bodies(case: tuple[Any, int], turns: int, seed: int) -> None:
    body, count = case
    rng = np.random.default_rng(seed)
    start = tuple(rng.integers(-4, 4, (5, 5)).astype(np.float64) for _ in range(count))

    def run(*state: Any) -> Any:
        return kg.fori_loop(0, turns, body, state)

    wanted = start
    for i in range(turns):
        wanted = body(i, wanted)
    for mode in MODES:
        with kg.override(engine=mode, verify=True):
            for one, other in zip(kg.kernel_graph(device="cpu")(run)(*start), wanted, strict=True):
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-12, atol=1e-12)


def jacobi(u: Any, n: Any) -> Any:
    def step(i: Any, u: Any) -> Any:
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        return u

    return kg.fori_loop(0, n, step, u)


def plain_jacobi(u: np.ndarray, n: int) -> np.ndarray:
    u = u.copy()
    for _ in range(n):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def test_what_is_passed_in_stays_as_it_is() -> None:
    u = np.random.default_rng(5).normal(size=(6, 6))
    before = u.copy()
    same(jacobi(u, 3), plain_jacobi(u, 3))
    same(kg.kernel_graph(device="cpu")(jacobi)(u, 3), plain_jacobi(u, 3))
    same(u, before)


def test_a_count_that_a_call_passes_compiles_nothing() -> None:
    run = kg.kernel_graph(device="cpu")(jacobi)
    u = np.random.default_rng(0).normal(size=(20, 30))
    for n in (4, 0, 1, 7, -2):
        same(run(u, n), plain_jacobi(u, n))
    assert run.why().count("compiled") == 1


def test_numbers_of_a_call_in_a_body() -> None:
    run = kg.kernel_graph(device="cpu")(lambda x, n: kg.fori_loop(0, 3, lambda i, y: y + n, x))
    x = np.zeros(3, np.int8)
    same(run(x, 5), np.full(3, 15, np.int8))
    with pytest.raises(OverflowError):
        run(x, 300)


def test_bounds_that_are_traced() -> None:
    @kg.kernel_graph(device="cpu")
    def run(x: Any, bounds: Any) -> Any:
        return kg.fori_loop(bounds[0], bounds.max(), lambda i, s: s + i * x, np.zeros_like(x))

    x = np.arange(4, dtype=np.float32)
    same(run(x, np.array([3, 7], np.int32)), sum((np.float32(i) * x for i in range(3, 7)), np.zeros_like(x)))


def test_the_index_promotes_like_a_python_int() -> None:
    check(lambda x: [kg.fori_loop(2, 6, lambda i, s: s + x * (2 * i), x)], np.ones(3, np.float32))


def test_a_number_takes_the_dtype_of_what_comes_back() -> None:
    @kg.kernel_graph(device="cpu")
    def run(x: Any) -> Any:
        return kg.fori_loop(0, 3, lambda i, s: s + x.sum(), 0.0)

    assert np.asarray(run(np.ones(3, np.float32))).dtype == np.float32


def test_while_loops() -> None:
    def halve(x: Any, least: float) -> Any:
        return kg.while_loop(lambda c: c[0].max() > least, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))

    x = np.random.default_rng(1).normal(size=(6, 5)) ** 2
    for least in (0.01, 1e9):
        check(lambda x, least=least: halve(x, least), x)


def test_a_while_loop_that_never_begins_gives_what_it_began_with() -> None:
    x = np.arange(6.0)
    same(kg.kernel_graph(device="cpu")(lambda x: kg.while_loop(lambda y: y.sum() < 0, lambda y: y + 1, x))(x), x)


@pytest.mark.parametrize("number", [1.0, -1.0])
def test_branches(number: float) -> None:
    def run(p: Any, x: Any, y: Any) -> Any:
        scale = x.max()
        return kg.cond(p > 0, lambda x, y: (x + y, x.sum()), lambda x, y: (x[::-1] - y, scale), x, y)

    x = np.random.default_rng(2).integers(-9, 9, (4, 5)).astype(np.float64)
    check(run, np.float64(number), x, x + 1)


def test_scans() -> None:
    def run(x: Any, w: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            state, total = carry
            state = state * 0.5 + row["a"]
            return (state, total + row["b"]), {"sum": state @ w, "square": state * state}

        (state, total), ys = kg.scan(step, (np.zeros(3), 0.0), {"a": x[:, ::2], "b": x[:, 0]})
        return state, total, ys["sum"], ys["square"]

    x = np.random.default_rng(3).integers(-4, 4, (7, 6)).astype(np.float64)
    check(run, x, np.arange(3.0))


def test_a_scan_without_rows_needs_a_length() -> None:
    check(lambda x: kg.scan(lambda c, _: (c * 2, c), x, None, length=3), np.arange(3.0))
    with pytest.raises(ShapeError, match=r"test_loops\.py:\d+: scan needs one length"):
        kg.kernel_graph(lambda x: kg.scan(lambda c, _: (c, c), x))(np.arange(3.0))


def test_loops_in_loops() -> None:
    def run(x: Any) -> Any:
        def inner(j: Any, y: Any) -> Any:
            return y * 0.5 + j

        def outer(i: Any, state: Any) -> Any:
            x, y = state
            y = kg.fori_loop(0, i, inner, y)
            return y, kg.cond(y.sum() > 3.0, lambda a: a - 1.0, lambda a: a + 1.0, x)

        return kg.fori_loop(0, 5, outer, (x, x + 1))

    check(run, np.arange(5.0))


def test_host_steps_in_a_body() -> None:
    def run(a: Any, b: Any) -> Any:
        def step(i: Any, b: Any) -> Any:
            return np.linalg.solve(a, b) @ a

        return [kg.fori_loop(0, 4, step, b)]

    rng = np.random.default_rng(4)
    a, b = rng.normal(size=(4, 4)) + 4 * np.eye(4), rng.normal(size=(4, 4))
    found = kg.kernel_graph(device="cpu")(run)(a, b)
    np.testing.assert_allclose(np.asarray(found[0]), run(a, b)[0], rtol=1e-9)


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
def test_host_steps_in_nested_bodies(engine: str) -> None:
    """Windows, inner loops of any length, branches, numbers of the call: those that run natively call Python back."""

    def run(a: Any, b: Any, xs: Any, turns: int) -> Any:
        def inner(j: Any, b: Any) -> Any:
            return kg.cond(b[0, 0] > 0, lambda b: np.linalg.solve(a, b), lambda b: np.sort(b, axis=0) @ a, b) - j

        def outer(b: Any, x: Any) -> Any:
            b = kg.fori_loop(0, turns, inner, b + x)
            return b, b.sum(axis=1)

        return list(kg.scan(outer, b, xs))

    rng = np.random.default_rng(4)
    a, b, xs = rng.normal(size=(4, 4)) + 4 * np.eye(4), rng.normal(size=(4, 4)), rng.normal(size=(6, 4))
    decorated = kg.kernel_graph(device="cpu")(run)
    with kg.override(engine=engine):
        for turns in (0, 3):
            for one, other in zip(decorated(a, b, xs, turns), run(a, b, xs, turns), strict=True):
                np.testing.assert_allclose(np.asarray(one), other, rtol=1e-9)


def test_a_host_step_that_fails_ends_its_loops() -> None:
    """Also one that would never end by itself; the next call knows nothing of it."""

    @kg.kernel_graph(device="cpu")
    def run(a: Any, x: Any) -> Any:
        return kg.while_loop(lambda x: np.abs(x).sum() < 1e9, lambda x: np.linalg.solve(a, x), x)

    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match="Singular") as caught:
            np.asarray(run(np.zeros((3, 3)), np.ones(3)))
        assert "test_loops.py" in "".join(caught.value.__notes__)
        np.testing.assert_allclose(np.asarray(run(np.eye(3) / 10, np.ones(3))), np.full(3, 1e9))


@pytest.mark.usefixtures("refusing")
def test_arrays_from_outside_are_read_and_not_assigned_to() -> None:
    @kg.kernel_graph(device="cpu")
    def run(x: Any, y: Any) -> Any:
        def step(i: Any, s: Any) -> Any:
            y[0] = 1.0
            return s + y

        return kg.fori_loop(0, 3, step, x)

    with pytest.raises(TraceError, match=r"test_loops\.py:\d+: the body of a loop or branch cannot assign"):
        run(np.ones(3), np.ones(3))


def test_values_of_a_body_cannot_leave_it() -> None:
    @kg.kernel_graph(device="cpu")
    def run(x: Any) -> Any:
        seen: list[Any] = []

        def step(i: Any, s: Any) -> Any:
            seen.append(s + 1)
            return s * 2

        return kg.fori_loop(0, 3, step, x) + seen[0]

    with pytest.raises(EscapedValueError, match=r"test_loops\.py:\d+: .* return it"):
        run(np.ones(3))


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (lambda i, x: x[1:], ShapeError, "begins with shape"),
        (lambda i, x: x.astype(np.float32), DTypeError, "np.float32"),
        (lambda i, x: (x, x), ArgumentsError, "return what it takes"),
    ],
)
def test_a_body_gives_what_it_takes(body: Any, error: type[Exception], text: str) -> None:
    run = kg.kernel_graph(device="cpu")(lambda x: kg.fori_loop(0, 3, body, x))
    with pytest.raises(error, match=rf"test_loops\.py:\d+: .*{text}"):
        run(np.ones(3))


def test_a_body_cannot_decide_by_its_values() -> None:
    body = eval("lambda i, y: y if i else y + 1")  # without source
    run = kg.kernel_graph(device="cpu", untraceable="refuse")(lambda x: kg.fori_loop(0, 3, body, x))
    with pytest.raises(TraceError, match=r":\d+: .*np.where"):
        run(np.ones(3))


def test_every_stage_is_plain_data() -> None:
    run = kg.kernel_graph(device="cpu")(jacobi)
    spec = kg.spec((8, 8), np.float32)
    for stage in (run.graph(spec, 5), run.program(spec, 5), run.plan(spec, 5)):
        again = pickle.loads(pickle.dumps(stage))
        assert again == stage and hash(again) == hash(stage)


def test_calls_in_flight_have_buffers_of_their_own() -> None:
    """Kernels of several chunks, shared among threads."""
    run = kg.kernel_graph(device="cpu")(jacobi)
    u = np.random.default_rng(6).random((500, 600))
    wanted = plain_jacobi(u, 12)
    for found in [run(u, 12) for _ in range(4)]:
        same(found, wanted)


def test_every_stage_shows_the_body() -> None:
    run = kg.kernel_graph(device="cpu")(jacobi)
    spec = kg.spec((64, 64), np.float32)
    for text in (run.graph(spec, 5), run.program(spec, 5), run.plan(spec, 5), run.explain(spec, 5, verbose=True)):
        assert "body" in str(text)
    assert "add_add_add_multiply" in str(run.plan(spec, 5))
    assert "define" in run.source(spec, 5)
    (task,) = run.program(spec, 5).tasks
    assert isinstance(task.kernel, Loop)


@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_empty_arrays_are_carried(shape: tuple[int, ...]) -> None:
    check(lambda x: kg.fori_loop(0, 20, lambda i, u: u + i, x), np.zeros(shape))
    check(lambda x: kg.while_loop(lambda s: s[1] < 5, lambda s: (s[0] * 2, s[1] + 1), (x, 0)), np.zeros(shape))


@pytest.mark.parametrize(("start", "factor"), [(1, 0.5), (1, 1j), (1.5, 1j)])
def test_a_carried_number_takes_the_kind_that_a_number_gives_it(start: Any, factor: Any) -> None:
    check(lambda x: kg.fori_loop(0, 4, lambda i, s: (s[0] * factor,), (start,)), np.zeros(3))
    check(lambda x: kg.fori_loop(0, 4, lambda i, s: (s[0] * factor, s[1] + s[0]), (start, 0)), np.zeros(3))


def test_a_float_of_the_turn_does_not_fit_an_array_of_integers() -> None:
    with pytest.raises(DTypeError, match="begins as int64, and the body gives float64"):
        kg.kernel_graph(lambda x: kg.fori_loop(0, 4, lambda i, s: i * 0.5, x), device="cpu")(np.array(1))


@pytest.mark.parametrize(("dtype", "lower", "upper"), [(np.uint8, 5, 3), (np.int8, -100, 100), (np.uint8, 250, 255)])
def test_bounds_of_narrow_integers(dtype: Any, lower: int, upper: int) -> None:
    function = kg.kernel_graph(lambda a, b: kg.fori_loop(a, b, lambda i, s: s + 1, 0), device="cpu")
    assert int(function(np.array(lower, dtype), np.array(upper, dtype))) == max(0, upper - lower)


WRONG: list[tuple[Any, str]] = [
    (lambda x: kg.fori_loop(0, 3, lambda x: x, x), r"body_fun of fori_loop is called with \(i, x\).*write lambda i, x"),
    (lambda x: kg.fori_loop(0, 3, None, x), "body_fun of fori_loop is None; write a function"),
    (lambda x: kg.fori_loop(0, 3, lambda i, x: x, x, unroll=2), "'unroll'; it is called as kg.fori_loop"),
    (lambda x: kg.fori_loop(0, 3, lambda i, x: x), r"'init_val'; it is called as kg.fori_loop\(lower, upper"),
    (lambda x: kg.while_loop(lambda: True, lambda x: x, x), r"cond_fun of while_loop is called with \(x\)"),
    (lambda x: kg.cond(x[0] > 0, lambda x: x, None, x), "false_fun of cond is None; write a function"),
    (lambda x: kg.cond(x[0] > 0, lambda: 1, lambda x, y: y, x, x), r"true_fun of cond is called with \(x0, x1\)"),
    (lambda x: kg.scan(lambda c: (c, c), x[0], x), r"f of scan is called with \(carry, x\).*write lambda carry, x"),
    (lambda x: kg.scan(x, x[0], x), "f of scan is a .*write a function"),
]


@pytest.mark.parametrize(("function", "words"), WRONG)
def test_what_does_not_fit_is_refused_at_the_users_line(function: Any, words: str) -> None:
    line = function.__code__.co_firstlineno
    for call in (function, kg.kernel_graph(device="fake")(function)):
        with pytest.raises(ArgumentsError, match=rf"^test_loops.py:{line}: .*{words}"):
            call(np.ones(3))


@given(st.sampled_from(["i8", "u8", "i1", "u1"]), st.data())
@settings(max_examples=examples(20), deadline=None)
def test_traced_bounds_are_those_of_range(dtype: str, data: st.DataObject) -> None:
    """Also where their difference is no int64."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    ends = st.integers(low, low + 3) | st.integers(high - 3, high)
    first, last = (data.draw(ends) for _ in range(2))
    if last - first > 10:
        first, last = last, first
    turns = 0 if dtype == "u8" and first > 2**62 else max(0, last - first)  # such turns have no int64 number
    (found,) = COUNTED(*(np.array([n], dtype) for n in (first, last))).numpy().tolist()
    assert found == turns


COUNTED = kg.kernel_graph(device="cpu")(
    lambda first, last: kg.fori_loop(first[0], last[0], lambda i, n: n + 1, np.zeros(1, np.int64))
)
