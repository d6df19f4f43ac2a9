"""Views that know what they look at, and assignment: what is written through one name is seen under all of them.

A graph has no memory: an assignment makes a new version of the array that owns the memory, and each view of it finds
its own new version when it is next asked. Whether NumPy makes a view or a copy of what may be either is asked when
something is assigned while it matters, and not before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ...compiler.core.types import ArrayType, WeakType
from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Value
from ...runtime.core.frozen import frozen, replace
from ...runtime.core.readable_text import with_article
from ..core.errors import DTypeError, ReadOnlyError, ShapeError, TraceError
from .dispatch import ATTRIBUTES, SPECIAL
from .items import AS_ARRAY, CAST, ITEM, Way, convert_operand_for_element
from .memory_layout import (
    MemoryLayout,
    StandIn,
    UfuncResultTracerLayout,
    UnknownTracerLayout,
    ViewTracerLayout,
    dense_stand_in_of_tracer,
    has_one_dense_tracer_layout,
    resolve_layout_of_tracer,
)
from .number_kinds import Kind
from .operands import loop_operations, to_traced_shape
from .trace import Trace
from .tracer import CAPTURED, SCALAR, Tracer, check_trace_alive

Part = tuple[Value, tuple[int, ...], tuple[int, ...]]  # what is assigned, and the (starts, steps) of where it goes
Order = Callable[[Sequence[Tracer]], MemoryLayout | None]  # the arrays that a copy is made of -> how it lies
COPY_ORDERS: dict[str, Order | None] = {}  # what gives copies -> how they lie; filled by `view_rules`
# what NumPy makes a scalar of, and what an array of no axis, however we come by it
WITHOUT_AXES: dict[str, Any] = {
    **dict.fromkeys(("einsum", "inner", "kron", "take"), SCALAR),
    **dict.fromkeys(("i0", "piecewise", "select")),
}


class TracerViewStep(Protocol):
    """One way to look at an array."""

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        """What is seen of a base."""
        ...

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        """A part of the view as the part of its base that it is."""
        ...

    def numpy_view(self, a: StandIn) -> StandIn | None:
        """NumPy's view; None where it makes a copy."""
        ...


@frozen
class TracerSliceView:
    """Element i is element `starts + i * steps`."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return builder.slice(value, self.starts, self.steps, self.shape)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        value, starts, steps = part
        first = tuple(s + t * a for s, t, a in zip(self.starts, self.steps, starts, strict=True))
        return value, first, tuple(t * b for t, b in zip(self.steps, steps, strict=True))

    def numpy_view(self, a: StandIn) -> StandIn | None:
        ends = [s + t * n for s, t, n in zip(self.starts, self.steps, self.shape, strict=True)]
        keys = zip(self.starts, ends, self.steps, strict=True)
        return a[tuple(slice(s, e if e >= 0 else None, t) for s, e, t in keys)]


@frozen
class TracerPermuteView:
    """Axis i is axis `axes[i]`."""

    axes: tuple[int, ...]

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return builder.permute(value, self.axes)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        value, starts, steps = part
        back = [self.axes.index(i) for i in range(len(self.axes))]
        return builder.permute(value, back), tuple(starts[i] for i in back), tuple(steps[i] for i in back)

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return a.transpose(self.axes)


@frozen
class TracerReshapeView:
    """The same elements in C order. NumPy makes a view where it can, for certain where axes of length 1 come and go.

    through: it is known to be a view. flat: it is `x.flat`, of which elements are assigned, and parts are copies."""

    shape: tuple[int, ...]
    through: bool = False
    flat: bool = False

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return builder.reshape(value, self.shape)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        if not self.is_view_of(base.type):
            seen = self.apply(builder, base)
            return part_of_whole_array(builder.reshape(assign_part_of_array(builder, seen, part), base.shape))
        value, starts, steps = part
        long = iter([axis for axis, n in enumerate(self.shape) if n != 1])
        places = [None if n == 1 else next(long) for n in base.shape]
        lengths = [1 if i is None else value.shape[i] for i in places]
        first = tuple(0 if i is None else starts[i] for i in places)
        return builder.reshape(value, lengths), first, tuple(1 if i is None else steps[i] for i in places)

    def is_view_of(self, type: ArrayType) -> bool:
        return [n for n in self.shape if n != 1] == [n for n in type.shape if n != 1]

    def numpy_view(self, a: StandIn) -> StandIn | None:
        try:
            return np.reshape(a, self.shape, copy=False)
        except ValueError:
            return None


@frozen
class TracerRowView:
    """Row `index`. weak: what it is of Python's numbers, where it is one."""

    index: int
    weak: WeakType | None = None
    others: tuple[Kind, ...] = ()

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        whole = value.shape
        row = builder.slice(value, (self.index, *(0 for _ in whole[1:])), (1,) * len(whole), (1, *whole[1:]))
        found = builder.reshape(row, whole[1:])
        return Value(found.number, found.type, self.weak, self.others)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        value, starts, steps = part
        return builder.reshape(value, (1, *value.shape)), (self.index, *starts), (1, *steps)

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return a[self.index, ...]


