"""A routine in; out the same with loops turned inside out where each independent turn may sum by itself.

`for k: for all j: a[p(j)] += t(k, j)` becomes `for all j: x = a[p(j)]; for k: x += t(k, j); a[p(j)] = x`.
A GPU's threads need not wait for each other after each k, and what they sum stays in a register. What becomes of each
element happens in the order that it had, so not a bit is another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count

from ...runtime.core.frozen import replace
from ..core.types import BOOL, DType
from ..kernel.loop_nest import Instr
from .form import Block, For, If, Let, Routine, Set, Statement, Store, values_made_in_routine_block


def routine_with_loops_interchanged(routine: Routine) -> Routine:
    """The routine with its loops interchanged; itself where there is none to interchange."""
    variables = [*routine.variables]
    numbers = count(max(values_made_in_routine_block(routine.body), default=0) + 1)
    body = _interchange_loops_in_block(routine.body, variables, numbers)
    return routine if len(variables) == len(routine.variables) else replace(routine, body=body, variables=(*variables,))


def _interchange_loops_in_block(block: Block, variables: list[DType], numbers: Iterator[int]) -> Block:
    return tuple(chain.from_iterable(_interchange_loop(s, variables, numbers) for s in block))


def _interchange_loop(loop: Statement, variables: list[DType], numbers: Iterator[int]) -> Block:
    if not isinstance(loop, For) or loop.parallel:
        return (loop,)
    found = _interchange_accumulation(loop, variables, numbers)
    return found or (replace(loop, body=_interchange_loops_in_block(loop.body, variables, numbers)),)


def _interchange_accumulation(loop: For, variables: list[DType], numbers: Iterator[int]) -> Block:
    """The loop in each of the independent turns that it holds; nothing where that is not the same."""
    levels = _perfect_nest_of_routine_loop(loop)
    *body, store = levels[-1].body
    values = [s for level in levels for s in level.body if isinstance(s, Let)]
    if not isinstance(store, Store) or len(levels) == 1 or len(values) != sum(len(s.body) - 1 for s in levels):
        return ()
    loads = [s for s in values if s.instr.op == "load" and s.instr.attr == store.array]
    if loop.until is not None or len(loads) != 1 or loads[0].instr.args != (store.place,):
        return ()
    changing = _values_that_follow(values, loop.index, loads[0].number)  # from one turn of the loop to the next
    ends = [n for level in levels[1:] for n in (level.start, level.stop)]
    if loads[0] not in body or changing.intersection([store.place, *ends]):
        return ()
    first, last, variable = next(numbers), next(numbers), len(variables)
    variables.append(loads[0].instr.dtype)
    kept = Instr("get", loads[0].instr.dtype, (), variable)
    inner = [replace(s, instr=kept) if s is loads[0] else s for s in values if s.number in changing]
    found: Block = (
        Let(first, loads[0].instr),
        Set(variable, first),
        replace(loop, body=(*inner, Set(variable, store.value))),
        Let(last, kept),
        replace(store, value=last),
    )
    for level in levels[:0:-1]:
        found = (replace(level, body=(*_steady_values_of_routine_loop(level, changing), *found)),)
    some = next(numbers)
    within = If(
        some, (*_steady_values_of_routine_loop(loop, changing), *found), ()
    )  # what no turn touches may not be there
    return Let(some, Instr("lt", BOOL, (loop.start, loop.stop))), within


def _perfect_nest_of_routine_loop(loop: For) -> Sequence[For]:
    """The loop and the independent turns that it ends with, each the last statement of the one before."""
    found = [loop]
    while found[-1].body and isinstance(inner := found[-1].body[-1], For) and inner.parallel:
        found.append(inner)
    return found


def _values_that_follow(values: Sequence[Let], *first: int) -> set[int]:
    """Those of the values that are made of the first ones, and these."""
    found = {*first}
    for s in values:
        if not found.isdisjoint(s.instr.args):
            found.add(s.number)
    return found


def _steady_values_of_routine_loop(level: For, changing: set[int]) -> Block:
    return tuple(s for s in level.body if isinstance(s, Let) and s.number not in changing)
