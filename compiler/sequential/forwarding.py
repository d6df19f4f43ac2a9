"""A routine in; out the same where a value that turns of a loop hand on through memory is handed on in a variable.

`for i: a[i] = f(a[i - 1])` becomes `x = a[start - 1]; for i: a[i] = x = f(x)`, and of `for k: a[p] = f(a[p], k)` only
the last turn stores. So no turn waits for memory, and the threads of a GPU do not wait for each other.
"""

from __future__ import annotations

from itertools import count

from ...runtime.core.frozen import dataclass, field, replace
from ..core.types import BOOL, INT64
from ..kernel.loop_nest import Instr
from .form import (
    Block,
    For,
    If,
    Let,
    Routine,
    Set,
    Statement,
    Stop,
    Store,
    statements_in_routine_block,
    values_made_in_routine_block,
    with_changed_routine_blocks,
)
from .places import ElementPlace, PlacesOfValues

FARTHEST = 3  # turns that a value is handed on for


def routine_with_stores_forwarded(routine: Routine) -> Routine:
    """The routine with such values in variables; itself where there are none."""
    forwarding = _Forwarding(routine)
    body = forwarding.block(routine.body, PlacesOfValues())
    variables = tuple(forwarding.variables)
    return replace(routine, body=body, variables=variables) if len(variables) > len(routine.variables) else routine


@dataclass(slots=True)
class _ForwardedLoop:
    """A loop, and what is done before and behind it if it has a turn."""

    loop: For
    before: list[Statement] = field(default_factory=list)
    behind: list[Statement] = field(default_factory=list)


class _Forwarding:
    def __init__(self, routine: Routine) -> None:
        self.variables = [*routine.variables]
        self.numbers = count(max(values_made_in_routine_block(routine.body), default=0) + 1)

    def block(self, block: Block, known: PlacesOfValues) -> Block:
        """The block. known: the places that the values before it are."""
        found: list[Statement] = []
        known = known.within(block)
        for s in block:
            s = with_changed_routine_blocks(s, lambda inner: self.block(inner, known))
            found += self.loop(s, known) if isinstance(s, For) and not s.parallel else (s,)
        return tuple(found)

    def loop(self, s: For, known: PlacesOfValues) -> Block:
        forwarded, known = _ForwardedLoop(s), known.within(s.body)
        for store in s.body:
            if isinstance(store, Store):
                self.forward(forwarded, store, known)
        if not forwarded.before:
            return (s,)
        some = next(self.numbers)
        test = Let(some, Instr("lt", BOOL, (s.start, s.stop)))
        if forwarded.behind:
            return test, If(some, (*forwarded.before, forwarded.loop, *forwarded.behind), ())
        return test, If(some, (*forwarded.before,), ()), forwarded.loop

    def forward(self, forwarded: _ForwardedLoop, store: Store, known: PlacesOfValues) -> None:
        """Hands on what is stored, to loads of the same element in turns soon after it, or of the one in all turns."""
        s = forwarded.loop
        every, place = [*statements_in_routine_block(s.body)], known.place(store.place)
        step = place.terms.get(s.index, 0)
        changing = {s.index, *values_made_in_routine_block(s.body)}
        if not changing.isdisjoint(place.terms.keys() - {s.index}):
            return
        if sum(isinstance(x, Store) and x.array == store.array for x in every) > 1:
            return
        loads = self.loads_of_stored(s, store, place, known)
        turns = next(n for n in count() if n + 1 not in loads or n == FARTHEST)
        if not step:  # nothing may look at the memory before the last turn
            others = sum(_is_load_from(x, store.array) for x in every)
            turns *= others == len(loads.get(1, ())) and not any(isinstance(x, Stop) for x in every)
        if turns:
            self.hand_on(forwarded, store, place, [loads[n + 1] for n in range(turns)])

    def loads_of_stored(self, s: For, store: Store, place: ElementPlace, known: PlacesOfValues) -> dict[int, list[Let]]:
        """The loads of what is stored, by the number of turns since then; 1 where all turns store at one place."""
        step = place.terms.get(s.index, 0)
        loads: dict[int, list[Let]] = {}
        for x in s.body:
            if any(isinstance(y, Stop) for y in statements_in_routine_block((x,))) or (x is store and not step):
                break  # what is loaded behind a check may not be there
            if isinstance(x, Let) and _is_load_from(x, store.array):
                apart = place - known.place(x.instr.args[0])
                turns, rest = divmod(apart.constant, step) if step else (1, apart.constant)
                if not apart.terms and not rest and turns > 0:
                    loads.setdefault(turns, []).append(x)
        return loads

    def hand_on(self, forwarded: _ForwardedLoop, store: Store, place: ElementPlace, loads: list[list[Let]]) -> None:
        """loads: those of what was stored one turn ago, of what was stored two turns ago, and so on."""
        s, dtype = forwarded.loop, loads[0][0].instr.dtype
        step = place.terms.get(s.index, 0)
        first = len(self.variables)
        self.variables += [dtype] * len(loads)
        gets = [Instr("get", dtype, (), first + n) for n in range(len(loads))]
        new = {x.number: replace(x, instr=gets[n]) for n, some in enumerate(loads) for x in some}
        body = [new.get(x.number, x) if isinstance(x, Let) else x for x in s.body if step or x is not store]
        for n in range(len(loads) - 1, 0, -1):
            number = next(self.numbers)
            body += [Let(number, gets[n - 1]), Set(first + n, number)]
        forwarded.loop = replace(s, body=(*body, Set(first, store.value)))
        start = place.replaced(s.index, s.start)
        for n in range(len(loads)):
            at, number = self.write_place(forwarded.before, start.plus(-step * (n + 1))), next(self.numbers)
            forwarded.before += [Let(number, Instr("load", dtype, (at,), store.array)), Set(first + n, number)]
        if not step:
            number = next(self.numbers)
            forwarded.behind += [Let(number, gets[0]), Store(store.array, at, number)]

    def write_place(self, block: list[Statement], place: ElementPlace) -> int:
        """The number of a value that is the place."""

        def write(op: str, *args: int, attr: object = None) -> int:
            block.append(Let(next(self.numbers), Instr(op, INT64, args, attr)))
            return block[-1].number  # type: ignore[union-attr]

        total = write("const", attr=INT64.type(place.constant).tobytes())
        for value, factor in place.terms.items():
            part = value if factor == 1 else write("mul", value, write("const", attr=INT64.type(factor).tobytes()))
            total = write("add", total, part)
        return total


def _is_load_from(s: Statement, array: int) -> bool:
    return isinstance(s, Let) and (s.instr.op, s.instr.attr) == ("load", array)
