"""What products write transposed is computed as it lies, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.axis_order import keep_axis_order_of_products
from tests.counts import examples

SHAPE = (7, 24, 40)  # of the product
FLOAT = np.dtype(np.float64)


def product(b: GraphBuilder, name: int) -> tuple[Value, Value]:
    left = b.input(ArrayType((*SHAPE[:2], 5), FLOAT))
    right = b.input(ArrayType((SHAPE[0], 5, SHAPE[2]), FLOAT))
    return b.matmul(left, right), left


def agree(graph: Graph) -> Graph:
    """The graph with its regions turned, which computes what it did."""
    found = keep_axis_order_of_products(graph)
    rng = np.random.default_rng(3)
    given = [rng.normal(size=graph.nodes[n].type.shape) for n in graph.inputs]
    for ours, theirs in zip(interpret_graph(found, given), interpret_graph(graph, given), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)
        assert ours.dtype == theirs.dtype
    return found


def full_sized_maps(graph: Graph) -> set[tuple[int, ...]]:
    """The shapes of the maps that are as large as a product."""
    return {n.type.shape for n in graph.nodes if n.op in ("multiply", "exp", "add") and n.type.size == np.prod(SHAPE)}


ORDERS = st.permutations(range(3)).map(tuple)
LEAVES = st.sampled_from(("row", "number", "index", "product", "itself"))
ENDS = st.sampled_from(("sum", "max", "argmax", "product", "unit", "chained"))


@settings(max_examples=examples(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(ORDERS, st.lists(LEAVES, min_size=1, max_size=4), st.lists(ENDS, min_size=1, max_size=3), st.data())
def test_random_regions(axes: tuple[int, ...], leaves: list[str], ends: list[str], data: Any) -> None:
    b = GraphBuilder("f")
    first, _ = product(b, 0)
    value = b.permute(first, axes)
    shape = value.shape
    for leaf in leaves:
        other: Any = value
        if leaf == "row":
            axis = data.draw(st.integers(0, 2))
            row = b.input(ArrayType(tuple(n if i == axis else 1 for i, n in enumerate(shape)), FLOAT))
            other = data.draw(st.sampled_from((row, b.broadcast(row, shape))))
        elif leaf == "number":
            other = 0.5
        elif leaf == "index":
            other = b.cast(b.index(shape, data.draw(st.integers(0, 2))), FLOAT)
        elif leaf == "product":
            other = b.permute(product(b, 1)[0], axes)
        value = b.map(data.draw(st.sampled_from(("add", "multiply", "maximum"))), value, other)
    outputs = []
    for end in ends:
        gone = tuple(sorted(data.draw(st.sets(st.integers(0, 2), min_size=1, max_size=2))))
        if end in ("sum", "max", "argmax"):
            outputs.append(b.reduce(end, value, gone))
        elif end == "chained":
            total = b.map("exp", b.map("multiply", b.reduce("sum", value, gone[:1]), -0.01))
            outputs.append(b.reduce("sum", total, (data.draw(st.integers(0, 1)),)))
        elif end == "unit":
            spread = b.reshape(value, (*shape[:1], 1, *shape[1:]))
            outputs.append(b.reduce("sum", spread, (data.draw(st.integers(0, 3)),)))
        else:
            turned = b.permute(value, data.draw(ORDERS))
            column = b.input(ArrayType((turned.shape[-1], 3), FLOAT))
            outputs.append(b.matmul(turned, column))
    agree(b.finish(outputs))


def test_maps_take_the_order_of_the_product() -> None:
    b = GraphBuilder("f")
    first, _ = product(b, 0)
    row = b.input(ArrayType((SHAPE[1],), FLOAT))
    value = b.map("exp", b.map("multiply", b.permute(first, (2, 0, 1)), row))
    found = agree(b.finish([b.reduce("sum", value, (1,))]))
    assert full_sized_maps(found) == {SHAPE}


def test_a_sum_of_products_is_read_as_it_lies() -> None:
    b = GraphBuilder("f")
    both = b.map("add", product(b, 0)[0], product(b, 1)[0])
    value = b.map("multiply", b.permute(product(b, 2)[0], (2, 0, 1)), b.permute(both, (2, 0, 1)))
    found = agree(b.finish([b.reduce("sum", value, (0,))]))
    assert full_sized_maps(found) == {SHAPE}


def whole_input(b: GraphBuilder, value: Value) -> Value:
    return b.reduce("sum", b.map("multiply", value, b.input(value.type)), (0,))


def own_product(b: GraphBuilder, value: Value) -> Value:
    return b.matmul(value, b.input(ArrayType((value.shape[-1], 2), FLOAT)))


@pytest.mark.parametrize("end", [whole_input, own_product, lambda b, value: value])
def test_what_is_wanted_in_another_order_stays(end: Any) -> None:
    """Arrays of the caller's, other products, and results lie in their own order."""
    b = GraphBuilder("f")
    value = b.map("multiply", b.permute(product(b, 0)[0], (2, 0, 1)), 2.0)
    graph = b.finish([end(b, value)])
    assert keep_axis_order_of_products(graph) is graph


def test_a_call_and_its_gradient() -> None:
    def mixture(lower: Any, means: Any, x: Any) -> Any:
        centred = x[:, None, :] - means
        scaled = np.einsum("kij,nkj->nki", lower, centred) + centred
        inner = -0.5 * (scaled**2).sum(2)
        top = inner.max(1)
        return (top + np.log(np.exp(inner - top[:, None]).sum(1))).sum()

    rng = np.random.default_rng(0)
    args = 0.3 * rng.normal(size=(5, 4, 4)), rng.normal(size=(5, 4)), rng.normal(size=(300, 4))
    f = kg.kernel_graph(mixture, device="cpu")
    np.testing.assert_allclose(f(*args), mixture(*args), 1e-12)
    gradient = np.asarray(kg.grad(f)(*args))
    step = np.zeros_like(args[0])
    step[2, 3, 1] = 1e-6
    by_difference = (mixture(args[0] + step, *args[1:]) - mixture(args[0] - step, *args[1:])) / 2e-6
    np.testing.assert_allclose(gradient[2, 3, 1], by_difference, 1e-6)
