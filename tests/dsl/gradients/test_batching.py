"""`kg.vmap` beside a Python loop over the rows, and derivatives in all directions beside differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

from .test_gradients import close, quotient

rng = np.random.default_rng(0)
X, W, V = rng.normal(size=(5, 4)), rng.normal(size=(4, 3)), rng.normal(size=4)


def mixed(x: Any, w: Any) -> Any:
    """Views, assignments, reductions, a product, a gather, calls of NumPy's."""
    y = np.tanh(x @ w) + x[:3]
    y[0] = y[1] * x[2]
    return {
        "windows": np.lib.stride_tricks.sliding_window_view(x, 2).sum(1),
        "joined": np.concatenate([y, x[::-1], w[:, 0]]).reshape(1, -1).T,
        "sorted": np.sort(x)[np.array([0, 2, 2])] + np.cumsum(y),
        "picked": x[np.argsort(x)],
        "rest": (y.max(), np.outer(x, y), w.sum()),
    }


def turns(x: Any, w: Any) -> Any:
    def turn(c: Any, row: Any) -> Any:
        c = np.sin(c) * row.sum() + x
        return c, c[:2] * row[0]

    return kg.scan(turn, x, w)


def decided(x: Any, w: Any) -> Any:
    shared = kg.cond(w.sum() > 0, lambda x: x * 2, lambda x: x + 1, x)
    return shared, kg.cond(x[0] > 0, lambda x: np.exp(x), lambda x: x * x, x)


def settled(x: Any, w: Any) -> Any:
    return kg.while_loop(lambda c: np.abs(c).max() > 0.1, lambda c: c * 0.7, x)


@pytest.mark.parametrize("function", [mixed, turns, decided, settled], ids=lambda f: f.__name__)
def test_each_row_gets_what_it_would_get_alone(function: Any) -> None:
    alone = kg.kernel_graph(function)
    found: list[Any] = []
    flatten(kg.vmap(function, in_axes=(0, None))(X, W), found)
    rows: list[list[Any]] = []
    for x in X:
        rows.append([])
        flatten(alone(x, W), rows[-1])
    for i, value in enumerate(found):
        close(value, np.stack([np.asarray(row[i]) for row in rows]), 1e-12)


def flatten(value: Any, leaves: list[Any]) -> None:
    from kernelgraph.dsl.core.pytree import flatten

    flatten(value, leaves)


def test_axes() -> None:
    a, b = rng.normal(size=(4, 5)), rng.normal(size=(5, 4))
    close(kg.vmap(np.dot, in_axes=(1, 0))(a, b), (a.T * b).sum(1))
    assert kg.vmap(lambda x: x * 2, out_axes=-1)(b).shape == (4, 5)
    close(kg.vmap(kg.vmap(lambda x, y: x * y, in_axes=(None, 0)), in_axes=(0, None))(a[0], b[0]), np.outer(a[0], b[0]))
    close(
        kg.vmap(lambda p, i: p["x"][i], in_axes=(0, 0))({"x": X}, np.array([0, 3, 1, 2, 2])),
        X[range(5), [0, 3, 1, 2, 2]],
    )


def test_gradients_of_rows_and_rows_of_gradients() -> None:
    def f(x: Any) -> Any:
        return kg.fori_loop(0, 5, lambda i, c: np.sin(c) * x, x).sum()

    expected = np.stack([np.asarray(kg.grad(f)(x)) for x in X])
    close(kg.vmap(kg.grad(f))(X), expected)
    close(kg.grad(lambda x: kg.vmap(f)(x).sum())(X), expected)

    @kg.custom_vjp
    def double(x: Any) -> Any:
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda kept, ct: (10 * ct,))
    close(kg.grad(lambda x: kg.vmap(lambda r: double(r).sum())(x).sum())(X), np.full(X.shape, 10.0))


def field(v: Any) -> Any:
    return np.sin(W.T @ v) * v[0]


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_jacobians(mode: str) -> None:
    expected = np.stack([quotient(lambda v, i=i: field(v)[i], V) for i in range(3)])
    close(kg.jacobian(field, mode=mode)(V), expected)
    found = kg.jacobian(lambda p: [p["a"] * 2, (p["b"] ** 2).sum()], mode=mode)({"a": V, "b": X})
    close(found[0]["a"], 2 * np.eye(4))
    close(found[1]["b"], 2 * X)
    assert found[0]["b"].shape == (4, 5, 4)


def test_second_derivatives() -> None:
    def f(v: Any) -> Any:
        return (np.sin(W.T @ v) ** 2).sum() * v[0]

    gradient = kg.grad(f)
    expected = np.stack([quotient(lambda v, i=i: float(np.asarray(gradient(v))[i]), V) for i in range(4)])
    close(kg.hessian(f)(V), expected, 1e-5)
    u = rng.normal(size=4)
    close(kg.hvp(f, (V,), (u,))[0], np.asarray(kg.hessian(f)(V)) @ u)
    value, push = kg.linearize(field, V)
    close(value, field(V))
    close(push(u), np.asarray(kg.jacobian(field)(V)) @ u)


def test_shared_work_is_done_once() -> None:
    graph = kg.vmap(lambda x, w: x + np.exp(w).sum(), in_axes=(0, None)).graph(X, W)
    (exp,) = [node for node in graph.nodes if node.op == "exp"]
    assert exp.type.shape == W.shape


BAD: dict[str, tuple[Any, str]] = {
    "lengths": (lambda: kg.vmap(np.add)(X, X[:3]), "got 5, 3; write in_axes=None"),
    "count": (lambda: kg.vmap(np.add, in_axes=(0,))(X, X), "1 in_axes for 2 arguments"),
    "axis": (lambda: kg.vmap(np.sin, in_axes=2)(X), "axis 2 of argument 0, which has shape (5, 4)"),
    "nothing": (lambda: kg.vmap(np.sin, in_axes=None)(X), "got none"),
    "text": (lambda: kg.vmap(np.sin, in_axes="x"), "write a number or None"),  # type: ignore[arg-type]
    "out": (lambda: kg.vmap(np.sin, out_axes=3)(X), "out_axes=3"),
    "mode": (lambda: kg.jacobian(np.sin, mode="both"), "'forward', 'reverse'"),
    "integers": (lambda: kg.jacobian(lambda x: np.argsort(x))(V), "return floats alone"),
    "complex": (lambda: kg.jacobian(np.sin)(V * 1j), "is of real numbers"),
    "no number": (lambda: kg.hessian(np.sin)(V), "needs one number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_the_line(name: str) -> None:
    bad, text = BAD[name]
    with pytest.raises(kg.UserError) as caught:
        bad()
    assert text in str(caught.value) and "test_batching.py:" in str(caught.value)
