"""Least squares: by NumPy on the host, but for the residuals, whose shape depends on data."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..core.errors import MatrixError, ShapeError, UnsupportedError
from ..core.spec import to_index
from ..trace.dispatch import implements
from ..trace.operands import to_traced_array
from ..trace.tracer import Tracer
from .host_calls import host_call, host_call_of_one_result, require_known_numpy_option


class UnknownShapeResult:
    """Stands for a result whose shape depends on data; any use of it is refused."""

    def __init__(self, text: str) -> None:
        self.__dict__["_text"] = text

    def _refuse_unknown_shape(self, *args: Any, **options: Any) -> NoReturn:
        raise UnsupportedError(self.__dict__["_text"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse_unknown_shape()

    def __repr__(self) -> str:
        return "<unknown>"


_USES = """
    add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg abs lt le gt ge getitem len iter bool float
    int array array_ufunc array_function
"""
for _name in _USES.split():
    setattr(UnknownShapeResult, f"__{_name}__", UnknownShapeResult._refuse_unknown_shape)


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[Any, ...]:
    """(x, residuals, rank, singular values) with the smallest |b - a @ x|. The residuals are refused when used, since
    NumPy's have a shape that depends on the rank (unless there are no more rows than columns)."""
    left, right = to_traced_array(a), to_traced_array(b)
    if left.ndim != 2 or right.ndim not in (1, 2):
        raise MatrixError(f"lstsq takes a matrix and one or two axes, not {left.shape} and {right.shape}")
    m, n = left.shape
    if right.shape[0] != m:
        raise MatrixError(f"lstsq: Incompatible dimensions: {m} rows against {right.shape[0]}")
    shapes = [(n, *right.shape[1:]), (0,), (), (min(m, n),)]
    x, none, rank, values = host_call("linalg.lstsq", [left, right], shapes, rcond=require_known_numpy_option(rcond))
    if m <= n:
        return x, none, rank, values
    text = "the shape of lstsq's residuals depends on data; write ((b - a @ x) ** 2).sum(0)"
    return x, UnknownShapeResult(text), rank, values


@implements(np.polyfit)
def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Tracer:
    """The coefficients, from the highest power down, of the polynomial that comes closest. `full` and `cov` are not
    supported."""
    if full or cov:
        raise UnsupportedError("np.polyfit with full= or cov= cannot be traced; write np.linalg.lstsq of np.vander")
    places, values = to_traced_array(x), to_traced_array(y)
    degree = to_index(deg, "deg")
    if degree < 0 or places.ndim != 1 or values.ndim not in (1, 2) or values.shape[0] != places.shape[0]:
        raise ShapeError(f"polyfit of degree {degree} cannot take {places.shape} and {values.shape}")
    arrays, named = [places, values], None
    if w is not None:
        arrays, named = [places, values, to_traced_array(w)], ("w",)
    shape = (degree + 1, *values.shape[1:])
    tiny = [(2,) + (1,) * (a.ndim - 1) for a in arrays]
    return host_call_of_one_result(
        "polyfit", arrays, shape, tiny=tiny, deg=degree, rcond=require_known_numpy_option(rcond), named=named
    )
