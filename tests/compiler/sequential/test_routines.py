"""A routine's texts mean what `evaluate` says: the GPU's, on emulated threads that check every barrier."""

from __future__ import annotations

import importlib
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import real_dtype
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.sequential.evaluate import evaluate_routine
from kernelgraph.compiler.sequential.form import Routine
from kernelgraph.compiler.sequential.lifting import lift_routine_sizes
from kernelgraph.compiler.sequential.parallel_turns import routine_for_printing
from kernelgraph.compiler.targets.cuda.sequential import cuda_kernel_of_routine, cuda_routine_and_shape
from kernelgraph.runtime.core.errors import KernelGraphError
from kernelgraph.runtime.program.program import Int
from tests.compiler import cuda_emulator
from tests.dsl.recorded_loops.test_functions_in_loops import program
from tests.turn_programs import load, programs, recorded

Array = np.ndarray[Any, Any]


def routines(seed: int, count: int) -> Iterator[Routine]:
    """Those of random programs."""
    made = [*programs(seed, count)]
    with tempfile.TemporaryDirectory() as folder, recorded():
        scope = load(made, Path(folder))
        for p in made:
            try:
                nodes = kg.kernel_graph(scope[p.name], device="cpu").graph(*p.arguments(0)).nodes
            except (KernelGraphError, IndexError):
                continue
            routines = (n.attr("routine") for n in nodes if n.op == "sequential" and n.attr("part") == 0)
            yield from map(routine_for_printing, routines)


def arguments(routine: Routine) -> list[Array]:
    rng = np.random.default_rng(1)
    given = [a for a in routine.arrays if a.role in ("in", "inout")]
    return [rng.integers(-4, 5, a.shape).astype(a.dtype) for a in given]


def emulated(routine: Routine, given: list[Array]) -> list[Array]:
    """What the GPU's text makes of it, its threads in a random order between barriers."""
    first = iter(given)
    arrays = [
        next(first).reshape(-1).copy() if a.role in ("in", "inout") else np.zeros(a.size, a.dtype)
        for a in routine.arrays
    ]
    lifted, numbers = lift_routine_sizes(routine)
    lifted, shape = cuda_routine_and_shape(lifted, True)
    kernel = cuda_kernel_of_routine(lifted, shape)
    given = [cuda_emulator.pointer(a.view(real_dtype(a.dtype)), name=f"a{i}", again=True) for i, a in enumerate(arrays)]
    given += [n - 1 for n in numbers]
    cuda_emulator.run(
        kernel.source,
        kernel.name,
        (shape.blocks, 1, 1),
        (shape.threads, 1, 1),
        given,
        random.Random(1),
        (),
        shape.blocks * shape.together,
    )
    found = zip(arrays, routine.arrays, strict=True)
    return [x.reshape(a.shape) for x, a in found if a.role in ("out", "inout")]


