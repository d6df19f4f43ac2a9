"""Convolutions found in plain NumPy: windows by how they are made, times how they are contracted; and near misses."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import kernelgraph as kg
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.contractions import call_convolutions
from tests.counts import examples

LETTERS = {1: ("y", "i"), 2: ("yx", "ij"), 3: ("zyx", "ijk")}


class Form:
    """Lengths, strides and dilations of a convolution: x (batch, channels, ...), w (out, channels, ...)."""

    def __init__(self, image: Any, kernel: Any, stride: Any = 1, dilation: Any = 1, out: int = 8) -> None:
        self.rank = len(image) - 2
        self.image, self.kernel, self.out = tuple(image), tuple(kernel), out
        self.stride, self.dilation = ((n,) * self.rank if isinstance(n, int) else n for n in (stride, dilation))
        axes = zip(image[2:], kernel, self.stride, self.dilation, strict=True)
        self.lengths = tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in axes)
        self.places = list(np.ndindex(*kernel))

    def at(self, place: Any) -> Any:
        """What all windows have at one place."""
        axes = zip(place, self.lengths, self.stride, self.dilation, strict=True)
        return tuple(slice(i * d, i * d + s * (n - 1) + 1, s) for i, n, s, d in axes)

    @property
    def weights(self) -> tuple[int, ...]:
        return (self.out, self.image[1], *self.kernel)


# windows: (batch, channels, *lengths, *kernel)


def slid(x: Any, f: Form) -> Any:
    spans = tuple(d * (k - 1) + 1 for k, d in zip(f.kernel, f.dilation, strict=True))
    windows = sliding_window_view(x, spans, tuple(range(2, x.ndim)))
    return windows[(..., *(slice(None, None, s) for s in (*f.stride, *f.dilation)))]


def slid_in_turn(x: Any, f: Form) -> Any:
    for axis, (k, s, d) in enumerate(zip(f.kernel, f.stride, f.dilation, strict=True), 2):
        x = sliding_window_view(x, d * (k - 1) + 1, axis)[..., ::d]
        x = np.moveaxis(np.moveaxis(x, axis, 0)[::s], 0, axis)
    return x


def stacked(x: Any, f: Form) -> Any:
    parts = np.stack([x[(..., *f.at(place))] for place in f.places], -1)
    return parts.reshape(*x.shape[:2], *f.lengths, *f.kernel)


def stacked_in_rows(x: Any, f: Form) -> Any:
    """A list of lists."""
    if f.rank != 2:
        return np.moveaxis(np.stack([x[(..., *f.at(p))] for p in f.places]), 0, -1).reshape(
            *x.shape[:2], *f.lengths, *f.kernel
        )
    rows = np.array([[x[(..., *f.at((i, j)))] for j in range(f.kernel[1])] for i in range(f.kernel[0])])
    return np.moveaxis(rows, (0, 1), (-2, -1))


def assigned(x: Any, f: Form) -> Any:
    columns = np.empty((*x.shape[:2], *f.kernel, *f.lengths), x.dtype)
    for place in f.places:
        columns[(slice(None), slice(None), *place)] = x[(..., *f.at(place))]
    return np.moveaxis(columns, range(2, 2 + f.rank), range(2 + f.rank, 2 + 2 * f.rank))


def assigned_flat(x: Any, f: Form) -> Any:
    columns = np.zeros((len(f.places), *x.shape[:2], *f.lengths), x.dtype)
    for number, place in enumerate(f.places):
        columns[number] = x[(..., *f.at(place))]
    return np.moveaxis(columns, 0, -1).reshape(*x.shape[:2], *f.lengths, *f.kernel)


def concatenated(x: Any, f: Form) -> Any:
    parts = np.concatenate([x[(..., *f.at(place))].reshape(*x.shape[:2], 1, -1) for place in f.places], 2)
    return np.moveaxis(parts, 2, -1).reshape(*x.shape[:2], *f.lengths, *f.kernel)


WINDOWS = {
    function.__name__: function
    for function in (slid, slid_in_turn, stacked, stacked_in_rows, assigned, assigned_flat, concatenated)
}

# contractions of windows and weights (out, channels, *kernel): (batch, out, *lengths)


def einsum(p: Any, w: Any, f: Form) -> Any:
    along, inside = LETTERS[f.rank]
    return np.einsum(f"bc{along}{inside},oc{inside}->bo{along}", p, w)


def einsum_weights_first(p: Any, w: Any, f: Form) -> Any:
    along, inside = LETTERS[f.rank]
    return np.einsum(f"oc{inside},bc{along}{inside}->bo{along}", w, p, optimize=True)


def tensordot(p: Any, w: Any, f: Form) -> Any:
    axes = (1, *range(2 + f.rank, 2 + 2 * f.rank)), tuple(range(1, 2 + f.rank))
    return np.moveaxis(np.tensordot(p, w, axes), -1, 1)


def tensordot_weights_first(p: Any, w: Any, f: Form) -> Any:
    axes = tuple(range(1, 2 + f.rank)), (1, *range(2 + f.rank, 2 + 2 * f.rank))
    return np.tensordot(w, p, axes).swapaxes(0, 1)


def rows_at_columns(p: Any, w: Any, f: Form) -> Any:
    """(places, channels x kernel) @ (channels x kernel, out)"""
    moved = np.moveaxis(p, 1, 1 + f.rank)
    result = moved.reshape(moved.shape[0], math.prod(f.lengths), -1) @ w.reshape(f.out, -1).T
    return np.moveaxis(result, -1, 1).reshape(-1, f.out, *f.lengths)


def all_rows_dot(p: Any, w: Any, f: Form) -> Any:
    moved = np.moveaxis(p, 1, 1 + f.rank)
    result = np.dot(moved.reshape(-1, w[0].size), w.reshape(len(w), -1).transpose())
    return np.moveaxis(result.reshape(-1, *f.lengths, f.out), -1, 1)


def weights_at_columns(p: Any, w: Any, f: Form) -> Any:
    columns = np.moveaxis(p, range(2, 2 + f.rank), range(-f.rank, 0)).reshape(p.shape[0], w[0].size, -1)
    return np.matmul(w.reshape(f.out, -1), columns).reshape(-1, f.out, *f.lengths)


def product_summed(p: Any, w: Any, f: Form) -> Any:
    product = p[:, None] * w.reshape(f.out, -1, *(1,) * f.rank, *f.kernel)
    return product.sum((2, *range(3 + f.rank, 3 + 2 * f.rank)))


def product_summed_twice(p: Any, w: Any, f: Form) -> Any:
    product = np.multiply(p[:, np.newaxis], w.reshape(f.out, -1, *(1,) * f.rank, *f.kernel))
    return np.sum(product, axis=tuple(range(-f.rank, 0))).sum(2)


def out_by_out(p: Any, w: Any, f: Form) -> Any:
    rows = [np.tensordot(p, row, ((1, *range(2 + f.rank, 2 + 2 * f.rank)), tuple(range(1 + f.rank)))) for row in w]
    return np.stack(rows, 1)


CONTRACTIONS = {
    function.__name__: function
    for function in (
        einsum, einsum_weights_first, tensordot, tensordot_weights_first, rows_at_columns, all_rows_dot,
        weights_at_columns, product_summed, product_summed_twice, out_by_out,
    )
}  # fmt: skip


def windows_contracted(windows: Any, contraction: Any) -> Callable[..., Any]:
    return lambda x, w, f: contraction(windows(x, f), w, f)


# sums of shifted slices times weights


def shifted_einsum(x: Any, w: Any, f: Form) -> Any:
    out = np.zeros((x.shape[0], f.out, *f.lengths), x.dtype)
    along, _ = LETTERS[f.rank]
    for place in f.places:
        out += np.einsum(f"bc{along},oc->bo{along}", x[(..., *f.at(place))], w[(..., *place)])
    return out


def shifted_tensordot(x: Any, w: Any, f: Form) -> Any:
    terms = (np.tensordot(w[(..., *place)], x[(..., *f.at(place))], (1, 1)).swapaxes(0, 1) for place in f.places)
    return sum(terms)


def shifted_matmul(x: Any, w: Any, f: Form) -> Any:
    out = 0.0
    for place in f.places:
        part = x[(..., *f.at(place))]
        out = out + (w[(..., *place)] @ part.reshape(*x.shape[:2], -1)).reshape(-1, f.out, *f.lengths)
    return out


def shifted_channels_last(x: Any, w: Any, f: Form) -> Any:
    """As (batch, ..., channels) @ (channels, out)."""
    last = np.moveaxis(x, 1, -1)
    out = np.zeros((x.shape[0], *f.lengths, f.out), x.dtype)
    for place in reversed(f.places):
        out = last[(slice(None), *f.at(place))] @ w[(..., *place)].T + out
    return np.moveaxis(out, -1, 1)


def shifted_product(x: Any, w: Any, f: Form) -> Any:
    """Every channel by itself."""
    ones = (1,) * f.rank
    terms = [
        x[(slice(None), c, *f.at(place))][:, None] * w[(slice(None), c, *place)].reshape(-1, *ones)
        for place, c in itertools.product(f.places, range(x.shape[1]))
    ]
    return sum(terms[1:], terms[0])


def shifted_product_summed(x: Any, w: Any, f: Form) -> Any:
    out = np.zeros((x.shape[0], f.out, *f.lengths), x.dtype)
    for place in f.places:
        out += (x[(..., *f.at(place))][:, None] * w[(None, ..., *place, *(None,) * f.rank)]).sum(2)
    return out


def shifted_out_by_out(x: Any, w: Any, f: Form) -> Any:
    out = np.zeros((x.shape[0], f.out, *f.lengths), x.dtype)
    for o in range(f.out):
        out[:, o] = sum(np.tensordot(x[(..., *f.at(p))], w[(o, slice(None), *p)], (1, 0)) for p in f.places)
    return out


def place_by_place(x: Any, w: Any, f: Form) -> Any:
    """Each element of the result by itself."""
    out = np.zeros((x.shape[0], f.out, *f.lengths), x.dtype)
    axes = tuple(range(1, 2 + f.rank))
    for place in np.ndindex(*f.lengths):
        each = zip(place, f.kernel, f.stride, f.dilation, strict=True)
        window = x[(..., *(slice(i * s, i * s + d * (k - 1) + 1, d) for i, k, s, d in each))]
        out[(..., *place)] = np.tensordot(window, w, (axes, axes))
    return out


SHIFTED = {
    function.__name__: function
    for function in (
        shifted_einsum, shifted_tensordot, shifted_matmul, shifted_channels_last, shifted_product,
        shifted_product_summed, shifted_out_by_out, place_by_place,
    )
}  # fmt: skip
SPELLINGS: dict[str, Callable[..., Any]] = {
    **{
        f"{a}, {b}": windows_contracted(windows, contraction)
        for (a, windows), (b, contraction) in itertools.product(WINDOWS.items(), CONTRACTIONS.items())
    },
    **SHIFTED,
}
FORMS = {
    "plain": Form((2, 5, 7, 8), (3, 3)),
    "strides": Form((2, 5, 9, 8), (3, 2), (2, 3)),
    "dilated": Form((1, 5, 11, 8), (3, 2), (3, 1), (2, 3), out=4),
    "one axis": Form((2, 7, 17), (5,), 2, out=3),
    "three axes": Form((1, 6, 4, 5, 6), (2, 2, 2), (1, 2, 1), 1, out=3),
}


def random(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def traced(function: Any, *args: Any) -> Graph:
    return kg.kernel_graph(function, device="cpu").graph(*args)


def convolutions(graph: Graph) -> list[dict[str, Any]]:
    return [dict(n.attr("options")) for n in graph.nodes if n.op == "host" and n.attr("function") == "convolution"]


def same_values(graph: Graph, args: Any, expected: Any, bound: float = 1e-5) -> None:
    (found,) = interpret_graph(graph, args)
    assert found.shape == np.shape(expected) and found.dtype == expected.dtype
    largest = max(1.0, float(np.abs(expected.astype(float)).max(initial=0)))
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=0, atol=bound * largest)


@pytest.mark.parametrize(
    ("name", "form"),
    [(name, form) for k, name in enumerate(SPELLINGS) for form in ("plain", [*FORMS][1 + k % (len(FORMS) - 1)])],
)
def test_spellings(name: str, form: str) -> None:
    """One convolution and nothing else is left of each; values are NumPy's."""
    f = FORMS[form]
    x, w = random(0, *f.image), random(1, *f.weights)
    graph = call_convolutions(traced(lambda x, w: SPELLINGS[name](x, w, f), x, w))
    assert convolutions(graph) == [{"stride": f.stride, "dilation": f.dilation, "groups": 1}]
    assert {node.op for node in graph.nodes} <= {"input", "const", "host", "permute", "reshape", "slice", "broadcast"}
    same_values(graph, [x, w], SPELLINGS[name](x, w, f))


