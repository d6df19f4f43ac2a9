"""cuDNN's calls: found, described and planned with a stand-in for its frontend, which records what it is told."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.decompose import dnn
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.attention import call_attention
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.passes.simplify import simplify_graph
from kernelgraph.compiler.pipeline import (
    compile_graph_to_program,
    explain_decomposition_stage,
    run_decomposition_stage,
)
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.devices.cuda.libraries import cudnn
from kernelgraph.runtime.devices.cuda.libraries.cudnn import Cudnn, CudnnPlan, CudnnStep, make_cudnn_step
from kernelgraph.runtime.devices.cuda.libraries.handles import CublasHandles
from kernelgraph.runtime.interpret.convolution import numpy_convolution
from kernelgraph.runtime.interpret.dnn import numpy_dnn_call
from kernelgraph.runtime.interpret.serial import numpy_call_of_library_task
from kernelgraph.runtime.program.device import GpuProperties
from kernelgraph.runtime.program.dnn import DnnCall, dnn_call_of_arrays
from tests.compiler.passes.test_blocked_products import BATCHED, NEAR_MISSES, TABLE, D, M, N
from tests.counts import examples
from tests.dsl.api.test_nn import convolutions, random

BFLOAT16 = ml_dtypes.bfloat16
seeds = st.integers(0, 2**32 - 1)


class Library:
    """Takes all calls but those that `refuses` says no to."""

    def __init__(self, refuses: Any = lambda call: "", times: Any = lambda call: None) -> None:
        self.calls: list[DnnCall] = []
        self.refuses, self.times = refuses, times

    def __repr__(self) -> str:
        return "a stand-in"

    def workspace(self, call: DnnCall) -> int | str:
        self.calls.append(call)
        return self.refuses(call) or 48

    def microseconds(self, call: DnnCall) -> float | None:
        return self.times(call)


def decided(graph: Graph, library: Any) -> Graph:
    """The graph as a GPU with the library gets it."""
    simple = simplify_graph(run_decomposition_stage(graph, "cuda", None, dnn=library))
    return simplify_graph(run_decomposition_stage(call_attention(simple), "cuda", None, dnn=library))


def calls_in(graph: Graph) -> list[str]:
    return [dict(n.attr("options"))["operation"] for n in graph.nodes if n.op == "host" and n.attr("function") == "dnn"]


def traced(function: Any, *args: Any) -> Graph:
    return kg.kernel_graph(function, device="cpu").graph(*args)


def same_values(one: Graph, other: Graph, args: Any, bound: float) -> None:
    for a, b in zip(interpret_graph(one, args), interpret_graph(other, args), strict=True):
        assert a.dtype == b.dtype
        a, b = a.astype(float), b.astype(float)
        np.testing.assert_allclose(a, b, rtol=0, atol=bound * max(1, float(np.abs(b).max(initial=0))))


# what is decided


@given(seeds, convolutions(), st.sampled_from([BFLOAT16, np.float16, np.float32]))
@settings(max_examples=examples(40), deadline=None)
def test_convolutions_and_their_gradients(seed: int, given: Any, dtype: Any) -> None:
    """Every one is a call of the library's, with the zeros around it, that means the same; each task has its memory."""
    function, options, image, weights = given
    x, w = random(seed, *image, dtype=dtype), random(seed + 1, *weights, dtype=dtype)

    def loss(x: Any, w: Any) -> Any:
        return (function(x, w, **options).astype(np.float32) ** 2).sum()

    graph = traced(lambda x, w: [np.maximum(function(x, w, **options), 0), *kg.grad(loss, (0, 1))(x, w)], x, w)
    library = Library()
    found = decided(graph, library)
    few = weights[0] // options["groups"] <= 2 and np.prod(weights[1:]) <= 32
    few |= dtype == np.float32 and np.prod(weights[2:]) == 1  # which is a product of matrices
    assert calls_in(found) == ["convolution"] * (not few) + ["convolution_image", "convolution_weights"]
    assert all(n.op not in ("concat", "loop") for n in found.nodes) or few
    same_values(found, graph, [x, w], 1e-5 if dtype == np.float32 else 3e-2)
    for call in library.calls:
        assert [len(t.shape) for t in call.tensors] == [max(4, len(image))] * 3
        last = {t.strides[1] for t in call.tensors}
        assert dtype == np.float32 or last == {1}
    program = compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=library))
    tasks = [t for t in program.tasks if t.name.startswith("convolution")]
    assert len(tasks) == len(calls_in(found))
    assert all(program.buffers[t.writes[1].buffer].nbytes == 48 for t in tasks)


def test_derivatives_of_gradients_are_convolutions() -> None:
    x, w = random(0, 2, 4, 7, 8), random(1, 6, 2, 3, 2)
    options = {"stride": (2, 1), "padding": (1, 0), "groups": 2}

    def inner(x: Any, w: Any) -> Any:
        return (kg.nn.conv2d(x, w, **options) ** 3).sum()

    def outer(x: Any, w: Any) -> Any:
        dx, dw = kg.grad(inner, (0, 1))(x, w)
        return (dx**2).sum() + (dw**2).sum()

    graph = traced(lambda x, w: kg.grad(outer, (0, 1))(x, w), x, w)
    functions = {n.attr("function") for n in graph.nodes if n.op == "host"}
    assert functions == {"convolution", "convolution_image", "convolution_weights"}
    dx, dw = interpret_graph(graph, [x, w])
    value = lambda x, w: interpret_graph(traced(outer, x, w), [x, w])[0]  # noqa: E731
    for slope, (a, b) in ((dx, (1e-5, 0)), (dw, (0, 1e-5))):
        direction = random(2, *slope.shape)
        step = (a * direction if a else 0 * x), (b * direction if b else 0 * w)
        rise = value(x + step[0], w + step[1]) - value(x - step[0], w - step[1])
        np.testing.assert_allclose(rise / 2e-5, (slope * direction).sum(), rtol=1e-6)
    same_values(run_decomposition_stage(graph, "cpu", None), graph, [x, w], 1e-12)