def rows_of_tracer(x: Tracer, weak: WeakType | None, others: Sequence[Kind] = ()) -> list[Tracer]:
    """The rows of an array that nobody else has, as a list: each becomes a node where it is used. weak, others: of
    numbers."""
    type = ArrayType(x.shape[1:], x.dtype)
    owner, alike = None if type.shape else SCALAR, tuple(others)
    rows = []
    for i in range(x.shape[0]):
        row = Tracer(x._trace, Value(-1, type, weak, alike), owner, x, TracerRowView(i, weak, alike))
        object.__setattr__(row, "_base", -1)
        rows.append(row)
    if type.shape:
        root_of_view(x)._views += map(weakref.ref, rows)
    return rows


def whole_array_of_rows(rows: Any) -> Tracer | None:
    """The array all of whose rows these are, in order; None where there is none. Lists of rows in lists too."""
    if type(rows) is not list or not rows:
        return None
    if type(rows[0]) is list:
        found = [whole_array_of_rows(row) for row in rows]
        rows = [x for x in found if x is not None]
        if len(rows) < len(found):
            return None
    base = rows[0]._parent if type(rows[0]) is Tracer else None
    if base is None or len(base.shape) == 0 or base.shape[0] != len(rows):
        return None
    steps = [x._step if type(x) is Tracer and x._parent is base else None for x in rows]
    return base if all(type(s) is TracerRowView and s.index == i for i, s in enumerate(steps)) else None


def whole_arrays_among_rows(rows: Sequence[Any]) -> list[tuple[Any, bool]]:
    """What is in a list, and whether it stands for all of its rows, which follow each other there."""
    found: list[tuple[Any, bool]] = []
    at = 0
    while at < len(rows):
        base = rows[at]._parent if type(rows[at]) is Tracer else None
        step = None if base is None else rows[at]._step
        count = base.shape[0] if base is not None and type(step) is TracerRowView and step.index == 0 else 0
        whole = whole_array_of_rows(list(rows[at : at + count]))
        found.append((rows[at] if whole is None else whole, whole is not None))
        at += 1 if whole is None else count
    return found


@frozen
class TracerContiguousView:
    """The array itself where its memory is dense in an order, else a dense copy. The order is `C` or `F`.

    through: it is known to be the array itself."""

    order: str
    through: bool = False

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return value

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        return part

    def is_view_of(self, type: ArrayType) -> bool:
        return type.size < 2

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return a if (a.flags.c_contiguous if self.order == "C" else a.flags.f_contiguous) else None


@frozen
class TracerBroadcastView:
    """NumPy's broadcast_to, which is read-only."""

    shape: tuple[int, ...]

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return builder.broadcast(value, self.shape)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        raise ReadOnlyError(self.read_only())

    def read_only(self) -> str:
        return "a broadcast array is read-only; assign to x.copy()"

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return np.broadcast_to(a, self.shape)


@frozen
class TracerReadOnlyView:
    """The same array, not to be assigned to."""

    what: str

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return value

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        raise ReadOnlyError(self.read_only())

    def read_only(self) -> str:
        return f"{self.what} is read-only; assign to x.copy()"

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return a


