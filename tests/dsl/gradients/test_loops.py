"""Derivatives of loops and branches: rolled ones, `fori_loop`, `scan`, `cond`; both modes, to the second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.derive.control_flow.snapshots import (
    snapshot_levels_within_budget,
    snapshot_recomputation_factor,
)
from kernelgraph.runtime.schedule.schedule import predicted_microseconds

from .test_gradients import quotient

rng = np.random.default_rng(0)
X, W, XS = rng.normal(size=4), 0.3 * rng.normal(size=(4, 4)), rng.normal(size=(12, 4))


def counted(x: Any) -> Any:
    return kg.fori_loop(0, 7, lambda i, c: np.sin(c) * 1.1 + 0.1 * i, x).sum()


def recurrent(w: Any) -> Any:
    return kg.fori_loop(0, 5, lambda i, c: np.tanh(w @ c + X), X).sum()


def scanned(xs: Any) -> Any:
    def turn(c: Any, x: Any) -> Any:
        c = np.tanh(c * x + 0.5)
        return c, c**2

    c, ys = kg.scan(turn, X, xs)
    return c.sum() + (ys * np.arange(ys.size).reshape(ys.shape)).sum()


def nested(x: Any) -> Any:
    def turn(i: Any, c: Any) -> Any:
        return kg.fori_loop(0, 3, lambda j, d: np.sin(d) + c, c) * 0.9

    return (kg.fori_loop(0, 4, turn, x) ** 2).sum()


def structured(x: Any) -> Any:
    """A carried integer, a structure, a value that nobody needs."""

    def turn(i: Any, c: Any) -> Any:
        return {"n": c["n"] + 1, "x": c["x"] * np.cos(c["y"]), "y": c["y"] + 0.1 * c["n"], "z": c["z"]}

    c = kg.fori_loop(0, 6, turn, {"n": 0, "x": x, "y": x**2, "z": x})
    return (c["x"] + c["n"] * c["z"]).sum()


def linear(x: Any) -> Any:
    return kg.fori_loop(0, 9, lambda i, c: 0.5 * c + x, x).sum()


def decided(x: Any) -> Any:
    return kg.cond(x.sum() > 0, lambda x: (x**2).sum(), lambda x: np.exp(x).sum(), x)


def written_if(x: Any) -> Any:
    y = np.sin(x) if x[0] > 0 else x * x
    return (y * x).sum()


def explicit_steps(u: Any) -> Any:
    for _ in range(60):
        u[1:-1] = u[1:-1] + 0.1 * np.tanh(u[2:] - 2 * u[1:-1] + u[:-2])
    return (u * u).sum()


def recurrent_rows(xs: Any) -> Any:
    h = X
    for t in range(len(xs)):
        h = np.tanh(W @ h + xs[t])
    return h.sum()


def running(xs: Any) -> Any:
    """Assigns rows that later turns read."""
    y = np.zeros_like(xs)
    for t in range(1, len(xs)):
        y[t] = np.sin(y[t - 1] + xs[t]) * xs[t - 1]
    return (y * xs).sum()


LOOPS = [
    (counted, X), (recurrent, W), (scanned, XS), (nested, X), (structured, X), (linear, X), (decided, X),
    (decided, X - 5), (written_if, X), (written_if, -X), (explicit_steps, rng.normal(size=8)),
    (recurrent_rows, rng.normal(size=(40, 4))), (running, rng.normal(size=(40, 3))),
]  # fmt: skip


@pytest.mark.parametrize("function, x", LOOPS, ids=[f"{f.__name__}{i}" for i, (f, _) in enumerate(LOOPS)])
def test_both_modes(function: Any, x: Any) -> None:
    value = kg.kernel_graph(function)
    gradient = np.asarray(kg.grad(function)(x))
    expected = quotient(lambda a: float(value(a.copy())), x)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-6)
    u = rng.normal(size=x.shape)
    found, tangent = kg.jvp(function, (x,), (u,))
    np.testing.assert_allclose(float(found), float(value(x.copy())))
    np.testing.assert_allclose(float(tangent), (gradient * u).sum(), rtol=1e-9, atol=1e-9)


SECOND = [(counted, X), (recurrent, W), (scanned, XS[:3]), (nested, X), (decided, X)]


@pytest.mark.parametrize("function, x", SECOND, ids=lambda f: getattr(f, "__name__", ""))
def test_second_order(function: Any, x: Any) -> None:
    u = rng.normal(size=x.shape)
    gradient = kg.grad(function)
    found = kg.grad(lambda a: (kg.grad(function)(a) * u).sum())(x)
    expected = quotient(lambda a: float((np.asarray(gradient(a)) * u).sum()), x)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)
    _, forward = kg.jvp(gradient, (x,), (u,))
    np.testing.assert_allclose(np.asarray(forward), np.asarray(found), rtol=1e-8, atol=1e-8)


def settled(x: Any) -> Any:
    """As many turns as the values decide."""

    def turn(c: Any) -> Any:
        return np.sin(c[0]) * 0.95, c[1] + c[0] * x

    return kg.while_loop(lambda c: (c[0] ** 2).sum() > 0.05, turn, (x, x * 0))[1].sum()


def newton(x: Any) -> Any:
    """Written with `while`."""
    y = x
    while np.abs(y * y - x).max() > 1e-12:
        y = 0.5 * (y + x / y)
    return (y * np.arange(4.0)).sum()


@pytest.mark.parametrize("function, x", [(settled, X), (newton, X**2 + 1)], ids=lambda f: getattr(f, "__name__", ""))
def test_the_values_decide_how_often(function: Any, x: Any) -> None:
    value = kg.kernel_graph(function)
    gradient = np.asarray(kg.grad(function)(x))
    np.testing.assert_allclose(gradient, quotient(lambda a: float(value(a)), x), rtol=1e-5, atol=1e-7)
    u = rng.normal(size=4)
    _, tangent = kg.jvp(function, (x,), (u,))
    np.testing.assert_allclose(float(tangent), (gradient * u).sum(), rtol=1e-8)


@pytest.mark.parametrize("count", [0, 1, 7, 40, 1500])
def test_the_call_decides_how_often(count: int) -> None:
    def f(x: Any, n: Any, y: Any) -> Any:
        return (kg.fori_loop(0, n, lambda i, c: np.sin(c) * 0.999 + 0.001 * y * i, x) * y).sum()

    value, y = kg.kernel_graph(f), np.cos(X)
    dx, dy = kg.grad(f, argnums=(0, 2))(X, count, y)
    expected = quotient(lambda a: float(value(a, count, y)), X)
    np.testing.assert_allclose(np.asarray(dx), expected, rtol=1e-5, atol=1e-7)
    expected = quotient(lambda a: float(value(X, count, a)), y)
    np.testing.assert_allclose(np.asarray(dy), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("save", [4000, "600 B", 200])
def test_states_within_a_budget(save: Any) -> None:
    xs = rng.normal(size=(150, 4))

    def f(x: Any, xs: Any) -> Any:
        def turn(c: Any, row: Any) -> Any:
            c = np.tanh(c * row + 0.5)
            return c, c**2

        c, ys = kg.scan(turn, x, xs)
        return c.sum() + (ys * np.arange(600.0).reshape(150, 4)).sum()

    def g(x: Any) -> Any:
        return kg.fori_loop(0, 150, lambda i, c: np.sin(c) + 0.01 * i * x, x).sum()

    np.testing.assert_allclose(kg.grad(f, save=save)(X, xs), kg.grad(f)(X, xs), rtol=1e-12)
    np.testing.assert_allclose(kg.grad(g, save=save)(X), kg.grad(g)(X), rtol=1e-12)
    assert max(t.nbytes for loop in loops_of(kg.grad(g, save=save).graph(X)) for t in loop.types) < 150 * 32


@pytest.mark.parametrize("turns", [2, 3, 10, 33, 50])
def test_pieces_that_the_turns_do_not_fill(turns: int) -> None:
    """What windows show behind the last turn is not read, and what is computed there is not used."""
    rows = rng.normal(size=(turns, 4))

    def f(x: Any, rows: Any) -> Any:
        return (kg.scan(lambda c, row: (np.sin(c * x) + np.sqrt(row), None), x, rows)[0] ** 2).sum()

    x, rows = X[:4] if X.ndim == 1 else X[0, :4], rows**2
    for chosen in ((0,), (0, 1)):
        expected = kg.grad(f, chosen)(x, rows)
        for states in (2, 6, 16):
            for found, each in zip(kg.grad(f, chosen, save=states * 32)(x, rows), expected, strict=True):
                np.testing.assert_allclose(found, each, rtol=1e-12)


def test_fewer_states_are_more_passes() -> None:
    """Never more bytes than allowed, but for two on each level; the more of them, the fewer turns are run again."""
    for turns in (2, 9, 100, 1000, 99999):
        before = np.inf
        for states in (1, 4, 12, 16, 40, 256, 1000, 10**6):
            levels = snapshot_levels_within_budget(states * 8, turns, 8)
            assert sum(levels) <= max(states, 2 * len(levels))
            passes = snapshot_recomputation_factor(turns, levels)
            assert 1 <= passes <= before
            before = passes
        assert before == 1
    assert snapshot_recomputation_factor(100000, snapshot_levels_within_budget(256, 100000, 1)) == 3  # Revolve: 2.67


@pytest.mark.parametrize("save", [4, 16, 64])
def test_what_a_gradient_is_predicted_to_take(save: int) -> None:
    """About as many times the value's turns as they are run, and what goes back."""

    def f(x: Any) -> Any:
        return (kg.fori_loop(0, 500, lambda i, c: np.sin(c) * 0.9 + x * 0.1, x) ** 2).sum()

    x = kg.spec((65536,), np.float64)
    gradient = kg.grad(f, save=save * 65536 * 8)
    ratio = predicted_microseconds(gradient.plan(x)) / predicted_microseconds(kg.kernel_graph(f).plan(x))
    (kept,) = [loop.kept for loop in loops_of(gradient.graph(x)) if loop.kept]
    assert kept.passes < ratio < 1.5 * kept.passes + 3
    assert kept.curve[0] == (500 * 65536 * 8, 1) and kept.curve == tuple(sorted(kept.curve, reverse=True))
    text = gradient.explain(x)
    assert "test_loops.py" in text and "back through 500 turns" in text and f"{kept.passes:.3g} runs of each" in text


