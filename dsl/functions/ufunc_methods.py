"""The methods of ufuncs: reduce and outer in kernels, accumulate, reduceat and at by NumPy on the host."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.errors import DTypeError, IndexingError, ShapeError, UnsupportedError
from ..core.spec import checked_dtype, to_index
from ..trace.aliasing import assign_to_tracer
from ..trace.dispatch import FUNCTIONS, METHODS, UFUNCS
from ..trace.items import convert_operand_for_element
from ..trace.operands import (
    axes_without_booleans,
    new_traced_result,
    shape_without_axes,
    to_axes_of_operand,
    to_axis_of_operand,
    to_traced_array,
)
from ..trace.tracer import Tracer
from .elementwise import call_ufunc, fitting_ufunc_where_mask
from .gather import known_index_array
from .host_calls import assign_to_out, host_call_of_one_result, require_known_numpy_option
from .reduction_calls import NO_VALUE, REDUCED_BY, call_as_numpy


def reduce_ufunc(ufunc: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, **options: Any) -> Any:
    """`ufunc.reduce(array, axis=0, ...)`; where there is no kernel for it NumPy does it on the host."""
    given = {k: v for k, v in options.items() if v is not NO_VALUE and (v is not None or k == "where")}
    reduction = FUNCTIONS.get(REDUCED_BY.get(ufunc))
    if "initial" in given and ufunc in (np.logical_and, np.logical_or):
        rest = reduce_ufunc(ufunc, array, axis, dtype, **{**given, "initial": None})
        truth = call_ufunc(
            ufunc, rest, new_traced_result(convert_operand_for_element(rest._trace, given["initial"], rest.dtype))
        )
        return assign_to_out(truth, _single_ufunc_out_argument(out))
    if reduction is None:
        return general_reduce(ufunc, array, axis, dtype, out, **given)
    if dtype is not None and ufunc in (np.add, np.multiply):
        given["dtype"] = dtype
    elif dtype is not None:
        array = METHODS["astype"](to_traced_array(array), dtype)
    return reduction(array, axis, out=_single_ufunc_out_argument(out), **given)


def outer_ufunc(ufunc: np.ufunc, a: Any, b: Any, **options: Any) -> Any:
    """`ufunc.outer(a, b)`: every element of `a` with every element of `b`."""
    x, y = to_traced_array(a), to_traced_array(b)
    return call_ufunc(ufunc, METHODS["reshape"](x, x.shape + (1,) * y.ndim), y, **options)


def _single_ufunc_out_argument(out: Any) -> Any:
    return out[0] if isinstance(out, tuple) else out


def _ufunc_method_axis(x: Tracer, axis: Any, what: str) -> int:
    """The axis that NumPy counts along. Raises AxisError, DTypeError."""
    at = axes_without_booleans(axis)
    if not x.ndim and at in (0, -1):
        raise DTypeError(f"cannot {what} on a scalar; write x[None]")
    return to_axis_of_operand(at, x.ndim)


def accumulate_ufunc(ufunc: np.ufunc, array: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Tracer:
    """`ufunc.accumulate(array, axis=0)`: as many results as elements."""
    x = to_traced_array(array)
    at = _ufunc_method_axis(x, axis, "accumulate")
    wanted = None if dtype is None else checked_dtype(dtype)
    return host_call_of_one_result(
        "accumulate", [x], x.shape, _single_ufunc_out_argument(out), ufunc=ufunc.__name__, axis=at, dtype=wanted
    )


def reduceat_ufunc(
    ufunc: np.ufunc, array: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
) -> Tracer:
    """`ufunc.reduceat(array, indices, axis=0)`: one result for each index."""
    x, at = to_traced_array(array), to_traced_array(indices)
    where = _ufunc_method_axis(x, axis, "reduceat")
    shape = (*x.shape[:where], at.size, *x.shape[where + 1 :])
    tiny = [(2,) * x.ndim, (2,)]
    wanted = None if dtype is None else checked_dtype(dtype)
    return host_call_of_one_result(
        "reduceat",
        [x, at],
        shape,
        _single_ufunc_out_argument(out),
        tiny=tiny,
        ufunc=ufunc.__name__,
        axis=where,
        dtype=wanted,
    )


def at_ufunc(ufunc: np.ufunc, a: Any, indices: Any, b: Any = None) -> None:
    """`ufunc.at(a, indices, b)`: in place, an index that comes twice counting twice."""
    if not isinstance(a, Tracer):
        raise UnsupportedError(f"np.{ufunc.__name__}.at on an array that is no argument; pass it as an argument")
    key, arrays = static_key_of_ufunc_at(indices)
    operands = [] if b is None else [to_traced_array(b)]
    options = {"ufunc": ufunc.__name__, "key": key}
    if not a.size:
        _check_at_of_no_elements(ufunc, a, indices, operands)
    assign_to_tracer(
        a, host_call_of_one_result("at", [a, *arrays, *operands], a.shape, dtypes=[a.dtype], **options), "unsafe"
    )


def _check_at_of_no_elements(ufunc: np.ufunc, a: Tracer, indices: Any, operands: Sequence[Tracer]) -> None:
    """Raises what NumPy raises where nothing is computed, and nothing runs; indices that are not known count as 0."""

    def known_index(entry: Any) -> Any:
        if not isinstance(entry, (Tracer, np.ndarray, list, tuple)):
            return entry
        known = known_index_array(entry)
        return np.zeros(np.shape(entry), np.intp) if known is None or not known.size else known

    entries = tuple(map(known_index, indices if isinstance(indices, tuple) else (indices,)))
    try:
        ufunc.at(np.zeros(a.shape, a.dtype), entries, *(np.zeros(x.shape, x.dtype) for x in operands))
    except IndexError as error:
        raise IndexingError(str(error)) from None
    except TypeError as error:
        raise DTypeError(str(error)) from None
    except ValueError as error:
        raise ShapeError(str(error)) from None


def static_key_of_ufunc_at(indices: Any) -> tuple[tuple[Any, ...], list[Tracer]]:
    """A key of `x[...]` as an option of a host call, and its arrays."""
    entries: list[Any] = []
    arrays: list[Tracer] = []
    for entry in indices if isinstance(indices, tuple) else (indices,):
        if isinstance(entry, slice):
            entries.append(tuple(require_known_numpy_option(v) for v in (entry.start, entry.stop, entry.step)))
        elif entry is None or entry is Ellipsis:
            entries.append(entry)
        elif isinstance(entry, (Tracer, np.ndarray, list, tuple)):
            index = to_traced_array(np.empty(0, np.intp) if isinstance(entry, list) and not entry else entry)
            if index.dtype.kind not in "iub":
                raise IndexingError(f"arrays used as indices must be of integer (or boolean) type, not {index.dtype}")
            entries.append("array")
            arrays.append(index)
        else:
            entries.append(to_index(require_known_numpy_option(entry), "an index"))
    return tuple(entries), arrays


def general_reduce(
    ufunc: np.ufunc,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = None,
    where: Any = True,
) -> Tracer:
    """`ufunc.reduce(array, ...)` of a ufunc that has no kernel for it."""
    x = to_traced_array(array)
    mask = None if where is True else fitting_ufunc_where_mask(where, x.shape)
    if not x.ndim:
        to_axes_of_operand(axes_without_booleans(axis), 1)
        x, axis, keepdims = METHODS["reshape"](x, (1,)), 0, False
    axes = to_axes_of_operand(axes_without_booleans(axis), x.ndim)
    keep = keepdims is True
    shape = shape_without_axes(x.shape, axes, keep)
    options: dict[str, Any] = {"axis": axes if len(axes) != 1 else axes[0], "keepdims": keep}
    if initial is not None:
        options["initial"] = require_known_numpy_option(initial)
    arrays = [x] if mask is None else [x, mask]
    if dtype is not None:
        options["dtype"] = checked_dtype(dtype)
    return host_call_of_one_result(
        "ufunc_reduce", arrays, shape, _single_ufunc_out_argument(out), ufunc=ufunc.__name__, **options
    )


def _reduce_as_numpy(ufunc: np.ufunc, *args: Any, **options: Any) -> Any:
    return call_as_numpy(f"{ufunc.__name__}.reduce", functools.partial(reduce_ufunc, ufunc), args, options)


UFUNCS["reduce"] = _reduce_as_numpy
UFUNCS["outer"] = outer_ufunc
UFUNCS["accumulate"] = accumulate_ufunc
UFUNCS["reduceat"] = reduceat_ufunc
UFUNCS["at"] = at_ufunc
