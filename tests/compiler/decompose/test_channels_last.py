"""Chains of convolutions of 16 bits keep their channels last, and mean what they meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.core.cost import work_cost_model_of_gpu
from kernelgraph.compiler.decompose.channels_last import finish_convolutions, keep_channels_last
from kernelgraph.compiler.decompose.dnn import cut_images_of_gradients
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.program.device import H200, GpuProperties
from kernelgraph.runtime.program.dnn import DnnCall
from tests.counts import examples
from tests.runtime.devices.cuda.test_cuda_cudnn import Library, calls_in, decided, random, traced

BFLOAT16 = ml_dtypes.bfloat16
CHANNELS = 40  # so many that a convolution is a call
Step = Callable[[Any, Any, Any], Any]  # of an image, weights (CHANNELS, CHANNELS, 3, 3), and a row of CHANNELS


def wide(row: Any, x: Any) -> Any:
    return row.reshape(1, -1, *(1,) * (x.ndim - 2))


def normed(x: Any, w: Any, row: Any) -> Any:
    mean = x.astype(np.float32).sum((0, 2, 3), keepdims=True) * np.float32(0.01)
    return ((x.astype(np.float32) - mean) * wide(row, x)).astype(x.dtype)


def halves_turned(x: Any, w: Any, row: Any) -> Any:
    n, c, height, width = x.shape
    return x.reshape(n, 2, c // 2, height, width)[:, ::-1].reshape(x.shape)


BETWEEN: dict[str, Step] = {  # what may stand between two convolutions; none of it leaves an axis to be turned
    "nothing": lambda x, w, row: x,
    "relu": lambda x, w, row: np.maximum(x, 0),
    "a bias": lambda x, w, row: x + wide(row, x),
    "a scale": lambda x, w, row: wide(row, x) * x,
    "gelu": lambda x, w, row: kg.gelu(x),
    "where": lambda x, w, row: np.where(x > 0, x, x * wide(row, x)),
    "max pool": lambda x, w, row: kg.nn.max_pool2d(x, 3, stride=1, padding=1),
    "mean pool": lambda x, w, row: kg.nn.avg_pool2d(x, 3, stride=2, padding=1),
    "repeated": lambda x, w, row: x[:, :, :4, :4].repeat(2, 2).repeat(2, 3),
    "joined": lambda x, w, row: np.concatenate([x[:, :16], np.maximum(x, 0)[:, :24]], 1),
    "padded": lambda x, w, row: np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2))),
    "written": lambda x, w, row: np.concatenate([np.zeros_like(x[:, :, :1]), x[:, :, 1:]], 2),
    "normed": normed,
    "halves turned": halves_turned,
    "another convolution": lambda x, w, row: kg.nn.conv2d(x, w, padding=1) + x,
    "a narrower one": lambda x, w, row: kg.nn.conv2d(x, w[:, :, :1, :1], row),
    "in groups": lambda x, w, row: kg.nn.conv2d(x, w[:, :20], padding=1, groups=2),
    "turned by hand": lambda x, w, row: np.maximum(x.transpose(0, 2, 3, 1) + row, 0).transpose(0, 3, 1, 2),
}


def arrays() -> list[Any]:
    row = random(2, CHANNELS, dtype=BFLOAT16)
    return [random(0, 2, CHANNELS, 8, 8, dtype=BFLOAT16), random(1, CHANNELS, CHANNELS, 3, 3, dtype=BFLOAT16), row]


def chain(*names: str) -> Callable[..., Any]:
    def function(x: Any, w: Any, row: Any) -> Any:
        w = w * BFLOAT16(0.05)
        x = kg.nn.conv2d(x, w, padding=1)
        for name in names:
            x = BETWEEN[name](x, w, row)
        return kg.nn.conv2d(x, w, padding=1)

    return function


def kept(graph: Graph, library: Library) -> Graph:
    return keep_channels_last(graph, library, work_cost_model_of_gpu(H200))


def agree(one: Graph, other: Graph, given: list[Any]) -> None:
    """Sums are added up in another order, and rounded to 16 bits."""
    for a, b in zip(interpret_graph(one, given), interpret_graph(other, given), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        a, b = a.astype(float), b.astype(float)
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-2 * float(np.abs(b).max()))


def axes_changed(graph: Graph) -> list[int]:
    """The places of nodes that change the axes of what is computed, not of what is given or given back."""

    def is_given(number: int) -> bool:
        node = graph.nodes[number]
        return node.op in ("input", "const") or (node.op != "host" and all(map(is_given, node.args)))

    turned = [i for i, n in enumerate(graph.nodes) if n.op == "permute" and not is_given(n.args[0])]
    wide = [i for i in turned if graph.nodes[graph.nodes[i].args[0]].op != "broadcast"]
    return [i for i in wide if i not in graph.outputs and 1 not in graph.nodes[i].type.shape]


@pytest.mark.parametrize("name", BETWEEN)
def test_chains(name: str) -> None:
    given = arrays()
    before = decided(traced(chain(name), *given), Library())
    found = kept(before, Library())
    apart = name not in ("nothing", "padded", "in groups", "turned by hand")
    assert bool(axes_changed(before)) == apart
    assert not axes_changed(found)
    agree(found, before, given)


@given(st.lists(st.sampled_from(list(BETWEEN)), min_size=2, max_size=4))
@settings(max_examples=examples(30), deadline=None)
def test_random_chains(names: list[str]) -> None:
    given = arrays()
    before = decided(traced(chain(*names), *given), Library())
    found = kept(before, Library())
    assert not axes_changed(found)
    agree(found, before, given)


@pytest.mark.parametrize("name", ["nothing", "relu", "max pool", "mean pool", "repeated", "joined", "normed"])
def test_gradients_of_chains(name: str) -> None:
    """What comes back to an image of one convolution goes on to the next with channels last too."""

    def loss(x: Any, w: Any, row: Any) -> Any:
        return (chain(name)(x, w, row).astype(np.float32) ** 2).sum()

    given = arrays()
    before = decided(traced(lambda *args: kg.grad(loss, (0, 1, 2))(*args), *given), Library())
    found = kept(cut_images_of_gradients(before, Library()), Library())
    agree(found, before, given)
    weights = [i for i in axes_changed(found) if found.nodes[i].type.shape[2:] == (3, 3)]
    assert axes_changed(found) == weights  # these lie as the user's do


def test_images_that_are_given_with_channels_last() -> None:
    """A user's own order of axes is kept too."""
    x, w, _ = arrays()
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    graph = traced(lambda x, w: np.maximum(kg.nn.conv2d(x.transpose(0, 3, 1, 2), w), 0), x, w)
    (call,) = (n for n in kept(decided(graph, Library()), Library()).nodes if n.op == "host")
    assert call.args[0] == 0


