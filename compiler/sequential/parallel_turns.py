"""A routine in; out the same with loops of independent turns marked. What nobody sees is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ...runtime.core.frozen import replace
from .dead_code import routine_block_without_dead_code
from .form import (
    Block,
    Fold,
    For,
    If,
    Let,
    Routine,
    Set,
    Statement,
    Stop,
    While,
    blocks_in_routine_statement,
    statements_in_routine_block,
    with_changed_routine_blocks,
)
from .forwarding import routine_with_stores_forwarded


def routine_for_printing(routine: Routine, unwanted: Collection[int] = ()) -> Routine:
    """The routine as targets print it. unwanted: arrays that nobody reads after it."""
    private = {n for n, array in enumerate(routine.arrays) if array.role == "temp"}.union(unwanted)
    body = routine_block_without_dead_code(routine.body, private)
    body = _mark_parallel_loops_of_routine(body, Counter(_routine_variables_read(body)))
    return routine_with_stores_forwarded(replace(routine, body=body))


def _mark_parallel_loops_of_routine(block: Block, gets: Counter[int]) -> Block:
    """With `parallel` where it holds: of the variables that turns set each sets what it uses, and nobody else does."""
    return tuple(_mark_parallel_loop_statement(s, gets) for s in block)


def _mark_parallel_loop_statement(s: Statement, gets: Counter[int]) -> Statement:
    if isinstance(s, Fold):  # whose turns are in any order already
        return s
    s = with_changed_routine_blocks(s, lambda block: _mark_parallel_loops_of_routine(block, gets))
    if isinstance(s, For) and s.apart and _are_routine_iterations_independent(s.body, gets):
        return replace(s, parallel=True)
    return s


def _are_routine_iterations_independent(body: Block, gets: Counter[int]) -> bool:
    if any(isinstance(s, Stop) for s in statements_in_routine_block(body)):
        return False
    mine = Counter(_routine_variables_read(body))
    sets = {s.variable for s in statements_in_routine_block(body) if isinstance(s, Set)}
    return all(mine[v] == gets[v] for v in sets) and _routine_variables_set_first(body, sets, set()) is not None


def _routine_variables_set_first(block: Block, own: set[int], known: set[int]) -> set[int] | None:
    """Which variables are set behind the block; None where one of `own` may be used before. known: set before it."""
    known = set(known)
    for s in block:
        if isinstance(s, Let) and s.instr.op == "get" and s.instr.attr in own - known:
            return None
        if isinstance(s, Set):
            known.add(s.variable)
        if isinstance(s, While):
            found = _routine_variables_set_first(s.test, own, known)
            if found is None or _routine_variables_set_first(s.body, own, known | found) is None:
                return None
            continue
        ends = [_routine_variables_set_first(inner, own, known) for inner in blocks_in_routine_statement(s)]
        if None in ends:
            return None
        if isinstance(s, If):
            known |= (ends[0] or set()) & (ends[1] or set())
    return known


def _routine_variables_read(block: Block) -> Iterator[int]:
    return (s.instr.attr for s in statements_in_routine_block(block) if isinstance(s, Let) and s.instr.op == "get")
