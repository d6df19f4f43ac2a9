"""Operators, items and functions on numbers and arrays of a routine that is written."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ...compiler.core.types import BOOL, FLOAT64, INT64, DType
from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.kernel.body_builder import KernelValue
from ...compiler.ops.table import OPS, resolve_op_row_dtypes
from ..trace.aliasing import TracerContiguousView, TracerReshapeView
from ..trace.number_kinds import Kind, dtypes_or_types_of_number_kinds, is_held_otherwise, is_kind_of_operands
from ..trace.python_operators import INT64_MAX, magnitude_of_dtype, magnitude_of_row, python_result_type
from ..trace.trace import LoopNotRecordable
from .functions import (
    array_of_folded_elements,
    check_product_is_of_loop,
    record_numpy_call_in_loop,
    record_reduction_in_loop,
    record_ufunc_call_in_loop,
    recorded_attribute_of_loop_array,
)
from .indexing import LoopIndexing
from .kinds import (
    PLAIN,
    is_number,
    joined_loop_number_kinds,
    kind_of,
    loop_kinds_of,
    magnitude_of_loop_number,
    merged_loop_kinds,
)
from .linear import RULES, LinearExpression
from .memory import NOT_BROADCAST
from .sections import subs_behind_view_steps
from .short_sorts import call_in_short_windows
from .values import (
    FixedLoopError,
    LazyLoopElements,
    LoopArray,
    LoopArraySection,
    LoopArrayStorage,
    LoopNumber,
    LoopSymbol,
    Recorder,
    whole_section,
)

TWO_DTYPES = "an array has one dtype or another one, as values decide"


def _python(kinds: Sequence[Kind]) -> bool:
    """Whether all are Python's."""
    return all(weak is not None for _, weak in kinds)


def _sample(x: Any, kind: Kind) -> Any:
    """A number as `python_result_type` takes it: an int of a known sign as such a one."""
    linear = x.linear if isinstance(x, LoopNumber) else None
    if linear is None or linear.known is not None:
        return x if type(x) in PLAIN else kind[1] if linear is None else linear.known
    return 1 if linear.is_at_least(0) else kind[1]


def _as_int(recorder: Recorder, x: Any) -> Any:
    """One of Python's bools as an int."""
    is_bool = isinstance(x, LoopNumber) and x.weak is bool
    return LoopNumber(recorder, x.value.cast(INT64), int) if is_bool else x