@frozen
class TracerDiagonalView:
    """Elements (..., i, i + offset), by a flat view. It has one step per row and column. Read-only, but where `einsum`
    gives it."""

    offset: int
    writable: bool = False

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        lead, (rows, columns), k = value.shape[:-2], value.shape[-2:], self.offset
        length = max(0, min(rows + min(k, 0), columns - max(k, 0)))
        first = max(k, 0) + max(-k, 0) * columns if length else 0
        flat, rest = builder.reshape(value, (*lead, rows * columns)), len(lead)
        return builder.slice(flat, (*(0,) * rest, first), (*(1,) * rest, columns + 1), (*lead, length))

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        value, starts, steps = part
        (rows, columns), k = base.shape[-2:], self.offset
        first, step = max(k, 0) + max(-k, 0) * columns, columns + 1
        flat = builder.reshape(base, (*base.shape[:-2], rows * columns))
        inside = value, (*starts[:-1], first + starts[-1] * step), (*steps[:-1], steps[-1] * step)
        return part_of_whole_array(builder.reshape(assign_part_of_array(builder, flat, inside), base.shape))

    def read_only(self) -> str:
        if self.writable:
            return ""
        return "a diagonal is read-only; write np.fill_diagonal, or x[i, i] = ... with i = np.arange(n)"

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return a.diagonal(self.offset, -2, -1)


@frozen
class TracerComplexPartView:
    """The real or the imaginary parts of complex numbers."""

    name: str  # `real` or `imag`

    def apply(self, builder: GraphBuilder, value: Value) -> Value:
        return builder.map(self.name, value)

    def part_of_base(self, builder: GraphBuilder, base: Value, part: Part) -> Part:
        value, starts, steps = part
        old = builder.slice(base, starts, steps, value.shape)
        halves = [value if name == self.name else builder.map(name, old) for name in ("real", "imag")]
        return builder.map("complex", *halves), starts, steps

    def numpy_view(self, a: StandIn) -> StandIn | None:
        return getattr(a, self.name)  # type: ignore[no-any-return]


@frozen
class TracerChoice:
    """One of several arrays, as flags say, of which one is set: the step of what owns no memory and is no view."""

    arrays: tuple[Tracer, ...]
    flags: tuple[Value, ...]

    def versions(self) -> tuple[int, ...]:
        """The nodes that the arrays stand for now."""
        return tuple(x._value.number for x in self.arrays)

    def roots(self) -> Iterator[Tracer]:
        """The arrays whose memory it may look at."""
        return (root for x in self.arrays for root in roots_of_array(x))

    def chosen_value(self, builder: GraphBuilder) -> Value:
        """What the chosen one stands for now."""
        found = self.arrays[-1]._value
        for x, flag in zip(self.arrays[:-1], self.flags, strict=False):
            found = select_value_by_flag(builder, flag, x._value, found)
        return found


def chosen_array(trace: Trace, arrays: Sequence[Tracer], flags: Sequence[Value]) -> Tracer:
    """The array whose flag is set: what is written to either is written to both."""
    found = Tracer(trace, Value(-1, arrays[0]._held.type))
    found._step, found._base = TracerChoice(tuple(arrays), tuple(flags)), ()
    trace.choices.append(weakref.ref(found))
    return found


def arrays_chosen_among(array: Tracer) -> Iterator[tuple[Tracer, list[Value]]]:
    """The arrays that an array may be, itself if values decide nothing, and the flags that are set then."""
    if not isinstance(array._step, TracerChoice):
        yield array, []
        return
    for part, flag in zip(array._step.arrays, array._step.flags, strict=True):
        for found, flags in arrays_chosen_among(part):
            yield found, [flag, *flags]


def select_value_by_flag(builder: GraphBuilder, flag: Value, v: Value, w: Value) -> Value:
    """The first of two values of one type where the flag, of shape (), is set. Else it is the second."""
    plain = [Value(x.number, x.type) for x in (v, w)]
    return builder.map("where", builder.broadcast(flag, v.shape) if v.shape else flag, *plain)


def part_of_whole_array(value: Value) -> Part:
    """The whole of an array, as a part of it."""
    return value, (0,) * len(value.shape), (1,) * len(value.shape)


