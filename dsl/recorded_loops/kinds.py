"""What a number is to NumPy's promotion: its dtype, and the Python type that it follows if it is weak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.ops.table import TOO_MANY_BITS
from ..control_flow.decisions import fold_list_of_rows
from ..trace.number_kinds import (
    FLOATS,
    WHOLE,
    Kind,
    does_number_fit,
    have_number_kinds_two_dtypes,
    number_kinds_of_operand,
)
from ..trace.operands import held_number
from ..trace.python_operators import COUNTER_BOUND, INT64_MAX, magnitude_of_dtype
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .values import FixedLoopError, LoopArray, LoopArraySection, LoopNumber, Recorder

PLAIN = (bool, int, float, complex)


def is_number(x: Any) -> bool:
    """Whether it can be a variable."""
    if type(x) in PLAIN or isinstance(x, LoopNumber) or type(x) is TracedNumber:
        return True
    if isinstance(x, Tracer):
        return x._owner == SCALAR
    return isinstance(x, (np.bool_, np.number))


def loop_kinds_of(x: Any) -> tuple[Kind, ...]:
    """All that it may be; the first is what it is held as."""
    if isinstance(x, LoopArray):
        return ((x.dtype, None),)
    if isinstance(x, LoopNumber):
        return ((x.dtype, x.weak), *x.others)
    return number_kinds_of_operand(held_number(x))


def kind_of(x: Any) -> Kind:
    return loop_kinds_of(x)[0]


def magnitude_of_loop_number(x: Any) -> int:
    """What the magnitude of an int of Python's does not exceed; beyond that of int64 for anything else."""
    if isinstance(x, LoopNumber):
        ends = (None, None) if x.linear is None else (x.linear.least, x.linear.greatest)
        known = [abs(end) for end in ends if end is not None]
        return max(known) if len(known) == 2 else min(x.magnitude, magnitude_of_dtype(x.dtype))
    return min(abs(x), INT64_MAX + 1) if type(x) in (int, bool) else INT64_MAX + 1


def joined_loop_number_kinds(kinds: Iterable[Kind], held: Kind | None = None) -> tuple[Kind, ...]:
    """What a number is that may be of each of these kinds: first, what it is held as, of which the others are.

    Raises LoopNotRecordable where two dtypes are not one: what is computed from it would have another dtype, as values
    decide."""
    distinct = [*dict.fromkeys(kinds if held is None else (held, *kinds))]
    if have_number_kinds_two_dtypes(distinct):
        raise LoopNotRecordable("a number has one dtype or another one, as values decide")
    held = held or max(distinct, key=lambda k: (k[1] is None, (WHOLE + FLOATS).index(k[0].kind)))
    return held, *(k for k in distinct if k != held)


def merged_loop_kind(kinds: Sequence[Kind]) -> Kind:
    """One kind for values of two. Raises LoopNotRecordable where an array's dtype would change."""
    weak = [w for _, w in kinds]
    dtype = np.result_type(*(d if w is None else w(0) for d, w in kinds))
    if all(w is not None for w in weak):
        return next(kind for kind in kinds if kind[0] == dtype)
    if any(d != dtype for d, w in kinds if w is None):
        raise LoopNotRecordable("a name holds numbers of two dtypes")
    return dtype, None


def merged_loop_kinds(a: Any, b: Any) -> tuple[Kind, ...]:
    """All that a value is which is one of two numbers. Raises LoopNotRecordable where one of them would lose digits."""
    held = merged_loop_kind([kind_of(a), kind_of(b)])
    for x in (a, b):
        check_loop_kind_keeps_digits(x, held)
    return joined_loop_number_kinds([*loop_kinds_of(a), *loop_kinds_of(b)], held)


def number_kinds_after_iteration(before: Sequence[Kind], after: Sequence[Kind]) -> tuple[Kind, ...]:
    """All that a name is that begins as `before` and is `after` behind a turn."""
    return joined_loop_number_kinds([*before, *after], _loop_number_kind_after_iteration(before[0], after[0]))


def _loop_number_kind_after_iteration(before: Kind, after: Kind) -> Kind:
    (first, weak), (dtype, later) = before, after
    if weak is None:
        kept = np.result_type(first, later(0)) if later is not None else dtype
        if kept != first:
            raise LoopNotRecordable("a name begins as a number of one dtype, and is of another one after a turn")
        return first, None
    if later is not None or dtype.kind == "b":
        return merged_loop_kind([before, after])
    return np.result_type(dtype, weak(0)), None