def test_refused_padding_is_tried_without() -> None:
    library = Library(lambda call: "uneven" if any(a != b for a, b in call.option("padding")) else "")
    x, w = random(0, 1, 40, 6, 6, dtype=np.float32), random(1, 8, 40, 3, 3, dtype=np.float32)
    graph = traced(lambda x, w: kg.nn.conv2d(np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 1))), w), x, w)
    found = decided(graph, library)
    assert [call.option("padding") for call in library.calls] == [((0, 1), (1, 1)), ((0, 0), (0, 0))]
    assert calls_in(found) == ["convolution"]
    same_values(found, graph, [x, w], 1e-5)


def test_what_no_library_does_is_as_before() -> None:
    """Mixed dtypes, float64, none at all, a library that refuses, and a missing one, which a remark names."""
    x, w = random(0, 1, 40, 6, 6, dtype=np.float32), random(1, 8, 40, 3, 3, dtype=np.float32)
    graph = traced(kg.nn.conv2d, x, w)
    plain = decided(graph, None)
    assert decided(graph, Library(lambda call: "no engine")) == plain
    remarks: dict[str, None] = {}
    run_decomposition_stage(graph, "cuda", None, remarks)
    assert "pip install '.[cudnn]'" in "".join(remarks)
    for a, b in ((x.astype(float), w.astype(float)), (x, w.astype(np.float16)), (x[:0], w)):
        library = Library()
        decided(traced(kg.nn.conv2d, a, b), library)
        assert not library.calls


@pytest.mark.parametrize(("channels", "is_call"), [(3, False), (8, False), (9, True), (32, True)])
def test_many_channels_of_one_place_are_no_few_products(channels: int, is_call: bool) -> None:
    """A kernel that adds up that many would be long, and read memory in the wrong order."""
    x, w = random(0, 2, channels, 6, 6, dtype=BFLOAT16), random(1, 2, channels, 1, 1, dtype=BFLOAT16)
    graph = traced(kg.nn.conv2d, x, w)
    found = decided(graph, Library())
    assert calls_in(found) == ["convolution"] * is_call
    same_values(found, graph, [x, w], 2e-2)


def test_explain_names_the_extra() -> None:
    """Of what cuDNN would do; what did a call is said with it."""
    q = random(0, 2, N, 8, dtype=BFLOAT16)
    graph, library = traced(lambda q: kg.nn.attention(q, q, q, causal=True), q), Library()
    layouts = [MemoryLayout.contiguous(graph.nodes[i].type) for i in graph.inputs]
    (line,) = explain_decomposition_stage(graph, "cuda", layouts)
    assert "attention" in line and "pip install '.[cudnn]'" in line
    (line,) = explain_decomposition_stage(graph, "cuda", layouts, library)
    assert line.endswith(": a stand-in")
    assert not explain_decomposition_stage(graph, "cpu", layouts)
    wide = traced(lambda q: kg.nn.attention(q, q, q), q.astype(np.float32))
    (line,) = explain_decomposition_stage(wide, "cuda", layouts)
    assert "pip" not in line
    text = kg.kernel_graph(kg.nn.conv2d, device="fake").explain(
        kg.spec((2, 40, 9, 9), "float32"), kg.spec((8, 40, 3, 3), "float32")
    )
    assert "pip install '.[cudnn]'" in text


def rounded(found: Any, dtype: Any) -> Any:
    return tuple(x.astype(dtype) for x in found) if isinstance(found, (tuple, list)) else found.astype(dtype)


FOUND = {  # spellings of attention that are one call
    "kg.nn": None, "kg.nn, causal": 0, "kg.nn, scaled": None, "kg.nn.softmax": None, "maximum subtracted": None,
    "maximum not subtracted": None, "dot": None, "matmul": None, "einsum": None, "tensordot": None, "inner": None,
    "queries scaled first": None, "keys scaled first": None, "normalized last": None, "log softmax": None,
    "result turned": None, "causal by where": 0, "causal by tril": 0, "causal in place": 0, "banded": None,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16, np.float32])
@pytest.mark.parametrize("name", TABLE)
def test_spellings_of_attention(name: str, dtype: Any) -> None:
    args = [random(i, n, D, dtype=dtype) for i, n in enumerate((N, M, M))]
    graph = traced(lambda *args: rounded(TABLE[name](*args), dtype), *args)
    library = Library()
    found = decided(graph, library)
    matches = name in FOUND and dtype != np.float32
    assert calls_in(found) == ["attention"] * matches
    if matches:
        assert all(n.op != "matmul" for n in found.nodes)
        assert library.calls[-1].option("bound") == FOUND[name]
    same_values(found, graph, args, 1e-5 if dtype == np.float32 else 2e-2)


@pytest.mark.parametrize("name", BATCHED)
def test_batches_and_heads(name: str) -> None:
    args = [random(i, 2, 3, N, D, dtype=BFLOAT16) for i in range(3)]
    graph, library = traced(lambda *args: BATCHED[name](*args).astype(BFLOAT16), *args), Library()
    found = decided(graph, library)
    assert set(calls_in(found)) == {"attention"}
    same_values(found, graph, args, 2e-2)
    if name.startswith("grouped"):
        assert [t.shape[1] for t in library.calls[-1].tensors] == [3, 1, 1, 3]


@pytest.mark.parametrize("name", [n for n in FOUND if not n.startswith("kg.nn,")])
def test_results_in_float32_are_computed_in_float32(name: str) -> None:
    """As NumPy gives them for 16-bit arrays; cuDNN would round them."""
    args = [random(i, n, D, dtype=BFLOAT16) for i, n in enumerate((N, M, M))]
    graph = traced(lambda *args: TABLE[name](*args).astype(np.float32) * 1, *args)
    if name != "kg.nn":  # whose result is of its first argument's dtype
        assert not calls_in(decided(graph, Library()))
        same_values(decided(graph, Library()), graph, args, 1e-5)


@pytest.mark.parametrize("name", [n for n in NEAR_MISSES if n != "thick"])  # which is one
def test_near_misses_of_attention(name: str) -> None:
    library = Library()
    args = [random(i, N, D, dtype=BFLOAT16) for i in range(3)]
    try:
        graph = traced(NEAR_MISSES[name], *args)
    except kg.UnsupportedError:
        pytest.skip("not of 16-bit floats")
    assert not calls_in(decided(graph, library))


def places() -> tuple[Any, Any]:
    return np.arange(N)[:, None], np.arange(N)


