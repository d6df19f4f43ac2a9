"""Statements in, out those whose results somebody sees. No unused values, no memory that nobody reads."""

from __future__ import annotations

from collections.abc import Collection

from .form import (
    Block,
    Fold,
    For,
    If,
    Let,
    Set,
    Statement,
    Store,
    statements_in_routine_block,
    values_used_behind_routine_blocks,
    values_used_by_routine_statement,
    with_changed_routine_blocks,
)


def routine_block_without_dead_code(block: Block, private: Collection[int]) -> Block:
    """The block without what nobody sees. private: arrays that are the routine's own."""
    while True:
        every = [*statements_in_routine_block(block)]
        reads = {(s.instr.op, s.instr.attr) for s in every if isinstance(s, Let) and s.instr.op in ("load", "get")}
        used = {
            number
            for s in every
            for number in (*values_used_by_routine_statement(s), *values_used_behind_routine_blocks(s))
        }
        found = _routine_block_without_unread(block, {a for a in private if ("load", a) not in reads}, reads, used)
        if found == block:
            return block
        block = found


def _routine_block_without_unread(block: Block, unread: set[int], reads: set[tuple[str, int]], used: set[int]) -> Block:
    found: list[Statement] = []
    for s in block:
        if isinstance(s, (Let, Fold)) and s.number not in used:
            continue
        if (isinstance(s, Store) and s.array in unread) or (isinstance(s, Set) and ("get", s.variable) not in reads):
            continue
        s = with_changed_routine_blocks(s, lambda b: _routine_block_without_unread(b, unread, reads, used))
        if (isinstance(s, For) and not s.body) or (isinstance(s, If) and not (s.then or s.otherwise)):
            continue
        found.append(s)
    return tuple(found)
