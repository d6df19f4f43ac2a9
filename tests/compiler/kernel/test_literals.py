"""Programs that differ in their numbers alone have the same kernels, and each computes with its own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.kernel.body_builder import COMMON, is_fixed_kernel_constant
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.program.program import Constant, Kernel
from tests.compiler.access_audit import run_program
from tests.counts import examples

FLOATS = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
numbers = st.floats(-100, 100, width=32).filter(lambda n: abs(n) > 2.5)


def graph(dtype: str, op: str, number: object) -> Graph:
    builder = GraphBuilder()
    x = builder.input(ArrayType((7,), np.dtype(dtype)))
    literal = builder.const(number, dtype)
    return builder.finish([builder.map("add", builder.map(op, x, literal), x)])


def texts(graph: Graph, target: str) -> list[str]:
    return [t.kernel.source for t in compile_graph_to_program(graph, target).tasks if isinstance(t.kernel, Kernel)]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", FLOATS)
@given(a=numbers, b=numbers)
@settings(max_examples=5, deadline=None)
def test_one_text_for_all_numbers(dtype, target, a, b):
    assert texts(graph(dtype, "multiply", a), target) == texts(graph(dtype, "multiply", b), target)


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "less", "bitwise_xor"])
def test_whole_numbers_are_parameters_too(op):
    assert texts(graph("int32", op, 1234), "cpu") == texts(graph("int32", op, 77), "cpu")


@pytest.mark.parametrize("op", ["floor_divide", "remainder", "left_shift", "right_shift", "power"])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize("number", [3, 5, 40])
def test_a_number_that_a_formula_needs_stays(op, dtype, number):
    made = graph(dtype, op, number)
    assert not any(isinstance(a, Constant) for t in compile_graph_to_program(made).tasks for a in t.arguments)
    x = np.array([0, 1, 2, 3, 100, 127, 5], dtype)
    (found,) = run_program(compile_graph_to_program(made), [x])
    np.testing.assert_array_equal(found.view(dtype), interpret_graph(made, [x])[0])


@pytest.mark.parametrize("dtype", FLOATS)
@given(number=st.floats(width=32) | st.sampled_from(COMMON))
@settings(max_examples=examples(60), deadline=None)
def test_every_number_arrives(dtype, number):
    with np.errstate(all="ignore"):
        made = graph(dtype, "multiply", number)
        x = np.array([0, -0.0, 1, -3, 2.5, 100, 1e-3]).astype(dtype)
        (found,), (expected,) = run_program(compile_graph_to_program(made), [x]), interpret_graph(made, [x])
    values = found.view(expected.dtype)
    np.testing.assert_array_equal(values.astype(np.complex128), expected.astype(np.complex128))


@pytest.mark.parametrize("number", [*COMMON, np.inf, -np.inf, np.nan])
def test_numbers_with_instructions_of_their_own_stay(number):
    assert is_fixed_kernel_constant(number, np.dtype(np.float32))
    assert not any(
        isinstance(a, Constant)
        for t in compile_graph_to_program(graph("float32", "maximum", number)).tasks
        for a in t.arguments
    )
