"""Kernels of the CPU for NumPy's running sums and products. One pass in NumPy's order, so to the same bits."""

from __future__ import annotations

from functools import cache

from ....runtime.program.program import Argument, Int, Kernel, Task
from ...core.cost import WorkCostModel
from ...core.types import DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import UNROLLED, LlvmValue
from .primitives import emit_llvm_cast, llvm_memory_type
from .unit_kernel import UnitKernelWriter

OPERATIONS = {
    "cumsum": (LlvmValue.__add__, -0.0),
    "cumprod": (LlvmValue.__mul__, 1.0),
}  # and what changes no first element
STEP = 1.5e-3  # microseconds: one element waits for the one before
CHUNK = 4096  # elements worth a hand-over


def cpu_running_total_task(
    model: WorkCostModel, function: str, source: StridedBufferArray, target: StridedBufferArray, axis: int, line: str
) -> Task:
    """The task of a running sum or product along an axis. At most one other axis has more than one element."""
    others = [i for i, n in enumerate(source.shape) if n != 1 and i != axis]
    length, rows = source.shape[axis], source.shape[others[0]] if others else 1
    steps = [Int(a.region.strides[i]) for a in (source, target) for i in (others[0] if others else axis, axis)]
    arguments: tuple[Argument, ...] = (source.pointer, target.pointer, Int(length), *steps)
    cost = round(
        model.time(rows * length * (source.dtype.itemsize + target.dtype.itemsize), 0) + rows * length * STEP, 3
    )
    kernel, grain = llvm_running_total_kernel(function, source.dtype, target.dtype), max(1, CHUNK // length)
    regions = (source.region,), (target.region,)
    return Task(function, kernel, arguments, *regions, units=rows, grain=grain, cost=cost, line=line)


@cache
def llvm_running_total_kernel(function: str, source: DType, target: DType) -> Kernel:
    """Units are rows. Slots: where the rows and their results begin, the length, and of both the steps in bytes from
    row to row and from element to element."""
    made = UnitKernelWriter(f"{function}_{source.name}_{target.name}", target, target.itemsize, 2, 5, "")
    f, (x, y), (length, x_row, x_step, y_row, y_step) = made.f, made.arrays, made.numbers
    combine, first = OPERATIONS[function]
    with made.units() as row:
        total = f.slot(made.elem)
        total.store(f.const(first, made.elem))
        from_, to = x.at(row * x_row, "i8"), y.at(row * y_row, "i8")
        with f.loop(0, length, note=UNROLLED) as i:
            raw = from_.at(i * x_step, "i8").load(llvm_memory_type(source), 1, source.itemsize)
            value = emit_llvm_cast(source, target, raw.ne(0) if source.kind == "b" else raw)
            result = combine(total.load(made.elem), value)
            total.store(result)
            to.at(i * y_step, "i8").store(result, target.itemsize)
    return made.kernel()
