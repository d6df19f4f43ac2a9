"""Random NumPy programs with views, aliasing and assignment: decorated or not, they mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples

Statement = tuple[Any, ...]
KINDS = (
    *("view", "view", "unary", "binary", "assign", "assign", "inplace", "sum", "transpose", "number", "copy", "shift"),
)


def slices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index: ints, slices with any step, new axes, an ellipsis."""
    key: list[Any] = []
    for n in shape:
        kind = draw(st.sampled_from(("all", "slice", "slice", "int", "step", "reverse")))
        if kind == "int" and n:
            key.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            key.append(slice(draw(st.integers(0, 2)), draw(st.one_of(st.none(), st.integers(-1, n)))))
        elif kind == "step":
            key.append(slice(None, None, 2))
        elif kind == "reverse":
            key.append(slice(None, None, -1))
        else:
            key.append(slice(None))
    if draw(st.integers(0, 5)) == 0:
        key.append(None)
    return tuple(key)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Statement], list[np.ndarray]]:
    """Statements over numbered variables, tried in NumPy as they are drawn so that they all make sense."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = []
    for _ in range(draw(st.integers(1, 2))):
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=2)))
        dtype = draw(st.sampled_from(("float64", "float32", "int64")))
        arrays.append((rng.random(shape) * 8 - 4).astype(dtype))
    statements: list[Statement] = []
    variables: list[Any] = [a.copy() for a in arrays]
    for _ in range(draw(st.integers(1, 12))):
        a = draw(st.integers(0, len(variables) - 1))
        b = draw(st.integers(0, len(variables) - 1))
        kind = draw(st.sampled_from(KINDS))
        key = slices(draw, variables[a].shape)
        op = draw(st.sampled_from(("add", "subtract", "multiply", "maximum")))
        statement = (kind, a, b, key, op)
        trial = [v for v in variables]
        before = [np.array(v) for v in variables]
        try:
            with np.errstate(all="ignore"):
                execute(statement, trial, np)
        except (ValueError, IndexError, TypeError):
            for v, old in zip(variables, before, strict=True):
                if isinstance(v, np.ndarray):
                    v[...] = old
            continue
        if any(np.asarray(v).size > 400 for v in trial):
            continue
        variables = trial
        statements.append(statement)
    return statements, arrays


def execute(statement: Statement, v: list[Any], xp: Any) -> None:
    kind, a, b, key, op = statement
    if kind == "view":
        v.append(v[a][key])
    elif kind == "unary":
        v.append(xp.tanh(v[a]) if op == "add" else abs(v[a]))
    elif kind == "binary":
        v.append(getattr(xp, op)(v[a], v[b]))
    elif kind == "assign":
        if isinstance(v[a], np.generic):
            raise TypeError("a scalar")
        v[a][key] = v[b]
    elif kind == "inplace":
        if isinstance(v[a], np.generic):
            raise TypeError("a scalar")
        if op == "add":
            v[a] += v[b]
        else:
            v[a] *= v[b]
    elif kind == "sum":
        v.append(v[a].sum(axis=-1) if v[a].ndim else v[a] + 1)
    elif kind == "transpose":
        v.append(v[a].T)
    elif kind == "number":
        v.append(v[a] * 0.5 + 1)
    elif kind == "copy":
        v.append(v[a].copy())
    elif kind == "shift":  # neighbours: the naive in-place rule is a race here
        if isinstance(v[a], np.generic) or v[a].ndim < 1 or v[a].shape[0] < 3:
            raise TypeError("too short")
        v[a][1:-1] = v[a][:-2] + v[a][2:]


class Magnitudes:
    """NumPy's words on bounds of absolute values: nothing cancels, and no function makes an error smaller."""

    add = subtract = np.add
    multiply, maximum, tanh = np.multiply, np.maximum, np.abs


def magnitudes(statements: list[Statement], sizes: list[np.ndarray]) -> list[Any]:
    """What the rounding errors of the program's variables are in proportion to."""
    v: list[Any] = list(sizes)
    for statement in statements:
        execute(statement, v, Magnitudes)
    return v[len(sizes) :]


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=programs())
def test_decorated_or_not(case):
    statements, arrays = case

    def program(*args):
        v = list(args)
        for statement in statements:
            execute(statement, v, np)
        return v[len(args) :]

    mine, theirs = [a.copy() for a in arrays], [a.copy() for a in arrays]
    sizes = [np.abs(a).astype("f8") for a in arrays]
    with np.errstate(all="ignore"):
        wanted = program(*theirs)
        bounds = magnitudes(statements, sizes)
    got = kg.kernel_graph(device="cpu")(program)(*mine)
    for x, y, size in zip([*got, *mine], [*wanted, *theirs], [*bounds, *sizes], strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        scale = np.nan_to_num(size, posinf=0.0).max(initial=0.0) if y.dtype.kind == "f" else 0
        step = 1e-5 if any(a.dtype == np.float32 for a in arrays) else 1e-12
        np.testing.assert_allclose(x, y, rtol=step, atol=step * float(scale))
