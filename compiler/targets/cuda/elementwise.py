"""Kernel text for nests without reduced axes. 16-byte groups along the innermost axis, outer axes by block rows."""

from __future__ import annotations

from ...kernel.loop_nest import LoopNest
from .kernel_text import BodyContext, CudaKernelText, LanePlace
from .launch_shape import CudaShape, cuda_operand_moves_along, is_cuda_vector_access


def print_cuda_elementwise_kernel(nest: LoopNest, shape: CudaShape) -> str:
    """A thread has `groups` groups of `length` elements, a block's width apart. The last ones go element by element."""
    text = CudaKernelText(nest, shape)
    text.prologue()
    inner, outer = nest.parallel - 1, range(nest.parallel - 1)
    # `i` is a product, so that a compiler knows its low bits: neighbours then share what depends on `i // length`
    thread = f"bdim_x() * {shape.groups} + tid_x()"
    text.add(f"step = bdim_x() * {shape.length}")
    span = "step" if shape.groups == 1 else f"step * {shape.groups}"
    indices: list[tuple[int, str]] = []
    if outer:
        text.set("span", span)
        text.pieces("across", f"m{inner}", "span")
        text.set("number", "bid_x()")
        text.set("row", "udiv(number, across) * bdim_y() + tid_y()")
        text.add(f"i = (urem(number, across) * {thread}) * {shape.length}")
        with text.block(f"if row < {text.product(outer)}:"):
            indices = text.split("row", outer, "p")
            _print_cuda_row_groups(text, indices, inner)
    else:
        text.add(f"i = (bid_x() * {thread}) * {shape.length}")
        _print_cuda_row_groups(text, indices, inner)
    return text.print()


def _print_cuda_row_groups(text: CudaKernelText, indices: list[tuple[int, str]], inner: int) -> None:
    """One thread's groups of one row, from element `i`."""
    nest, shape = text.nest, text.shape
    for operand in range(len(nest.operands)):
        text.set(f"base{operand}", text.offset(operand, indices))
    outer = dict(indices)

    def vector_place(operand: int) -> LanePlace:
        stride = text.stride(operand, inner)
        if stride == "zero":
            return LanePlace(f"base{operand}")
        first = f"{text.ix}({text.offset(operand, [(inner, 'j')], f'base{operand}')})"
        vector = is_cuda_vector_access(nest, operand, inner) and shape.length > 1
        group = "zero" if shape.groups == 1 else "step" if stride == "one" else f"step * {stride}"
        return LanePlace(first, group, stride, shape.length, shape.groups, vector)

    def single_element_place(operand: int) -> LanePlace:
        if not cuda_operand_moves_along(nest, operand, inner):
            return LanePlace(f"base{operand}")
        return LanePlace(f"{text.ix}({text.offset(operand, [(inner, 'j')], f'base{operand}')})", lane="one")

    def vector_index(axis: int) -> str:
        return f"i64({outer[axis]})" if axis in outer else f"lanes_{shape.length}x{shape.groups}(j, step, one)"

    def single_element_index(axis: int) -> str:
        return f"i64({outer[axis]})" if axis in outer else "i64(j)"

    last = f"(step * {shape.groups - 1})" if shape.groups > 1 else "0"
    if shape.lanes == 1:
        with text.block(f"if i < m{inner}:"):
            text.set("j", "i")
            _print_cuda_elementwise_body(text, BodyContext(single_element_place, single_element_index))
        return
    with text.block(f"if i + {last} + {shape.length} <= m{inner}:"):
        text.set("j", "i")
        _print_cuda_elementwise_body(text, BodyContext(vector_place, vector_index))
    with text.block("else:"):
        text.add("g = 0")
        with text.block(f"while g < {shape.groups}:"):
            text.add("k = i + g * step", f"stop = least(k + {shape.length}, i64(m{inner}))")
            with text.block("while k < stop:"):
                text.set("j", "k")
                _print_cuda_elementwise_body(text, BodyContext(single_element_place, single_element_index, prefix="w"))
                text.add("k += 1")
            text.add("g += 1")


def _print_cuda_elementwise_body(text: CudaKernelText, context: BodyContext) -> None:
    saved = dict(text.names)
    for phase in text.nest.phases:
        text.phase(phase, context, keep=True)
    text.names = saved