MASKS: dict[str, tuple[Any, int | None]] = {  # of queries' and keys' places what is seen, and the bound that this is
    "one key more": (lambda i, j: j <= i + 1, 1),
    "seven more": (lambda i, j: i - j >= -7, 7),
    "turned": (lambda i, j: ~(j > i), 0),
    "tril": (lambda i, j: np.tril(np.ones((N, N), bool), 2), 2),
    "own place hidden": (lambda i, j: j < i, None),
    "later keys": (lambda i, j: j >= i, None),
    "every second": (lambda i, j: 2 * j <= i, None),
    "a band": (lambda i, j: abs(i - j) < 5, None),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    """Those that are no bound are biases; a query that sees nothing gets NaN."""
    make, bound = MASKS[name]
    args = [random(i, N, D, dtype=BFLOAT16) for i in range(3)]
    graph, library = traced(lambda q, k, v: kg.nn.attention(q, k, v, make(*places())), *args), Library()
    found = decided(graph, library)
    assert [(call.option("bound"), call.option("bias")) for call in library.calls] == [(bound, bound is None)]
    same_values(found, graph, args, 2e-2)


def softmax(s: Any) -> Any:
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _scores(q: Any, k: Any) -> Any:
    return q @ k.swapaxes(-1, -2) * np.float32(0.5)


def _masked_in_place(q: Any, k: Any, v: Any, m: Any) -> Any:
    s = _scores(q, k)
    s[..., ~m] = -np.inf
    return softmax(s) @ v


def _grouped(q: Any, k: Any, v: Any, m: Any) -> Any:
    """Three heads of queries for one of keys each."""
    heads = np.stack([q, q + q, q * q], 1)
    m = m[:, None] if m.ndim > 2 else m
    return (softmax(np.where(m, _scores(heads, k[:, None]), -np.inf)) @ v[:, None]).astype(q.dtype).sum(1)


LOW = np.float32(-1e9)
SEEN: dict[str, Any] = {  # spellings with booleans, of q, k, v (2, N, D) and m
    "kg.nn": kg.nn.attention,
    "kg.nn, causal": lambda q, k, v, m: kg.nn.attention(q, k, v, m, causal=True),
    "where": lambda q, k, v, m: softmax(np.where(m, _scores(q, k), -np.inf)) @ v,
    "where, hidden": lambda q, k, v, m: softmax(np.where(~m, -np.inf, _scores(q, k))) @ v,
    "where, a low number": lambda q, k, v, m: softmax(np.where(m, _scores(q, k), LOW)) @ v,
    "where, scaled after": lambda q, k, v, m: (
        softmax(np.where(m, q @ k.swapaxes(-1, -2), LOW) / np.float32(2)) @ v
    ),
    "where of numbers, added": lambda q, k, v, m: softmax(_scores(q, k) + np.where(m, np.float32(0), LOW)) @ v,
    "a product with a low number, added": lambda q, k, v, m: softmax(_scores(q, k) + (~m) * LOW) @ v,
    "one less, times a low number": lambda q, k, v, m: softmax(_scores(q, k) + (1 - m.astype("f4")) * LOW) @ v,
    "einsum": lambda q, k, v, m: np.einsum(
        "bij,bjd->bid", softmax(np.where(m, np.einsum("bid,bjd->bij", q, k), -np.inf)), v
    ),
    "both masks": lambda q, k, v, m: softmax(
        np.where(m & (np.arange(N)[:, None] >= np.arange(N)), _scores(q, k), LOW)
    ) @ v,
    "grouped": _grouped,
}  # fmt: skip
ADDED: dict[str, Any] = {  # with floats
    "kg.nn": kg.nn.attention,
    "kg.nn, causal": lambda q, k, v, m: kg.nn.attention(q, k, v, m, causal=True),
    "added": lambda q, k, v, m: softmax(_scores(q, k) + m) @ v,
    "added first": lambda q, k, v, m: softmax(m + _scores(q, k)) @ v,
    "subtracted": lambda q, k, v, m: softmax(_scores(q, k) - m) @ v,
    "scaled after": lambda q, k, v, m: softmax((q @ k.swapaxes(-1, -2) + m) * np.float32(0.5)) @ v,
    "times a number": lambda q, k, v, m: softmax(_scores(q, k) + np.float32(3) * m) @ v,
    "in place": lambda q, k, v, m: softmax(np.add(_scores(q, k), m)) @ v,
    "log softmax": lambda q, k, v, m: np.exp(kg.nn.log_softmax(_scores(q, k) + m)) @ v,
    "and hidden": lambda q, k, v, m: softmax(np.where(m > -1, _scores(q, k) + m, -np.inf)) @ v,
    "hidden before": lambda q, k, v, m: softmax(np.where(m > -1, _scores(q, k), -np.inf) + m) @ v,
}  # fmt: skip
APART = {  # what is no attention with one mask and one bias
    "two biases": lambda q, k, v, m: softmax(_scores(q, k) + m + m.swapaxes(-1, -2)) @ v,
    "two masks": lambda q, k, v, m: softmax(np.where(m > 1, np.where(m > 0, _scores(q, k), LOW), 2 * LOW)) @ v,
    "added to what is hidden by a number": lambda q, k, v, m: softmax(np.where(m > 0, _scores(q, k), LOW) + m) @ v,
    "a bias for more": lambda q, k, v, m: softmax(_scores(q, k) + m[:, None]) @ v,
    "multiplied": lambda q, k, v, m: softmax(_scores(q, k) * m) @ v,
    "subtracted from": lambda q, k, v, m: softmax(m - _scores(q, k)) @ v,
    "scores used twice": lambda q, k, v, m: softmax(_scores(q, k) + m) @ v + (_scores(q, k) + m) @ v,
}  # fmt: skip
MASK_SHAPES = [(N, N), (1, N), (N, 1), (2, N, N), (2, 1, N), (1, 1, 1)]


def mask_of_shape(shape: tuple[int, ...], dtype: Any) -> Any:
    numbers = np.random.default_rng(len(shape)).normal(size=shape)
    return numbers > -1 if dtype == np.bool_ else numbers.astype(dtype)


MASKED = [(kind, name) for kind, table in (("seen", SEEN), ("added", ADDED)) for name in table]
MASKERS = {"seen": SEEN, "added": ADDED}


@pytest.mark.parametrize("kind, name", MASKED)
def test_masks_that_are_given(kind: str, name: str) -> None:
    """However they are written, forward and back, and whatever axes they have, they are biases."""
    function, active = MASKERS[kind][name], tuple(range(3 + (kind == "added")))
    for shape in MASK_SHAPES if name == "kg.nn" else MASK_SHAPES[::3]:
        for dtype in (np.bool_,) if kind == "seen" else (BFLOAT16, np.float32):
            args = [random(i, 2, N, D, dtype=BFLOAT16) for i in range(3)]
            mask, library = mask_of_shape(shape, dtype), Library()
            graph = traced(lambda *a: function(*a).astype(BFLOAT16), *args, mask)
            found = decided(graph, library)
            assert calls_in(found) == ["attention"] and library.calls[-1].option("bias")
            same_values(found, graph, [*args, mask], 2e-2)

            def loss(*args: Any) -> Any:
                return (function(*args).astype(args[0].dtype) ** 2).sum()

            slopes = traced(lambda *a: kg.grad(loss, active)(*a), *args, mask)
            found = decided(slopes, Library())
            assert set(calls_in(found)) == {"attention", "attention_gradient"}
            wide = [a.astype(float) for a in args] + [mask if kind == "seen" else mask.astype(float)]
            expected = interpret_graph(traced(lambda *a: kg.grad(loss, active)(*a), *wide), wide)
            for form in (slopes, found, simplify_graph(run_decomposition_stage(slopes, "cuda", None))):
                results = interpret_graph(form, [*args, mask])
                if np.isnan(expected[2]).all():  # a query that sees nothing
                    assert np.isnan(results[2]).all()
                    continue
                for a, b in zip(results, expected, strict=True):
                    bound = 4e-2 * max(1, float(np.abs(b).max()))
                    np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=bound)


