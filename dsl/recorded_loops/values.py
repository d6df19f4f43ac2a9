"""What the body of a recorded loop computes with: numbers, arrays, and names that have no one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...compiler.core.types import INT64, DType, WeakType
from ...compiler.kernel.body_builder import KernelValue
from ...runtime.core.frozen import dataclass
from ..trace.dispatch import LoopOperand
from ..trace.number_kinds import Kind
from ..trace.python_operators import COUNTER_BOUND
from ..trace.trace import LoopNotRecordable, TracedLoopSymbolBase, refuse_special_methods
from ..trace.tracer import SCALAR, is_asked_by_traced_code
from .linear import LinearExpression

Recorder: TypeAlias = Any  # `recorder.Recorder`, which is made of what is here
Element = Callable[[Sequence[KernelValue]], KernelValue]


@dataclass(frozen=True)
class FixedLoopError:
    """Makes an error that is the same whatever the value."""

    kind: type[Exception]
    text: str = ""

    def __call__(self, value: int) -> Exception:
        return self.kind(self.text) if self.text else self.kind()


@dataclass(frozen=True)
class LoopIndexError:
    """Makes NumPy's error of an index."""

    axis: int
    size: int | None

    def __call__(self, value: int) -> Exception:
        size = "" if self.size is None else f" with size {self.size}"
        return IndexError(f"index {value} is out of bounds for axis {self.axis}{size}")


@dataclass(frozen=True)
class LoopErrorAtLine:
    """Makes an error that names the user's line: NumPy's of an index at the front of its text, others in a note."""

    error: Callable[[int], Exception]
    line: str

    def __call__(self, value: int) -> Exception:
        made = self.error(value)
        if type(self.error) is LoopIndexError:
            return type(made)(f"{self.line}: {made}")
        made.add_note(f"at {self.line}")
        return made


class RecordAgain(BaseException):
    """Something turned out to be otherwise than expected: the outermost loop is recorded again."""


class LoopArrayStorage:
    """An array in memory. number: among the routine's arrays. root: the traced array that it is, if it is one."""

    def __init__(self, number: int, dtype: DType, shape: tuple[int, ...], root: Any = None, value: Any = None) -> None:
        self.number, self.dtype, self.shape, self.root, self.value = number, dtype, shape, root, value
        self.written = False
        self.frozen = ""  # why it may not be written to
        strides, step = [], 1
        for n in reversed(shape):
            strides.append(step)
            step *= n
        self.strides = tuple(reversed(strides))


# along an axis of the storage: the first index, the step (a number where it is known), which axis of the section
Sub = tuple[LinearExpression, int | LinearExpression, int]


@dataclass(frozen=True)
class LoopArraySection:
    """A part of an array in memory. Index i of it is index `start + i[axis] * step` of each axis; axis -1: start."""

    storage: LoopArrayStorage
    subs: tuple[Sub, ...]
    shape: tuple[LinearExpression, ...]

    def same_elements(self, other: LoopArraySection) -> bool:
        """Whether element i of both is one element, for every i."""
        return self.storage is other.storage and self.subs == other.subs

    def is_apart_from(self, other: LoopArraySection) -> bool:
        """Whether they are proved to have no element in common."""
        for (a, s, i), (b, t, j) in zip(self.subs, other.subs, strict=True):
            if not (isinstance(s, int) and isinstance(t, int)):
                continue
            first, last = _least_and_greatest_loop_index(a, s, self.shape[i] if i >= 0 else None)
            low, high = _least_and_greatest_loop_index(b, t, other.shape[j] if j >= 0 else None)
            if low.is_at_least(last + 1) or first.is_at_least(high + 1):
                return True
        return False

    def stride(self, axis: int) -> int:
        """How many elements are from one along an axis to the next; some where turns decide it."""
        steps = zip(self.subs, self.storage.strides, strict=True)
        return sum(abs(step * s if isinstance(step, int) else 2 * s) for (_, step, own), s in steps if own == axis)

    def is_contiguous(self) -> bool | None:
        """Whether its elements lie one after the other; None where turns decide it."""
        size = 1
        for axis in reversed(range(len(self.shape))):
            n = self.shape[axis]
            if n.known == 1:
                continue
            if self.stride(axis) != size:
                return False if n.is_at_least(2) else None
            if n.known is None and axis:
                return None
            size *= n.known or 1
        return all(not isinstance(by, int) or by > 0 for _, by, axis in self.subs if axis >= 0) or None

    def with_own_axis(self, axis: int, extent: LinearExpression) -> LoopArraySection:
        """The same elements, those along a section's axis along a further one of this extent."""
        subs = tuple((start, step, len(self.shape) if at == axis else at) for start, step, at in self.subs)
        return LoopArraySection(self.storage, subs, (*self.shape, extent))


