"""A routine with sizes in; the routine that takes them as numbers out.

So the text of a kernel does not depend on the extents and strides of its arrays: one kernel serves every size of the
same structure. Small integers, and those that something is divided by, stay in the text, where they are fast.
"""

from __future__ import annotations

import numpy as np

from ...runtime.core.frozen import replace
from ..core.types import INT64
from ..kernel.loop_nest import Instr
from .form import Block, Let, Routine, Statement, statements_in_routine_block, with_changed_routine_blocks

SMALL = 8  # integers up to it, and their negatives, are rarely sizes
_DIVISIONS = frozenset({"quot", "rem"})


def lift_routine_sizes(routine: Routine) -> tuple[Routine, tuple[int, ...]]:
    """The routine with `number 0`, `number 1`, ... in place of its larger int64 constants, and these in that order."""
    lets = [s for s in statements_in_routine_block(routine.body) if isinstance(s, Let)]
    divisors = {s.instr.args[1] for s in lets if s.instr.op in _DIVISIONS}
    numbers: dict[int, int] = {}

    def lifted_block(block: Block) -> Block:
        return tuple(map(lifted_statement, block))

    def lifted_statement(s: Statement) -> Statement:
        if isinstance(s, Let):
            if s.instr.op != "const" or s.instr.dtype != INT64 or s.number in divisors:
                return s
            value = int(np.frombuffer(s.instr.attr, INT64)[0])
            if abs(value) <= SMALL:
                return s
            return Let(s.number, Instr("number", INT64, (), numbers.setdefault(value, len(numbers))))
        return with_changed_routine_blocks(s, lifted_block)

    body = lifted_block(routine.body)
    return replace(routine, body=body, numbers=len(numbers)), tuple(numbers)
