"""Random loop nests with arrays that fit their layouts, and what NumPy says they compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.compiler.kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Operand, Phase, Reduction
from kernelgraph.compiler.targets.cuda.kernel import (
    choose_cuda_launch_shape,
    cuda_grid_and_block,
    print_cuda_kernel,
)
from kernelgraph.runtime.program.device import H200
from tests.compiler.nest_evaluator import evaluate_phases_of_loop_nest

from .cuda_emulator import Pointer, run

F32, F64, I64, B1 = (DTYPES[t] for t in ("f32", "f64", "i64", "b1"))


@dataclass
class Array:
    """An operand's memory: bytes, the byte of its first element, and a view of it over all axes."""

    data: np.ndarray[Any, Any]
    origin: int
    view: np.ndarray[Any, Any]
    strides: tuple[int, ...]  # in elements

    def copy(self) -> Array:
        return _array(self.data.copy(), self.origin, self.view.dtype, self.view.shape, self.strides)


def _array(data: Any, origin: int, dtype: Any, shape: Sequence[int], strides: tuple[int, ...]) -> Array:
    view = np.ndarray(shape, dtype, data, origin, [s * dtype.itemsize for s in strides])
    return Array(data, origin, view, strides)


def array(rng: np.random.Generator, operand: Operand, shape: Sequence[int]) -> Array:
    """Random contents in a random arrangement that the layout allows; no two elements of a moving axis coincide."""
    item = operand.dtype.itemsize
    multiple = max(1, 16 // item) if operand.aligned else 1
    strides, extent = [0] * len(shape), 1
    order = sorted(range(len(shape)), key=lambda a: (operand.layout[a] != "1", rng.random()))
    for axis in order:
        if operand.layout[axis] == "1":
            strides[axis] = 1
        elif operand.layout[axis] == "s":
            step = -(-(extent + int(rng.integers(0, 2))) // multiple) * multiple
            strides[axis] = step * int(rng.choice([-1, 1, 1]))
        else:
            continue
        extent += (shape[axis] - 1) * abs(strides[axis])
    first = -sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    lead = multiple * 2 if operand.aligned else 3
    origin = (-(-first // multiple) * multiple + lead) * item
    data = np.zeros(origin + (extent + 8) * item, np.uint8)
    result = _array(data, origin, operand.dtype, shape, tuple(strides))
    result.view[...] = _contents(rng, operand.dtype, shape)
    return result


def _contents(rng: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Any:
    if dtype == B1:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -20, 20, shape).astype(dtype)
    real = rng.normal(size=shape)
    if dtype.kind == "c":
        return (real + 1j * rng.normal(size=shape)).astype(dtype)
    return real.astype(dtype)


def sizes_of(nest: LoopNest, arrays: Sequence[Array]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(a.view.shape for a in arrays))


def arguments(nest: LoopNest, arrays: Sequence[Array], sizes: Sequence[int], scalars: Sequence[Any]) -> list[Any]:
    """Pointers, lengths, strides, scalars: in the nest's order."""
    pointers: list[Any] = [Pointer(a.data, a.origin, f"a{k}") for k, a in enumerate(arrays)]
    strides = [
        a.strides[axis]
        for operand, a in zip(nest.operands, arrays, strict=True)
        for axis, c in enumerate(operand.layout)
        if c == "s"
    ]
    numbers = [np.full(1, s, d) for s, d in zip(scalars, nest.scalars, strict=True)]
    return [*pointers, *sizes, *strides, *numbers]


def emulate(nest: LoopNest, arrays: Sequence[Array], sizes: Sequence[int], scalars: Sequence[Any] = ()) -> list[Any]:
    """Run the text in place; the pointers, which have counted their accesses."""
    grid, block = cuda_grid_and_block(nest, sizes, H200)
    given = arguments(nest, arrays, sizes, scalars)
    if math.prod(grid):
        cluster = choose_cuda_launch_shape(nest).cluster
        order = np.random.default_rng(0)
        run(print_cuda_kernel(nest), nest.name, grid, block, given, order, cluster=cluster * (cluster > 1))
    return given[: len(arrays)]


def reference(nest: LoopNest, arrays: Sequence[Array], sizes: Sequence[int], scalars: Sequence[Any] = ()) -> None:
    """The same with NumPy, in place."""
    before = [a.copy() for a in arrays]

    def load(operand: int, part: int) -> Any:
        a = before[operand].view
        return (a.real, a.imag)[part] if a.dtype.kind == "c" else a

    def store(operand: int, part: int, value: Any) -> None:
        view = arrays[operand].view
        target = (view.real, view.imag)[part] if view.dtype.kind == "c" else view
        still = tuple(slice(0, 1) if c == "0" else slice(None) for c in nest.operands[operand].layout)
        target[still] = value

    evaluate_phases_of_loop_nest(nest.phases, sizes, nest.parallel, load, store, scalars)


def check(
    nest: LoopNest, sizes: Sequence[int], seed: int, scalars: Sequence[Any] = (), rtol: float = 1e-5
) -> list[Any]:
    """Emulated text and NumPy agree on every byte (floats: within rtol)."""
    rng = np.random.default_rng(seed)
    arrays = [array(rng, o, sizes) for o in nest.operands]
    wanted = [a.copy() for a in arrays]
    pointers = emulate(nest, arrays, sizes, scalars)
    reference(nest, wanted, sizes, scalars)
    for got, want in zip(arrays, wanted, strict=True):
        if got.view.dtype.kind in "biu":
            np.testing.assert_array_equal(got.view, want.view)
        else:
            wide = np.complex128 if got.view.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.view.astype(wide), want.view.astype(wide), rtol=rtol, atol=rtol)
        unseen = np.ones(got.data.size, bool)  # nothing beside the elements was touched
        for number in np.ndindex(*sizes):
            at = got.origin + sum(i * s for i, s in zip(number, got.strides, strict=True)) * got.view.dtype.itemsize
            unseen[at : at + got.view.dtype.itemsize] = False
        np.testing.assert_array_equal(got.data[unseen], want.data[unseen])
    return pointers


class Builder:
    """Writes phases: `b.point()` or `b.loop()`, then values by op, then the next phase."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.instrs: list[Instr] = []
        self.reductions: list[Reduction] = []
        self.kind, self.first, self.count = POINT, 0, 0
        self.dtypes: dict[int, Any] = {}

    def _begin(self, kind: str) -> None:
        self._end()
        self.kind, self.first, self.instrs, self.reductions = kind, self.count, [], []

    def _end(self) -> None:
        if self.instrs or self.reductions:
            self.phases.append(Phase(self.kind, self.first, tuple(self.instrs), tuple(self.reductions)))
            self.instrs, self.reductions = [], []

    def point(self) -> None:
        self._begin(POINT)

    def loop(self) -> int:
        self._begin(LOOP)
        return len(self.phases)

    def __call__(self, op: str, *args: int, dtype: Any = None, attr: Any = None) -> int:
        dtype = dtype if dtype is not None else self.dtypes[args[-1]]
        self.instrs.append(Instr(op, dtype, args, attr))
        self.dtypes[self.count] = dtype
        self.count += 1
        return self.count - 1

    def load(self, operand: int, dtype: Any = F32, part: int = 0) -> int:
        return self("load", dtype=dtype, attr=(operand, part))

    def store(self, operand: int, value: int, part: int = 0) -> None:
        self("store", value, attr=(operand, part))

    def const(self, value: Any, dtype: Any = F32) -> int:
        return self("const", dtype=dtype, attr=np.asarray(value, dtype).tobytes())

    def reduce(self, combine: str, *values: int) -> tuple[int, int]:
        self.reductions.append(Reduction(combine, self.dtypes[values[0]], values))
        return len(self.phases), len(self.reductions) - 1

    def result(self, where: tuple[int, int], dtype: Any = F32, part: int = 0) -> int:
        return self("result", dtype=dtype, attr=(*where, part))

    def nest(self, name: str, parallel: int, reduced: int, operands: Sequence[Operand], **kw: Any) -> LoopNest:
        self._end()
        return LoopNest(name, parallel, reduced, tuple(operands), kw.pop("scalars", ()), tuple(self.phases), **kw)
