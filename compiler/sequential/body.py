"""The builder of a routine: formulas over kernel values in, statements out. Each pure value is made once a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...runtime.core.frozen import replace
from ...runtime.program.user_function import UserFunction
from ..core.types import FLOAT32, FLOAT64, INT64, DType, real_dtype
from ..kernel.body_builder import KernelBody, KernelValue
from ..kernel.loop_nest import Instr
from .form import (
    Block,
    Fold,
    Let,
    RowResult,
    Set,
    Statement,
    Stop,
    Store,
    blocks_in_routine_statement,
    values_used_behind_routine_blocks,
    values_used_by_routine_statement,
)

_IMPURE = frozenset({"load", "get"})


class Scope:
    """A block that is being written, its pure values, and which value it knows to be at a place of an array."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.known: dict[Instr, int] = {}
        self.held: dict[tuple[int, int], int] = {}  # array and place -> value


class RoutineBody(KernelBody):
    """Writes statements to the innermost open block."""

    def __init__(self) -> None:
        super().__init__()
        self.scopes = [Scope()]

    @contextmanager
    def block(self, scope: Scope | None = None) -> Iterator[Scope]:
        """Opens a block, or one again that was closed."""
        self.scopes.append(Scope() if scope is None else scope)
        try:
            yield self.scopes[-1]
        finally:
            self.scopes.pop()

    @contextmanager
    def outermost(self) -> Iterator[None]:
        """Writes to the front of the routine, which runs before all else that uses it."""
        inner, self.scopes = self.scopes, self.scopes[:1]
        try:
            yield
        finally:
            self.scopes = inner

    def add(self, statement: Statement) -> None:
        self.scopes[-1].statements.append(statement)

    def value(self, dtype: DType) -> KernelValue:
        """A new number for a value that a statement other than Let gives."""
        self._instrs.append(Instr("value", dtype))
        return KernelValue(self, (len(self._instrs) - 1,), dtype)

    def apply(
        self, op: Any, args: Iterable[KernelValue], dtype: DType, attrs: Mapping[str, Any] | None = None
    ) -> KernelValue:
        values = list(args)
        if attrs:
            return super().apply(op, values, dtype, attrs)
        with self.result_of(op.name, values) as result:
            result.append(super().apply(op, values, dtype))
        return result[0]

    @contextmanager
    def result_of(self, row: str, args: Sequence[KernelValue]) -> Iterator[list[KernelValue]]:
        """While a row is written on arguments. Its result is to be appended to the list. That gets to know its row
        where it is a new value, and all are of one dtype of floats."""
        first, result = len(self._instrs), list[KernelValue]()
        yield result
        (value,), statements = result, self.scopes[-1].statements
        if value.dtype not in (FLOAT32, FLOAT64) or any(a.dtype.kind in "fc" and a.dtype != value.dtype for a in args):
            return
        last = statements[-1] if statements else None
        if isinstance(last, Let) and first <= last.number == value.numbers[0]:
            statements[-1] = replace(last, row=RowResult(row, tuple([a.numbers[0] for a in args])))

    def load_element(self, array: int, dtype: DType, place: KernelValue) -> KernelValue:
        if dtype.kind == "c":
            real = real_dtype(dtype)
            return self.pair(*(self.load_element(array, real, p) for p in (place * 2, place * 2 + 1)))
        held, key = self.scopes[-1].held, (array, place.numbers[0])
        if key not in held:
            held[key] = self._number_instruction(Instr("load", dtype, place.numbers, array))
        return KernelValue(self, (held[key],), dtype)

    def store_element(self, array: int, place: KernelValue, value: KernelValue) -> None:
        if value.dtype.kind == "c":
            self.store_element(array, place * 2, value.re)
            self.store_element(array, place * 2 + 1, value.im)
            return
        for scope in self.scopes:
            scope.held = {key: n for key, n in scope.held.items() if key[0] != array}
        self.scopes[-1].held[array, place.numbers[0]] = value.numbers[0]
        self.add(Store(array, place.numbers[0], value.numbers[0]))

    def get(self, variable: int, dtype: DType) -> KernelValue:
        """A complex one is the variables `variable` and `variable + 1`."""
        if dtype.kind == "c":
            return self.pair(*(self.get(variable + i, real_dtype(dtype)) for i in (0, 1)))
        return KernelValue(self, (self._number_instruction(Instr("get", dtype, (), variable)),), dtype)

    def set(self, variable: int, value: KernelValue) -> None:
        for i, number in enumerate(value.numbers):
            self.add(Set(variable + i, number))

    def stop(self, condition: KernelValue, number: int, value: KernelValue) -> None:
        self.add(Stop(condition.numbers[0], number, value.cast(INT64).numbers[0]))

    def fold(
        self, combine: str, dtype: DType, start: KernelValue, stop: KernelValue, index: KernelValue, scope: Scope,
        value: KernelValue,
    ) -> KernelValue:  # fmt: skip
        """A reduction over the turns of a block that was written. Of complex numbers a sum."""
        if dtype.kind == "c":
            return self.pair(
                *(self.fold(combine, real_dtype(dtype), start, stop, index, scope, p) for p in value.parts)
            )
        found = self.value(dtype)
        numbers = (index.numbers[0], start.numbers[0], stop.numbers[0])
        block = tuple(scope.statements)
        self.add(Fold(found.numbers[0], combine, dtype, *numbers, block, value.numbers[0]))
        return found

    def literal(self, value: Any, dtype: DType) -> KernelValue:
        return self.const(value, dtype)

    def call(self, function: UserFunction, part: int, args: Sequence[KernelValue]) -> KernelValue:
        raise NotImplementedError("a user's scalar function")

    def _number_instruction(self, instr: Instr) -> int:
        pure = instr.op not in _IMPURE
        if pure:
            for scope in self.scopes:
                if (found := scope.known.get(instr)) is not None:
                    return found
        number = len(self._instrs)
        self._instrs.append(instr)
        self.scopes[-1].statements.append(Let(number, instr))
        if pure:
            self.scopes[-1].known[instr] = number
        return number


def undefined_routine_value(block: Block) -> int | None:
    """A value that is used where it is not known. None in a routine that is well formed."""
    return _undefined_value_in_routine_block(block, set())


def _undefined_value_in_routine_block(block: Block, known: set[int]) -> int | None:
    known = set(known)
    for s in block:
        for number in values_used_by_routine_statement(s):
            if number not in known:
                return number
        inner = known | ({s.index} if hasattr(s, "index") else set())
        for part in blocks_in_routine_statement(s):
            if (found := _undefined_value_in_routine_block(part, inner)) is not None:
                return found
            inner = inner | _values_made_in_routine_block(part)  # what follows in the same statement
        for number in values_used_behind_routine_blocks(s):
            if number not in inner:
                return number
        if isinstance(s, (Let, Fold)):
            known.add(s.number)
    return None


def _values_made_in_routine_block(block: Block) -> set[int]:
    return {s.number for s in block if isinstance(s, (Let, Fold))}
