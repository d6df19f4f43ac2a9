"""`x[key]` and `x[key] = value` where the key holds arrays of integers: which elements, and in which shape.

Reading is a load at a computed place inside a kernel, unless the indices are known and few slices hold them; assigning
is done by NumPy on the host."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Value
from ...runtime.core.frozen import frozen
from ...runtime.interpret.numpy_calls import ARRAY
from ..core.errors import DTypeError, IndexingError, Refusal, ShapeError, TraceError, UnsupportedError
from ..core.spec import Host
from ..trace.aliasing import (
    Part,
    assign_to_tracer,
    check_shape_fits_part,
    converted_for_assignment,
    store_elements_in_tracer,
    view_of_tracer,
)
from ..trace.concrete_values import concrete_value, constant_value_of_traced_node
from ..trace.dispatch import METHODS
from ..trace.failures import IndexCheck, can_failure_be_noted, is_failure_awaited
from ..trace.items import AS_ARRAY
from ..trace.memory_layout import StandIn
from ..trace.operands import loop_operations, new_traced_array, new_traced_result, to_traced_array
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .host_calls import host_call_of_one_result

Shape = tuple[int, ...]


MANY = 4096  # up to so many indices are looked at while tracing
MANY_RUNS = 8  # up to so many slices are joined


def index_of_axis(index: Any, length: int, axis: int) -> int:
    """An index of an axis, from 0 on. Raises IndexingError."""
    if (loop := loop_operations()) is not None:
        return loop.index_of_axis(index, length, axis)
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexingError(f"index {i} is out of bounds for axis {axis} with size {length}")
    return i % length


def slice_of_axis(entry: slice, length: int) -> tuple[int, int, int]:
    """Where a slice starts, its step, and how long it is. Raises DTypeError, ShapeError."""
    if (loop := loop_operations()) is not None:
        return loop.slice_of_axis(entry, length)
    try:
        start, stop, step = entry.indices(length)
        count = len(range(start, stop, step))
        return start if count else 0, step, count
    except TypeError as error:
        if isinstance(error, Refusal):
            raise
        raise DTypeError("slice indices must be integers or None; write x[int_a:int_b]") from None
    except ValueError as error:
        raise ShapeError(str(error)) from None


def index_array(entry: Any) -> Any:
    """An entry of a key as integers: a NumPy array where they are known, else a traced one, or an int; None where it is
    nothing of the kind. Known booleans become the places of True. Raises IndexingError, UnsupportedError."""
    if not isinstance(entry, (list, tuple, range, Tracer, np.ndarray)):
        return None
    known: Any = known_index_array(entry)
    if known is not None and known.size == 0 and not isinstance(entry, (Tracer, np.ndarray)):
        known = known.astype(np.intp)
    entry = entry if known is not None else to_traced_array(entry)
    dtype = entry.dtype if known is None else known.dtype
    if dtype == np.bool_:
        if np.ndim(entry) == 0:
            return None
        places = known.nonzero() if known is not None else indices_of_known_mask(entry)
        if places is None:
            raise UnsupportedError(
                "indexing with booleans gives a shape that depends on data; write np.where(mask, x, 0), "
                "or a reduction with where=mask; or decorate with @kg.kernel_graph(untraceable='split')"
            )
        return places
    if dtype.kind not in "iu":
        raise IndexingError(f"arrays used as indices must be of integer (or boolean) type, not {dtype}")
    if known is not None:
        return int(known) if known.ndim == 0 and is_scalar_indexing_entry(entry) else np.asarray(known)
    if entry.ndim == 0 and loop_operations() is not None:
        return entry
    if entry.ndim == 0:
        try:
            found = operator.index(entry)
            return found if is_scalar_indexing_entry(entry) else np.asarray(found)
        except TraceError:
            pass
    return to_traced_array(entry)


def is_scalar_indexing_entry(entry: Any) -> bool:
    """Whether NumPy has a number there, with which it indexes as with an int. An array of no axis is none."""
    return isinstance(entry, np.generic) or (isinstance(entry, Tracer) and entry._owner == SCALAR)


def known_index_array(x: Any) -> Host | None:
    """The value of a list of numbers, or of an array equal in every call."""
    if loop_operations() is not None:
        return None
    if isinstance(x, (list, tuple, range)) and not any(type(i) in (Tracer, TracedNumber) for i in x):
        return np.asarray(x)
    return known_index_value(to_traced_array(x))


def known_index_value(x: Tracer) -> Host | None:
    """The value of a small array that is the same in every call."""
    trace = x._trace
    nodes = trace.builder.nodes
    todo, seen = [x._value.number], set()
    if x.size > MANY:
        return None
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        node = nodes[number]
        fixed = node.op == "input" and trace.captured_at.get(number) in trace.constants
        if node.type.size > MANY or (node.op in ("number", "input") and not fixed):
            return None
        todo.extend(node.args)
    return concrete_value(trace, x._value)


def indices_of_known_mask(mask: Tracer) -> tuple[Any, ...] | None:
    """Where booleans are True: NumPy arrays if no array of the call decides it, traced ones if the trace may be split;
    else None. Raises NeedValue where the call's numbers do."""
    recorded = loop_operations() is not None
    settled = None if recorded else constant_value_of_traced_node(mask._trace, mask._value)
    if settled is None and (recorded or mask._trace.split is not None):
        return METHODS["nonzero"](mask)  # type: ignore[no-any-return]
    known = concrete_value(mask._trace, mask._value) if settled is None else settled
    return None if known is None else known.nonzero()


