"""Random stencils: functions that add shifted views of an array, with arrays for them, and their CUDA programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.compiler.kernel.loop_nest import LoopNest, Operand, Window
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.kernel import cuda_grid_and_block, cuda_kernel_of_nest
from kernelgraph.runtime.program.device import H200
from kernelgraph.runtime.program.program import Int, Pointer, Program

from .cuda_nests import F32, Builder

KINDS = ("f32", "f32", "f64", "f16", "bf16", "i8", "i32", "u64", "b1", "c64", "c128")


@dataclass(frozen=True)
class Stencil:
    """`shifts` of views with `shape` into an array that is `beyond` larger; then minus or and a second array of the
    last axes that `other` says, and a second output that looks at indices."""

    shape: tuple[int, ...]
    beyond: tuple[int, ...]
    shifts: tuple[tuple[int, ...], ...]
    dtype: str
    other: str  # none, row, column, whole
    indexed: bool

    def __call__(self, x: Any, y: Any) -> Any:
        logical = self.dtype == "b1"
        total = None
        for shift in self.shifts:
            view = x[tuple(slice(a, a + n) for a, n in zip(shift, self.shape, strict=True))]
            total = view if total is None else np.logical_or(total, view) if logical else total + view
        if self.other != "none":
            total = np.logical_and(total, y) if logical else total - y
        if self.indexed:
            return total, np.where(np.arange(self.shape[-1]) % 3 == 0, total, y)
        return total

    def arrays(self, seed: int) -> list[np.ndarray[Any, Any]]:
        rng, dtype = np.random.default_rng(seed), DTYPES[self.dtype]
        last = {"row": self.shape[-1:], "column": (*self.shape[:-1], 1)}.get(self.other, self.shape)
        found = []
        for shape in (tuple(n + b for n, b in zip(self.shape, self.beyond, strict=True)), last):
            values = rng.normal(size=shape) * 8
            found.append((values + 1j * rng.normal(size=shape) if dtype.kind == "c" else np.abs(values)).astype(dtype))
        return found


@st.composite
def stencils(draw: st.DrawFn, rows: int = 9, columns: int = 140) -> Stencil:
    """One to three axes; up to a few hundred columns."""
    axes = draw(st.integers(1, 3))
    shape = (*(draw(st.integers(1, rows)) for _ in range(axes - 1)), draw(st.integers(33, columns)))
    beyond = (*(draw(st.integers(0, 3)) for _ in range(axes - 1)), draw(st.sampled_from([0, 1, 2, 2, 3, 4, 7, 12])))
    shift = st.tuples(*(st.integers(0, n) for n in beyond))
    shifts = draw(st.lists(shift, min_size=2, max_size=6, unique=True)) if any(beyond) else [(0,) * axes]
    kinds = st.sampled_from(["none", "row", "column", "whole"])
    return Stencil(shape, beyond, tuple(shifts), draw(st.sampled_from(KINDS)), draw(kinds), draw(st.booleans()))


def five_point(vector: int = 2, many: bool = False) -> LoopNest:
    """The sum of an element and its four neighbours, of rows that are no multiple of 16 bytes."""
    b = Builder()
    b.point()
    total = b("add", b.load(0), b.load(1))
    for k in (2, 3, 4):
        total = b("add", total, b.load(k))
    b.store(5, total)
    window = Window((0, 1, 2, 3, 4), ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1)))
    operands = [Operand(F32, "in", "s1", False)] * 5 + [Operand(F32, "out", "s1", False)]
    nest = b.nest("five", 2, 0, operands, index_bits=32)
    return replace(nest, windows=(window,), vector=vector, many=many)


def graph_of(function: Any, arrays: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The graph, and the arrays that it reads."""
    graph = kg.kernel_graph(device="fake")(lambda *a: function(*a)).graph(*arrays)
    return graph, [arrays[graph.nodes[n].attr("index")] for n in graph.inputs]


def forms(program: Program) -> list[LoopNest]:
    """The structured forms of a program's kernels."""
    return [task.kernel.form for task in program.tasks]  # type: ignore[union-attr]


def program_of(graph: Any, many: bool) -> Program:
    """The CUDA program; kernels with windows as in the size class `many`."""
    program = compile_graph_to_program(graph, "cuda")
    tasks = []
    for task in program.tasks:
        form: LoopNest = task.kernel.form  # type: ignore[union-attr]
        if form.windows:
            form = replace(form, many=many, name=f"{form.name}_{many}")
            numbers = [a.value for a in task.arguments if isinstance(a, Int)]
            grid, block = cuda_grid_and_block(form, numbers[: form.axes], H200)
            task = replace(task, kernel=cuda_kernel_of_nest(form), grid=grid, block=block)
        tasks.append(task)
    return replace(program, tasks=tuple(tasks))


def first_elements(program: Program) -> list[tuple[LoopNest, list[int], list[list[int]]]]:
    """For each kernel: its form, the bytes where operands start in their buffers, their strides in elements."""
    found = []
    for task in program.tasks:
        form: LoopNest = task.kernel.form  # type: ignore[union-attr]
        starts = [a.offset for a in task.arguments if isinstance(a, Pointer)]
        steps = iter([a.value for a in task.arguments if isinstance(a, Int)][form.axes :])
        strides = [[next(steps) if c == "s" else int(c) for c in o.layout] for o in form.operands]
        found.append((form, starts, strides))
    return found
