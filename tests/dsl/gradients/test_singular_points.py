"""Derivatives where there is none, or several: forward mode, reverse mode and recorded loops give one and the same, by
a convention that is written here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import FLOAT64
from kernelgraph.compiler.ops.derivatives import Partials, Zero
from kernelgraph.compiler.ops.table import OPS, resolve_op_row_dtypes
from tests.turn_programs import recorded

Array = np.ndarray[Any, Any]
POINTS = np.array([-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0])
# rows whose functions are not NumPy's, or are not known in a recorded loop
APART = {"angle", "barrier", "complex", "conjugate", "frexp_mantissa", "frexp_exp", "imag", "ldexp", "modf_frac"}
APART |= {"modf_int", "nan_to_num", "real", "where", "gelu", "sigmoid", "relu", "erf", "erfc", "lgamma"}
APART |= {"stop_gradient", "spacing", "nextafter", "isnan", "isinf", "isfinite"}


def rows(arity: int) -> dict[str, Callable[..., Any]]:
    """NumPy's functions of real numbers that give such."""
    return {
        name: getattr(np, name)
        for name, row in OPS.items()
        if row.kind == "map" and row.arity == arity and name not in APART and hasattr(np, name)
        if isinstance(row.derivative, Partials | Zero) and _is_of_floats(row)
    }


def _is_of_floats(row: Any) -> bool:
    try:
        return resolve_op_row_dtypes(row, (FLOAT64,) * row.arity)[1] == FLOAT64
    except TypeError:
        return False