def is_indexed_by_arrays(keys: list[Any]) -> bool:
    """Whether an entry is an array of integers."""
    return any(_is_index_array(k) for k in keys)


def numbers_as_slices(numbers: list[int]) -> list[slice]:
    """The numbers, none of them negative, as slices one after another: of one step, or of steps 1 and -1."""
    steps = {b - a for a, b in pairwise(numbers)}
    if len(steps) == 1 and 0 not in steps:
        return [_slice_from_first_to_last(numbers[0], numbers[-1], steps.pop())]
    found = []
    at = 0
    while at < len(numbers):
        step = numbers[at + 1] - numbers[at] if at + 1 < len(numbers) else 1
        step = step if step in (1, -1) else 1
        end = at + 1
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        found.append(_slice_from_first_to_last(numbers[at], numbers[end - 1], step))
        at = end
    return found


def _slice_from_first_to_last(first: int, last: int, step: int) -> slice:
    stop = last + (1 if step > 0 else -1)
    return slice(first, stop if stop >= 0 else None, step)


def gather(x: Tracer, keys: list[Any]) -> Tracer:
    """x[keys]; the keys have one entry for each axis (Ellipsis stands for none), and arrays of integers among them."""
    joined = _gather_indexing_by_slices(x, keys)
    if joined is not None:
        return joined
    if (loop := loop_operations()) is not None:
        return loop.gather(*_parts_of_indexing_in_loop(x, keys))
    builder = x._trace.builder
    _check_known_indices(x, keys)
    shape, at, together = _shape_of_numpy_indexing(x, keys)
    nothing = 0 in shape and 0 not in shape[at : at + together]  # is loaded, and what is out of range is an error
    noted = (nothing or is_failure_awaited(x._trace)) and not x._trace.depth
    numbers = all(is_scalar_indexing_entry(k) for k in keys if _is_index_array(k))
    keys = _keys_in_range(x, keys, noted)
    part, arrays, axes, rest = _part_and_index_arrays(x, keys, at, together)
    indices: list[Value] = []
    for entry, axis in zip(arrays, axes, strict=True):
        known = not isinstance(entry, Tracer)
        index = to_traced_array(_known_indexing_array_in_range(entry, part.shape[axis], axis) if known else entry)
        indices.append(builder.reshape(index._value, (*index.shape, *(1,) * (len(shape) - at - together))))
    checked = not noted and any(isinstance(entry, Tracer) for entry in arrays)
    if numbers and (shape or Ellipsis in [k for k in keys if not _is_index_array(k)]) and x._owner != SCALAR:
        return view_of_tracer(part, GatherView(tuple(indices), tuple(axes), tuple(rest), shape, checked))
    return new_traced_result(gather_elements_of_axes(part, indices, axes, rest, shape, checked), x)


