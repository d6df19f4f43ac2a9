"""Matrix products as calls of cuBLAS and cuBLASLt, done by their numbers in memory, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.libraries.cublaslt_nan_probe import SMALL, shrink_cublaslt_probe_call
from kernelgraph.runtime.devices.cuda.libraries.gemm import cublas_calls_of_matmul_task
from kernelgraph.runtime.devices.cuda.libraries.product_ways import ONE_BY_ONE
from kernelgraph.runtime.devices.cuda.libraries.steps import BatchedMatmulStep, MatmulSequenceStep
from kernelgraph.runtime.program.program import Library, Region, Task
from kernelgraph.runtime.schedule.batching import schedule_matmul_batches
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import plan_by_cost_model
from tests.counts import examples
from tests.runtime.cuda_calls import call, device_on, ready
from tests.runtime.cuda_fake import FakeContext

F4 = np.dtype("f4")


@st.composite
def operands(
    draw: st.DrawFn, builder: GraphBuilder, batch: tuple[int, ...], rows: int, columns: int, kind: Any
) -> Value:
    """An input seen as a stack of matrices: permuted, with gaps, or with batch axes along which it repeats."""
    shape = (*(draw(st.sampled_from([n, 1])) for n in batch), rows, columns)[draw(st.integers(0, len(batch))) :]
    axes = draw(st.permutations(range(len(shape))))
    inverse = sorted(range(len(shape)), key=lambda i: axes[i])
    gap = draw(st.sampled_from([0, 0, 3]))
    lying = [shape[a] for a in axes]
    value = builder.input(ArrayType((*lying[:-1], lying[-1] + gap), kind))
    value = builder.slice(value, (0,) * len(lying), (1,) * len(lying), tuple(lying))
    value = builder.permute(value, inverse)
    value = builder.broadcast(value, (*batch, rows, columns)) if draw(st.booleans()) else value
    return builder.cast(value, F4)


@st.composite
def products(draw: st.DrawFn) -> Any:
    b = GraphBuilder("products")
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    m, n, k = (draw(st.integers(1, 4)) for _ in range(3))
    kind = np.dtype(draw(st.sampled_from(["f4", "f4", "f2"])))
    value = b.matmul(draw(operands(b, batch, m, k, kind)), draw(operands(b, batch, k, n, kind)))
    if draw(st.booleans()):
        value = b.map("add", value, b.input(ArrayType((n,), F4)))
    if draw(st.booleans()):
        value = b.map("relu", value)
    return b.finish([value])


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(products(), st.booleans())
def test_products_are_numpys(graph: Any, whole: bool) -> None:
    """whole: whether the library's own relu will do."""
    rng = np.random.default_rng(0)
    types = [graph.nodes[n].type for n in graph.inputs]
    arrays = [rng.normal(size=type.shape).astype(type.dtype) for type in types]
    device = device_on(FakeContext())
    device.blas.whole = whole  # type: ignore[attr-defined]
    executable = device.prepare(ready(graph))
    inputs = []
    for array in arrays:
        memory = device.allocate(array.nbytes)
        inputs.append((memory, device.upload(array, memory)))
    results, kept = call(device, executable, inputs)
    device.synchronize()
    (expected,) = interpret_graph(graph, arrays)
    found = np.empty_like(expected)
    device.download(results[0], found)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert kept


@given(products(), st.sampled_from(["float32", "float16"]))
def test_a_small_product_is_as_the_large_one(graph: Any, dtype: str) -> None:
    """The same transposes, the same alignments, and leading dimensions that hold its columns."""
    for task in compile_graph_to_program(graph, "cuda").tasks:
        for product in (cublas_calls_of_matmul_task(task) or ()) if task.name.startswith("matmul") else ():
            large = replace(
                product,
                dtype=dtype,
                result=dtype,
                shape=(1000, 77, 3000),
                leading=tuple(ld + 3000 for ld in product.leading),
            )
            tiny = shrink_cublaslt_probe_call(large)
            assert tiny.operations == large.operations and max(tiny.shape) < 2 * SMALL and tiny.batch <= 2
            assert all((a - b) % SMALL == 0 for a, b in zip(tiny.shape, large.shape, strict=True))
            for ld, (rows, columns), stride in zip(tiny.leading, tiny.stored_shapes, tiny.strides, strict=True):
                assert ld >= rows and stride in (0, ld * columns)


def region(buffer: int, *shape: int) -> Region:
    strides = tuple(4 * int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return Region(buffer, 0, shape, strides, 4, "float32")


def test_stacks_times_one_matrix_are_one_tall_product() -> None:
    task = Task("matmul", Library("matmul"), (), (region(0, 8, 9, 5), region(1, 5, 6)), (region(2, 8, 9, 6),))
    (call,) = cublas_calls_of_matmul_task(task) or ()
    assert call.shape == (6, 72, 5) and call.batch == 1


@pytest.mark.parametrize("apart", [False, True])
def test_a_batch_that_is_slow_is_done_one_by_one(apart: bool) -> None:
    """Where that was measured to be faster; the executable says so."""
    b = GraphBuilder("products")
    inputs = [b.input(ArrayType((20, 20), F4)) for _ in range(4)]
    graph = b.finish([b.matmul(inputs[0], each) for each in inputs])
    program = schedule_matmul_batches(compile_graph_to_program(graph, "cuda"), MACHINES["cuda"])
    assert [dict(t.kernel.attrs)["batch"] for t in program.tasks if isinstance(t.kernel, Library)] == [4]
    device = device_on(FakeContext())
    device.blas.chosen = {4: (ONE_BY_ONE, "slow together")} if apart else {}  # type: ignore[attr-defined]
    executable = device.prepare(plan_by_cost_model(program, 1, "balanced", MACHINES["cuda"]))
    assert isinstance(executable.runners[0], MatmulSequenceStep if apart else BatchedMatmulStep)
    assert executable.notes == ["slow together"] * apart
    arrays = [np.random.default_rng(i).normal(size=(20, 20)).astype(F4) for i in range(4)]
    given = []
    for array in arrays:
        memory = device.allocate(array.nbytes)
        given.append((memory, device.upload(array, memory)))
    results, kept = call(device, executable, given)
    device.synchronize()
    for result, array in zip(results, arrays, strict=True):
        found = np.empty_like(array)
        device.download(result, found)
        np.testing.assert_allclose(found, arrays[0] @ array, rtol=1e-4, atol=1e-4)
    assert kept