@given(st.sampled_from(sorted(SPELLINGS)), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_spellings_of_any_shape(name: str, data: Any) -> None:
    """What is called is right, compiled, with zeros around the image, in both wide dtypes; gradients too."""
    rank = data.draw(st.integers(1, 3))

    def axes(least: int, most: int) -> Any:
        return tuple(data.draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    kernel, stride, dilation, around = axes(1, 3), axes(1, 2), axes(1, 2), axes(0, 1)
    more = axes(0, 3)
    image = [max(1, d * (k - 1) + 1 - 2 * p) + n for k, d, p, n in zip(kernel, dilation, around, more, strict=True)]
    batch, channels, out = (data.draw(st.integers(1, most)) for most in (2, 4, 4))
    padded = [n + 2 * p for n, p in zip(image, around, strict=True)]
    f = Form((batch, channels, *padded), kernel, stride, dilation, out)
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    x, w = random(0, batch, channels, *image, dtype=dtype), random(1, *f.weights, dtype=dtype)

    def function(x: Any, w: Any) -> Any:
        return SPELLINGS[name](np.pad(x, ((0, 0), (0, 0), *((p, p) for p in around))), w, f)

    expected, bound = function(x, w), 1e-5 if dtype == np.float32 else 1e-12
    same_values(call_convolutions(traced(function, x, w)), [x, w], expected, bound)
    np.testing.assert_allclose(kg.kernel_graph(function, device="cpu")(x, w), expected, rtol=0, atol=bound * 100)
    if dtype == np.float64:
        ct = random(2, *expected.shape, dtype=dtype)
        for place, grad in enumerate(kg.kernel_graph(kg.grad(lambda x, w: (function(x, w) * ct).sum(), (0, 1)))(x, w)):
            along = random(3, *grad.shape, dtype=dtype)
            ends = [function(*((a + s * along) if i == place else a for i, a in enumerate((x, w)))) for s in (1, -1)]
            np.testing.assert_allclose(
                (np.asarray(grad) * along).sum(), ((ends[0] - ends[1]) / 2 * ct).sum(), atol=1e-9
            )


X, W = (2, 12, 9, 10), (8, 12, 3, 3)


def two_axes(x: Any, k: Any = 3) -> Any:
    return sliding_window_view(x, (k, k), (-2, -1))


def _in_groups(x: Any, w: Any) -> Any:
    parts = [np.einsum("bcyxij,ocij->boyx", two_axes(x[:, g : g + 4]), w[g // 2 : g // 2 + 2, :4]) for g in (0, 4, 8)]
    return np.concatenate(parts, 1)


def _assigned_groups(x: Any, w: Any) -> Any:
    out = np.empty((2, 6, 7, 8), x.dtype)
    for g in range(3):
        columns = two_axes(x[:, 4 * g : 4 * g + 4])
        out[:, 2 * g : 2 * g + 2] = np.tensordot(columns, w[2 * g : 2 * g + 2, :4], ((1, 4, 5), (1, 2, 3))).transpose(
            0, 3, 1, 2
        )
    return out


def _in_place_on_bias(x: Any, w: Any) -> Any:
    out = np.empty((2, 8, 7, 8), x.dtype)
    out[:] = w[:, 0, 0, 0].reshape(-1, 1, 1)
    for i in range(3):
        for j in range(3):
            out += np.einsum("bcyx,oc->boyx", x[:, :, i : i + 7, j : j + 8], w[:, :, i, j])
    return out


def _another_image(x: Any, w: Any) -> Any:
    return sum(
        np.einsum("bcyx,oc->boyx", (x if j else x * x)[..., i : i + 7, j : j + 8], w[..., i, j])
        for i, j in np.ndindex(3, 3)
    )


OTHERS: dict[str, tuple[Any, dict[str, Any]]] = {  # of x and w of shapes X and W, and what is called
    "true convolution": (
        lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x), w[:, :, ::-1, ::-1]), {},
    ),
    "turned windows": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x)[..., ::-1, ::-1], w), {}),
    "turned windows, one axis": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x)[..., ::-1], w), {}),
    "an image alone": (lambda x, w: np.einsum("cyxij,ocij->oyx", two_axes(x[0]), w), {}),
    "one result": (lambda x, w: np.einsum("bcyxij,cij->byx", two_axes(x), w[0]), {}),
    "one channel": (lambda x, w: np.einsum("byxij,oij->boyx", two_axes(x[:, 0]), w[:, 0]), {}),
    "one channel, one result": (lambda x, w: (two_axes(x[:, 0]) * w[0, 0]).sum((-1, -2)), {}),
    "a plane": (lambda x, w: np.tensordot(two_axes(x[0, 0]), w[0, 0], 2), {}),
    "a row": (lambda x, w: sliding_window_view(x[0, 0, 0], 3) @ w[0, 0, 0], {"stride": (1,)}),
    "along one of two axes": (
        lambda x, w: np.einsum("bcyxi,oci->boyx", sliding_window_view(x, 3, 2), w[..., 0]), {},
    ),
    "along one of two axes, channels last": (
        lambda x, w: np.einsum("byxci,oci->boyx", sliding_window_view(np.moveaxis(x, 1, -1), 3, 2), w[..., 0]),
        {"stride": (1, 1)},
    ),
    "each channel by itself": (lambda x, w: np.einsum("bcyxij,cij->bcyx", two_axes(x), w[0]), {"groups": 12}),
    "each channel by itself, summed": (
        lambda x, w: (two_axes(x) * w[0][:, None, None]).sum(axis=(-1, -2)), {"groups": 12},
    ),
    "each channel by several": (
        lambda x, w: np.einsum("bcyxij,ocij->bcoyx", two_axes(x), w), {"groups": 12},
    ),
    "groups by an axis": (
        lambda x, w: np.einsum(
            "bgcyxij,gocij->bgoyx", two_axes(x.reshape(2, 3, 4, 9, 10)), w[:6, :4].reshape(3, 2, 4, 3, 3)
        ).reshape(2, 6, 7, 8),
        {"groups": 3},
    ),
    "groups joined": (_in_groups, {"groups": 3}),
    "groups assigned": (_assigned_groups, {"groups": 3}),
    "channels last": (
        lambda x, w: np.einsum(
            "byxcij,ijco->byxo", sliding_window_view(np.moveaxis(x, 1, -1), (3, 3), (1, 2)), w.transpose(2, 3, 1, 0)
        ),
        {},
    ),
    "weights are the first": (lambda x, w: np.einsum("ocij,bcyxij->boyx", w, two_axes(x)), {}),
    "a bias": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x), w) + w[:, 0, 0, 0, None, None], {}),
    "a bias first": (_in_place_on_bias, {}),
    "padded": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(np.pad(x, ((0, 0),) * 2 + ((1, 1),) * 2)), w), {}),
    "edges repeated": (
        lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(np.pad(x, ((0, 0),) * 2 + ((1, 1),) * 2, "edge")), w), {},
    ),
    "masked weights": (
        lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x), w * (np.arange(3) < 2)[:, None]), {},
    ),
    "an activation before": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(np.maximum(x, 0)), w), {}),
    "every second window and element": (
        lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x, 5)[:, :, ::2, ::2, ::2, ::2], w), {"dilation": (1, 1)},
    ),
    "part of the channels": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x[:, 2:10:2]), w[:, :4]), {}),
    "part of the image": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x[..., 1:-1, ::3]), w), {}),
    "a mean": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x), w) / 9, {}),
    "two axes of results": (
        lambda x, w: np.einsum("bcyxij,pqcij->bpqyx", two_axes(x), w.reshape(2, 4, 12, 3, 3)), {},
    ),
    "wider weights": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x), w.astype(np.float64)), {}),
    "two images": (_another_image, {}),
    "weights of each image": (
        lambda x, w: np.einsum("bcyxij,bcyx->bcij", two_axes(x), x[..., :7, :8]), {"groups": 24},
    ),
    "weights summed before": (
        lambda x, w: np.einsum("bcyxi,ocij->boyx", sliding_window_view(x, 3, -1)[..., :7, :, :], w), {},
    ),
    "its own windows": (lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x), x[:, :, :3, :3]), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_spellings(name: str) -> None:
    function, options = OTHERS[name]
    x, w = random(0, *X), random(1, *W)
    graph = call_convolutions(traced(function, x, w))
    (found,) = convolutions(graph)
    assert {**found, **options} == found
    same_values(graph, [x, w], function(x, w))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_16_bit_operands_stay_16_bit(dtype: Any) -> None:
    """Where the result is rounded; a float32 result is exact."""
    x, w = random(0, *X, dtype=dtype), random(1, *W, dtype=dtype)
    for rounded in (True, False):

        def function(x: Any, w: Any, rounded: bool = rounded) -> Any:
            columns = two_axes(x).transpose(0, 2, 3, 1, 4, 5).reshape(2, 56, -1)
            if rounded:
                return (columns @ w.reshape(8, -1).T).astype(dtype)
            return columns.astype(np.float32) @ w.reshape(8, -1).astype(np.float32).T

        graph = call_convolutions(traced(function, x, w))
        (call,) = (n for n in graph.nodes if n.op == "host")
        assert call.type.dtype == (dtype if rounded else np.float32)
        wide = function(x.astype(np.float32), w.astype(np.float32), False)
        same_values(graph, [x, w], wide.astype(dtype) if rounded else wide, 2e-2 if rounded else 1e-5)