def _part_and_index_arrays(
    x: Tracer, keys: list[Any], at: int, together: int
) -> tuple[Tracer, list[Any], list[int], list[int]]:
    """x without what integers and slices leave out, the arrays, which of its axes they index, and which axes of x[keys]
    the others are."""
    part = METHODS["__getitem__"](x, tuple(slice(None) if _is_index_array(k) else k for k in keys if k is not None))
    arrays: list[Any] = []
    axes: list[int] = []
    rest: list[int] = []
    made = 0  # axes of the result so far, but for `together`
    for entry in keys:
        if _is_index_array(entry):
            axes.append(len(axes) + len(rest))
            arrays.append(entry)
        elif entry is None or isinstance(entry, slice):
            if entry is not None:
                rest.append(made + together * (made >= at))
            made += 1
    return part, arrays, axes, rest


def _parts_of_indexing_in_loop(x: Tracer, keys: list[Any]) -> tuple[Any, ...]:
    """What a recorded loop is asked of for x[keys]."""
    shape, at, together = _shape_of_numpy_indexing(x, keys)
    return *_part_and_index_arrays(x, _keys_in_range(x, keys, False), at, together), shape, range(at, at + together)


def _keys_in_range(x: Tracer, keys: list[Any], noted: bool, writes: bool = False) -> list[Any]:
    """The keys, whose traced indices are as `index_in_range` has them."""
    found, axis = list[Any](), 0
    for entry in keys:
        given = _is_index_array(entry) and type(entry) is not np.ndarray
        found.append(index_in_range(entry, axis, x.shape[axis], noted, writes)[0] if given else entry)
        axis += entry is not None and entry is not Ellipsis
    return found


def index_in_range(index: Tracer, axis: int, length: int, noted: bool, writes: bool = False) -> tuple[Tracer, bool]:
    """Indices of an axis, and whether kernels have to check them.

    noted: they need not, since it is noted here whether one is out of range: an error may not be reached, or be
    caught; the indices are counted from the start then, and in range. writes: elements are assigned."""
    loop, trace = loop_operations(), index._trace
    if loop is not None and loop.is_in_range(index, length):
        return index, False
    check = IndexCheck(index, axis, length, writes, bool(trace.assigned or trace.holders))
    if trace.depth and loop is None:
        unread = trace.path or (trace.deriving and not index.shape)  # a derivative is not made of what is read
        if unread and can_failure_be_noted(trace):
            check.fail()
        return index, True
    if not noted and loop is None:
        trace.index_checks.append(check)
        return index, True
    whole: Any = index.astype(np.int64)
    found: Any = np.where(whole < 0, whole + length, whole)
    if loop is None:
        found = np.where(check.fail(), 0, found)
    else:
        loop.check_indices(whole, (whole >= length) | (whole < -length), length, axis)
    return found, False


@frozen
class GatherView:
    """A view at computed integers along some axes, which vanish. rest: where the other axes are in `shape`, which may
    have new ones of length 1 beside them. checked: as in `GraphBuilder.gather`."""

    indices: tuple[Value, ...]
    axes: tuple[int, ...]
    rest: tuple[int, ...]
    shape: Shape
    checked: bool = True

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return _load_elements_for_indexing(builder, value, self.indices, self.axes, self.rest, self.shape, self.checked)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        value, starts, steps = part
        rest = iter(self.rest)
        places = [None if axis in self.axes else next(rest) for axis in range(len(base.shape))]
        region = [n if i is None else value.shape[i] for i, n in zip(places, base.shape, strict=True)]
        first = [0 if i is None else starts[i] for i in places]
        each = [1 if i is None else steps[i] for i in places]
        narrow = builder.reshape(value, [1 if i is None else value.shape[i] for i in places])
        chosen = None
        for index, axis in zip(self.indices, self.axes, strict=True):
            n = base.shape[axis]  # a load finds the place of a negative index, and whether it is in range
            place = builder.gather(builder.index((n,), 0), [builder.reshape(index, ())], [0], [], (), self.checked)
            here = builder.map("equal", builder.index(region, axis), place)
            chosen = here if chosen is None else builder.map("logical_and", chosen, here)
        assert chosen is not None
        old = builder.slice(base, first, each, region)
        return builder.map("where", chosen, builder.broadcast(narrow, region), old), tuple(first), tuple(each)

    def numpy_view(self, a: StandIn) -> StandIn | None:
        found = a[tuple(0 if axis in self.axes else slice(None) for axis in range(a.ndim))]
        return np.expand_dims(found, tuple(i for i in range(len(self.shape)) if i not in self.rest))


