"""Calls of users' scalar functions in kernels: as CUDA text run in Python, compiled without a GPU, and as LLVM IR."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.dsl.api.elementwise import source_of_user_function
from kernelgraph.runtime.codegen import llvm_jit
from kernelgraph.runtime.codegen.numba_functions import infer_user_function_dtypes, link_numba_user_functions
from kernelgraph.runtime.program.program import Kernel
from kernelgraph.runtime.program.user_function import UserFunction
from tests.compiler.ops.test_ops_cuda import emulated
from tests.compiler.programs import agree, graphs
from tests.compiler.targets.cpu.test_compiled import compiled
from tests.counts import examples


def halves(n, z):
    """Steps to 1 (it never ends for 0), z turned as often, and whether it took more than two."""
    steps = 0
    while n != 1:
        n = n // 2
        z = z * 1j
        steps += 1
    return steps, z, steps > 2


def helper(x):
    return math.exp(x) if x < 1.0 else x


def light(x, y):
    if x < 0:
        return helper(x) * 0.5
    return x * y


def made(function: Any, *dtypes: str) -> UserFunction:
    return infer_user_function_dtypes(source_of_user_function(function), tuple(np.dtype(d).name for d in dtypes))


def graph_of(function: UserFunction, shape: tuple[int, ...], form: str) -> Graph:
    """The function's results on two arrays, the second of them without its first axis, in kernels of each strategy."""
    b = GraphBuilder()
    x, y = (b.input(ArrayType(s, np.dtype(d))) for s, d in zip((shape, shape[1:]), function.arguments, strict=True))
    chosen = b.map("greater", x, 5) if form == "chosen" else None
    results = b.call(function, x, b.broadcast(y, shape), where=chosen)
    if chosen is not None:
        results = [b.map("where", chosen, r, b.const(0, r.dtype)) for r in results]
    axes = {"rows": (len(shape) - 1,), "columns": (0,), "all": tuple(range(len(shape)))}.get(form)
    if form == "transposed":
        results = [b.map("add", b.permute(r, range(len(shape))[::-1]), 1) for r in results if r.dtype != bool]
    if axes is not None:
        results = [b.reduce("max" if r.dtype.kind == "b" else "sum", r, axes) for r in results]
    return b.finish(results)


FORMS = st.sampled_from(["plain", "chosen", "rows", "columns", "all", "transposed"])


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=2), FORMS, st.sampled_from(["f4", "c8", "i8"]))
def test_text_means_what_the_function_does(shape: list[int], form: str, dtype: str) -> None:
    """Lanes that do not exist are not computed: `halves(0, z)` would never return."""
    function = made(halves, "u2", "c16") if dtype == "c8" else made(light, "f4", dtype)
    graph = graph_of(function, (*shape, 13), form)
    rng = np.random.default_rng(sum(shape))
    kinds = [graph.nodes[i].type for i in graph.inputs]
    arrays = [np.asarray(rng.integers(1, 40, k.shape) - 20 * (k.dtype.kind == "f")).astype(k.dtype) for k in kinds]
    with np.errstate(all="ignore"):
        for got, want in zip(emulated(graph, arrays), interpret_graph(graph, arrays), strict=True):
            largest = np.abs(want[np.isfinite(want)]).max(initial=0)
            summed = 20 * 13 * math.prod(shape)  # numbers of up to 20, which may cancel
            room = 1e-5 + (1e-6 * largest + np.finfo("f4").eps * summed if dtype == "f4" else 0)
            np.testing.assert_allclose(got, want.ravel(), rtol=1e-5, atol=room)


@pytest.mark.parametrize("form", ["plain", "chosen", "rows", "transposed"])
@pytest.mark.parametrize("function", [halves, light], ids=["loop", "light"])
def test_compiles_without_a_gpu(function: Any, form: str) -> None:
    """Inlined: no call is left, and no local memory."""
    pytest.importorskip("numba.cuda")
    pytest.importorskip("cuda.core")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_ptx, link_ptx_to_cubin

    known = made(function, "i8", "c16") if function is halves else made(function, "f4", "f4")
    for task in pipeline.compile_graph_to_program(graph_of(known, (30, 64), form), "cuda").tasks:
        assert isinstance(task.kernel, Kernel)
        ptx = compile_ptx(task.kernel, (9, 0))
        assert "call" not in ptx and ".local" not in ptx
        assert "fma" not in ptx or function is light  # exp has its own
        assert link_ptx_to_cubin(ptx, (9, 0)).startswith(b"\x7fELF")


def test_kernels_of_functions_that_differ_in_a_constant_differ() -> None:
    def scaled(factor: float) -> Any:
        return lambda x: x * factor

    symbols = {made(scaled(f), "f8").symbol for f in (2.0, 3.0, 2.0, 0.0, -0.0)}
    assert len(symbols) == 4


def test_the_machine_code_is_inlined_and_calls_no_python() -> None:
    function = made(light, "f4", "f4")
    (task,) = pipeline.compile_graph_to_program(graph_of(function, (40, 64), "plain"), "cpu").tasks
    assert isinstance(task.kernel, Kernel) and task.kernel.functions == (function,)
    text = link_numba_user_functions(task.kernel.source, task.kernel.functions)
    assert not [n for n in llvm_jit.c_functions_declared_in_llvm_ir(text) if n.startswith(("Py", "NRT", "numba"))]
    optimised = str(llvm_jit.optimise_llvm_ir(text)[0])
    assert f"@{function.symbol}" not in optimised and f"@{task.kernel.name}" in optimised


def tiers(x, y):
    if x < y:
        return x * 0.1
    return 1.0 + (x - y) * 0.2


def test_branches_of_light_functions_become_vectors() -> None:
    (task,) = pipeline.compile_graph_to_program(graph_of(made(tiers, "f4", "f4"), (40, 64), "plain"), "cpu").tasks
    assert isinstance(task.kernel, Kernel)
    optimised = str(llvm_jit.optimise_llvm_ir(link_numba_user_functions(task.kernel.source, task.kernel.functions))[0])
    assert "fmul <" in optimised and "select <" in optimised


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_loops_run_once_for_each_element(target: str) -> None:
    """Where a row is read twice, as by x - x.mean(1), what loops is stored."""
    b = GraphBuilder()
    x, y = b.input(ArrayType((8, 5000), np.dtype("u2"))), b.input(ArrayType((8, 5000), np.dtype("c16")))
    steps = b.call(made(halves, "u2", "c16"), x, y)[0]
    total = b.broadcast(b.reshape(b.reduce("sum", steps, (1,)), (8, 1)), (8, 5000))
    graph = b.finish([b.map("subtract", steps, total), b.map("exp", b.cast(steps, np.float64))])
    kernels = [t.kernel for t in pipeline.compile_graph_to_program(graph, target).tasks]
    calls = [i for k in kernels if isinstance(k, Kernel) for p in k.form.phases for i in p.instrs if i.op == "call"]
    assert len(calls) == 1


def bent(x, y):
    """Continuous, so that a last bit of its arguments decides nothing."""
    if x < 0:
        return x * 0.5, y
    return x * 2.0, y + x * 0.25


def settled(x):
    for _ in range(5):
        x = x * 0.5 + 0.25
    return x


RANDOM = tuple(made(f, *d) for f, d in ((bent, ("f4", "f8")), (bent, ("f8", "i4")), (settled, ("f4",))))


@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(steps=8, largest=20, dtypes=("float32", "float64", "int32", "bool"), functions=RANDOM))
def test_in_random_graphs(case: tuple[Graph, list[Any]]) -> None:
    graph, arrays = case
    agree(graph, arrays, compiled(graph, arrays))
