"""Statements in, out those whose results somebody sees: no unused values, no memory that nobody reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...runtime.core.frozen import replace
from .form import Block, Fold, For, If, Let, Set, Statement, Stop, Store, While, blocks_of


def without_dead_code(block: Block, private: Collection[int]) -> Block:
    """The block without what nobody sees. private: arrays that are the routine's own."""
    while True:
        every = [*_every(block)]
        reads = {(s.instr.op, s.instr.attr) for s in every if isinstance(s, Let) and s.instr.op in ("load", "get")}
        used = {number for s in every for number in _used(s)}
        found = _without(block, {a for a in private if ("load", a) not in reads}, reads, used)
        if found == block:
            return block
        block = found


def _every(block: Block) -> Iterator[Statement]:
    for s in block:
        yield s
        for inner in blocks_of(s):
            yield from _every(inner)


def _used(s: Statement) -> tuple[int, ...]:
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


def _without(block: Block, unread: set[int], reads: set[tuple[str, int]], used: set[int]) -> Block:
    found: list[Statement] = []
    for s in block:
        if isinstance(s, (Let, Fold)) and s.number not in used:
            continue
        if (isinstance(s, Store) and s.array in unread) or (isinstance(s, Set) and ("get", s.variable) not in reads):
            continue
        if isinstance(s, (For, Fold)):
            s = replace(s, body=_without(s.body, unread, reads, used))
        elif isinstance(s, If):
            then, otherwise = (_without(b, unread, reads, used) for b in (s.then, s.otherwise))
            s = replace(s, then=then, otherwise=otherwise)
        elif isinstance(s, While):
            s = replace(s, test=_without(s.test, unread, reads, used), body=_without(s.body, unread, reads, used))
        if (isinstance(s, For) and not s.body) or (isinstance(s, If) and not (s.then or s.otherwise)):
            continue
        found.append(s)
    return tuple(found)