def gather_elements_of_axes(
    x: Tracer, indices: Sequence[Value], axes: Sequence[int], rest: Sequence[int], shape: Shape, checked: bool
) -> Value:
    """`Builder.gather`. Raises IndexingError where every index is out of range."""
    return _load_elements_for_indexing(x._trace.builder, x._value, indices, axes, rest, shape, checked)


def _load_elements_for_indexing(
    builder: GraphBuilder,
    value: Value,
    indices: Sequence[Value],
    axes: Sequence[int],
    rest: Sequence[int],
    shape: Shape,
    checked: bool,
) -> Value:
    empty = [axis for axis in axes if value.shape[axis] == 0]
    if empty and 0 not in shape:
        raise IndexingError(f"no index is in range along axis {empty[0]}, which has size 0")
    if empty:
        return builder.broadcast(builder.const(0, value.dtype), shape)
    return builder.gather(value, indices, axes, rest, shape, checked)


def _is_index_array(entry: Any) -> bool:
    return isinstance(entry, (Tracer, np.ndarray))


def _known_indexing_array_as_slices(x: Tracer, keys: list[Any]) -> tuple[int, Host, list[list[Any]]] | None:
    """Where a known array is the only index: its place among the keys, its numbers, and the keys with each of a few
    slices in its place; else None."""
    keys = [k for k in keys if k is not Ellipsis]
    places = [i for i, k in enumerate(keys) if k is not None and not isinstance(k, slice)]
    at = places[0]
    index = keys[at]
    if len(places) != 1 or type(index) is not np.ndarray:
        return None
    axis = sum(k is not None for k in keys[:at])
    index = _known_indexing_array_in_range(index, x.shape[axis], axis)
    parts = numbers_as_slices(index.ravel().tolist())
    return (at, index, [[*keys[:at], part, *keys[at + 1 :]] for part in parts]) if len(parts) <= MANY_RUNS else None


def _gather_indexing_by_slices(x: Tracer, keys: list[Any]) -> Tracer | None:
    """x[keys] as a few slices put together, where that can be."""
    found = _known_indexing_array_as_slices(x, keys)
    if found is None:
        return None
    at, index, parts = found  # every key before that place makes one axis
    getitem = METHODS["__getitem__"]
    if not parts:
        parts = [[slice(0, 0) if i == at else k for i, k in enumerate(k for k in keys if k is not Ellipsis)]]
    values = [getitem(x, tuple(part))._value for part in parts]
    builder = x._trace.builder
    joined = builder.concat(values, at)
    shape = joined.shape
    return new_traced_result(builder.reshape(joined, (*shape[:at], *index.shape, *shape[at + 1 :])), x)


def _known_indexing_array_in_range(index: Host, n: int, axis: int) -> Host:
    outside = (index < -n) | (index >= n)
    if outside.any():
        raise IndexingError(f"index {index[outside][0]} is out of bounds for axis {axis} with size {n}")
    return np.where(index < 0, index + n, index).astype(np.intp)


def check_assigned_axis_not_empty(x: Tracer, assigned: bool) -> None:
    """Raises IndexingError where elements are assigned to an array that has none."""
    if assigned and not x.size:
        raise IndexingError(f"no index is in range: the array of shape {x.shape} is empty")


