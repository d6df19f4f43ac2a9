"""Kernels of the CPU for NumPy's running sums and products. One pass in NumPy's order, so to the same bits."""

from __future__ import annotations

from functools import cache

from ....runtime.program.program import Argument, Int, Kernel, Task
from ...core.cost import WorkCostModel
from ...core.types import DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import METADATA, UNROLLED, LlvmFunction, LlvmModule, LlvmValue
from .primitives import emit_llvm_cast, llvm_memory_type, llvm_register_type

OPERATIONS = {
    "cumsum": (LlvmValue.__add__, -0.0),
    "cumprod": (LlvmValue.__mul__, 1.0),
}  # and what changes no first element
STEP = 1.5e-3  # microseconds: one element waits for the one before
SIGNATURE = ("ptr", "ptr", *("i64",) * 5)
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
    module = LlvmModule()
    f, name = LlvmFunction(module), f"k_{function}_{source.name}_{target.name}"
    slots = LlvmValue(f, "%slots", "ptr")
    begin, end = LlvmValue(f, "%begin", "i64"), LlvmValue(f, "%end", "i64")
    x, y = (slots.at(i, "i64").load("ptr") for i in range(2))
    length, x_row, x_step, y_row, y_step = (slots.at(i, "i64").load("i64") for i in range(2, 7))
    combine, first = OPERATIONS[function]
    with f.loop(begin, end) as row:
        total = f.slot(llvm_register_type(target))
        total.store(f.const(first if target.kind == "f" else int(first), llvm_register_type(target)))
        from_, to = x.at(row * x_row, "i8"), y.at(row * y_row, "i8")
        with f.loop(f.const(0, "i64"), length, note=UNROLLED) as i:
            raw = from_.at(i * x_step, "i8").load(llvm_memory_type(source), 1, source.itemsize)
            value = emit_llvm_cast(source, target, raw.ne(0) if source.kind == "b" else raw)
            result = combine(total.load(llvm_register_type(target)), value)
            total.store(result)
            to.at(i * y_step, "i8").store(result, target.itemsize)
    f.do("ret void")
    text = f.render(f"define void @{name}(ptr noundef %slots, i64 %begin, i64 %end)")
    return Kernel(name, "cpu", f"{module}\n{text}\n{METADATA}\n", SIGNATURE)
