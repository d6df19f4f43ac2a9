"""A routine in; out the same without what nobody sees, and with those loops marked whose turns are independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ...runtime.core.frozen import replace
from .dead_code import without_dead_code
from .form import Block, For, If, Let, Routine, Set, Statement, Stop, While, blocks_of


def simplified(routine: Routine, unwanted: Collection[int] = ()) -> Routine:
    """The routine as targets print it. unwanted: arrays that nobody reads after it."""
    private = {n for n, array in enumerate(routine.arrays) if array.role == "temp"}.union(unwanted)
    body = without_dead_code(routine.body, private)
    return replace(routine, body=_marked(body, Counter(_gets(body))))


def _marked(block: Block, gets: Counter[int]) -> Block:
    """With `parallel` where it holds: of the variables that turns set each sets what it uses, and nobody else does."""
    return tuple(_of_statement(s, gets) for s in block)


def _of_statement(s: Statement, gets: Counter[int]) -> Statement:
    if isinstance(s, For):
        s = replace(s, body=_marked(s.body, gets))
        return replace(s, parallel=True) if s.apart and _is_independent(s.body, gets) else s
    if isinstance(s, If):
        return replace(s, then=_marked(s.then, gets), otherwise=_marked(s.otherwise, gets))
    if isinstance(s, While):
        return replace(s, test=_marked(s.test, gets), body=_marked(s.body, gets))
    return s


def _is_independent(body: Block, gets: Counter[int]) -> bool:
    if any(isinstance(s, Stop) for s in _every(body)):
        return False
    mine = Counter(_gets(body))
    sets = {s.variable for s in _every(body) if isinstance(s, Set)}
    return all(mine[v] == gets[v] for v in sets) and _sets_first(body, sets, set()) is not None


def _sets_first(block: Block, own: set[int], known: set[int]) -> set[int] | None:
    """Which variables are set behind the block; None where one of `own` may be used before. known: set before it."""
    known = set(known)
    for s in block:
        if isinstance(s, Let) and s.instr.op == "get" and s.instr.attr in own - known:
            return None
        if isinstance(s, Set):
            known.add(s.variable)
        if isinstance(s, While):
            found = _sets_first(s.test, own, known)
            if found is None or _sets_first(s.body, own, known | found) is None:
                return None
            continue
        ends = [_sets_first(inner, own, known) for inner in blocks_of(s)]
        if None in ends:
            return None
        if isinstance(s, If):
            known |= (ends[0] or set()) & (ends[1] or set())
    return known


def _gets(block: Block) -> Iterator[int]:
    return (s.instr.attr for s in _every(block) if isinstance(s, Let) and s.instr.op == "get")


def _every(block: Block) -> Iterator[Statement]:
    for s in block:
        yield s
        for inner in blocks_of(s):
            yield from _every(inner)