@pytest.mark.parametrize("name", APART)
def test_near_misses_of_masks(name: str) -> None:
    args = [random(i, 2, N, D, dtype=BFLOAT16) for i in range(3)]
    mask = mask_of_shape((2, N, N), np.float32)
    graph = traced(lambda *a: APART[name](*a).astype(BFLOAT16), *args, mask)
    assert not calls_in(decided(graph, Library()))


def test_a_mask_for_each_of_many_attentions() -> None:
    """Of rows at once it is a mask with an axis more."""
    args = [random(i, 4, 3, N, D, dtype=BFLOAT16) for i in range(3)]
    mask = mask_of_shape((4, N, N), np.bool_)

    def loss(*args: Any) -> Any:
        return (kg.nn.attention(*args) ** 2).sum()

    graph = traced(lambda *a: kg.vmap(lambda *b: kg.grad(loss, (0, 1, 2))(*b))(*a), *args, mask)
    assert all(n.op != "loop" for n in graph.nodes)
    found = decided(graph, Library())
    assert set(calls_in(found)) == {"attention", "attention_gradient"}
    same_values(found, graph, [*args, mask], 2e-2)


def test_large_masks_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed with blocks of the scores."""
    monkeypatch.setattr(dnn, "MOST_BIAS", N * N * 2 - 1)
    args, mask = [random(i, N, D, dtype=BFLOAT16) for i in range(3)], mask_of_shape((N, N), np.bool_)
    assert not calls_in(decided(traced(kg.nn.attention, *args, mask), Library()))


def gradients(function: Any, *args: Any) -> Graph:
    """Of the sum of the squares of what a function gives."""

    def loss(*args: Any) -> Any:
        return (function(*args).astype(args[0].dtype).astype(np.float32) ** 2).sum()

    return traced(lambda *args: kg.grad(loss, tuple(range(len(args))))(*args), *args)


@pytest.mark.parametrize("name", [*FOUND, *(f"heads, {name}" for name in BATCHED)])
def test_gradients_of_attention(name: str) -> None:
    """One call goes back, whatever the spelling: as the library does it, as operations do, and as NumPy means it."""
    function = FUNCTIONS[name]
    shapes = [(2, 3, N, D)] * 3 if name not in FOUND else [(N, D), (M, D), (M, D)]
    args = [random(i, *shape, dtype=BFLOAT16) for i, shape in enumerate(shapes)]
    graph, library = gradients(function, *args), Library()
    found = decided(graph, library)
    assert set(calls_in(found)) == {"attention", "attention_gradient"}
    assert all(n.op not in ("matmul", "exp") for n in found.nodes)
    wide = [a.astype(float) for a in args]
    expected = interpret_graph(
        traced(lambda *a: kg.grad(lambda *b: (function(*b) ** 2).sum(), (0, 1, 2))(*a), *wide), wide
    )
    for form in (graph, found, simplify_graph(run_decomposition_stage(graph, "cuda", None))):
        for a, b in zip(interpret_graph(form, args), expected, strict=True):
            np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=2e-2 * float(np.abs(b).max()))
    program = compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=library))
    assert all(len(t.writes) in (3, 4) for t in program.tasks if t.name.startswith("attention"))


FUNCTIONS = {**TABLE, **{f"heads, {name}": function for name, function in BATCHED.items()}}


@pytest.mark.parametrize("hidden", [-np.inf, -1e9])
def test_gradients_with_a_given_mask(hidden: float) -> None:
    """The library and the operations give the same, for a row that sees nothing too."""
    args = [random(i, N, D, dtype=BFLOAT16) for i in range(3)]
    mask = np.random.default_rng(0).random((N, N)) < 0.5
    mask[3] = hidden == -np.inf  # of infinities a row would be NaN

    def attend(q: Any, k: Any, v: Any, mask: Any) -> Any:
        scores = np.where(mask, q @ k.T * 0.5, np.float32(hidden))
        return (kg.nn.softmax(scores) @ v).astype(q.dtype).astype(np.float32)

    def slopes(*args: Any) -> Any:
        return kg.grad(lambda *a: (attend(*a) ** 2).sum(), (0, 1, 2))(*args)

    graph = traced(slopes, *args, mask)
    assert {n.attr("function") for n in graph.nodes if n.op == "host"} == {"attention", "attention_gradient"}
    found = decided(graph, Library())
    assert set(calls_in(found)) == {"attention", "attention_gradient"}
    wide = [*(a.astype(np.float64) for a in args), mask]
    apart = decided(graph, Library(lambda call: "no engine"))
    assert not calls_in(apart)
    expected = interpret_graph(traced(slopes, *wide), wide)
    for a, b in [
        pair for form in (found, apart) for pair in zip(interpret_graph(form, [*args, mask]), expected, strict=True)
    ]:
        np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=2e-2 * float(np.abs(b).max()))


def test_derivatives_of_gradients_of_attention() -> None:
    """A second gradient, and a tangent of a gradient, against those of float64."""
    args = [random(i, 2, N, D, dtype=BFLOAT16) for i in range(3)]

    def loss(*args: Any) -> Any:
        return (kg.nn.attention(*args, causal=True).astype(args[0].dtype) ** 2).sum()

    def second(*args: Any) -> Any:
        return kg.grad(lambda *a: sum((g**2).sum() for g in kg.grad(loss, (0, 1, 2))(*a)), (0, 1, 2))(*args)

    def tangent(*args: Any) -> Any:
        return kg.jvp(lambda *a: kg.grad(loss, (0, 1, 2))(*a), args, args)

    for function in (second, tangent):
        graph, wide = traced(function, *args), [a.astype(float) for a in args]
        assert any(n.op == "host" and n.attr("function") == "attention" for n in graph.nodes)
        found = interpret_graph(decided(graph, Library()), args)
        for a, b in zip(found, interpret_graph(traced(function, *wide), wide), strict=True):
            np.testing.assert_allclose(a.astype(float), b, rtol=0, atol=6e-2 * float(np.abs(b).max()))


def test_gradients_of_many_attentions_at_once() -> None:
    """A batch is an axis more, no loop."""
    args = [random(i, 4, 3, N, D, dtype=BFLOAT16) for i in range(3)]

    def loss(*args: Any) -> Any:
        return (kg.nn.attention(*args, causal=True) ** 2).sum()

    graph = traced(lambda *args: kg.vmap(lambda *a: kg.grad(loss, (0, 1, 2))(*a))(*args), *args)
    assert all(n.op != "loop" for n in graph.nodes)
    found = decided(graph, Library())
    assert set(calls_in(found)) == {"attention", "attention_gradient"}
    same_values(found, graph, args, 2e-2)


def test_axes_that_lie_in_another_order_are_not_copied() -> None:
    args = [random(i, 2, N, 3 * 8, dtype=BFLOAT16) for i in range(3)]

    def attend(*args: Any) -> Any:
        q, k, v = (a.reshape(2, N, 3, 8).transpose(0, 2, 1, 3) for a in args)
        return kg.nn.attention(q, k, v).astype(BFLOAT16).transpose(0, 2, 1, 3).reshape(2, N, 24)

    library = Library(lambda call: "float32" if call.tensors[-1].dtype == "float32" else "")
    graph = traced(attend, *args)
    program = compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=library))
    assert [t.name for t in program.tasks] == ["attention"]
    assert {t.strides for t in library.calls[-1].tensors} == {(N * 24, 8, 24, 1)}
    same_values(decided(graph, library), graph, args, 2e-2)


SECTIONS: dict[str, Any] = {  # of an array with queries, keys and values side by side
    "of three": lambda y: [y.reshape(2, N, 3, 4, 8)[:, :, i].transpose(0, 2, 1, 3) for i in range(3)],
    "split": lambda y: [a.reshape(2, N, 4, 8).transpose(0, 2, 1, 3) for a in np.split(y, 3, -1)],
    "of heads": lambda y: [y.reshape(2, N, 4, 24)[..., 8 * i : 8 * i + 8].transpose(0, 2, 1, 3) for i in range(3)],
    "rows first": lambda y: [y.reshape(2, 3, N, 4, 8)[:, i].transpose(0, 2, 1, 3) for i in range(3)],
}


@pytest.mark.parametrize("name", SECTIONS)
@pytest.mark.parametrize("gradient", [False, True])
def test_sections_of_an_array_are_not_copied(name: str, gradient: bool) -> None:
    """The call reads the array that they are sections of."""
    x, w = random(0, 2, N, 16, dtype=BFLOAT16), random(1, 16, 96, dtype=BFLOAT16)

    def attend(x: Any, w: Any) -> Any:
        q, k, v = SECTIONS[name]((x @ w).astype(BFLOAT16))
        return kg.nn.attention(q, k, v, causal=True).astype(BFLOAT16)

    def loss(x: Any, w: Any) -> Any:
        return attend(x, w).astype(np.float32).sum()

    graph = traced((lambda x, w: kg.grad(loss, (0, 1))(x, w)) if gradient else attend, x, w)
    library = Library()
    program = compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=library))
    for task in program.tasks:
        if task.name in ("attention", "attention_gradient"):
            assert len({r.buffer for r in task.reads[:3]}) == 1
    assert {t.strides[2] for t in library.calls[-1].tensors[:3]} <= {96, 32}
    same_values(decided(graph, library), graph, [x, w], 3e-2)


@pytest.mark.parametrize(
    "name", ["elements that are not side by side", "not aligned", "a small part", "of what is given"]
)
def test_sections_that_are_copied(name: str) -> None:
    """Or that lie in an argument, which is read as it is."""
    x, library = random(0, 2, N, 96, dtype=BFLOAT16), Library()

    def attend(x: Any) -> Any:
        y = x if name == "of what is given" else x * x
        first = {"not aligned": 3, "a small part": 8}.get(name, 0)
        part = y[..., first : first + 8] if name in ("a small part", "not aligned") else y[..., 32:64]
        part = y[..., ::2] if name.startswith("elements") else part
        return kg.nn.attention(part, part, part)

    graph = traced(attend, x)
    compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=library))
    assert (library.calls[-1].tensors[0].strides[2] == 96) == (name == "of what is given")
    same_values(decided(graph, library), graph, [x], 2e-2)


# what the frontend is told


class Recorder:
    """Whatever is called, with what."""

    def __init__(self, log: list[Any], refuse: str = "") -> None:
        self.log, self.refuse = log, refuse
        self.data_type = SimpleNamespace(FLOAT="FLOAT", HALF="HALF", BFLOAT16="BFLOAT16")
        self.heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
        self.numerical_note = SimpleNamespace(**{name: name for name in cudnn.INEXACT})
        self.behavior_note = SimpleNamespace(RUNTIME_COMPILATION="RUNTIME_COMPILATION")
        self.diagonal_alignment = SimpleNamespace(TOP_LEFT="TOP_LEFT")

    def create_handle(self) -> str:
        return "handle"

    def pygraph(self, **options: Any) -> Any:
        self.log.append(("pygraph", options))
        return RecordedGraph(self)

    def set_stream(self, handle: str, stream: int) -> None:
        self.log.append(("set_stream", handle, stream))


class RecordedTensor:
    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        def set_fact(value: Any) -> RecordedTensor:
            self.facts[name.removeprefix("set_")] = value
            return self

        return set_fact


class RecordedGraph:
    def __init__(self, frontend: Recorder) -> None:
        self.frontend, self._lowered_graph = frontend, None

    def tensor(self, **facts: Any) -> RecordedTensor:
        return RecordedTensor(facts)

    def get_workspace_size(self) -> int:
        return 80

    def serialize(self, as_bytes: bool) -> bytes:
        return b"kept"

    def __getattr__(self, name: str) -> Any:
        def record(*args: Any, **options: Any) -> Any:
            if name == self.frontend.refuse:
                raise RuntimeError("No valid engine configs\nand more")
            self.frontend.log.append((name, [getattr(a, "facts", a) for a in args], options))
            results = {"sdpa": 2, "conv_fprop": 1, "conv_dgrad": 1, "conv_wgrad": 1, "bias": 1, "relu": 1}.get(name, 0)
            made = [RecordedTensor({}) for _ in range(results)]
            self.frontend.log += [("result", m.facts) for m in made]
            return made[0] if results == 1 else made or None

        return record


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    kept: dict[str, bytes] = {}
    stand_in = SimpleNamespace(
        get=kept.get,
        put=lambda key, data, about: kept.update({key: data}),
        put_first=lambda key, data, about: kept.setdefault(key, data),
    )
    monkeypatch.setattr(cudnn, "_CACHE", stand_in)
    yield kept


def library_call(function: Any, *args: Any) -> DnnCall:
    library = Library(
        lambda call: "float32" if call.operation == "attention" and call.tensors[-1].dtype == "float32" else ""
    )
    decided(traced(function, *args), library)
    return library.calls[-1]


def test_its_handle_is_in_the_account(no_cache: Any) -> None:
    call = library_call(kg.nn.conv2d, random(0, 2, 8, 9, 8, dtype=np.float16), random(1, 8, 8, 3, 3, dtype=np.float16))
    free = iter([(900, 1000), (700, 1000)])
    library = Cudnn("GPU", lambda: None, lambda: Recorder([]), lambda: next(free))
    library.workspace(call)
    driver: Any = SimpleNamespace()
    handles = CublasHandles(lambda nbytes: None, 1 << 30, driver, int, str, library)
    assert library.handle_bytes == handles.handle_bytes == 200


def test_a_convolution_as_the_frontend_is_told(no_cache: Any) -> None:
    x, w = random(0, 2, 40, 9, 8, dtype=np.float16), random(1, 8, 20, 3, 2, dtype=np.float16)
    call = library_call(lambda x, w: kg.nn.conv2d(x, w, padding=(1, 0), stride=(2, 1), groups=2), x, w)
    log: list[Any] = []
    frontend = Recorder(log)
    library = Cudnn("GPU", lambda: log.append("entered"), lambda: frontend)
    assert library.workspace(call) == 80
    assert log[0] == "entered"
    names = [entry[0] for entry in log[1:]]
    assert names == [
        "pygraph", "conv_fprop", "result", "validate", "build_operation_graph", "create_execution_plans",
        "check_support", "build_plans", "pygraph", "deserialize",
    ]  # fmt: skip
    told = log[2][2]
    assert {name: told[name] for name in ("pre_padding", "post_padding", "stride", "dilation")} == {
        "pre_padding": [1, 0], "post_padding": [1, 0], "stride": [2, 1], "dilation": [1, 1]
    }  # fmt: skip
    image, weight = told["image"].facts, told["weight"].facts
    assert image == {"dim": [2, 40, 9, 8], "stride": [2880, 1, 320, 40], "data_type": "HALF", "uid": 1}
    assert weight == {"dim": [8, 20, 3, 2], "stride": [120, 1, 40, 20], "data_type": "HALF", "uid": 2}
    assert log[3][1] == {
        "output": True, "dim": [2, 8, 5, 7], "stride": [280, 1, 56, 8], "data_type": "HALF", "uid": 3
    }  # fmt: skip
    library.workspace(call)
    assert len(log) == 11  # built once
    again = Cudnn("GPU", lambda: None, lambda: frontend)
    assert again.workspace(call) == 80
    assert [entry[0] for entry in log[11:]] == ["pygraph", "deserialize"]  # kept on disk


def test_a_convolution_with_a_bias_and_a_relu_as_the_frontend_is_told(no_cache: Any) -> None:
    x, w = random(0, 2, 40, 9, 8, dtype=np.float16), random(1, 8, 40, 3, 3, dtype=np.float16)
    row = random(2, 8, dtype=np.float16)
    own = {"padding": ((0, 0),) * 2, "stride": (1, 1), "dilation": (1, 1), "groups": 1, "operation": "convolution"}
    own |= {"orders": ((0, 3, 1, 2),) * 4, "bias": True, "relu": True}
    last = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, w)]
    given = [*last, row.reshape(1, 1, 1, 8)]
    shapes = [(a.shape, "float16") for a in given]
    call = dnn_call_of_arrays([*shapes, ((2, 7, 6, 8), "float16")], own)
    log: list[Any] = []
    Cudnn("GPU", lambda: None, lambda: Recorder(log)).workspace(call)
    names = [entry[0] for entry in log]
    assert names[:7] == ["pygraph", "conv_fprop", "result", "bias", "result", "relu", "result"]
    assert log[3][2]["bias"].facts == {"dim": [1, 8, 1, 1], "stride": [8, 1, 8, 8], "data_type": "HALF", "uid": 3}
    assert log[2][1] == log[4][1] == {} and log[6][1]["uid"] == 4 and log[6][1]["stride"] == [336, 1, 48, 8]
    (found,) = numpy_dnn_call(*given, **own, results=[((2, 7, 6, 8), "float16")], workspace=0, flops=0.0)
    wanted = numpy_convolution(x, w, stride=(1, 1), dilation=(1, 1), groups=1) + row[:, None, None]
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), np.maximum(wanted, 0))


class Clock:
    """Plans of a graph take these microseconds; those that take none are refused."""

    def __init__(self, times: list[float | None]) -> None:
        self.times, self.sizes = times, list[Any]()

    def microseconds(self, sizes: Any, enqueue: Any) -> float | None:
        self.sizes.append(sizes)
        enqueue([0] * len(sizes), 7)
        return self.times[len(self.sizes) - 1]


@pytest.mark.parametrize(("times", "built", "known"), [([30.0, None, 20.0, 25.0], 2, 20.0), ([None] * 4, None, None)])
def test_the_fastest_way_to_do_a_convolution_is_kept(
    times: list[float | None], built: int | None, known: float | None, no_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = random(0, 2, 40, 6, 6, dtype=np.float32), random(1, 8, 40, 3, 3, dtype=np.float32)
    call = library_call(kg.nn.conv2d, x, w)
    log: list[Any] = []
    monkeypatch.setattr(RecordedGraph, "get_execution_plan_count", lambda self: len(times), raising=False)
    monkeypatch.setattr(RecordedGraph, "get_workspace_size_plan_at_index", lambda self, at: 16, raising=False)
    library = Cudnn("GPU", lambda: None, lambda: Recorder(log))
    library.clock = clock = Clock(times)  # type: ignore[assignment]
    assert library.microseconds(call) == known
    assert clock.sizes == [[4 * x.size, 4 * w.size, 4 * 2 * 8 * 4 * 4, 16]] * len(times)
    last = [entry[1] for entry in log if entry[0] in ("build_plan_at_index", "build_plans")][-1]
    assert last == ([] if built is None else [built])
    again = Cudnn("GPU", lambda: None, lambda: Recorder(log))
    again.clock = Clock([])  # type: ignore[assignment]
    assert again.microseconds(call) == known  # kept on disk


def test_ways_that_are_compiled_are_the_last_resort(no_cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take half a second each."""
    x, w = random(0, 2, 40, 6, 6, dtype=np.float32), random(1, 8, 40, 3, 3, dtype=np.float32)
    call, compiled = library_call(kg.nn.conv2d, x, w), {0, 2}
    monkeypatch.setattr(RecordedGraph, "get_execution_plan_count", lambda self: 4, raising=False)
    monkeypatch.setattr(RecordedGraph, "get_workspace_size_plan_at_index", lambda self, at: 16, raising=False)
    monkeypatch.setattr(
        RecordedGraph,
        "get_behavior_notes_for_plan_at_index",
        lambda self, at: ["RUNTIME_COMPILATION"] * (at in compiled),
        raising=False,
    )
    for times, built, tried in (([30.0, 20.0], 3, [1, 3, 3]), ([None, None, 7.0], 0, [1, 3, 0, 0])):
        log: list[Any] = []
        no_cache.clear()
        library = Cudnn("GPU", lambda: None, partial(Recorder, log))
        library.clock = Clock(times)  # type: ignore[assignment]
        assert library.microseconds(call) == min(t for t in times if t is not None)
        assert [entry[1][0] for entry in log if entry[0] == "build_plan_at_index"] == tried
        assert tried[-1] == built


