"""NumPy's functions on what the body of a recorded loop computes with: a table of those that are followed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import INT64, DType
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.ops.table import OPS, UFUNC_PARTS, resolve_op_row_dtypes
from ...compiler.sequential.form import For
from ..trace.trace import LoopNotRecordable
from .gather import record_indices_of_loop_mask
from .items import checked_axes_in_loop
from .kinds import joined_loop_number_kinds, loop_kinds_of
from .linear import LinearExpression
from .values import FixedLoopError, LazyLoopElements, LoopArray, LoopArraySection, LoopNumber, LoopSymbol, Recorder

PRODUCT = 1 << 20  # multiplications of a product of matrices from which a library is faster


def record_numpy_call_in_loop(recorder: Recorder, function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """A function of NumPy's. Raises LoopNotRecordable."""
    if isinstance(function, np.ufunc):
        return record_ufunc_call_in_loop(recorder, function, "__call__", args, options)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return record_ufunc_call_in_loop(recorder, owner, function.__name__, args, options)
    row = FUNCTIONS.get(function)
    if row is None:
        raise LoopNotRecordable(f"np.{getattr(function, '__name__', function)} is called in it")
    try:
        return row(recorder, *args, **options)
    except TypeError as error:
        raise LoopNotRecordable(f"np.{function.__name__}: {error}") from error


def record_ufunc_call_in_loop(
    recorder: Recorder, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]
) -> Any:
    """A ufunc, or a method of one."""
    if method != "__call__":
        return _record_ufunc_method_in_loop(recorder, ufunc, method, inputs, options)
    if ufunc is np.matmul and not options:
        return record_matmul_in_loop(recorder, *inputs)
    parts, out, dtype = UFUNC_PARTS.get(ufunc), options.get("out"), options.get("dtype")
    if set(options) - {"out", "dtype"} or parts is None:
        raise LoopNotRecordable(f"np.{ufunc.__name__}")
    if dtype is not None:
        inputs = [record_astype_in_loop(recorder, x, dtype) for x in inputs]
    if ufunc is np.power:
        found: Any = recorder.power(*inputs)
    else:
        several = tuple(recorder.map(part, *inputs) for part in parts)
        found = several if len(several) > 1 else several[0]
    targets = out if isinstance(out, tuple) else (out,)
    if len(targets) == 1 and targets[0] is None:
        return cast_to_numpy_type_in_loop(recorder, found)
    if isinstance(found, tuple) or len(targets) > 1:
        raise LoopNotRecordable(f"np.{ufunc.__name__} with out=")
    return _record_store_into_loop_out(recorder, targets[0], found)


def _record_ufunc_method_in_loop(
    recorder: Recorder, ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]
) -> Any:
    if method == "outer" and not options and len(inputs) == 2:
        return record_ufunc_call_in_loop(recorder, ufunc, "__call__", _outer_operands_in_loop(recorder, *inputs), {})
    if method == "reduce" and len(inputs) == 1 and ufunc in _REDUCTIONS:
        return record_reduction_in_loop(recorder, _REDUCTIONS[ufunc], inputs[0], **{"axis": 0, **options})
    raise LoopNotRecordable(f"np.{ufunc.__name__}.{method}")


def _outer_operands_in_loop(recorder: Recorder, *operands: Any) -> tuple[Any, Any]:
    """The operands with axes for each other's."""
    a, b = map(recorder.lift, operands)
    if isinstance(a, LoopArray):
        for _ in range(b.ndim if isinstance(b, LoopArray) else 0):
            a = a[..., None]
    return a, b


_REDUCTIONS: dict[np.ufunc, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.minimum: "min",
    np.maximum: "max",
    np.logical_and: "all",
    np.logical_or: "any",
}


def cast_to_numpy_type_in_loop(recorder: Recorder, x: Any) -> Any:
    """What NumPy's functions give is of NumPy's types, not Python's."""
    if isinstance(x, LoopNumber) and (x.weak is not None or x.others):
        (dtype, _), *others = joined_loop_number_kinds((dtype, None) for dtype, _ in loop_kinds_of(x))
        return LoopNumber(recorder, x.value.cast(dtype), None, None, others)
    return x


