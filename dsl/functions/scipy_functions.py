"""Functions of `scipy.special` that are no ufuncs, on traced values: SciPy's own formulas, with its dtypes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ..core.errors import UnsupportedError
from ..trace.numpy_fallback import numpy_result_as_traced_constant
from ..trace.operands import is_traced, to_traced_array
from .elementwise import apply


def _largest(x: Any, axis: Any) -> Any:
    """The maxima along an axis, which cancel out of derivatives."""
    return apply("stop_gradient", np.max(x, axis=axis, keepdims=True))


def _softmax(x: Any, axis: Any = None) -> Any:
    x = to_traced_array(x)
    powers = np.exp(x - _largest(x, axis))
    return powers / np.sum(powers, axis=axis, keepdims=True)


def _log_softmax(x: Any, axis: Any = None) -> Any:
    x = to_traced_array(x)
    largest = _largest(x, axis)
    shifted = x - np.where(np.isfinite(largest), largest, np.zeros_like(largest))
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: Any = False, return_sign: Any = False) -> Any:
    """log(sum(b * exp(a))). What is not the largest is added by log1p, which keeps little beside much."""
    a, b = _floats_of_one_dtype(a, b)
    if b is not None:
        a = np.where(b == 0, -np.inf, a)
    axes = tuple(range(a.ndim)) if axis is None else axis

    def total(x: Any) -> Any:
        return np.sum(x if b is None else b * x, axis=axes, keepdims=True, dtype=a.dtype)

    largest = np.max(a, axis=axes, keepdims=True)
    is_largest = a == largest
    others = np.where(is_largest, -np.inf, a) - np.where(np.isfinite(largest), largest, 0)
    most, rest = total(is_largest.astype(a.dtype)), total(np.exp(others))
    rest = np.where(rest == 0, rest, rest / most)
    sign = np.sign(rest + 1) * np.sign(most)
    result = np.log1p(np.where(rest < -1, -rest - 2, rest)) + np.log(np.abs(most)) + largest
    if b is None:
        sign = np.where(np.isnan(result), result, result != -np.inf)
    else:
        result = result if return_sign else np.where(sign < 0, np.nan, result)
        finite = np.isfinite(result)  # elsewhere weights cancel, or are infinite: as NumPy has it
        plain = np.where(finite, 1, total(np.exp(np.where(finite, 0, a))))
        result = np.where(finite, result, np.log(np.abs(plain) if return_sign else plain))
        sign = np.where(finite, sign, np.sign(plain))
    results = (result, sign.astype(result.dtype)) if return_sign else (result,)
    shaped = tuple(x if keepdims else np.squeeze(x, axes) for x in results)
    return shaped if return_sign else shaped[0]


def _floats_of_one_dtype(a: Any, b: Any) -> tuple[Any, Any]:
    """The terms and their weights, or None, of one shape. Raises UnsupportedError for complex or no terms."""
    given = [x if isinstance(x, (int, float)) else to_traced_array(x) for x in (a, b) if x is not None]
    dtype = np.result_type(*(getattr(x, "dtype", x) for x in given), 0.0)
    if dtype_kind(dtype) != "f":
        raise UnsupportedError("logsumexp of complex numbers cannot be traced; call it outside of the traced function")
    if all(dtype_kind(getattr(x, "dtype", np.dtype(int))) != "f" for x in given):
        dtype = np.dtype(float)
    terms, *weights = np.broadcast_arrays(*(np.atleast_1d(to_traced_array(x).astype(dtype)) for x in given))
    if not terms.size:
        raise UnsupportedError("logsumexp of no terms cannot be traced; call it outside of the traced function")
    return terms, weights[0] if weights else None


_TRACED: dict[str, Callable[..., Any]] = {"softmax": _softmax, "log_softmax": _log_softmax, "logsumexp": _logsumexp}


def traced_function_of_scipy(value: Any) -> Callable[..., Any] | None:
    """What does a function of SciPy's in a trace, or None where SciPy itself does it."""
    traced = _TRACED.get(getattr(value, "__name__", ""))
    public: Any = getattr(sys.modules.get("scipy.special"), getattr(value, "__name__", ""), None)
    if traced is None or public is not value:
        return None
    return partial(_call_traced_or_scipys, traced, value)


def _call_traced_or_scipys(traced: Callable[..., Any], real: Callable[..., Any], *args: Any, **options: Any) -> Any:
    if is_traced([*args, *options.values()]):
        return traced(*args, **options)
    return numpy_result_as_traced_constant(real(*args, **options))
