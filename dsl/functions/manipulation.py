"""More ways to put arrays together, take them apart and make them: each a few views and joins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.errors import DTypeError, IndexingError, ShapeError, UnsupportedError, numpy_error_as_ours
from ..core.spec import checked_dtype, entries_of, to_index
from ..trace.dispatch import implements
from ..trace.items import AS_ARRAY, convert_operand_for_element
from ..trace.operands import new_traced_result, to_axis_of_operand, to_traced_array, to_traced_shape, trace_of_operands
from ..trace.tracer import Tracer
from .creation import diagonal_threshold_of_columns, eye, linspace
from .elementwise import apply
from .host_calls import assign_to_out, require_known_numpy_option, require_known_numpy_scalar
from .indexing import getitem
from .joining import checked_section_count, concatenate, split, tile
from .products import matmul
from .selection import take
from .views import apply_to_each_array, broadcast_to, cast, copy, diagonal, expand_dims, moveaxis, ravel, reshape

MANY_SECTIONS = 4096  # empty arrays that a split may give


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    return apply_to_each_array(arys, _with_three_axes)


def _with_three_axes(x: Tracer) -> Tracer:
    shapes: dict[int, tuple[int, ...]] = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
    return reshape(x, shapes[x.ndim]) if x.ndim < 3 else x


@implements(np.dstack)
def dstack(tup: Sequence[Any]) -> Tracer:
    return concatenate([atleast_3d(a) for a in tup], 2)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Tracer:
    return concatenate([ravel(arr), ravel(values)] if axis is None else [arr, values], 0 if axis is None else axis)


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    x = to_traced_array(ary)
    at = to_axis_of_operand(axis, x.ndim)
    if isinstance(indices_or_sections, (tuple, list, np.ndarray)):
        return split(x, indices_or_sections, at)
    n = checked_section_count(indices_or_sections)
    if n <= 0:
        raise ShapeError("number sections must be larger than 0.")
    if n > x.shape[at] + MANY_SECTIONS:
        raise UnsupportedError(
            f"np.array_split of {x.shape[at]} elements into {n} parts is not supported, nearly all of them are empty; "
            f"write min(parts, x.shape[{at}])",
            needs_values=False,
        )
    each, more = divmod(x.shape[at], n)
    cuts = [i * each + min(i, more) for i in range(n + 1)]
    return [getitem(x, (*(slice(None),) * at, slice(i, j))) for i, j in pairwise(cuts)]


def _split_function_along_axis(name: str, axis: Callable[[Tracer], int], least: int) -> Callable[..., list[Tracer]]:
    def split_along_axis(ary: Any, indices_or_sections: Any) -> list[Tracer]:
        x = to_traced_array(ary)
        if x.ndim < least:
            raise ShapeError(f"{name} only works on arrays of {least} or more dimensions")
        return split(x, indices_or_sections, axis(x))

    return split_along_axis


hsplit = implements(np.hsplit)(_split_function_along_axis("hsplit", lambda x: 0 if x.ndim == 1 else 1, 1))
vsplit = implements(np.vsplit)(_split_function_along_axis("vsplit", lambda x: 0, 2))
dsplit = implements(np.dsplit)(_split_function_along_axis("dsplit", lambda x: 2, 3))


@implements(np.block)
def block(arrays: Any) -> Tracer:
    """Nested lists of blocks: the innermost joined along the last axis, the lists around them along those before."""
    depth, ndim = _np_block_nesting_depth(arrays), max(_np_block_nesting_depth(arrays), _np_block_most_axes(arrays))
    return copy(_concatenate_block(arrays, depth, ndim))


def _np_block_nesting_depth(x: Any) -> int:
    if not isinstance(x, list):
        return 0
    depths = {_np_block_nesting_depth(i) for i in x}
    if len(depths) != 1:
        raise ShapeError("List depths are mismatched in np.block, or a list is empty.")
    return depths.pop() + 1


def _np_block_most_axes(x: Any) -> int:
    return max(map(_np_block_most_axes, x)) if isinstance(x, list) else to_traced_array(x).ndim


def _concatenate_block(x: Any, depth: int, ndim: int) -> Tracer:
    if not isinstance(x, list):
        a = to_traced_array(x)
        return reshape(a, (1,) * (ndim - a.ndim) + a.shape)
    return concatenate([_concatenate_block(i, depth - 1, ndim) for i in x], -depth)


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Tracer:
    x, shape = ravel(a), to_traced_shape(new_shape)
    size = int(np.prod(shape, dtype=np.int64))
    if min(shape, default=0) < 0:
        raise ShapeError("all elements of `new_shape` must be non-negative")
    if not x.size:
        return broadcast_to(x.dtype.type(0), shape)
    times = -(-size // x.size)
    return copy(reshape(tile(x, times)[:size], shape))


def _array_and_axis_or_flat(a: Any, axis: int | None) -> tuple[Tracer, int]:
    x = ravel(a) if axis is None else to_traced_array(a)
    return x, 0 if axis is None else to_axis_of_operand(axis, x.ndim)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Tracer:
    """Without the elements that a number, a slice or a list of numbers names."""
    x, at = _array_and_axis_or_flat(arr, axis)
    if isinstance(obj, (Tracer, np.ndarray)):
        raise UnsupportedError("np.delete with an array of indices gives a shape that depends on it; pass a list")
    n = x.shape[at]
    try:
        kept = np.delete(np.arange(n), require_known_numpy_option(obj)).tolist()
    except (IndexError, ValueError, TypeError) as error:
        raise numpy_error_as_ours(error) from None
    return copy(take(x, kept, at))


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tracer:
    """With values before the place that a number names."""
    x, at = _array_and_axis_or_flat(arr, axis)
    if isinstance(obj, (np.ndarray, list, tuple, slice)) or (isinstance(obj, Tracer) and obj.ndim):
        text = "np.insert at several places is not supported; write np.concatenate with slices"
        raise UnsupportedError(text)
    n, place = x.shape[at], to_index(obj, "the place to insert at")
    if not -n <= place <= n:
        raise IndexingError(f"index {place} is out of bounds for axis {at} with size {n}")
    place = place + n if place < 0 else place
    new = new_traced_result(convert_operand_for_element(x._trace, values, x.dtype, AS_ARRAY), x)
    if new.ndim < x.ndim:
        new = reshape(new, (1,) * (x.ndim - new.ndim) + new.shape)
    new = moveaxis(new, 0, at)
    width = new.shape[at]
    new = broadcast_to(new, (*x.shape[:at], width, *x.shape[at + 1 :]))
    head = (slice(None),) * at
    parts = [getitem(x, (*head, slice(0, place))), cast(new, x.dtype), getitem(x, (*head, slice(place, None)))]
    return concatenate(parts, at)


# matrices


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Tracer:
    """The diagonal of a matrix, or the matrix with a diagonal."""
    x = to_traced_array(v)
    offset = to_index(k, "k")
    if x.ndim == 2:
        return diagonal(x, offset)
    if x.ndim != 1:
        raise ShapeError("Input must be 1- or 2-d.")
    n = x.size + abs(offset)
    below, right = max(-offset, 0), max(offset, 0)
    builder = x._trace.builder
    rows, columns = new_traced_result(builder.index((n, n), 0), x), new_traced_result(builder.index((n, n), 1), x)
    wide = (
        concatenate([p for p in (_zeros_beside_diagonal(x, below), x, _zeros_beside_diagonal(x, right)) if p.size], 0)
        if n
        else x
    )
    on = apply("equal", apply("subtract", columns, rows), offset)
    return apply("where", on, expand_dims(wide, 1), x.dtype.type(0))


def _zeros_beside_diagonal(x: Tracer, n: int) -> Tracer:
    return broadcast_to(x.dtype.type(0), (n,))


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Tracer:
    return diag(ravel(v), k)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = float) -> Tracer:
    """Ones at and below a diagonal."""
    shape = (_length_rounded_up(N, "N"), _length_rounded_up(N if M is None else M, "M"))
    builder = trace_of_operands().builder
    distance = apply("subtract", new_traced_result(builder.index(shape, 1)), new_traced_result(builder.index(shape, 0)))
    return cast(apply("less_equal", distance, diagonal_threshold_of_columns(k, shape[1])), checked_dtype(dtype))


def _length_rounded_up(n: Any, what: str) -> int:
    """A length as np.arange takes it: floats too. Raises ShapeError, DTypeError."""
    given = require_known_numpy_scalar(n)
    if not isinstance(given, (float, np.inexact, np.bool_)):
        return max(to_index(given, what), 0)
    length = float(given.real)
    if not abs(length) < 2.0**63:
        raise ShapeError(f"Maximum allowed size exceeded: {what}={given}")
    return max(math.ceil(length), 0)


def identity(n: int, dtype: Any = None) -> Tracer:
    return eye(n, dtype=dtype)


@implements(np.kron)
def kron(a: Any, b: Any) -> Tracer:
    """Every element of `a` times all of `b`."""
    x, y = to_traced_array(a), to_traced_array(b)
    ndim = max(x.ndim, y.ndim)
    left, right = (1,) * (ndim - x.ndim) + x.shape, (1,) * (ndim - y.ndim) + y.shape
    wide = apply(
        "multiply",
        reshape(x, [m for n in left for m in (n, 1)]),
        reshape(y, [m for n in right for m in (1, n)]),
    )
    return reshape(wide, [m * n for m, n in zip(left, right, strict=True)])


@implements(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Tracer:
    """Of vectors with three components."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = to_traced_array(a), to_traced_array(b)
    x = moveaxis(x, to_axis_of_operand(axisa, x.ndim, "axisa"), -1)
    y = moveaxis(y, to_axis_of_operand(axisb, y.ndim, "axisb"), -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise ShapeError(
            f"Both input arrays must be (arrays of) 3-dimensional vectors, but they are {x.shape[-1]} "
            f"and {y.shape[-1]} dimensional instead."
        )

    def cross_product_component(i: int, j: int) -> Tracer:
        first = apply("multiply", x[..., i], y[..., j])
        return expand_dims(apply("subtract", first, apply("multiply", x[..., j], y[..., i])), -1)

    joined = concatenate(
        [cross_product_component(1, 2), cross_product_component(2, 0), cross_product_component(0, 1)], -1
    )
    return moveaxis(joined, -1, to_axis_of_operand(axisc, joined.ndim, "axisc"))


@implements(np.linalg.cross)
def _linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tracer:
    return cross(x1, x2, axis=axis)


def _require_core_axes(name: str, *operands: tuple[Any, int]) -> None:
    for number, (operand, wanted) in enumerate(operands):
        if np.ndim(operand) < wanted:
            raise ShapeError(f"{name}: Input operand {number} does not have enough dimensions: it requires {wanted}")


@implements(np.matvec)
def matvec(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    """(..., m, n) @ (..., n)"""
    _require_core_axes("matvec", (x1, 2), (x2, 1))
    product = matmul(x1, expand_dims(x2, -1), dtype=dtype, casting=casting)
    return assign_to_out(reshape(product, product.shape[:-1]), out)


@implements(np.vecmat)
def vecmat(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Tracer:
    """conj(..., n) @ (..., n, m)"""
    x = to_traced_array(x1)
    _require_core_axes("vecmat", (x, 1), (x2, 2))
    x = apply("conjugate", x) if x.dtype.kind == "c" else x
    product = matmul(expand_dims(x, -2), x2, dtype=dtype, casting=casting)
    return assign_to_out(reshape(product, (*product.shape[:-2], product.shape[-1])), out)


# points along an axis


@implements(np.logspace)
def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Tracer:
    if isinstance(base, Tracer) and base.ndim:
        raise UnsupportedError("np.logspace with an array as base is not supported; write base ** np.linspace(...)")
    result = apply("power", base, linspace(start, stop, num, endpoint, axis=axis))
    return result if dtype is None else cast(result, dtype)


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """The index along each axis, for every element of an array of these lengths."""
    if hasattr(dimensions, "__next__"):
        dimensions = tuple(dimensions)
    if np.ndim(dimensions) == 0:
        raise DTypeError(f"np.indices takes a tuple of lengths; write np.indices(({dimensions},))")
    shape = to_traced_shape(dimensions)
    builder = trace_of_operands().builder
    wanted = checked_dtype(dtype)
    if sparse:
        lengths = [tuple(n if i == j else 1 for j in range(len(shape))) for i, n in enumerate(shape)]
        return tuple(cast(new_traced_result(builder.index(one, i)), wanted) for i, one in enumerate(lengths))
    return concatenate(
        [expand_dims(cast(new_traced_result(builder.index(shape, i)), wanted), 0) for i in range(len(shape))]
    )


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, like: Any = None, **kw: Any) -> Any:
    """`function` of the indices along each axis."""
    lengths = to_traced_shape(shape)
    builder = trace_of_operands().builder
    return function(*(cast(new_traced_result(builder.index(lengths, i)), dtype) for i in range(len(lengths))), **kw)


# functions of the user's on parts of an array


@implements(np.apply_over_axes)
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> Tracer:
    x = to_traced_array(a)
    for axis in entries_of(axes):
        at = to_axis_of_operand(axis, x.ndim)
        result = to_traced_array(func(x, axis if type(axis) is bool else at))
        x = result if result.ndim == x.ndim else expand_dims(result, at)
        if x.ndim != to_traced_array(a).ndim:
            raise ShapeError("function is not returning an array of the correct shape")
    return x


MANY_SLICES = 256


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Tracer:
    """Each slice by itself: the trace holds the function once for each."""
    x = to_traced_array(arr)
    at = to_axis_of_operand(axis, x.ndim)
    moved = moveaxis(x, at, -1)
    lead = moved.shape[:-1]
    count = int(np.prod(lead, dtype=np.int64))
    if count > MANY_SLICES:
        raise UnsupportedError(
            f"np.apply_along_axis on {count} slices would trace the function {count} times; write it with axis={at}"
        )
    if not count:
        raise ShapeError("Cannot apply_along_axis when any iteration dimensions are 0")
    found = [to_traced_array(func1d(moved[i], *args, **kwargs)) for i in np.ndindex(lead)]
    joined = concatenate([expand_dims(f, 0) for f in found])
    shaped = reshape(joined, (*lead, *found[0].shape))
    axes = tuple(range(len(lead), shaped.ndim))
    return moveaxis(shaped, axes, tuple(range(at, at + len(axes))))


# shapes alone


def _checked_two_axis_array(x: Any) -> Tracer:
    a = to_traced_array(x)
    if a.ndim != 2:
        raise ShapeError("input array must be 2-d")
    return a


@implements(np.tril_indices_from)
def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    x = _checked_two_axis_array(arr)
    return np.tril_indices(x.shape[-2], k=k, m=x.shape[-1])


@implements(np.triu_indices_from)
def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    x = _checked_two_axis_array(arr)
    return np.triu_indices(x.shape[-2], k=k, m=x.shape[-1])


@implements(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy") -> Any:
    """NumPy's own answer, which needs shapes alone."""
    stand_ins = [np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Tracer) else x for x in operands]
    return np.einsum_path(*stand_ins, optimize=optimize)


@implements(np.ix_)
def ix_(*args: Any) -> tuple[Tracer, ...]:
    """Each array of indices along an axis of its own."""
    arrays = [to_traced_array(a) for a in args]
    for a in arrays:
        if a.ndim != 1:
            raise ShapeError("Cross index must be 1 dimensional")
        if a.dtype == np.bool_:
            raise UnsupportedError("np.ix_ of booleans gives a shape that depends on data; pass integers")
    n = len(arrays)
    return tuple(reshape(a, tuple(a.size if i == j else 1 for j in range(n))) for i, a in enumerate(arrays))


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return bool(to_traced_array(x).dtype.kind == "c")


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return not iscomplexobj(x)
