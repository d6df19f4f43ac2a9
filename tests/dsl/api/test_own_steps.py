"""`kg.host` and `kg.kernel`: the user's own steps take part in the program like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler import pipeline
from kernelgraph.runtime.program.program import Kernel, Program
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import plan_by_cost_model
from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.counts import examples
from tests.dsl.agreement import arrays
from tests.dsl.tracing import interpreted

few = settings(max_examples=examples(25), deadline=None)


def running(x, total, largest):
    """Cumulative sums and maxima, in Python."""
    np.cumsum(x, axis=-1, out=total)
    np.maximum.accumulate(x, axis=-1, out=largest)


def bump(x, u):
    u += x


def scale(x, out, n, factor):
    from numba import cuda  # noqa: F401  # never run: the kernel is compiled without a GPU

    raise AssertionError


def scale_on_the_cpu(x, out, n, factor):
    assert n == len(x)
    out[...] = x * factor


CPP = """
extern "C" __global__ void scale(const double* x, double* out, long long n, double factor) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * factor;
}
"""


def steps(x, w):
    total, largest = kg.host(running, reads=x[..., ::-1] * 2, writes=[kg.spec(x.shape, x.dtype)] * 2)
    kg.host(bump, reads=w, writes=x)
    return total - largest, total.sum(), x


def by_hand(x, w):
    y = x[..., ::-1] * 2
    total, largest = np.cumsum(y, axis=-1, dtype=y.dtype), np.maximum.accumulate(y, axis=-1)
    return total - largest, total.sum(), x + w


STEPS = kg.kernel_graph(steps)


@few
@given(arrays(("f4", "f8", "i8"), (1, 3), 1), st.data())
def test_callbacks_mean_what_they_do(x, data):
    w = data.draw(arrays((x.dtype.str[1:],), shape=x.shape))
    wanted = by_hand(x, w)
    for got, want in zip(interpreted(lambda x, w: steps(x, w)[:2], x, w), wanted[:2], strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
    mine = x.copy()
    difference, total, changed = STEPS(mine, w)
    np.testing.assert_allclose(difference, wanted[0], rtol=1e-5)
    np.testing.assert_allclose(total, wanted[1], rtol=1e-5)
    np.testing.assert_array_equal(mine, wanted[2])
    assert changed is mine


def test_steps_are_scheduled_and_verified():
    """Two callbacks side by side: the plan has them on streams of their own, and passes the verifier."""
    f = kg.kernel_graph(lambda x: [kg.host(running, x * k, [kg.spec(x.shape)] * 2)[0] + 1 for k in (2, 3)], streams=2)
    x = np.arange(50_000.0)
    plan = f.plan(x)
    find_plan_violations(plan)
    assert sum(t.name == "running" for t in plan.tasks) == 2
    for k, got in zip((2, 3), f(x), strict=True):
        np.testing.assert_array_equal(got, np.cumsum(x * k) + 1)


def test_what_nobody_needs_is_left_out_and_equal_steps_are_done_once():
    calls = []

    def counted(x, out):
        calls.append(len(x))
        out[...] = x

    @kg.kernel_graph
    def f(x):
        kg.host(counted, x[1:], kg.spec(len(x) - 1))
        return kg.host(counted, x, kg.spec(x.shape)) + kg.host(counted, x, kg.spec(x.shape))

    np.testing.assert_array_equal(f(np.ones(5)), 2 * np.ones(5))
    assert calls == [5]


def test_a_callback_writes_to_the_result_itself():
    places = []

    def filled(x, out):
        places.append(out.__array_interface__["data"][0])
        out[...] = x

    got = np.asarray(kg.kernel_graph(lambda x: kg.host(filled, x, kg.spec(x.shape)), device="cpu")(np.arange(9.0)))
    assert places == [got.__array_interface__["data"][0]]
    np.testing.assert_array_equal(got, np.arange(9.0))


def test_a_callback_cannot_write_what_it_reads():
    def wrong(x, out):
        x[0] = 1

    got = kg.kernel_graph(lambda x: kg.host(wrong, x, kg.spec(x.shape)))(np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(got)


def test_errors_come_out_where_the_results_are_read():
    def fails(x, out):
        raise KeyError("here")

    def returns(x, out):
        return x

    for callback, error, message in ((fails, KeyError, "here"), (returns, TypeError, "returned a value")):
        broken = kg.kernel_graph(lambda x, callback=callback: kg.host(callback, x, kg.spec(x.shape)))(np.zeros(3))
        with pytest.raises(error, match=message):
            np.asarray(broken)


def test_outside_of_a_trace_it_runs_at_once():
    out = np.ones(4)
    total, largest = kg.host(running, np.arange(4.0), (kg.spec(4), out))
    np.testing.assert_array_equal(total, [0, 1, 3, 6])
    assert largest is out and out.tolist() == [0, 1, 2, 3]
    with kg.override(disable=True):
        np.testing.assert_array_equal(STEPS(np.ones(3), np.ones(3))[0], by_hand(np.ones(3), np.ones(3))[0])
    assert kg.kernel(CPP, (out, 4, 2.0), kg.spec(4), (1, 32), scale_on_the_cpu, "scale").tolist() == [0, 2, 4, 6]


def test_arguments():
    f: Any
    for f, message in (
        (lambda x: kg.host(running, x, ()), "needs writes="),
        (lambda x: kg.host(running, x, 3), "writes= takes"),
        (lambda x: kg.host(3, x, kg.spec(3)), "takes a Python function"),
        (lambda x: kg.kernel(scale, x, kg.spec(3), grid=8), "no launch shape"),
        (lambda x: kg.kernel(scale, x, kg.spec(3), grid=(1, 2000)), "1 to 1024 threads"),
        (lambda x: kg.kernel(CPP, x, kg.spec(3), grid=(1, 32)), "needs name="),
        (lambda x: kg.kernel(3, x, kg.spec(3), grid=(1, 32)), "numba.cuda kernel or CUDA C"),
    ):
        with pytest.raises(kg.ArgumentsError, match=message) as caught:
            kg.kernel_graph(f)(np.ones(3))
        assert str(caught.value).startswith("test_own_steps.py:")


# kernels

KERNELS = kg.kernel_graph(
    lambda x, factor: kg.kernel(
        CPP, (x[::2] + 1, len(x[::2]), factor), kg.spec(x[::2].shape, x.dtype), (4, 64), scale_on_the_cpu, "scale"
    ).sum()
)


def test_on_the_cpu_a_function_does_it():
    x = np.arange(10.0)
    np.testing.assert_array_equal(KERNELS(x, 3.0), ((x[::2] + 1) * 3).sum())
    np.testing.assert_array_equal(interpreted(KERNELS, x, 2.0), ((x[::2] + 1) * 2).sum())


def test_on_the_cpu_without_one_it_is_refused_at_its_line():
    def f(x):
        y = x + 1
        return kg.kernel(CPP, (y, len(x), 2.0), kg.spec(x.shape, x.dtype), (1, 32), name="scale")

    with pytest.raises(kg.UnsupportedError, match=r"runs on GPUs alone.*cpu=f") as caught:
        kg.kernel_graph(f)(np.ones(3))
    assert str(caught.value).startswith(f"test_own_steps.py:{f.__code__.co_firstlineno + 2}:")


def on_cuda(f: kg.KernelGraph, *args: Any) -> Program:
    return pipeline.compile_graph_to_program(f._trace_for_inspection(args, {})[0].graph, "cuda")


def test_on_a_gpu_it_is_one_launch_among_the_others():
    pytest.importorskip("cuda.core")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubin

    program = on_cuda(KERNELS, np.ones(10), 2.0)
    find_plan_violations(plan_by_cost_model(program, "auto", "balanced", MACHINES["cuda"]))
    first, launch, last = program.tasks
    assert isinstance(launch.kernel, Kernel) and launch.kernel.name == "scale"
    assert (launch.grid, launch.block) == ((4, 1, 1), (64, 1, 1))
    assert launch.reads == first.writes and launch.writes[0].buffer == last.reads[0].buffer
    assert compile_cubin(launch.kernel, (9, 0)).startswith(b"\x7fELF")


def test_an_array_that_a_kernel_changes_is_copied_first():
    @kg.kernel_graph
    def f(u):
        kg.kernel(CPP, (u * 1, 3, 2.0), u, (1, 32), name="scale")
        return u.sum()

    program = on_cuda(f, np.ones(3))
    find_plan_violations(plan_by_cost_model(program, "auto", "balanced", MACHINES["cuda"]))
    launch = next(t for t in program.tasks if t.name == "scale")
    (copy,) = (t for t in program.tasks if t.name == "copy")
    assert copy.writes == launch.writes and launch.writes[0] in launch.reads


def test_a_part_of_an_assembly_is_copied_since_kernels_take_no_gaps():
    @kg.kernel_graph
    def f(x):
        y = x @ x
        whole = np.concatenate([y, y * 2], axis=1)
        z = kg.kernel(CPP, (y, y.size, 2.0), kg.spec(y.shape, y.dtype), (1, 32), name="scale")
        return whole, np.concatenate([z, z], axis=1)

    for task in on_cuda(f, np.ones((3, 3))).tasks:
        if task.name == "scale":
            for region in (*task.reads, *task.writes):
                assert region.strides == (24, 8)


def test_what_numba_cannot_compile_for_a_gpu_is_named_with_its_line():
    cuda = pytest.importorskip("numba.cuda")
    pytest.importorskip("cuda.core")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubin

    @cuda.jit
    def wrong(x, out):
        out[0] = x.nothing

    program = on_cuda(kg.kernel_graph(lambda x: kg.kernel(wrong, x, kg.spec(1), (1, 1)) + 1), np.ones(3))
    launch = next(t for t in program.tasks if t.name == "wrong")
    assert isinstance(launch.kernel, Kernel)
    line = wrong.py_func.__code__.co_firstlineno + 2
    with pytest.raises(
        kg.CompileError, match=rf"test_own_steps.py:{line}: wrong cannot be compiled for sm_90.*nothing"
    ):
        compile_cubin(launch.kernel, (9, 0))


def test_numba_kernels_compile_without_a_gpu():
    cuda = pytest.importorskip("numba.cuda")
    pytest.importorskip("cuda.core")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_ptx

    @cuda.jit(device=True)
    def twice(x):
        return 2 * x

    @cuda.jit
    def stencil(x, mask, z, out):
        i, j = cuda.grid(2)
        if 0 < i < x.shape[0] - 1 and j < x.shape[1] and mask[i, j]:
            out[i, j] = twice(x[i - 1, j]) + x[i + 1, j] + z[j].imag

    @kg.kernel_graph
    def f(x, z):
        return kg.kernel(stencil, (x, x > 0, z), kg.spec(x.shape, x.dtype), ((2, 3), (16, 8))) + 1

    program = on_cuda(f, np.ones((20, 30), np.float32), np.ones(30, np.complex64))
    launch = next(t for t in program.tasks if t.name == "stencil")
    assert isinstance(launch.kernel, Kernel) and "20" not in launch.kernel.source  # sizes are arguments
    ptx = compile_ptx(launch.kernel, (9, 0))
    assert "st.global.f32" in ptx and "ld.global.u8" in ptx and "call" not in ptx