def _record_store_into_loop_out(recorder: Recorder, target: Any, value: Any) -> Any:
    array = recorder.lift(target)
    value = recorder.lift(value)
    if not isinstance(array, LoopArray):
        raise LoopNotRecordable("out= is no array")
    kind = value.dtype if isinstance(value, LoopSymbol) else np.asarray(value).dtype
    shape = value.expression.shape if isinstance(value, LoopArray) else ()
    if not np.can_cast(kind, array.dtype, "same_kind") or shape != array.expression.shape:
        raise LoopNotRecordable("out= has another dtype or shape")
    recorder.assign(recorder.materialize(array), value)
    return target


# reductions


def record_reduction_in_loop(
    recorder: Recorder, op: str, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False
) -> Any:
    """The reduction `op` of an array."""
    x = recorder.lift(a)
    if not isinstance(x, LoopArray) or out is not None or keepdims not in (False, np._NoValue):
        raise LoopNotRecordable(f"np.{op} with these arguments")
    x = recorder.light(x)
    axes = checked_axes_in_loop(axis, x.ndim)
    loop, result = resolve_op_row_dtypes(OPS[op], [x.dtype], None if dtype is None else np.dtype(dtype))
    recorder.check_dtype(result)
    if loop[0].kind == "c" and op != "sum":
        raise LoopNotRecordable(f"np.{op} of complex numbers")
    if op in ("min", "max"):
        for n in (x.expression.shape[i] for i in axes):
            if not n.is_at_least(1):
                what = f"zero-size array to reduction operation {op}imum which has no identity"
                recorder.fail_if(recorder.emit(n).eq(0), recorder.zero(), FixedLoopError(ValueError, what))
    return record_elements_reduction_in_loop(recorder, op, x.expression, axes, loop[0], result)


def record_elements_reduction_in_loop(
    recorder: Recorder, op: str, source: LazyLoopElements, axes: Sequence[int], dtype: DType, result: DType
) -> Any:
    """The elements of `source`, cast to dtype, reduced along axes."""
    kept = [i for i in range(len(source.shape)) if i not in axes]
    shape = tuple(source.shape[i] for i in kept)

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
            counter = recorder.body.value(INT64)
            many = n.greatest
            before, recorder.weight = recorder.weight, recorder.weight * (many if many is not None else 64)
            recorder.turns += recorder.weight
            if recorder.parallel:
                recorder.wide += recorder.weight
            else:
                recorder.meets += before
            recorder.width = max(recorder.width, recorder.step * (many if many is not None else 64))
            recorder.parallel += 1
            with recorder.block() as scope:
                index[rest[0]] = counter
                value = fold_over_axes_in_loop(rest[1:])
            recorder.parallel -= 1
            recorder.weight = before
            found: KernelValue = recorder.body.fold(op, dtype, start, stop, counter, scope, value)
            return found

        return fold_over_axes_in_loop(list(axes)).cast(result)

    recorder._note_loop_size([source.shape[i] for i in axes])
    if not kept:
        return LoopNumber(recorder, reduced_element_in_loop([]))
    places = {old: new for new, old in enumerate([*kept, *axes])}
    full = (*shape, *(source.shape[i] for i in axes))
    leaves = tuple(
        LoopArraySection(
            leaf.storage,
            tuple((start, step, places.get(axis, axis)) for start, step, axis in leaf.subs),
            (*full, *leaf.shape[len(source.shape) :]),
        )
        for leaf in source.leaves
    )
    columns = _record_column_sums_in_loop(recorder, op, source, kept, axes, dtype) if result == dtype else None
    expression = LazyLoopElements(shape, result, reduced_element_in_loop, leaves, True, columns)
    return LoopArray(recorder, expression)


