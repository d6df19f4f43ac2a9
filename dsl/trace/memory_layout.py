"""How NumPy would lay out the arrays of a trace in memory, found only where it decides between a view and a copy.

What stands for an array here is a NumPy array of the same shape, dtype and strides over memory that nobody reads: what
NumPy makes of it (a view, a copy, a result in an order of its own) is NumPy's own answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...compiler.core.types import ArrayType

StandIn = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class MemoryLayout(Protocol):
    """What knows how an array lies in memory, or finds out."""

    def source_layouts(self) -> Sequence[_TypedTracerLayout]:
        """The layouts that it depends on."""
        ...

    def stand_in_for(self, type: ArrayType, parts: Sequence[StandIn | None]) -> StandIn | None:
        """What stands for an array of a type that lies so; None where that is not known. May raise NeedValue."""
        ...


class DenseTracerLayout:
    """Dense, in C's or Fortran's order."""

    __slots__ = ("order",)

    def __init__(self, order: str) -> None:
        self.order = order

    def source_layouts(self) -> Sequence[_TypedTracerLayout]:
        return ()

    def stand_in_for(self, type: ArrayType, parts: Sequence[StandIn | None]) -> StandIn | None:
        axes = range(len(type.shape))
        return dense_stand_in_of_tracer(type, axes if self.order == "C" else axes[::-1])


class UnknownTracerLayout:
    """Not dense for certain, of one axis too."""

    __slots__ = ()

    def source_layouts(self) -> Sequence[_TypedTracerLayout]:
        return ()

    def stand_in_for(self, type: ArrayType, parts: Sequence[StandIn | None]) -> StandIn | None:
        return None


C, F = DenseTracerLayout("C"), DenseTracerLayout("F")


class ArgumentTracerLayout:
    """That of an argument of the call, which then becomes part of the key."""

    __slots__ = ("leaf", "trace")

    def __init__(self, trace: Any, leaf: int) -> None:
        self.trace, self.leaf = trace, leaf

    def source_layouts(self) -> Sequence[_TypedTracerLayout]:
        return ()

    def stand_in_for(self, type: ArrayType, parts: Sequence[StandIn | None]) -> StandIn | None:
        strides = self.trace.strides.get(self.leaf) if type.shape else ()
        if strides is None:
            raise self.trace.need_values([self.leaf])
        return unreadable_stand_in(type, strides)


class DerivedTracerLayout:
    """That of what is made of other arrays."""

    __slots__ = ("_from",)

    def __init__(self, *arrays: tuple[MemoryLayout | None, ArrayType]) -> None:
        self._from = arrays

    def source_layouts(self) -> Sequence[_TypedTracerLayout]:
        return [_TypedTracerLayout(layout, type) for layout, type in self._from]

    def stand_in_for(self, type: ArrayType, parts: Sequence[StandIn | None]) -> StandIn | None:
        known = [p for p in parts if p is not None]
        return self.stand_in_from(type, known) if len(known) == len(parts) else None

    def stand_in_from(self, type: ArrayType, parts: Sequence[StandIn]) -> StandIn | None:
        raise NotImplementedError


class _TypedTracerLayout:
    """A layout of an array of a known type."""

    __slots__ = ("layout", "type")

    def __init__(self, layout: MemoryLayout | None, type: ArrayType) -> None:
        self.layout, self.type = layout, type


class UfuncResultTracerLayout(DerivedTracerLayout):
    """That of a ufunc's result: dense, its axes in the order that they have in the operands (NumPy's order K)."""

    __slots__ = ()

    def stand_in_from(self, type: ArrayType, parts: Sequence[StandIn]) -> StandIn | None:
        small: list[Any] = [*map(_shrunk_stand_in_of_tracer, parts), None]
        flags: Any = [["readonly"]] * len(parts) + [["writeonly", "allocate"]]
        dtypes = [None] * len(parts) + [np.dtype(np.int8)]
        found: StandIn = np.nditer(small, ["zerosize_ok"], flags, dtypes).operands[-1]
        return (
            dense_stand_in_of_tracer(type, _stand_in_axes_by_stride(found)) if found.ndim == len(type.shape) else None
        )


class CommonOrderTracerLayout(DerivedTracerLayout):
    """C's order, where all operands lie so; else it is not known."""

    __slots__ = ()

    def stand_in_from(self, type: ArrayType, parts: Sequence[StandIn]) -> StandIn | None:
        return C.stand_in_for(type, ()) if all(p.flags.c_contiguous for p in parts) else None