def whole_section(storage: LoopArrayStorage, shape: Sequence[LinearExpression] | None = None) -> LoopArraySection:
    """All of an array, or its first elements along each axis."""
    lengths = tuple(map(LinearExpression, storage.shape) if shape is None else shape)
    return LoopArraySection(storage, tuple((LinearExpression(0), 1, axis) for axis in range(len(lengths))), lengths)


def _least_and_greatest_loop_index(
    start: LinearExpression, step: int, extent: LinearExpression | None
) -> tuple[LinearExpression, LinearExpression]:
    """The least and the greatest index, of an extent of 1 or more."""
    if extent is None:
        return start, start
    other = start + (extent - 1) * step
    return (start, other) if step > 0 else (other, start)


@dataclass(frozen=True)
class LazyLoopElements:
    """Elements that are computed when they are needed. leaves: what they read, in the coordinates of its indices, of
    which those of a reduction are the last. heavy: an element is a reduction."""

    shape: tuple[LinearExpression, ...]
    dtype: DType
    element: Element
    leaves: tuple[LoopArraySection, ...]
    heavy: bool = False
    columns: Callable[[LoopArraySection], None] | None = None  # writes all elements to a section of zeros, row by row

    def reads(self, storage: LoopArrayStorage) -> bool:
        return any(leaf.storage is storage for leaf in self.leaves)


class LoopSymbol(LoopOperand):
    """What numbers and arrays have in common."""

    __slots__ = ("_recorder",)
    _recorder: Recorder

    @property
    def _trace(self) -> Any:
        return self._recorder.trace

    @property
    def promotes_as(self) -> DType | WeakType:
        """What NumPy's promotion takes it for."""
        found: set[DType | WeakType] = {*self._recorder.dtypes_or_types(self)}
        if len(found) > 1:
            self._refuse_recording("a number has one dtype or another one, as values decide")
        return found.pop()

    def _refuse_recording(self, what: str) -> NoReturn:
        raise LoopNotRecordable(what, self._recorder.site)

    def refuse(self, *args: Any, **options: Any) -> NoReturn:
        self._refuse_recording("a value of a turn is used outside of its loop")

    def __bool__(self) -> bool:
        known: bool | None = self._recorder.known_truth(self)
        if known is None:
            self._refuse_recording("Python itself asks for the truth of a value that differs from turn to turn")
        return known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._recorder.method(self, name)

    def __repr__(self) -> str:
        if is_asked_by_traced_code():
            self._refuse_recording("a value that differs from turn to turn is made a text")
        return "<a value of a turn>"


REFUSED = {
    "__index__": "Python itself asks which number an array is that differs from turn to turn",
    "__int__": "int() of a value that differs from turn to turn is called from Python itself",
    "__float__": "float() of a value that differs from turn to turn is called from Python itself",
    "__complex__": "complex() of a value that differs from turn to turn",
    "__hash__": "a value that differs from turn to turn is a key",
    "__array__": "a value that differs from turn to turn is made a NumPy array",
    "__contains__": "`in` a value that differs from turn to turn",
    **dict.fromkeys(("__str__", "__format__"), "a value that differs from turn to turn is made a text"),
    **dict.fromkeys(
        ("__round__", "__trunc__", "__floor__", "__ceil__"), "round() of a value that differs from turn to turn"
    ),
}
for _name, _reason in REFUSED.items():
    setattr(LoopSymbol, _name, lambda self, *args, _reason=_reason, **options: self._refuse_recording(_reason))


