"""Gathers in kernels: indexed loads, and proofs that indices are in range. In: a gather node and its indices' values.

An index that may be out of range is brought into range before the load, so no kernel leaves its arrays. Where the call
is checked, the kernel also reports one bad index for each axis; a step after it reads the report and raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runtime.core.settings import settings
from ...runtime.program.program import Buffer, Int, Library, Pointer, Region, Task
from ..core.types import INT64, UINT64
from ..graph.graph import Node
from ..kernel.body_builder import KernelBody, KernelValue, kernel_select
from ..kernel.loop_nest import POINT, LoopNest, Operand
from ..layout.operands import BufferLocation, Map
from ..targets.target import Target

if TYPE_CHECKING:
    from .kernels import LoopNestLowering

NONE = 0  # in a report: no index was bad, for this one never is (an axis of no length is no lookup)


class GatherErrorReports:
    """Where the kernels of a group report bad indices: one int64 for each looked-up axis of a gather."""

    def __init__(self) -> None:
        self.buffer = -1
        # (gather, axis) -> (axis, its length, the user's line), in the order of slots
        self.rows: dict[tuple[int, int], tuple[int, int, str]] = {}

    def place_of_report(self, number: int, axis: int, length: int, line: str, buffers: list[Buffer]) -> BufferLocation:
        """Where a report on this axis of gather `number`, which the user's `line` made, goes."""
        if self.buffer < 0:
            self.buffer = len(buffers)
            buffers.append(Buffer(0, "temp"))
        self.rows.setdefault((number, axis), (axis, length, line))
        buffers[self.buffer] = Buffer(8 * len(self.rows), "temp")
        return BufferLocation(self.buffer, 8 * list(self.rows).index((number, axis)), (), True)

    def wrap_tasks_with_report_checks(self, tasks: list[Task], target: Target, line: str) -> list[Task]:
        """Wraps a group's kernels in tasks that clear the reports and raise IndexError on any."""
        region = Region(self.buffer, 0, (len(self.rows),), (8,), 8, "int64")
        written = tuple(dict.fromkeys(w for t in tasks for w in t.writes if w.buffer != self.buffer))
        form = _kernel_that_clears_gather_reports()
        launch = target.launch(form, [len(self.rows)])
        clear = Task(
            "clear_report", target.kernel(form), (Pointer(self.buffer), Int(len(self.rows))), (), (region,),
            units=launch.units, grain=launch.grain, grid=launch.grid, block=launch.block, cost=0.1, line=line,
        )  # fmt: skip
        # it has the results as reads and writes, so that whoever waits for them waits for it
        attrs = (("rows", tuple(self.rows.values())),)
        check = Task(
            "check_indices", Library("check", attrs), (), (region, *written), written, cost=5.0, line=line
        )  # fmt: skip
        return [clear, *tasks, check]


def _kernel_that_clears_gather_reports() -> LoopNest:
    """A kernel that stores NONE everywhere."""
    body = KernelBody()
    body.begin_phase(POINT)
    body.store(0, body.const(NONE, INT64))
    body.end_phase()
    return LoopNest("clear_report", 1, 0, (Operand(INT64, "out", "1"),), (), body.finish(), 32)


def lower_gather(
    emitter: LoopNestLowering, number: int, node: Node, m: Map, indices: Sequence[KernelValue]
) -> KernelValue:
    """The element that the indices choose, at map `m` of the gather."""
    builder = emitter.b
    place, source = builder.places[node.args[0]], builder.graph.nodes[node.args[0]].type
    axes, rest = node.attr("axes"), iter(node.attr("rest"))
    at = dict(zip(axes, indices, strict=True))
    start, strides, steps, offset = place.offset, dict[int, int](), [], None
    for axis, (n, stride) in enumerate(zip(source.shape, place.strides, strict=True)):
        if axis not in at:
            own, step, first = m[next(rest)]
            start += first * stride
            if own >= 0:
                strides[own] = strides.get(own, 0) + step * stride
            continue
        steps.append(stride)
        index = at[axis]
        if node.attr("checked"):
            index = _lower_checked_index(emitter, number, axis, n, index)
        step = stride // source.dtype.itemsize
        items = index if step == 1 else index * emitter.run_time_scalar(step)
        offset = items if offset is None else offset + items
    assert offset is not None
    start += emitter.divide_strides_of_split_axis(strides)
    operand = emitter.looked_up_operand(source.dtype, place, start, strides, steps, place.region(source))
    return emitter.body.gather(operand, source.dtype, offset)


def _lower_checked_index(emitter: LoopNestLowering, number: int, axis: int, n: int, index: KernelValue) -> KernelValue:
    """The index counted from the start, 0 where it is out of range, which is reported."""
    length = emitter.run_time_scalar(n)
    counted = kernel_select(index < 0, index + length, index)
    good = counted.bitcast(UINT64) < length.bitcast(UINT64)
    if emitter.b.target.checks_indices or settings.verify:
        reports = emitter.b.reports = emitter.b.reports or GatherErrorReports()
        lines = emitter.b.graph.lines
        place = reports.place_of_report(number, axis, n, lines[number] if lines else "", emitter.b.buffers)
        operand = emitter.operand(INT64, "out", place, place.offset, {})
        emitter.body.report(operand, index, ~good)
    return kernel_select(good, counted, 0)
