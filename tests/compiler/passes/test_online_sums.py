"""Sums of exponentials below the maximum of long rows: the same numbers, and one pass over what they are made of."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes import online_sums
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.passes.online_sums import sum_exponentials_in_parts
from kernelgraph.compiler.targets.target import target_of

MODEL = target_of("cuda").model
INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _small_arrays_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online_sums, "LARGE", 1 << 14)


def sums(
    shape: tuple[int, ...], kept: int = 0, dtype: str = "f8", make: Callable[[GraphBuilder, Value], Value] | None = None
) -> Graph:
    """The maximum of x = make(input) along all axes but the first, the sum of exp(x - max(x)), how many are the
    maximum, and each element's share."""
    b = GraphBuilder()
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    x = make(b, x) if make else x
    axes = range(kept, len(shape))
    most = b.reduce("max", x, tuple(axes))
    wide = b.broadcast(b.reshape(most, (*shape[:kept], *(1 for _ in axes))), shape)
    powers = b.map("exp", b.map("subtract", x, wide))
    count = b.reduce("sum", b.cast(b.map("equal", x, wide), x.dtype), tuple(axes))
    total = b.reduce("sum", powers, tuple(axes))
    share = b.map("divide", powers, b.broadcast(b.reshape(total, (*shape[:kept], *(1 for _ in axes))), shape))
    return b.finish([most, total, count, share])


def rewritten(graph: Graph, strides: tuple[int, ...] | None = None) -> Graph:
    layouts = [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs]
    return sum_exponentials_in_parts(graph, layouts if strides is None else [MemoryLayout(strides)], MODEL)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("shape", "kept"), [((1 << 15,), 0), ((3, 20000), 1), ((100, 70, 10), 0), ((2, 3, 100, 260), 2), ((1 << 15, 1), 1)]
)
def test_the_parts_add_up(shape: tuple[int, ...], kept: int, dtype: str) -> None:
    graph = sums(shape, kept, dtype)
    found = rewritten(graph)
    assert (found is graph) == (shape[kept:] == (1,))
    x = np.round(np.random.default_rng(0).normal(size=shape) * 30).astype(dtype) / 8  # several are the maximum
    for mine, theirs in zip(interpret_graph(found, [x]), interpret_graph(graph, [x]), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-5 if dtype == "f4" else 1e-13)


@pytest.mark.parametrize("other", [0.0, -2000.0, 2000.0, -INF, INF, NAN])
@pytest.mark.parametrize("few", [0.0, -1e300, 1e300, -INF, INF, NAN])
@pytest.mark.parametrize("place", [slice(None), slice(0, 1), slice(-1, None), slice(0, 1024), slice(1, None)])
def test_infinities_and_nan_are_as_before(other: float, few: float, place: slice) -> None:
    graph = sums((1 << 15,))
    x = np.full(1 << 15, other)
    x[place] = few
    with np.errstate(all="ignore"):
        results = zip(interpret_graph(rewritten(graph), [x]), interpret_graph(graph, [x]), strict=True)
    for mine, theirs in results:
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_what_is_cheap_is_computed_again_for_the_parts() -> None:
    graph = sums((1 << 15,), make=lambda b, x: b.map("multiply", x, b.const(0.5)))
    found = rewritten(graph)
    assert found is not graph
    x = np.random.default_rng(0).normal(size=1 << 15)
    np.testing.assert_allclose(interpret_graph(found, [x])[1], interpret_graph(graph, [x])[1], rtol=1e-13)


@pytest.mark.parametrize(
    "graph",
    [
        sums((1 << 13,)),  # few
        sums((64, 1024), 1),  # short rows, which a kernel keeps
        sums(((1 << 15) + 3,)),  # a prime
        sums((1 << 15,), dtype="f2"),
        sums((1 << 15,), make=lambda b, x: functools.reduce(lambda y, _: b.map("lgamma", y), range(30), x)),  # dear
        sums((1 << 15, 2), make=lambda b, x: b.permute(b.reshape(x, (2, 1 << 15)), (1, 0))),  # lies otherwise
    ],
)
def test_others_stay(graph: Graph) -> None:
    assert rewritten(graph) is graph


def test_what_has_gaps_in_memory_stays() -> None:
    graph = sums((300, 300))
    assert rewritten(graph, (2408, 8)) is graph


def test_a_logsumexp_reads_its_argument_once_and_its_gradient_twice() -> None:
    def f(x: Any) -> Any:
        most = x.max()
        return most + np.log(np.exp(x - most).sum())

    value = kg.kernel_graph(f, device="fake")
    for function, times in ((value, 1), (kg.value_and_grad(value), 2)):
        program = function.plan(kg.spec((1 << 21,), "f4")).program
        (x,) = (number for number, buffer in enumerate(program.buffers) if buffer.kind == "input")
        assert sum(any(region.buffer == x for region in task.reads) for task in program.tasks) == times
