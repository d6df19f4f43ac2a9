"""The derivatives of a routine's values: those of the op table's rows, written in primitives.

A value that is the result of a row knows it (`Let.row`), and has that row's derivative; what a primitive alone gives
has that of the row which means the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..kernel.body_builder import KernelValue
from ..kernel.primitives import PRIMITIVES
from ..ops.derivatives import Partials, Term, Zero
from ..ops.table import OPS
from .body import RoutineBody
from .form import Let, RowResult


class NoDerivative(Exception):
    """A routine's derivative is not known. The text says why."""


class _RoutineTermBuilder:
    """What the terms of a formula are written with: rows, in a routine."""

    def __init__(self, body: RoutineBody) -> None:
        self.body = body

    def map(self, op: str, *operands: Any) -> KernelValue:
        values = [x for x in operands if isinstance(x, KernelValue)]
        like = next((v for v in reversed(values) if v.dtype.kind == "f"), values[-1])
        args = [x if isinstance(x, KernelValue) else self.body.const(x, like.dtype) for x in operands]
        with self.body.result_of(op, args) as result:
            result.append(OPS[op].expand(self.body, *args))
        return result[0]

    def const(self, value: Any, dtype: Any) -> KernelValue:
        return self.body.const(value, dtype)


def _row_of_primitive(name: str) -> str:
    return PRIMITIVES[name].row or name if name in PRIMITIVES else name


def row_result_of_routine_value(s: Let, known: Collection[int]) -> RowResult:
    """The row that a value is a result of, and its arguments. known: the values that there are. The name is that of a
    primitive where there is no row."""
    if s.row is not None and all(a in known for a in s.row.args):
        return s.row
    return RowResult(_row_of_primitive(s.instr.op), s.instr.args)


def is_routine_derivative_bounded(name: str) -> bool:
    """Whether the partial derivatives of a row are finite wherever its arguments are."""
    row = OPS[name].derivative if name in OPS else None
    return isinstance(row, Partials) and row.bounded


def tangent_part_in_routine(name: str, t: KernelValue, place: int, args: list[KernelValue], result: KernelValue) -> Any:
    """What argument `place` of a row has to do with `t`, a change of it or the result's cotangent: linear in that, and
    None for nothing. Raises NoDerivative."""
    if args[place].dtype.kind != "f":
        return None
    derivative = OPS[name].derivative if name in OPS else None
    if isinstance(derivative, Zero):
        return None
    if not isinstance(derivative, Partials):
        raise NoDerivative(f"the derivative of {name} is not known in a recorded loop")
    formula: Any = derivative.formulas[place]
    if formula is None:
        return None
    builder = _RoutineTermBuilder(t.body)  # type: ignore[arg-type]
    return formula(*(Term(builder, v) for v in (t, *args, result))).value