def assign_part_of_array(builder: GraphBuilder, base: Value, part: Part) -> Value:
    """The base with a part of it replaced."""
    value, starts, steps = part
    all_ = value.shape == base.shape and not any(starts) and all(t == 1 for t in steps)
    return value if all_ else builder.update(base, value, starts, steps)


def view_of_tracer(x: Tracer, *steps: TracerViewStep) -> Tracer:
    """An array that shares memory with `x`, where NumPy's does."""
    if (loop := loop_operations()) is not None:
        return loop.view(x, steps)
    root = root_of_view(x)
    if root._owner == SCALAR:  # NumPy makes an array of its own from a scalar, or leaves the scalar
        if all(
            isinstance(step, (TracerPermuteView, TracerReshapeView)) and not getattr(step, "shape", ())
            for step in steps
        ):
            return x
        x = root = Tracer(x._trace, x._value)
    for step in steps:
        value = step.apply(x._trace.builder, x._value)
        x = Tracer(x._trace, value, x._owner, x, step)
        root._views.append(weakref.ref(x))
    return x


def root_of_view(x: Tracer) -> Tracer:
    """The array whose memory `x` looks at."""
    while x._parent is not None:
        x = x._parent
    return x


def roots_of_array(x: Tracer) -> Iterator[Tracer]:
    """The arrays whose memory `x` may look at: with one that a value has chosen all that it may be."""
    root = root_of_view(x)
    yield root
    if isinstance(root._step, TracerChoice):
        yield from root._step.roots()


def settled_root_of_view(x: Tracer) -> Tracer:
    """The array whose memory NumPy's array would look at; itself where that is not known."""
    try:
        settle_reshapes_of_tracers(x)
    except TraceError:
        return x
    return root_of_view(x)


def memory_layout_of_tracer(x: Tracer) -> MemoryLayout | None:
    """How it lies in memory; None where that is not known."""
    if x._parent is None:
        return x._layout
    steps = []
    while x._parent is not None:
        steps.append((x._step, x._parent))
        x = x._parent
    layout = x._layout
    for step, parent in reversed(steps):
        layout = ViewTracerLayout(step, (layout, parent._held.type))
    return layout


def tracer_layout_of_ufunc_result(operands: Iterable[Any]) -> MemoryLayout | None:
    """That of a ufunc's result; None where an operand is no array whose layout is known."""
    arrays = [x for x in operands if isinstance(x, Tracer) and x._held.type.shape]
    return UfuncResultTracerLayout(*((memory_layout_of_tracer(x), x._held.type) for x in arrays)) if arrays else None


def assign_to_tracer(target: Any, result: Tracer, casting: str = "same_kind") -> Tracer:
    """`target[...] = result`, of the same shape, for all that share the memory. Returns target.

    Raises TraceError, ReadOnlyError, ShapeError, DTypeError."""
    if (loop := loop_operations()) is not None:
        return loop.store(target, result, casting)
    if type(target) in SPECIAL:
        assign_to_tracer(SPECIAL[type(target)][3](target), result, casting)
        return target  # type: ignore[no-any-return]
    if not isinstance(target, Tracer):
        raise TraceError(
            "a traced result cannot be written into an untraced array; use the result itself, or assign to kg.zeros()"
        )
    trace = check_trace_alive(target)
    if target._owner == SCALAR:
        text = "a NumPy scalar cannot be assigned to; write x = x + ..., or assign to x.copy()"
        raise TraceError(text, numpys=True)
    if result.shape != target.shape:
        raise ShapeError(f"a result of shape {result.shape} cannot be written in place into shape {target.shape}")
    if not np.can_cast(result.dtype, target.dtype, casting):  # type: ignore[arg-type]
        raise DTypeError(
            f"{with_article(result.dtype)} result cannot be written in place into {with_article(target.dtype)} array; "
            f"write x = x.astype(np.{result.dtype}) first, or a new value"
        )
    builder = trace.builder
    _check_view_writable(target)
    value = builder.cast(result._value, target.dtype)
    settle_reshapes_of_tracers(target)
    if value.number == target._value.number or not result.size:
        _note_argument_written(target)
        return target
    _assign_part_of_tracer(target, part_of_whole_array(value))
    return target


