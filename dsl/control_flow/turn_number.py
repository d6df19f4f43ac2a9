"""The number of a loop's turn while its body is traced once for all turns: it counts, indexes and is computed with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, NoReturn, Protocol

import numpy as np

from ...compiler.core.types import INT64
from ...compiler.graph.graph import Value
from ..core.object_model import ORIGINAL
from ..trace.trace import LoopNotRecordable, Trace, TracedLoopSymbolBase, current_trace, refuse_special_methods
from ..trace.tracer import SCALAR, TracedNumber, Tracer

NUMBERS = (bool, int, float, complex)
CONTAINERS = (list, tuple, dict)
EXACT = 1 << 53  # integers up to here are floats too
Line = tuple[int, int]  # (a, b): at turn t it is a * t + b


class TurnCounter(Protocol):
    """The loop that a number belongs to: its turns are 0, ..., last, of `period` of the user's; `turn_index` counts."""

    trace: Trace
    last: int
    period: int
    turn_index: Value
    refused: LoopNotRecordable | None
    grown: dict[int, list[Any]]

    def number_of_turn(self, numbers: Sequence[Any]) -> Tracer:
        """What stands for one of these numbers of one type of Python's, one for each turn."""


class TurnSymbol(TracedLoopSymbolBase):
    """What stands for a value that differs from turn to turn. What Python would have to know raises
    LoopNotRecordable."""

    __slots__ = ("_loop",)
    _loop: TurnCounter

    def refuse(self, *args: Any, **options: Any) -> NoReturn:
        """Nobody may know which turn it is."""
        self._refuse_period(0)

    def _refuse_period(self, period: int, apart: int = 0) -> NoReturn:
        """As `refuse`, where so many turns together may repeat, or those from one of them on."""
        error = LoopNotRecordable("its body needs to know which turn it is", None, period, apart)
        self._loop.refused = self._loop.refused or error
        raise error


refuse_special_methods(TurnSymbol)


class AppendedList(TurnSymbol):
    """A list that each turn appends to, which is all that a turn may do with it. items: those of one turn."""

    __slots__ = ("items",)

    def __init__(self, loop: TurnCounter) -> None:
        self._loop, self.items = loop, list[Any]()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Sequence[Any]) -> None:
        if type(items) not in (list, tuple):
            self.refuse()
        self.items += items

    def __iadd__(self, items: Sequence[Any]) -> AppendedList:
        self.extend(items)
        return self


