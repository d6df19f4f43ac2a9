"""NumPy's functions in the body of a recorded loop: what those of `dsl/functions` are made of, and some of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...compiler.core.types import INT64, DType
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.ops.table import OPS, resolve_op_row_dtypes
from ..core.errors import is_own_mistake
from ..trace.dispatch import FUNCTIONS, GIVES, METHODS, UFUNCS
from ..trace.trace import LoopNotRecordable
from .linear import LinearExpression
from .values import FixedLoopError, LazyLoopElements, LoopArray, LoopArraySection, LoopNumber, LoopSymbol, Recorder

PRODUCT = 1 << 20  # multiplications of a product of matrices from which a library is faster


def record_numpy_call_in_loop(
    recorder: Recorder, function: Any, args: Sequence[Any], options: dict[str, Any], creates: Any = None
) -> Any:
    """A function of NumPy's. creates: what does it in a trace, of one that makes arrays. Raises LoopNotRecordable."""
    if isinstance(function, np.ufunc):
        inputs, out = args[: function.nin], args[function.nin :]
        return record_ufunc_call_in_loop(
            recorder, function, "__call__", inputs, {"out": out, **options} if out else options
        )
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return record_ufunc_call_in_loop(recorder, owner, function.__name__, args, options)
    own, name = OWN_FUNCTIONS.get(function), getattr(function, "__name__", str(function))
    shared = creates if function in CREATION else FUNCTIONS.get(function)
    row: Any = shared if own is None else partial(own, recorder)
    if row is None:
        raise LoopNotRecordable(f"np.{name} is called in it")
    return _call_in_loop(recorder, name, row, args, options)


def record_ufunc_call_in_loop(
    recorder: Recorder, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]
) -> Any:
    """A ufunc, or a method of one."""
    handler = UFUNCS.get(method)
    if handler is None:
        raise LoopNotRecordable(f"np.{ufunc.__name__}.{method}")
    name = ufunc.__name__ if method == "__call__" else method
    return _call_in_loop(recorder, name, partial(handler, ufunc), inputs, options)


def recorded_attribute_of_loop_array(recorder: Recorder, x: LoopSymbol, name: str) -> Any:
    """`x.name`, an attribute or a method ready to be called."""
    if isinstance(x, LoopNumber) and x.weak not in (None, complex):
        raise LoopNotRecordable(f"the attribute .{name} of a number of Python's is used in it")
    if name in ("real", "imag"):
        return record_numpy_call_in_loop(recorder, np.real if name == "real" else np.imag, (x,), {})
    row = METHODS.get(name)
    if row is None:
        raise LoopNotRecordable(f"the attribute .{name} is used in it")
    return lambda *args, **options: _call_in_loop(recorder, name, row, (x, *args), options)