class LoopNumber(LoopSymbol):
    """A number of the routine: a value, or an int that is linear. weak: the Python type whose promotion it follows.

    others: what NumPy may have in its place, as values decide: `0` before the first turn that adds a float32.
    differs: whether it is one of these, where that is known. magnitude: what an int of Python's does not exceed."""

    __slots__ = ("_computed", "differs", "dtype", "index", "linear", "magnitude", "others", "weak")

    def __init__(
        self,
        recorder: Recorder,
        value: KernelValue | None,
        weak: WeakType | None = None,
        linear: LinearExpression | None = None,
        others: Sequence[Kind] = (),
        differs: KernelValue | None = None,
    ) -> None:
        self.differs, self.magnitude = differs, COUNTER_BOUND
        self._recorder, self._computed, self.weak, self.linear = recorder, value, weak, linear
        self.dtype = INT64 if value is None else value.dtype
        self.others = others
        self.index: LinearExpression | None = None  # what it is as an index, once it was one

    _owner = SCALAR

    def __getattr__(self, name: str) -> Any:
        constant = None if self.weak is not None else {"shape": (), "ndim": 0, "size": 1}.get(name)
        return super().__getattr__(name) if constant is None else constant

    @property
    def value(self) -> KernelValue:
        """Of a linear one, in the block that is being written."""
        if self.linear is not None:
            found: KernelValue = self._recorder.emit(self.linear)
            return found
        assert self._computed is not None
        return self._computed

    @property
    def T(self) -> LoopNumber:
        return self

    def __index__(self) -> NoReturn:
        self._recorder.lists.look_for_indexed_list()
        self._refuse_recording("Python itself asks which number a value is that differs from turn to turn")

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        if self.others and is_asked_by_traced_code():
            return self.class_for_traced_code()
        return self.dtype.type if self.weak is None else self.weak

    def class_for_traced_code(self) -> type:
        """`type(x)` of what it stands for."""
        if self.others:
            self._refuse_recording("whether a number is Python's or NumPy's differs from turn to turn")
        return self.__class__

    def __getitem__(self, key: Any) -> Any:
        if key == () or key is Ellipsis:
            return self
        self._refuse_recording("an index into a number")


class LoopArray(LoopSymbol):
    """An array: a section of memory, or elements that are computed when they are needed."""

    __slots__ = ("__weakref__", "expression", "scope", "section")

    def __init__(
        self, recorder: Recorder, expression: LazyLoopElements, section: LoopArraySection | None = None
    ) -> None:
        self._recorder, self.expression, self.section = recorder, expression, section
        self.scope = recorder.body.scopes[-1]
        if section is None:
            recorder.alive[id(self)] = self

    _owner = None

    @property
    def dtype(self) -> DType:
        return self.expression.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self._recorder.extent(n) for n in self.expression.shape)

    @property
    def ndim(self) -> int:
        return len(self.expression.shape)

    @property
    def size(self) -> Any:
        found: Any = 1
        for n in self.shape:
            found = found * n
        return found

    @property
    def T(self) -> Any:
        return self._recorder.call_function(np.transpose, (self,), {})

    def __len__(self) -> int:
        n = self.expression.shape[0].known if self.expression.shape else None
        if n is None:
            self._refuse_recording("len() of an array whose length differs from turn to turn")
        return n

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        return self._recorder.get_item(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._recorder.set_item(self, key, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray


class SpoiledLoopVariable(TracedLoopSymbolBase):
    """What a name stands for whose value depends on how often a loop ran. So where an if's side decides it: nobody may
    ask."""

    __slots__ = ("name", "site")

    def __init__(self, name: str, site: Any = None) -> None:
        self.name, self.site = name, site

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__slots__:
            self.refuse()
        object.__setattr__(self, name, value)

    def refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise LoopNotRecordable(f"{self.name} is not the same kind of value whichever way the program takes", self.site)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        if is_asked_by_traced_code():
            self.refuse()
        return SpoiledLoopVariable

    class_for_traced_code = check_is_not = refuse  # what `type(x)` and `x is y` ask


refuse_special_methods(SpoiledLoopVariable)
