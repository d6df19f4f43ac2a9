"""The form of a kernel that runs a loop nest turn by turn. Typed values, variables, arrays in memory, statements.

Each target prints its text from it, and `evaluate` is its meaning. Values are numbered through the whole routine; one
is seen after its statement, in the same block and the blocks within. Arrays are flat: places are element offsets; an
array of complex numbers is one of their parts, twice as long. Values and variables are real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...runtime.core.frozen import frozen, replace
from ..kernel.loop_nest import Instr

ERROR_WORDS = 2  # what a routine that can fail writes: the number of the check from 1 on (0: none), and its value


@frozen
class RowResult:
    """The row of the op table that a value is a result of, and the values that it is of."""

    name: str
    args: tuple[int, ...]


@frozen
class Let:
    """Value `number` is what an instruction gives.

    Beside primitives: `const`; `number`, attr = which of the routine's numbers; `load`, attr = array, args = (place,);
    `get`, attr = variable. row: what it is a result of, which says its derivative; it may be left out.
    """

    number: int
    instr: Instr
    row: RowResult | None = None


@frozen
class Store:
    """An element of an array in memory is `value` from now on."""

    array: int
    place: int
    value: int


@frozen
class Set:
    """A variable is `value` from now on."""

    variable: int
    value: int


@frozen
class For:
    """The body for index = start, start + 1, ... below stop (int64 values).

    parallel: no turn touches what another one writes, and none sets a variable: all may run at once. until: a bool
    value of the body; the loop ends after a turn where it holds. apart: parallel but for variables, of which nobody has
    looked whether a turn uses what another one has set.
    """

    index: int
    start: int
    stop: int
    body: Block
    parallel: bool = False
    until: int | None = None
    apart: bool = False


@frozen
class Fold:
    """Value `number` is the reduction `combine` of `value` for index = start, ... below stop, in `dtype`, any order."""

    number: int
    combine: str
    dtype: np.dtype[Any]
    index: int
    start: int
    stop: int
    body: Block
    value: int


@frozen
class If:
    """One of two blocks."""

    condition: int
    then: Block
    otherwise: Block


@frozen
class While:
    """`test`, which gives `condition`, then `body`, as long as that holds."""

    test: Block
    condition: int
    body: Block


@frozen
class Stop:
    """Where the condition holds nothing more runs, and the error words say (number, value)."""

    condition: int
    number: int
    value: int


Statement: TypeAlias = Let | Store | Set | For | Fold | If | While | Stop
Block: TypeAlias = tuple[Statement, ...]
S = TypeVar("S", bound=Statement)


@frozen
class RoutineMemory:
    """An array of the routine. role: `in`, `out` (its first contents are undefined), `inout`, `temp`, or `report`: an
    int64 for each of the routine's lookups, an index of it that is out of range.

    shape: of the node that fills it or that it fills; a temp's is for its size alone.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    role: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.role} {self.dtype}{list(self.shape)}"


@frozen
class Lookup:
    """An index along an axis of this length, of an array that the user's line looks up."""

    axis: int
    length: int
    line: str


@frozen
class Routine:
    """A whole loop nest. checks: how many checks it has. With any, its last array is the int64 error words.

    turns: about how many innermost steps it takes, for its cost; width: how many of a step are independent at most;
    wide: how many such there are each time that something waits for those before it.
    """

    arrays: tuple[RoutineMemory, ...]
    variables: tuple[np.dtype[Any], ...]
    body: Block
    checks: int = 0
    turns: float = 1.0
    width: float = 1.0
    wide: float = 0.0
    size: int = 0  # statements
    numbers: int = 0  # how many int64 numbers it takes: see `lifting`
    lookups: tuple[Lookup, ...] = ()  # that may miss: its last array reports which did

    def lines(self) -> Iterator[str]:
        for i, array in enumerate(self.arrays):
            yield f"a{i}: {array}"
        for i, dtype in enumerate(self.variables):
            yield f"x{i}: {dtype}"
        yield from _lines_of_routine_block(self.body, "")

    def __str__(self) -> str:
        return "\n".join(self.lines())


def renumbered_routine(routine: Routine, ends: Container[int]) -> tuple[Routine, list[int]]:
    """The routine without arrays and variables that nothing touches, and which arrays are left, in order.

    ends: arrays that stay whatever happens; so do the error words."""
    arrays: set[int] = {i for i in range(len(routine.arrays)) if i in ends}
    variables: set[int] = set()
    if routine.checks:
        arrays.add(len(routine.arrays) - 1)
    every = [*statements_in_routine_block(routine.body)]
    for s in every:
        if isinstance(s, Store):
            arrays.add(s.array)
        elif isinstance(s, Set):
            variables.add(s.variable)
        elif isinstance(s, Let) and s.instr.op in ("load", "get"):
            (arrays if s.instr.op == "load" else variables).add(s.instr.attr)
    kept = sorted(arrays)
    new = {old: i for i, old in enumerate(kept)}
    own = {old: i for i, old in enumerate(sorted(variables))}

    def renumbered_block(block: Block) -> Block:
        return tuple(map(renumbered_statement, block))

    def renumbered_statement(s: Statement) -> Statement:
        if isinstance(s, Store):
            return replace(s, array=new[s.array])
        if isinstance(s, Set):
            return replace(s, variable=own[s.variable])
        if isinstance(s, Let) and s.instr.op in ("load", "get"):
            number = (new if s.instr.op == "load" else own)[s.instr.attr]
            return replace(s, instr=replace(s.instr, attr=number))
        return with_changed_routine_blocks(s, renumbered_block)

    dtypes = tuple(routine.variables[i] for i in sorted(variables))
    found = Routine(
        tuple(routine.arrays[i] for i in kept),
        dtypes,
        renumbered_block(routine.body),
        routine.checks,
        routine.turns,
        routine.width,
        routine.wide,
        len(every),
    )
    return found, kept