def _record_column_sums_in_loop(
    recorder: Recorder, op: str, source: LazyLoopElements, kept: Sequence[int], axes: Sequence[int], dtype: DType
) -> Callable[[LoopArraySection], None] | None:
    """Writes sums row after row. That is where a row's elements lie side by side and a column's do not."""
    if op != "sum" or len(axes) != 1 or not kept or dtype.kind != "f":
        return None
    inner, (along,) = kept[-1], axes

    def stride_of_leaf_in_loop(leaf: LoopArraySection, axis: int) -> int:
        steps = zip(leaf.subs, leaf.storage.strides, strict=True)
        return sum(abs(step * s) for (_, step, own), s in steps if own == axis)

    if not any(
        stride_of_leaf_in_loop(leaf, inner) == 1 and stride_of_leaf_in_loop(leaf, along) > 1 for leaf in source.leaves
    ):
        return None

    def write_column_sums_in_loop(target: LoopArraySection) -> None:
        n = source.shape[along]
        with recorder.turns_of(LinearExpression(0), n, parallel=False) as (r, scope):

            def add_row_element_in_loop(idx: Sequence[KernelValue]) -> None:
                index = dict(zip(kept, idx, strict=True)) | {along: r}
                term = source.element([index[i] for i in range(len(source.shape))]).cast(dtype)
                recorder._put(target, idx, recorder.load(target, idx) + term)

            recorder.each([source.shape[i] for i in kept], add_row_element_in_loop)
        ends = recorder.emit(LinearExpression(0)).numbers[0], recorder.emit(n).numbers[0]
        recorder.body.add(For(r.numbers[0], *ends, tuple(scope.statements), False))

    return write_column_sums_in_loop


def _argmin_or_argmax_recorder_of_loop(op: str) -> Callable[..., Any]:
    def record_argmin_or_argmax_in_loop(
        recorder: Recorder, a: Any, axis: Any = None, out: Any = None, keepdims: Any = False
    ) -> Any:
        """Where a vector's least (greatest) element stands: the first one; of NaN the first of these."""
        x = recorder.lift(a)
        if not isinstance(x, LoopArray) or x.ndim != 1 or out is not None or keepdims not in (False, np._NoValue):
            raise LoopNotRecordable(f"np.arg{op} with these arguments")
        checked_axes_in_loop(axis, x.ndim)
        if x.dtype.kind == "c":
            raise LoopNotRecordable(f"np.arg{op} of complex numbers")
        (n,) = x.expression.shape
        if not n.is_at_least(1):
            what = f"attempt to get arg{op} of an empty sequence"
            recorder.fail_if(recorder.emit(n).eq(0), recorder.zero(), FixedLoopError(ValueError, what))
        recorder.materialize(x)
        source = x.expression
        best = record_elements_reduction_in_loop(recorder, op, source, [0], x.dtype, x.dtype).value
        beyond = recorder.emit(n)

        def index_where_extreme_in_loop(idx: Sequence[KernelValue]) -> KernelValue:
            value = source.element(idx)
            found: KernelValue = recorder.body.select(value.eq(best) | value.ne(value), idx[0], beyond)
            return found

        places = LazyLoopElements(source.shape, INT64, index_where_extreme_in_loop, source.leaves)
        place = record_elements_reduction_in_loop(recorder, "min", places, [0], INT64, INT64)
        place.index = recorder.atom(place.value, (LinearExpression(0),), (n - 1,))
        return place

    return record_argmin_or_argmax_in_loop


def record_mean_in_loop(
    recorder: Recorder, a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False
) -> Any:
    x = recorder.lift(a)
    if not isinstance(x, LoopArray) or dtype is not None or out is not None or keepdims is True:
        raise LoopNotRecordable("np.mean with these arguments")
    count: Any = 1
    for i in checked_axes_in_loop(axis, x.ndim):
        count = recorder.map("multiply", count, recorder.extent(x.expression.shape[i]))
    total = record_reduction_in_loop(
        recorder, "sum", record_astype_in_loop(recorder, x, np.float64) if x.dtype.kind in "biu" else x, axis
    )
    return recorder.map("divide", total, count)


# products