@pytest.mark.parametrize(("took", "library_does"), [(1.0, True), (1e6, False), (None, True)])
def test_a_convolution_of_float32_is_done_by_what_is_faster(took: float | None, library_does: bool) -> None:
    x, w = random(0, 2, 40, 6, 6, dtype=np.float32), random(1, 8, 40, 3, 3, dtype=np.float32)
    graph = traced(lambda x, w: kg.nn.conv2d(x, w, padding=1), x, w)
    found = decided(graph, Library(times=lambda call: took))
    assert calls_in(found) == ["convolution"] * library_does
    assert [n.op for n in found.nodes].count("matmul") == (not library_does)
    same_values(found, graph, [x, w], 1e-5)
    (line,) = explain_decomposition_stage(
        graph,
        "cuda",
        [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs],
        Library(times=lambda call: took),
    )
    assert library_does or "cuDNN takes 1000000 us, products of matrices" in line


def test_float32_is_float32(no_cache: Any) -> None:
    x, w = random(0, 2, 40, 9, 8, dtype=np.float32), random(1, 8, 40, 3, 2, dtype=np.float32)
    log: list[Any] = []
    Cudnn("GPU", lambda: None, lambda: Recorder(log)).workspace(library_call(kg.nn.conv2d, x, w))
    assert [entry[1] for entry in log if entry[0] == "deselect_numeric_notes"] == [[list(cudnn.INEXACT)]]


