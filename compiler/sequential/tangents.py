"""A routine in; the one that goes along with changes of its floats, out."""

from __future__ import annotations

from functools import lru_cache

from ..kernel.body_builder import KernelValue
from .form import Block, Fold, For, If, Let, Routine, Set, Store, While
from .partials import NoDerivative, parts
from .writer import RoutineWriter, Values, check_derivable, is_float


@lru_cache(16)
def with_tangents(routine: Routine) -> tuple[Routine, tuple[int, ...]]:
    """The routine that also computes what changes of its floats make; after its arrays come those of the changes, of
    the arrays that are given. Raises NoDerivative."""
    check_derivable(routine)
    floats = tuple(i for i, a in enumerate(routine.arrays) if is_float(a.dtype))
    writer = _Along(routine, {a: len(routine.arrays) + k for k, a in enumerate(floats)})
    writer.block({}, {}, routine.body)
    arrays = (*routine.arrays, *(routine.arrays[i] for i in floats))
    found = writer.finished(arrays, {i for i, a in enumerate(arrays) if a.role == "temp"})
    return found, floats


class _Along(RoutineWriter):
    def __init__(self, routine: Routine, twin: dict[int, int]) -> None:
        super().__init__(routine)
        self.twin = twin
        self.twins = {v: self.variable(d) for v, d in enumerate(routine.variables) if is_float(d)}

    def tangent(self, s: Let, env: Values, changes: Values) -> KernelValue | None:
        instr, body = s.instr, self.body
        if not is_float(instr.dtype) or instr.op == "const":
            return None
        if instr.op == "load":
            return body.load_element(self.twin[instr.attr], instr.dtype, env[instr.args[0]])
        if instr.op == "get":
            return body.get(self.twins[instr.attr], instr.dtype)
        if instr.op == "cast":
            found = changes.get(instr.args[0])
            return None if found is None else found.cast(instr.dtype)
        args, total = [env[a] for a in instr.args], None
        for place, a in enumerate(instr.args):
            if a in changes:
                part = parts(instr.op, changes[a], place, args, env[s.number])
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
                    body.store_element(self.twin[s.array], env[s.place], self.change(s.value, env, changes))
                body.store_element(s.array, env[s.place], env[s.value])
            elif isinstance(s, Set):
                if s.variable in self.twins:
                    body.set(self.twins[s.variable], self.change(s.value, env, changes))
                body.set(s.variable, env[s.value])
            elif isinstance(s, Fold):
                self.fold(s, env, changes)
            elif isinstance(s, For):
                inner = {**env}

                def turn(index: KernelValue, s: For = s, inner: Values = inner) -> None:
                    inner[s.index] = index
                    self.block(inner, {**changes}, s.body)

                index, scope, _ = self.turns(s, env, turn)
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

    def change(self, number: int, env: Values, changes: Values) -> KernelValue:
        return changes[number] if number in changes else env[number].const(0)

    def fold(self, s: Fold, env: Values, changes: Values) -> None:
        env[s.number] = self.fold_again(s, env)
        if not is_float(s.dtype):
            return
        if s.combine != "sum":
            raise NoDerivative(f"the derivative of the reduction {s.combine} is not known in a recorded loop")

        def turn(index: KernelValue) -> KernelValue:
            inner, moving = {**env, s.index: index}, {**changes}
            self.block(inner, moving, s.body)
            return self.change(s.value, inner, moving)

        index, scope, value = self.turns(s, env, turn)
        changes[s.number] = self.body.fold("sum", s.dtype, env[s.start], env[s.stop], index, scope, value)
