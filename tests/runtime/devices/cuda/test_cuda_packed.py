"""Packed kernels and the device's own, compiled without a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs the extra cuda")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.targets.cuda.kernel import cuda_kernel_of_nest
from kernelgraph.runtime.devices.cuda.compile.compile import (
    compile_cubin,
    compile_ptx,
    link_ptx_to_cubin,
    pack_compiled_ptx_members,
)
from kernelgraph.runtime.devices.cuda.modules.ptx_kernels import (
    COPIES,
    INFINITY,
    WORDS,
    ptx_copy_kernel,
    ptx_pointer_table_kernel,
    ptx_relu_kernel,
)
from kernelgraph.runtime.program.program import Kernel
from kernelgraph.runtime.schedule.batching import BATCH_MOST, PACK_BYTES
from tests.compiler.targets.cuda.test_cuda_text import elementwise, reductions

CC = (9, 0)
few = settings(max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("members", [2, 12])
@few
@given(st.data())
def test_packed_kernels_compile(members: int, data: Any) -> None:
    nest = data.draw(st.one_of(elementwise(), reductions()))[0]
    kernel = cuda_kernel_of_nest(nest)
    packed = replace(kernel, options=(*kernel.options, ("packed", members)))
    text = pack_compiled_ptx_members(compile_ptx(kernel, CC), packed, members)
    assert f"arguments[{8 * members * len(kernel.signature)}]" in text and len(compile_cubin(packed, CC)) > 0
    assert text.count("%ctaid.x") == text.count("%nctaid.x") == 1  # only to find the row


def test_as_many_as_are_packed_compile_with_a_guard() -> None:
    """ptxas refuses more than 32,764 bytes of parameters."""
    (task,) = kg.kernel_graph(lambda x: np.exp(x) * x, device="cuda").plan(np.ones(8, np.float32)).tasks
    assert isinstance(task.kernel, Kernel)
    members = PACK_BYTES // (8 * len(task.arguments))
    options = (*task.kernel.options, ("packed", members), ("guarded", True))
    assert 3 * BATCH_MOST <= WORDS and compile_cubin(replace(task.kernel, options=options), CC)


def test_packed_kernels_may_call_functions() -> None:
    """Of float64, cos and sin call one for large angles, which has a parameter of its own."""
    (task,) = kg.kernel_graph(lambda x: np.cos(x) + np.sin(x), device="cuda").plan(np.ones(8)).tasks
    assert isinstance(task.kernel, Kernel) and "slowpath" in compile_ptx(task.kernel, CC)
    assert compile_cubin(replace(task.kernel, options=(*task.kernel.options, ("packed", 2))), CC)


@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (12, 0)])
@pytest.mark.parametrize(
    "kernel",
    [
        ptx_copy_kernel(1),
        ptx_copy_kernel(COPIES),
        ptx_pointer_table_kernel(1),
        ptx_pointer_table_kernel(WORDS),
        *map(ptx_relu_kernel, INFINITY),
    ],
)
def test_the_devices_own_kernels_link(kernel: Kernel, cc: tuple[int, int]) -> None:
    assert compile_cubin(kernel, cc)
    (nbytes,) = re.findall(r"arguments\[(\d+)\]", kernel.source)
    assert int(nbytes) == 8 * len(kernel.signature) <= 4096


def test_however_a_kernel_reads_its_parameters_they_are_packed() -> None:
    """By halves, as a float64's sign is, several at once, or by their address."""
    (task,) = kg.kernel_graph(lambda x, s: x * s, device="cuda").plan(np.ones(8), 2.0).tasks
    kernel = task.kernel
    assert isinstance(kernel, Kernel)
    place = f"{kernel.name}_param_2"
    packed = replace(kernel, options=(*kernel.options, ("packed", 2)))
    plain = compile_ptx(kernel, CC)
    (load,) = re.findall(rf"\tld\.param\.\w+\s+\S+ \[{place}\];\n", plain)
    declared = "\t.reg .b32 %half<3>;\n\t.reg .b64 %at<2>;\n"
    reads = f"\tld.param.u32 %half0, [{place}+4];\n\tld.param.v2.u32 {{%half1, %half2}}, [{place}];\n"
    reads += f"\tmov.b64 %at0, {place};\n\tld.param.u64 %at1, [%at0];\n"
    text = pack_compiled_ptx_members(plain.replace(load, declared + load + reads), packed, 2)
    rows = 8 * 2 * 2  # the pointers of both members
    assert f"[%packedwide2+{rows + 4}]" in text and f"add.s64 %at0, %packedwide2, {rows};" in text
    assert link_ptx_to_cubin(text, CC)
