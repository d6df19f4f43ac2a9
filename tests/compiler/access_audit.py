"""The access audit: runs a Program's structured kernels in NumPy, and says which bytes each task really touched."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelgraph.compiler.core.types import dtype_of, real_dtype
from kernelgraph.compiler.kernel.loop_nest import LoopNest
from kernelgraph.runtime.core.frozen import dataclass, field
from kernelgraph.runtime.interpret.control_flow import RunIteration, run_control_flow
from kernelgraph.runtime.interpret.library_calls import LIBRARY
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.program.program import (
    Constant,
    Int,
    Library,
    Pointer,
    Program,
    Region,
    Scalar,
    Task,
    control_flow_bodies,
    packed_member_tasks,
)
from tests.compiler.nest_evaluator import evaluate_phases_of_loop_nest, sums_of_runs

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Touched:
    """One task: byte addresses read and written by (buffer, byte), and how many elements were loaded and stored,
    a kernel's loads of one operand counted once per distinct iteration that moves it."""

    reads: set[tuple[int, int]] = field(default_factory=set)
    writes: set[tuple[int, int]] = field(default_factory=set)
    loads: int = 0
    stores: int = 0


def run_program(
    program: Program,
    arrays: Sequence[Array],
    numbers: Sequence[Any] = (),
    touched: list[Touched] | None = None,
) -> list[Array]:
    """The bytes of the program's outputs, as uint8 arrays. An input's lowest byte starts its buffer."""
    memory: list[Array] = [np.full(b.nbytes, 0xA5, np.uint8) for b in program.buffers]
    for number, array in zip(program.inputs, arrays, strict=True):
        memory[number] = _bytes_of(array)
    _run(program, memory, numbers, touched)
    return [memory[o] for o in program.outputs]


def _run(program: Program, memory: list[Array], numbers: Sequence[Any], touched: list[Touched] | None) -> None:
    for task in program.tasks:
        record = Touched()
        if control_flow_bodies(task):
            _run_control(task, memory, numbers, record if touched is not None else None)
        elif isinstance(task.kernel, Library) or task.kernel.form is None:  # a product's kernel is no loop nest
            views = [_view(memory, r) for r in (*task.reads, *task.writes)]
            name, attrs = task.name, {}
            if isinstance(task.kernel, Library):
                name, attrs = task.kernel.name, dict(task.kernel.attrs)
            LIBRARY[name](views[: len(task.reads)], views[len(task.reads) :], attrs)
        else:
            for member in packed_member_tasks(task):
                _run_kernel(member, memory, numbers, record if touched is not None else None)
        if touched is not None:
            touched.append(record)


def _run_control(task: Task, memory: list[Array], numbers: Sequence[Any], record: Touched | None) -> None:
    """A loop or branch: each turn runs the body on pieces of this memory, which are addressed by buffer and offset."""
    hands = _Pieces(memory)
    turns = [_turn(body, hands, record) for body in control_flow_bodies(task)]
    run_control_flow(task, turns, hands, [number << _SHIFT for number in range(len(memory))], numbers)


def _turn(body: Plan, hands: _Pieces, record: Touched | None) -> RunIteration:
    ends = {*body.program.inputs, *body.program.outputs}

    def turn(addresses: Sequence[int], numbers: Sequence[Any]) -> None:
        buffers = body.program.buffers
        pieces = [
            hands.piece(addresses[i], b.nbytes) if i in ends else np.full(b.nbytes, 0xA5, np.uint8)
            for i, b in enumerate(buffers)
        ]
        inner: list[Touched] = []
        _run(body.program, pieces, numbers, inner if record is not None else None)
        for found in inner:
            assert record is not None
            record.loads, record.stores = record.loads + found.loads, record.stores + found.stores
            for mine, theirs in ((record.reads, found.reads), (record.writes, found.writes)):
                mine |= {
                    ((addresses[b] + byte) >> _SHIFT, (addresses[b] + byte) & _MASK) for b, byte in theirs if b in ends
                }

    return turn


_SHIFT, _MASK = 40, (1 << 40) - 1


class _Pieces:
    """What loops do with this memory."""

    def __init__(self, memory: list[Array]) -> None:
        self.memory = memory

    def piece(self, address: int, nbytes: int) -> Array:
        start = address & _MASK
        found = self.memory[address >> _SHIFT][start : start + nbytes]
        if found.size != nbytes:
            raise AssertionError(f"a loop leaves its buffer: {nbytes} bytes from {start}")
        return found

    def integer(self, address: int) -> int:
        return int(self.piece(address, 8).view(np.int64)[0])

    def boolean(self, address: int) -> bool:
        return bool(self.piece(address, 1)[0])

    def repeat(self, rows: Sequence[Sequence[int]], numbers: Sequence[Any], times: int) -> int:
        return 0

    def copy(self, target: int, source: int, nbytes: int) -> None:
        self.piece(target, nbytes)[...] = self.piece(source, nbytes)


