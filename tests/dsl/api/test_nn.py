"""Layers against PyTorch's where it is there, against plain loops for the rest; traced, and at once on arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.pipeline import run_decomposition_stage
from tests.counts import examples
from tests.dsl.tracing import interpreted
from tests.interop import library

few = settings(max_examples=examples(40), deadline=None)
seeds = st.integers(0, 2**32 - 1)


def random(seed: int, *shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def same(function: Any, expected: Any, *args: Any, dtype: Any = np.float64, tolerance: float = 1e-10) -> None:
    """The trace of `function`, and the function at once, give `expected`."""
    for found in (interpreted(function, *args), function(*(kg.asarray(a, device="cpu") for a in args))):
        result = np.asarray(found)
        assert result.dtype == dtype and result.shape == np.shape(expected)
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


def convolved(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Every product by itself."""
    n, _, height, width = x.shape
    out, each, rows, columns = w.shape
    padded = np.zeros((n, x.shape[1], height + 2 * padding[0], width + 2 * padding[1]))
    padded[:, :, padding[0] : padding[0] + height, padding[1] : padding[1] + width] = x
    lengths = [(padded.shape[2 + i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    result = np.zeros((n, out, *lengths))
    for b, o, y, z in np.ndindex(*result.shape):
        first = o // (out // groups) * each
        for c, i, j in np.ndindex(each, rows, columns):
            value = padded[b, first + c, y * stride[0] + i * dilation[0], z * stride[1] + j * dilation[1]]
            result[b, o, y, z] += value * w[o, c, i, j]
    return result


CONVOLUTIONS = (kg.nn.conv1d, kg.nn.conv2d, kg.nn.conv3d)


@st.composite
def convolutions(draw: Any) -> Any:
    """A function of 1 to 3 axes, its options, and the shapes of an image and of weights that fit."""
    rank, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    n, each, out = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 7))

    def axes(least: int, most: int) -> Any:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    kernel, stride, dilation, padding = axes(1, 3), axes(1, 3), axes(1, 2), axes(0, 2)
    image = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 6))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return CONVOLUTIONS[rank - 1], options, (n, each * groups, *image), (out * groups, each, *kernel)


