"""Statements in, out those whose results somebody sees. No unused values, no memory that nobody reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...runtime.core.frozen import replace
from .form import Block, Fold, For, If, Let, Set, Statement, Stop, Store, While, blocks_in_routine_statement


def routine_block_without_dead_code(block: Block, private: Collection[int]) -> Block:
    """The block without what nobody sees. private: arrays that are the routine's own."""
    while True:
        every = [*statements_in_routine_block(block)]
        reads = {(s.instr.op, s.instr.attr) for s in every if isinstance(s, Let) and s.instr.op in ("load", "get")}
        used = {number for s in every for number in _values_used_by_routine_statement(s)}
        found = _routine_block_without_unread(block, {a for a in private if ("load", a) not in reads}, reads, used)
        if found == block:
            return block
        block = found


def statements_in_routine_block(block: Block) -> Iterator[Statement]:
    """All statements of a block, and of the blocks within them."""
    for s in block:
        yield s
        for inner in blocks_in_routine_statement(s):
            yield from statements_in_routine_block(inner)


def _values_used_by_routine_statement(s: Statement) -> tuple[int, ...]:
    if isinstance(s, Let):
        return s.instr.args
    if isinstance(s, Store):
        return (s.place, s.value)
    if isinstance(s, Set):
        return (s.value,)
    if isinstance(s, Stop):
        return (s.condition, s.value)
    if isinstance(s, Fold):
        return (s.start, s.stop, s.value)
    if isinstance(s, For):
        return (s.start, s.stop) if s.until is None else (s.start, s.stop, s.until)
    return (s.condition,)


def _routine_block_without_unread(block: Block, unread: set[int], reads: set[tuple[str, int]], used: set[int]) -> Block:
    found: list[Statement] = []
    for s in block:
        if isinstance(s, (Let, Fold)) and s.number not in used:
            continue
        if (isinstance(s, Store) and s.array in unread) or (isinstance(s, Set) and ("get", s.variable) not in reads):
            continue
        if isinstance(s, (For, Fold)):
            s = replace(s, body=_routine_block_without_unread(s.body, unread, reads, used))
        elif isinstance(s, If):
            then, otherwise = (_routine_block_without_unread(b, unread, reads, used) for b in (s.then, s.otherwise))
            s = replace(s, then=then, otherwise=otherwise)
        elif isinstance(s, While):
            s = replace(
                s,
                test=_routine_block_without_unread(s.test, unread, reads, used),
                body=_routine_block_without_unread(s.body, unread, reads, used),
            )
        if (isinstance(s, For) and not s.body) or (isinstance(s, If) and not (s.then or s.otherwise)):
            continue
        found.append(s)
    return tuple(found)
