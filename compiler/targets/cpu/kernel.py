"""Print a LoopNest as LLVM IR text for the CPU: `void @name(ptr slots, i64 begin, i64 end)` over units of work.

Slots are 8 bytes each, in the order of `LoopNest`'s run-time parameters; a scalar lies in the low bytes of its slot.
A unit is a parallel index (reductions along rows) or a block of the innermost parallel axis. Any split of the units
into calls gives the same bits, but for the signs of NaNs, which LLVM leaves open. The text names no size, no address
and no feature of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...core.types import real_dtype
from ...kernel.loop_nest import LOOP, POINT, Instr, LoopNest, nest_calls_looping_function
from .access import (
    CpuKernelFrame,
    is_operand_worth_nontemporal_stores,
    nontemporal_store_operands,
    numbered_nest_instructions,
    vector_axis_dependences,
)
from .body import VectorLoopBody
from .inline_math import FLOAT_MATH
from .llvm_ir import METADATA, LlvmFunction, LlvmModule, LlvmValue
from .loops import choose_vector_axis, cpu_column_block_length, write_llvm_column_loops, write_llvm_row_loops
from .primitives import MATH, llvm_register_type
from .transpose import cpu_transpose_tiling, write_llvm_transpose_tiles

WORK = 16384  # elements that a chunk has at least
CHUNKS = 64  # chunks that a launch has at most
LOOPED = 16  # times as many where elements differ in what they cost, and as few elements


def print_llvm_kernel(nest: LoopNest, vector_library: str | None = None, vector_bytes: int | None = None) -> str:
    """The kernel's text. vector_library: what it may call, `libmvec-avx512`, `libmvec-avx2` or None.

    vector_bytes: the length that vectors are written for; any is correct on any machine.
    """
    vector_bytes = vector_bytes or (32 if vector_library == "libmvec-avx2" else 64)
    module = LlvmModule(vector_library, " contract" if nest.fastmath else "")
    f = LlvmFunction(module)
    frame = CpuKernelFrame(nest, f)
    axis = choose_vector_axis(nest)
    depends = vector_axis_dependences(nest, axis)
    body = VectorLoopBody(frame, axis, choose_vector_lanes(nest, depends, axis, vector_bytes), depends)
    streams = [number for phase in nest.phases for number in nontemporal_store_operands(nest, phase, axis, body.lanes)]
    body.large = {number: is_operand_worth_nontemporal_stores(frame, number) for number in streams}
    begin, end = LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    tiling = cpu_transpose_tiling(nest)
    if axis is None or axis >= nest.parallel:
        write_llvm_row_loops(frame, body, begin, end)
    elif tiling is not None:
        write_llvm_transpose_tiles(frame, body, tiling, begin, end, vector_bytes)
    else:
        write_llvm_column_loops(frame, body, begin, end)
    for large in body.large.values():
        with f.when(large):
            f.do("fence seq_cst")  # streaming stores are ordered by nothing else
    f.do("ret void")
    text = f.render(f"define void @{nest.name}(ptr noundef %slots, i64 %begin, i64 %end)")
    return f"{module}\n{text}\n{METADATA}\n"


def choose_vector_lanes(nest: LoopNest, depends: dict[int, frozenset[int]], axis: int | None, vector_bytes: int) -> int:
    """The lanes with which the widest varying value fills one vector, or several. Indices do not count."""
    if axis is None:
        return 1
    varying = {at: i for at, i in numbered_nest_instructions(nest).items() if axis in depends[at]}
    widest = max((real_dtype(i.dtype).itemsize for i in varying.values() if i.op != "index"), default=4)
    return max(2, vector_bytes // widest) * interleaved_vector_count(nest, varying, vector_bytes < 64)


def cpu_launch_units(nest: LoopNest, sizes: Sequence[int]) -> tuple[int, int]:
    """The units of a launch over axes of these lengths, and those of a chunk."""
    axis, tiling = choose_vector_axis(nest), cpu_transpose_tiling(nest)
    if 0 in sizes[: nest.parallel]:
        return 0, 1
    if axis is None or axis >= nest.parallel:
        count, work = prod(sizes[: nest.parallel]), prod(sizes[nest.parallel :])
    elif tiling is not None:
        cut = {axis: tiling.columns, tiling.axis: tiling.rows}
        count = prod(-(-n // cut.get(a, 1)) for a, n in enumerate(sizes[: nest.parallel]))
        work = prod(min(sizes[a], n) for a, n in cut.items())
    else:
        block = cpu_column_block_length(nest)
        count = prod(sizes[:axis]) * -(-sizes[axis] // block)
        loops = any(p.kind == LOOP for p in nest.phases)
        work = min(sizes[axis], block) * (prod(sizes[nest.parallel :]) if loops else 1)
    finer = LOOPED if nest_calls_looping_function(nest) else 1
    return count, max(1, WORK // finer // max(1, work), -(-count // (CHUNKS * finer)))


# Vectors that an elementwise kernel takes at a time: several where a long chain of values depend on each other. A core
# looks some hundred instructions ahead; the next vector of a long chain lies beyond that, so the chain's latency would
# be what counts; in vectors side by side the core has as many chains to work at.
LONG = 16  # instructions in a row, for each vector beside the first
MOST = 4  # vectors, a power of two
REGISTERS = 24  # vector registers that their values may take
RARE = 16  # instructions for each that is a long chain, with values of its own, itself

# Inlined functions, whose constants alone fill 16 registers: they are read again for each vector, or for each two.
# A power computes in float64, and two vectors of that spill.
CONSTANTS = FLOAT_MATH.keys() - {("pow", "float")}

_FREE = frozenset({"const", "load", "scalar", "size"})


def interleaved_vector_count(nest: LoopNest, varying: dict[int, Instr], few: bool) -> int:
    """Vectors. varying: the kernel's instructions whose values vary along the vectors, by number. few: there are 16
    vector registers."""
    ops = [i.op for i in varying.values()]
    if nest_calls_looping_function(nest) or not {"gather", "report", "call"}.isdisjoint(ops):
        return 1
    if few and any((i.op, llvm_register_type(i.dtype)) in CONSTANTS for i in varying.values() if i.op in MATH):
        return 2
    if len(nest.phases) > 1 or nest.phases[0].kind != POINT or sum(op in MATH for op in ops) * RARE > len(ops):
        return 1
    count, depth, alive = 1, _longest_vector_instruction_chain(varying), _max_live_vector_values(varying)
    while count < MOST and depth >= LONG * 2 * count and alive * 2 * count <= REGISTERS:
        count *= 2
    return count


def _longest_vector_instruction_chain(varying: dict[int, Instr]) -> int:
    """The instructions of the longest chain."""
    found: dict[int, int] = {}
    for at, instr in varying.items():
        longest = max((found.get(a, 0) for a in instr.args), default=0)
        found[at] = longest + (instr.op not in _FREE)
    return max(found.values(), default=0)


def _max_live_vector_values(varying: dict[int, Instr]) -> int:
    """The most values that are still needed at one time."""
    last = {a: at for at, instr in varying.items() for a in instr.args}
    alive, most = set[int](), 0
    for at in varying:
        alive = {a for a in alive if last[a] > at}
        if at in last:
            alive.add(at)
        most = max(most, len(alive))
    return most
