"""Functions of NumPy's and of `kg.nn`: their derivatives to the third order, against those of high precision.

Where values are 0, equal, huge, constant or singular, in the orders of the two modes. Each is a number of a line:
c . f(x + t u) at t = 0; nested `kg.grad` and `kg.jvp` are traced, and the graph is interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret_graph
from tests.counts import examples
from tests.derivative_references import expected_derivatives, is_right
from tests.derivative_rows import POINTS, ROWS

Array = np.ndarray[Any, Any]
CONVOLUTIONS = {"conv1d", "conv3d", *(f"conv_transpose{n}d" for n in (1, 2, 3))}  # as `conv2d`
OTHERS = {"one_hot", "max_pool2d", *CONVOLUTIONS}  # of integers; maxima, which `maximum` is
MODES = [modes for n in (1, 2, 3) for modes in product("fr", repeat=n)]


def test_every_function_of_nn_is_here() -> None:
    from kernelgraph.dsl.api.nn import FUNCTIONS, SHARED

    assert set(FUNCTIONS) | set(SHARED) <= set(ROWS) | OTHERS


def nested(function: Callable[..., Any], modes: tuple[str, ...]) -> Callable[..., Any]:
    """The derivative by the first argument, in these modes one after another."""
    for mode in modes:
        function = kg.grad(function) if mode == "r" else _pushed(function)
    return function


def _pushed(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda t, x, u: kg.jvp(lambda t: function(t, x, u), (t,), (t * 0 + 1,))[1]


def wrong_derivatives(name: str, dtype: str, modes_of: Callable[[int], Any]) -> Iterator[str]:
    """What differs. modes_of: of an order the modes that are tried."""
    row = ROWS[name]
    names = [n.strip() for n in row.points.split("," if "," in row.points or row.points in POINTS else " ")]
    shapes: dict[tuple[int, ...], list[str]] = {}
    for n in names:
        with np.errstate(all="ignore"):
            value, wide = row.function(POINTS[n].astype(dtype)), row.function(POINTS[n].astype(dtype).astype(float))
        if n not in row.without and not np.any(np.isfinite(value) != np.isfinite(wide)):
            shapes.setdefault(POINTS[n].shape, []).append(n)
    for points in shapes.values():
        yield from _wrong_of_one_shape(name, dtype, points, modes_of)


def _wrong_of_one_shape(name: str, dtype: str, points: list[str], modes_of: Any) -> Iterator[str]:
    row, x, t = ROWS[name], POINTS[points[0]].astype(dtype), np.array(-0.0, dtype)
    with np.errstate(all="ignore"):
        weights = np.resize([1.0, -0.5, 0.25, 2.0, 0.75], np.shape(row.function(x))).astype(dtype)

    def loss(t: Any, x: Any, u: Any) -> Any:
        return (row.function(x + t * u) * weights).sum()

    def reference(*args: Any) -> Any:
        return np.sum(row.reference(np.array(args, object).reshape(x.shape)) * weights.astype(object))

    lines = [np.sin(1.5 + np.arange(x.size)).reshape(x.shape), np.eye(1, x.size, 1).reshape(x.shape)]
    lines = [u.astype(dtype) for u in lines]
    wanted = {
        (n, k): expected_derivatives(
            reference,
            POINTS[n].astype(dtype).astype(float).ravel().tolist(),
            u.astype(float).ravel().tolist(),
            row.side,
        )
        for n in points
        for k, u in enumerate(lines)
    }
    for order in (1, 2, 3):
        for modes in modes_of(order):
            traced, _, leaves = kg.kernel_graph(nested(loss, modes), device="cpu")._trace_for_inspection(
                (t, x, lines[0]), {}
            )
            numbers = traced.host(leaves) if traced.graph.numbers else ()
            for (n, k), expected in wanted.items():
                arrays = [t, POINTS[n].astype(dtype), lines[k]]
                used = [arrays[i] for i in range(3)]
                (found,) = interpret_graph(traced.graph, [*used, *traced.arrays], numbers)
                want = expected[order - 1]
                if not is_right(found, want, dtype, absolute=row.size):
                    text = mp.nstr(want.value, 8)
                    yield f"{name} {dtype} {''.join(modes)} at {n} along {k}: {found}, not {text}"


# one dtype of each row, and one of the orders of modes for each order; more with KERNELGRAPH_TEST_EXAMPLES
CASES = [
    (name, dtype)
    for turn, (name, row) in enumerate(ROWS.items())
    for dtype in (row.dtypes[turn % len(row.dtypes) :] + row.dtypes)[: min(len(row.dtypes), examples(2))]
]


@pytest.mark.parametrize("name, dtype", CASES)
def test_derivatives_at_special_points(name: str, dtype: str) -> None:
    turn = [*ROWS].index(name)

    def modes_of(order: int) -> list[tuple[str, ...]]:
        every = [m for m in MODES if len(m) == order]
        return (every[turn % len(every) :] + every)[: min(len(every), examples(2))]

    wrong = list(wrong_derivatives(name, dtype, modes_of))
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:20]])
