"""What the derivatives of a routine have in common. Its values are computed again, in a routine of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ..core.types import INT64, DType
from ..kernel.body_builder import KernelValue
from .body import RoutineBody, Scope
from .dead_code import routine_block_without_dead_code
from .form import Block, Fold, For, Let, Routine, RoutineMemory
from .partials import NoDerivative

Values = dict[int, KernelValue]


def is_routine_float(dtype: DType) -> bool:
    return dtype.kind == "f"


def check_routine_derivable(routine: Routine) -> None:
    """Raises NoDerivative for what no rule is written for."""
    if routine.checks:
        raise NoDerivative("it may raise an error")
    if any(dtype.kind == "c" for dtype in (*(a.dtype for a in routine.arrays), *routine.variables)):
        raise NoDerivative("it computes with complex numbers")


class RoutineWriter:
    """Writes a routine that follows another one."""

    def __init__(self, routine: Routine) -> None:
        self.routine, self.body = routine, RoutineBody()
        self.variables = [*routine.variables]

    def let(self, s: Let, env: Values) -> KernelValue:
        """The same instruction again."""
        instr = s.instr
        if instr.op == "const":
            return self.body.const(np.frombuffer(instr.attr, instr.dtype)[0], instr.dtype)
        args = [env[a] for a in instr.args]
        if instr.op == "load":
            return self.body.load_element(instr.attr, instr.dtype, args[0])
        if instr.op == "get":
            return self.body.get(instr.attr, instr.dtype)
        if instr.op == "cast":
            return args[0].cast(instr.dtype)
        if s.row is None or any(a not in env for a in s.row.args):
            return self.body.emit(instr.op, *args, dtype=instr.dtype)
        with self.body.result_of(s.row.name, [env[a] for a in s.row.args]) as result:
            result.append(self.body.emit(instr.op, *args, dtype=instr.dtype))
        return result[0]

    def variable(self, dtype: DType) -> int:
        self.variables.append(dtype)
        return len(self.variables) - 1

    def write_turns(
        self, s: For | Fold, env: Values, do: Callable[[KernelValue], Any]
    ) -> tuple[KernelValue, Scope, Any]:
        """The index, the block and what `do` gives in it."""
        index = self.body.value(INT64)
        with self.body.block() as scope:
            found = do(index)
        return index, scope, found

    def add_for(self, s: For, env: Values, index: KernelValue, scope: Scope, until: int | None = None) -> None:
        ends = env[s.start].numbers[0], env[s.stop].numbers[0]
        self.body.add(For(index.numbers[0], *ends, tuple(scope.statements), s.parallel, until, s.apart))

    def write_fold_again(self, s: Fold, env: Values) -> KernelValue:
        def write_fold_body(index: KernelValue) -> KernelValue:
            inner = {**env, s.index: index}
            self.copy_values(s.body, inner)
            return inner[s.value]

        index, scope, value = self.write_turns(s, env, write_fold_body)
        return self.body.fold(s.combine, s.dtype, env[s.start], env[s.stop], index, scope, value)

    def copy_values(self, block: Block, env: Values) -> None:
        """Values alone."""
        for s in block:
            if isinstance(s, Let):
                env[s.number] = self.let(s, env)
            elif isinstance(s, Fold):
                env[s.number] = self.write_fold_again(s, env)
            else:
                raise NoDerivative("a reduction writes")

    def finished(self, arrays: tuple[RoutineMemory, ...], private: Collection[int] = ()) -> Routine:
        """The routine that was written. private: arrays of its own."""
        routine = self.routine
        block = routine_block_without_dead_code(tuple(self.body.scopes[0].statements), private)
        return Routine(arrays, tuple(self.variables), block, 0, 2 * routine.turns, routine.width, routine.wide)