def _lines_of_routine_block(block: Block, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    for s in block:
        if isinstance(s, Let):
            yield f"{indent}v{s.number} = {_text_of_routine_instruction(s.instr)}"
        elif isinstance(s, Store):
            yield f"{indent}a{s.array}[v{s.place}] = v{s.value}"
        elif isinstance(s, Set):
            yield f"{indent}x{s.variable} = v{s.value}"
        elif isinstance(s, For):
            kind = "for all" if s.parallel else "for"
            until = "" if s.until is None else f" until v{s.until}"
            yield f"{indent}{kind} v{s.index} in v{s.start}..v{s.stop}{until}"
            yield from _lines_of_routine_block(s.body, deeper)
        elif isinstance(s, Fold):
            yield f"{indent}v{s.number} = {s.combine} {s.dtype} of v{s.value} for v{s.index} in v{s.start}..v{s.stop}"
            yield from _lines_of_routine_block(s.body, deeper)
        elif isinstance(s, If):
            yield f"{indent}if v{s.condition}"
            yield from _lines_of_routine_block(s.then, deeper)
            if s.otherwise:
                yield f"{indent}else"
                yield from _lines_of_routine_block(s.otherwise, deeper)
        elif isinstance(s, While):
            yield f"{indent}while v{s.condition}"
            yield from _lines_of_routine_block(s.test, deeper)
            yield f"{indent}do"
            yield from _lines_of_routine_block(s.body, deeper)
        else:
            yield f"{indent}stop {s.number} with v{s.value} if v{s.condition}"


def _text_of_routine_instruction(instr: Instr) -> str:
    args = ", ".join(f"v{a}" for a in instr.args)
    if instr.op == "const":
        return f"{instr.dtype} {np.frombuffer(instr.attr, instr.dtype)[0]}"
    if instr.op == "load":
        return f"a{instr.attr}[{args}]"
    if instr.op in ("get", "number"):
        return f"{'x' if instr.op == 'get' else 'n'}{instr.attr}"
    return f"{instr.op} {instr.dtype} {args}"


_BLOCKS: dict[type, tuple[str, ...]] = {
    For: ("body",),
    Fold: ("body",),
    If: ("then", "otherwise"),
    While: ("test", "body"),
}
_USED: dict[type, tuple[str, ...]] = {
    Store: ("place", "value"),
    Set: ("value",),
    Stop: ("condition", "value"),
    For: ("start", "stop"),
    Fold: ("start", "stop"),
    If: ("condition",),
}
_USED_BEHIND: dict[type, tuple[str, ...]] = {For: ("until",), Fold: ("value",), While: ("condition",)}


def blocks_in_routine_statement(statement: Statement) -> tuple[Block, ...]:
    """The blocks within a statement."""
    return tuple([getattr(statement, name) for name in _BLOCKS.get(type(statement), ())])


def with_changed_routine_blocks(s: S, change: Callable[[Block], Block]) -> S:
    """The statement with what `change` makes of each block within it."""
    blocks: dict[str, Any] = {name: change(getattr(s, name)) for name in _BLOCKS.get(type(s), ())}
    return replace(s, **blocks) if blocks else s


def values_used_by_routine_statement(s: Statement) -> tuple[int, ...]:
    """The values that it takes, before the blocks within it run."""
    return s.instr.args if isinstance(s, Let) else tuple([getattr(s, name) for name in _USED.get(type(s), ())])


def values_used_behind_routine_blocks(s: Statement) -> tuple[int, ...]:
    """The values that it takes of the blocks within it."""
    values = [getattr(s, name) for name in _USED_BEHIND.get(type(s), ())]
    return tuple([value for value in values if value is not None])


def statements_in_routine_block(block: Block) -> Iterator[Statement]:
    """All statements of a block, and of the blocks within them."""
    for s in block:
        yield s
        for inner in blocks_in_routine_statement(s):
            yield from statements_in_routine_block(inner)


def values_made_in_routine_block(block: Block) -> Iterator[int]:
    """All values of a block, and of the blocks within it."""
    for s in statements_in_routine_block(block):
        if isinstance(s, (Let, Fold)):
            yield s.number
        if isinstance(s, (For, Fold)):
            yield s.index