def _assign_part_of_tracer(target: Tracer, part: Part) -> None:
    trace, builder = target._trace, target._trace.builder
    if target._owner == CAPTURED:
        if trace.world.may_open:  # it may be what an argument holds
            raise trace.world.open_arguments()
        raise TraceError(
            "assigning to an array that is no argument is not supported; pass it as an argument, or assign to x.copy()"
        )
    root = root_of_view(target)
    if root._depth < trace.depth:
        raise TraceError(
            "the body of a loop or branch cannot assign to an array from outside of it; pass it in, and return it"
        )
    root = target
    while root._parent is not None:
        step: Any = root._step
        part = step.part_of_base(builder, root._parent._value, part)
        root = root._parent
    if isinstance(root._step, TracerChoice):
        _assign_part_of_chosen_array(root._step, part)
        return
    settle_reshapes_of_tracers(*(v for x in (root, *trace.choices_of(root)) for v in _living_views_of_array(x)))
    trace.note_array_write(root)
    root._held = assign_part_of_array(builder, root._held, part)
    if isinstance(root._owner, int):
        trace.assigned[root._owner] = root


def _assign_part_of_chosen_array(choice: TracerChoice, part: Part) -> None:
    """Assigns a part of the one of several arrays whose flag is set."""
    value, starts, steps = part
    for x, flag in zip(choice.arrays, choice.flags, strict=True):
        try:
            _check_view_writable(x)
        except ReadOnlyError as error:
            text = f"a traced value decides which array is assigned to, and {error}"
            raise TraceError(text) from None
        settle_reshapes_of_tracers(x)
        builder = x._trace.builder
        old = builder.slice(x._value, starts, steps, value.shape)
        _assign_part_of_tracer(x, (select_value_by_flag(builder, flag, value, old), starts, steps))


def _note_argument_written(target: Tracer) -> None:
    """An argument that nothing changes in, although it is assigned to: NumPy refuses that of read-only memory too."""
    at = target
    while at._parent is not None:
        at = at._parent
    if at._parent is None and isinstance(at._owner, int):
        target._trace.assigned.setdefault(at._owner, at)


def _check_view_writable(x: Tracer) -> None:
    at = x
    while at._parent is not None:
        reason = getattr(at._step, "read_only", None)
        if reason is not None and (text := reason()):
            raise ReadOnlyError(text)
        at = at._parent


def _living_views_of_array(root: Tracer) -> list[Tracer]:
    """The views of an array that are still there."""
    seen = [v for ref in root._views if (v := ref()) is not None and v._parent is not None]
    root._views = [weakref.ref(v) for v in seen]
    return seen


def settle_reshapes_of_tracers(*views: Tracer) -> None:
    """Decide, as NumPy does, which of the reshapes that these look through are views; the others get memory of their
    own. Raises TraceError where NumPy's layout is not known."""
    for x in views:
        chain = [x]
        while chain[-1]._parent is not None:
            chain.append(chain[-1]._parent)
        for at in reversed(chain):
            if _is_undecided_reshape(at):
                _decide_tracer_view_or_copy(at)


