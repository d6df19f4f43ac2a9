"""Kernels on the CPU whose arrays pass 2^31 elements, and the index width that any size asks for."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.program.program import Kernel

from . import large_arrays as large

SMALL = 70_001
LARGE = 2**31 + 5
ROWS, COLUMNS = 46_341, 46_343  # just above 2^31 elements


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_small(dtype):
    """The checks themselves."""
    large.check_vector("cpu", SMALL, dtype)
    large.check_reductions("cpu", SMALL, dtype)
    large.check_matrix("cpu", 301, 207, dtype)


needs_memory = pytest.mark.skipif(
    os.environ.get("KERNELGRAPH_TEST_LARGE") != "1",
    reason="takes 7 GB of memory and a minute: KERNELGRAPH_TEST_LARGE=1",
)


@needs_memory
def test_vectors_past_2_to_the_31():
    large.check_vector("cpu", LARGE, "int8")


@needs_memory
def test_reductions_past_2_to_the_31():
    large.check_reductions("cpu", LARGE, "int8")


@needs_memory
def test_matrices_past_2_to_the_31():
    large.check_matrix("cpu", ROWS, COLUMNS, "int8")


LENGTHS = st.integers(1, 2**17) | st.sampled_from([2**15, 2**16 - 1, 2**16, 46_341, 2**20])


@given(st.lists(LENGTHS, min_size=1, max_size=3), st.sampled_from(["int8", "float32", "complex64"]), st.booleans())
def test_narrow_indices_reach_every_element(shape, dtype, across):
    """No memory is needed to ask for a program: its kernels count in 32 bits only where every element can be reached
    so, and a launch has a shape for every size."""
    builder = GraphBuilder()
    x = builder.input(ArrayType(tuple(shape), np.dtype(dtype)))
    y = (
        builder.permute(x, tuple(reversed(range(len(shape)))))
        if across
        else builder.slice(x, [n - 1 for n in shape], [-1] * len(shape), shape)
    )
    program = compile_graph_to_program(builder.finish([builder.map("add", y, 1)]), "cuda")
    parts = 2 if dtype == "complex64" else 1
    for task in program.tasks:
        assert isinstance(task.kernel, Kernel)
        spans = [(high - low) // r.itemsize for r in (*task.reads, *task.writes) for low, high in [r.span]]
        if max(spans) * parts >= 2**31:
            assert task.kernel.form.index_bits == 64


@pytest.mark.parametrize("length", [2**31 - 2**16, 2**31 - 2**16 + 1, 2**31 - 1, 2**31, 2**33])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_every_length_has_a_launch(length, target):
    builder = GraphBuilder()
    x = builder.input(ArrayType((length,), np.dtype(np.int8)))
    compile_graph_to_program(builder.finish([builder.map("add", x, 1), builder.reduce("max", x, (0,))]), target)
