"""Kernel text for layout changes. Inputs that are contiguous along another axis pass through shared memory in tiles."""

from __future__ import annotations

from ...core.types import SHORT_NAMES
from ...kernel.loop_nest import LoopNest
from .kernel_text import BodyContext, CudaKernelText, LanePlace, cuda_cell_type_name
from .launch_shape import TILE, TILE_ROWS, CudaShape, operands_transposed_in_shared_memory

PITCH = TILE + 1  # of a tile's rows in shared memory: neither rows nor columns meet in one bank


def print_cuda_transpose_kernel(nest: LoopNest, shape: CudaShape) -> str:
    """A block of 32 x 8 threads has a tile: 32 along the innermost axis, 8 x `groups` along the other one."""
    text = CudaKernelText(nest, shape)
    text.prologue()
    inner, across = nest.parallel - 1, shape.across
    height = TILE_ROWS * shape.groups
    rest = [axis for axis in range(inner) if axis != across]
    text.add("x = tid_x()", "y = tid_y()")
    text.pieces("wide", f"m{inner}", str(TILE))
    text.pieces("high", f"m{across}", str(height))
    text.set("number", "bid_x()")
    text.set("rest", "udiv(number, wide)")
    text.set("i0", f"urem(number, wide) * {TILE}")
    text.set("q0", f"urem(rest, high) * {height}")
    text.set("left", "udiv(rest, high)")
    indices = text.split("left", rest, "p") if rest else []
    for operand in range(len(nest.operands)):
        text.set(f"base{operand}", text.offset(operand, indices))
    tiles = {
        load: _print_shared_memory_staging(text, load, height) for load in _loads_through_transpose_tile(nest, across)
    }
    text.add("barrier()")
    text.set("i", "i0 + x")
    text.set("q", "q0 + y")
    text.set("eight", str(TILE_ROWS))
    text.add(f"mask = and_(below_1x{shape.groups}(q, eight, zero, m{across}), i < m{inner})")
    outer = dict(indices)

    def operand_place(operand: int) -> LanePlace:
        across_stride, inner_stride = text.stride(operand, across), text.stride(operand, inner)
        first = f"{text.ix}({text.offset(operand, [(across, 'q'), (inner, 'i')], f'base{operand}')})"
        if across_stride == inner_stride == "zero":
            return LanePlace(f"base{operand}")
        return LanePlace(first, f"eight * {across_stride}", "one", 1, shape.groups)

    def axis_index(axis: int) -> str:
        if axis == across:
            return f"lanes_1x{shape.groups}(q, eight, zero)"
        return "i64(i)" if axis == inner else f"i64({outer[axis]})"

    def staged_value(operand: int, part: int) -> str | None:
        return tiles.get((operand, part))

    context = BodyContext(operand_place, axis_index, "mask", staged=staged_value)
    for phase in nest.phases:
        text.phase(phase, context, keep=True)
    return text.print()


def _loads_through_transpose_tile(nest: LoopNest, across: int) -> list[tuple[int, int]]:
    """(operand, part) of what is loaded through a tile, each once."""
    operands = operands_transposed_in_shared_memory(nest, across)
    loads = [i.attr for phase in nest.phases for i in phase.instrs if i.op == "load" and i.attr[0] in operands]
    return list(dict.fromkeys(loads))


def _print_shared_memory_staging(text: CudaKernelText, load: tuple[int, int], height: int) -> str:
    """Read the tile along the axis where it is contiguous, and write it to shared memory transposed.

    The expression that reads a thread's elements back."""
    nest, shape, inner = text.nest, text.shape, text.nest.parallel - 1
    operand, part = load
    dtype = nest.operands[operand].dtype
    stored = SHORT_NAMES[dtype] if dtype.kind != "c" else {8: "f32", 16: "f64"}[dtype.itemsize]
    length, groups = height // TILE, TILE // TILE_ROWS
    memory, name = f"h{operand}_{part}", f"{length}x{groups}"
    stride = text.stride(operand, inner)
    first = text.offset(operand, [(inner, "(i0 + y)"), (shape.across, "(q0 + x)")], f"base{operand}")
    flags = f"and_(below_{name}(i0 + y, 8, 0, m{inner}), below_{name}(q0 + x, 0, {TILE}, m{shape.across}))"
    access = f"load_{cuda_cell_type_name(dtype, part)}_{name}_if"
    text.add(f"{memory} = shared_{stored}_{height * PITCH}()")
    text.add(f"t{operand}_{part} = {access}(a{operand}, {text.ix}({first}), 8 * {stride}, {TILE}, {flags})")
    text.add(f"sput_{stored}_{name}({memory}, x * {PITCH} + y, 8, {TILE * PITCH}, t{operand}_{part})")
    return f"sget_{stored}_1x{shape.groups}({memory}, y * {PITCH} + x, {8 * PITCH}, 0)"