class TurnNumber(TurnSymbol):
    """A Python number that differs from turn to turn."""

    __slots__ = ("_at", "_line", "_listed", "_made")

    def __init__(
        self,
        loop: TurnCounter,
        line: Line | None,
        made: Tracer | None = None,
        at: Callable[[int], Any] | None = None,
        listed: Sequence[Any] | None = None,
    ) -> None:
        """line: of an int; made: what a float is in the trace; at: what it is at a turn, if that is known; listed: what
        it is at all turns, of one type."""
        self._loop, self._line, self._made, self._at, self._listed = loop, line, made, at, listed
        if line is not None and max(abs(self.at(0)), abs(self.at(loop.last))) > EXACT:
            self.refuse()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int if self._line is not None else float if self._listed is None else type(self._listed[0])

    @property
    def is_known(self) -> bool:
        """Whether it is known what it is at each turn."""
        return any(x is not None for x in (self._line, self._at, self._listed))

    def at(self, turn: int) -> Any:
        """What it is at a turn. Raises LoopNotRecordable where that is not known."""
        if self._line is not None:
            return self._line[0] * turn + self._line[1]
        if self._listed is not None:
            return self._listed[turn]
        return self.refuse() if self._at is None else self._at(turn)

    def limits(self) -> tuple[int, int]:
        """The least and the greatest int that it is."""
        ends = self._listed or (self.at(0), self.at(self._loop.last))
        return min(ends), max(ends)

    def traced(self, beside: Any = None) -> Tracer:
        """What stands for it in the trace, and promotes as a Python number does. beside: what it is computed with."""
        trace = self._loop.trace
        if trace.turn is not self._loop:
            self.refuse()
        dtype = getattr(beside, "dtype", None)
        if self.__class__ is int:
            low, high = self.limits()
            is_whole = dtype is not None and dtype.kind in "iu"
            least, most = (np.iinfo(dtype).min, np.iinfo(dtype).max) if is_whole else (-EXACT, EXACT)
            if low < least or high > most:
                self.refuse()
        if self._made is None and self._listed is not None:
            self._made = self._loop.number_of_turn(self._listed)
        if self._line is None:
            assert self._made is not None
            return self._made
        slope, start = self._line
        builder, value = trace.builder, self._loop.turn_index
        if slope != 1:
            value = builder.map("multiply", value, slope, dtype=INT64)
        if start:
            value = builder.map("add", value, start, dtype=INT64)
        return Tracer(trace, Value(value.number, value.type, int), SCALAR)

    def __neg__(self) -> Any:
        if self._line is not None:
            return TurnNumber(self._loop, (-self._line[0], -self._line[1]))
        if self._listed is not None:
            return value_of_turns(self._loop, [-x for x in self._listed])
        return _combine_turn_numbers("mul", operator.mul, -1.0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self.refuse() if self._listed is None else value_of_turns(self._loop, [*map(abs, self._listed)])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        others = [x for x in inputs if not isinstance(x, TracedLoopSymbolBase)]
        if method != "__call__" or options:
            self.refuse()
        if all(type(x) in NUMBERS for x in others):  # NumPy makes numbers of its own of Python's
            found = [_strong(x.traced()) if isinstance(x, TracedLoopSymbolBase) else x for x in inputs]
        else:
            beside = others[0] if len(others) == 1 else self.refuse()
            found = [x.traced(beside) if isinstance(x, TracedLoopSymbolBase) else x for x in inputs]
        return ufunc(*found)

    def __bool__(self) -> bool:
        return bool(self._compared(operator.ne, 0))

    def _compared(self, comparison: Callable[[Any, Any], Any], other: Any) -> Any:
        """Whether a comparison holds, where it is one for all turns; else the turns are apart in which it does."""
        if type(other) is Tracer or isinstance(other, (np.ndarray, np.generic)):
            return comparison(self.traced(other), other)
        listed = _at_all_turns(comparison, self, other)
        if listed is not None:
            return self._same_for_all_turns(listed)
        line = self._line
        if line is None or not (type(other) is int or type(other) is TurnNumber) or not _is_whole_operand(other, self):
            self.refuse()
        slope, start = _line_of_combined_turn_numbers("sub", self, other)
        last = self._loop.last
        found = comparison(start, 0)
        near = {max(1, t) for t in ([-start // slope, -start // slope + 1] if slope else [])}  # where 0 is passed
        changes = [t for t in sorted(near) if t <= last and comparison(start + slope * t, 0) is not found]
        if changes:
            self._refuse_period(0, changes[0])
        return found

    def _same_for_all_turns(self, listed: Sequence[bool]) -> bool:
        """The one truth of all turns; else the turns are apart from the first one on that has the other."""
        if len({*listed}) > 1:
            self._refuse_period(0, listed.index(not listed[0]))
        return listed[0]

    def _in_period(self, modulus: Any) -> Line:
        """The line of a number whose remainder by `modulus` is one for all turns; else more turns together have it."""
        line = self._line
        if line is None or type(modulus) is not int or modulus <= 0:
            self.refuse()
        if line[0] % modulus:
            self._refuse_period(self._loop.period * (modulus // gcd(modulus, line[0])))
        return line

    def __mod__(self, modulus: Any) -> Any:
        return self._in_period(modulus)[1] % modulus

    def __floordiv__(self, divisor: Any) -> Any:
        slope, start = self._in_period(divisor)
        return TurnNumber(self._loop, (slope // divisor, start // divisor))

    def __and__(self, mask: Any) -> Any:
        return self % (mask + 1) if type(mask) is int and mask > 0 and not mask & (mask + 1) else self.refuse()


def value_of_turns(loop: TurnCounter, values: Sequence[Any]) -> Any:
    """What stands for values of Python's, one for each turn: numbers of one type, or tuples of such. Refuses others."""
    kinds = {type(x) for x in values}
    kind = kinds.pop()
    if not kinds and kind in NUMBERS:
        if kind is int and max(map(abs, values)) < EXACT:
            slope = values[1] - values[0] if len(values) > 1 else 0
            if all(x == values[0] + slope * turn for turn, x in enumerate(values)):
                return TurnNumber(loop, (slope, values[0]))
        return TurnNumber(loop, None, listed=values)
    if not kinds and container_kind(kind) is tuple and len({*map(len, values)}) == 1:
        return tuple(value_of_turns(loop, column) for column in zip(*values, strict=True))
    return TurnNumber(loop, (0, 0)).refuse()


def container_kind(kind: type) -> type:
    """Of which class of the user's a container is."""
    found: type = vars(kind).get(ORIGINAL, kind)
    return found


def item_at_turn(items: Any, number: TurnNumber) -> Any:
    """`items[number]` of a list, a tuple or a dict."""
    if number.__class__ is not int or not number.is_known:
        number.refuse()
    loop = number._loop
    if id(items) in loop.grown:
        number.refuse()
    try:
        values = [items[number.at(turn)] for turn in range(loop.last + 1)]
    except LookupError:  # which Python raises at that turn
        number.refuse()
    return value_of_turns(loop, values)


class IndexedContainer:
    """A list, a tuple or a dict that is indexed, maybe by what differs from turn to turn."""

    __slots__ = ("_items",)

    def __init__(self, items: Any) -> None:
        self._items = items

    def __getitem__(self, key: Any) -> Any:
        return item_at_turn(self._items, key) if type(key) is TurnNumber else self._items[key]


def indexed(x: Any) -> Any:
    """`x`, of which an item is read."""
    if not issubclass(type(x), CONTAINERS) or (trace := current_trace()) is None or trace.turn is None:
        return x
    return IndexedContainer(x) if container_kind(type(x)) in CONTAINERS else x


def _at_all_turns(function: Callable[..., Any], *operands: Any) -> list[Any] | None:
    """What a function gives of numbers at each turn, where they are known and one is listed."""
    symbols = [x for x in operands if type(x) is TurnNumber]
    if not (all(x.is_known for x in symbols) and any(x._listed is not None for x in symbols)):
        return None
    if not all(type(x) in NUMBERS for x in operands if type(x) is not TurnNumber):
        return None
    loop = symbols[0]._loop
    if any(x._loop is not loop for x in symbols):
        symbols[0].refuse()
    try:
        return [
            function(*(x.at(turn) if type(x) is TurnNumber else x for x in operands)) for turn in range(loop.last + 1)
        ]
    except Exception:  # which Python raises at that turn
        symbols[0].refuse()


def _strong(x: Tracer) -> Tracer:
    return Tracer(x._trace, Value(x._held.number, x._held.type), SCALAR)


def _binary(name: str, reflected: bool) -> Callable[..., Any]:
    function = getattr(operator, name, None)

    def method(self: TurnNumber, other: Any, *modulus: Any) -> Any:
        if function is None or modulus:
            self.refuse()
        if type(other) is Tracer or isinstance(other, (np.ndarray, np.generic)):
            mine = self.traced(other)
            return function(other, mine) if reflected else function(mine, other)
        return _combine_turn_numbers(name, function, *((other, self) if reflected else (self, other)))

    return method


def _combine_turn_numbers(name: str, function: Callable[..., Any], a: Any, b: Any) -> TurnNumber:
    """What an operator makes of two numbers, one of which differs by turn at least."""
    symbol: TurnNumber = a if isinstance(a, TracedLoopSymbolBase) else b  # type: ignore[assignment]
    listed = _at_all_turns(function, a, b)
    if listed is not None:
        return value_of_turns(symbol._loop, listed)  # type: ignore[no-any-return]
    whole = all([_is_whole_operand(x, symbol) for x in (a, b)])
    if whole and name != "truediv":
        return TurnNumber(symbol._loop, _line_of_combined_turn_numbers(name, a, b))
    if name == "truediv" and _may_be_zero(b):
        symbol.refuse()  # Python raises an error at that turn
    traced = [x.traced() if type(x) is TurnNumber else x for x in (a, b)]
    ways = [x for x in (a, b) if type(x) is TurnNumber and not x.is_known]

    def at(turn: int) -> Any:
        return function(*(x.at(turn) if type(x) is TurnNumber else x for x in (a, b)))

    if name == "truediv" and type(b) is TurnNumber:  # which is known not to be zero
        traced[1] = _strong(traced[1])
    made = function(*traced)
    made = Tracer(made._trace, Value(made._held.number, made._held.type, float), SCALAR)
    return TurnNumber(symbol._loop, None, made, None if ways else at)


def _is_whole_operand(x: Any, symbol: TurnNumber) -> bool:
    """Whether it is an int at each turn; else it is a float. Refuses what is neither, or is another loop's."""
    if type(x) is TurnNumber and x._loop is symbol._loop and x.__class__ in (int, float):
        return x._line is not None
    if type(x) is int and abs(x) <= EXACT:
        return True
    if type(x) is float or (type(x) is TracedNumber and type(x._number) is float):
        return False
    symbol.refuse()


def _may_be_zero(x: Any) -> bool:
    """Whether an operand may be zero at some turn."""
    if type(x) is not TurnNumber:
        return type(x) is TracedNumber or bool(x == 0)
    if x._listed is not None:
        return 0 in x._listed
    if x._line is None:
        return True
    low, high = x.limits()
    return low <= 0 <= high


def _line_of_combined_turn_numbers(name: str, a: Any, b: Any) -> Line:
    (p, q), (r, s) = ((x._line or (0, 0)) if type(x) is TurnNumber else (0, x) for x in (a, b))
    if name == "add":
        return p + r, q + s
    if name == "sub":
        return p - r, q - s
    if p and r:
        (a if type(a) is TurnNumber else b).refuse()
    return p * s + r * q, q * s


def _binary_of_listed(name: str, reflected: bool, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """An operator of numbers that are listed. otherwise: of others."""
    function = getattr(operator, f"__{name}__", None)

    def method(self: TurnNumber, other: Any, *modulus: Any) -> Any:
        operands = (other, self) if reflected else (self, other)
        listed = None if function is None or modulus else _at_all_turns(function, *operands)
        return otherwise(self, other, *modulus) if listed is None else value_of_turns(self._loop, listed)

    return method


def _comparison(comparison: Callable[[Any, Any], bool]) -> Callable[[TurnNumber, Any], bool]:
    return lambda self, other: self._compared(comparison, other)


def _install_operators_of_turn_numbers() -> None:
    for name in ("add", "sub", "mul", "truediv"):
        setattr(TurnNumber, f"__{name}__", _binary(name, False))
        setattr(TurnNumber, f"__r{name}__", _binary(name, True))
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(TurnNumber, f"__{name}__", _comparison(getattr(operator, name)))
    TurnNumber.__hash__ = TurnSymbol.__hash__  # type: ignore[method-assign]
    for name in ("floordiv", "mod", "pow", "divmod", "lshift", "rshift", "and", "or", "xor", "matmul"):
        for reflected, whole in enumerate((f"__{name}__", f"__r{name}__")):
            otherwise = vars(TurnNumber).get(whole, TurnNumber.refuse)
            setattr(TurnNumber, whole, _binary_of_listed(name, bool(reflected), otherwise))


_install_operators_of_turn_numbers()
