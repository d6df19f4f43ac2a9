"""A GPU kernel of the user's -> tasks. Copies of what it starts from, then the launch; on the CPU, his function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime.program.custom_calls import CustomKernel, NewArray
from ...runtime.program.program import Argument, Buffer, Constant, Int, Library, Pointer, Region, Task
from ..core.types import ArrayType
from ..graph.graph import Graph, GraphError
from ..layout.operands import BufferLocation, contiguous_strides
from ..ops.table import OPS
from ..targets.target import Target


def lower_custom_kernel_node(
    graph: Graph,
    parts: Sequence[int],
    places: dict[int, BufferLocation],
    buffers: list[Buffer],
    target: Target,
    line: str,
) -> list[Task]:
    """parts: the nodes of the results that are wanted; what else it writes goes to buffers that nobody reads.

    Raises GraphError on a target without such kernels, where there is no function for the CPU."""
    node = graph.nodes[parts[0]]
    own: CustomKernel = node.attr("own")
    writes: tuple[NewArray, ...] = node.attr("writes")
    given = [
        _contiguous_region_of_lowered_array(graph.nodes[a].type, places[a].buffer, places[a].offset) for a in node.args
    ]
    wanted = {graph.nodes[n].attr("part"): places[n] for n in parts}
    out = []
    for part, w in enumerate(writes):
        type = ArrayType(w.shape, np.dtype(w.dtype))
        if part in wanted:
            buffer, offset = wanted[part].buffer, wanted[part].offset
        else:
            buffer, offset = len(buffers), 0
            buffers.append(Buffer(type.nbytes, "temp"))
        out.append(_contiguous_region_of_lowered_array(type, buffer, offset))
    reads = given[: len(given) - sum(w.starts is not None for w in writes)]
    moved = sum(graph.nodes[a].type.nbytes for a in node.args) + sum(buffers[r.buffer].nbytes for r in out)
    size = max((graph.nodes[n].size for n in parts), default=1)
    cost = round(target.model.time(moved, OPS["kernel"].cost * size), 3)
    printed = target.own
    if printed is None:
        if own.cpu is None:
            raise GraphError(
                f"the kernel {own.name} runs on GPUs alone; decorate with device='cuda', or give kg.kernel a function "
                "for the CPU, cpu=f, which fills the same arrays",
                NotImplementedError,
                line,
            )
        options = (("callback", own.cpu), ("reads", len(reads)), ("writes", writes))
        attrs = (("function", "callback"), ("options", options), ("parts", tuple(range(len(writes)))))
        return [Task(own.name, Library("host", attrs), (), tuple(given), tuple(out), cost=cost, line=line)]
    filled = [(given[w.starts], out[part]) for part, w in enumerate(writes) if w.starts is not None]
    copies = [Task("copy", Library("copy"), (), (a,), (b,), cost=cost, line=line) for a, b in filled]
    arrays = [*reads, *out]
    types = [ArrayType(r.shape, np.dtype(r.dtype)) for r in arrays]
    kernel = printed(own, types)
    lengths = [Int(n) for t in types for n in t.shape] if not isinstance(own.code, str) else []
    arguments: tuple[Argument, ...] = (
        *(Pointer(r.buffer, r.offset) for r in arrays),
        *(Constant(value, dtype) for value, dtype in own.numbers),
        *lengths,
    )
    touched = (*reads, *(b for _, b in filled))
    launch = Task(
        own.name, kernel, arguments, touched, tuple(out), grid=own.grid, block=own.block, cost=cost, line=line
    )
    return [*copies, launch]


def _contiguous_region_of_lowered_array(type: ArrayType, buffer: int, offset: int) -> Region:
    strides = contiguous_strides(type.shape, type.dtype.itemsize)
    return Region(buffer, offset, type.shape, strides, type.dtype.itemsize, type.dtype.name)
