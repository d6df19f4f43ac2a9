"""Every elementwise row: its formulas against differences, and one mode against the other, to the second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import bfloat16
from kernelgraph.compiler.derive.table import RULES
from kernelgraph.compiler.ops.derivatives import ByGraph, Partials, Zero
from kernelgraph.compiler.ops.special import SPECIAL_FUNCTIONS
from kernelgraph.compiler.ops.table import OPS

from .derivatives import check

# where the arguments lie; else between 0.2 and 0.8, and the same with other signs
DOMAINS: dict[str, tuple[float, float]] = {"arccosh": (1.2, 3)}
POSITIVE = {"log", "log2", "log10", "log1p", "sqrt", "power", "float_power", "arccosh"}
POSITIVE |= {
    "boxcox",
    "entr",
    "erfcinv",
    "huber",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "logit",
    "ndtri",
    "pseudo_huber",
    "y0",
    "y1",
}
ALL_POSITIVE = {"xlogy", "rel_entr", "kl_div"}
MAPS = sorted(name for name, row in OPS.items() if row.kind == "map" and isinstance(row.derivative, Partials))
HOLOMORPHIC = sorted(
    name
    for name in MAPS
    if "c" in OPS[name].formulas and name not in ("where", "maximum", "minimum", "fmax", "fmin", "clip", "relu")
)
REST = {"ldexp": (np.array([1, -2, 3, 0, 2, 1]),)}


def arguments(name: str, dtype: Any, rng: np.random.Generator) -> list[Any]:
    row, n = OPS[name], 6
    low, high = DOMAINS.get(name, (0.2, 0.8))
    found: list[Any] = []
    for place in range(row.arity):
        x = rng.uniform(low, high, n)
        if name not in ALL_POSITIVE and (name not in POSITIVE or place):
            x = x * rng.choice([-1, 1], n)
        found.append(x.astype(dtype))
    if name == "where":
        found[0] = np.array([True, False] * 3)
    if name == "clip":
        found[1:] = [np.full(n, -0.4, dtype), np.full(n, 0.5, dtype)]
    if name in REST:
        found[1:] = REST[name]
    return found


def complex_arguments(name: str, dtype: Any, rng: np.random.Generator) -> list[Any]:
    parts = (arguments(name, np.float64, rng) for _ in range(2))
    return [(a + 1j * b).astype(dtype) for a, b in zip(*parts, strict=True)]


def test_every_row_has_a_rule() -> None:
    assert set(RULES) == set(OPS)
    assert not [name for name in RULES if isinstance(RULES[name], ByGraph)]


def test_what_derivatives_divide_by_is_near_enough_but_not_for_whole_quotients() -> None:
    """Two units in the last place, as nothing else is; and the whole part of a quotient is that of the exact one."""

    def divisions(function: Any) -> tuple[int, int]:
        graph = kg.grad(kg.kernel_graph(lambda x, y: function(x, y).sum(), device="fake"), (0, 1)).graph(
            np.ones(9, np.float32), np.ones(9, np.float32)
        )
        ops = [node.op for node in graph.nodes]
        return ops.count("divide"), ops.count("approximate_divide")

    assert divisions(lambda x, y: x / y) == (1, 1)  # the value that the derivative by y takes, and one for both
    assert divisions(lambda x, y: np.log(x) + np.sqrt(y)) == (0, 2)
    assert divisions(np.fmod) == (1, 0)


@pytest.mark.parametrize("name", MAPS)
def test_formulas_are_derivatives(name: str) -> None:
    rng = np.random.default_rng(1)
    for seed in range(2):
        if name == "heaviside":
            check(lambda b, v: [b.map(name, *v)], np.array([1.0, 0, -1]), np.array([0.5, 0.25, 1]), differences=False)
            continue
        args = [np.asarray(a) for a in arguments(name, np.float64, rng)]
        if name == "complex":
            check(lambda b, v: [b.map(name, *v)], *args, seed=seed)
            continue
        check(lambda b, v: [b.map(name, *v)], *args, seed=seed, near=2e-5)


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_formulas_hold_for_complex_numbers(name: str) -> None:
    rng = np.random.default_rng(2)
    args = complex_arguments(name, np.complex128, rng)
    check(lambda b, v: [b.map(name, *v)], *args, near=2e-5)


@pytest.mark.parametrize("dtype", [np.float16, bfloat16, np.float32, np.complex64])
@pytest.mark.parametrize("name", MAPS)
def test_derivatives_have_the_dtypes_of_what_they_belong_to(name: str, dtype: Any) -> None:
    """And both modes agree within their precision."""
    rng = np.random.default_rng(3)
    if np.dtype(dtype).kind == "c":
        if name not in HOLOMORPHIC:
            pytest.skip("not of complex numbers")
        args = complex_arguments(name, dtype, rng)
    else:
        if (name in ("complex", "lgamma") or name in SPECIAL_FUNCTIONS) and np.dtype(dtype).itemsize == 2:
            pytest.skip("not of 16-bit floats")
        args = arguments(name, dtype, rng)
    check(lambda b, v: [b.map(name, *v)], *args, differences=False, order=1)


def test_arguments_that_were_broadcast_get_sums() -> None:
    rng = np.random.default_rng(4)
    a, b, c = rng.normal(size=(3, 1)), rng.normal(size=4), rng.normal()
    check(lambda g, v: [g.map("multiply", g.map("add", v[0], v[1]), v[2])], a, b, c)


def test_rows_whose_derivative_is_zero_stop_cotangents() -> None:
    zeros = [n for n, row in OPS.items() if isinstance(row.derivative, Zero)]
    assert {"floor", "less", "gcd", "isnan", "stop_gradient", "philox"} <= set(zeros)
    check(lambda g, v: [g.map("multiply", g.map("floor", v[0]), v[0])], np.array([0.5, 1.5, -2.5]))


@pytest.mark.parametrize("name", ["sqrt", "log", "reciprocal", "arcsin", "arccosh", "exp", "power"])
def test_gradients_are_finite_where_the_function_is(name: str) -> None:
    """NaN and infinities on the side that `where` does not take stay there."""
    from kernelgraph.compiler.derive.derive import derive_reverse
    from kernelgraph.compiler.graph.interpret import interpret_graph

    from .derivatives import graph_of

    x = np.array([0.0, -1.0, 1e9, 0.5])
    row = OPS[name]

    def build(g: Any, v: Any) -> Any:
        inside = g.map("less", g.map("absolute", g.map("subtract", v[0], 0.5)), 0.1)
        value = g.map(name, *[v[0]] * row.arity)
        return [g.map("where", inside, value, g.map("multiply", v[0], 2.0))]

    graph = derive_reverse(graph_of(build, [x]), [0], [0])
    _, gradient = interpret_graph(graph, [x, np.ones(4)])
    np.testing.assert_array_equal(gradient[:3], [2, 2, 2])


def test_equal_arguments_share_what_comes_back() -> None:
    from kernelgraph.compiler.derive.derive import derive_reverse
    from kernelgraph.compiler.graph.interpret import interpret_graph

    from .derivatives import graph_of

    x = np.array([1.0, 2, 3])
    graph = derive_reverse(graph_of(lambda g, v: [g.map("maximum", *v)], [x, x]), [0, 1], [0])
    _, a, b = interpret_graph(graph, [x, np.array([1.0, 5, 3]), np.ones(3)])
    np.testing.assert_array_equal(a, [0.5, 0, 0.5])
    np.testing.assert_array_equal(b, [0.5, 1, 0.5])


def test_options_of_rows() -> None:
    x = np.array([0.3, np.nan, -1.2])
    z = np.array([0.3 - 2j, complex(np.nan, 1.5), complex(0.5, np.inf), -1.2j])
    for given in (x, z):
        check(lambda g, v: [g.map("nan_to_num", v[0], nan=0.5, posinf=3.0)], given, differences=False)
    for deg in (True, False):
        check(lambda g, v, deg=deg: [g.map("angle", v[0], deg=deg)], np.array([0.3 - 2j, -1 - 1.5j]))
    check(lambda g, v: [g.map("gelu", v[0], approximate=True)], np.array([0.3, -2]))
    check(lambda g, v: [g.map("hypot", *v)], np.array([0.0, 3.0]), np.array([0.0, 4.0]), differences=False, order=1)
