"""Calls that NumPy does on the host, each one task: arrays and options in, traced results out.

The rule of a function gives the shapes of its results. Their dtypes are NumPy's own, found by calling the function on
arrays of one element; the real computation never runs while tracing.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...runtime.interpret.numpy_calls import HOST
from ..core.errors import DTypeError, ShapeError
from ..core.exact import exact_key_of_value
from ..trace.aliasing import assign_to_tracer
from ..trace.failures import check_failure_is_possible, fail_where, is_failure_awaited, note_host_call
from ..trace.operands import loop_operations, new_traced_result, to_traced_array
from ..trace.tracer import TracedNumber, Tracer

Shape = tuple[int, ...]
Tiny = tuple[tuple[Shape, np.dtype[Any]], ...]


def host_call(
    function: str,
    arrays: Sequence[Any],
    shapes: Sequence[Shape],
    dtypes: Sequence[Any] | None = None,
    tiny: Sequence[Shape] | None = None,
    **options: Any,
) -> list[Tracer]:
    """What row `function` of the table of host calls gives: one array for each of `shapes`.

    dtypes: the results', where they are known. tiny: shapes on which the function can be asked for its dtypes, where
    one element for each argument will not do. Raises DTypeError, ShapeError where NumPy refuses those."""
    if (loop := loop_operations()) is not None:
        return [loop.host_call(function, arrays, options)]
    inputs = [to_traced_array(a) for a in arrays]
    given = {k: v for k, v in options.items() if v is not None}
    if dtypes is None:
        small = tuple((1,) * x.ndim for x in inputs) if tiny is None else tuple(tiny)
        kinds = tuple((s, x.dtype) for s, x in zip(small, inputs, strict=True))
        settings = tuple(sorted(given.items()))
        dtypes = _host_call_result_dtypes(function, kinds, settings, exact_key_of_value(settings))
    types = [ArrayType(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    builder = inputs[0]._trace.builder
    values = builder.host(function, [x._value for x in inputs], types, **given)
    if function in _MAY_RAISE or (function.startswith("linalg.") and function not in _NEVER_RAISE):
        note_host_call(inputs[0]._trace, function, values)
    return [new_traced_result(value, *inputs) for value in values]


def host_call_of_one_result(
    function: str, arrays: Sequence[Any], shape: Shape, out: Any = None, **options: Any
) -> Tracer:
    """`host_call` of a function with one result, written to `out` if that is given."""
    (result,) = host_call(function, arrays, [shape], **options)
    return assign_to_out(result, out)


def host_call_of_any_arrays(function: str, arrays: Sequence[Any], shape: Shape, /, **options: Any) -> Any:
    """`host_call` of a function with one result, in the dtype of all arrays; at once where none is traced."""
    if not any(isinstance(a, Tracer) for a in arrays):
        return HOST[function](*arrays, **options)
    return host_call(function, arrays, [shape], [np.result_type(*(a.dtype for a in arrays))], **options)[0]


def require(result: Tracer, condition: Tracer, error: type[Exception], text: str) -> Tracer:
    """The result; the call raises the error of Python's where the condition does not hold."""
    trace = result._trace
    if is_failure_awaited(trace) or (trace.reruns and not (trace.depth or trace.deriving)):
        fail_unless(condition, error, text)
        return result
    options = {"error": error.__name__, "text": text}
    return host_call_of_one_result("require", [result, condition], result.shape, dtypes=[result.dtype], **options)


def fail_unless(condition: Any, error: type[Exception], text: str) -> None:
    """Notes that Python raises an error where a flag is not set, if one can be noted."""
    trace = condition._trace
    if not (trace.depth or trace.deriving):
        check_failure_is_possible(trace, error(text))
        fail_where(trace, trace.builder.map("logical_not", condition._value), error(text))


def assign_to_out(result: Tracer, out: Any) -> Tracer:
    """The result, or `out` with the result in it."""
    return result if out is None else assign_to_tracer(out, result)


def assign_to_converted_numpy_out(result: Tracer, out: Any) -> Tracer:
    """`assign_to_out` of what makes `out` an array of the result's dtype first, and casts back. Raises DTypeError."""
    require_out_to_convert(out, result.shape, result.dtype)
    return result if out is None else assign_to_tracer(out, result, "unsafe")


def require_out_to_convert(out: Any, shape: Shape, dtype: np.dtype[Any]) -> None:
    """What NumPy asks of such an `out` before it looks at an element. Raises ShapeError, DTypeError."""
    if not isinstance(out, Tracer):
        return
    if out.shape != shape:
        raise ShapeError(f"a result of shape {shape} cannot be written in place into shape {out.shape}")
    if not np.can_cast(out.dtype, dtype):
        raise DTypeError(
            f"Cannot cast array data from {out.dtype!r} to {dtype!r} according to the rule 'safe'; "
            f"pass an out= of {dtype}"
        )


def require_known_numpy_option(x: Any) -> Any:
    """The value of an option that may be a number of the call: the trace starts again where it is not known yet."""
    if type(x) is TracedNumber:
        raise x._need_number_value()
    if isinstance(x, Tracer):
        return x._known_scalar("cannot be an option of a NumPy function", "pass it as a Python number").tolist()
    if isinstance(x, (list, tuple)):
        return type(x)(require_known_numpy_option(i) for i in x)
    return x


def require_known_numpy_scalar(x: Any) -> Any:
    """`require_known_numpy_option` of one number, which stays a NumPy scalar where it is one."""
    return (
        x._known_scalar("cannot be an option of a NumPy function", "pass it as a Python number")[()]
        if (isinstance(x, Tracer))
        else require_known_numpy_option(x)
    )


_NEVER_RAISE = frozenset({"linalg.det", "linalg.slogdet", "linalg.qr"})  # of `linalg`, whatever the values are
_MAY_RAISE = frozenset({  # of the others; an index of `setitem` is looked at where it is written
    "at", "bincount", "choose", "digitize", "histogram", "histogramdd", "nanargmax", "nanargmin", "nonempty", "put",
    "put_along_axis", "ravel_multi_index", "reduceat", "require", "unravel_index",
})  # fmt: skip


@lru_cache(4096)
def _host_call_result_dtypes(
    function: str, arrays: Tiny, options: tuple[tuple[str, Any], ...], exactly: Hashable
) -> tuple[np.dtype[Any], ...]:
    """The dtypes of the results for arrays of these shapes and dtypes, all of ones. exactly: tells the options 1, 1.0
    and True apart, whose results differ."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = HOST[function](*(np.ones(shape, dtype) for shape, dtype in arrays), **dict(options))
    except TypeError as error:
        raise DTypeError(f"np.{function}: {error}; convert the arguments with x.astype(...)") from None
    except (ValueError, np.linalg.LinAlgError) as error:
        raise ShapeError(f"np.{function}: {error}") from None
    every = results if isinstance(results, tuple) else (results,)
    return tuple(np.asarray(r).dtype for r in every)
