"""Graphs whose derivatives are checked: forward against reverse mode, and both against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType, dtype_kind
from kernelgraph.compiler.derive.derive import derive_forward, derive_reverse
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph

Array = np.ndarray[Any, Any]
Build = Callable[[GraphBuilder, Sequence[Value]], Sequence[Value]]
STEPS = 1e-6, 2e-8  # where the first goes over a kink, the second seldom does
EPS = {"e": 1e-3, "f": 1e-6, "d": 1e-15, "F": 1e-6, "D": 1e-15}


def graph_of(build: Build, arrays: Sequence[Array]) -> Graph:
    """The graph that `build` makes of inputs like these arrays."""
    builder = GraphBuilder()
    inputs = [builder.input(ArrayType(a.shape, a.dtype)) for a in arrays]
    return builder.finish(list(build(builder, inputs)))


def is_float(dtype: Any) -> bool:
    return dtype_kind(dtype) in "fc"


def like(array: Array, rng: np.random.Generator) -> Array:
    """Random numbers of an array's type."""
    found = rng.normal(size=array.shape)
    if array.dtype.kind == "c":
        found = found + 1j * rng.normal(size=array.shape)
    return np.asarray(found).astype(array.dtype)


def inner(a: Sequence[Array], b: Sequence[Array]) -> float:
    """The real inner product."""
    wide = np.complex128
    return float(sum(np.sum((x.astype(wide).conj() * y.astype(wide)).real) for x, y in zip(a, b, strict=True)))


def check_graph(
    graph: Graph,
    arrays: Sequence[Array],
    *,
    differences: bool = True,
    order: int = 2,
    seed: int = 0,
    near: float = 2e-6,
    still: Sequence[int] = (),
    numbers: Sequence[Any] = (),
) -> None:
    """J u in forward mode is the difference quotient along u; <v, J u> is <J^T v, u> in reverse mode, to rounding; and
    so for the graph of the cotangents, up to `order`. arrays: float64 or complex128 where differences are asked for.
    still: those that are constants."""
    rng = np.random.default_rng(seed)
    moving = [i for i, a in enumerate(arrays) if is_float(a.dtype) and i not in still]
    results = interpret_graph(graph, arrays, numbers)
    wanted = [i for i, r in enumerate(results) if is_float(r.dtype)]
    u = [like(arrays[i], rng) for i in moving]
    v = [like(results[i], rng) for i in wanted]
    forward = derive_forward(graph, moving, wanted)
    tangents = interpret_graph(forward, [*arrays, *u], numbers)[len(results) :]
    reverse = derive_reverse(graph, moving, wanted)
    cotangents = interpret_graph(reverse, [*arrays, *v], numbers)[len(results) :]
    for found, to in zip([*tangents, *cotangents], [*v, *u], strict=True):
        assert found.dtype == to.dtype and found.shape == to.shape
    eps = max(EPS[a.dtype.char if a.dtype.char in EPS else "e"] for a in (*u, *v))
    size = 1 + sum(float(np.sum(np.abs(x.astype(np.complex128)))) for x in (*tangents, *cotangents))
    expected, bound = inner(v, tangents), 200 * eps * size
    gap = abs(expected - inner(cotangents, u))
    if gap > bound:  # what arguments that are rounded otherwise change is rounding
        for signs in (like(np.zeros(16), rng) for _ in range(4)):
            rounded = [a * (1 + eps * np.resize(np.sign(signs), a.shape)) if is_float(a.dtype) else a for a in arrays]
            rounded = [r.astype(a.dtype) for r, a in zip(rounded, arrays, strict=True)]
            others = interpret_graph(forward, [*rounded, *u], numbers)[len(results) :]
            bound = max(bound, 20 * abs(inner(v, others) - expected))
    assert gap <= bound, f"by forward and reverse mode {gap} apart, rounding is {bound}"
    if differences:
        by_step = []
        for step in STEPS:
            far, back = (interpret_graph(graph, _moved(arrays, moving, u, sign * step), numbers) for sign in (1, -1))
            by_step.append([(far[i] - back[i]) / (2 * step) for i in wanted])
            if all(_close(found, change, near) for found, change in zip(tangents, by_step[-1], strict=True)):
                break
        else:
            for found, change in zip(tangents, by_step[0], strict=True):
                np.testing.assert_allclose(found, change, rtol=0, atol=near * _scale(change))
    if order > 1:
        options: Any = {"differences": differences, "still": still, "numbers": numbers}
        check_graph(reverse, [*arrays, *v], order=order - 1, seed=seed + 1, near=10 * near, **options)


def _scale(change: Array) -> float:
    return 1 + float(np.max(np.abs(change), initial=0))


def _close(found: Array, change: Array, near: float) -> bool:
    return bool(np.allclose(found, change, rtol=0, atol=near * _scale(change), equal_nan=True))


def _moved(arrays: Sequence[Array], moving: Sequence[int], u: Sequence[Array], step: float) -> list[Array]:
    by_place = dict(zip(moving, u, strict=True))
    return [a + step * by_place[i] if i in by_place else a for i, a in enumerate(arrays)]


def check(build: Build, *arrays: Any, **options: Any) -> None:
    """`check_graph` of what `build` makes."""
    given = [np.asarray(a) for a in arrays]
    check_graph(graph_of(build, given), given, **options)


def check_function(function: Callable[..., Any], *arrays: Any, **options: Any) -> None:
    """`check_graph` of what a function is traced to; arrays that it has of its own stay as they are."""
    given = [np.asarray(a) for a in arrays]
    traced, _, leaves = kg.kernel_graph(function, device="cpu")._trace_for_inspection(tuple(given), {})
    every = [*given, *traced.arrays]
    numbers = traced.host(leaves) if traced.graph.numbers else ()
    check_graph(traced.graph, every, still=range(len(given), len(every)), numbers=numbers, **options)