class RecordedLoopArithmetic(LoopIndexing):
    """What NumPy does, as statements."""

    # what `dsl/functions` is made of: see `LoopOperations`

    def to_array(self, x: Any) -> LoopSymbol:
        x = self.lift(x)
        return LoopNumber(self, self.body.const(x, np.asarray(x).dtype)) if type(x) in PLAIN else self._of_numpy(x)

    def apply(self, op: str, *args: Any, dtype: Any = None, **attrs: Any) -> Any:
        return self._of_numpy(self.map(op, *args, dtype=dtype, **attrs))

    def _of_numpy(self, x: Any) -> Any:
        """What NumPy's functions give is of NumPy's types, not Python's."""
        if isinstance(x, LoopNumber) and any(weak is not None for _, weak in loop_kinds_of(x)):
            (dtype, _), *others = joined_loop_number_kinds((dtype, None) for dtype, _ in loop_kinds_of(x))
            return LoopNumber(self, x.value.cast(dtype), None, None, others)
        return x

    def python_number(self, x: Any, kind: Any) -> Any:
        """What NumPy has computed, as a number of Python's."""
        x = self.lift(x)
        if not isinstance(x, LoopSymbol):
            return kind(x)
        number = LoopNumber(self, self._one_element(x).cast(WEAK_DTYPES[kind]), kind)
        number.magnitude = magnitude_of_loop_number(x)
        return number

    def raise_where(self, condition: Any, kind: type[Exception], text: str) -> None:
        """The call raises an error where a condition holds. Raises LoopNotRecordable where it always does."""
        if isinstance(condition, LoopSymbol):
            self.fail_if(self.truth(condition), self.zero(), FixedLoopError(kind, text))
        elif condition:
            raise LoopNotRecordable(text)

    def scalar(self, x: Any, dtype: DType) -> LoopNumber:
        number = self.to_array(x)
        if isinstance(number, LoopArray) or not np.can_cast(number.dtype, dtype, "same_kind"):
            raise LoopNotRecordable("a number is given that is of another kind than an array")
        return LoopNumber(self, self.element_value(self.lift(x), dtype))

    reduce = record_reduction_in_loop
    host_call = call_in_short_windows
    folded = array_of_folded_elements
    check_product = staticmethod(check_product_is_of_loop)

    def cast(self, x: Any, dtype: DType) -> Any:
        self.check_dtype(dtype)
        if not isinstance(x, LoopArray):
            found = LoopNumber(self, x.value.cast(dtype))
            found.magnitude = magnitude_of_dtype(x.dtype)
            return found
        e = x.expression
        return LoopArray(self, LazyLoopElements(e.shape, dtype, lambda i: e.element(i).cast(dtype), e.leaves, e.heavy))

    def view(self, x: Any, steps: Sequence[Any]) -> Any:
        if not isinstance(x, LoopArray):
            if not any(getattr(step, "shape", ()) for step in steps):
                return x
            x = self.filled((), x, x.dtype)
        for step in steps:
            x = self._view_by_step(x, step)
        return x

    def _view_by_step(self, x: LoopArray, step: Any) -> LoopArray:
        section = self.materialize(x)
        if isinstance(step, TracerContiguousView):
            gaps = [section.shape[axis] for _, by, axis in section.subs if by != 1 and axis >= 0]
            is_contiguous = section.is_contiguous() if gaps or x.ndim > 1 else True
            if is_contiguous is None:
                raise LoopNotRecordable("whether a view is contiguous differs from turn to turn")
            return x if is_contiguous else self.copied(x)
        if isinstance(step, TracerReshapeView):
            step = TracerReshapeView(self._lengths_of_shape(step.shape, section.shape))  # type: ignore[arg-type]
        found = subs_behind_view_steps(section.subs, section.shape, [step])
        if found is None and isinstance(step, TracerReshapeView):
            return self._in_other_shape(section, step.shape)
        if found is None:
            raise LoopNotRecordable("an array is viewed in another way than by slices")
        return self.array_of_section(LoopArraySection(section.storage, *found))

    def _in_other_shape(self, section: LoopArraySection, shape: Any) -> LoopArray:
        """The elements in another shape: a copy, which may be written to where NumPy's is one too."""
        wanted = tuple(n.known or 0 for n in shape)
        is_known = all(n.known is not None for n in (*section.shape, *shape))
        if not is_known or prod(n.known or 0 for n in section.shape) != prod(wanted):
            raise LoopNotRecordable("an array is viewed in another shape")
        copy = self.materialize(self.copied(self.array_of_section(section))).storage
        found = LoopArrayStorage(copy.number, copy.dtype, wanted)
        if len(wanted) > 1 or section.is_contiguous() is not False:
            section.storage.frozen = found.frozen = "an array is assigned to that is seen in two shapes"
        return self.array_of_section(whole_section(found))

    def _lengths_of_shape(self, shape: Any, of: Sequence[LinearExpression]) -> tuple[LinearExpression, ...]:
        """The lengths of a shape that is given, in which one may be -1, for an array of other ones."""
        lengths, known = [*map(self.linear, shape)], prod(n.known or 0 for n in of)
        rest = [n for n in of if n.known != 1]
        if known and all(n.known for n in lengths):
            others = -prod(n.known or 0 for n in lengths)
            return tuple(LinearExpression(known // others) if n.known == -1 else n for n in lengths)
        for n in lengths:
            if n in rest:
                rest.remove(n)
        return tuple((rest[0] if rest else LinearExpression(1)) if n.known == -1 else n for n in lengths)

    def apart_from_views(self, x: LoopArray) -> LoopArray:
        """An array that nothing else is a view of."""
        return x if x.section is None else self.copied(x)

    def filled(self, shape: Any, value: Any, dtype: DType | None) -> LoopArray:
        """A new array. value: of all its elements; None where nobody reads them."""
        lengths = tuple(map(self.linear, shape if isinstance(shape, (tuple, list)) else (shape,)))
        if not all(n.is_at_least(0) for n in lengths):
            raise LoopNotRecordable("an array is made of a length that may be negative")
        section = self.temporary(lengths, self.to_array(value).dtype if dtype is None else dtype)
        if value is not None:
            self.assign(section, value)
        return self.array_of_section(section)

    def store(self, target: Any, value: Any, casting: Any) -> Any:
        """`target[...] = value`, of the same shape."""
        array, value = self.lift(target), self.to_array(value)
        if not isinstance(array, LoopArray):
            raise LoopNotRecordable("out= is no array")
        shape = value.expression.shape if isinstance(value, LoopArray) else ()
        if not np.can_cast(value.dtype, array.dtype, casting) or shape != array.expression.shape:
            raise LoopNotRecordable("out= has another dtype or shape")
        self.assign(self.materialize(array), value)
        return target

    # arithmetic

    def dtypes_or_types(self, x: Any) -> list[Any]:
        """All that a number or an array may be to promotion."""
        return dtypes_or_types_of_number_kinds(loop_kinds_of(x))

    def kinds(self, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """What the arguments may be, as promotion takes it; first, what they are held as."""
        return [*product(*map(self.dtypes_or_types, args))]

    def loop_dtypes(self, op: str, args: Sequence[Any], dtype: Any = None) -> tuple[list[DType], tuple[Kind, ...]]:
        """What row `op` computes in, and all that its result may be."""
        loops, results = [], []
        for kinds in self.kinds(args):
            weak = all(isinstance(k, type) for k in kinds)
            try:
                loop, result = resolve_op_row_dtypes(
                    OPS[op], tuple(WEAK_DTYPES[k] for k in kinds) if weak else kinds, dtype
                )
            except TypeError as error:
                raise LoopNotRecordable(str(error)) from None
            for d in (*loop, result):
                self.check_dtype(d)
            loops.append([*loop])
            results.append((result, {"i": int, "f": float, "c": complex}.get(result.kind) if weak else None))
        found = joined_loop_number_kinds(results)
        return loops[results.index(found[0])], found

    def dtype_of(self, op: str, args: Sequence[Any], dtype: Any = None) -> tuple[list[DType], DType]:
        """What row `op` computes an array in, and that array's dtype. Raises LoopNotRecordable where it may be two."""
        loop, (held, *others) = self.loop_dtypes(op, args, dtype)
        if any(dtype != held[0] for dtype, _ in others):
            raise LoopNotRecordable(TWO_DTYPES)
        return loop, held[0]

    def map(self, op: str, *given: Any, dtype: Any = None, **attrs: Any) -> Any:
        """Row `op` on broadcast arguments."""
        args = [self.lift(x) for x in given]
        if op == "power" and dtype is None:
            self._check_exponent(*args)
        if not any(isinstance(x, LoopArray) for x in args):
            return self.map_numbers(op, args, dtype, attrs)
        args = [self.light(x) for x in args]
        loop, result = self.dtype_of(op, args, dtype)
        shape = self.common_shape([x.expression.shape for x in args if isinstance(x, LoopArray)])
        parts: list[Any] = []
        leaves: list[LoopArraySection] = []
        for x, to in zip(args, loop, strict=True):
            if isinstance(x, LoopArray):
                wide = self.broadcast(x.expression, shape)
                leaves += wide.leaves
                parts.append(lambda idx, e=wide.element, to=to: e(idx).cast(to))
            elif isinstance(x, LoopNumber):
                value = x.value.cast(to)
                parts.append(lambda idx, value=value: value)
            else:
                parts.append(lambda idx, x=x, to=to: self.body.const(x, to))
        row = OPS[op]

        def mapped_element(idx: Sequence[KernelValue]) -> KernelValue:
            return self.body.apply(row, [part(idx) for part in parts], result, attrs)

        return LoopArray(self, LazyLoopElements(shape, result, mapped_element, tuple(leaves)))

    def light(self, x: Any) -> Any:
        """An operand whose elements may be computed more than once."""
        if isinstance(x, LoopArray) and x.section is None and x.expression.heavy:
            self.materialize(x)
        return x

    def common_shape(
        self, shapes: Sequence[tuple[LinearExpression, ...]], error: FixedLoopError = NOT_BROADCAST
    ) -> tuple[LinearExpression, ...]:
        """As NumPy's broadcast_shapes; lengths that are not seen to be equal are compared when it runs."""
        rank = max(map(len, shapes))
        found = []
        for axis in range(rank):
            lengths = dict.fromkeys(s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0)
            long = [n for n in lengths if n.known != 1]
            found.append(reduce(partial(self.common_length, error=error), long) if long else LinearExpression(1))
        return tuple(found)

    def map_numbers(self, op: str, args: list[Any], dtype: Any = None, attrs: Mapping[str, Any] | None = None) -> Any:
        followed = self._linear_result(op, args) if dtype is None else None
        if followed is not None:
            return LoopNumber(self, None, int, followed) if isinstance(followed, LinearExpression) else followed
        if not any(isinstance(x, LoopSymbol) for x in args):
            return OPS[op].numpy(*args)  # type: ignore[misc]
        loop, ((result, kind), *others) = self.loop_dtypes(op, args, dtype)
        values = [
            x.value.cast(to) if isinstance(x, LoopNumber) else self.body.const(x, to)
            for x, to in zip(args, loop, strict=True)
        ]
        found = self.body.apply(OPS[op], values, result, attrs)
        differs = self._differs_as_operands(op, args, (result, kind), others)
        number = LoopNumber(self, found, kind, None, others, differs)
        if kind is not None or any(weak is not None for _, weak in others):
            number.magnitude = min(INT64_MAX + 1, magnitude_of_row(op, [*map(magnitude_of_loop_number, args)], result))
            if OPS[op].errors:
                self._check_python_operands(op, args, number)
        if op in ("remainder", "floor_divide") and kind is int and type(args[1]) is int and args[1] > 0:
            least, greatest = (0, args[1] - 1) if op == "remainder" else self._quotient_bounds(args[0], args[1])
            ends = (() if e is None else (LinearExpression(e),) for e in (least, greatest))
            return LoopNumber(self, None, int, self.atom(found, *ends))
        return number

    def _differs_as_operands(self, op: str, args: Sequence[Any], held: Kind, others: Sequence[Kind]) -> Any:
        """Whether what an operator gives is not what it is held as; None where nothing says so."""
        if not others or not is_kind_of_operands(op, held[1]):
            return None
        flags = [self.differs(x, held) for x in args if is_held_otherwise(loop_kinds_of(x), held) is not True]
        return reduce(operator.and_, flags) if flags and None not in flags else None

    def _linear_result(self, op: str, args: Sequence[Any]) -> Any:
        """What `op` gives of ints that are followed, if that is one or a known truth; else None."""
        rule = RULES.get(op)
        followed = (type(x) is int or (isinstance(x, LoopNumber) and x.linear is not None) for x in args)
        return None if rule is None or not all(followed) else rule(*map(self.linear, args))

    def _quotient_bounds(self, x: Any, divisor: int) -> list[int | None]:
        linear = self.linear(x)
        return [None if e is None else e // divisor for e in (linear.least, linear.greatest)]

    def _check_python_operands(self, op: str, args: Sequence[Any], result: LoopNumber) -> None:
        """Python's own numbers raise where NumPy's give infinity."""
        linear = args[-1].linear if isinstance(args[-1], LoopNumber) else None
        if linear is not None and linear.is_at_least(1) and not any(error.wraps for error in OPS[op].errors):
            return
        for error in OPS[op].errors:
            if error.wraps and (self.trace.depth or result.dtype.kind != "i" or result.magnitude <= INT64_MAX):
                continue
            self.raise_where(error.where(*args, result), error.kind, error.text)

    def operate(self, op: str, args: Sequence[Any]) -> Any:
        """What Python's operator gives of its own numbers; NotImplemented of others, which are NumPy's."""
        if any(x is NotImplemented or isinstance(x, str) or x is None for x in args):
            raise LoopNotRecordable("an operator meets something that is no number")
        lifted = [self.lift(x) for x in args]
        are_python = all(any(weak is not None for _, weak in loop_kinds_of(x)) for x in lifted)
        return self._operate_on_python_numbers(op, lifted) if are_python else NotImplemented

    def _operate_on_python_numbers(self, op: str, args: Sequence[Any]) -> Any:
        """What Python's operator gives of its numbers. Raises LoopNotRecordable where values decide its type."""
        kinds = [*product(*map(loop_kinds_of, args))]
        types = [
            python_result_type(str(OPS[op].operator), *map(_sample, args, given)) for given in kinds if _python(given)
        ]
        if any(kind is None for kind in types):
            raise LoopNotRecordable("what an operator gives of Python's numbers is of one type or another one")
        mixed = len(types) < len(kinds)
        if bool not in types:  # its bools are numbers there, where NumPy's are not
            if mixed and any(dtype.kind == "b" for given in kinds for dtype, _ in given):
                raise LoopNotRecordable("a number is Python's or NumPy's, as values decide")
            args = [x + 0 if type(x) is bool else _as_int(self, x) for x in args]
        if float in types and op == "power":
            args = [LoopNumber(self, x.value.cast(FLOAT64), float) if isinstance(x, LoopNumber) else x for x in args]
        found = self.map(op, *args)
        if mixed or not isinstance(found, LoopNumber) or found.weak in types:
            return found
        return LoopNumber(self, found.value, types[0])

    def _check_exponent(self, x: Any, exponent: Any) -> None:
        if kind_of(x)[0].kind in "iub" and kind_of(exponent)[0].kind == "i":
            negative = self.map("less", exponent, 0)
            if isinstance(negative, LoopArray):
                negative = self.call_function(np.any, (negative,), {})
            self.raise_where(negative, ValueError, "Integers to negative integer powers are not allowed.")

    def update_in_place(self, given: Any, result: Any) -> Any:
        """What `given op= other` leaves its name with; a number is another one then."""
        target = self.lift(given)
        if not isinstance(target, LoopArray):
            return result
        if not isinstance(result, LoopArray) or not np.can_cast(result.dtype, target.dtype, "same_kind"):
            raise LoopNotRecordable("an array is updated in place with values of another kind")
        self.assign(self.materialize(target), result)
        return given

    def better(self, is_better: Any, a: Any, b: Any) -> Any:
        """b where it is greater (less) than a, else a. is_better: the operator that says so."""
        a, b, op = self.lift(a), self.lift(b), "greater" if is_better is operator.gt else "less"
        if not (is_number(a) and is_number(b)):
            raise LoopNotRecordable("max() or min() of arrays")
        linear = [
            x.linear if isinstance(x, LoopNumber) else LinearExpression(x) if type(x) is int else None for x in (a, b)
        ]
        if linear[0] is not None and linear[1] is not None:
            choose = self.greatest if op == "greater" else self.least
            return LoopNumber(self, None, int, choose(linear[0], linear[1]))
        (dtype, weak), *others = merged_loop_kinds(a, b)
        condition = self.truth(self.map(op, b, a))
        flags = [self.differs(x, (dtype, weak)) for x in (b, a)] if others else [None]
        differs = None if None in flags else self.body.select(condition, *flags)
        found = self.body.select(condition, *(self.element_value(x, dtype) for x in (b, a)))
        return LoopNumber(self, found, weak, None, others, differs)

    # truth

    def known_truth(self, x: LoopSymbol) -> bool | None:
        """The truth of a value, where it is known while tracing."""
        if not isinstance(x, LoopNumber):
            return None
        if x.linear is not None:
            if x.linear.known is not None:
                return bool(x.linear.known)
            return True if x.linear.is_at_least(1) or (-x.linear).is_at_least(1) else None
        known = self.body.constant(x.value)
        return None if known is None else bool(known)

    def truth(self, x: Any) -> KernelValue:
        x = self.lift(x)
        return self._one_element(x).cast(BOOL) if isinstance(x, LoopSymbol) else self.body.const(bool(x), BOOL)

    def _one_element(self, x: Any) -> KernelValue:
        """The value of a number, or of the one element of an array."""
        if isinstance(x, LoopNumber):
            return x.value
        if any(n.known != 1 for n in x.expression.shape):
            raise LoopNotRecordable("an array of several elements decides")
        return x.expression.element([self.zero()] * x.ndim)  # type: ignore[no-any-return]

    def array_from(self, x: Any) -> LoopArray:
        """A list of numbers as an array."""
        items = [self.lift(i) for i in x]
        if not items or any(isinstance(i, LoopArray) for i in items):
            raise LoopNotRecordable("a list of arrays takes part in it")
        dtypes = {
            np.result_type(*(WEAK_DTYPES[k] if isinstance(k, type) else k for k in kinds))
            for kinds in self.kinds(items)
        }
        if len(dtypes) > 1:
            raise LoopNotRecordable(TWO_DTYPES)
        (dtype,) = dtypes
        section = self.temporary((LinearExpression(len(items)),), dtype)
        for i, item in enumerate(items):
            self._put(section, [self.body.const(i, INT64)], self.element_value(item, dtype))
        return self.array_of_section(section)

    # functions; see `functions`

    call_function = record_numpy_call_in_loop
    call_ufunc = record_ufunc_call_in_loop
    method = recorded_attribute_of_loop_array
