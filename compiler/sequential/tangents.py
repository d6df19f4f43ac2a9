"""A routine in; the one that goes along with changes of its floats, out."""

from __future__ import annotations

from functools import lru_cache

from ..kernel.body_builder import KernelValue
from .form import (
    Block,
    Fold,
    For,
    If,
    Let,
    Routine,
    Set,
    Store,
    While,
    blocks_in_routine_statement,
    statements_in_routine_block,
    values_made_in_routine_block,
)
from .partials import NoDerivative, row_result_of_routine_value, tangent_part_in_routine
from .writer import RoutineWriter, Values, check_routine_derivable, is_routine_float


@lru_cache(16)
def routine_with_tangents(routine: Routine, moving: frozenset[int] | None = None) -> tuple[Routine, tuple[int, ...]]:
    """The routine that also computes what changes of its floats make. After its arrays come those of the changes.

    moving: the arrays whose beginnings change; None for all of floats. Also given: the arrays that have changes, those
    that follow these. Raises NoDerivative."""
    check_routine_derivable(routine)
    floats = {i for i, a in enumerate(routine.arrays) if is_routine_float(a.dtype)}
    memory = _routine_memory_following_arrays(routine, floats if moving is None else floats & moving)
    changing = tuple(sorted(n for kind, n in memory if kind == "load"))
    writer = _RoutineTangentWriter(routine, memory, {a: len(routine.arrays) + k for k, a in enumerate(changing)})
    writer.block({}, {}, routine.body)
    arrays = (*routine.arrays, *(routine.arrays[i] for i in changing))
    found = writer.finished(arrays, {i for i, a in enumerate(arrays) if a.role == "temp"})
    return found, changing


def _routine_memory_following_arrays(routine: Routine, moving: set[int]) -> set[tuple[str, int]]:
    """The arrays, as ("load", number), and variables, as ("get", number), that follow these arrays."""
    memory = {("load", a) for a in moving}
    follows = set[int]()
    size = -1
    while size != len(memory) + len(follows):
        size = len(memory) + len(follows)
        _mark_moving_statements(routine.body, memory, follows)
    return memory


def _mark_moving_statements(block: Block, memory: set[tuple[str, int]], follows: set[int]) -> None:
    for s in block:
        if isinstance(s, Let):
            here = (s.instr.op, s.instr.attr) in memory or any(a in follows for a in s.instr.args)
            if is_routine_float(s.instr.dtype) and here:
                follows.add(s.number)
        elif isinstance(s, Store) and s.value in follows:
            memory.add(("load", s.array))
        elif isinstance(s, Set) and s.value in follows:
            memory.add(("get", s.variable))
        for inner in blocks_in_routine_statement(s):
            _mark_moving_statements(inner, memory, follows)
        if isinstance(s, Fold) and s.value in follows:
            follows.add(s.number)


def _changing_values_of_routine(routine: Routine) -> set[int]:
    """The values whose changes reach memory, a variable or a sum: those within a row do not."""
    lets: dict[int, Let] = {}
    known, todo = {*values_made_in_routine_block(routine.body)}, list[int]()

    for s in statements_in_routine_block(routine.body):
        if isinstance(s, Let):
            lets[s.number] = s
        elif isinstance(s, (Store, Set, Fold)):
            todo.append(s.value)
    found = set[int]()
    while todo:
        number = todo.pop()
        if number not in found:
            found.add(number)
            todo += row_result_of_routine_value(lets[number], known).args if number in lets else ()
    return found


class _RoutineTangentWriter(RoutineWriter):
    def __init__(self, routine: Routine, memory: set[tuple[str, int]], twin: dict[int, int]) -> None:
        super().__init__(routine)
        self.twin, self.changing = twin, _changing_values_of_routine(routine)
        self.twins = {v: self.variable(d) for v, d in enumerate(routine.variables) if ("get", v) in memory}

    def tangent(self, s: Let, env: Values, changes: Values) -> KernelValue | None:
        instr, body = s.instr, self.body
        if not is_routine_float(instr.dtype) or instr.op == "const" or s.number not in self.changing:
            return None
        if instr.op == "load":
            twin = self.twin.get(instr.attr)
            return None if twin is None else body.load_element(twin, instr.dtype, env[instr.args[0]])
        if instr.op == "get":
            twin = self.twins.get(instr.attr)
            return None if twin is None else body.get(twin, instr.dtype)
        if instr.op == "cast":
            found = changes.get(instr.args[0])
            return None if found is None else found.cast(instr.dtype)
        row, total = row_result_of_routine_value(s, env), None
        args = [env[a] for a in row.args]
        for place, a in enumerate(row.args):
            if a in changes:
                part = tangent_part_in_routine(row.name, changes[a], place, args, env[s.number])
                total = part if total is None else total if part is None else total + part
        return total

    def block(self, env: Values, changes: Values, block: Block) -> None:
        body = self.body
        for s in block:
            if isinstance(s, Let):
                env[s.number] = self.let(s, env)
                if (t := self.tangent(s, env, changes)) is not None:
                    changes[s.number] = t
            elif isinstance(s, Store):
                if s.array in self.twin:
                    body.store_element(self.twin[s.array], env[s.place], self.tangent_or_zero(s.value, env, changes))
                body.store_element(s.array, env[s.place], env[s.value])
            elif isinstance(s, Set):
                if s.variable in self.twins:
                    body.set(self.twins[s.variable], self.tangent_or_zero(s.value, env, changes))
                body.set(s.variable, env[s.value])
            elif isinstance(s, Fold):
                self.fold(s, env, changes)
            elif isinstance(s, For):
                inner = {**env}

                def write_iteration(index: KernelValue, s: For = s, inner: Values = inner) -> None:
                    inner[s.index] = index
                    self.block(inner, {**changes}, s.body)

                index, scope, _ = self.write_turns(s, env, write_iteration)
                self.add_for(s, env, index, scope, None if s.until is None else inner[s.until].numbers[0])
            elif isinstance(s, If):
                sides = []
                for side in (s.then, s.otherwise):
                    with body.block() as scope:
                        self.block({**env}, {**changes}, side)
                    sides.append(tuple(scope.statements))
                body.add(If(env[s.condition].numbers[0], *sides))
            elif isinstance(s, While):
                with body.block() as test:
                    inner = {**env}
                    moving = {**changes}
                    self.block(inner, moving, s.test)
                with body.block() as scope:
                    self.block({**inner}, moving, s.body)
                body.add(While(tuple(test.statements), inner[s.condition].numbers[0], tuple(scope.statements)))
            else:
                raise NoDerivative("it may raise an error")

    def tangent_or_zero(self, number: int, env: Values, changes: Values) -> KernelValue:
        return changes[number] if number in changes else env[number].const(0)

    def fold(self, s: Fold, env: Values, changes: Values) -> None:
        env[s.number] = self.write_fold_again(s, env)
        if not is_routine_float(s.dtype) or s.number not in self.changing:
            return
        if s.combine != "sum":
            raise NoDerivative(f"the derivative of the reduction {s.combine} is not known in a recorded loop")

        def write_fold_iteration(index: KernelValue) -> KernelValue:
            inner, moving = {**env, s.index: index}, {**changes}
            self.block(inner, moving, s.body)
            return self.tangent_or_zero(s.value, inner, moving)

        index, scope, value = self.write_turns(s, env, write_fold_iteration)
        changes[s.number] = self.body.fold("sum", s.dtype, env[s.start], env[s.stop], index, scope, value)