class CopyTracerLayout(DerivedTracerLayout):
    """That of a copy in NumPy's order K."""

    __slots__ = ()

    def stand_in_from(self, type: ArrayType, parts: Sequence[StandIn]) -> StandIn | None:
        found = np.empty_like(_shrunk_stand_in_of_tracer(parts[0]), np.int8)
        return (
            dense_stand_in_of_tracer(type, _stand_in_axes_by_stride(found)) if found.ndim == len(type.shape) else None
        )


class ViewTracerLayout(DerivedTracerLayout):
    """That of a view."""

    __slots__ = ("step",)

    def __init__(self, step: Any, base: tuple[MemoryLayout | None, ArrayType]) -> None:
        super().__init__(base)
        self.step = step

    def stand_in_from(self, type: ArrayType, parts: Sequence[StandIn]) -> StandIn | None:
        found: StandIn | None = self.step.numpy_view(parts[0])
        if found is not None:
            return found
        return (F if getattr(self.step, "order", "C") == "F" else C).stand_in_for(type, ())  # the copy that NumPy makes


def resolve_layout_of_tracer(layout: MemoryLayout | None, type: ArrayType) -> StandIn | None:
    """What stands for an array of a type; None where NumPy's layout is not known. May raise NeedValue."""
    found: dict[Any, StandIn | None] = {}
    top = _TypedTracerLayout(layout, type)
    todo = [(top, list(_parts_of_typed_tracer_layout(top)))]
    while todo:  # not by recursion: a long loop makes a long chain
        at, parts = todo[-1]
        open_ = [p for p in parts if _key_of_typed_tracer_layout(p) not in found]
        if open_:
            todo += [(p, list(_parts_of_typed_tracer_layout(p))) for p in open_]
            continue
        todo.pop()
        found[_key_of_typed_tracer_layout(at)] = _stand_in_of_tracer_layout(
            at, [found[_key_of_typed_tracer_layout(p)] for p in parts]
        )
    return found[_key_of_typed_tracer_layout(top)]


def _key_of_typed_tracer_layout(x: _TypedTracerLayout) -> Any:
    return id(x.layout), x.type


def _parts_of_typed_tracer_layout(x: _TypedTracerLayout) -> Sequence[Any]:
    return () if x.layout is None else x.layout.source_layouts()


def _stand_in_of_tracer_layout(x: _TypedTracerLayout, parts: Sequence[StandIn | None]) -> StandIn | None:
    if x.layout is None:
        return (
            dense_stand_in_of_tracer(x.type, range(len(x.type.shape))) if has_one_dense_tracer_layout(x.type) else None
        )
    return x.layout.stand_in_for(x.type, parts)


def has_one_dense_tracer_layout(type: ArrayType) -> bool:
    """Whether a dense array of the type can lie in one way only."""
    return not type.size or sum(n != 1 for n in type.shape) < 2


def unreadable_stand_in(type: ArrayType, strides: Shape) -> StandIn:
    """What nobody may read."""
    return as_strided(np.empty((), type.dtype), type.shape, strides)


def dense_stand_in_of_tracer(type: ArrayType, axes: Sequence[int]) -> StandIn:
    """Dense memory in which these axes come from the outermost to the innermost."""
    strides, step = [0] * len(type.shape), type.dtype.itemsize
    for axis in reversed(axes):
        strides[axis] = step
        step *= max(type.shape[axis], 1)
    return unreadable_stand_in(type, tuple(strides))


def _shrunk_stand_in_of_tracer(x: StandIn) -> StandIn:
    """The same order of axes in less memory."""
    return as_strided(x, tuple(min(n, 2) for n in x.shape), x.strides)


def _stand_in_axes_by_stride(x: StandIn) -> list[int]:
    return sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
