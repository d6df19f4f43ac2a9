"""Running sums and products: done by NumPy on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.spec import checked_dtype
from ..trace.operands import axes_without_booleans, to_axis_of_operand
from ..trace.tracer import Tracer
from .host_calls import host_call_of_one_result
from .reduction_calls import implements_reduction
from .reductions import replace_nans_for_nanfunctions
from .views import atleast_1d, ravel


def _host_scan_along_axis(name: str, a: Any, axis: Any, dtype: Any, out: Any) -> Tracer:
    x = atleast_1d(a)
    x, at = (ravel(x), 0) if axis is None else (x, to_axis_of_operand(axes_without_booleans(axis), x.ndim))
    return host_call_of_one_result(
        name, [x], x.shape, out, axis=at, dtype=None if dtype is None else checked_dtype(dtype)
    )


@implements_reduction(np.cumsum, method=True)
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tracer:
    return _host_scan_along_axis("cumsum", a, axis, dtype, out)


@implements_reduction(np.cumprod, method=True)
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tracer:
    return _host_scan_along_axis("cumprod", a, axis, dtype, out)


@implements_reduction(np.nancumsum)
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tracer:
    return _host_scan_along_axis("cumsum", replace_nans_for_nanfunctions(a, 0), axis, dtype, out)


@implements_reduction(np.nancumprod)
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Tracer:
    return _host_scan_along_axis("cumprod", replace_nans_for_nanfunctions(a, 1), axis, dtype, out)


def _cumulative_array_api_function(name: str) -> Any:
    def cumulative_along_axis(
        x: Any, /, *, axis: int | None = None, dtype: Any = None, out: Any = None, include_initial: bool = False
    ) -> Tracer:
        a = atleast_1d(x)
        if axis is None and a.ndim != 1:
            raise ShapeError("For arrays which have more than one dimension ``axis`` argument is required.")
        at = to_axis_of_operand(0 if axis is None else axis, a.ndim)
        shape = tuple(n + (i == at and bool(include_initial)) for i, n in enumerate(a.shape))
        wanted = None if dtype is None else checked_dtype(dtype)
        return host_call_of_one_result(
            name, [a], shape, out, axis=at, dtype=wanted, include_initial=bool(include_initial)
        )

    return cumulative_along_axis


cumulative_sum = implements_reduction(np.cumulative_sum)(_cumulative_array_api_function("cumulative_sum"))
cumulative_prod = implements_reduction(np.cumulative_prod)(_cumulative_array_api_function("cumulative_prod"))
