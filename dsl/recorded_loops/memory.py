"""Memory and integers of a routine that is written: arrays as sections, and their elements computed and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...compiler.core.types import BOOL, HALVES, INT64, DType
from ...compiler.graph.graph import Value
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.sequential.body import RoutineBody, Scope
from ...compiler.sequential.form import For
from ...runtime.core.readable_text import with_article
from ..core.errors import user_line
from ..trace.aliasing import roots_of_array
from ..trace.number_kinds import Kind, is_held_otherwise
from ..trace.operands import to_graph_operand
from ..trace.python_operators import magnitude_of_node
from ..trace.trace import LoopNotRecordable, Trace, TracedLoopSymbolBase
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .kinds import PLAIN, LoopList, loop_kinds_of
from .linear import LinearExpression, LoopIntegerAtom
from .sections import Access, loop_view_steps_of_tracer
from .values import (
    Element,
    FixedLoopError,
    LazyLoopElements,
    LoopArray,
    LoopArraySection,
    LoopArrayStorage,
    LoopErrorAtLine,
    LoopNumber,
    RecordAgain,
    SpoiledLoopVariable,
    whole_section,
)

NOT_BROADCAST = FixedLoopError(ValueError, "operands could not be broadcast together")
LARGE = 1 << 15  # elements of one step whose number does not change: more are left to parallel kernels


def overwritten_element_in_loop(index: Sequence[KernelValue]) -> KernelValue:
    raise LoopNotRecordable("an array is used after what it was computed from has changed, or outside of its loop")


class LoopMemory:
    """The routine's statements, its arrays, and what has been asked of the trace around."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.body = RoutineBody()
        self.storages: list[LoopArrayStorage] = []
        self.of_root: dict[int, LoopArrayStorage] = {}
        self.of_view: dict[int, tuple[Tracer, LoopArrayStorage]] = {}
        self.numbers: dict[tuple[int, Any], LoopNumber] = {}  # a traced scalar's node and Python type -> what it is
        self.variables: list[DType] = []
        self.checks: list[LoopErrorAtLine] = []
        self.alive: WeakValueDictionary[int, LoopArray] = WeakValueDictionary()  # those to be computed, by identity
        self.keeps_overwritten = False  # whether what is assigned is asked for after that
        self.weight = self.turns = self.width = 1.0
        self.wide, self.meets = 0.0, 1.0  # turns of them altogether, and how often what comes next waits for others
        self.touched: list[Access] = []
        self.step = 1.0  # independent turns around what is written, all together
        self.parallel = 0
        self.atoms: dict[int, LoopIntegerAtom] = {}
        self.broadcasts: set[tuple[LinearExpression, LinearExpression]] = set()  # lengths that are compared: to which
        self.masks: list[tuple[LoopArray, Scope, tuple[LoopArray, ...]]] = []  # and where each one is True

    # what the outside is

    def lift(self, x: Any) -> Any:
        """A Number, a LoopArray or a Python number. Raises LoopNotRecordable."""
        if isinstance(x, LoopList) and x.items is not None:
            return self.array_from(x.items)
        if isinstance(x, (LoopNumber, LoopArray)):
            return x
        if type(x) in PLAIN:
            return x
        if isinstance(x, SpoiledLoopVariable):
            x.refuse()
        if isinstance(x, np.generic) and not isinstance(x, Tracer):
            self.check_dtype(x.dtype)
            return LoopNumber(self, self.body.const(x, x.dtype))
        if type(x) is TracedNumber or (type(x) is Tracer and x._owner == SCALAR):
            with self.outside():
                value = to_graph_operand(x)
            return self._loop_number_of_value(value) if isinstance(value, Value) else value
        if type(x) is Tracer:
            return self.section_of(x)
        if isinstance(x, np.ndarray) and type(x) is np.ndarray:
            with self.outside():
                value = self.trace.capture_array(x)
            storage = self.of_root.get(id(x)) or self._new_array_storage(value, x)
            storage.frozen = "an array that is no argument is assigned to"
            return self.array_of_section(whole_section(storage))
        if isinstance(x, (list, tuple)):
            return self.array_from(x)
        raise LoopNotRecordable(f"{with_article(type(x).__name__)} takes part in it")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """While the body runs: what would be a node of the trace was not followed."""
        builder = self.trace.builder
        before = builder.limit, builder.at_limit
        builder.limit, builder.at_limit = -1, self.refuse_graph_nodes
        self.trace.recorder = self
        try:
            yield
        finally:
            self.trace.recorder = None
            builder.limit, builder.at_limit = before

    def refuse_graph_nodes(self) -> None:
        raise LoopNotRecordable("it does something that is not recorded")

    @contextmanager
    def outside(self) -> Iterator[None]:
        """While nodes may be made."""
        builder = self.trace.builder
        before, builder.limit = builder.limit, 1 << 62
        try:
            yield
        finally:
            builder.limit = before

    def check_dtype(self, dtype: DType) -> None:
        if dtype in HALVES or dtype.kind not in "biufc":
            raise LoopNotRecordable(f"it computes with {dtype}")

    def _loop_number_of_value(self, value: Value) -> LoopNumber:
        found = self.numbers.get((value.number, value.weak))
        if found is None:
            self.check_dtype(value.dtype)
            if value.shape:
                raise LoopNotRecordable("a scalar has axes")
            storage = self._new_array_storage(value, None, key=("number", value.number))
            with self.body.outermost():
                loaded = self.body.load_element(storage.number, storage.dtype, self.body.const(0, INT64))
            flag = self.trace.differing.get(value.number) if value.others else None
            differs = None if flag is None else self._loop_number_of_value(flag).value
            found = LoopNumber(self, loaded, value.weak, None, value.others, differs)
            found.magnitude = magnitude_of_node(self.trace, value.number)
            self.numbers[value.number, value.weak] = found
        return found

    def differs(self, x: Any, held: Kind) -> KernelValue | None:
        """Whether a number is not what one is held as; None where nothing says so."""
        known = is_held_otherwise(loop_kinds_of(x), held)
        if known is None:
            return x.differs if isinstance(x, LoopNumber) else None
        return self.body.const(known, BOOL)

    def _new_array_storage(self, value: Value, root: Any, key: Any = None) -> LoopArrayStorage:
        self.check_dtype(value.dtype)
        storage = LoopArrayStorage(len(self.storages), value.dtype, value.shape, root, Value(value.number, value.type))
        self.storages.append(storage)
        self.of_root[id(root) if key is None else key] = storage
        return storage

    def section_of(self, x: Tracer) -> LoopArray:
        """An array of the trace: a section of the memory that it looks at, where that is simple."""
        steps = loop_view_steps_of_tracer(x)
        if steps is None:  # a copy, as it were: right as long as nothing is written to what it looks at
            found = self.of_view.get(id(x))
            if found is None:
                with self.outside():
                    value = x._value
                found = self.of_view[id(x)] = (x, self._new_array_storage(value, None, key=("view", id(x))))
                found[1].frozen = "an array is assigned to that is a view which is not followed"
                self._freeze_roots(x)
            return self.array_of_section(whole_section(found[1]))
        root, subs, shape = steps
        storage = self.of_root.get(id(root))
        if storage is None:
            storage = self._new_array_storage(root._value, root)
        return self.array_of_section(LoopArraySection(storage, subs, shape))

    def _freeze_roots(self, x: Tracer) -> None:
        for root in roots_of_array(x):
            storage = self.of_root.get(id(root))
            if storage is None:
                with self.outside():
                    storage = self._new_array_storage(root._value, root)
            if storage.written:
                raise LoopNotRecordable("an array is assigned to, and read through a view that is not followed")
            storage.frozen = "an array is assigned to, and read through a view that is not followed"

    def array_of_section(self, section: LoopArraySection) -> LoopArray:
        expression = LazyLoopElements(
            section.shape, section.storage.dtype, lambda idx: self.load(section, idx), (section,)
        )
        return LoopArray(self, expression, section)

    # integers

    def emit(self, linear: LinearExpression) -> KernelValue:
        body = self.body
        found: KernelValue | None = None
        for atom, factor in linear.terms:
            term = atom.value if abs(factor) == 1 else atom.value * body.const(abs(factor), INT64)
            found = (-term if factor < 0 else term) if found is None else found - term if factor < 0 else found + term
        if found is None:
            return body.const(linear.constant, INT64)
        return found + body.const(linear.constant, INT64) if linear.constant else found

    def extent(self, n: LinearExpression) -> Any:
        return n.known if n.known is not None else LoopNumber(self, None, int, n)

    def linear(self, x: Any) -> LinearExpression:
        """An integer, as NumPy takes it for an index. Raises LoopNotRecordable for other things."""
        if type(x) is LinearExpression:
            return x
        if type(x) in (bool, np.bool_):
            raise LoopNotRecordable("a bool is an index")
        if isinstance(x, (int, np.integer)) and not isinstance(x, (Tracer, TracedLoopSymbolBase)):
            return LinearExpression(int(x))
        x = self.lift(x)
        if type(x) is int:
            return LinearExpression(x)
        if not isinstance(x, LoopNumber) or x.dtype.kind not in "iu":
            raise LoopNotRecordable("an array or a float is an index")
        if x.linear is not None:
            return x.linear
        if x.index is not None:
            return x.index
        value = x.value
        known = self.body.constant(value)
        if known is not None:
            return LinearExpression(int(known))
        info = np.iinfo(x.dtype)
        small = x.dtype.itemsize < 8
        bounds = ((LinearExpression(int(info.min)),), (LinearExpression(int(info.max)),)) if small else ((), ())
        x.index = self.atom(value.cast(INT64), *bounds)
        return x.index

    def atom(
        self, value: KernelValue, lows: Sequence[LinearExpression] = (), highs: Sequence[LinearExpression] = ()
    ) -> LinearExpression:
        number = value.numbers[0]  # an equal value is the same atom: so equal lengths are seen to be equal
        if number not in self.atoms:
            self.atoms[number] = LoopIntegerAtom(value, lows, highs)
        return LinearExpression(0, ((self.atoms[number], 1),))

    def least(self, a: LinearExpression, b: LinearExpression) -> LinearExpression:
        return self._extreme(a, b, -1)

    def greatest(self, a: LinearExpression, b: LinearExpression) -> LinearExpression:
        return self._extreme(a, b, 1)

    def _extreme(self, a: LinearExpression, b: LinearExpression, sign: int) -> LinearExpression:
        """The greater one (sign 1), or the lesser one (sign -1)."""
        for x, y in ((a, b), (b, a)):
            if ((x - y) * sign).is_at_least(0):
                return x
        first, second = self.emit(a), self.emit(b)
        value = first.maximum(second) if sign > 0 else first.minimum(second)
        most = [(x * sign).greatest for x in (a, b)]
        ends = () if None in most else (LinearExpression(max(n for n in most if n is not None) * sign),)
        return self.atom(value, (a, b), ends) if sign > 0 else self.atom(value, ends, (a, b))

    def fail_if(
        self, condition: KernelValue, value: KernelValue, error: Callable[[int], Exception], line: str | None = None
    ) -> None:
        """The call raises what `error` makes of the value where the condition holds. line: by default that which
        runs."""
        trace = self.trace
        if trace.handlers and not trace.reruns:
            raise LoopNotRecordable("a try is around what may raise an error")
        if trace.depth or ((trace.loops or trace.path) and not trace.reruns):
            raise LoopNotRecordable("it may raise an error, within what a traced value decides")
        if self.parallel:
            raise LoopNotRecordable("an element of an array is checked")
        self.checks.append(LoopErrorAtLine(error, line or user_line()))
        self.body.stop(condition, len(self.checks), value)

    # memory

    def load(self, section: LoopArraySection, index: Sequence[KernelValue]) -> KernelValue:
        self.touched.append((section, False))
        return self.body.load_element(section.storage.number, section.storage.dtype, self.place(section, index))

    def place(self, section: LoopArraySection, index: Sequence[KernelValue]) -> KernelValue:
        fixed, moving = LinearExpression(0), None
        for (start, step, axis), stride in zip(section.subs, section.storage.strides, strict=True):
            fixed = fixed + start * stride
            if axis >= 0:
                factor = step * stride
                size = self.body.const(factor, INT64) if isinstance(factor, int) else self.emit(factor)
                term = index[axis] if factor == 1 else index[axis] * size
                moving = term if moving is None else moving + term
        base = self.emit(fixed)
        if moving is None:
            return base
        return moving if fixed.known == 0 else base + moving

    def temporary(self, shape: Sequence[LinearExpression], dtype: DType) -> LoopArraySection:
        """New memory for an array of this shape, whatever the turn."""
        self.check_dtype(dtype)
        lengths = []
        for n in shape:
            most = n.greatest
            if most is None:
                raise LoopNotRecordable("an array is made whose length has no known bound")
            lengths.append(max(most, 0))
        storage = LoopArrayStorage(len(self.storages), dtype, tuple(lengths))
        storage.written = True
        self.storages.append(storage)
        return whole_section(storage, shape)

    def each(
        self,
        shape: Sequence[LinearExpression],
        do: Callable[[list[KernelValue]], None],
        inner: int | None = None,
        parallel: bool = True,
    ) -> None:
        """Turns for every index of a shape, the axis `inner` (the last one) fastest. parallel: whether they are
        independent; else they are one after the other."""
        order = list(range(len(shape)))
        if inner is not None:
            order.remove(inner)
            order.append(inner)
        if parallel:
            self._note_loop_size(shape)
        index: dict[int, KernelValue] = {}

        def loop_over_axes(rest: list[int]) -> None:
            if not rest:
                do([index[axis] for axis in range(len(shape))])
                return
            axis, n = rest[0], shape[rest[0]]
            if n.known == 1:
                index[axis] = self.body.const(0, INT64)
                loop_over_axes(rest[1:])
                return
            with self.turns_of(LinearExpression(0), n, parallel) as (i, _):
                index[axis] = i
                loop_over_axes(rest[1:])

        loop_over_axes(order)

    def _note_loop_size(self, shape: Sequence[LinearExpression]) -> None:
        size, ragged = 1.0, False
        for n in shape:
            most = n.greatest
            size *= most if most is not None else 64
            ragged |= bool(n.terms)
        if size > LARGE and not ragged and not self.parallel:
            raise LoopNotRecordable(f"a step has {size:.0f} elements, which parallel kernels compute")

    @contextmanager
    def turns_of(
        self, start: LinearExpression, stop: LinearExpression, parallel: bool, adds: bool = True, folds: bool = False
    ) -> Iterator[tuple[KernelValue, Scope]]:
        """While a turn is written. adds: the loop is a statement then. folds: the turns are summed up."""
        first, last = self.emit(start), self.emit(stop)
        index = self.body.value(INT64)
        many = (stop - start).greatest
        before, self.weight = self.weight, self.weight * max(many if many is not None else 64, 0)
        self.meets += before if parallel and not self.parallel else 0
        self.parallel += parallel
        self.turns += self.weight
        step = self.step
        if parallel:
            self.wide += self.weight * (not folds or self.parallel > 1)
            wide = self.step * max(many if many is not None else 64, 0)
            self.width, self.step = max(self.width, wide), self.step if folds else wide
        with self.block() as scope:
            yield index, scope
        self.parallel -= parallel
        self.weight, self.step = before, step
        if adds:
            numbers = index.numbers[0], first.numbers[0], last.numbers[0]
            self.body.add(For(*numbers, tuple(scope.statements), parallel))

    def materialize(self, array: LoopArray) -> LoopArraySection:
        """The array in memory; from now on it is there."""
        if array.section is None:
            expression = array.expression
            section = self.temporary(expression.shape, expression.dtype)
            if expression.columns is not None:
                zero = self.body.const(0, expression.dtype)
                self.each(expression.shape, lambda idx: self._put(section, idx, zero))
                expression.columns(section)
            else:
                self.each(expression.shape, lambda idx: self._put(section, idx, expression.element(idx)))
            self._keep_array_in_section(array, section)
        assert array.section is not None
        return array.section

    def copied(self, array: LoopArray) -> LoopArray:
        """The array in memory of its own."""
        if not isinstance(array, LoopArray):
            raise LoopNotRecordable("an array is made of a number")
        section, expression = self.temporary(array.expression.shape, array.dtype), array.expression
        self.each(expression.shape, lambda idx: self._put(section, idx, expression.element(idx)))
        return self.array_of_section(section)

    def _keep_array_in_section(self, array: LoopArray, section: LoopArraySection) -> None:
        array.section = section
        array.expression = self.array_of_section(section).expression
        self.alive.pop(id(array), None)

    def _put(self, section: LoopArraySection, index: Sequence[KernelValue], value: KernelValue) -> None:
        place = self.place(section, index)
        self.touched.append((section, True))
        self.meets += 0 if self.parallel else self.weight
        self.body.store_element(section.storage.number, place, value.cast(section.storage.dtype))

    def settle_readers(self, storage: LoopArrayStorage, *but: LoopArray | None) -> None:
        """To be called before a storage is written to: what is computed from it later is computed now."""
        for array in [*self.alive.values()]:
            if all(array is not x for x in but) and array.expression.reads(storage):
                self.materialize(array)
        self.masks = [
            (mask, scope, found)
            for mask, scope, found in self.masks
            if not any(x.expression.reads(storage) for x in (mask, *found))
        ]

    def settle_all(self) -> None:
        """Before a block that runs any number of times and may write what is read."""
        for array in [*self.alive.values()]:
            if array.expression.leaves:
                self.materialize(array)

    @contextmanager
    def block(self) -> Iterator[Scope]:
        """A block of its own. What it has not computed by its end nobody may ask for."""
        with self.body.block() as scope:
            yield scope
        for array in [*self.alive.values()]:
            if array.scope is scope:
                self.forget(array)

    def assign(self, target: LoopArraySection, value: Any, mask: LoopArray | None = None) -> None:
        """`target[...] = value`, broadcast and converted. mask: what says where the value is another one."""
        storage, value = target.storage, self.lift(value)
        if isinstance(value, LoopArray) and value.section is not None and value.section.same_elements(target):
            return  # itself
        for x in (value, mask):
            if self.keeps_overwritten and isinstance(x, LoopArray) and x.expression.reads(storage):
                self.materialize(x)
        element = self.element_to_store(
            value,
            target.shape,
            storage,
            lambda leaf: leaf.same_elements(target) or leaf.is_apart_from(target),
            but=mask,
        )
        self.each(
            target.shape, lambda idx: self._put(target, idx, element(idx)), self._innermost_axis_of_target(target)
        )
        storage.written = True
        for x in (value, mask):  # what it was computed from is gone
            if not isinstance(x, LoopArray) or x.section is not None or not x.expression.reads(storage):
                continue
            if x is value and x.expression.shape == target.shape and x.dtype == storage.dtype:
                x.expression = self.array_of_section(target).expression
            else:
                self.forget(x, self._keep_overwritten)

    def element_to_store(
        self,
        value: Any,
        shape: tuple[LinearExpression, ...],
        storage: LoopArrayStorage,
        is_safe: Callable[[LoopArraySection], bool],
        error: FixedLoopError = NOT_BROADCAST,
        but: LoopArray | None = None,
    ) -> Element:
        """The elements of a value that is about to be written to a storage. is_safe: of what may be read meanwhile."""
        if storage.frozen:
            raise LoopNotRecordable(storage.frozen)
        if not isinstance(value, LoopArray):
            scalar = self.element_value(value, storage.dtype)
            self.settle_readers(storage)
            return lambda idx: scalar
        expression = self.broadcast(value.expression, shape, error)
        safe = all(is_safe(leaf) for leaf in expression.leaves if leaf.storage is storage)
        again = expression.heavy and expression is not value.expression
        self.settle_readers(storage, value, but)
        if safe and not again and expression.columns is None:
            return expression.element
        if value.section is None:
            self.materialize(value)
        else:  # a view of what is written to
            value = self.copied(value)
        return self.broadcast(value.expression, shape, error).element

    def forget(self, array: LoopArray, element: Element = overwritten_element_in_loop) -> None:
        """What an array was to be computed from has changed. element: what is done where one is read."""
        array.expression = LazyLoopElements(array.expression.shape, array.dtype, element, ())
        self.alive.pop(id(array), None)

    def _keep_overwritten(self, index: Sequence[KernelValue]) -> KernelValue:
        """Record again, and compute what is assigned, and masks, before the assignment."""
        self.keeps_overwritten = True
        raise RecordAgain

    def _innermost_axis_of_target(self, target: LoopArraySection) -> int | None:
        """The axis along which the elements lie closest."""
        axes = [axis for _, _, axis in target.subs if axis >= 0 and target.shape[axis].known != 1]
        return min(reversed(axes), key=target.stride) if axes else None

    def element_value(self, x: Any, dtype: DType) -> KernelValue:
        """A number in a dtype, as assignment converts it."""
        if isinstance(x, LoopNumber):
            return x.value.cast(dtype)
        if dtype.kind in "iu" and type(x) is int:
            return self.body.const(x, dtype)
        return self.body.const(np.asarray(x).astype(dtype), dtype)

    def broadcast(
        self,
        expression: LazyLoopElements,
        shape: tuple[LinearExpression, ...],
        error: Callable[[int], Exception] = NOT_BROADCAST,
    ) -> LazyLoopElements:
        """As NumPy's broadcast_to. error: where lengths are not equal that are compared when it runs. Raises
        LoopNotRecordable where they are known not to be."""
        own = expression.shape
        if own == shape:
            return expression
        skip, axes = len(shape) - len(own), []
        factors: dict[int, KernelValue] = {}  # of an axis that may have one element: 0 then, else 1
        for axis, n in enumerate(own, skip):
            if n.known != 1 and axis < 0:
                raise LoopNotRecordable("a value has more axes than what it is assigned to")
            axes.append(-1 if n.known == 1 and (axis < 0 or n != shape[axis]) else axis)
            if n.known != 1 and n != shape[axis]:
                factors[axis] = self._factor(n, shape[axis], error)

        def index(idx: Sequence[KernelValue]) -> list[KernelValue]:
            return [self.zero() if a < 0 else idx[a] * factors[a] if a in factors else idx[a] for a in axes]

        wide = self.reindexed(expression, shape, index, axes)
        leaves = wide.leaves
        for axis in factors:  # element i may be element 0: none that stands where another array's element i does
            leaves = tuple(leaf.with_own_axis(axis, own[axis - skip]) for leaf in leaves)
        return LazyLoopElements(shape, wide.dtype, wide.element, leaves, wide.heavy)

    def _factor(self, n: LinearExpression, target: LinearExpression, error: Callable[[int], Exception]) -> KernelValue:
        """What indices are multiplied by where an axis of `n` is broadcast: 0 if that is 1. Compared when it runs."""
        if n.known is not None and target.known is not None:
            raise LoopNotRecordable("the lengths of two arrays differ")
        own, body = self.emit(n), self.body
        if (n, target) not in self.broadcasts:
            wrong = own.ne(self.emit(target))
            self.fail_if(wrong if n.is_at_least(2) else wrong & own.ne(1), self.zero(), error)
        return body.select(own.eq(1), self.zero(), body.const(1, INT64))

    def common_length(
        self, a: LinearExpression, b: LinearExpression, error: FixedLoopError = NOT_BROADCAST
    ) -> LinearExpression:
        """What axes of `a` and `b` are broadcast to; they are compared when it runs."""
        if a == b:
            return a
        if a.known is not None and b.known is not None:
            raise LoopNotRecordable("the lengths of two arrays differ")
        x, y = self.emit(a), self.emit(b)
        wrong = x.ne(y)
        for n, value in ((a, x), (b, y)):
            wrong = wrong if n.is_at_least(2) else wrong & value.ne(1)
        self.fail_if(wrong, self.zero(), error)
        if a.is_at_least(2) or b.is_at_least(2):
            found = a if a.is_at_least(2) else b
        else:
            most = [n.greatest for n in (a, b)]
            highs = () if None in most else (LinearExpression(max(n for n in most if n is not None)),)
            found = self.atom(self.body.select(x.eq(1), y, x), (LinearExpression(0),), highs)
        self.broadcasts |= {(a, found), (b, found)}
        return found

    def zero(self) -> KernelValue:
        return self.body.const(0, INT64)

    def reindexed(
        self,
        expression: LazyLoopElements,
        shape: tuple[LinearExpression, ...],
        index: Callable[[Sequence[KernelValue]], list[KernelValue]],
        axes: Sequence[int],
    ) -> LazyLoopElements:
        """axes[i]: the axis of the new one that axis i of the old one is; -1: its index is 0."""
        element = expression.element
        leaves = tuple(self._reindexed_section(leaf, axes, shape, len(expression.shape)) for leaf in expression.leaves)
        return LazyLoopElements(shape, expression.dtype, lambda idx: element(index(idx)), leaves, expression.heavy)

    def _reindexed_section(
        self, leaf: LoopArraySection, axes: Sequence[int], shape: tuple[LinearExpression, ...], rank: int
    ) -> LoopArraySection:
        def new_axis_number(axis: int) -> int:
            if axis < 0:
                return -1
            return axes[axis] if axis < rank else axis - rank + len(shape)

        subs = tuple((start, step, new_axis_number(axis)) for start, step, axis in leaf.subs)
        return LoopArraySection(leaf.storage, subs, (*shape, *leaf.shape[rank:]))

    def array_from(self, x: Any) -> LoopArray:
        """A list of numbers as an array."""
        raise NotImplementedError