def test_precisions(no_cache: Any) -> None:
    """TF32 where it is asked for; what cuDNN has no name for is done without it. Gradients have the same."""
    x, w = random(0, 2, 40, 9, 8, dtype=np.float32), random(1, 8, 40, 3, 2, dtype=np.float32)
    log: list[Any] = []

    def loss(x: Any, w: Any) -> Any:
        return kg.nn.conv2d(x, w, precision="tf32").sum()

    library = Library()
    graph = traced(lambda x, w: kg.grad(loss, (0, 1))(x, w), x, w)
    found = decided(graph, library)
    assert calls_in(found) == ["convolution_image", "convolution_weights"]
    assert {call.option("precision") for call in library.calls} == {"tf32"}
    same_values(found, graph, [x, w], 1e-5)
    same_values(run_decomposition_stage(graph, "cuda", None), graph, [x, w], 1e-5)
    Cudnn("GPU", lambda: None, lambda: Recorder(log)).workspace(library.calls[-1])
    assert not [entry for entry in log if entry[0] == "deselect_numeric_notes"]
    for name in ("bf16", "tf32x3"):
        graph = traced(partial(kg.nn.conv2d, precision=name), x, w)
        assert not calls_in(decided(graph, Library()))


def test_an_attention_as_the_frontend_is_told(no_cache: Any) -> None:
    args = [random(i, 2, 3, N, 8, dtype=BFLOAT16) for i in range(3)]
    call = library_call(lambda q, k, v: kg.nn.attention(q, k, v, causal=True, scale=0.5), *args)
    log: list[Any] = []
    assert Cudnn("GPU", lambda: None, lambda: Recorder(log)).workspace(call) == 80
    name, given, told = log[1]
    assert (name, [g["uid"] for g in given]) == ("sdpa", [1, 2, 3])
    assert told["attn_scale"] == 0.5 and told["diagonal_band_right_bound"] == 0 and not told["generate_stats"]
    assert log[2][1]["dim"] == [2, 3, N, 8] and log[2][1]["data_type"] == "BFLOAT16"


