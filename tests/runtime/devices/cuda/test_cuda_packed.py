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
)
from kernelgraph.runtime.devices.cuda.modules.ptx_kernels import (
    COPIES,
    INFINITY,
    WORDS,
    ptx_copy_kernel,
    ptx_pointer_table_kernel,
    ptx_relu_kernel,
    ptx_text_of_kernel,
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
    text = compile_ptx(packed, CC)
    assert f"_param_0[{8 * members * len(kernel.signature)}]" in text and len(link_ptx_to_cubin(text, CC)) > 0
    assert "%ctaid.x" in text and "%nctaid.x" not in text  # members' blocks take turns, however many there are
    assert ".local" not in text  # the arguments are read where they lie


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
    (nbytes,) = re.findall(r"arguments\[(\d+)\]", ptx_text_of_kernel(kernel))
    assert int(nbytes) == 8 * len(kernel.signature) <= 4096


def test_each_member_reads_its_own_row() -> None:
    """The pointers of both members lie first, then their numbers, of which each is read as wide as it is."""
    (task,) = kg.kernel_graph(lambda x, s: x * s, device="cuda").plan(np.ones(8), 2.0).tasks
    kernel = task.kernel
    assert isinstance(kernel, Kernel) and kernel.signature == ("ptr", "ptr", "i64", "float64")
    packed = replace(kernel, options=(*kernel.options, ("packed", 2)))
    text = compile_ptx(packed, CC)
    numbers = 8 * 2 * 2  # behind two pointers of each member
    assert text.count("%ctaid.x") == 1 and "%nctaid.x" not in text
    assert re.findall(rf"ld\.param\.f64\s+%fd\d+, \[%rd\d+\+{numbers + 8}\];", text)
