"""CPU kernels that are written by hand rather than printed from a loop nest: slots, units and tiles of sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ....runtime.program.program import Int, Kernel, Task
from ...core.types import DType
from ...layout.operands import StridedBufferArray
from .llvm_ir import METADATA, LlvmFunction, LlvmModule, LlvmValue, emit_llvm_masked_load
from .primitives import llvm_register_type

RATE, LAUNCH = 32e3, 0.2  # multiplications of 32 bits per us of one core, and us


def unit_kernel_task(
    name: str,
    kernel: Kernel,
    arrays: Sequence[StridedBufferArray],
    numbers: Sequence[int],
    units: int,
    multiplications: int,
    line: str,
) -> Task:
    """The task of such a kernel, whose last array is what it writes."""
    *reads, result = arrays
    return Task(
        name,
        kernel,
        (*(array.pointer for array in arrays), *map(Int, numbers)),
        tuple(array.region for array in reads),
        (result.region,),
        units=units,
        cost=round(LAUNCH + multiplications * result.dtype.itemsize / 4 / RATE, 3),
        line=line,
        flops=2 * multiplications,
    )


class UnitKernelWriter:
    """A kernel that is being written, with vectors of a dtype. Slots: the addresses of its arrays, then numbers.

    Sums are vectors in memory of the stack, which LLVM keeps in registers."""

    def __init__(
        self, name: str, dtype: DType, vector_bytes: int, arrays: int, numbers: int, flags: str = " contract"
    ) -> None:
        f = self.f = LlvmFunction(LlvmModule(flags=flags))
        self.name, self.elem, self.lanes = f"k_{name}", llvm_register_type(dtype), vector_bytes // dtype.itemsize
        self.slots, self.zero = LlvmValue(f, "%slots", "ptr"), f.const(0, "i64")
        self.arrays = [self.slots.at(i, "i64").load("ptr") for i in range(arrays)]
        self.numbers = [self.number(i) for i in range(arrays, arrays + numbers)]

    def number(self, slot: LlvmValue | int) -> LlvmValue:
        return self.slots.at(slot, "i64").load("i64")

    @contextmanager
    def units(self) -> Iterator[LlvmValue]:
        """The body is run for each unit of work."""
        with self.f.loop(LlvmValue(self.f, "%begin", "i64"), LlvmValue(self.f, "%end", "i64")) as unit:
            yield unit
        self.f.do("ret void")

    def kernel(self, rest: int = 0) -> Kernel:
        """The kernel, once its units are written. rest: numbers in slots that follow."""
        text = self.f.render(f"define void @{self.name}(ptr noundef %slots, i64 %begin, i64 %end)")
        signature = (*["ptr"] * len(self.arrays), *["i64"] * (len(self.numbers) + rest))
        return Kernel(self.name, "cpu", f"{self.f.module}\n{text}\n{METADATA}\n", signature)

    def zeros(self, rows: int, columns: int) -> list[list[LlvmValue]]:
        """Sums that hold +0."""
        sums = [[self.f.slot(f"<{self.lanes} x {self.elem}>") for _ in range(columns)] for _ in range(rows)]
        for place in (place for row in sums for place in row):
            place.store(self.f.const(0.0, self.elem, self.lanes), 64)
        return sums

    def total(self, place: LlvmValue) -> LlvmValue:
        return place.load(self.elem, self.lanes, 64)

    def add_to(self, place: LlvmValue, a: LlvmValue, b: LlvmValue) -> None:
        place.store(a * b + self.total(place), 64)

    def vector(self, place: LlvmValue, mask: LlvmValue | None) -> LlvmValue:
        return emit_llvm_masked_load(place, self.elem, self.lanes, mask)

    def blocks_between(
        self, first: LlvmValue, last: LlvmValue, size: int, rest: int, write: Callable[[LlvmValue, int], None]
    ) -> None:
        """From first to last in blocks of a size, and what is left, if anything may be, in blocks of another one."""
        whole = first + (last - first).binary("udiv", size) * size
        for start, stop, length in ((first, whole, size), (whole, last, rest))[: 1 + (rest > 0)]:
            with self.f.loop(start, stop, length) as at:
                write(at, length)

    def block_or_rest(self, fits: LlvmValue, size: int, rest: int, write: Callable[[int], None]) -> None:
        """A block of a size where it fits, else the rest; rest 0: it always does."""
        if rest:
            self.f.fork(fits, lambda: write(size), lambda: write(rest))
        else:
            write(size)


def sum_of_llvm_lanes(total: LlvmValue) -> LlvmValue:
    """The sum of a vector's lanes, by halves."""
    while total.lanes > 1:
        half = total.lanes // 2
        total = total.shuffle(list(range(half))) + total.shuffle(list(range(half, 2 * half)))
    return total
