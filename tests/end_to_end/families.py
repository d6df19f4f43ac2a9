"""Random calls of every kernel family: functions in NumPy's words, and arrays of random shapes, layouts and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import kernelgraph as kg

Array = np.ndarray[Any, Any]
FLOATS = ("float16", "float32", "float64")
NUMBERS = (*FLOATS, "int8", "uint8", "int32", "int64", "complex64")
LAYOUTS = ("c", "f", "reversed", "strided", "unaligned", "broadcast")
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10, "complex64": 1e-4}


def shapes(least: int = 1, most: int = 3) -> st.SearchStrategy[tuple[int, ...]]:
    """Short axes with at most one long one, so that whole vectors, their rests and several blocks all occur."""

    @st.composite
    def one(draw: st.DrawFn) -> tuple[int, ...]:
        found = draw(st.lists(st.integers(1, 24), min_size=least, max_size=most))
        if draw(st.booleans()):
            found[draw(st.integers(0, len(found) - 1))] = draw(st.integers(25, 5000))
        return tuple(found)

    return one()


def laid_out(values: Array, layout: str) -> Array:
    """Equal values that lie in memory in another way (broadcast: the first along axis 0, again and again)."""
    if layout == "f":
        return np.asfortranarray(values)
    if layout == "reversed":
        return np.ascontiguousarray(np.flip(values))[(slice(None, None, -1),) * values.ndim]
    if layout == "strided":
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    if layout == "unaligned":
        memory = np.empty(values.size + 1, values.dtype)[1:].reshape(values.shape)
        memory[...] = values
        return memory
    return np.broadcast_to(values[:1], values.shape) if layout == "broadcast" else values


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = np.dtype(dtype).kind
    if kind in "iu":
        values = rng.integers(0 if kind == "u" else -9, 10, shape)
    else:
        values = rng.uniform(-2, 2, shape) + (1j * rng.uniform(-2, 2, shape) if kind == "c" else 0)
    return laid_out(values.astype(dtype), draw(st.sampled_from(LAYOUTS)))


@dataclass(frozen=True)
class Case:
    """function: for kernelgraph and, on `wide` arrays, for NumPy; exact: its results are to be equal."""

    name: str
    function: Callable[..., Any]
    arrays: tuple[Array, ...]

    @property
    def exact(self) -> bool:
        return self.arrays[0].dtype.kind in "iub"


@st.composite
def elementwise(draw: st.DrawFn) -> Case:
    shape, dtype = draw(shapes()), draw(st.sampled_from(NUMBERS))
    other = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in shape)
    pair = draw(arrays(shape, dtype)), draw(arrays(other, dtype))
    if np.dtype(dtype).kind in "iu":
        return Case("elementwise", lambda a, b: (a * 3 - b, np.maximum(a, b) + 7, a < b), pair)
    return Case("elementwise", lambda a, b: (a * 0.3 + b * b, np.exp(-(a * a)) - np.sin(b)), pair)


@st.composite
def rows(draw: st.DrawFn) -> Case:
    shape, axis = draw(shapes(least=2)), draw(st.integers(-2, -1))

    def softmax(x: Any) -> Any:
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)

    def norm(x: Any) -> Any:
        centred = x - x.mean(axis=axis, keepdims=True)
        return centred / np.sqrt((centred * centred).mean(axis=axis, keepdims=True) + 0.1)

    function = draw(st.sampled_from((softmax, norm)))
    return Case(function.__name__, function, (draw(arrays(shape, draw(st.sampled_from(("float32", "float64"))))),))


@st.composite
def reductions(draw: st.DrawFn) -> Case:
    shape, dtype = draw(shapes()), draw(st.sampled_from([d for d in NUMBERS if d != "complex64"]))
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    one = draw(st.sampled_from(axes))

    def several(x: Any) -> Any:
        return x.sum(axis=axes), x.max(axis=axes), x.min(axis=axes), (x > 0).any(axis=axes)

    def places(x: Any) -> Any:
        return x.argmax(axis=one), x.argmin(axis=one)

    def fused(x: Any) -> Any:
        return (x * x + 1).sum(axis=axes) * 2

    return Case("reduction", draw(st.sampled_from((several, places, fused))), (draw(arrays(shape, dtype)),))


@st.composite
def layouts(draw: st.DrawFn) -> Case:
    shape, dtype = draw(shapes(least=2)), draw(st.sampled_from(NUMBERS))
    order = tuple(draw(st.permutations(range(len(shape)))))
    x = draw(arrays(shape, dtype))
    y = draw(arrays(tuple(shape[i] for i in order), dtype))
    return Case("layout", lambda x, y: (x.transpose(order) + 2 * y, x.reshape(-1)[::-1] * 2), (x, y))


@st.composite
def stencils(draw: st.DrawFn) -> Case:
    shape = draw(st.lists(st.integers(3, 40), min_size=1, max_size=3))
    dtype = draw(st.sampled_from(("float32", "float64", "int32")))

    def around(x: Any) -> Any:
        inside = (slice(1, -1),) * x.ndim
        total = x[inside] * 2
        for axis in range(x.ndim):
            for part in (slice(None, -2), slice(2, None)):
                total = total + x[(*inside[:axis], part, *inside[axis + 1 :])]
        return total

    return Case("stencil", around, (draw(arrays(tuple(shape), dtype)),))


FAMILIES: dict[str, Callable[[], st.SearchStrategy[Case]]] = {
    "elementwise": elementwise,
    "rows": rows,
    "reductions": reductions,
    "layouts": layouts,
    "stencils": stencils,
}


def check(case: Case, device: str) -> None:
    """kernelgraph's results are NumPy's: the same integers; floats near those that NumPy computes in a wider type."""
    found = kg.kernel_graph(device=device)(case.function)(*case.arrays)
    with np.errstate(all="ignore"):
        own = case.function(*case.arrays)
        wider = {"f": np.float64, "c": np.complex128}.get(case.arrays[0].dtype.kind)
        wanted = own if wider is None else case.function(*(a.astype(wider) for a in case.arrays))
    single = not isinstance(own, tuple)
    for got, like, want in zip(*((r,) if single else r for r in (found, own, wanted)), strict=True):
        got = np.asarray(got)
        assert (got.shape, got.dtype) == (np.shape(like), np.asarray(like).dtype)
        tolerance = TOLERANCE.get(got.dtype.name)
        if tolerance is None:
            np.testing.assert_array_equal(got, want, case.name)
        else:
            scale = max(1.0, float(np.abs(want).max(initial=0)))
            values = got.astype(wider or got.dtype)
            if got.dtype.kind == "f":  # what may round to a number beyond the largest one may be infinite
                beyond = np.abs(want) * (1 + tolerance) + tolerance * scale > np.finfo(got.dtype).max
                values = np.where(beyond & (values == np.copysign(np.inf, want)), want, values)
            np.testing.assert_allclose(values, want, tolerance, tolerance * scale, err_msg=case.name)
