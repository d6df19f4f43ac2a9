"""Launch shapes and costs come from the GPU that runs the program; its kernels' texts do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.cost import work_cost_model_of_gpu
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.launch_shape import choose_cuda_launch_shape
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.devices.cuda.driver import early_start
from kernelgraph.runtime.devices.cuda.modules.ptx_kernels import make_ptx_copy_task
from kernelgraph.runtime.program.device import H200, GpuProperties
from kernelgraph.runtime.program.program import Pointer, Program
from kernelgraph.runtime.schedule.cost_model import MACHINES, machine_model_of_device, machine_share_of_task
from tests.runtime.cuda_calls import device_on
from tests.runtime.cuda_fake import FakeContext

A100 = GpuProperties(
    "NVIDIA A100",
    (8, 0),
    108,
    2048,
    32,
    shared_per_multiprocessor=164 << 10,
    l2_bytes=40 * 2**20,
    memory_bytes=80 * 10**9,
    bandwidth=1.7e6,
)
A10 = GpuProperties(
    "NVIDIA A10",
    (8, 6),
    72,
    1536,
    16,
    shared_per_multiprocessor=100 << 10,
    l2_bytes=6 * 2**20,
    memory_bytes=24 * 10**9,
    bandwidth=0.5e6,
)


def of(shape: tuple[int, ...], op: str, axes: tuple[int, ...] = (), dtype: str = "float32") -> Graph:
    b = GraphBuilder(op)
    x = b.input(ArrayType(shape, np.dtype(dtype)))
    if op == "bincount":
        return b.finish(b.host(op, [x], [ArrayType((100,), np.dtype("int64"))]))
    return b.finish([b.reduce(op, x, axes)])


GRAPHS = {
    "a long sum": of((1 << 24,), "sum", (0,)),
    "columns": of((4096, 480 * 128), "sum", (0,)),
    "counts": of((1 << 24,), "bincount", dtype="int64"),
}


def shapes(program: Program) -> list[Any]:
    return [(t.grid, t.block) for t in program.tasks]


@pytest.mark.parametrize("name", GRAPHS)
def test_launches_fit_the_card(name: str) -> None:
    programs = [compile_graph_to_program(GRAPHS[name], "cuda", gpu=gpu) for gpu in (H200, A100, A10)]
    assert len({str(shapes(p)) for p in programs}) > 1
    assert len({p.tasks[0].kernel for p in programs}) == 1
    for program, gpu in zip(programs, (H200, A100, A10), strict=True):
        assert all(t.block[0] * t.block[1] <= 1024 for t in program.tasks)
        if name != "columns":  # as many blocks as are resident at once, several on each multiprocessor
            assert gpu.multiprocessors <= max(t.grid[0] for t in program.tasks) <= 8 * gpu.multiprocessors


def test_columns_that_leave_multiprocessors_idle_take_larger_blocks() -> None:
    """480 blocks are four for each multiprocessor of an A100, and less on an H200."""
    large, small = (compile_graph_to_program(GRAPHS["columns"], "cuda", gpu=gpu).tasks[0] for gpu in (H200, A100))
    assert large.grid == small.grid == (480, 1, 1)
    assert large.block[1] == 2 * small.block[1]


def _gradient_shape(f: Any, *arrays: Any) -> Any:
    """The launch shape of the first kernel of a value and its gradient."""
    task = kg.value_and_grad(kg.kernel_graph(f, device="fake")).program(*arrays).tasks[0]
    return choose_cuda_launch_shape(task.kernel.form)


def test_kernels_bound_by_arithmetic_hold_fewer_registers() -> None:
    """The largest block bounds what the compiler may give a thread."""
    x, price = np.empty((4096, 1024), np.float32), np.empty(1 << 26, np.float32)

    def norm(x: Any) -> Any:
        centred = x - x.mean(1, keepdims=True)
        return np.tanh(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)).sum()

    def entropy(x: Any) -> Any:
        z = x - x.max(1, keepdims=True)
        return (x * (z - np.log(np.exp(z).sum(1, keepdims=True)))).sum()

    assert _gradient_shape(norm, x).threads == 768 and _gradient_shape(entropy, x).threads == 512
    assert _gradient_shape(lambda x: (np.exp(-x) / np.log(x) / np.sqrt(x)).sum(), price).threads == 768
    assert _gradient_shape(lambda x: (x * x).sum(), price).threads == 512


def test_what_is_broadcast_does_not_decide_how_columns_are_read() -> None:
    """A sum over rows of an array and of its product with numbers, one or two for each row, are read alike."""

    def weighted(count: int) -> Program:
        b = GraphBuilder()
        value, *numbers = (b.input(ArrayType(shape, np.dtype("f4"))) for shape in ((4096, 61440), *[(4096, 1)] * count))
        for number in numbers:
            value = b.map("multiply", value, number)
        return compile_graph_to_program(b.finish([b.reduce("sum", value, (0,))]), "cuda")

    assert shapes(weighted(0)) == shapes(weighted(1)) == shapes(weighted(2))


def test_costs_are_those_of_the_card() -> None:
    assert (
        work_cost_model_of_gpu(H200).flops == pytest.approx(30e6, rel=0.01)
        and work_cost_model_of_gpu(H200).parallelism == 264
    )
    assert (A100.float_lanes, A10.float_lanes, H200.float_lanes) == (64, 128, 128)
    cost = [compile_graph_to_program(GRAPHS["counts"], "cuda", gpu=gpu).tasks[-1].cost for gpu in (H200, A100, A10)]
    assert cost[0] < cost[1] < cost[2]
    assert (
        machine_model_of_device("cuda", H200) == MACHINES["cuda"]
        and machine_model_of_device("cpu", A100) == MACHINES["cpu"]
    )
    (task,) = compile_graph_to_program(of((40 * 128, 64), "max", (1,)), "cuda").tasks
    loads = [machine_share_of_task(task, machine_model_of_device("cuda", gpu)) for gpu in (H200, A100, A10)]
    assert loads[0] < loads[1] < loads[2]


def test_copies_fill_the_card() -> None:
    rows = [(Pointer(0), Pointer(1), 1 << 30)]
    assert [make_ptx_copy_task(rows, gpu).grid[0] for gpu in (H200, A100)] == [8 * 132, 8 * 108]


ATTRIBUTES = {
    8: 49152,
    10: 32,
    16: 108,
    36: 1215000,
    37: 5120,
    38: 40 << 20,
    39: 2048,
    75: 8,
    76: 0,
    81: 164 << 10,
    106: 32,
}


class FakeDriver:
    """libcuda, of a machine with one A100."""

    def cuDeviceGet(self, device: Any, index: int) -> int:
        return 0 if index == 0 else 101

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        value._obj.value = ATTRIBUTES[attribute]
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: Any) -> int:
        name.value = b"NVIDIA A100"
        return 0

    def cuDeviceTotalMem_v2(self, nbytes: Any, device: Any) -> int:
        nbytes._obj.value = 80 * 10**9
        return 0


def test_the_driver_tells_what_a_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_start, "_load_cuda_driver", FakeDriver)
    found = early_start.query_gpu_properties(0)
    assert found is not None and replace(found, bandwidth=A100.bandwidth) == A100
    assert found.bandwidth == pytest.approx(1.29e6, rel=0.01)  # of the 1.555 TB/s on paper
    assert early_start.query_gpu_properties(1) is None


def test_programs_are_compiled_for_the_gpu_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    context = FakeContext()
    context.properties = A100
    f = kg.kernel_graph(lambda x: x.sum(), device="cuda:3")
    x = kg.spec((1 << 24,), np.float32)
    monkeypatch.setitem(devices._open, ("cuda", 3), device_on(context))
    assert shapes(f.program(x)) == shapes(compile_graph_to_program(f.graph(x), "cuda", gpu=A100))
    elsewhere = kg.kernel_graph(lambda x: x.sum(), device="cuda:77")  # there is none: as for an H200
    assert (
        shapes(elsewhere.program(x))
        == shapes(compile_graph_to_program(f.graph(x), "cuda", gpu=H200))
        != shapes(f.program(x))
    )


def test_a_sum_whose_parts_leave_no_rest_is_two_launches() -> None:
    """Of fewer parts than fill the machine there may be some more."""

    def names(length: int, gpu: GpuProperties) -> list[str]:
        return [task.name for task in compile_graph_to_program(of((length,), "sum", (0,)), "cuda", gpu=gpu).tasks]

    assert names(100_000, H200) == names(1 << 24, H200) == ["sum_part", "sum_combine"]
    assert names(100_003, H200) == ["sum_part", "sum_part_rest", "sum_combine"]