def test_a_mask_as_the_frontend_is_told(no_cache: Any) -> None:
    args, log = [random(i, 2, 3, N, 8, dtype=BFLOAT16) for i in range(3)], list[Any]()
    call = library_call(kg.nn.attention, *args, mask_of_shape((2, 1, 1, N), np.bool_))
    assert Cudnn("GPU", lambda: None, lambda: Recorder(log)).workspace(call) == 80
    name, given, told = log[1]
    assert (name, [g["uid"] for g in given]) == ("sdpa", [1, 2, 3]) and "diagonal_band_right_bound" not in told
    assert told["bias"].facts == {
        "dim": [2, 1, N, N],
        "stride": [N * N, N * N, N, 1],
        "data_type": "BFLOAT16",
        "uid": 4,
    }
    assert log[2][1]["uid"] == 5


def test_a_broken_library_is_a_reason_and_asked_once(no_cache: Any) -> None:
    x, w = random(0, 2, 40, 9, 8, dtype=np.float32), random(1, 8, 40, 3, 2, dtype=np.float32)
    call, asked = library_call(kg.nn.conv2d, x, w), list[int]()

    def load() -> Any:
        asked.append(1)
        raise OSError("libcudnn.so.9: cannot open shared object file\nlong text")

    library = Cudnn("GPU", lambda: None, load)
    assert library.workspace(call) == "cuDNN cannot be used: libcudnn.so.9: cannot open shared object file"
    graph = traced(kg.nn.conv2d, x[..., :7], w)
    assert not calls_in(decided(graph, library)) and asked == [1]
    refusing = Cudnn("GPU", lambda: None, lambda: Recorder([], "check_support"))
    assert refusing.workspace(call) == "cuDNN has no engine for it: No valid engine configs"


