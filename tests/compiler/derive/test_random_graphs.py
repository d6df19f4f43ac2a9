"""Random graphs of views, reductions, joins, updates, gathers and products: both modes are each other's transpose, and
what is compiled of a derived graph is what it means."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.derive.batch import batch_graph_over_rows
from kernelgraph.compiler.derive.derive import derive_forward, derive_reverse
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.simplify import simplify_graph
from tests.compiler.programs import graphs
from tests.counts import examples

from .derivatives import inner, is_float, like

LARGE = 1e60  # products of such values overflow


def directions(graph: Any, arrays: list[Any], seed: int) -> Any:
    """The inputs and outputs that are floats, and random tangents and cotangents of them."""
    rng = np.random.default_rng(seed)
    results = interpret_graph(graph, arrays)
    moving = [i for i, a in enumerate(arrays) if is_float(a.dtype)]
    wanted = [i for i, r in enumerate(results) if is_float(r.dtype)]
    assume(moving and wanted)
    u, v = [like(arrays[i], rng) for i in moving], [like(results[i], rng) for i in wanted]
    return moving, wanted, u, v


def finite(arrays: list[Any]) -> bool:
    return all(np.isfinite(a).all() and np.abs(a).max(initial=0) < LARGE for a in arrays)


SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(SETTINGS, max_examples=examples(120))
@given(graphs(dtypes=("float64", "int32", "bool", "complex128")), st.integers(0, 99))
def test_modes_are_transposes(case: Any, seed: int) -> None:
    graph, arrays = case
    with np.errstate(all="ignore"):
        moving, wanted, u, v = directions(graph, arrays, seed)
        count = len(graph.outputs)
        tangents = interpret_graph(derive_forward(graph, moving, wanted), [*arrays, *u])[count:]
        reverse = derive_reverse(graph, moving, wanted)
        cotangents = interpret_graph(reverse, [*arrays, *v])[count:]
        assume(finite([*tangents, *cotangents]))
        simple = interpret_graph(simplify_graph(reverse), [*arrays, *v])[count:]
        near = 1e6 * precision(graph)
        for a, b in zip(cotangents, simple, strict=True):
            np.testing.assert_allclose(a, b, rtol=near, atol=near * (1 + float(np.max(np.abs(a), initial=0))))
    size = sum(float(np.sum(np.abs(a))) for a in (*tangents, *cotangents)) + 1
    assert abs(inner(v, tangents) - inner(cotangents, u)) <= near * size


def precision(graph: Any) -> float:
    """The step of the coarsest floats in a graph; of 16 bits none are looked at."""
    steps = [float(np.finfo(n.type.dtype).eps) for n in graph.nodes if n.type.dtype.kind in "fc"]
    assume(max(steps) < 1e-3)
    return max(steps)


@settings(SETTINGS, max_examples=examples(40))
@given(graphs(dtypes=("float64", "int32", "bool", "complex128"), steps=8), st.integers(0, 99))
def test_rows_are_what_they_are_alone(case: Any, seed: int) -> None:
    graph, arrays = case
    rng = np.random.default_rng(seed)
    flags = [bool(rng.integers(0, 2)) for _ in arrays]
    rows = [[rng.permuted(a.ravel()).reshape(a.shape) if f else a for a, f in zip(arrays, flags, strict=True)]
            for _ in range(3)]  # fmt: skip
    stacked = [np.stack([r[i] for r in rows]) if f else a for i, (a, f) in enumerate(zip(arrays, flags, strict=True))]
    with np.errstate(all="ignore"):
        found = interpret_graph(batch_graph_over_rows(graph, flags, 3), stacked)
        alone = [interpret_graph(graph, r) for r in rows]
    for i, value in enumerate(found):
        np.testing.assert_allclose(value, np.stack([a[i] for a in alone]), rtol=1e-9, atol=1e-9)
