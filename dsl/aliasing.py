"""Views that know what they look at, and assignment: what is written through one name is seen under all of them.

A graph has no memory: an assignment makes a new version of the array that owns the memory, and each view of it finds
its own new version when it is next asked.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import numpy as np

from ..compiler.builder import Builder
from ..compiler.graph import Value
from ..compiler.types import ArrayType
from ..runtime.records import dataclass
from .errors import DTypeError, ReadOnlyError, ShapeError, TraceError
from .items import as_element
from .tracer import CAPTURED, SCALAR, Tracer, check_alive

Part = tuple[Value, tuple[int, ...], tuple[int, ...]]  # what is assigned, and the (starts, steps) of where it goes


@dataclass(frozen=True, slots=True)
class Slice:
    """Element i is element `starts + i * steps`."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]

    def apply(self, builder: Builder, value: Value) -> Value:
        return builder.slice(value, self.starts, self.steps, self.shape)

    def lift(self, builder: Builder, base: ArrayType, part: Part) -> Part:
        """A part of the view as the part of `base` that it is."""
        value, starts, steps = part
        first = tuple(s + t * a for s, t, a in zip(self.starts, self.steps, starts, strict=True))
        return value, first, tuple(t * b for t, b in zip(self.steps, steps, strict=True))


@dataclass(frozen=True, slots=True)
class Permute:
    """Axis i is axis `axes[i]`."""

    axes: tuple[int, ...]

    def apply(self, builder: Builder, value: Value) -> Value:
        return builder.permute(value, self.axes)

    def lift(self, builder: Builder, base: ArrayType, part: Part) -> Part:
        value, starts, steps = part
        back = [self.axes.index(i) for i in range(len(self.axes))]
        return builder.permute(value, back), tuple(starts[i] for i in back), tuple(steps[i] for i in back)


@dataclass(frozen=True, slots=True)
class Reshape:
    """The same elements in C order. In NumPy it is a view for certain only where axes of length 1 come and go."""

    shape: tuple[int, ...]

    def apply(self, builder: Builder, value: Value) -> Value:
        return builder.reshape(value, self.shape)

    def lift(self, builder: Builder, base: ArrayType, part: Part) -> Part:
        if not self.is_view_of(base):
            raise TraceError(
                "assigning through a reshape is not supported, since NumPy makes a view or a copy there as it can; "
                "assign to the array itself, or to x = x.reshape(...).copy()"
            )
        value, starts, steps = part
        long = iter([axis for axis, n in enumerate(self.shape) if n != 1])
        places = [None if n == 1 else next(long) for n in base.shape]
        lengths = [1 if i is None else value.shape[i] for i in places]
        first = tuple(0 if i is None else starts[i] for i in places)
        return builder.reshape(value, lengths), first, tuple(1 if i is None else steps[i] for i in places)

    def is_view_of(self, type: ArrayType) -> bool:
        return [n for n in self.shape if n != 1] == [n for n in type.shape if n != 1]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """NumPy's broadcast_to, which is read-only."""

    shape: tuple[int, ...]

    def apply(self, builder: Builder, value: Value) -> Value:
        return builder.broadcast(value, self.shape)

    def lift(self, builder: Builder, base: ArrayType, part: Part) -> Part:
        raise ReadOnlyError("a broadcast array is read-only; assign to x.copy()")


class Look(Protocol):
    """One way to look at an array."""

    def apply(self, builder: Builder, value: Value) -> Value: ...

    def lift(self, builder: Builder, base: ArrayType, part: Part) -> Part: ...


def view(x: Tracer, *steps: Look) -> Tracer:
    """An array that shares memory with `x`."""
    root = root_of(x)
    if root._owner == SCALAR:  # NumPy makes an array of its own from a scalar
        x = root = Tracer(x._trace, x._value)
    for step in steps:
        value = step.apply(x._trace.builder, x._value)
        x = Tracer(x._trace, value, x._owner, x, step)
        root._views.append(weakref.ref(x))
    return x


def root_of(x: Tracer) -> Tracer:
    """The array whose memory `x` looks at."""
    while x._parent is not None:
        x = x._parent
    return x


def assign(target: Any, result: Tracer, casting: str = "same_kind") -> Tracer:
    """`target[...] = result`, of the same shape, for all that share the memory. Returns target.

    Raises TraceError, ReadOnlyError, ShapeError, DTypeError."""
    if not isinstance(target, Tracer):
        raise TraceError(
            "a traced result cannot be written into an untraced array; use the result itself, or assign to kg.zeros()"
        )
    trace = check_alive(target)
    if target._owner == SCALAR:
        raise TraceError("a NumPy scalar cannot be assigned to; write x = x + ..., or assign to x.copy()")
    if target._owner == CAPTURED:
        raise TraceError(
            "assigning to an array that is no argument is not supported; pass it as an argument, or assign to x.copy()"
        )
    if root_of(target)._depth < trace.depth:
        raise TraceError(
            "the body of a loop or branch cannot assign to an array from outside of it; pass it in, and return it"
        )
    if result.shape != target.shape:
        raise ShapeError(f"a result of shape {result.shape} cannot be written in place into shape {target.shape}")
    if not np.can_cast(result.dtype, target.dtype, casting):  # type: ignore[arg-type]
        raise DTypeError(
            f"a {result.dtype} result cannot be written in place into a {target.dtype} array; "
            f"write x = x.astype(np.{result.dtype}) first, or a new value"
        )
    builder = trace.builder
    value = builder.cast(result._value, target.dtype)
    if value.number == target._value.number or not result.size:
        return target
    part: Part = value, (0,) * target.ndim, (1,) * target.ndim
    root = target
    while root._parent is not None:
        step: Any = root._step
        part = step.lift(builder, root._parent._held.type, part)
        root = root._parent
    value, starts, steps = part
    whole = value.shape == root.shape and not any(starts) and all(t == 1 for t in steps)
    seen = [v for ref in root._views if (v := ref()) is not None]
    root._views = [weakref.ref(v) for v in seen]
    if any(_may_be_a_copy(v) for v in seen):
        raise TraceError(
            "assigning to an array that a reshape of it still looks at is not supported, since NumPy makes a view or a "
            "copy there as it can; write x.reshape(...).copy(), or assign first"
        )
    root._held = value if whole else builder.update(root._held, value, starts, steps)
    if isinstance(root._owner, int):
        trace.assigned[root._owner] = root
    return target


def _may_be_a_copy(x: Tracer) -> bool:
    step, parent = x._step, x._parent
    return isinstance(step, Reshape) and parent is not None and not step.is_view_of(parent._held.type)


def store(target: Tracer, value: Any) -> None:
    """`target[...] = value` as assignment to elements does it: broadcast, and converted to target's dtype."""
    converted = as_dtype(value, target)
    shape = converted.shape
    while len(shape) > target.ndim and shape[0] == 1:
        shape = shape[1:]
    builder = target._trace.builder
    if builder.broadcast_shapes("assignment", [shape, target.shape]) != target.shape:
        raise ShapeError(f"a value of shape {shape} cannot be assigned to a part of shape {target.shape}")
    wide = builder.broadcast(builder.reshape(converted, shape), target.shape)
    assign(target, Tracer(target._trace, wide))


def as_dtype(value: Any, target: Tracer) -> Value:
    """The value converted to target's dtype, as NumPy converts what is assigned. Raises where a number does not fit."""
    return as_element(target._trace, value, target.dtype)
