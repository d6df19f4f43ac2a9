"""How many vectors an elementwise kernel takes at a time: several where a long chain of values depend on each other.

A core looks some hundred instructions ahead. The next vector of a long chain lies beyond that, so the chain's latency
would be what counts; in vectors side by side the core has as many chains to work at.
"""

from __future__ import annotations

from ...kernel.loop_nest import POINT, Instr, LoopNest, calls_looping_function
from .inline_math import FLOAT_MATH
from .primitives import MATH, register_type

LONG = 16  # instructions in a row, for each vector beside the first
MOST = 4  # vectors, a power of two
REGISTERS = 24  # vector registers that their values may take
RARE = 16  # instructions for each that is a long chain, with values of its own, itself

# Inlined functions, whose constants alone fill 16 registers: they are read again for each vector, or for each two.
# A power computes in float64, and two vectors of that spill.
CONSTANTS = FLOAT_MATH.keys() - {("pow", "float")}

_FREE = frozenset({"const", "load", "scalar", "size"})


def independent_vector_count(nest: LoopNest, varying: dict[int, Instr], few: bool) -> int:
    """Vectors. varying: the kernel's instructions whose values vary along the vectors, by number. few: there are 16
    vector registers."""
    ops = [i.op for i in varying.values()]
    if calls_looping_function(nest) or not {"gather", "report", "call"}.isdisjoint(ops):
        return 1
    if few and any((i.op, register_type(i.dtype)) in CONSTANTS for i in varying.values() if i.op in MATH):
        return 2
    if len(nest.phases) > 1 or nest.phases[0].kind != POINT or sum(op in MATH for op in ops) * RARE > len(ops):
        return 1
    count, depth, alive = 1, _longest_chain_length(varying), _max_live_values(varying)
    while count < MOST and depth >= LONG * 2 * count and alive * 2 * count <= REGISTERS:
        count *= 2
    return count


def _longest_chain_length(varying: dict[int, Instr]) -> int:
    """The instructions of the longest chain."""
    found: dict[int, int] = {}
    for at, instr in varying.items():
        longest = max((found.get(a, 0) for a in instr.args), default=0)
        found[at] = longest + (instr.op not in _FREE)
    return max(found.values(), default=0)


def _max_live_values(varying: dict[int, Instr]) -> int:
    """The most values that are still needed at one time."""
    last = {a: at for at, instr in varying.items() for a in instr.args}
    alive, most = set[int](), 0
    for at in varying:
        alive = {a for a in alive if last[a] > at}
        if at in last:
            alive.add(at)
        most = max(most, len(alive))
    return most