def test_program_of_a_chain() -> None:
    """Each convolution reads what the one before wrote, and what is between: nothing is copied but the ends."""
    given = arrays()
    graph = traced(lambda x, w, row: np.maximum(chain("a bias", "relu")(x, w, row), 0), *given)
    program = compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=Library()))
    names = [task.name for task in program.tasks]
    assert names.count("convolution") == 2 and len(names) == 6  # the weights, the image, what follows each


def test_weights_of_one_element_are_not_copied() -> None:
    """With channels last they lie as they do."""
    x, w = random(0, 2, CHANNELS, 8, 8, dtype=BFLOAT16), random(1, CHANNELS, CHANNELS, 1, 1, dtype=BFLOAT16)
    program = compile_graph_to_program(traced(kg.nn.conv2d, x, w), "cuda", gpu=GpuProperties(dnn=Library()))
    reads = next(task.reads for task in program.tasks if task.name == "convolution")
    assert reads[1].buffer in program.inputs


@pytest.mark.parametrize("second", [30.0, 60.0, None])
def test_a_call_by_itself_takes_what_is_faster(second: float | None) -> None:
    """second: microseconds with channels second, or that it is refused. To turn the arrays takes 3 us each or more."""

    def is_last(call: DnnCall) -> bool:
        return call.tensors[0].strides[1] == 1

    def refuses(call: DnnCall) -> str:
        return "no engine" if second is None and not is_last(call) else ""

    library = Library(refuses, lambda call: 30.0 if is_last(call) else second)
    given = arrays()[:2]
    for function in (
        kg.nn.conv2d,
        lambda x, w: kg.grad(lambda x: kg.nn.conv2d(x, w).astype(np.float32).sum())(x),
        lambda x, w: kg.grad(lambda w: kg.nn.conv2d(x, w).astype(np.float32).sum())(w),
    ):
        before = decided(traced(function, *given), library)
        found = kept(before, library)
        agree(found, before, given)
        assert all(n.op != "permute" for n in found.nodes) == (second == 30.0)
    chained = kept(decided(traced(chain("relu"), *arrays()), library), library)
    assert not axes_changed(chained)


