"""Every stage of every program is text, and the text is the test. `make golden` writes it anew; read the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelgraph as kg
from kernelgraph.runtime.program.plan import all_kernels_of_plan
from kernelgraph.runtime.program.program import Kernel

from .programs import CHAIN, PROGRAMS

TEXTS = Path(__file__).parent / "text"


def stages(function, args) -> str:
    """Graph, program, plan and the structured form of each kernel, for the fake device."""
    decorated = kg.kernel_graph(device="fake")(function)
    program = decorated.program(*args)
    forms = dict.fromkeys(str(k.form) for k in all_kernels_of_plan(decorated.plan(*args)))
    parts = [str(decorated.graph(*args)), str(program), str(decorated.plan(*args)), *forms]
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_stages(name, request):
    compare(f"{name}.txt", stages(*PROGRAMS[name]), request)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["stencil", "softmax"])
def test_kernel_text(name, target, request):
    """The text that each target compiles."""
    from kernelgraph.compiler.pipeline import compile_graph_to_program
    from kernelgraph.compiler.targets.cpu.kernel import print_llvm_kernel

    function, args = PROGRAMS[name]
    graph = kg.kernel_graph(device="fake")(function).graph(*args)
    kernels = [t.kernel for t in compile_graph_to_program(graph, target).tasks if isinstance(t.kernel, Kernel)]
    sources = [print_llvm_kernel(k.form, None, 32) if target == "cpu" else k.source for k in kernels]
    compare(f"{name}.{target}.txt", "\n\n".join(sources) + "\n", request)


def test_channels_last(request):
    """Convolutions of 16 bits as calls of a library's, by themselves and with channels last between them."""
    from kernelgraph.compiler.core.cost import work_cost_model_of_gpu
    from kernelgraph.compiler.decompose.rules import lay_out_convolutions
    from kernelgraph.runtime.program.device import H200
    from tests.runtime.devices.cuda.test_cuda_cudnn import Library, decided

    function, args = CHAIN
    apart = decided(kg.kernel_graph(device="fake")(function).graph(*args), Library())
    together = lay_out_convolutions(apart, Library(), work_cost_model_of_gpu(H200))
    compare("channels_last.txt", f"{apart}\n\n{together}\n", request)


def compare(name: str, text: str, request: pytest.FixtureRequest) -> None:
    path = TEXTS / name
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is missing; run `make golden`"
    assert text == path.read_text(), f"{name} differs; run `make golden` and read the diff"
