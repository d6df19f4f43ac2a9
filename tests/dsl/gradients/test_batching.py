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


def pair(a: Any, p: Any) -> Any:
    return {"u": np.sin(a @ p["w"]), "v": (a[0] * p["s"][0]).sum()}


PAIR: Any = {"w": V[:2], "s": (2.0,)}


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse"])
def test_jacobians_in_several_arguments(mode: str) -> None:
    """Each is that in the argument alone, in a tuple at the place of the result."""
    a = X[:3, :2]
    alone = [kg.jacobian(pair, i, mode)(a, PAIR) for i in (0, 1)]
    both = kg.jacobian(pair, (0, 1), mode)(a, PAIR)
    assert type(both["u"]) is tuple and type(kg.jacobian(pair, (1,))(a, PAIR)["v"]) is tuple
    for name in "uv":
        close(both[name][0], alone[0][name])
        close(both[name][1]["w"], alone[1][name]["w"])
        close(both[name][1]["s"][0], alone[1][name]["s"][0])
    close(alone[0]["u"], np.eye(3)[:, :, None] * (np.cos(a @ V[:2])[:, None] * V[:2])[:, None])
    named = kg.jacobian(pair, 0, mode, argnames="p")(a, p=PAIR)
    close(named["u"][0], alone[0]["u"])
    close(named["u"]["p"]["w"], alone[1]["u"]["w"])
    found, others = kg.jacobian(lambda a, p: (a * a, (p["s"], 3)), 0, mode, has_aux=True)(V, PAIR)
    close(found, 2 * np.diag(V))
    assert others[1] == 3 and float(others[0][0]) == 2.0
    rows = kg.vmap(kg.jacobian(pair, (0, 1), mode), in_axes=(0, None))(np.stack([a, 2 * a]), PAIR)
    close(rows["u"][0][0], alone[0]["u"])
    assert rows["u"][1]["w"].shape == (2, 3, 2)


def test_hessians_in_several_arguments() -> None:
    def f(a: Any, b: Any, *, c: Any = 1.0) -> Any:
        return (a * b).sum() ** 2 * c

    a, b = V, X[0]
    found = kg.hessian(f, (0, 1))(a, b)
    assert len(found) == 2
    for i in (0, 1):
        close(found[i][i], kg.hessian(f, i)(a, b))
    mixed = 2 * np.outer(b, a) + 2 * (a @ b) * np.eye(4)
    close(found[0][1], mixed)
    close(found[1][0], mixed.T)
    named = kg.hessian(f, 0, argnames="c")(a, b, c=3.0)
    close(named["c"][0], 2 * (a @ b) * b)
    close(named[0]["c"], 2 * (a @ b) * b)
    close(named["c"]["c"], 0.0)
    close(kg.vmap(kg.hessian(f, (0, 1)))(np.stack([a, a]), np.stack([b, b]))[0][1][1], mixed)
    second, others = kg.hessian(lambda a: ((a**3).sum(), a.sum()), has_aux=True)(a)
    close(second, np.diag(6 * a))
    close(others, a.sum())
    product, others = kg.hvp(lambda a: ((a**3).sum(), a.sum()), (a,), (b,), has_aux=True)
    close(product[0], 6 * a * b)
    close(others, a.sum())


def test_jacobians_of_complex_numbers() -> None:
    z = V + 1j * X[0]
    matrix = np.exp(z * z[::-1])[:, None] * (np.diag(z[::-1]) + np.diag(z)[:, ::-1])
    for mode in ("forward", "reverse"):
        close(kg.jacobian(lambda z: np.exp(z * z[::-1]), mode=mode, holomorphic=True)(z), matrix)
    close(kg.hessian(lambda z: (z**3).sum(), holomorphic=True)(z), np.diag(6 * z))
    close(kg.jacobian(lambda x: np.exp(1j * x))(V), np.diag(1j * np.exp(1j * V)))


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
    "complex": (lambda: kg.jacobian(np.sin)(V * 1j), "in real numbers"),
    "complex results": (lambda: kg.jacobian(lambda x: x * 1j, mode="reverse")(V), "mode='forward'"),
    "holomorphic": (lambda: kg.jacobian(np.sin, holomorphic=True)(V), "complex arguments and results"),
    "places": (lambda: kg.jacobian(np.sin, "x"), "write a number, or a tuple of numbers"),  # type: ignore[arg-type]
    "names": (lambda: kg.hessian(np.sin, argnames=3), "write a name, or a tuple of names"),  # type: ignore[arg-type]
    "twice": (lambda: kg.jacobian(np.multiply, (0, 0)), "twice"),
    "bytes": (lambda: kg.hessian(np.sin, save="much"), "'256 MB'"),
    "aux": (lambda: kg.jacobian(np.sin, has_aux=True)(V), "returns (result, others)"),
    "no number": (lambda: kg.hessian(np.sin)(V), "needs one number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_the_line(name: str) -> None:
    bad, text = BAD[name]
    with pytest.raises(kg.UserError) as caught:
        bad()
    assert text in str(caught.value) and "test_batching.py:" in str(caught.value)


SHIFT = np.array([1.0, 2.0, 3.0, 4.0])


def scaled(x: Any, s: Any = 2.0, shift: Any = SHIFT) -> Any:
    return x * s + shift


ROWS_OF_TWO = np.arange(8.0).reshape(2, 4)


@pytest.mark.parametrize("in_axes", [0, (0,), (0, None), (0, None, None)])
def test_arguments_that_a_call_leaves_out_are_shared(in_axes: Any) -> None:
    mapped = kg.vmap(scaled, in_axes=in_axes)
    np.testing.assert_array_equal(mapped(ROWS_OF_TWO), scaled(ROWS_OF_TWO))
    np.testing.assert_array_equal(kg.vmap(mapped, in_axes=1, out_axes=1)(ROWS_OF_TWO[None]), scaled(ROWS_OF_TWO)[None])


def test_arguments_given_by_name_have_the_axes_of_their_places() -> None:
    factors = np.array([3.0, 5.0])
    shifts = np.array([[1.0], [2.0]])
    wanted = scaled(ROWS_OF_TWO, shift=shifts)
    np.testing.assert_array_equal(kg.vmap(scaled)(ROWS_OF_TWO, shift=shifts[:, 0]), wanted)
    np.testing.assert_array_equal(kg.vmap(scaled, in_axes=(0, None, 0))(ROWS_OF_TWO, shift=shifts[:, 0]), wanted)
    found = kg.vmap(scaled, in_axes=(0, 0, None))(x=ROWS_OF_TWO, s=factors)
    np.testing.assert_array_equal(found, scaled(ROWS_OF_TWO, factors[:, None]))


def test_axes_of_arguments_that_are_not_there_are_refused() -> None:
    for in_axes, options in (((0, 0), {}), ((0,), {"s": 1.0}), ((0, None, None, None), {})):
        with pytest.raises(kg.ArgumentsError, match="in_axes for"):
            kg.vmap(scaled, in_axes=in_axes)(ROWS_OF_TWO, **options)


def test_a_default_that_has_changed_is_the_one_that_is_shared() -> None:
    shift = np.array([1.0, 2.0, 3.0, 4.0])

    def moved(x: Any, by: Any = shift) -> Any:
        return x + by

    mapped = kg.vmap(moved)
    for _ in range(2):
        np.testing.assert_array_equal(mapped(ROWS_OF_TWO), moved(ROWS_OF_TWO))
        shift += 1
    moved.__defaults__ = (7.0,)
    np.testing.assert_array_equal(mapped(ROWS_OF_TWO), ROWS_OF_TWO + 7)