def _weights_by_place(x: Any, w: Any) -> Any:
    return np.einsum("bcyxij,yxij->bcyx", two_axes(x), np.resize(w, (7, 8, 3, 3)))


def _cross(x: Any, w: Any) -> Any:
    """Five of nine places."""
    places = ((0, 1), (1, 0), (1, 1), (1, 2), (2, 1))
    return sum(np.einsum("bcyx,oc->boyx", x[..., i : i + 7, j : j + 8], w[..., i, j]) for i, j in places)


def _one_place_twice(x: Any, w: Any) -> Any:
    places = ((0, 0), (0, 1), (0, 1), (1, 0))
    return sum(np.einsum("bcyx,oc->boyx", x[..., i : i + 7, j : j + 8], w[..., i, j]) for i, j in places)


def _missing_window(x: Any, w: Any) -> Any:
    columns = np.zeros((2, 12, 3, 3, 7, 8), x.dtype)
    for i, j in np.ndindex(3, 3):
        if (i, j) != (1, 1):
            columns[:, :, i, j] = x[:, :, i : i + 7, j : j + 8]
    return np.einsum("bcijyx,ocij->boyx", columns, w)


def _sums_read(x: Any, w: Any) -> Any:
    """Sums of squares lie between."""
    out = 0.0
    for i, j in np.ndindex(3, 3):
        out = out + np.einsum("bcyx,oc->boyx", x[..., i : i + 7, j : j + 8], w[..., i, j])
        out = np.tanh(out)
    return out


