"""The structured form of a kernel: a loop nest with loads, a body and stores. Its axes are parallel or reduced.

Each target prints its text from this form, and the access audit interprets it. It holds no sizes: they are parameters.

    parallel axes p0..p(P-1), then reduced axes r0..r(R-1); the last of each is innermost.
    for every parallel index p:
        for every phase in order:
            POINT: its instructions run once
            LOOP:  its instructions run for every reduced index r in row-major order, then its reductions are complete

Values are numbered through the whole kernel. A value made in a LOOP phase can be used in that phase only; values made
in POINT phases and the results of reductions can be used in any later phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from ...runtime.program.user_function import UserFunction
from ..core.combiners import COMBINERS, Combiner
from ..core.types import dtype_name

POINT, LOOP = "point", "loop"
EFFECTS = frozenset({"store", "report"})  # instructions that give no value
MEMORY = frozenset({"load", "store", "gather", "report"})  # those that touch an operand
LIMIT_32 = 2**31 - 2**16  # what 32-bit indices and offsets stay below: a GPU's may step this far beyond the end


@frozen
class Operand:
    """An array parameter, seen over the kernel's axes (parallel, then reduced).

    layout has one character per axis: `0` does not move along the axis, `1` unit stride, `s` a run-time stride (in
    elements, may be negative). A transposed operand has its `1` on an axis that is not the innermost.
    aligned: the first element, and every run-time stride, is a multiple of 16 bytes (asked of the pointer by `lower`).
    role: `in`, `out`, `inout` (in place, same element), or `sum`: what is stored along the innermost reduced axis is
    added up over `run` parallel points, in row-major order; the next `run` have the next row of it.
    """

    dtype: np.dtype[Any]
    role: str
    layout: str
    aligned: bool = True

    def __str__(self) -> str:
        return f"{self.role} {dtype_name(self.dtype)}[{self.layout}]{'' if self.aligned else ' unaligned'}"


@frozen
class Instr:
    """One value (or store): `op` applied to earlier values `args`, giving `dtype`.

    The ops are the primitives of `compiler/kernel/body_builder.py` (`add`, `select`, `exp`, `cast`, ...) and these:
      const   attr = the value's bytes in native order
      load    attr = (operand number, part); part is 0, or 1 for the imaginary half of a complex operand
      store   attr = (operand number, part); args = (value,)
      gather  attr = (operand number, part); args = (i,): the element i elements (int64) beyond the one `load` reads
      report  attr = (operand number, 0); args = (value, condition): one value for which the condition holds is stored
              to the int64 operand, which does not move; nothing where it holds for none
      scalar  attr = number of the run-time scalar
      index   attr = axis number of the kernel (parallel, then reduced); dtype int64
      size    attr = axis number; the axis' length; dtype int64
      result  attr = (phase number, reduction number, part): a finished reduction
      call    attr = (user's function, number of the result; a complex one counts as two); args = its arguments, those
              that are complex as two values; one more, a bool, says whether it is called at all
    """

    op: str
    dtype: np.dtype[Any]
    args: tuple[int, ...] = ()
    attr: Any = None


@frozen
class Reduction:
    """`combine` over the reduced axes of `values`, starting from its identity, accumulated in `dtype`.

    combine: the name of its row in `COMBINERS`. Of a row that carries an index the values are (value, index) with int64
    index, so are the parts of the result; part 1 is the answer.
    """

    combine: str
    dtype: np.dtype[Any]
    values: tuple[int, ...]

    @property
    def combiner(self) -> Combiner:
        return COMBINERS[self.combine]


@frozen
class Phase:
    """Instructions in value numbering from `first` on. Of a LOOP also the reductions that they feed."""

    kind: str
    first: int
    instrs: tuple[Instr, ...]
    reductions: tuple[Reduction, ...] = ()


@frozen
class Window:
    """Operands that are shifted views of one array: role `in`, equal layouts and strides.

    shifts: for each operand, how far it lies from the window's corner, in steps of each axis, none negative. The array
    holds all from the corner to as far beyond it as the axis' length and the largest shift say.
    """

    operands: tuple[int, ...]
    shifts: tuple[tuple[int, ...], ...]

    def span(self, axis: int) -> int:
        """The largest shift along an axis."""
        return max(shift[axis] for shift in self.shifts)

    def __str__(self) -> str:
        return ", ".join(f"a{k} + {shift}" for k, shift in zip(self.operands, self.shifts, strict=True))


@frozen
class LoopNest:
    """A kernel's structured form; see the module's docstring. `scalars` are the dtypes of run-time numbers.

    Run-time parameters, in this order for every target: one pointer per operand; the length of every axis (i64); for
    each operand in order, one stride (i64, in elements) for each `s` in its layout, in axis order; the scalars.
    index_bits: 32 where every index and every element offset of the call is below LIMIT_32, else 64 (a size class).
    width: 16-byte groups a GPU thread handles at a time (a size class; 1 or 2).
    fastmath: the target may reassociate and contract.
    windows: what operands have in common (targets that read it once). vector: so many elements along the innermost axis
    can be one access, from the windows' corners and from the first elements of what is written; a power of two. many:
    there are so many points that threads with twice as many of them still fill a GPU (a size class).
    zips: outputs, stored in one phase, that lie in one array in turn, element by element, along the innermost parallel
    axis: together they are contiguous (targets that store them so).
    short: rows along the innermost reduced axis are so short that vectors lie across them; or what is contiguous, where
    nothing is reduced, that tiles would be empty for the most part (a size class).
    run: parallel points that a GPU's block has in turn, for operands of role `sum`; 0 without such.
    """

    name: str
    parallel: int
    reduced: int
    operands: tuple[Operand, ...]
    scalars: tuple[np.dtype[Any], ...]
    phases: tuple[Phase, ...]
    index_bits: int = 64
    width: int = 1
    fastmath: bool = False
    windows: tuple[Window, ...] = ()
    vector: int = 1
    many: bool = False
    zips: tuple[tuple[int, ...], ...] = ()
    short: bool = False
    run: int = 0

    def __hash__(self) -> int:
        return hash(self.name)  # which is a digest of all else

    @property
    def axes(self) -> int:
        return self.parallel + self.reduced

    @property
    def looked_up(self) -> frozenset[int]:
        """The operands that are read at computed places."""
        return frozenset(i.attr[0] for p in self.phases for i in p.instrs if i.op == "gather")

    @property
    def signature(self) -> tuple[str, ...]:
        strides = sum(o.layout.count("s") for o in self.operands)
        ints = ("i64",) * (self.axes + strides)
        return ("ptr",) * len(self.operands) + ints + tuple(s.name for s in self.scalars)

    def lines(self) -> Iterator[str]:
        axes = [f"p{i}" for i in range(self.parallel)] + [f"r{i}" for i in range(self.reduced)]
        yield f"kernel {self.name}({', '.join(axes)}) i{self.index_bits}" + (
            (" fastmath" if self.fastmath else "")
            + (" short" if self.short else "")
            + (f" run {self.run}" if self.run else "")
        )
        for i, operand in enumerate(self.operands):
            yield f"  a{i}: {operand}"
        for i, scalar in enumerate(self.scalars):
            yield f"  n{i}: {scalar}"
        for window in self.windows:
            yield f"  window by {self.vector}{' of many' if self.many else ''}: {window}"
        for zipped in self.zips:
            yield "  zip: " + ", ".join(f"a{k}" for k in zipped)
        for number, phase in enumerate(self.phases):
            yield f"  phase {number} {phase.kind}"
            for i, instr in enumerate(phase.instrs, phase.first):
                yield f"    {_format_kernel_instruction(i, instr)}"
            for i, r in enumerate(phase.reductions):
                yield f"    reduce.{i} {r.combine} {dtype_name(r.dtype)} " + ", ".join(f"v{v}" for v in r.values)

    def __str__(self) -> str:
        return "\n".join(self.lines())


def user_functions_of_loop_nest(nest: LoopNest) -> tuple[UserFunction, ...]:
    """The user's functions that a kernel calls, in order of first use."""
    calls = (i.attr[0] for phase in nest.phases for i in phase.instrs if i.op == "call")
    return tuple(dict.fromkeys(calls))


def loop_nest_calls_looping_function(nest: LoopNest) -> bool:
    """Whether it calls a user's function that loops. Points may then differ a thousandfold in what they cost."""
    return any(f.loops for f in user_functions_of_loop_nest(nest))


def _format_kernel_instruction(number: int, instr: Instr) -> str:
    args = ", ".join(f"v{a}" for a in instr.args)
    if instr.op == "store":
        return f"store a{instr.attr[0]}.{instr.attr[1]} {args}"
    if instr.op == "const":
        value = np.frombuffer(instr.attr, instr.dtype)[0]
        return f"v{number} {dtype_name(instr.dtype)} = const {value}"
    attr = "" if instr.attr is None else f" {instr.attr[0]}.{instr.attr[1]}" if instr.op == "call" else f" {instr.attr}"
    return f"v{number} {dtype_name(instr.dtype)} = {instr.op}{attr} {args}".rstrip()