def declared(regions: Sequence[Region]) -> set[tuple[int, int]]:
    """The byte addresses of regions."""
    found: set[tuple[int, int]] = set()
    for r in regions:
        first = np.full(r.shape or (1,), r.offset, np.int64)
        for axis, stride in enumerate(r.strides):
            first = first + (np.arange(r.shape[axis]) * stride).reshape(
                [-1 if a == axis else 1 for a in range(len(r.shape))]
            )
        every = (first.reshape(-1, 1) + np.arange(r.itemsize)).ravel() if 0 not in r.shape else np.empty(0, np.int64)
        found |= {(r.buffer, int(b)) for b in every}
    return found


def _bytes_of(array: Array) -> Array:
    """All bytes between the array's lowest and highest element."""
    if array.size == 0:
        return np.empty(0, np.uint8)
    low, high = np.lib.array_utils.byte_bounds(array)
    return np.array((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)


def _view(memory: Sequence[Array], r: Region) -> Array:
    return np.ndarray(r.shape, dtype_of(r.dtype), memory[r.buffer].data, r.offset, r.strides)


def _run_kernel(task: Task, memory: Sequence[Array], numbers: Sequence[Any], record: Touched | None) -> None:
    form: LoopNest = task.kernel.form  # type: ignore[union-attr]
    pointers = [a for a in task.arguments if isinstance(a, Pointer)]
    rest = task.arguments[len(pointers) :]
    ints = [a.value for a in rest if isinstance(a, Int)]
    sizes, ints = ints[: form.axes], ints[form.axes :]
    scalars: list[Any] = []
    for argument in rest[form.axes + sum(o.layout.count("s") for o in form.operands) :]:
        match argument:
            case Scalar(index, _):
                scalars.append(numbers[index])
            case Constant():
                scalars.append(argument.number)
            case Int(value):
                scalars.append(value)
    views: list[Array] = []
    moves: list[list[int]] = []
    strides = iter(ints)
    for operand, pointer in zip(form.operands, pointers, strict=True):
        steps = [{"0": 0, "1": 1}[c] if c != "s" else next(strides) for c in operand.layout]
        size = operand.dtype.itemsize
        moves.append(steps)
        moving, shape = [s * size for s in steps], sizes
        if operand.role == "sum":
            shape = [-(-math.prod(sizes[: form.parallel]) // form.run), sizes[-1]]
            moving = [sizes[-1] * size, size]
        views.append(_strided(memory[pointer.buffer], pointer.offset, operand.dtype, shape, moving))
        if record is not None:
            _note(record, operand.role, pointer, shape, moving, size)

    def gather(operand: int, part: int, offset: Array) -> Array:
        dtype, pointer = form.operands[operand].dtype, pointers[operand]
        steps = [s * dtype.itemsize for s in moves[operand]]
        first = sum(
            np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(sizes))]) * step
            for axis, (n, step) in enumerate(zip(sizes, steps, strict=True))
        )
        held = memory[pointer.buffer]
        where = pointer.offset + np.asarray(first)[tuple(slice(0, n) for n in offset.shape)] + offset * dtype.itemsize
        if where.size and (where.min() < 0 or where.max() + dtype.itemsize > held.size):
            raise AssertionError(f"a kernel leaves its buffer: {where.min()}, {where.max()} of {held.size}")
        every = held[where[..., None] + np.arange(dtype.itemsize)].view(dtype)[..., 0]
        return part_of(every, part).copy()

    def part_of(array: Array, part: int) -> Array:
        return (array.imag if part else array.real) if array.dtype.kind == "c" else array

    def load(operand: int, part: int) -> Array:
        view = part_of(views[operand], part)
        fixed = tuple(
            slice(0, 1) if c == "0" and n else slice(None)
            for c, n in zip(form.operands[operand].layout, sizes, strict=True)
        )
        return view[fixed].copy()

    def store(operand: int, part: int, value: Array) -> None:
        target = part_of(views[operand], part)
        if form.operands[operand].role == "sum":
            target[...] = sums_of_runs(value, form.parallel, form.run)
            return
        rows: tuple[Any, ...] = (..., *[slice(0, n) for n in value.shape[form.parallel :]])
        target = target[rows] if form.reduced else target
        target[...] = value.astype(real_dtype(form.operands[operand].dtype), copy=False)

    evaluate_phases_of_loop_nest(form.phases, sizes, form.parallel, load, store, scalars, gather)


def _strided(memory: Array, offset: int, dtype: Any, shape: Sequence[int], strides: Sequence[int]) -> Array:
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum(min(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
    high = sum(max(0, s * (n - 1)) for s, n in zip(strides, shape, strict=True))
    if offset + low < 0 or offset + high + dtype.itemsize > memory.size:
        raise AssertionError(f"a kernel leaves its buffer: [{offset + low}, {offset + high}) of {memory.size}")
    return np.lib.stride_tricks.as_strided(
        np.ndarray((1,), dtype, memory.data, offset), tuple(shape), tuple(strides), writeable=True
    )


def _note(
    record: Touched, role: str, pointer: Pointer, sizes: Sequence[int], strides: Sequence[int], size: int
) -> None:
    kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if s != 0 or n == 0]
    region = Region(pointer.buffer, pointer.offset, tuple(n for n, _ in kept), tuple(s for _, s in kept), size)
    count = int(np.prod([n for n, _ in kept], dtype=np.int64))
    if role in ("in", "inout"):
        record.reads |= declared([region])
        record.loads += count
    if role != "in":
        record.writes |= declared([region])
        record.stores += count