def record_matmul_in_loop(recorder: Recorder, a: Any, b: Any) -> Any:
    """a @ b of arrays of one or two axes."""
    x, y = recorder.lift(a), recorder.lift(b)
    if not (isinstance(x, LoopArray) and isinstance(y, LoopArray)) or x.ndim not in (1, 2) or y.ndim not in (1, 2):
        raise LoopNotRecordable("a product of arrays of more than two axes, or of no array")
    x, y = recorder.light(x), recorder.light(y)
    length, other = x.expression.shape[-1], y.expression.shape[0]
    if length != other:
        if not (length.terms or other.terms):
            raise LoopNotRecordable("the lengths of two arrays differ")
        differ = recorder.emit(length).ne(recorder.emit(other))
        recorder.fail_if(
            differ, recorder.zero(), FixedLoopError(ValueError, "matmul: the lengths of its operands differ")
        )
    loop, result = recorder.dtype_of("multiply", (x, y))
    if result.kind == "b":
        raise LoopNotRecordable("a product of booleans")
    rows, columns = x.expression.shape[:-1], y.expression.shape[1:]
    many = 1
    for n in (*rows, *columns, length):
        many *= n.greatest if n.greatest is not None else 64
    if rows and columns and many >= PRODUCT:
        raise LoopNotRecordable("a library multiplies its matrices")
    shape = (*rows, *columns, length)  # in this order: the last is summed
    r, k = len(rows), len(shape) - 1
    left = recorder.reindexed(x.expression, shape, lambda idx: [*idx[:r], idx[k]], [*range(r), k])
    right = recorder.reindexed(y.expression, shape, lambda idx: [idx[k], *idx[r:k]], [k, *range(r, k)])

    def product_of_elements_in_loop(idx: Sequence[KernelValue]) -> KernelValue:
        factors = left.element(idx).cast(loop[0]), right.element(idx).cast(loop[1])
        found: KernelValue = recorder.body.apply(OPS["multiply"], factors, result)
        return found

    product = LazyLoopElements(shape, result, product_of_elements_in_loop, (*left.leaves, *right.leaves))
    return record_elements_reduction_in_loop(recorder, "sum", product, [k], result, result)


def record_dot_in_loop(recorder: Recorder, a: Any, b: Any, out: Any = None) -> Any:
    x, y = recorder.lift(a), recorder.lift(b)
    if out is not None:
        raise LoopNotRecordable("np.dot with out=")
    if isinstance(x, LoopArray) and isinstance(y, LoopArray):
        return record_matmul_in_loop(recorder, x, y)
    return cast_to_numpy_type_in_loop(recorder, recorder.map("multiply", x, y))


def record_inner_in_loop(recorder: Recorder, a: Any, b: Any) -> Any:
    x, y = recorder.lift(a), recorder.lift(b)
    if not (isinstance(x, LoopArray) and isinstance(y, LoopArray) and x.ndim == y.ndim == 1):
        raise LoopNotRecordable("np.inner of arrays of several axes")
    return record_matmul_in_loop(recorder, x, y)


def record_outer_in_loop(recorder: Recorder, a: Any, b: Any, out: Any = None) -> Any:
    x, y = recorder.lift(a), recorder.lift(b)
    if not (isinstance(x, LoopArray) and isinstance(y, LoopArray) and x.ndim == y.ndim == 1) or out is not None:
        raise LoopNotRecordable("np.outer of arrays of several axes")
    return recorder.map("multiply", x[:, None], y)


def record_norm_in_loop(recorder: Recorder, x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    a = recorder.lift(x)
    if not isinstance(a, LoopArray) or a.ndim != 1 or ord not in (None, 2) or axis not in (None, 0) or keepdims:
        raise LoopNotRecordable("np.linalg.norm with these arguments")
    a = a if a.dtype.kind == "f" else record_astype_in_loop(recorder, a, np.float64)
    squares = record_matmul_in_loop(recorder, a, a)
    found = recorder.map("sqrt", squares)
    if not recorder.trace.deriving:
        return found
    return recorder.map("where", recorder.map("equal", squares, 0), 0.0, found)  # as `root_of_squares_for_norm`


# shapes


def record_transpose_in_loop(recorder: Recorder, a: Any, axes: Any = None) -> Any:
    x = recorder.lift(a)
    if not isinstance(x, LoopArray):
        raise LoopNotRecordable("np.transpose of a number")
    order = [*reversed(range(x.ndim))] if axes is None else [*checked_axes_in_loop(tuple(axes), x.ndim)]
    if sorted(order) != [*range(x.ndim)]:
        raise LoopNotRecordable("axes that do not match the array")
    section = recorder.materialize(x)
    places = {old: new for new, old in enumerate(order)}
    subs = tuple((start, step, places[axis] if axis >= 0 else -1) for start, step, axis in section.subs)
    return recorder.array_of_section(LoopArraySection(section.storage, subs, tuple(section.shape[i] for i in order)))


def record_flip_in_loop(recorder: Recorder, m: Any, axis: Any = None) -> Any:
    x = recorder.lift(m)
    if not isinstance(x, LoopArray):
        raise LoopNotRecordable("np.flip of a number")
    axes = checked_axes_in_loop(axis, x.ndim)
    return x[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(x.ndim))]


