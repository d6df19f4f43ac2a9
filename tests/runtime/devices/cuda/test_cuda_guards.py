"""Guarded and turned forms of kernels, and the kernels that say what is true, as text that links."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="needs the extra cuda")

import kernelgraph as kg
from kernelgraph.compiler.targets.cuda.kernel import cuda_kernel_of_nest
from kernelgraph.runtime.core.errors import CompileError
from kernelgraph.runtime.devices.cuda.compile.compile import (
    compile_cubin,
    compile_ptx,
    pack_compiled_ptx_members,
)
from kernelgraph.runtime.devices.cuda.modules import predicated_kernels as g
from kernelgraph.runtime.devices.cuda.modules.ptx_kernels import ptx_copy_kernel
from kernelgraph.runtime.program.device import H200
from kernelgraph.runtime.program.program import Kernel
from tests.runtime.devices.cuda.test_cuda_compile import CC, products


def with_options(kernel: Kernel, *options: tuple[str, object]) -> Kernel:
    return replace(kernel, options=(*kernel.options, *options))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    """Three inputs and an output."""
    return cuda_kernel_of_nest(products(False))


def test_the_forms_link(kernel: Kernel) -> None:
    moves = tuple(8 * i for i in range(len(kernel.signature)))
    turned = with_options(kernel, ("guarded", True), ("turned", moves))
    assert len(compile_cubin(turned, CC)) > len(compile_cubin(kernel, CC))
    compile_cubin(with_options(kernel, ("packed", 3), ("guarded", True)), CC)
    compile_cubin(with_options(ptx_copy_kernel(2), ("guarded", True)), CC)


def test_a_guard_comes_first_and_its_words_last(kernel: Kernel) -> None:
    plain = compile_ptx(kernel, CC)
    text = g.add_predicate_to_ptx(plain, kernel)
    parameters, _, body = text.partition(")")
    assert re.findall(r"_(guard|param)_(\d)", parameters)[-3:] == [("guard", "0"), ("guard", "1"), ("guard", "2")]
    assert body.index("%guarded ret") < body.index("_param_0")
    packed = g.add_predicate_to_ptx(pack_compiled_ptx_members(plain, kernel, 3), kernel)
    (size,) = map(int, re.findall(r"arguments\[(\d+)\]\n", packed))
    assert size == 8 * (3 * len(kernel.signature) + 3) and f"[arguments+{size - 8}]" in packed


def test_each_parameter_that_moves_is_moved_where_it_is_read(kernel: Kernel) -> None:
    moves = (0, 16, 0, -8, *[0] * (len(kernel.signature) - 4))
    turned = g.add_predicate_to_ptx(compile_ptx(kernel, CC), with_options(kernel, ("turned", moves)))
    found = re.findall(r"_param_(\d+)\];\n\tmad\.lo\.s64 (%rd\d+), %turn64, (-?\d+), \2;", turned)
    assert {(int(k), int(move)) for k, _, move in found} == {(1, 16), (3, -8)}


def test_kernels_that_call_functions_have_the_forms_too() -> None:
    """Of float64, cos calls one for large angles, which has a parameter of its own."""
    (task,) = kg.kernel_graph(lambda x: np.cos(x), device="cuda").plan(np.ones(8)).tasks
    assert isinstance(task.kernel, Kernel) and "slowpath" in compile_ptx(task.kernel, CC)
    moves = (8,) * len(task.kernel.signature)
    assert compile_cubin(with_options(task.kernel, ("guarded", True), ("turned", moves)), CC)


def test_what_cannot_be_moved_is_refused(kernel: Kernel) -> None:
    text = compile_ptx(kernel, CC)
    floating = re.sub(r"ld\.param\.u64(\s+)%rd", r"ld.param.f64\1%fd", text)
    hidden = re.sub(r"ld\.param\.u64(\s+%rd\d+), \[(\w+_param_0)\];", r"mov.b64\1, \2;", text)
    for wrong in (floating, hidden):
        assert wrong != text
        with pytest.raises(CompileError, match="cannot be turned"):
            g.add_predicate_to_ptx(wrong, with_options(kernel, ("turned", (8,) * len(kernel.signature))))


def test_what_says_what_is_true_links() -> None:
    guard = g.launch_predicate_on_flags_up_to(256, 3)
    assert guard.mask == 0xFFFFFFFF and guard.want == 0x01010101
    tasks = [
        g.make_flag_initialization_kernel_task(1, 2, guard),
        g.make_loop_count_kernel_task(1, 2, 3, None),
        g.make_iteration_advance_kernel_task(1, 2),
        g.make_graph_condition_kernel_task(guard, 3),
        g.make_selected_copies_kernel_task(1, [(1, 2, 3, 4)] * 3, H200),
    ]
    for task in tasks:
        assert isinstance(task.kernel, Kernel) and len(task.arguments) == len(task.kernel.signature)
        code = compile_cubin(task.kernel, CC)
        assert (b"cudaGraphSetConditional" in code) == (task.name == "decide")