def test_a_budget_is_a_size() -> None:
    for bad in ("256", "x MB", -1, True, "3 miles"):
        with pytest.raises(kg.ArgumentsError, match="write bytes"):
            kg.grad(counted, save=bad)


def loops_of(graph: Any) -> list[Any]:
    """The loops of a graph, each once."""
    found = {(n.args, n.attr("control")): n.attr("control") for n in graph.nodes if n.op == "loop"}
    return list(found.values())


def test_a_gradient_of_a_loop_is_two_loops() -> None:
    """The forward one keeps its states and gives the value too; the backward one reads them."""
    forward, backward = loops_of(kg.value_and_grad(counted).graph(X))
    assert forward.count == backward.count == 7
    assert len(forward.types) == 2 and forward.types[1].shape == (7, 4)


def test_a_linear_loop_keeps_nothing() -> None:
    for loop in loops_of(kg.value_and_grad(linear).graph(X)):
        assert len(loop.types) <= 2 and all(t.shape == (4,) for t in loop.types)


def test_a_rolled_loop_s_gradient_has_loops() -> None:
    graph = kg.grad(explicit_steps).graph(rng.normal(size=5000))
    assert 2 <= len(loops_of(graph)) <= 3 and len(graph.nodes) < 60


def test_a_window_s_cotangents_come_back_where_they_were() -> None:
    """Windows that overlap, and windows that go backwards."""

    def overlapping(x: Any) -> Any:
        y = np.zeros(1)
        for t in range(1, 39):
            y = np.sin(y) + x[t - 1 : t + 2].sum() * x[40 - t]
        return y[0]

    x = rng.normal(size=41)
    value = kg.kernel_graph(overlapping)
    expected = quotient(lambda a: float(value(a)), x)
    np.testing.assert_allclose(np.asarray(kg.grad(overlapping)(x)), expected, rtol=1e-5, atol=1e-6)
