"""The meaning of a routine: its statements carried out one by one with NumPy. The targets have to agree with this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.combiners import COMBINERS
from ..core.types import real_dtype
from ..kernel.primitives import PRIMITIVES
from .form import Block, Fold, For, If, Let, Routine, Set, Stop, Store, While

Array = np.ndarray[Any, Any]


class _Stopped(Exception):
    """A check has failed."""


def evaluate_routine(routine: Routine, given: Sequence[Array]) -> list[Array]:
    """What the arrays that are written hold in the end, in order. given: for those that are `in` and `inout`."""
    first = iter(given)
    arrays = [
        np.array(next(first), a.dtype).reshape(-1) if a.role in ("in", "inout") else np.zeros(a.size, a.dtype)
        for a in routine.arrays
    ]
    machine = _RoutineInterpreter(routine, [x.view(real_dtype(x.dtype)) for x in arrays])
    try:
        with np.errstate(all="ignore"):
            machine.run(routine.body)
    except _Stopped:
        pass
    return [x.reshape(a.shape) for x, a in zip(arrays, routine.arrays, strict=True) if a.role in ("out", "inout")]


class _RoutineInterpreter:
    def __init__(self, routine: Routine, arrays: list[Array]) -> None:
        self.arrays = arrays
        self.values: dict[int, Any] = {}
        self.variables = [np.zeros((), dtype)[()] for dtype in routine.variables]

    def run(self, block: Block) -> None:
        values = self.values
        for s in block:
            if isinstance(s, Let):
                values[s.number] = self.value(s)
            elif isinstance(s, Store):
                self.arrays[s.array][values[s.place]] = values[s.value]
            elif isinstance(s, Set):
                self.variables[s.variable] = values[s.value]
            elif isinstance(s, For):
                for i in range(int(values[s.start]), int(values[s.stop])):
                    values[s.index] = np.int64(i)
                    self.run(s.body)
                    if s.until is not None and values[s.until]:
                        break
            elif isinstance(s, Fold):
                values[s.number] = self.fold(s)
            elif isinstance(s, If):
                self.run(s.then if values[s.condition] else s.otherwise)
            elif isinstance(s, While):
                self.run(s.test)
                while values[s.condition]:
                    self.run(s.body)
                    self.run(s.test)
            elif isinstance(s, Stop) and values[s.condition]:
                self.arrays[-1][:] = s.number, values[s.value]
                raise _Stopped

    def value(self, s: Let) -> Any:
        instr, values = s.instr, self.values
        if instr.op == "const":
            return np.frombuffer(instr.attr, instr.dtype)[0]
        if instr.op == "load":
            return self.arrays[instr.attr][values[instr.args[0]]]
        if instr.op == "get":
            return self.variables[instr.attr]
        return PRIMITIVES[instr.op].numpy(*(np.asarray(values[a]) for a in instr.args), instr.dtype)[()]

    def fold(self, s: Fold) -> Any:
        row = COMBINERS[s.combine]
        found = []
        for i in range(int(self.values[s.start]), int(self.values[s.stop])):
            self.values[s.index] = np.int64(i)
            self.run(s.body)
            found.append(self.values[s.value])
        if not found:
            return s.dtype.type(row.identity(s.dtype))
        return row.ufunc.reduce(np.array(found, s.dtype), dtype=s.dtype)