def shares_memory(x: Tracer, y: Tracer) -> bool:
    """Whether two views that are known to be of one array have common elements."""
    type = root_of_view(x)._held.type
    base = dense_stand_in_of_tracer(type, range(len(type.shape)))
    first, second = _numpy_view_through_tracer_steps(base, x), _numpy_view_through_tracer_steps(base, y)
    if first is None or second is None:
        return True
    try:
        return np.shares_memory(first, second, max_work=1000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _numpy_view_through_tracer_steps(base: StandIn, x: Tracer) -> StandIn | None:
    """What NumPy's array would look at, of what stands for its root."""
    if x._parent is None:
        return base
    above = _numpy_view_through_tracer_steps(base, x._parent)
    return None if above is None else x._step.numpy_view(above)


def _is_undecided_reshape(x: Tracer) -> bool:
    step, parent = x._step, x._parent
    maybe = parent is not None and isinstance(step, (TracerReshapeView, TracerContiguousView)) and not step.through
    return maybe and not step.is_view_of(parent._held.type)  # type: ignore[union-attr]


def _decide_tracer_view_or_copy(x: Tracer) -> None:
    step, parent = x._step, x._parent
    assert parent is not None and isinstance(step, (TracerReshapeView, TracerContiguousView))
    if step.numpy_view(_numpy_stand_in_of_tracer(parent)) is None:
        _give_view_own_memory(x)
    else:
        x._step = replace(step, through=True)


def flat_view_of_tracer(x: Tracer) -> Tracer:
    """`x.flat`, which looks at x however that lies in memory."""
    return view_of_tracer(x, TracerReshapeView((x.size,), True, True))


def reshape_tracer_in_place(x: Tracer, shape: Any) -> None:
    """`x.shape = shape`, for all who have x. Raises TraceError, ShapeError where NumPy would have to copy."""
    lengths = x._trace.builder.reshape(x._value, to_traced_shape(shape)).shape
    if lengths == x.shape:
        return
    if x._owner == SCALAR or (x._parent is None and x._owner is not None):
        raise TraceError("the shape of an argument cannot be assigned, it is the caller's; write x = x.reshape(...)")
    choices = x._trace.choices_of(root_of_view(x))
    if isinstance(x._step, TracerChoice) or any(x is y for choice in choices for y in choice._step.arrays):
        text = "a traced value decides which array gets another shape; write x.reshape(...)"
        raise TraceError(text)
    _check_tracer_made_in_branch(x)
    if TracerReshapeView(lengths).numpy_view(_numpy_stand_in_of_tracer(x)) is None:
        raise ShapeError("incompatible shape for in-place modification: NumPy would copy; write x = x.reshape(...)")
    root = root_of_view(x)
    old = Tracer(x._trace, x._held, x._owner, x._parent, x._step, x._layout)
    old._depth = x._depth
    for v in _living_views_of_array(root):
        if v._parent is x:
            v._parent = old
    if root is x:
        old._views, x._views = [*x._views, weakref.ref(x)], []
    else:
        root._views.append(weakref.ref(old))
    x._parent, x._step, x._layout = old, TracerReshapeView(lengths, True), None
    x._held, x._base = x._step.apply(x._trace.builder, old._value), old._value.number


def _numpy_stand_in_of_tracer(x: Tracer) -> StandIn:
    """How x lies in memory. Raises TraceError where that is not known."""
    found = resolve_layout_of_tracer(memory_layout_of_tracer(x), x._held.type)
    if found is None:
        raise TraceError(
            "assigning to an array and to a reshape of it is not supported where the order of its memory is not known, "
            "since NumPy makes a view or a copy as it can; write x.reshape(...).copy(), or assign first"
        )
    return found


def unwrap_contiguous_view(x: Tracer) -> Tracer:
    """What it is another name of, where it is one: np.ascontiguousarray(x) may be x."""
    while isinstance(x._step, TracerContiguousView):
        settle_reshapes_of_tracers(x)
        if x._parent is None:
            break
        x = x._parent
    return x


def _give_view_own_memory(x: Tracer) -> None:
    """Give a view, and all that look at it, memory of its own."""
    _check_tracer_made_in_branch(x)
    root = root_of_view(x)
    below = [v for v in _living_views_of_array(root) if v is not x and _is_view_of_tracer(v, x)]
    x._held, x._layout = x._value, memory_layout_of_tracer(x)
    x._parent, x._step, x._owner = None, None, None
    for v in below:
        v._owner = None
    x._views = [weakref.ref(v) for v in below]
    gone = {id(v) for v in below}
    root._views = [weakref.ref(v) for v in _living_views_of_array(root) if id(v) not in gone]
    x._trace.register_array_owner(x)


def _check_tracer_made_in_branch(x: Tracer) -> None:
    """Raises TraceError where a traced decision's side changes what an earlier array looks at."""
    journal = x._trace.journal
    if journal is not None and not journal.may_detach(root_of_view(x)):
        raise TraceError(
            "where a traced value decides, an array that has been reshaped before cannot be assigned to, as NumPy "
            "would copy it; write x.reshape(...).copy() there"
        )


def _is_view_of_tracer(x: Tracer, base: Tracer) -> bool:
    at: Tracer | None = x
    while at is not None and at is not base:
        at = at._parent
    return at is base


def store_elements_in_tracer(target: Tracer, value: Any, way: Way | None = None) -> None:
    """`target[...] = value` as assignment to elements does it: broadcast, and converted to target's dtype."""
    if (loop := loop_operations()) is not None:
        loop.store_elements(target, value)
        return
    converted = converted_for_assignment(
        value, target, way or (AS_ARRAY if target.ndim and _is_part_of_flat_tracer(target) else ITEM)
    )
    shape = converted.shape
    while len(shape) > target.ndim and shape[0] == 1:
        shape = shape[1:]
    builder = target._trace.builder
    check_shape_fits_part(target, shape, target.shape)
    wide = builder.broadcast(builder.reshape(converted, shape), target.shape)
    assign_to_tracer(target, Tracer(target._trace, wide))


def check_shape_fits_part(x: Tracer, shape: tuple[int, ...], part: tuple[int, ...]) -> None:
    """Raises ShapeError where a value of this shape does not fit a part of x."""
    if x._trace.builder.broadcast_shapes("assignment", [shape, part]) != part:
        raise ShapeError(f"a value of shape {shape} cannot be assigned to a part of shape {part}")


def _is_part_of_flat_tracer(x: Tracer) -> bool:
    """Whether it is a part of `x.flat`."""
    at: Tracer | None = x
    while at is not None and not getattr(at._step, "flat", False):
        at = at._parent
    return at is not None


def converted_for_assignment(value: Any, target: Tracer, way: Way) -> Value:
    """The value converted to target's dtype, as NumPy converts what is assigned. Raises where a number does not fit."""
    return convert_operand_for_element(target._trace, value, target.dtype, way)


_PART_WAY = CAST if np.lib.NumpyVersion(np.__version__) < "2.5.0.dev0" else ITEM  # of `x.real = value`
ATTRIBUTES.update(
    flat=flat_view_of_tracer,
    shape=reshape_tracer_in_place,
    part=lambda half, value: store_elements_in_tracer(half, value, _PART_WAY),
)


def unknown_layout_of_tracers(arrays: Sequence[Tracer]) -> MemoryLayout | None:
    """Results that are parts of one array."""
    return UnknownTracerLayout()


def traced_results_as_copies(key: str, result: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """The result of a function that gives copies, in memory of its own; what was given as `out` stays."""
    if type(result) is Tracer:
        return _traced_result_as_copy(key, result, args, options)
    if isinstance(result, (tuple, list)) and any(type(r) is Tracer for r in result):
        found = [_traced_result_as_copy(key, r, args, options) if type(r) is Tracer else r for r in result]
        return result._make(found) if hasattr(result, "_make") else type(result)(found)
    return result


def results_as_views_or_copies(key: str, result: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """The same of a function that gives views of its arguments where it can."""
    views = (
        type(result) is Tracer
        and result.shape
        and any(type(a) is Tracer and _is_view_of_tracer(result, a) for a in args)
    )
    return result if views else traced_results_as_copies(key, result, args, options)


def _traced_result_as_copy(key: str, x: Tracer, args: Sequence[Any], options: dict[str, Any]) -> Tracer:
    if any(x is a for a in (*args[1:], *options.values())):
        return x
    if not x.shape and key in WITHOUT_AXES:
        return Tracer(x._trace, x._value, WITHOUT_AXES[key])
    if x._owner == SCALAR:
        return x
    order = COPY_ORDERS[key]
    simple = order is None or (has_one_dense_tracer_layout(x._held.type) and order is not unknown_layout_of_tracers)
    layout = None if simple or order is None else order([*_traced_array_arguments((*args, *options.values()))])
    if x._parent is None and x._owner is None and not any(x is a for a in args):
        x._layout = layout
        return x
    return Tracer(x._trace, x._value, layout=layout)


def _traced_array_arguments(args: Sequence[Any]) -> Iterator[Tracer]:
    for a in args:
        if type(a) is Tracer:
            if a.shape:
                yield a
        elif isinstance(a, (tuple, list)):
            yield from _traced_array_arguments(a)
