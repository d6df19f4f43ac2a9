"""Elements that are picked of what is computed: found however they are picked, the same numbers, little computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes import picked_elements
from kernelgraph.compiler.passes.picked_elements import compute_picked_elements
from kernelgraph.compiler.passes.simplify import simplify_graph
from kernelgraph.compiler.pipeline import compile_graph_to_program, run_decomposition_stage

N, M = 24, 40


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picked_elements, "LARGE", N * M)


def traced(function: Callable[..., Any], *args: Any) -> Graph:
    graph = kg.kernel_graph(function, device="cpu").graph(*args)
    return simplify_graph(run_decomposition_stage(graph, "cpu", None))


def is_gathered_of(graph: Graph, op: str) -> bool:
    """Whether nothing is looked up, or summed under a mask, but arrays of an operation, inputs and small ones."""
    sources = [graph.nodes[n.args[0]] for n in graph.nodes if n.op == "gather"]
    masks = [n for n in graph.nodes if n.op == "where" and n.type.size >= N * M]
    return bool(sources) and not masks and all(s.op in (op, "input") or s.type.size < N * M for s in sources)


def _log_softmax(s: Any) -> Any:
    s = s - s.max(-1, keepdims=True)
    return s - np.log(np.exp(s).sum(-1, keepdims=True))


PICKED: dict[str, Callable[..., Any]] = {  # of a product s (N, M), y (N,) and r = arange(N)
    "kg.nn": lambda s, y, r: kg.nn.cross_entropy(s, y),
    "kg.nn, each": lambda s, y, r: kg.nn.cross_entropy(s * 2, y, reduction="none"),
    "by both indices": lambda s, y, r: _log_softmax(s)[r, y],
    "from the end": lambda s, y, r: _log_softmax(s)[r, y - M],
    "shifted first": lambda s, y, r: (s - s.max(-1, keepdims=True))[r, y],
    "scaled by rows": lambda s, y, r: (s * r[:, None])[r, y],
    "one row": lambda s, y, r: (np.exp(s) + s)[r[3]],
    "of two": lambda s, y, r: (s + s * s)[r, y] - np.exp(s)[r, y],
    "layers": lambda s, y, r: (np.maximum(s + s[:1], 0) - s.max(-1, keepdims=True))[r, y],
}


@pytest.mark.parametrize("name", PICKED)
def test_what_is_picked_is_computed_alone(name: str) -> None:
    rng = np.random.default_rng(0)
    args = [rng.normal(size=(N, 64)), rng.normal(size=(64, M)), rng.integers(0, M, N), np.arange(N)]
    args[2][:3] = [-1 if name == "kg.nn, each" else 0, M - 1, M if name.startswith("kg") else 5]
    graph = traced(lambda a, b, y, r: PICKED[name](a @ b, y, r), *args)
    found = compute_picked_elements(graph)
    assert found is not graph and is_gathered_of(found, "add" if name == "layers" else "matmul")
    for one, other in zip(interpret_graph(found, args), interpret_graph(graph, args), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    narrow = [a.astype("f4") for a in args[:2]] + args[2:]
    whole = kg.kernel_graph(lambda a, b, y, r: PICKED[name](a @ b, y, r), device="cpu")(*narrow)
    expected, *_ = interpret_graph(graph, args)
    np.testing.assert_allclose(np.asarray(whole), expected, rtol=2e-4, atol=1e-5)


def test_special_values_that_are_picked() -> None:
    """Of what is not picked nothing is seen; -0.0 in a sum with zeros is 0.0."""
    x = np.random.default_rng(0).normal(size=(N, M))
    x[0], x[1, 3], x[2, 4], x[3, 5] = np.nan, np.inf, -0.0, np.nan
    y = np.full(N, 7)
    y[:6] = [2, 3, 4, 5, -1, M]

    def chosen(x: Any, y: Any) -> Any:
        return kg.nn.cross_entropy(x, y, reduction="none")

    graph = traced(chosen, x, y)
    found = compute_picked_elements(graph)
    assert any(n.op == "gather" for n in found.nodes)
    for one, other in zip(interpret_graph(found, [x, y]), interpret_graph(graph, [x, y]), strict=True):
        assert one.tobytes() == other.tobytes()


KEPT: dict[str, Callable[..., Any]] = {
    "turned": lambda s, y, r: (s.T * r).T[r, y],
    "many": lambda s, y, r: np.exp(s)[r],
    "an epilogue": lambda s, y, r: s.astype("f2")[r, y],
    "two labels": lambda s, y, r: np.where(y[:, None] >= r[:1], s, 0).sum(-1),
    "a product with the mask": lambda s, y, r: ((y[:, None] == r[:1]) * s).sum(-1),
    "no zero": lambda s, y, r: np.where(y[:, None] == r[:1], s, 1).sum(-1),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_as_it_is(name: str) -> None:
    rng = np.random.default_rng(0)
    args = [rng.normal(size=(N, 64)), rng.normal(size=(64, M)), rng.integers(0, M, N), np.arange(N)]
    graph = traced(lambda a, b, y, r: KEPT[name](a @ b, y, r), *args)
    assert compute_picked_elements(graph) is graph


def test_an_index_out_of_range_is_said_as_before() -> None:
    s, y = np.zeros((N, M), "f4"), np.full(N, M)
    pick = kg.kernel_graph(lambda s, y: (s * 2 - s.max(-1, keepdims=True))[np.arange(N), y], device="cpu")
    with pytest.raises(IndexError, match=f"{M} is out of bounds for axis 1 with size {M}"):
        np.asarray(pick(s, y))


def test_the_loss_of_a_layer_reads_its_logits_once() -> None:
    """On a GPU: the product, the sums of exponentials, and what is picked by a kernel with an element for each row;
    back, products of 16-bit numbers."""
    x, w = np.zeros((512, 64), ml_dtypes.bfloat16), np.zeros((64, 4096), ml_dtypes.bfloat16)
    y = np.zeros(512, np.int64)

    def loss(x: Any, w: Any, y: Any) -> Any:
        return kg.nn.cross_entropy((x @ w).astype(np.float32), y)

    def tasks(function: Callable[..., Any]) -> list[Any]:
        graph = kg.kernel_graph(function, device="cpu").graph(x, w, y)
        return [*compile_graph_to_program(graph, "cuda").tasks]

    product, sums, picked = tasks(loss)
    assert (product.name, [r.shape for r in sums.reads]) == ("matmul", [(512, 4096)])
    assert [r.shape for r in picked.writes] == [()]
    products = [t for t in tasks(lambda *a: kg.value_and_grad(loss, (0, 1))(*a)) if t.name == "matmul"]
    assert [{r.dtype for r in t.reads} for t in products] == [{"bfloat16"}] * 3