def _places_out_of_order(x: Any, w: Any) -> Any:
    order = (0, 2, 1, 3, 4, 5, 6, 7, 8)
    columns = np.stack([x[..., k // 3 : k // 3 + 7, k % 3 : k % 3 + 8] for k in order], 2)
    return np.einsum("bckyx,ock->boyx", columns, w.reshape(8, 12, 9))


NEAR_MISSES: dict[str, Any] = {  # of x and w of shapes X and W
    "a sum of windows": lambda x, w: two_axes(x).sum((-1, -2)),
    "a mean of windows": lambda x, w: two_axes(x).mean((-1, -2)),
    "the largest": lambda x, w: (two_axes(x) * w[0][:, None, None]).max((-1, -2)),
    "windows plus weights": lambda x, w: (two_axes(x) + w[0][:, None, None]).sum((-1, -2)),
    "distances": lambda x, w: ((two_axes(x) - w[0][:, None, None]) ** 2).sum((-1, -2)),
    "products": lambda x, w: (two_axes(x) * w[0][:, None, None]).prod((-1, -2)),
    "a variance": lambda x, w: (two_axes(x) ** 2).sum((-1, -2)) - two_axes(x).sum((-1, -2)) ** 2,
    "windows times themselves": lambda x, w: np.einsum("bcyxij,bcyxij->bcyx", two_axes(x), two_axes(x)),
    "products of windows": lambda x, w: np.einsum("bcyxij,bdyxij->bcdyx", two_axes(x), two_axes(x)),
    "weights by place": _weights_by_place,
    "no window summed": lambda x, w: np.einsum("bcyxij,oc->boyxij", two_axes(x), w[..., 0, 0]),
    "one of two summed alone": lambda x, w: np.einsum("bcyxij,oci->boyx", two_axes(x), w[..., 0]),
    "diagonal windows": lambda x, w: np.einsum("bcyxii,oci->boyx", two_axes(x), w[..., 0]),
    "a diagonal of the image": lambda x, w: np.einsum("bcyyij,ocij->boy", two_axes(x)[..., :7, :7, :, :], w),
    "windows of an activation of windows": lambda x, w: np.einsum("bcyxij,ocij->boyx", np.tanh(two_axes(x)), w),
    "weighted windows": lambda x, w: np.einsum(
        "bcyxij,ocij->boyx", two_axes(x) * np.arange(1, 8, dtype="f4").reshape(-1, 1, 1, 1), w
    ),
    "a cross": _cross,
    "one place twice": _one_place_twice,
    "part of each group": lambda x, w: np.einsum(
        "bgcyxij,gocij->bgoyx", two_axes(x.reshape(2, 3, 4, 9, 10)[:, :, :2]), w[:6, :2].reshape(3, 2, 2, 3, 3)
    ),
    "windows of thousands": lambda x, w: (
        sliding_window_view(np.tile(x.ravel(), 4), 5000) @ np.tile(w.ravel(), 6)[:5000]
    ),
    "each term twice": lambda x, w: sum(
        np.einsum("bcyx,oc->boyx", x[..., k // 2 : k // 2 + 7, :], w[..., k // 2, 0]) for k in range(6)
    ),
    "a sum of equal parts": lambda x, w: (
        np.broadcast_to(two_axes(x)[:, None, :, :, :, None], (2, 8, 12, 7, 8, 5, 3, 3))
        * w[:, :, None, None, None]
    ).sum((2, 5, 6, 7)),
    "a missing window": _missing_window,
    "no sum of all": _sums_read,
    "places out of order": _places_out_of_order,
    "a product of matrices": lambda x, w: x.reshape(2, 12, -1).swapaxes(1, 2) @ w[:, :, 0, 0].T,
    "one place": lambda x, w: np.einsum("bcyx,oc->boyx", x[..., 1:8, 2:10], w[..., 1, 2]),
    "slices side by side": lambda x, w: x[..., :4, :] * w[0, 0, 0, 0] + x[..., 4:8, :] * w[0, 0, 0, 1],
    "a small stencil": lambda x, w: sum(x[..., i : i + 7, :] * w[0, 0, i, 0] for i in range(3)),
    "a stencil of numbers": lambda x, w: x[..., :-2] * 0.25 + x[..., 1:-1] * 0.5 + x[..., 2:] * 0.25,
    "integers": lambda x, w: np.einsum(
        "bcyxij,ocij->boyx", two_axes(np.floor(x * 9).astype(np.int64)), np.floor(w * 9).astype(np.int64)
    ),
    "complex numbers": lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x + 1j * x), w + 1j * w),
    "float16 summed as products": lambda x, w: (
        two_axes(x.astype(np.float16)) * w[0].astype(np.float16)[:, None, None]
    ).sum((-1, -2)),
    "backwards along the image": lambda x, w: np.einsum("bcyxij,ocij->boyx", two_axes(x)[:, :, ::-1], w),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    x, w = random(0, *X), random(1, *W)
    function = NEAR_MISSES[name]
    graph = traced(function, x, w)
    assert not convolutions(call_convolutions(graph))
    assert np.allclose(kg.kernel_graph(function, device="cpu")(x, w), function(x, w), rtol=1e-3, atol=2e-2)


def test_there_are_enough() -> None:
    assert len(SPELLINGS) + len(OTHERS) >= 25 and len(NEAR_MISSES) >= 25


def test_explain_names_the_call() -> None:
    x, w = random(0, *X), random(1, *W)
    text = kg.kernel_graph(OTHERS["channels last"][0], device="cpu").explain(x, w)
    assert ": convolution (" in text
