"""Every elementwise row: its derivatives to the third order, in each order of the two modes, against high precision.

At zeros, ties, bounds, huge and tiny points, along the axes and across them, in each dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from kernelgraph.compiler.derive.derive import derive_forward, derive_reverse
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.ops.derivatives import Partials
from kernelgraph.compiler.ops.special import SPECIAL_FUNCTIONS
from kernelgraph.compiler.ops.table import OPS
from kernelgraph.runtime.core.frozen import replace
from tests.counts import examples
from tests.derivative_references import expected_derivatives, is_right

from .derivatives import graph_of

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Row:
    """reference: of mpmath's numbers. points: more than all rows have. side: from where the derivative is taken at a
    kink, 0 for the mean. absolute: what errors are measured beside, of an order at a point: 1 where values go to 1 or 0
    (tanh). without: points, and lines, where there is no derivative, or another convention."""

    reference: Callable[..., Any]
    points: tuple[Any, ...] = ()
    side: int = 0
    absolute: Callable[..., float] = lambda order, *args: 0
    without: Callable[..., bool] = lambda *args: False
    attrs: tuple[tuple[str, Any], ...] = ()
    dtypes: str = "efd"


def _of_mpmath(name: str, **options: Any) -> Row:
    return Row(getattr(mp, name), **options)


def one(order: int, *args: Any) -> float:
    return 1


def _copysign(x: Any, y: Any) -> Any:
    return abs(x) if y >= 0 else -abs(x)


def _gelu_by_tanh(x: Any) -> Any:
    return x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf(0.044715) * x**3)))


def _remainder(x: Any, y: Any) -> Any:
    return x - y * mp.floor(x / y)


def _fmod(x: Any, y: Any) -> Any:
    return x - y * (mp.floor(x / y) if x / y >= 0 else mp.ceil(x / y))


def _log_of_sum(x: Any, y: Any, base: Any) -> Any:
    return max(x, y) + mp.log1p(base ** -abs(x - y)) / mp.log(base)


def _at_jump(x: Any, y: Any, u: Any, v: Any) -> bool:
    return y == 0 or abs(x / y) > 1e6 or np.fmod(x, y) == 0


def _power_without(x: Any, y: Any, u: Any, v: Any) -> bool:
    return (x < 0 and (v != 0 or y != round(y))) or (x == 0 and (v != 0 or y <= 0)) or abs(y) > 1e4


def _arctan2_without(y: Any, x: Any, u: Any, v: Any) -> bool:
    return y == 0 and x <= 0


FIRST = Row(lambda x, y: x)
POWERS = (0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 2.5)
ROWS: dict[str, Row] = {
    "add": Row(lambda x, y: x + y),
    "subtract": Row(lambda x, y: x - y),
    "multiply": Row(lambda x, y: x * y),
    "divide": Row(lambda x, y: x / y),
    "approximate_divide": Row(lambda x, y: x / y),
    "remainder": Row(_remainder, without=_at_jump),
    "fmod": Row(_fmod, (0.001,), without=_at_jump, dtypes="fd"),
    "negative": Row(lambda x: -x),
    "positive": Row(lambda x: x),
    "absolute": Row(abs),
    "fabs": Row(abs),
    "sign": Row(mp.sign),
    "square": Row(lambda x: x * x),
    "reciprocal": Row(lambda x: 1 / x),
    "power": Row(lambda x, y: x**y, POWERS, without=_power_without),
    "float_power": Row(lambda x, y: x**y, POWERS, without=_power_without, dtypes="d"),
    "conjugate": Row(lambda x: x),
    "heaviside": Row(lambda x, y: y if x == 0 else mp.mpf(x > 0), without=lambda x, y, u, v: x == 0 and u != 0),
    "maximum": Row(max),
    "minimum": Row(min),
    "fmax": Row(max),
    "fmin": Row(min),
    "copysign": Row(_copysign, without=lambda x, y, u, v: x == 0 or y == 0),
    "frexp_mantissa": Row(lambda x: x, without=lambda *args: True),
    "modf_frac": Row(lambda x: x - mp.floor(x), without=lambda x, u: x == round(x)),
    "sqrt": _of_mpmath("sqrt"),
    "cbrt": Row(lambda x: mp.sign(x) * mp.cbrt(abs(x))),
    "exp": _of_mpmath("exp"),
    "exp2": Row(lambda x: mp.mpf(2) ** x),
    "expm1": _of_mpmath("expm1", absolute=one),
    "log": _of_mpmath("log"),
    "log2": Row(lambda x: mp.log(x) / mp.log(2)),
    "log10": Row(lambda x: mp.log(x) / mp.log(10)),
    "log1p": _of_mpmath("log1p", points=(-1.0,)),
    "logaddexp": Row(lambda x, y: _log_of_sum(x, y, mp.e), absolute=one),
    "logaddexp2": Row(lambda x, y: _log_of_sum(x, y, mp.mpf(2)), absolute=one),
    "sin": _of_mpmath("sin", points=(np.pi, np.pi / 2)),
    "cos": _of_mpmath("cos", points=(np.pi, np.pi / 2)),
    "tan": _of_mpmath("tan", points=(np.pi,)),
    "arcsin": _of_mpmath("asin"),
    "arccos": _of_mpmath("acos"),
    "arctan": _of_mpmath("atan"),
    "arctan2": Row(mp.atan2, without=_arctan2_without),
    "sinh": _of_mpmath("sinh"),
    "cosh": _of_mpmath("cosh"),
    "tanh": _of_mpmath("tanh", absolute=one),
    "arcsinh": _of_mpmath("asinh"),
    "arccosh": _of_mpmath("acosh"),
    "arctanh": _of_mpmath("atanh"),
    "hypot": Row(
        lambda x, y: mp.sqrt(x * x + y * y), absolute=lambda n, x, y: np.hypot(x, y) ** (1.0 - n) if x or y else 0
    ),
    "degrees": Row(lambda x: x * 180 / mp.pi),
    "rad2deg": Row(lambda x: x * 180 / mp.pi),
    "radians": Row(lambda x: x * mp.pi / 180),
    "deg2rad": Row(lambda x: x * mp.pi / 180),
    "erf": _of_mpmath("erf", absolute=one),
    "erfc": _of_mpmath("erfc", absolute=one),
    "lgamma": Row(
        lambda x: mp.log(abs(mp.gamma(x))),
        (-0.5,),
        absolute=one,
        without=lambda x, u: x <= 0 and x == round(x),
        dtypes="fd",
    ),
    "sigmoid": Row(lambda x: 1 / (1 + mp.exp(-x)), absolute=one),
    "relu": Row(lambda x: max(x, 0), side=-1),
    "gelu": Row(lambda x: x * mp.erfc(-x / mp.sqrt(2)) / 2, absolute=one),
    "gelu by tanh": Row(_gelu_by_tanh, absolute=one, attrs=(("approximate", True),)),
    "barrier": FIRST,
    "clip": Row(lambda x, low, high: min(max(x, low), high), without=lambda x, low, high, *line: low == high),
    "real": Row(lambda x: x),
    "nan_to_num": Row(lambda x: x),
}
OF_SCIPY = SPECIAL_FUNCTIONS.keys()  # `tests/dsl/functions/test_special.py`
OF_STRUCTURE = {"where", "complex", "imag", "angle", "ldexp"}  # of other dtypes: `test_map_rules`
ALL = (0.0, -0.0, 0.5, -1.0, 1.0, 2.0, 30.0, -40.0, 300.0)
MORE = (-0.5, -2.0, 1e-3, -1e-3, 7.25, -300.0, 0.9375, -0.9375, 100.0, 12.0)
OF_DTYPE = {  # of rows of one argument, and of more, whose derivatives divide by powers of them
    "e": ((6e-5, -6e-5, 6e4, -6e4), (0.1, 6e4)),
    "f": ((1e-30, -1e-9, 1e14, 1e20, -1e30), (1e-7, -1e12)),
    "d": ((1e-9, -1e-100, 1e14, -1e50, 1e200), (1e-30, -1e60)),
}
MODES = [modes for n in (1, 2, 3) for modes in product("fr", repeat=n)]


def test_every_row_with_formulas_is_here() -> None:
    rows = {name for name, row in OPS.items() if row.kind == "map" and isinstance(row.derivative, Partials)}
    assert rows == {name.removesuffix(" by tanh") for name in ROWS} | OF_STRUCTURE | OF_SCIPY


def points_of(row: Row, arity: int, dtype: str, more: bool) -> list[tuple[Any, ...]]:
    """Arguments, and lines through them."""
    single = [*ALL, *row.points, *(MORE if more else ()), *OF_DTYPE[dtype][arity > 1]]
    if arity > 1 and not more:
        single = [0.0, -0.0, 1.0, 2.0, -40.0, *row.points, *OF_DTYPE[dtype][1]]
    if arity > 1 and dtype == "e":  # which cannot hold the third powers of less
        single = [x for x in single if x == 0 or abs(x) > 0.02]
    numbers = list(dict.fromkeys(np.array(x, dtype).item().hex() for x in single))
    values = [float.fromhex(x) for x in numbers]
    if arity == 1:
        return [(x, 1.0) for x in values]
    lines = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 1.0, 0.0), (2.0, -1.0, 0.5)]
    args = list(product(values, repeat=2)) if arity == 2 else [(x, -1.0, 1.0) for x in values] + [(1.0, 1.0, 1.0)]
    found = [(*a, *line[:arity]) for a in args for line in lines]
    return found if more else found[::3]  # of four lines each third time another one


def derived(graph: Graph, modes: tuple[str, ...]) -> Graph:
    """The graph of one more output, its derivative by its first input, in these modes one after another."""
    for mode in modes:
        graph = (derive_forward if mode == "f" else derive_reverse)(graph, [0], [0])
        graph = replace(graph, outputs=graph.outputs[-1:])
    return graph


def wrong_derivatives(name: str, dtype: str, more: bool) -> Iterator[str]:
    """What differs. Arguments along which a line does not go stay constants."""
    row, arity = ROWS[name], OPS[name.removesuffix(" by tanh")].arity
    groups: dict[tuple[bool, ...], list[tuple[Any, ...]]] = {}
    for p in points_of(row, arity, dtype, more):
        if not row.without(*p):
            groups.setdefault(tuple(u != 0 for u in p[arity:]), []).append(p)
    for moving, points in groups.items():
        yield from _wrong_along_lines(name, dtype, moving, points)


def _wrong_along_lines(name: str, dtype: str, moving: tuple[bool, ...], points: list[tuple[Any, ...]]) -> Iterator[str]:
    row, op, arity = ROWS[name], name.removesuffix(" by tanh"), len(moving)
    columns = [np.array(c, dtype) for c in zip(*points, strict=True)]
    args, lines = columns[:arity], columns[arity:]
    zeros, ones = np.full(len(points), -0.0, dtype), np.ones(len(points), dtype)

    def along(g: Any, v: Any) -> Any:
        moved = [
            g.map("add", g.map("multiply", v[0], u), a) if m else a
            for a, u, m in zip(v[1 : arity + 1], v[arity + 1 :], moving, strict=True)
        ]
        return [g.map(op, *moved, **dict(row.attrs))]

    graph = graph_of(along, [zeros, *args, *lines])
    (values,) = interpret_graph(graph, [zeros, *args, *lines])
    wanted = [
        expected_derivatives(row.reference, [float(a) for a in p[:arity]], [float(u) for u in p[arity:]], row.side)
        for p in zip(*args, *lines, strict=True)
    ]
    for modes in MODES:
        (found,) = interpret_graph(derived(graph, modes), [zeros, *args, *lines, *[ones] * len(modes)])
        for point, at, value, expected in zip(points, values, found, wanted, strict=True):
            want = expected[len(modes) - 1]
            known = np.isfinite(at) or (sum(moving) == 1 and np.isinf(at) and not all(point[:arity]))
            zero = any(x == 0 and np.signbit(x) for x in point[:arity])
            size = row.absolute(len(modes), *point[:arity])
            if known and not is_right(value, want, dtype, absolute=size, anysign=zero):
                yield f"{name} {dtype} {''.join(modes)} at {point}: {value}, not {mp.nstr(want.value, 8)}"


# one dtype of each row; all with KERNELGRAPH_TEST_EXAMPLES=3 or more, and more points
CASES = [
    (name, dtype)
    for turn, (name, row) in enumerate(ROWS.items())
    for dtype in (row.dtypes[turn % len(row.dtypes) :] + row.dtypes)[: min(len(row.dtypes), examples(2))]
]


@pytest.mark.parametrize("name, dtype", CASES)
def test_derivatives_at_special_points(name: str, dtype: str) -> None:
    wrong = list(wrong_derivatives(name, dtype, examples(2) > 2))
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:20]])
