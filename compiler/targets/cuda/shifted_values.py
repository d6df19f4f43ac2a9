"""What a stencil computes at several shifts: one computation, on as many more rows and columns of a thread's tile.

A value of a nest whose operands are windows is a computation at a shift: a load of a window's operand at the operand's
shift, an operation at the least shift of its arguments. Computations at several shifts are staged: each element of the
tile and of what lies around it is computed once, in the rows of a warp's lanes, and a shift looks at other rows and at
other lanes, as loads of windows do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....runtime.core.frozen import frozen
from ...kernel.loop_nest import EFFECTS, Instr, LoopNest, Phase
from ...kernel.primitives import COSTLY
from .launch_shape import CudaShape, stencil_row_of_thread

Shift = tuple[int, ...]
Rows = dict[Shift, int]  # rows at these steps along the outer axes, and how many columns beyond a lane's own are read
_COSTLY = COSTLY | {"div", "sqrt", "quotient"}  # take many instructions
_SHUFFLE, _DEAR = 2.0, 8.0  # what exchanging an element takes, and a costly operation: additions


@frozen
class Computation:
    """instr: one value of it; args: for each argument the computation, and how far it lies beyond (None: it is the
    same at all points). window: of a load, the window's number."""

    instr: Instr
    args: tuple[tuple[int, Shift] | None, ...] = ()
    window: int = -1


class ShiftedValues:
    """The computations of some phases. of: for each of their values the computation, and its shift.

    rows: what a thread reads of each computation that is loaded or staged; absent: values that only staged
    computations use."""

    def __init__(self, nest: LoopNest, shape: CudaShape, phases: Sequence[Phase]) -> None:
        self.computations: list[Computation] = []
        self.of: dict[int, tuple[int, Shift]] = {}
        self.numbered = [(n, i) for phase in phases for n, i in enumerate(phase.instrs, phase.first)]
        self._find(nest)
        shifts: list[set[Shift]] = [set() for _ in self.computations]
        for number, shift in self.of.values():
            shifts[number].add(shift)
        self.staged = self._staged(shifts, shape)
        direct = {a for n, i in self.numbered if not self._is_staged(n) for a in i.args}
        direct.update(v for phase in phases for r in phase.reductions for v in r.values)
        mine = {n for n, _ in self.numbered}
        direct.update(a for phase in nest.phases for n, i in enumerate(phase.instrs, phase.first) for a in i.args
                      if n not in mine)  # fmt: skip
        self.absent = {n for n, (c, _) in self.of.items() if self._is_row(c) and n not in direct}
        self.rows = self._rows({n for n in direct if n in self.of and self._is_row(self.of[n][0])}, shape)

    def _find(self, nest: LoopNest) -> None:
        windows = {k: (n, s) for n, w in enumerate(nest.windows) for k, s in zip(w.operands, w.shifts, strict=True)}
        known: dict[Any, int] = {}
        same: dict[int, Any] = {}  # values that are the same at all points, by what they are
        for number, instr in self.numbered:
            where = instr.args
            if instr.op in ("const", "scalar", "size") or (where and all(a in same for a in where)):
                same[number] = (instr.op, instr.dtype, instr.attr, *(same[a] for a in where))
            elif instr.op == "load" and instr.attr[0] in windows:
                window, shift = windows[instr.attr[0]]
                key: Any = (window, instr.attr[1])
                self.of[number] = self._number(known, key, Computation(instr, window=window)), shift
            elif instr.op not in EFFECTS and where and all(a in self.of or a in same for a in where):
                shift, args = self._places_from_least_shift(where)
                key = (instr.op, instr.dtype, instr.attr, *(arg or same[a] for a, arg in zip(where, args, strict=True)))
                self.of[number] = self._number(known, key, Computation(instr, args)), shift

    def _number(self, known: dict[Any, int], key: Any, each: Computation) -> int:
        if key not in known:
            known[key] = len(self.computations)
            self.computations.append(each)
        return known[key]

    def _places_from_least_shift(self, values: Sequence[int]) -> tuple[Shift, tuple[tuple[int, Shift] | None, ...]]:
        """The least shift of these values, and for each its computation and how far it lies beyond."""
        places = [self.of.get(value) for value in values]
        least = tuple(map(min, zip(*(place[1] for place in places if place), strict=True)))
        return least, tuple(place and (place[0], tuple(map(int.__sub__, place[1], least))) for place in places)

    def _is_row(self, number: int) -> bool:
        """Whether a thread holds rows of a computation."""
        return number in self.staged or self.computations[number].window >= 0

    def _is_staged(self, value: int) -> bool:
        return value in self.of and self.of[value][0] in self.staged

    def _staged(self, shifts: Sequence[set[Shift]], shape: CudaShape) -> set[int]:
        """Computations that take less where each element is computed once, with all that these are made of."""
        staged: set[int] = set()
        for number in range(len(self.computations) - 1, -1, -1):
            each = self.computations[number]
            if each.window >= 0 or len(shifts[number]) < 2:
                continue
            if number not in staged:
                rows = {stencil_row_of_thread(s, shape, g) for s in shifts[number] for g in range(shape.groups)}
                cost = _DEAR if each.instr.op in _COSTLY else 1.0
                moved = _SHUFFLE * any(s[-1] for s in shifts[number])
                if len(rows) * (cost + moved) >= len(shifts[number]) * shape.groups * cost:
                    continue
                staged.add(number)
            staged.update(arg[0] for arg in each.args if arg and self.computations[arg[0]].window < 0)
        return staged

    def _rows(self, direct: set[int], shape: CudaShape) -> dict[int, Rows]:
        found: dict[int, Rows] = {}

        def read(number: int, row: Shift, columns: int) -> None:
            rows = found.setdefault(number, {})
            rows[row] = max(rows.get(row, 0), columns)

        for value in direct:
            number, shift = self.of[value]
            for group in range(shape.groups):
                read(number, stencil_row_of_thread(shift, shape, group), shift[-1])
        for number in sorted(self.staged, reverse=True):
            for arg, beyond in filter(None, self.computations[number].args):
                for row in found.get(number, ()):
                    read(arg, tuple(map(int.__add__, row, beyond[:-1])), beyond[-1])
        return {number: dict(sorted(rows.items())) for number, rows in found.items()}
