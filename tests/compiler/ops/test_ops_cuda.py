"""Every row of the op table on every dtype as CUDA text: what it computes, run in plain Python, and its compilation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.targets.cuda.kernel import cuda_kernel_of_nest
from kernelgraph.runtime.program.program import Constant, Int, Kernel, Pointer
from tests.compiler import cuda_emulator
from tests.compiler.op_cases import Array
from tests.compiler.op_checks import check
from tests.compiler.op_groups import Group, arguments, groups

EVERY = pytest.mark.parametrize("group", groups(), ids=str)
LENGTH = 37


def emulated(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The graph's outputs, computed by its CUDA text."""
    program = pipeline.compile_graph_to_program(graph, "cuda")
    memories = [np.zeros(b.nbytes, np.uint8) for b in program.buffers]
    for number, array in zip(program.inputs, arrays, strict=True):
        memories[number][:] = array.ravel().view(np.uint8)
    for task in program.tasks:
        kernel, values = task.kernel, []
        assert isinstance(kernel, Kernel)
        for a in task.arguments:
            assert isinstance(a, Pointer | Int | Constant)
            if isinstance(a, Pointer):
                values.append(cuda_emulator.Pointer(memories[a.buffer], a.offset))
            else:
                values.append(a.number if isinstance(a, Constant) else a.value)
        rng = np.random.default_rng(0)
        cuda_emulator.run(kernel.source, kernel.name, task.grid, task.block, values, rng, kernel.functions)
    types = [graph.nodes[o].type for o in graph.outputs]
    return [memories[o].view(t.dtype) for o, t in zip(program.outputs, types, strict=True)]


@EVERY
def test_text_means_what_numpy_says(group: Group) -> None:
    """A few values of each row: it is tested as a formula for many, without its text."""
    rng = np.random.default_rng(len(str(group)))
    some = rng.integers(0, len(arguments(group.loop)[0]), LENGTH)
    arrays = [x[some] for x in arguments(group.loop)]
    results = emulated(group.graph(LENGTH), arrays)
    for (row, result), got in zip(group.rows, results, strict=True):
        check(row, arrays, result, got)


@EVERY
def test_rows_compile_without_a_gpu(group: Group) -> None:
    """For one element a thread: vectors repeat the same."""
    pytest.importorskip("numba.cuda")
    pytest.importorskip("cuda.core")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubin

    (task,) = pipeline.compile_graph_to_program(group.graph(LENGTH), "cuda").tasks
    assert isinstance(task.kernel, Kernel)
    nest = task.kernel.form
    single = replace(nest, width=1, operands=tuple(replace(o, layout="0") for o in nest.operands))
    assert compile_cubin(cuda_kernel_of_nest(single), (9, 0)).startswith(b"\x7fELF")


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_products_and_sums_keep_their_roundings(dtype: str) -> None:
    """None is contracted. A product of complex numbers has an fma and a rounded product for each part."""
    pytest.importorskip("numba.cuda")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_ptx

    b = GraphBuilder()
    x, y, z = (b.input(ArrayType((LENGTH,), np.dtype(dtype))) for _ in range(3))
    (task,) = pipeline.compile_graph_to_program(b.finish([b.map("add", b.map("multiply", x, y), z)]), "cuda").tasks
    assert isinstance(task.kernel, Kernel)
    text = compile_ptx(task.kernel, (9, 0))
    fused, products, sums = (len(re.findall(rf"{op}(?:\.rn)?\.f", text)) for op in ("fma", "mul", "add"))
    assert products == sums > 0 and fused == (products if dtype[0] == "c" else 0)
