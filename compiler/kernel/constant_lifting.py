"""A kernel's phases with the program's own numbers in them in; phases that take those numbers as parameters, out.

So the text of a kernel, and with it the machine code, does not depend on them: `0.1 * x` and `0.2 * x` are one kernel.
In the text stay numbers that instructions have a short form for (`COMMON`: x * 2 is x + x, a select against 0 is a
mask), those that are not finite, and those that a formula looked at (`Val.known`: x // 7 is a product, x ** 5 a few).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from ...runtime.core.frozen import replace
from ..core.types import BOOL, DType
from .loop_nest import Instr, Phase

COMMON = (0.0, 0.5, 1.0, 2.0, -0.5, -1.0, -2.0)


def is_fixed_constant(value: Any, dtype: DType) -> bool:
    """Whether a number (real) is a constant of the text whatever is done with it."""
    number = np.asarray(value, dtype)
    return dtype == BOOL or float(number) in COMMON or not np.isfinite(np.float64(number))


def lift_constants(phases: Sequence[Phase], asked: Set[Instr], first: int) -> tuple[tuple[Phase, ...], list[Instr]]:
    """The phases with `scalar first`, `scalar first + 1`, ... in place of the literals that are not in `asked`, and
    those literals in that order; the others become constants."""
    numbers: dict[Instr, int] = {}

    def place(instr: Instr) -> Instr:
        if instr.op != "literal":
            return instr
        if instr in asked:
            return replace(instr, op="const")
        return replace(instr, op="scalar", attr=numbers.setdefault(instr, first + len(numbers)))

    lifted = tuple(replace(p, instrs=tuple(map(place, p.instrs))) for p in phases)
    return lifted, list(numbers)