def convolved_by_loops(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """`convolved`, of any number of axes."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    size, (out, each) = w.shape[2:], w.shape[:2]
    lengths = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], size, stride, dilation, strict=True)]
    result = np.zeros((x.shape[0], out, *lengths))
    for o, c, *place in np.ndindex(*w.shape):
        first = [i * d for i, d in zip(place, dilation, strict=True)]
        part = tuple(slice(f, f + s * (n - 1) + 1, s) for f, s, n in zip(first, stride, lengths, strict=True))
        result[:, o] += x[(slice(None), o // (out // groups) * each + c, *part)] * w[(o, c, *place)]
    return result


@given(seeds, convolutions(), st.booleans(), st.sampled_from(["cpu", "cuda"]))
@few
def test_convolutions(seed: int, given: Any, direct: bool, target: str) -> None:
    """As NumPy means it, and as each target takes it apart; float32 too."""
    function, options, image, weights = given
    x, w, b = random(seed, *image), random(seed + 1, *weights), random(seed, weights[0])
    expected = convolved_by_loops(x, w, **options) + b.reshape(-1, *(1,) * len(weights[2:]))
    np.testing.assert_allclose(interpreted(lambda *a: function(*a, **options), x, w, b), expected, atol=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelgraph.compiler.decompose.convolution.FEW", 1000 if direct else 0)
        for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-4)):
            args = [a.astype(dtype) for a in (x, w, b)]
            graph = kg.kernel_graph(lambda *a: function(*a, **options), device="cpu").graph(*args)
            (found,) = interpret_graph(run_decomposition_stage(graph, target, None), args)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize("image", [(1, 40, 0, 4), (2, 40, 4, 0), (0, 40, 4, 4)])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_images_of_padding_alone(image: tuple[int, ...], target: str) -> None:
    """Nothing is read of an image that has no elements."""
    x, w = random(0, *image, dtype=np.float16), random(1, 8, 40, 3, 3, dtype=np.float16)
    graph = kg.kernel_graph(lambda x, w: kg.nn.conv2d(x, w, padding=2), device="cpu").graph(x, w)
    found = run_decomposition_stage(graph, target, None)
    assert all(0 not in found.nodes[n.args[0]].type.shape for n in found.nodes if n.op == "gather" and n.type.size)
    (result,) = interpret_graph(found, [x, w])
    assert result.shape == (image[0], 8, image[2] + 2, image[3] + 2) and not result.any()


BOUNDS: dict[Any, float] = {np.float64: 1e-12, np.float32: 1e-5, np.float16: 2e-3, kg.bfloat16: 1e-2}


def close_to_sums(found: Any, expected: Any, dtype: Any) -> None:
    """As sums in float32 or wider give it, rounded once."""
    bound = BOUNDS[dtype]
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(float), expected, rtol=bound, atol=bound if dtype is np.float64 else 1e-4)


@given(seeds, convolutions(), st.sampled_from([*BOUNDS]))
@settings(max_examples=examples(16), deadline=None)
def test_convolutions_on_the_cpu(seed: int, given: Any, dtype: Any) -> None:
    """Compiled: lines, groups and strides as the kernel sees them."""
    function, options, image, weights = given
    x, w = random(seed, *image, dtype=dtype), random(seed + 1, *weights, dtype=dtype)
    found = np.asarray(kg.kernel_graph(lambda x, w: function(x, w, **options), device="cpu")(x, w))
    close_to_sums(found, convolved_by_loops(x.astype(float), w.astype(float), **options), dtype)


@given(seeds, convolutions(), st.sampled_from([*BOUNDS]))
@settings(max_examples=examples(16), deadline=None)
def test_gradients_of_convolutions_as_targets_do_them(seed: int, given: Any, dtype: Any) -> None:
    """Compiled for a CPU, and taken apart for a GPU without a library: what NumPy gives in float64."""
    function, options, image, weights = given
    x, w = random(seed, *image, dtype=dtype), random(seed + 1, *weights, dtype=dtype)
    ct = random(seed + 2, *convolved_by_loops(x, w, **options).shape, dtype=dtype)

    def gradients(x: Any, w: Any, ct: Any) -> Any:
        _, pull = kg.vjp(lambda x, w: function(x, w, **options), x, w)
        return pull(ct)

    exact = interpreted(gradients, *(a.astype(float) for a in (x, w, ct)))
    compiled = kg.kernel_graph(gradients, device="cpu")
    for part, expected in zip(compiled(x, w, ct), exact, strict=True):
        close_to_sums(np.asarray(part), expected, dtype)
    if dtype == np.float32:
        graph = run_decomposition_stage(compiled.graph(x, w, ct), "cuda", None)
        for part, expected in zip(interpret_graph(graph, [x, w, ct]), exact, strict=True):
            close_to_sums(part, expected, dtype)


@given(seeds, convolutions())
@settings(max_examples=examples(25), deadline=None)
def test_gradients_of_convolutions(seed: int, given: Any) -> None:
    """Linear in each of two arrays: so is the sum of its products with any cotangent, whose gradient gives it back."""
    function, options, image, weights = given
    x, w = random(seed, *image), random(seed + 1, *weights)
    ct = random(seed + 2, *convolved_by_loops(x, w, **options).shape)
    dx, dw = random(seed + 3, *image), random(seed + 4, *weights)

    def loss(x: Any, w: Any) -> Any:
        return np.sum(function(x, w, **options) * ct)

    gx, gw = interpreted(lambda x, w: kg.grad(loss, (0, 1))(x, w), x, w)
    assert math.isclose(np.vdot(gx, dx), np.vdot(convolved_by_loops(dx, w, **options), ct), rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(np.vdot(gw, dw), np.vdot(convolved_by_loops(x, dw, **options), ct), rel_tol=1e-9, abs_tol=1e-9)
    (value, slope) = interpreted(lambda x, w, dx, dw: kg.jvp(loss, (x, w), (dx, dw)), x, w, dx, dw)
    assert math.isclose(value, np.vdot(convolved_by_loops(x, w, **options), ct), rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(slope, np.vdot(gx, dx) + np.vdot(gw, dw), rel_tol=1e-9, abs_tol=1e-9)


TRANSPOSED = (kg.nn.conv_transpose1d, kg.nn.conv_transpose2d, kg.nn.conv_transpose3d)


@given(seeds, convolutions(), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_transposed_convolutions(seed: int, given: Any, data: Any) -> None:
    """Of any two arrays the products with what a convolution gives are those with what its transpose gives."""
    _, options, image, weights = given
    rank, w = len(image) - 2, random(seed, *weights)
    lengths = [1 + data.draw(st.integers(0, 4)) for _ in range(rank)]
    more = [data.draw(st.integers(0, s - 1)) for s in options["stride"]]
    whole = [
        (n - 1) * s + d * (k - 1) + 1 + m - 2 * p
        for n, s, d, k, m, p in zip(
            lengths, options["stride"], options["dilation"], weights[2:], more, options["padding"], strict=True
        )
    ]
    assume(min(whole) > 0)
    x = random(seed + 1, image[0], weights[0], *lengths)
    y = random(seed + 2, image[0], weights[1] * options["groups"], *whole)
    found = interpreted(lambda x, w: TRANSPOSED[rank - 1](x, w, output_padding=more, **options), x, w)
    assert found.shape == y.shape
    assert math.isclose(np.vdot(found, y), np.vdot(x, convolved_by_loops(y, w, **options)), rel_tol=1e-9, abs_tol=1e-9)
    bias = random(seed, y.shape[1])
    one = TRANSPOSED[rank - 1](x[0], w, bias, output_padding=more, **options)  # without a batch, at once
    np.testing.assert_allclose(one, found[0] + bias.reshape(-1, *(1,) * rank), atol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_same_padding_of_any_extent(length: int, dilation: int) -> None:
    """What is odd is added behind; an image without a batch is one of a batch."""
    x, w = random(0, 2, 3, 7, 9), random(1, 4, 3, length, 2)
    rows, columns = dilation * (length - 1), dilation
    around = ((0, 0), (0, 0), (rows // 2, rows - rows // 2), (columns // 2, columns - columns // 2))
    expected = convolved(np.pad(x, around), w, (1, 1), (0, 0), (dilation,) * 2, 1)
    for image, wanted in ((x, expected), (x[0], expected[0])):
        same(lambda x, w: kg.nn.conv2d(x, w, padding="same", dilation=dilation), wanted, image, w)


def test_the_first_argument_may_have_a_name() -> None:
    x, w = np.ones((2, 3), np.float32), np.ones(3, np.float16)
    for call in (kg.nn.layer_norm, kg.kernel_graph(lambda **given: kg.nn.layer_norm(**given), device="cpu")):
        assert np.asarray(call(weight=w, x=x)).dtype == np.float32


def test_a_batched_convolution_has_more_images() -> None:
    x, w = random(0, 3, 2, 4, 6, 6), random(1, 5, 4, 3, 3)
    every = kg.kernel_graph(lambda x, w: kg.vmap(lambda x: kg.nn.conv2d(x, w))(x), device="cpu")
    assert all(n.op != "loop" for n in every.graph(x, w).nodes)
    expected = np.stack([convolved(each, w, (1, 1), (0, 0), (1, 1), 1) for each in x])
    np.testing.assert_allclose(interpreted(lambda x, w: every(x, w), x, w), expected, atol=1e-12)


def test_no_copies_of_windows_on_the_cpu() -> None:
    """What a plan holds is the padded image and lines of the result, not 49 copies of the image."""
    x, w = kg.spec((4, 16, 64, 64), np.float32), kg.spec((16, 16, 7, 7), np.float32)
    forward = kg.kernel_graph(lambda x, w: kg.nn.conv2d(x, w, padding=3), device="cpu").plan(x, w)
    image = 4 * 4 * 16 * 64 * 64
    assert forward.peak_bytes < 6 * image
    backward = kg.kernel_graph(
        lambda x, w: kg.grad(lambda x, w: np.sum(kg.nn.conv2d(x, w, padding=3) ** 2), (0, 1))(x, w), device="cpu"
    )
    assert backward.plan(x, w).peak_bytes < 14 * image


def test_conv2d_same_and_valid() -> None:
    x, w = random(0, 2, 3, 7, 8), random(1, 4, 3, 3, 5)
    same(lambda x, w: kg.nn.conv2d(x, w, padding="same"), convolved(x, w, (1, 1), (1, 2), (1, 1), 1), x, w)
    same(lambda x, w: kg.nn.conv2d(x, w, padding="valid"), convolved(x, w, (1, 1), (0, 0), (1, 1), 1), x, w)


def test_what_becomes_of_a_conv2d() -> None:
    """A few products for each result: one kernel (after the copies that pad); many: one product of matrices."""
    few = kg.kernel_graph(lambda x, w: kg.nn.relu(kg.nn.conv2d(x, w)), device="fake")
    assert len(few.program(kg.spec((2, 3, 20, 20)), kg.spec((8, 3, 3, 3))).tasks) == 1
    many = kg.kernel_graph(lambda x, w: kg.nn.conv2d(x, w), device="fake")
    names = [t.name for t in many.program(kg.spec((2, 16, 20, 20)), kg.spec((8, 16, 3, 3))).tasks]
    assert names.count("matmul") == 1


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x, w: kg.nn.conv1d(x, w), "length"),
        (lambda x, w: kg.nn.conv2d(x, w[0]), "kernel|groups"),
        (lambda x, w: kg.nn.conv2d(x, w, groups=0), "groups"),
        (lambda x, w: kg.nn.conv2d(x, w, padding=-1), "negative"),
        (lambda x, w: kg.nn.conv2d(x, w, stride=0), "stride"),
        (lambda x, w: kg.nn.conv2d(x, w, stride=(1, 2, 3)), "3 numbers for 2 axes"),
        (lambda x, w: kg.nn.conv2d(x, w, dilation=3), "does not fit"),
        (lambda x, w: kg.nn.conv2d(x[0, 0], w), "batch"),
        (lambda x, w: kg.nn.conv2d(x, w[:, :2]), "channels"),
        (lambda x, w: kg.nn.conv2d(x[:, :, :2], w), "does not fit"),
        (lambda x, w: kg.nn.conv2d(x, w, padding="same", stride=2), "stride 1"),
        (lambda x, w: kg.nn.conv_transpose2d(x, w), "channels"),
        (lambda x, w: kg.nn.conv_transpose2d(x, w[:3], output_padding=1), "less than the stride"),
        (lambda x, w: kg.nn.conv_transpose2d(x, w[:3], padding=4), "leaves nothing"),
        (lambda x, w: kg.nn.conv_transpose2d(x, w[:3], padding=-1), "negative"),
        (lambda x, w: kg.nn.conv_transpose1d(x, w), "length"),
        (lambda x, w: kg.nn.conv_transpose2d(x, w[:3], groups=2), "groups"),
        (lambda x, w: kg.nn.max_pool2d(x, 2, padding=2), "half"),
        (lambda x, w: kg.nn.max_pool2d(x, 0), "all have to be > 0"),
        (lambda x, w: kg.nn.attention(x[..., :0], x[..., :0], x), "give it a scale"),
        (lambda x, w: kg.nn.avg_pool2d(x, 2, stride=0), "all have to be > 0"),
        (lambda x, w: kg.nn.cross_entropy(x, w), "labels"),
        (lambda x, w: kg.nn.cross_entropy(x, x, reduction="all"), "reduction"),
    ],
)
def test_mistakes(call: Any, words: str) -> None:
    with pytest.raises(kg.ShapeError, match=words) as caught:
        kg.kernel_graph(call, device="cpu").graph(np.ones((1, 3, 5, 5)), np.ones((4, 3, 3, 3)))
    assert str(caught.value).startswith("test_nn.py:")


@given(
    seeds,
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.one_of(st.none(), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    st.booleans(),
    st.sampled_from([np.float32, np.float64, np.int32]),
)
@few
def test_pooling(seed: int, size: Any, stride: Any, pad: bool, dtype: Any) -> None:
    x = (random(seed, 2, 3, 6, 7) * 5).astype(dtype)
    around = (size[0] // 2, size[1] // 2) if pad else (0, 0)
    step = stride or size
    wide = [n + 2 * p for n, p in zip(x.shape[2:], around, strict=True)]
    lengths = [(n - k) // s + 1 for n, k, s in zip(wide, size, step, strict=True)]
    shape = (2, 3, *lengths)
    largest, mean, own = np.zeros(shape, dtype), np.zeros(shape), np.zeros(shape)
    for y, z in np.ndindex(*lengths):
        rows, columns = (
            slice(max(i * s - p, 0), min(i * s - p + k, n))
            for i, s, p, k, n in zip((y, z), step, around, size, x.shape[2:], strict=True)
        )
        window = x[:, :, rows, columns]
        largest[:, :, y, z] = window.max((2, 3))
        mean[:, :, y, z] = window.sum((2, 3)) / (size[0] * size[1])
        own[:, :, y, z] = window.mean((2, 3))
    close: dict[str, Any] = {"dtype": np.float32 if dtype == np.float32 else np.float64, "tolerance": 1e-5}
    same(lambda x: kg.nn.max_pool2d(x, size, stride=stride, padding=around), largest, x, dtype=dtype)
    same(lambda x: kg.nn.avg_pool2d(x, size, stride=stride, padding=around), mean, x, **close)
    same(lambda x: kg.nn.avg_pool2d(x, size, stride=stride, padding=around, count_include_pad=False), own, x, **close)


def test_norms() -> None:
    x, w, b = random(0, 4, 6, 3, 5), random(1, 6), random(2, 6)
    wide = (slice(None), None, None)
    centre, spread = x.mean((0, 2, 3))[wide], x.var((0, 2, 3))[wide]
    batch = (x - centre) / np.sqrt(spread + 1e-5) * w[wide] + b[wide]
    same(lambda x, w, b: kg.nn.batch_norm(x, weight=w, bias=b), batch, x, w, b)
    fixed = (x - b[wide]) / np.sqrt(w[wide] ** 2 + 0.1)
    same(lambda x, w, b: kg.nn.batch_norm(x, b, w * w, eps=0.1), fixed, x, w, b)
    layer = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    same(lambda x: kg.nn.layer_norm(x), layer, x)
    parts = x.reshape(4, 2, -1)
    group = ((parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
    same(lambda x, w: kg.nn.group_norm(x, 2, w), group * w[wide], x, w)
    same(lambda x: kg.nn.rms_norm(x), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6), x)


def test_softmax_and_layer_norm_are_one_kernel() -> None:
    for function in (kg.nn.softmax, kg.nn.log_softmax, kg.nn.layer_norm):
        shown = kg.kernel_graph(lambda x, f=function: f(x), device="fake")
        assert len(shown.program(kg.spec((100, 200), np.float32)).tasks) == 1


@given(seeds, st.integers(-2, 1), st.sampled_from([1.0, 100.0, 10000.0]))
@few
def test_probabilities(seed: int, axis: int, scale: float) -> None:
    x = random(seed, 4, 5) * scale
    powers = np.exp(x - x.max(axis, keepdims=True))
    total = powers.sum(axis, keepdims=True)
    same(lambda x: kg.nn.softmax(x, axis), powers / total, x)
    same(lambda x: kg.nn.log_softmax(x, axis), x - x.max(axis, keepdims=True) - np.log(total), x)
    same(lambda x: kg.nn.logsumexp(x, axis), np.logaddexp.reduce(x, axis=axis), x)


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [np.nan, 1.0]])
    same(lambda x: kg.nn.logsumexp(x, 1), [-np.inf, np.inf, np.nan], x)


@given(seeds, st.sampled_from(["mean", "sum", "none"]))
@few
def test_cross_entropy(seed: int, reduction: str) -> None:
    x = random(seed, 3, 5, 2)
    labels = np.random.default_rng(seed).integers(-1, 5, (3, 2))
    losses = np.zeros((3, 2))
    for i, j in np.ndindex(3, 2):
        if labels[i, j] >= 0:
            losses[i, j] = np.log(np.exp(x[i, :, j]).sum()) - x[i, labels[i, j], j]
    valid = (labels >= 0).sum()
    assume(valid)
    expected = {"mean": losses.sum() / valid, "sum": losses.sum(), "none": losses}[reduction]
    same(lambda x, t: kg.nn.cross_entropy(x, t, axis=1, reduction=reduction), expected, x, labels)
    soft = np.abs(random(seed + 1, 3, 5, 2))
    each = (soft * (np.log(np.exp(x).sum(1, keepdims=True)) - x)).sum(1)
    expected = {"mean": each.mean(), "sum": each.sum(), "none": each}[reduction]
    same(lambda x, t: kg.nn.cross_entropy(x, t, axis=1, reduction=reduction), expected, x, soft)


def test_one_hot() -> None:
    labels = np.array([[0, 2], [3, 1]])
    same(lambda t: kg.nn.one_hot(t, 4), np.eye(4)[labels], labels, dtype=np.float32)


@given(seeds, st.booleans(), st.booleans())
@few
def test_attention(seed: int, causal: bool, masked: bool) -> None:
    q, k, v = random(seed, 2, 3, 4), random(seed + 1, 2, 5, 4), random(seed + 2, 2, 5, 6)
    mask = np.random.default_rng(seed).random((3, 5)) < 0.6
    mask[:, 0] = True
    allowed = np.ones((3, 5), bool)
    if causal:
        allowed &= np.tri(3, 5, dtype=bool)
    if masked:
        allowed &= mask
    expected = np.zeros((2, 3, 6))
    for b, i in np.ndindex(2, 3):
        weights = np.where(allowed[i], np.exp(k[b] @ q[b, i] / 2), 0)
        expected[b, i] = weights / weights.sum() @ v[b]
    if masked:
        same(lambda q, k, v, m: kg.nn.attention(q, k, v, m, causal=causal), expected, q, k, v, mask)
    else:
        same(lambda q, k, v: kg.nn.attention(q, k, v, causal=causal), expected, q, k, v)


def test_activations() -> None:
    x = np.array([-1000.0, -3.0, -0.5, 0.0, 0.5, 3.0, 1000.0])
    with np.errstate(over="ignore"):
        same(lambda x: kg.nn.silu(x), x / (1 + np.exp(-x)), x)
    same(lambda x: kg.nn.softplus(x), np.logaddexp(x, 0), x)
    same(lambda x: kg.nn.leaky_relu(x, 0.1), np.where(x > 0, x, 0.1 * x), x)
    same(lambda x: kg.nn.elu(x, 2.0), np.where(x > 0, x, 2 * np.expm1(np.minimum(x, 0))), x)
    same(lambda x: kg.nn.relu(x), np.maximum(x, 0), x)
    gelu = [0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x]
    same(lambda x: kg.nn.gelu(x), gelu, x)


def test_a_small_network_compiled() -> None:
    x, w1, w2 = random(0, 2, 3, 12, 12), random(1, 8, 3, 3, 3), random(2, 4, 8, 3, 3)
    dense, labels = random(3, 10, 4 * 2 * 2), np.array([3, 7])

    def network(np: Any, x: Any, w1: Any, w2: Any, dense: Any, labels: Any) -> Any:
        h = kg.nn.max_pool2d(kg.nn.relu(kg.nn.batch_norm(kg.nn.conv2d(x, w1, padding=1))), 2)
        h = kg.nn.avg_pool2d(kg.nn.silu(kg.nn.conv2d(h, w2)), 2)
        return kg.nn.cross_entropy(kg.nn.linear(h.reshape(2, -1), dense), labels)

    args = (x, w1, w2, dense, labels)
    compiled = kg.kernel_graph(lambda *args: network(np, *args), device="cpu")(*args)
    at_once = network(np, *(kg.asarray(a, device="cpu") for a in args))
    np.testing.assert_allclose(float(compiled), float(at_once), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dtypes_are_kept(dtype: Any) -> None:
    x, w = random(0, 2, 4, 6, 6, dtype=dtype), random(1, 4, 4, 3, 3, dtype=dtype)
    results = interpreted(
        lambda x, w: (
            kg.nn.conv2d(x, w, w[:, 0, 0, 0]),
            kg.nn.max_pool2d(x, 2, padding=1),
            kg.nn.avg_pool2d(x, 2, padding=1, count_include_pad=False),
            kg.nn.batch_norm(x),
            kg.nn.layer_norm(x),
            kg.nn.rms_norm(x),
            kg.nn.softmax(x),
            kg.nn.logsumexp(x),
            kg.nn.cross_entropy(x, x),
            kg.nn.cross_entropy(x[:, :, 0, 0], np.array([0, 1])),
            kg.nn.attention(x, x, x, causal=True),
            kg.nn.silu(x),
            kg.nn.softplus(x),
            kg.nn.elu(x),
        ),
        x,
        w,
    )
    assert {r.dtype for r in results} == {np.dtype(dtype)}


def test_against_pytorch() -> None:
    torch = library("torch")
    f = torch.nn.functional
    x, w, b = random(0, 2, 4, 9, 9), random(1, 6, 2, 3, 3), random(2, 6)
    tx, tw, tb = map(torch.from_numpy, (x, w, b))
    same(
        lambda x, w, b: kg.nn.conv2d(x, w, b, stride=2, padding=1, dilation=2, groups=2),
        f.conv2d(tx, tw, tb, 2, 1, 2, 2).numpy(),
        *(x, w, b),
    )
    same(lambda x: kg.nn.max_pool2d(x, 3, stride=2, padding=1), f.max_pool2d(tx, 3, 2, 1).numpy(), x)
    same(lambda x: kg.nn.avg_pool2d(x, 3, stride=2, padding=1), f.avg_pool2d(tx, 3, 2, 1).numpy(), x)
    same(lambda x: kg.nn.batch_norm(x), f.batch_norm(tx, None, None, training=True).numpy(), x)
    same(lambda x: kg.nn.layer_norm(x), f.layer_norm(tx, (9,)).numpy(), x)
    same(lambda x: kg.nn.group_norm(x, 2), f.group_norm(tx, 2).numpy(), x)
    labels = np.array([[1] * 9] * 2)
    ce = f.cross_entropy(tx[..., 0], torch.from_numpy(labels)).numpy()
    same(lambda x, t: kg.nn.cross_entropy(x[..., 0], t, axis=1), ce, x, labels)
    attended = f.scaled_dot_product_attention(tx, tx, tx, is_causal=True).numpy()
    same(lambda x: kg.nn.attention(x, x, x, causal=True), attended, x)


@pytest.mark.parametrize("size", [300.0, 6e4])
def test_float16_does_not_overflow_inside(size: float) -> None:
    """What is in the range of float16 comes out, though squares and sums on the way are not."""
    x, many = (random(2, 2, 4, 4, 4).clip(-1, 1) * size).astype(np.float16), np.zeros(70_000, np.float16)
    for function in (
        kg.nn.batch_norm,
        kg.nn.layer_norm,
        lambda x: kg.nn.group_norm(x, 2),
        kg.nn.rms_norm,
        lambda x: kg.nn.avg_pool2d(np.abs(x), 2),
        lambda x: kg.nn.avg_pool2d(np.abs(x), 3, padding=1, count_include_pad=False),
        lambda x: kg.nn.logsumexp(x[0, 0, 0, 0] + np.asarray(many, x.dtype)),
        lambda x: kg.nn.cross_entropy(x[:, :, 0, 0] - x[0, 0, 0, 0], np.array([0, 0])),
    ):
        expected = np.asarray(function(x.astype(np.float64)))
        same(function, expected.astype(np.float16), x, dtype=np.float16, tolerance=2e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: kg.nn.linear(x, np.ones((2, 2))),
        lambda x: kg.nn.linear(kg.array(x), kg.array(np.ones((2, 2)))),
        lambda x: kg.nn.softmax(x, axis=3),
        lambda x: kg.nn.relu(np.array(["a"])),
        lambda x: kg.nn.softmax(np.array(["a"])),
        lambda x: kg.nn.conv2d(x, x),
        lambda x: kg.matmul(x, np.ones((2, 2))),
        lambda x: kg.zeros((-1,)),
        lambda x: kg.random.normal(kg.random.key(0), 1.5),
    ],
)
def test_an_error_outside_of_a_decorated_function_shows_one_entry_of_this_package(call: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        call(np.ones(3))
    assert len(caught.traceback) == 3  # here, the function above, and the name that it called


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("approximate, by_tanh", [("none", False), ("tanh", True), (False, False), (True, True)])
def test_gelu_takes_pytorchs_words(approximate: Any, by_tanh: bool, compiled: bool) -> None:
    x = np.linspace(-3, 3, 7)
    call = lambda x, way: kg.nn.gelu(x, approximate=way)  # noqa: E731
    function = (
        kg.kernel_graph(lambda x: call(x, approximate), device="cpu") if compiled else lambda x: call(x, approximate)
    )
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) if by_tanh else call(x, False)
    np.testing.assert_allclose(np.asarray(function(x)), np.asarray(expected), rtol=1e-12)
    assert np.abs(np.asarray(call(x, "tanh")) - np.asarray(call(x, "none"))).max() > 1e-4


def test_another_word_for_gelu_is_refused() -> None:
    for function in (lambda x: kg.nn.gelu(x, "erf"), kg.kernel_graph(lambda x: kg.nn.gelu(x, "erf"), device="cpu")):
        with pytest.raises(ValueError, match="neither 'none' nor 'tanh'"):
            function(np.ones(3))


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8"])
@pytest.mark.parametrize("function", [kg.nn.gelu, kg.nn.sigmoid, kg.erf, kg.erfc, kg.lgamma])
def test_functions_of_integers_are_floats_outside_of_a_decorated_function_too(function: Any, dtype: str) -> None:
    x = np.arange(1, 4).astype(dtype)
    found, compiled = np.asarray(function(x)), np.asarray(kg.kernel_graph(lambda x: function(x), device="cpu")(x))
    assert found.dtype == compiled.dtype and found.dtype.kind == "f"
    np.testing.assert_allclose(found, compiled, rtol=2e-3 if found.dtype.itemsize == 2 else 1e-6)
