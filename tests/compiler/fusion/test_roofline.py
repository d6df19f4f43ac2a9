"""The benchmark programs move the fewest bytes that they can: each input read once, each output written once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.pipeline import compile_graph_to_program
from tests.compiler.access_audit import Touched, run_program
from tests.golden.programs import PROGRAMS, black_scholes, branches, layer_norm, long_sum, softmax, stencil, transposed


def chain(x):
    return np.exp(-(x * x)) * np.sin(x) + 0.5 * x


def column_sum(x):
    return np.exp(x).sum(0)


def workloads() -> Any:
    """Those of `benchmarks/cpu.py`."""
    path = Path(__file__).parents[3] / "benchmarks" / "cpu_workloads.py"
    spec = importlib.util.spec_from_file_location("workloads_of_the_benchmarks", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.WORKLOADS


WORDS = SimpleNamespace(exp=np.exp, log=np.log, sin=np.sin, sqrt=np.sqrt, erf=kg.erf)
WORKLOADS = {work.name: work for work in workloads() if not work.call}
# The table of the GPU:
CASES = {
    "chain": (chain, [(1000,)]),
    "black_scholes": (lambda s, k, t: black_scholes(s, k, t, 0.03, 0.2), [(500,)] * 3),
    "softmax": (softmax, [(33, 70)]),
    "layer_norm": (layer_norm, [(33, 70), (70,), (70,)]),
    "sum": (long_sum, [(2000,)]),
    "column_sum": (column_sum, [(64, 48)]),
    "transposed": (transposed, [(40, 30), (30, 40)]),
    "stencil": (stencil, [(40, 30)]),
}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_fewest_bytes(name, target):
    function, shapes = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [rng.random(s, np.float32) + 1 for s in shapes]
    graph = kg.kernel_graph(device="fake")(function).graph(*arrays)
    program = compile_graph_to_program(graph, target)
    touched: list[Touched] = []
    run_program(program, arrays, [1.0] * len(graph.numbers), touched=touched)
    assert len(program.tasks) == 1
    inputs = sum(a.size for a in arrays)
    outputs = sum(graph.nodes[o].type.size for o in graph.outputs)
    if name == "stencil":  # four shifted reads, which meet in the cache: every byte but the corners
        assert len(touched[0].reads) == (arrays[0].size - 4) * 4
    else:
        assert touched[0].loads == inputs
    assert touched[0].stores == outputs


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", WORKLOADS)
def test_fewest_bytes_of_the_cpu_benchmarks(name, target):
    work = WORKLOADS[name]
    arrays = [a.reshape(-1)[:4096] if name == "sum" else a for a in work.arrays(64)]
    graph = kg.kernel_graph(device="fake")(lambda *a: work.body(WORDS, *a)).graph(*arrays)
    program = compile_graph_to_program(graph, target)
    touched: list[Touched] = []
    run_program(program, arrays, [1.0] * len(graph.numbers), touched=touched)
    assert len(program.tasks) == 1
    if name == "stencil":
        assert len(touched[0].reads) == (arrays[0].size - 4) * 4
    else:
        assert touched[0].loads == sum(a.size for a in arrays)
    assert touched[0].stores == sum(graph.nodes[o].type.size for o in graph.outputs)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_branches_write_each_product_once_and_pass_over_it_once(target):
    """Eight branches of matmuls, each followed by a relu."""
    arrays = [np.ones((24, 24), np.float32)] * 9
    program = compile_graph_to_program(kg.kernel_graph(device="fake")(branches).graph(*arrays), target)
    touched: list[Touched] = []
    run_program(program, arrays, touched=touched)
    kernels = [(task, t) for task, t in zip(program.tasks, touched, strict=True) if task.name != "matmul"]
    products = [task for task in program.tasks if task.name == "matmul"]
    assert len(products) == len(kernels) == 8 * 2
    assert all((t.loads, t.stores) == (24 * 24, 24 * 24) for _, t in kernels)


def test_a_long_sum_reads_memory_once():
    function, args = PROGRAMS["long_sum"]
    program = compile_graph_to_program(kg.kernel_graph(device="fake")(function).graph(*args), "cuda")
    sizes = [region.shape for task in program.tasks for region in task.reads if region.buffer in program.inputs]
    assert sum(int(np.prod(s)) for s in sizes) == 1 << 22