def test_a_step_of_a_task(no_cache: Any) -> None:
    """Addresses with their offsets, the workspace and the stream; None, for the host, where the library refuses or
    wants more memory than was planned."""
    x, w = random(0, 2, 40, 9, 8, dtype=np.float32), random(1, 8, 40, 3, 2, dtype=np.float32)
    log: list[Any] = []
    library = Cudnn("GPU", lambda: None, lambda: Recorder(log))
    program = compile_graph_to_program(traced(kg.nn.conv2d, x, w), "cuda", gpu=GpuProperties(dnn=library))
    (task,) = program.tasks
    attrs: Any = dict(task.kernel.attrs)  # type: ignore[union-attr]
    options = dict(attrs["options"])
    step = make_cudnn_step(None, SimpleNamespace(dnn=library), task, "", options)  # type: ignore[arg-type]
    assert isinstance(step, CudnnStep)
    step([1000 * (b + 1) for b in range(len(program.buffers))], (), 7)
    places = [1000 * (r.buffer + 1) + r.offset for r in (*task.reads, *task.writes)]
    enqueued = ("execute", [dict(enumerate(places[:3], 1)), places[3]], {"handle": "handle"})
    assert log[-2:] == [("set_stream", "handle", 7), enqueued]
    for other, blas in (({**options, "workspace": 8}, library), (options, None)):
        assert make_cudnn_step(None, SimpleNamespace(dnn=blas), task, "", other) is None  # type: ignore[arg-type]


def test_a_plan_that_was_read_is_enqueued_directly() -> None:
    """By the addresses of all arrays in a row; a built one, or with another frontend, by the frontend's own way."""
    log: list[Any] = []

    def enqueue(addresses: int, count: int, workspace: int, handle: int, index: int) -> None:
        log.append((list((ctypes.c_void_p * count).from_address(addresses)), workspace, handle, index))

    graph = RecordedGraph(Recorder(log))
    graph._lowered_graph = SimpleNamespace(_execute_with_raw_ptrs=enqueue)
    handle = SimpleNamespace(backend_handle=5)
    CudnnPlan(graph, 3, True).enqueue([100, 200, 300], 40, handle)
    CudnnPlan(graph, 3, False).enqueue([100, 200, 300], 40, handle)
    graph._lowered_graph = None
    CudnnPlan(graph, 3, True).enqueue([100, 200, 300], 40, handle)
    usual = ("execute", [{1: 100, 2: 200, 3: 300}, 40], {"handle": handle})
    assert log == [([100, 200, 300], 40, 5, -1), usual, usual]


def test_what_the_host_does_instead(no_cache: Any) -> None:
    """A task that no step is made for is NumPy's: the same numbers."""
    x, w = random(0, 2, 40, 9, 8, dtype=np.float32), random(1, 8, 40, 3, 2, dtype=np.float32)
    graph = traced(lambda x, w: kg.nn.conv2d(x, w, padding=1), x, w)
    program = compile_graph_to_program(graph, "cuda", gpu=GpuProperties(dnn=Library()))
    (task,) = program.tasks
    memories = [np.zeros(b.nbytes, np.uint8) for b in program.buffers]
    for buffer, a in zip(program.inputs, (x, w), strict=True):
        memories[buffer][:] = np.frombuffer(a.tobytes(), np.uint8)
    numpy_call_of_library_task(task)([m.ctypes.data for m in memories])
    (expected,) = interpret_graph(graph, [x, w])
    found = memories[program.outputs[0]].view(np.float32).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_first_call_of_a_process_has_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that nothing has opened yet is asked for its properties: it is opened, since only then is all known."""
    opened, place = GpuProperties(name="opened", dnn=Library()), ("cuda", 7)
    monkeypatch.setattr(devices, "open_device", lambda place: SimpleNamespace(properties=opened))
    monkeypatch.setattr(devices, "_cuda_installed", lambda: True)
    for known, installed, expected in (
        (GpuProperties(name="asked"), True, "opened"),
        (GpuProperties(name="asked"), False, "asked"),
        (None, True, "NVIDIA H200"),
    ):
        monkeypatch.setattr(devices, "query_gpu_properties", lambda *place, known=known: known)
        monkeypatch.setattr(devices, "has_dnn_library", lambda kind, installed=installed: installed)
        assert devices.gpu_properties_at(place).name == expected


def test_nothing_is_imported_before_it_is_asked() -> None:
    assert "cudnn" not in sys.modules
    library = cudnn.cudnn_of_gpu("GPU", lambda: None, lambda: None)
    assert (library is None) == (cudnn.util.find_spec("cudnn") is None)
    assert "cudnn" not in sys.modules