def check_loop_kind_keeps_digits(x: Any, kind: Kind) -> None:
    """Raises LoopNotRecordable where a Python number loses digits as `kind`. It stays one where values say so."""
    weak = kind_of(x)[1]
    known = type(x) in PLAIN
    if weak is None or kind[1] is not None or (not known and np.can_cast(WEAK_DTYPES[weak], kind[0])):
        return
    if isinstance(x, LoopNumber) and x.linear is not None:
        ends = x.linear.least, x.linear.greatest
    else:
        ends = (x, x) if known else (None, None)
    if not all(end is not None and does_number_fit(end, kind[0]) for end in ends):
        raise LoopNotRecordable("a name holds a Python number, or one of a narrower dtype, as values decide")


def zero_of_number_kind(x: Any) -> Any:
    """What stands for a value that is not set: it is not read."""
    if isinstance(x, LoopNumber) or is_number(x):
        dtype, weak = kind_of(x)
        return weak(0) if weak is not None else dtype.type(0)
    return x


class LoopList(LoopArray):
    """A list of numbers, arrays or such lists: the rows of an array. kinds: what the numbers are; depth: of lists."""

    __slots__ = ("depth", "kinds")
    items: list[Any] | None = None  # Python's own, in place of rows
    magnitude = COUNTER_BOUND  # what an int of Python's in it does not exceed

    def __init__(self, recorder: Recorder, section: LoopArraySection, kinds: tuple[Kind, ...], depth: int) -> None:
        super().__init__(recorder, recorder.array_of_section(section).expression, section)
        self.kinds, self.depth = kinds, depth

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list

    def __getitem__(self, key: Any) -> Any:
        row = self._recorder.get_item(self, self._index(key))
        if isinstance(row, LoopNumber):
            (dtype, weak), *others = self.kinds
            found = LoopNumber(self._recorder, row.value.cast(dtype), weak, None, others)
            found.magnitude = self.magnitude
            return found
        return self.row(row.section) if self.depth > 1 else row

    def row(self, section: LoopArraySection) -> LoopList:
        """One of the lists in it."""
        return LoopList(self._recorder, section, self.kinds, self.depth - 1)

    def _index(self, key: Any) -> Any:
        """What an element is taken by, which is an int."""
        if isinstance(key, slice) or not is_number(key) or kind_of(key)[0].kind not in "iu":
            self._refuse_recording("a part of a list is taken")
        return key

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.depth > 1 or self.ndim > 1 or loop_kinds_of(self._recorder.lift(value)) != self.kinds:
            self._refuse_recording("an element of a list that a comprehension has made is assigned to")
        self._recorder.set_item(self, key, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse_recording(f"the list method .{name} is called")

    def fold(self, function: Any) -> Any:
        """What Python's max, min or sum give of it."""
        dtype, weak = self.kinds[0]
        if len(self.kinds) > 1 or self.depth > 1 or dtype.kind == "b" or (self.ndim > 1 and function is not sum):
            self._refuse_recording(f"{function.__name__}() of a list of such elements")
        recorder = self._recorder
        if function is not sum and not self.expression.shape[0].is_at_least(1):
            self._refuse_recording(f"{function.__name__}() of a list that may be empty")
        rows = recorder.array_of_section(self.section)
        found = fold_list_of_rows(function, rows, None)
        if not isinstance(found, LoopNumber):
            return found
        if function is sum and weak is int:  # which may wrap: a float tells
            total = recorder.map("absolute", fold_list_of_rows(sum, rows.astype(np.float64), None))
            wraps = recorder.truth(recorder.map("greater_equal", total, float(COUNTER_BOUND)))
            recorder.fail_if(wraps, recorder.zero(), FixedLoopError(OverflowError, TOO_MANY_BITS))
        number = LoopNumber(recorder, found.value, weak)
        number.magnitude = self.magnitude
        return number

    def _refuse_operator(self, *others: Any) -> Any:
        self._refuse_recording("an operator is applied to a list that a comprehension has made")

    __add__ = __radd__ = __iadd__ = __mul__ = __rmul__ = __imul__ = _refuse_operator
    __sub__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __neg__ = __pos__ = __abs__ = _refuse_operator
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_operator
    __delitem__ = __reversed__ = _refuse_operator
    __hash__ = None  # type: ignore[assignment]