@pytest.mark.parametrize("second", [3.0, 300.0, None])
def test_single_elements_of_images_by_themselves_are_products_where_these_take_less(second: float | None) -> None:
    """Of each image one, with nothing turned; in a chain they stay calls with channels last."""

    def refuses(call: DnnCall) -> str:
        return "no engine" if second is None and call.tensors[0].strides[1] != 1 else ""

    library = Library(refuses, lambda call: 300.0 if call.tensors[0].strides[1] == 1 else second)
    x, w = random(0, 8, 256, 40, 40, dtype=BFLOAT16), random(1, 64, 256, 1, 1, dtype=BFLOAT16)
    ct = random(2, 8, 64, 40, 40, dtype=BFLOAT16)

    def image(x: Any, w: Any, ct: Any) -> Any:
        return kg.grad(lambda x: (kg.nn.conv2d(x, w) * ct).astype(np.float32).sum())(x)

    def weights(x: Any, w: Any, ct: Any) -> Any:
        return kg.grad(lambda w: (kg.nn.conv2d(x, w) * ct).astype(np.float32).sum())(w)

    for function, fits in (
        (lambda x, w, ct: kg.nn.conv2d(x, w), True),
        (image, True),
        (weights, True),
        (lambda x, w, ct: kg.nn.conv2d(x, w, stride=2), False),
        (lambda x, w, ct: kg.nn.conv2d(x, w, padding=1), False),
        (lambda x, w, ct: kg.nn.conv2d(x, w[:, :128], groups=2), False),
    ):
        before = decided(traced(function, x, w, ct), library)
        found = kept(before, library)
        ops = [n.op for n in found.nodes]
        wanted = fits and second != 3.0
        assert ("matmul" in ops) == wanted and (fits and not wanted) <= (calls_in(found) != [])
        if wanted:
            assert not calls_in(found) and not axes_changed(found)
            agree(found, before, [x, w, ct])


FINISHES: dict[str, tuple[Step, bool]] = {  # what follows a convolution, and whether it is part of the call
    "a bias": (lambda x, w, row: x + wide(row, x), True),
    "a bias and a relu": (lambda x, w, row: np.maximum(x + wide(row, x), 0), True),
    "a relu": (lambda x, w, row: np.maximum(x, 0), False),
    "a larger bound": (lambda x, w, row: np.maximum(x + wide(row, x), 1), False),
    "a bias and gelu": (lambda x, w, row: kg.gelu(x + wide(row, x)), False),
    "a bias of columns": (lambda x, w, row: x + row[: x.shape[3]], False),
    "a bias in float32": (lambda x, w, row: (x + wide(row, x).astype(np.float32)).astype(x.dtype), False),
    "a bias and a pool": (lambda x, w, row: BETWEEN["max pool"](np.maximum(x + wide(row, x), 0), w, row), False),
    "read twice": (lambda x, w, row: np.maximum(x + wide(row, x), 0) * x, False),
}


@pytest.mark.parametrize("name", FINISHES)
@pytest.mark.parametrize("finished", [20.0, 90.0])
def test_a_bias_and_a_relu_are_part_of_a_call_where_that_takes_less(name: str, finished: float) -> None:
    step, fits = FINISHES[name]
    library = Library(times=lambda call: finished if call.option("bias") else 30.0)
    given = arrays()
    graph = traced(lambda x, w, row: kg.nn.conv2d(step(kg.nn.conv2d(x, w), w, row), w), *given)
    before = kept(decided(graph, library), library)
    found = finish_convolutions(before, library, work_cost_model_of_gpu(H200))
    calls = [dict(n.attr("options")) for n in found.nodes if n.op == "host"]
    assert any(call.get("bias") for call in calls) == (fits and finished == 20.0)
    assert any(call.get("relu") for call in calls) == (fits and finished == 20.0 and "relu" in name)
    agree(found, before, given)