def record_copy_in_loop(recorder: Recorder, a: Any, order: Any = None, subok: Any = False) -> Any:
    x = recorder.lift(a)
    if not isinstance(x, LoopArray):
        raise LoopNotRecordable("np.copy of a number")
    section = recorder.temporary(x.expression.shape, x.dtype)
    recorder.assign(section, x)
    return recorder.array_of_section(section)


def record_astype_in_loop(
    recorder: Recorder, a: Any, dtype: Any, order: Any = "K", casting: Any = "unsafe", copy: Any = True
) -> Any:
    x, to = recorder.lift(a), np.dtype(dtype)
    recorder.check_dtype(to)
    if isinstance(x, LoopArray):
        source = x.expression
        converted = LazyLoopElements(
            source.shape, to, lambda i: source.element(i).cast(to), source.leaves, source.heavy
        )
        return LoopArray(recorder, converted)
    if isinstance(x, LoopNumber):
        return LoopNumber(recorder, x.value.cast(to))
    return LoopNumber(recorder, recorder.element_value(x, to))


# by value


def _mask_of_recorded_array(recorder: Recorder, a: Any) -> LoopArray:
    x = recorder.lift(a)
    if not isinstance(x, LoopArray) or not x.ndim:
        raise LoopNotRecordable("a number is asked where it holds")
    found: LoopArray = x if x.dtype.kind == "b" else recorder.map("not_equal", x, 0)
    return found


def record_nonzero_in_loop(recorder: Recorder, a: Any) -> tuple[LoopArray, ...]:
    return record_indices_of_loop_mask(recorder, _mask_of_recorded_array(recorder, a))


def record_flatnonzero_in_loop(recorder: Recorder, a: Any) -> Any:
    mask = _mask_of_recorded_array(recorder, a)
    if mask.ndim != 1:
        raise LoopNotRecordable("np.flatnonzero of an array of several axes")
    return record_indices_of_loop_mask(recorder, mask)[0]


def record_count_nonzero_in_loop(recorder: Recorder, a: Any, axis: Any = None) -> Any:
    return record_reduction_in_loop(recorder, "sum", _mask_of_recorded_array(recorder, a), axis)