def at_once(functions: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Each function of a row of the arguments."""
    return lambda *args: np.stack([f(*(a[k] for a in args)) for k, f in enumerate(functions.values())])


def turn_by_turn(functions: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    def loop(*args: Any) -> Any:
        found = np.zeros(args[0].shape)
        for i in range(args[0].shape[1]):
            for k, function in enumerate(functions.values()):
                found[k, i] = function(*(a[k, i] for a in args))
        return found

    return loop


def both_modes(function: Callable[..., Any], args: tuple[Array, ...]) -> tuple[list[Array], list[Array]]:
    """The partial derivatives in each argument, by forward mode and by reverse mode."""
    ones = np.ones(args[0].shape)
    forward = []
    for k in range(len(args)):
        tangents = [ones if i == k else None for i in range(len(args))]
        push = kg.kernel_graph(lambda *a, t=tangents: kg.jvp(function, a, t)[1])
        forward.append(np.asarray(push(*args)))
    pull = kg.kernel_graph(lambda *a: kg.vjp(function, *a)[1](ones))
    return forward, [np.asarray(found) for found in pull(*args)]


@pytest.mark.parametrize("arity", [1, 2])
def test_all_ways_to_a_derivative_agree_at_all_points(arity: int) -> None:
    functions = rows(arity)
    assert len(functions) > (30 if arity == 1 else 15)
    args = tuple(np.tile(g.reshape(-1), (len(functions), 1)) for g in np.meshgrid(*[POINTS] * arity))
    forward, reverse = both_modes(at_once(functions), args)
    with recorded() as notes:
        along, back = both_modes(turn_by_turn(functions), args)
    assert not [reason for each in notes for reason in each.reasons.values()]
    for k in range(arity):
        for found in (reverse[k], along[k], back[k]):
            for name, one, other in zip(functions, forward[k], found, strict=True):
                np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12, err_msg=f"{name}, argument {k}")


ZERO, INF, NAN = np.zeros(2), np.inf, np.nan
# function, arguments, the partial derivatives of the sum; who else has them
CONVENTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "absolute": (np.abs, (ZERO,), ([0, 0],)),  # PyTorch
    "sign": (np.sign, (ZERO,), ([0, 0],)),  # JAX, PyTorch
    "sqrt": (np.sqrt, (ZERO,), ([INF, INF],)),  # JAX, PyTorch
    "hypot": (np.hypot, (ZERO, ZERO), ([0, 0], [0, 0])),
    "arctan2": (np.arctan2, (ZERO, ZERO), ([NAN, NAN], [NAN, NAN])),  # JAX
    "maximum": (np.maximum, ([1.0, 2], [1.0, 3]), ([0.5, 0], [0.5, 1])),  # JAX, PyTorch
    "fmin": (np.fmin, ([1.0, 2], [1.0, 3]), ([0.5, 1], [0.5, 0])),
    "max": (np.max, ([1.0, 3, 3],), ([0, 0.5, 0.5],)),  # JAX, PyTorch's amax
    "clip": (lambda x: np.clip(x, -1, 1), ([-1.0, 1, 0, 2],), ([0.5, 0.5, 1, 0],)),  # JAX
    "clip to one side": (lambda x: np.clip(x, None, 1), ([-1.0, 1, 2],), ([1, 0.5, 0],)),  # JAX
    "clip to bounds of each": (
        np.clip,
        ([-1.0, 1, 2], [-1.0] * 3, [1.0] * 3),
        ([0.5, 0.5, 0], [0.5, 0, 0], [0, 0.5, 1]),
    ),
    "power": (np.power, ([0.0] * 4, [0.0, 1, 2, 0.5]), ([0, 1, 0, INF], [0, 0, 0, 0])),  # PyTorch
    "square": (lambda x: x**2, (ZERO,), ([0, 0],)),
    "prod": (np.prod, ([0.0, 2, 3],), ([6, 0, 0],)),  # JAX, PyTorch
    "prod of zeros": (np.prod, ([0.0, 0, 3],), ([0, 0, 0],)),  # JAX, PyTorch
    "cumprod": (np.cumprod, ([2.0, 0, 3],), ([1, 8, 0],)),  # JAX, PyTorch
    "norm": (np.linalg.norm, (ZERO,), ([0, 0],)),  # PyTorch
    "norm of a matrix": (np.linalg.norm, (np.zeros((2, 2)),), (np.zeros((2, 2)),)),  # PyTorch
    "norm of order 1": (lambda x: np.linalg.norm(x, 1), (ZERO,), ([0, 0],)),  # PyTorch
    "norm of order 3": (lambda x: np.linalg.norm(x, 3), (ZERO,), ([0, 0],)),  # PyTorch
    "norm of order inf": (lambda x: np.linalg.norm(x, np.inf), ([1.0, -1],), ([0.5, -0.5],)),  # JAX, PyTorch
    "std": (np.std, ([1.0, 1],), ([0, 0],)),  # PyTorch
    "relu": (kg.nn.relu, (ZERO,), ([0, 0],)),  # JAX, PyTorch
    "logaddexp": (np.logaddexp, ([0.0, -INF], [0.0, -INF]), ([0.5, 1], [0.5, 1])),
    "sort": (lambda x: np.sort(x) * [1, 2, 3], ([1.0, 1, 0],), ([2, 3, 1],)),  # JAX, PyTorch
    "remainder": (np.remainder, ([2.0, 4], [2.0, 2]), ([1, 1], [-1, -2])),  # JAX, PyTorch
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_conventions(name: str) -> None:
    function, given, expected = CONVENTIONS[name]
    args = [np.asarray(a, float) for a in given]
    places = tuple(range(len(args)))
    reverse = kg.grad(lambda *a: np.asarray(function(*a)).sum(), places)(*args)
    for found, wanted in zip(reverse, expected, strict=True):
        np.testing.assert_allclose(found, wanted)
    for k in places:
        unit = np.eye(args[k].size).reshape(-1, *args[k].shape)
        rows = np.asarray(kg.vmap(pushed(function, args, k))(unit))
        if np.isfinite(expected[k]).all():
            np.testing.assert_allclose(rows.reshape(len(unit), -1).sum(1).reshape(args[k].shape), expected[k])


def pushed(function: Callable[..., Any], args: list[Array], place: int) -> Callable[[Any], Any]:
    """The tangent of a function, given that of one argument."""
    return lambda t: kg.jvp(function, args, [t if i == place else None for i in range(len(args))])[1]


def test_the_norm_in_a_recorded_loop() -> None:
    def f(x: Any) -> Any:
        found = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            found[i] = np.linalg.norm(x[i])
        return found.sum()

    with recorded() as notes:
        found = kg.kernel_graph(lambda x: kg.grad(f)(x))(np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert not [reason for each in notes for reason in each.reasons.values()]
    np.testing.assert_allclose(found, [[0, 0], [0.6, 0.8]])


def test_what_a_where_does_not_take_in_a_recorded_loop() -> None:
    """As in a graph: nothing comes back, but with ieee=True."""

    def f(x: Any) -> Any:
        found = np.zeros(x.shape[0])
        for i in range(x.shape[0]):
            root = np.sqrt(x[i])
            found[i] = np.where(x[i] > 0, root * root + root / x[i], 0.0)
        return found.sum()

    x = np.array([-1.0, 0.0, 4.0])
    expected = np.array([0, 0, 15 / 16])
    np.testing.assert_allclose(kg.grad(f)(x), expected)
    with recorded() as notes:
        np.testing.assert_allclose(kg.kernel_graph(lambda x: kg.grad(f)(x))(x), expected)
        ieee = np.asarray(kg.kernel_graph(lambda x: kg.grad(f, ieee=True)(x))(x))
    assert not [reason for each in notes for reason in each.reasons.values()]
    assert np.isnan(ieee[:2]).all() and ieee[2] == expected[2]


def _norm(x: Any) -> Any:
    return np.linalg.norm(x, axis=1, keepdims=True)


def _assigned(x: Any) -> Any:
    n = _norm(x)
    q = x / n
    q[np.broadcast_to(n == 0, q.shape)] = 0
    return q


OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "unit": lambda x: np.where(_norm(x) > 0, x / _norm(x), 0),
    "unit or itself": lambda x: np.where(_norm(x) == 0, x, x / np.sqrt((x**2).sum(1, keepdims=True))),
    "new axis": lambda x: np.where(_norm(x) > 0, x / np.sqrt((x**2).sum(1))[:, None], 0),
    "transposed": lambda x: np.where(_norm(x) > 0, (x.T / np.sqrt((x**2).sum(1))).T, 0),
    "columns": lambda x: np.where(_norm(x)[:, 0] > 0, x.T / _norm(x)[:, 0], 0),
    "some of each row": lambda x: np.where(x != 0, x / _norm(x), 0),
    "standard score": lambda x: np.where(x.std(1, keepdims=True) > 0, (x - x[:, :1]) / x.std(1, keepdims=True), 0),
    "where of where": lambda x: np.where(x < 9, np.where(_norm(x) > 0, x / _norm(x), 0), 1),
    "largest": lambda x: np.where(_norm(x) > 0, x / np.sqrt(np.max(x**2, 1, keepdims=True)), 0),
    "assigned": _assigned,
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_of_zeros_that_a_where_leaves_out(name: str) -> None:
    """What comes back to them is zero, also through what was broadcast over a row; others have their gradient."""
    rng = np.random.default_rng(0)
    x, weights, u = rng.normal(size=(3, 4, 3))
    x[1] = 0

    def loss(x: Any) -> Any:
        found = OF_ROWS[name](x)
        return (found * (weights if found.shape == weights.shape else weights.T)).sum()

    gradient = np.asarray(kg.grad(loss)(x))
    others = np.array([0, 2, 3])
    apart = np.asarray(kg.grad(lambda rows: loss(np.concatenate([rows[:1], np.ones((1, 3)), rows[1:]])))(x[others]))
    np.testing.assert_allclose(gradient[others], apart, rtol=1e-12, atol=1e-12)
    assert np.isfinite(gradient).all()
    u[1] = 0
    with np.errstate(all="ignore"):
        quotient = (loss(x + 1e-6 * u) - loss(x - 1e-6 * u)) / 2e-6
    np.testing.assert_allclose(np.vdot(gradient, u), quotient, rtol=1e-6, atol=1e-6)
    _, tangent = kg.jvp(loss, (x,), (u,))
    np.testing.assert_allclose(tangent, quotient, rtol=1e-6, atol=1e-6)
    assert not np.isfinite(np.asarray(kg.grad(loss, ieee=True)(x))).all()


def _roots_assigned(x: Any) -> Any:
    y = np.sqrt(x)
    y[~(x > 0)] = 0
    return y


# what is not taken is infinite or NaN, and stands behind views, joins, sums, casts and other choices
BEHIND: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: np.where(x > 0, np.sqrt(x), 0),
    "a slice": lambda x: np.where(x[1:] > 0, np.sqrt(x)[1:], 0),
    "all in turn": lambda x: np.where(np.roll(x, 1) > 0, np.roll(np.sqrt(x), 1), 0),
    "places": lambda x: np.where(x[[1, 0, 3, 2]] > 0, np.sqrt(x)[[1, 0, 3, 2]], 0),
    "a sum": lambda x: np.where(x > 0, (np.sqrt(x) * np.eye(4)).sum(0), 0),
    "a frame": lambda x: np.where(np.pad(x, 1) > 0, np.pad(np.sqrt(x), 1), 0),
    "a stack": lambda x: np.where(x > 0, np.stack([np.sqrt(x), x])[0], 0),
    "another shape": lambda x: np.where(x.reshape(2, 2).T > 0, np.sqrt(x).reshape(2, 2).T, 0),
    "a cast": lambda x: np.where(x > 0, np.sqrt(x.astype("f4")).astype("f8"), 0),
    "a new axis": lambda x: np.where((x > 0)[:, None], np.sqrt(x)[:, None] * np.ones((4, 3)), 0),
    "copies": lambda x: np.where(np.repeat(x, 2) > 0, np.repeat(np.sqrt(x), 2), 0),
    "neighbours": lambda x: np.where(x[1:] * x[:-1] > 0, np.sqrt(x)[1:] - np.sqrt(x)[:-1], 0),
    "two choices": lambda x: np.where(x > 0, np.sqrt(x), np.where(x < 0, np.sqrt(-x), 0)),
    "a choice in another": lambda x: np.where(x > 0, np.where(x < 9, np.log(np.sqrt(x)), 0), 0),
    "two that read it": lambda x: np.where(x > 0, np.sqrt(x), 0) + np.where(x > 0.6, np.sqrt(x) ** 3, 0),
    "powers": lambda x: np.where(x > 0, x**x, 0),
    "a quotient": lambda x: np.where(x != 0, np.sin(x) / x, 1),
    "a mask": lambda x: np.sqrt(x)[x > 0],
    "a sum of some": lambda x: np.sum(np.sqrt(x), where=x > 0),
    "some in place": lambda x: np.log(x, where=x > 0, out=np.zeros(4)),
    "an assignment": _roots_assigned,
    "a product": lambda x: np.prod(np.where(x > 0, np.sqrt(x), 1)),
    "products": lambda x: np.cumprod(np.where(x > 0, np.sqrt(x), 1)),
    "rows": lambda x: kg.vmap(lambda a: np.where(a > 0, np.sqrt(a), 0))(x),
    "16 bits": lambda x: np.where(x > 0, np.arcsinh(np.sqrt(x.astype("f2"))), 0).astype("f8"),
}


@pytest.mark.parametrize("name", BEHIND)
def test_nothing_comes_back_from_what_is_not_taken_to_the_third_order(name: str) -> None:
    def loss(x: Any) -> Any:
        return (BEHIND[name](x) ** 2).sum()

    x, gradient = np.array([0.5, 0.0, 0.75, -2.0]), kg.grad(loss)
    ones = np.ones(4)
    found = {
        "gradient": gradient(x),
        "forward over reverse": kg.hessian(loss)(x),
        "reverse over reverse": kg.jacobian(gradient, mode="reverse")(x),
        "reverse over forward": kg.grad(lambda x: kg.jvp(loss, (x,), (ones,))[1])(x),
        "third": kg.grad(lambda x: kg.hessian(loss)(x).sum())(x),
    }
    assert {k: np.isfinite(v).all() for k, v in found.items()} == dict.fromkeys(found, True)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("signs", [(1, 1, 1), (-1, 1, -1)])
def test_neighbours_whose_sum_is_too_large_for_its_type(dtype: str, signs: tuple[int, int, int]) -> None:
    """What a stencil multiplies by is not taken out of the sum of cotangents where that could overflow by itself."""
    a, b, c = (0.25 * s for s in signs)
    most = np.finfo(dtype).max * np.array([0.6, 0.6, 0.6, 0.6], dtype)

    def f(u: Any, most: Any) -> Any:
        return ((a * u[2:] + b * u[:-2] + c * u[1:-1]) * most).sum()

    expected = np.zeros(6, dtype)
    for shift, factor in ((2, a), (0, b), (1, c)):
        expected[shift : shift + 4] += np.asarray(factor, dtype) * most
    np.testing.assert_allclose(kg.grad(f)(np.ones(6, dtype), most), expected, rtol=2e-3 if dtype == "f2" else 1e-6)


@pytest.mark.parametrize("factor", [np.inf, np.nan])
def test_a_sum_of_nothing_is_zero_whatever_it_is_multiplied_by(factor: float) -> None:
    def f(scale: Any, x: Any) -> Any:
        return (np.tanh(x) * scale).sum() * factor

    found, empty = kg.grad(f, (0, 1))(np.ones(3), np.zeros((0, 3)))
    np.testing.assert_array_equal(found, np.zeros(3))
    assert empty.shape == (0, 3)