def scatter(x: Tracer, keys: list[Any], value: Any) -> None:
    """x[keys] = value, in place; of an index that comes twice the last value stays."""
    if (loop := loop_operations()) is not None:
        loop.scatter(value, *_parts_of_indexing_in_loop(x, keys))
        return
    shape, key = _shape_and_key_of_gather(x, keys)
    new = new_traced_array(converted_for_assignment(value, x, AS_ARRAY), x)
    excess = max(len(new.shape) - len(shape), 0)
    builder = x._trace.builder
    check_shape_fits_part(x, new.shape[excess:] if all(n == 1 for n in new.shape[:excess]) else new.shape, shape)
    _check_known_indices(x, keys)  # after the shapes, as NumPy
    check_assigned_axis_not_empty(x, 0 not in shape)
    arrays = [
        to_traced_array(k) for k in _keys_in_range(x, keys, is_failure_awaited(x._trace), True) if _is_index_array(k)
    ]
    found = _known_indexing_array_as_slices(x, keys)
    if found is None or found[1].ndim != 1 or len(set(found[1].tolist())) < found[1].size:
        assign_to_tracer(x, host_call_of_one_result("setitem", [x, *arrays, new], x.shape, dtypes=[x.dtype], key=key))
        return
    at, _, parts = found
    small = builder.reshape(new._value, new.shape[excess:])
    wide = new_traced_array(builder.broadcast(small, shape), x)
    start = 0
    for part in parts:
        target = METHODS["__getitem__"](x, tuple(part))
        end = start + target.shape[at]
        store_elements_in_tracer(target, METHODS["__getitem__"](wide, (*(slice(None),) * at, slice(start, end))))
        start = end


def _check_known_indices(x: Tracer, keys: list[Any]) -> None:
    """Raises IndexingError for known indices that are out of range."""
    axes = (k for k in keys if k is not None and k is not Ellipsis)
    for axis, (entry, n) in enumerate(zip(axes, x.shape, strict=False)):
        if not isinstance(entry, (Tracer, slice)):
            _known_indexing_array_in_range(np.asarray(entry), n, axis)


def _shape_of_numpy_indexing(x: Tracer, keys: list[Any]) -> tuple[Shape, int, int]:
    """The shape of x[keys], and which of its axes the indices make: from where, how many."""
    shape, at, together = _index_array_shapes(x, keys)
    return (*shape[:at], *together, *shape[at:]), at, len(together)


def _shape_and_key_of_gather(x: Tracer, keys: list[Any]) -> tuple[Shape, tuple[Any, ...]]:
    """The shape of x[keys], and the key as a host call's option."""
    key = [
        (k.start, k.stop, k.step)
        if isinstance(k, slice)
        else ARRAY
        if _is_index_array(k)
        else k
        if k is None or k is Ellipsis
        else int(k)
        for k in keys
    ]
    return _shape_of_numpy_indexing(x, keys)[0], tuple(key)


def _index_array_shapes(x: Tracer, keys: list[Any]) -> tuple[Shape, int, Shape]:
    """The shape that x[keys] has without the indices, and where these put theirs; these."""
    loop = loop_operations()
    shapes = [k.shape for k in keys if _is_index_array(k)]
    try:
        broadcast = x._trace.builder.broadcast_shapes
        together = broadcast("indexing", shapes) if loop is None else loop.broadcast_shapes(shapes)
    except ShapeError:
        text = f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        raise IndexingError(text + "; insert axes with x[:, None] or reshape") from None
    shape: list[int] = []
    places: list[int] = []  # of the entries that are indices
    first, axis = -1, 0
    for place, entry in enumerate(keys):
        if entry is None or entry is Ellipsis:
            shape += [1] if entry is None else []
            continue
        n = x.shape[axis]
        axis += 1
        if isinstance(entry, slice):
            shape.append(slice_of_axis(entry, n)[2])
            continue
        if (
            isinstance(entry, Tracer) and not n and 0 not in together
        ):  # although the other axes may have no elements either
            raise IndexingError(f"no index is in range along axis {axis - 1}, which has size 0")
        first = len(shape) if first < 0 else first
        places.append(place)
    adjacent = places[-1] - places[0] + 1 == len(places)
    return tuple(shape), first if adjacent else 0, together
