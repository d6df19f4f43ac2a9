"""Products of small matrices that sum much: cut into parts, the same numbers, and one call of a library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.long_products import cut_long_products, join_thin_products
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.devices.cuda.libraries.gemm import cublas_calls_of_matmul_task


def product(shapes: Sequence[tuple[int, ...]], axes: Sequence[Sequence[int]], dtype: str = "f8") -> Graph:
    b = GraphBuilder()
    args = [b.permute(b.input(ArrayType(s, np.dtype(dtype))), a) for s, a in zip(shapes, axes, strict=True)]
    return b.finish([b.matmul(*args)])


CASES: dict[str, Any] = {
    "outermost": ([(12000, 5, 3), (12000, 5, 4)], [(1, 2, 0), (1, 0, 2)]),
    "innermost": ([(5, 3, 12000), (5, 4, 12000)], [(0, 1, 2), (0, 2, 1)]),
    "as they lie": ([(2, 4, 6000), (2, 6000, 4)], [(0, 1, 2), (0, 1, 2)]),
    "each otherwise": ([(12000, 5, 3), (5, 12000, 4)], [(1, 2, 0), (0, 1, 2)]),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", CASES)
def test_the_parts_add_up(name: str, dtype: str) -> None:
    shapes, axes = CASES[name]
    graph = product(shapes, axes, dtype)
    cut = cut_long_products(graph)
    (matmul,) = (node for node in cut.nodes if node.op == "matmul")
    assert len(matmul.type.shape) == len(graph.nodes[graph.outputs[0]].type.shape) + 1
    arrays = [np.random.default_rng(0).normal(size=s).astype(dtype) for s in shapes]
    found, expected = (interpret_graph(g, arrays)[0] for g in (cut, graph))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=(1e-2 if dtype == "f4" else 1e-10))


@pytest.mark.parametrize("name", CASES)
def test_a_library_does_them_in_few_calls(name: str) -> None:
    shapes, axes = CASES[name]
    (task,) = (t for t in compile_graph_to_program(product(shapes, axes), "cuda").tasks if t.name == "matmul")
    calls = cublas_calls_of_matmul_task(task)
    assert calls is not None and len(calls) <= shapes[0][0]


def test_of_rows_that_lie_one_after_another_it_is_one_call() -> None:
    graph = product([(100000, 25, 10), (100000, 25, 10)], [(1, 2, 0), (1, 0, 2)])
    (task,) = (t for t in compile_graph_to_program(graph, "cuda").tasks if t.name == "matmul")
    calls = cublas_calls_of_matmul_task(task)
    assert calls is not None and len(calls) == 1 and calls[0].batch == 500


@pytest.mark.parametrize(
    ("shapes", "axes"),
    [
        ([(10, 100000), (100000, 10)], [(0, 1), (0, 1)]),  # a library cuts it
        ([(600, 8, 4096), (600, 4096, 8)], [(0, 1, 2), (0, 1, 2)]),  # many
        ([(4, 1024, 4096), (4, 4096, 1024)], [(0, 1, 2), (0, 1, 2)]),
        ([(5, 8, 300), (5, 300, 8)], [(0, 1, 2), (0, 1, 2)]),  # short
        ([(4, 256, 1000), (4, 1000, 10)], [(0, 1, 2), (0, 1, 2)]),  # several calls that do half of the work each
        ([(2, 3, 4, 6000), (2, 3, 6000, 4)], [(0, 1, 2, 3), (0, 1, 2, 3)]),
        ([(5, 8, 12007), (5, 12007, 8)], [(0, 1, 2), (0, 1, 2)]),  # a prime
        ([(5, 8, 12000), (1, 12000, 8)], [(0, 1, 2), (0, 1, 2)]),
    ],
)
def test_others_stay(shapes: Any, axes: Any) -> None:
    graph = product(shapes, axes)
    assert cut_long_products(graph) is graph


THIN: dict[str, Any] = {
    "few columns": [(1, 300, 200), (16, 200, 3)],
    "few columns, no batch": [(300, 200), (16, 200, 3)],
    "several batches": [(300, 200), (2, 5, 200, 3)],
    "more axes on the left": [(1, 1, 1, 300, 200), (2, 5, 200, 3)],
    "few rows": [(16, 3, 200), (200, 300)],
    "few rows, a batch of one": [(2, 5, 3, 200), (1, 200, 300)],
}


@pytest.mark.parametrize("name", THIN)
@pytest.mark.parametrize("turned", [False, True])
def test_thin_products_become_one(name: str, turned: bool) -> None:
    shapes = THIN[name]
    axes = [(*range(len(s) - 2), len(s) - 1, len(s) - 2) if turned else tuple(range(len(s))) for s in shapes]
    lying = [tuple(s[a] for a in turn) for s, turn in zip(shapes, axes, strict=True)]
    graph = product(lying, axes)
    joined = join_thin_products(graph)
    (matmul,) = (node for node in joined.nodes if node.op == "matmul")
    assert len(matmul.type.shape) == 2
    arrays = [np.random.default_rng(0).normal(size=s) for s in lying]
    (found,), (expected,) = interpret_graph(joined, arrays), interpret_graph(graph, arrays)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)
    (task,) = (t for t in compile_graph_to_program(graph, "cuda").tasks if t.name == "matmul")
    assert len(cublas_calls_of_matmul_task(task) or ()) == 1


@pytest.mark.parametrize(
    "shapes",
    [
        [(16, 300, 200), (16, 200, 3)],  # all of them many
        [(1, 300, 200), (16, 200, 300)],  # wide enough
        [(1, 3, 200), (16, 200, 3)],  # more to copy than to multiply
        [(16, 1, 300, 200), (1, 16, 200, 3)],
    ],
)
def test_products_of_other_shapes_stay(shapes: Any) -> None:
    graph = product(shapes, [tuple(range(len(s))) for s in shapes])
    assert join_thin_products(graph) is graph
