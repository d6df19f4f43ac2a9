"""What is computed of stacks is computed of their parts: no stack is stored, to the bit as before."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.passes import stacked_parts
from kernelgraph.compiler.passes.stacked_parts import compute_stacks_in_parts
from kernelgraph.compiler.pipeline import run_pipeline_stages
from tests.compiler.fusion.stencil_graphs import stencil_graph


def mosaic(four: list[Any]) -> Any:
    """Squares of two by two, of one element of each."""
    n, k = four[0].shape
    rows = [np.stack(four[:2], 2).reshape(n, 2 * k), np.stack(four[2:], 2).reshape(n, 2 * k)]
    return np.stack(rows, 1).reshape(2 * n, 2 * k)


def colours(x: Any) -> Any:
    x = np.pad(x, 1)
    at = [x[i : i + 96 : 2, j : j + 96 : 2] for i in (0, 1) for j in (0, 1)]
    red, blue = mosaic(at), mosaic([a * 2 + b for a, b in zip(at, at[1:] + at[:1], strict=True)])
    return np.stack([red - blue, red * 0.5 + 1, np.maximum(red, blue)], 2)


PROGRAMS: dict[str, tuple[Callable[[Any], Any], int]] = {  # and how many tasks there are, with pads'
    "a camera's colours": (colours, 7),
    "looked up": (lambda x: x[0][np.clip(mosaic([x, x + 1, x * 2, x - 1]), 0, 63).astype(int)], 1),
    "planes": (lambda x: np.stack([x, -x, x * x], 2) * 2 + 1, 1),
    "one after the other": (lambda x: abs(np.stack([x, 1 - x])), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_stacks_are_not_stored(name: str) -> None:
    function, tasks = PROGRAMS[name]
    x = np.random.default_rng(0).integers(0, 64, (96, 96)).astype(np.float32)
    stages = run_pipeline_stages(kg.kernel_graph(device="fake")(function).graph(x), "cpu")
    assert len([t for t in stages.program.tasks if "report" not in t.name and "check" not in t.name]) <= tasks
    np.testing.assert_array_equal(np.asarray(kg.kernel_graph(function, device="cpu")(x)), function(x))


def test_stacks_that_others_read_are_stored() -> None:
    x = np.ones((96, 96), np.float32)
    for function in (
        lambda x: (lambda s: (s * 2, s))(np.stack([x, x + 1])),
        lambda x: (lambda s: (s * 2, s[:, 1:] + s[:, :-1]))(np.stack([x, x + 1], 1)),
        lambda x: (lambda s: [(s * k)[:, 1:] for k in (2, 3)])(np.stack([x, x + 1])),  # more is stored than before
    ):
        graph = kg.kernel_graph(device="fake")(function).graph(x)
        assert compute_stacks_in_parts(graph) is graph


@pytest.mark.parametrize(("length", "depth", "steps"), [(2, 20, 1), (8, 5, 1), (8, 2, 80)])
def test_nests_of_many_parts_are_stored(length: int, depth: int, steps: int) -> None:
    builder = GraphBuilder("nest")
    value = builder.input(ArrayType((stacked_parts.LEAST,), np.dtype("f4")))
    for _ in range(depth):
        value = builder.concat([builder.reshape(value, (1, *value.shape))] * length, 0)
    for _ in range(steps):
        value = builder.map("sin", value)
    graph = builder.finish([value])
    assert compute_stacks_in_parts(graph) is graph


def test_random_graphs_reach_it() -> None:
    with patch.object(stacked_parts, "LEAST", 0):
        graphs = [stencil_graph(Random(seed))[0] for seed in range(100)]
        assert sum(compute_stacks_in_parts(graph) is not graph for graph in graphs) > 15