def _call_in_loop(recorder: Recorder, name: str, row: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """What a row gives, in memory of its own where NumPy gives a copy."""
    try:
        result = row(*args, **options)
    except Exception as error:
        if is_own_mistake(error):
            raise
        raise LoopNotRecordable(f"{name}(): {error}") from error
    if name in GIVES and isinstance(result, LoopArray) and all(result is not x for x in (*args[1:], *options.values())):
        return recorder.apart_from_views(result)
    return result


# reductions


def record_reduction_in_loop(recorder: Recorder, op: str, x: Any, axes: Sequence[int], dtype: DType | None) -> Any:
    """Row `op` of an array along axes."""
    if not isinstance(x, LoopArray):
        raise LoopNotRecordable(f"np.{op} of a number")
    name = op.removeprefix("arg")
    x = recorder.light(x)
    loop, result = resolve_op_row_dtypes(OPS[name], [x.dtype], dtype)
    recorder.check_dtype(result)
    if loop[0].kind == "c" and op != "sum":
        raise LoopNotRecordable(f"np.{op} of complex numbers")
    if name in ("min", "max"):
        what = f"zero-size array to reduction operation {op}imum which has no identity"
        if op != name:
            what = f"attempt to get {op} of an empty sequence"
        for n in (x.expression.shape[i] for i in axes):
            if not n.is_at_least(1):
                recorder.fail_if(recorder.emit(n).eq(0), recorder.zero(), FixedLoopError(ValueError, what))
    if op != name:
        return _record_place_of_extreme_in_loop(recorder, name, x)
    return record_elements_reduction_in_loop(recorder, op, x.expression, axes, loop[0], result)


def _record_place_of_extreme_in_loop(recorder: Recorder, op: str, x: LoopArray) -> LoopNumber:
    """Where a vector's least (greatest) element stands: the first one; of NaN the first of these."""
    if x.ndim != 1:
        raise LoopNotRecordable(f"np.arg{op} of an array of several axes")
    recorder.materialize(x)
    (n,) = x.expression.shape
    best = record_elements_reduction_in_loop(recorder, op, x.expression, [0], x.dtype, x.dtype)
    here = recorder.map("logical_or", recorder.map("equal", x, best), recorder.map("not_equal", x, x))
    indices = LoopArray(recorder, LazyLoopElements((n,), INT64, lambda idx: idx[0], ()))
    found = recorder.map("where", here, indices, recorder.extent(n)).expression
    place: LoopNumber = record_elements_reduction_in_loop(recorder, "min", found, [0], INT64, INT64)
    place.index = recorder.atom(place.value, (LinearExpression(0),), (n - 1,))
    return place


def record_elements_reduction_in_loop(
    recorder: Recorder, op: str, source: LazyLoopElements, axes: Sequence[int], dtype: DType, result: DType
) -> Any:
    """The elements of `source`, cast to dtype, reduced along axes."""
    kept = [i for i in range(len(source.shape)) if i not in axes]

    def reduced_element_in_loop(idx: Sequence[KernelValue]) -> KernelValue:
        index: dict[int, KernelValue] = dict(zip(kept, idx, strict=True))

        def fold_over_axes_in_loop(rest: Sequence[int]) -> KernelValue:
            if not rest:
                return source.element([index[i] for i in range(len(source.shape))]).cast(dtype)
            n = source.shape[rest[0]]
            if n.known == 1:
                index[rest[0]] = recorder.zero()
                return fold_over_axes_in_loop(rest[1:])
            start = recorder.emit(LinearExpression(0))
            stop = recorder.emit(n)
            with recorder.turns_of(LinearExpression(0), n, parallel=True, adds=False, folds=True) as (counter, scope):
                index[rest[0]] = counter
                value = fold_over_axes_in_loop(rest[1:])
            found: KernelValue = recorder.body.fold(op, dtype, start, stop, counter, scope, value)
            return found

        return fold_over_axes_in_loop(list(axes)).cast(result)

    recorder._note_loop_size([source.shape[i] for i in axes])
    columns = _record_column_sums_in_loop(recorder, op, source, kept, axes, dtype) if result == dtype else None
    return array_of_folded_elements(recorder, source, axes, result, reduced_element_in_loop, columns)


def array_of_folded_elements(
    recorder: Recorder,
    source: LazyLoopElements,
    axes: Sequence[int],
    dtype: DType,
    element: Callable[[Sequence[KernelValue]], KernelValue],
    columns: Any = None,
) -> Any:
    """An array without axes of the source's, or a number. element: one of it, of what the source has along them."""
    kept = [i for i in range(len(source.shape)) if i not in axes]
    if not kept:
        return LoopNumber(recorder, element([]))
    places = {old: new for new, old in enumerate([*kept, *axes])}
    shape = tuple(source.shape[i] for i in kept)
    full = (*shape, *(source.shape[i] for i in axes))
    leaves = tuple(
        LoopArraySection(
            leaf.storage,
            tuple((start, step, places.get(axis, axis)) for start, step, axis in leaf.subs),
            (*full, *leaf.shape[len(source.shape) :]),
        )
        for leaf in source.leaves
    )
    return LoopArray(recorder, LazyLoopElements(shape, dtype, element, leaves, True, columns))


def _record_column_sums_in_loop(
    recorder: Recorder, op: str, source: LazyLoopElements, kept: Sequence[int], axes: Sequence[int], dtype: DType
) -> Callable[[LoopArraySection], None] | None:
    """Writes sums row after row. That is where a row's elements lie side by side and a column's do not."""
    if op != "sum" or len(axes) != 1 or not kept or dtype.kind != "f":
        return None
    inner, (along,) = kept[-1], axes

    if not any(leaf.stride(inner) == 1 and leaf.stride(along) > 1 for leaf in source.leaves):
        return None

    def write_column_sums_in_loop(target: LoopArraySection) -> None:
        n = source.shape[along]
        with recorder.turns_of(LinearExpression(0), n, parallel=False) as (r, _):

            def add_row_element_in_loop(idx: Sequence[KernelValue]) -> None:
                index = dict(zip(kept, idx, strict=True)) | {along: r}
                term = source.element([index[i] for i in range(len(source.shape))]).cast(dtype)
                recorder._put(target, idx, recorder.load(target, idx) + term)

            recorder.each([source.shape[i] for i in kept], add_row_element_in_loop)

    return write_column_sums_in_loop


# products


def check_product_is_of_loop(x: LoopArray, y: LoopArray) -> None:
    """Raises LoopNotRecordable for matrices that a library multiplies sooner."""
    many = 1
    for n in (*x.expression.shape, *y.expression.shape[-1:]):
        many *= n.greatest if n.greatest is not None else 64
    if x.ndim > 1 and y.ndim > 1 and many >= PRODUCT:
        raise LoopNotRecordable("a library multiplies its matrices")


# what is a function of its own there


def _mask_of_recorded_array(recorder: Recorder, a: Any) -> LoopArray:
    x = recorder.lift(a)
    if not isinstance(x, LoopArray) or not x.ndim:
        raise LoopNotRecordable("a number is asked where it holds")
    found: LoopArray = x if x.dtype.kind == "b" else recorder.map("not_equal", x, 0)
    return found


def record_nonzero_in_loop(recorder: Recorder, a: Any) -> tuple[LoopArray, ...]:
    found: tuple[LoopArray, ...] = recorder.indices_of_mask(_mask_of_recorded_array(recorder, a))
    return found


def record_flatnonzero_in_loop(recorder: Recorder, a: Any) -> Any:
    mask = _mask_of_recorded_array(recorder, a)
    if mask.ndim != 1:
        raise LoopNotRecordable("np.flatnonzero of an array of several axes")
    return recorder.indices_of_mask(mask)[0]


def record_extract_in_loop(recorder: Recorder, condition: Any, arr: Any) -> Any:
    return recorder.lift(arr)[_mask_of_recorded_array(recorder, condition)]


# of NumPy's functions that make arrays
CREATION = (
    np.zeros, np.ones, np.empty, np.full, np.zeros_like, np.ones_like, np.empty_like, np.full_like, np.array, np.copy
)  # fmt: skip
OWN_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.nonzero: record_nonzero_in_loop,
    np.flatnonzero: record_flatnonzero_in_loop,
    np.extract: record_extract_in_loop,
}