def record_compress_in_loop(recorder: Recorder, condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    x, mask = recorder.lift(a), _mask_of_recorded_array(recorder, condition)
    if not isinstance(x, LoopArray) or out is not None or mask.ndim != 1 or (axis is None and x.ndim != 1):
        raise LoopNotRecordable("np.compress with these arguments")
    (at,) = checked_axes_in_loop(0 if axis is None else axis, x.ndim)
    return x[(slice(None),) * at + (record_indices_of_loop_mask(recorder, mask)[0],)]


def record_extract_in_loop(recorder: Recorder, condition: Any, arr: Any) -> Any:
    return recorder.lift(arr)[_mask_of_recorded_array(recorder, condition)]


def record_take_in_loop(
    recorder: Recorder, a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise"
) -> Any:
    x = recorder.lift(a)
    if not isinstance(x, LoopArray) or out is not None or mode != "raise" or (axis is None and x.ndim != 1):
        raise LoopNotRecordable("np.take with these arguments")
    (at,) = checked_axes_in_loop(0 if axis is None else axis, x.ndim)
    return x[(slice(None),) * at + (indices,)]


# creation


def _recorded_shape_lengths(recorder: Recorder, shape: Any) -> tuple[LinearExpression, ...]:
    given = shape if isinstance(shape, (tuple, list)) else (shape,)
    found = tuple(recorder.linear(n) for n in given)
    if not all(n.is_at_least(0) for n in found):
        raise LoopNotRecordable("an array is made of a length that may be negative")
    return found


def filled_array_recorder_of_loop(value: Any) -> Callable[..., Any]:
    def record_filled_array_in_loop(
        recorder: Recorder, shape: Any, dtype: Any = None, order: Any = "C", **options: Any
    ) -> Any:
        if any(v is not None for v in options.values()):
            raise LoopNotRecordable("an array is made with like= or device=")
        section = recorder.temporary(
            _recorded_shape_lengths(recorder, shape), np.dtype(np.float64 if dtype is None else dtype)
        )
        if value is not None:
            recorder.assign(section, value)
        return recorder.array_of_section(section)

    return record_filled_array_in_loop


def filled_like_recorder_of_loop(value: Any) -> Callable[..., Any]:
    def record_filled_like_in_loop(recorder: Recorder, a: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
        x = recorder.lift(a)
        if args or options or not isinstance(x, LoopArray):
            raise LoopNotRecordable("an array is made like another one, with more arguments")
        return filled_array_recorder_of_loop(value)(recorder, x.shape, x.dtype if dtype is None else dtype)

    return record_filled_like_in_loop


def record_full_in_loop(
    recorder: Recorder, shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", **options: Any
) -> Any:
    value = recorder.lift(fill_value)
    own = value.dtype if isinstance(value, LoopSymbol) else np.asarray(value).dtype
    made = filled_array_recorder_of_loop(None)(recorder, shape, own if dtype is None else dtype, order, **options)
    made[...] = value
    return made


def record_full_like_in_loop(recorder: Recorder, a: Any, fill_value: Any, dtype: Any = None) -> Any:
    x = recorder.lift(a)
    return record_full_in_loop(recorder, x.shape, fill_value, x.dtype if dtype is None else dtype)


def record_array_in_loop(recorder: Recorder, a: Any, dtype: Any = None, **options: Any) -> Any:
    if set(options) - {"copy"}:
        raise LoopNotRecordable("np.array with these arguments")
    x = recorder.lift(a)
    if not isinstance(x, LoopArray):
        raise LoopNotRecordable("np.array of a number")
    made = record_copy_in_loop(recorder, x)
    return (
        made
        if dtype is None or np.dtype(dtype) == made.dtype
        else record_copy_in_loop(recorder, record_astype_in_loop(recorder, made, dtype))
    )


def record_where_in_loop(recorder: Recorder, condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return record_nonzero_in_loop(recorder, condition)
    if x is None or y is None:
        raise LoopNotRecordable("np.where of two arguments")
    condition = recorder.lift(condition)
    if not isinstance(condition, LoopSymbol) or condition.dtype.kind != "b":
        condition = recorder.map("not_equal", condition, 0)
    return cast_to_numpy_type_in_loop(recorder, recorder.map("where", condition, x, y))


def record_clip_in_loop(recorder: Recorder, a: Any, a_min: Any = None, a_max: Any = None, out: Any = None) -> Any:
    found = a if a_min is None else recorder.map("maximum", a, a_min)
    found = found if a_max is None else recorder.map("minimum", found, a_max)
    return (
        cast_to_numpy_type_in_loop(recorder, found)
        if out is None
        else _record_store_into_loop_out(recorder, out, found)
    )


def _reduction_recorder_of_loop(op: str) -> Callable[..., Any]:
    def record_named_reduction_in_loop(recorder: Recorder, a: Any, *args: Any, **options: Any) -> Any:
        return record_reduction_in_loop(recorder, op, a, *args, **options)

    return record_named_reduction_in_loop


def _record_shape_in_loop(recorder: Recorder, a: Any) -> Any:
    return recorder.lift(a).shape


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _reduction_recorder_of_loop("sum"),
    np.prod: _reduction_recorder_of_loop("prod"),
    np.min: _reduction_recorder_of_loop("min"),
    np.max: _reduction_recorder_of_loop("max"),
    np.any: _reduction_recorder_of_loop("any"),
    np.all: _reduction_recorder_of_loop("all"),
    np.argmin: _argmin_or_argmax_recorder_of_loop("min"),
    np.argmax: _argmin_or_argmax_recorder_of_loop("max"),
    np.mean: record_mean_in_loop,
    np.dot: record_dot_in_loop,
    np.vdot: record_dot_in_loop,
    np.inner: record_inner_in_loop,
    np.outer: record_outer_in_loop,
    np.linalg.norm: record_norm_in_loop,
    np.transpose: record_transpose_in_loop,
    np.flip: record_flip_in_loop,
    np.copy: record_copy_in_loop,
    np.where: record_where_in_loop,
    np.nonzero: record_nonzero_in_loop,
    np.flatnonzero: record_flatnonzero_in_loop,
    np.count_nonzero: record_count_nonzero_in_loop,
    np.compress: record_compress_in_loop,
    np.extract: record_extract_in_loop,
    np.take: record_take_in_loop,
    np.clip: record_clip_in_loop,
    np.zeros: filled_array_recorder_of_loop(0),
    np.ones: filled_array_recorder_of_loop(1),
    np.empty: filled_array_recorder_of_loop(None),
    np.full: record_full_in_loop,
    np.zeros_like: filled_like_recorder_of_loop(0),
    np.ones_like: filled_like_recorder_of_loop(1),
    np.empty_like: filled_like_recorder_of_loop(None),
    np.full_like: record_full_like_in_loop,
    np.array: record_array_in_loop,
    np.shape: _record_shape_in_loop,
}


# methods


def recorded_attribute_of_loop_array(recorder: Recorder, x: LoopSymbol, name: str) -> Any:
    """`x.name`, an attribute or a method ready to be called."""
    if isinstance(x, LoopNumber) and x.weak not in (None, complex):
        raise LoopNotRecordable(f"the attribute .{name} of a number of Python's is used in it")
    if name in ("real", "imag") and isinstance(x, LoopNumber) and x.dtype.kind == "c":
        return LoopNumber(recorder, x.value.re if name == "real" else x.value.im)
    if name == "flat" or name in ("real", "imag"):
        raise LoopNotRecordable(f"the attribute .{name} is used in it")
    row = METHODS.get(name)
    if row is None:
        raise LoopNotRecordable(f"the attribute .{name} is used in it")

    def record_method_call(*args: Any, **options: Any) -> Any:
        try:
            return row(recorder, x, *args, **options)
        except TypeError as error:
            raise LoopNotRecordable(f".{name}(): {error}") from error

    return record_method_call


def _record_fill_in_loop(recorder: Recorder, x: Any, value: Any) -> None:
    x[...] = value


def _record_dot_method_in_loop(recorder: Recorder, x: Any, other: Any) -> Any:
    return record_dot_in_loop(recorder, x, other)


def _record_transpose_method_in_loop(recorder: Recorder, x: Any, *axes: Any) -> Any:
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    return record_transpose_in_loop(recorder, x, order or None)


METHODS: dict[str, Callable[..., Any]] = {
    **{name: _reduction_recorder_of_loop(name) for name in ("sum", "prod", "min", "max", "any", "all")},
    "argmin": _argmin_or_argmax_recorder_of_loop("min"),
    "argmax": _argmin_or_argmax_recorder_of_loop("max"),
    "mean": record_mean_in_loop,
    "dot": _record_dot_method_in_loop,
    "transpose": _record_transpose_method_in_loop,
    "copy": record_copy_in_loop,
    "astype": record_astype_in_loop,
    "fill": _record_fill_in_loop,
    "nonzero": record_nonzero_in_loop,
    "compress": lambda recorder, x, condition, axis=None: record_compress_in_loop(recorder, condition, x, axis),
    "take": record_take_in_loop,
    "conj": lambda recorder, x: cast_to_numpy_type_in_loop(recorder, recorder.map("conjugate", x)),
    "conjugate": lambda recorder, x: cast_to_numpy_type_in_loop(recorder, recorder.map("conjugate", x)),
    "clip": record_clip_in_loop,
}