@pytest.mark.parametrize(("share", "wide"), [(4, 10**9), (1, 10**9), (8, 0), (1, 40)])
def test_the_text_for_a_gpu_means_the_same(share: float, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """share: of one warp, and of several. wide: of a block, and of a cluster of three."""
    module: Any = importlib.import_module("kernelgraph.compiler.targets.cuda.sequential")
    monkeypatch.setattr(module, "SHARE", share)
    monkeypatch.setattr(module, "WIDE", wide)
    monkeypatch.setattr(module, "CLUSTER", 3)
    count = 0
    for routine in routines(21, 5):
        given = arguments(routine)
        for got, want in zip(emulated(routine, given), evaluate_routine(routine, given), strict=True):
            assert np.array_equal(got, want, equal_nan=True), f"{routine}\n{got}\n{want}"
        count += 1
    assert count >= 3


def rotated(a: Any, b: Any, places: Any) -> Any:
    z = 0j
    for i in range(len(a)):
        row = b[places[i] : places[i] + 5]
        a[i] = (row * a[i]).sum() + z
        b[places[i] % 3] = np.conj(a[i])
        a[places[:3]] += z
        z = z * 0.5 + a[i]
    return z


def test_complex_numbers_and_indices_mean_the_same() -> None:
    with recorded():
        nodes = (
            kg.kernel_graph(rotated, device="cpu").graph(np.ones(12, "c16"), np.ones(12, "c16"), np.arange(12)).nodes
        )
    (routine,) = {n.attr("routine") for n in nodes if n.op == "sequential"}
    rng = np.random.default_rng(1)
    given = [rng.integers(0 if a.dtype == np.int64 else -4, 5, a.shape).astype(a.dtype) for a in routine.arrays
             if a.role in ("in", "inout")]  # fmt: skip
    for got, want in zip(emulated(routine, given), evaluate_routine(routine, given), strict=True):
        assert np.array_equal(got, want, equal_nan=True)


def triangle(a: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    for i in range(len(b)):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


def test_a_routine_as_text() -> None:
    with recorded():
        nodes = kg.kernel_graph(triangle, device="cpu").graph(np.eye(10), np.ones(10)).nodes
    (routine,) = {n.attr("routine") for n in nodes if n.op == "sequential"}
    text = str(routine)
    assert "sum float64 of" in text and text.count("for ") == 2 and "stop" not in text
    assert [str(a) for a in routine.arrays if a.role != "out"] == [
        "in float64[10]",
        "in float64[10, 10]",
        "inout float64[10]",
    ]


def eliminated(a: Any) -> Any:
    for k in range(len(a) - 1):
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a


def distances(x: Any) -> Any:
    d = np.zeros((len(x), len(x)))
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            d[i, j] = np.sqrt(np.sum((x[i] - x[j]) ** 2))
            d[j, i] = d[i, j]
    return d


def best_of_each(a: Any) -> Any:
    found = np.zeros(len(a))
    for i in range(len(a)):
        best = a[i, 0]
        for j in range(1, a.shape[1]):
            if a[i, j] > best:
                best = a[i, j]
        found[i] = best
    return found


@pytest.mark.parametrize(("function", "shape"), [(distances, (12, 3)), (best_of_each, (80, 3))])
def test_turns_that_are_all_independent_run_on_as_many_blocks_as_there_are(function: Any, shape: Any) -> None:
    """Also where each turn has variables of its own."""
    with recorded():
        graph = kg.kernel_graph(function, device="cpu").graph(np.zeros(shape))
    nodes = [n for n in graph.nodes if n.op == "sequential"]
    unwanted = [n for n, a in enumerate(nodes[0].attr("routine").arrays) if a.role == "out"]
    routine = routine_for_printing(nodes[0].attr("routine"), unwanted)
    routine, launch = cuda_routine_and_shape(routine, True)
    assert launch.blocks > 1 and "barrier" not in cuda_kernel_of_routine(routine, launch).source
    given, written = arguments(routine), [a for a in routine.arrays if a.role in ("out", "inout")]
    for got, want, array in zip(emulated(routine, given), evaluate_routine(routine, given), written, strict=True):
        assert array.role == "out" or np.array_equal(got, want)
    (task,) = (t for t in compile_graph_to_program(graph, "cuda").tasks if t.name == "loop")
    assert task.grid[0] > 1


def test_what_nobody_reads_is_neither_computed_nor_stored() -> None:
    with recorded():
        nodes = kg.kernel_graph(eliminated, device="cpu").graph(np.eye(10)).nodes
    (routine,) = {n.attr("routine") for n in nodes if n.op == "sequential"}
    assert {a.role for a in routine.arrays} == {"inout", "out"} and str(routine_for_printing(routine)).count(
        "for all"
    ) == 3


def test_wide_steps_are_for_a_cluster_of_blocks_which_compiles() -> None:
    pytest.importorskip("numba.cuda")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubin, compile_ptx

    with recorded():
        graph = kg.kernel_graph(eliminated, device="cpu").graph(np.eye(200))
    (task,) = (t for t in compile_graph_to_program(graph, "cuda").tasks if t.name == "loop")
    assert task.grid == (8, 1, 1) and task.kernel.source.count("cluster_barrier()") >= 2
    assert "barrier.cluster.arrive" in compile_ptx(task.kernel, (9, 0)) and compile_cubin(task.kernel, (9, 0))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_one_kernel_serves_all_sizes(target: str) -> None:
    def swept(a: Any) -> Any:
        for i in range(1, len(a)):
            for j in range(i):
                a[i, j] = (a[i, j] - a[i, :j] @ a[j, :j]) / a[j, j] + a[-1, j % 7]
        return a

    kernels, numbers = set(), set()
    for n in (40, 41, 57):
        with recorded():
            graph = kg.kernel_graph(swept, device="cpu").graph(np.eye(n))
        (task,) = (t for t in compile_graph_to_program(graph, target).tasks if t.name == "loop")
        kernels.add(task.kernel)
        numbers.add(tuple(a.value for a in task.arguments if isinstance(a, Int)))
    assert len(kernels) == 1 and len(numbers) == 3


def orthogonal(a: Any) -> Any:
    q, r = np.zeros_like(a), np.zeros_like(a)
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def scaled_rows(a: Any) -> Any:
    for i in range(len(a)):
        first = a[i, 0]
        for j in range(a.shape[1]):
            a[i, j] = a[i, j] / first
    return a


def mirrored_rows(a: Any) -> Any:
    b, c = np.zeros_like(a), np.zeros_like(a)
    for i in range(len(a)):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j] * 2.0
        for j in range(a.shape[1]):
            c[i, j] = b[i, a.shape[1] - 1 - j] + 1.0
    return b, c


def summed_rows(a: Any) -> Any:
    b, c = np.zeros_like(a), np.zeros_like(a)
    for i in range(len(a)):
        for j in range(a.shape[1]):
            b[i, j] = a[i, j] * 2.0
        for j in range(1, a.shape[1]):
            c[i, j] = c[i, j - 1] + a[i, j]
    return b, c


def halved(a: Any) -> Any:
    for i in range(len(a)):
        while a[i] > 1.0:
            for j in range(len(a)):
                a[j] = a[j] / 2.0
        a[i] = 7.0
    return a


@pytest.mark.parametrize("function", [orthogonal, scaled_rows, mirrored_rows, summed_rows, halved])
@pytest.mark.parametrize(("share", "wide"), [(4, 10**9), (0.25, 10**9), (0.001, 0)])
def test_threads_wait_for_what_others_of_a_loop_write(
    function: Any, share: float, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also behind independent turns with loops in them, and for what threads that share one turn have to tell."""
    module: Any = importlib.import_module("kernelgraph.compiler.targets.cuda.sequential")
    monkeypatch.setattr(module, "SHARE", share)
    monkeypatch.setattr(module, "WIDE", wide)
    monkeypatch.setattr(module, "MOST_THREADS", 128)
    monkeypatch.setattr(module, "CLUSTER", 3)
    shape = 9 if function is halved else (9, 9)
    with recorded():
        nodes = kg.kernel_graph(function, device="cpu").graph(np.ones(shape)).nodes
    (routine,) = {n.attr("routine") for n in nodes if n.op == "sequential"}
    routine = routine_for_printing(routine, [i for i, a in enumerate(routine.arrays) if a.role == "out"])
    given = [abs(a) + 1.5 for a in arguments(routine)]
    written = [a for a in routine.arrays if a.role in ("out", "inout")]
    for got, want, array in zip(emulated(routine, given), evaluate_routine(routine, given), written, strict=True):
        assert array.role == "out" or np.allclose(got, want, rtol=1e-12, atol=1e-13), f"{routine}"


def products_of_rows(a: Any, b: Any) -> Any:
    found = np.zeros((b.shape[1], b.shape[1]))
    for i in range(b.shape[1]):
        found[i, i:] = b[:, i] @ b[:, i:]
        found[i:, i] = found[i, i:]
    for k in range(len(a)):
        for j in range(b.shape[1]):
            b[0, j] = b[0, j] * 0.5 + a[k, j]
    return found


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_independent_turns_within_a_loop_each_run_all_of_it(rows: int) -> None:
    """So threads that sum rows, or follow a recurrence, do not meet after each."""
    with recorded():
        nodes = kg.kernel_graph(products_of_rows, device="cpu").graph(np.ones((rows, 6)), np.ones((9, 6))).nodes
    for routine in {n.attr("routine") for n in nodes if n.op == "sequential"}:
        unread = [n for n, array in enumerate(routine.arrays) if array.role == "out"]  # the last turns' numbers
        routine, given = routine_for_printing(routine, unread), arguments(routine)
        turned, shape = cuda_routine_and_shape(routine, False)
        assert turned is not routine and len(turned.variables) > len(routine.variables)
        meets = [cuda_kernel_of_routine(r, shape).source.count("sync_warp()") for r in (routine, turned)]
        assert meets[1] < meets[0]
        want = evaluate_routine(routine, given)
        assert all(map(np.array_equal, evaluate_routine(turned, given), want))
        assert all(map(np.array_equal, emulated(routine, given), want))


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "?"])
@pytest.mark.parametrize("reduction", ["sum", "prod", "min", "max", "any", "all"])
def test_a_reduction_of_rows_of_each_dtype(tmp_path: Path, reduction: str, dtype: str) -> None:
    function = program(tmp_path, f"np.{reduction}(u)", "number")
    x = np.ones((9, 12), dtype)
    with recorded():
        nodes = kg.kernel_graph(function, device="cpu").graph(x, x, np.zeros(x.shape), np.zeros(9, np.int64)).nodes
    (routine,) = {n.attr("routine") for n in nodes if n.op == "sequential"}
    given = arguments(routine)
    for got, want in zip(emulated(routine, given), evaluate_routine(routine, given), strict=True):
        np.testing.assert_array_equal(got, want)
