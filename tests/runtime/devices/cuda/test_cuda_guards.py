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
)
from kernelgraph.runtime.devices.cuda.compile.kernel_functions import function_of_kernel_text
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
    turned = with_options(kernel, ("guarded", True), ("advancing", moves))
    assert len(compile_cubin(turned, CC)) > len(compile_cubin(kernel, CC))
    compile_cubin(with_options(kernel, ("packed", 3), ("guarded", True)), CC)
    compile_cubin(with_options(ptx_copy_kernel(2), ("guarded", True)), CC)


def test_a_guard_comes_first_and_its_words_last(kernel: Kernel) -> None:
    count = len(kernel.signature)
    text = compile_ptx(with_options(kernel, ("guarded", True)), CC)
    parameters, _, body = text.partition(".visible .entry")[2].partition(")")
    assert re.findall(r"\.param \.u64 \w+_param_(\d+)", parameters) == [str(i) for i in range(count + 3)]
    first = body[: body.index("bra")]
    assert {*re.findall(r"_param_(\d+)\]", first)} >= {str(count + i) for i in range(3)}
    assert first.count("ld.global") == 1 and "st." not in first  # the word alone
    packed = compile_ptx(with_options(kernel, ("packed", 3), ("guarded", True)), CC)
    size = 8 * (3 * count + 3)
    assert f"_param_0[{size}]" in packed and f"_param_0+{size - 8}]" in packed


def test_each_argument_that_moves_is_moved(kernel: Kernel) -> None:
    moves = (0, 16, 0, -8, *[0] * (len(kernel.signature) - 4))
    text = compile_ptx(with_options(kernel, ("guarded", True), ("advancing", moves)), CC)
    over = re.search(r"ld\.global\.u64\s+(%rd\d+), \[%rd\d+\+8\];", text)
    assert over
    shifted = re.findall(rf"(shl\.b64|mul\.lo\.s64|mad\.lo\.s64|sub\.s64)\s+%rd\d+, .*{over[1]}\b", text)
    assert len(shifted) >= 2


def test_kernels_that_call_functions_have_the_forms_too() -> None:
    """Of float64, cos calls one for large angles, which has a parameter of its own."""
    (task,) = kg.kernel_graph(lambda x: np.cos(x), device="cuda").plan(np.ones(8)).tasks
    assert isinstance(task.kernel, Kernel) and "slowpath" in compile_ptx(task.kernel, CC)
    moves = (8,) * len(task.kernel.signature)
    assert compile_cubin(with_options(task.kernel, ("guarded", True), ("advancing", moves)), CC)


def test_what_cannot_be_moved_is_refused() -> None:
    (task,) = kg.kernel_graph(lambda x, s: x * s, device="cuda").plan(np.ones(8), 2.0).tasks
    assert isinstance(task.kernel, Kernel) and "float64" in task.kernel.signature
    moves = (8,) * len(task.kernel.signature)
    with pytest.raises(CompileError, match="no whole number"):
        compile_cubin(with_options(task.kernel, ("guarded", True), ("advancing", moves)), CC)


@pytest.mark.parametrize("form", ["guarded", "advancing", "packed"])
def test_a_form_is_compiled_from_the_function_that_is_there(kernel: Kernel, form: str, monkeypatch) -> None:
    """A predicate or a move is put round the function, which numba has compiled once; a packed one is another."""
    options = {"guarded": [("guarded", True)], "packed": [("packed", 2)]}
    options["advancing"] = [("guarded", True), ("advancing", (8,) * len(kernel.signature))]
    other = replace(kernel, name=f"k_{form}", source=kernel.source.replace("def k(", f"def k_{form}("))
    compile_ptx(other, CC)
    made, before = [], function_of_kernel_text.cache_info().misses
    made.append(compile_ptx(with_options(other, *options[form]), CC))
    after = function_of_kernel_text.cache_info().misses
    assert after - before == (form == "packed") and f".entry k_{form}(" in made[0]


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
