"""Convolutions and attention by cuDNN against NumPy in float64; skipped where its frontend is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.interpret.convolution import (
    numpy_convolution,
    numpy_convolution_image,
    numpy_convolution_weights,
)
from kernelgraph.runtime.interpret.dnn import numpy_attention, numpy_attention_gradient

pytestmark = [
    pytest.mark.usefixtures("device"),
    pytest.mark.skipif(importlib.util.find_spec("cudnn") is None, reason="no nvidia-cudnn-frontend"),
]
BFLOAT16 = ml_dtypes.bfloat16
BOUNDS = {np.dtype(BFLOAT16): 8e-3, np.dtype(np.float16): 1e-3, np.dtype(np.float32): 2e-6}


def arrays(dtype: Any, *shapes: tuple[int, ...], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def near(found: Any, expected: Any, bound: float) -> None:
    assert found.shape == expected.shape
    found = np.asarray(found).astype(float)
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound * float(np.abs(expected).max()))


def called(function: Any, *args: Any, tasks: list[str], calls: int = 4, maybe: bool = False) -> Any:
    """The result of the last call, of several that may be replayed; which tasks of cuDNN's the plan has. maybe: or
    none."""
    decorated = kg.kernel_graph(function, device="cuda")
    results = [decorated(*args) for _ in range(calls)]
    names = {"convolution", "convolution_image", "convolution_weights", "attention", "attention_gradient"}
    found = [t.name for t in decorated.plan(*args).tasks if t.name in names]
    assert found == tasks or (maybe and not found)
    assert "runs on the host" not in decorated.explain(*args, verbose=True)
    return results[-1]


CONVOLUTIONS: list[tuple[Any, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    (kg.nn.conv2d, (4, 16, 20, 20), (24, 16, 3, 3), {"padding": 1}),
    (kg.nn.conv2d, (2, 32, 17, 13), (16, 8, 3, 2), {"groups": 4, "stride": (2, 1), "padding": (1, 0)}),
    (kg.nn.conv2d, (2, 5, 19, 21), (7, 5, 3, 3), {"dilation": 2}),
    (kg.nn.conv2d, (3, 3, 64, 64), (8, 3, 7, 7), {"stride": 2, "padding": 3}),
    (kg.nn.conv2d, (2, 40, 9, 9), (48, 40, 1, 1), {}),
    (kg.nn.conv1d, (3, 12, 50), (20, 12, 5), {"padding": 2, "stride": 3}),
    (kg.nn.conv3d, (2, 6, 7, 8, 9), (10, 6, 3, 1, 2), {"padding": (1, 0, 1)}),
]


def convolved(x: Any, w: Any, ct: Any, options: dict[str, Any]) -> list[Any]:
    """The convolution and both gradients in float64."""
    rank = x.ndim - 2

    def each(name: str, default: int) -> tuple[int, ...]:
        value = options.get(name, default)
        return value if isinstance(value, tuple) else (value,) * rank

    padding = each("padding", 0)
    fixed = {"stride": each("stride", 1), "dilation": each("dilation", 1), "groups": options.get("groups", 1)}
    wide = np.pad(x.astype(float), ((0, 0), (0, 0), *((p, p) for p in padding)))
    inside: Any = (..., *(slice(p, n + p) for p, n in zip(padding, x.shape[2:], strict=True)))
    w, ct = w.astype(float), ct.astype(float)
    image = numpy_convolution_image(ct, w, **fixed, shape=wide.shape)[inside]
    return [numpy_convolution(wide, w, **fixed), image, numpy_convolution_weights(wide, ct, **fixed, shape=w.shape)]


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16, np.float32])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=lambda case: f"{case[0].__name__} {case[1]}")
def test_convolutions(case: Any, dtype: Any) -> None:
    function, image, weights, options = case
    x, w = arrays(dtype, image, weights)
    shape = kg.kernel_graph(lambda x, w: function(x, w, **options), device="cpu").graph(x, w)
    (ct,) = arrays(dtype, shape.nodes[shape.outputs[0]].type.shape, seed=1)
    expected = convolved(x, w, ct, options)
    bound = BOUNDS[np.dtype(dtype)]
    single = max(weights[2:]) == 1
    clocked = dtype is np.float32 or single  # where products of matrices may be faster
    relu = lambda x, w: np.maximum(function(x, w, **options), 0)  # noqa: E731
    forward = called(relu, x, w, tasks=["convolution"], maybe=clocked)
    near(forward, np.maximum(expected[0], 0), bound)

    def loss(x: Any, w: Any) -> Any:
        return (function(x, w, **options).astype(np.float32) * ct.astype(np.float32)).sum()

    tasks = ["convolution_image", "convolution_weights"]
    decorated = kg.kernel_graph(lambda x, w: kg.grad(loss, (0, 1))(x, w), device="cuda")
    for _ in range(3):
        found = decorated(x, w)
    names = [t.name for t in decorated.plan(x, w).tasks]
    assert single or all(name in names for name in tasks)
    for a, b in zip(found, expected[1:], strict=True):
        near(a, b, 2 * bound)


def test_channels_that_lie_last_are_not_moved() -> None:
    x, w = arrays(BFLOAT16, (2, 20, 20, 16), (24, 3, 3, 16))

    def convolve(x: Any, w: Any) -> Any:
        return kg.nn.conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), padding=1).transpose(0, 2, 3, 1)

    decorated = kg.kernel_graph(convolve, device="cuda")
    found = decorated(x, w)
    assert [t.name for t in decorated.plan(x, w).tasks] == ["convolution"]
    ct = np.zeros((2, 24, 20, 20))
    near(
        found,
        convolved(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), ct, {"padding": 1})[0].transpose(0, 2, 3, 1),
        8e-3,
    )


ATTENTIONS: list[tuple[tuple[int, ...], tuple[int, ...], int | None]] = [  # q, k and v, bound
    ((2, 4, 128, 64), (2, 4, 128, 64), None),
    ((2, 4, 100, 40), (2, 4, 77, 40), None),
    ((2, 4, 128, 64), (2, 4, 128, 64), 0),
    ((2, 4, 64, 64), (2, 4, 96, 64), 0),
    ((2, 8, 256, 128), (2, 2, 256, 128), 0),
    ((200, 64), (200, 64), None),
    ((3, 65, 24), (3, 130, 24), 0),
]


@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16])
@pytest.mark.parametrize("q_shape, k_shape, bound", ATTENTIONS)
def test_attention(q_shape: Any, k_shape: Any, bound: int | None, dtype: Any) -> None:
    q, k, v = arrays(dtype, q_shape, k_shape, k_shape)
    times = q_shape[1] // k_shape[1] if len(q_shape) == 4 else 1

    def attend(q: Any, k: Any, v: Any) -> Any:
        if times > 1:
            k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
        return kg.nn.attention(q, k, v, causal=bound == 0)

    found = called(attend, q, k, v, tasks=["attention"])
    wide = [a.astype(float) for a in (q, k, v)]
    mask = [] if bound is None else [np.tri(q_shape[-2], k_shape[-2], bound, bool)]
    scale = q_shape[-1] ** -0.5
    expected, stats = numpy_attention(*wide, *mask, scale=scale, stats=True, dtype="float64")
    near(found, expected, BOUNDS[np.dtype(dtype)])
    (ct,) = arrays(dtype, expected.shape, seed=3)

    def loss(*args: Any) -> Any:
        return (attend(*args) * ct.astype(np.float32)).sum()

    slopes = called(lambda *args: kg.grad(loss, (0, 1, 2))(*args), q, k, v, tasks=["attention", "attention_gradient"])
    wanted = numpy_attention_gradient(*wide, expected, ct.astype(float), stats, *mask, scale=scale, dtype="float64")
    for a, b in zip(slopes, wanted, strict=True):
        near(a, b, 4 * BOUNDS[np.dtype(dtype)])


MASKS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [  # q, k and v, what is added to the scores
    ((2, 4, 128, 64), (2, 4, 128, 64), (128, 128)),
    ((2, 4, 128, 64), (2, 4, 192, 64), (2, 1, 1, 192)),
    ((2, 8, 100, 64), (2, 2, 72, 64), (8, 100, 72)),
    ((3, 65, 24), (3, 77, 24), (65, 77)),
]


def masked(kind: str, q: Any, k: Any, v: Any, mask: Any) -> Any:
    if q.ndim == 4 and k.shape[1] != q.shape[1]:
        k, v = (np.repeat(a, q.shape[1] // k.shape[1], 1) for a in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) * np.float32(q.shape[-1] ** -0.5)
    scores = scores + mask if kind == "added" else np.where(mask, scores, {"low": np.float32(-1e9)}.get(kind, -np.inf))
    return (kg.nn.softmax(scores) @ v).astype(q.dtype)


@pytest.mark.parametrize("kind", ["added", "hidden", "low"])
@pytest.mark.parametrize("dtype", [BFLOAT16, np.float16])
@pytest.mark.parametrize("q_shape, k_shape, shape", MASKS)
def test_attention_with_masks(q_shape: Any, k_shape: Any, shape: Any, dtype: Any, kind: str) -> None:
    """As NumPy means it, forward and back, with queries that see nothing; one call each where cuDNN takes it."""
    q, k, v, ct = arrays(dtype, q_shape, k_shape, k_shape, (*q_shape[:-1], k_shape[-1]))
    (mask,) = arrays(dtype, shape, seed=7)
    if kind != "added":
        mask = mask > -1
        mask[..., -1, :] = shape[-2] == 1 or kind == "hidden"  # else a query that sees nothing
    decorated = kg.kernel_graph(lambda *args: masked(kind, *args), device="cuda")
    wide = [a.astype(float) for a in (q, k, v)]
    numbers = mask if kind != "added" else mask.astype(float)
    hidden = -1e9 if kind == "low" else -np.inf
    scale = q_shape[-1] ** -0.5
    expected, stats = numpy_attention(*wide, numbers, scale=scale, hidden=hidden, stats=True, dtype="float64")
    found = decorated(q, k, v, mask)
    near(found, expected, BOUNDS[np.dtype(dtype)])
    assert "attention" in [t.name for t in decorated.plan(q, k, v, mask).tasks]

    def loss(*args: Any) -> Any:
        return (masked(kind, *args).astype(np.float32) * ct.astype(np.float32)).sum()

    slopes = kg.kernel_graph(lambda *args: kg.grad(loss, (0, 1, 2))(*args), device="cuda")(q, k, v, mask)
    wanted = numpy_attention_gradient(
        *wide, expected, ct.astype(float), stats, numbers, scale=scale, hidden=hidden, dtype="float64"
    )
    for a, b in zip(slopes, wanted[:3], strict=True):
        near(a, b, 4 * BOUNDS[np.dtype(dtype)])


def test_a_query_that_sees_nothing_gets_nan() -> None:
    q, k, v = arrays(BFLOAT16, *[(2, 4, 128, 64)] * 3)
    mask = np.ones((128, 128), bool)
    mask[5] = False
    for given in (mask, np.where(mask, 0, -np.inf).astype(BFLOAT16)):
        found = np.asarray(kg.kernel_graph(kg.nn.attention, device="cuda")(q, k, v, given)).astype(float)
        assert np.isnan(found[:, :, 5]).all() and np.isnan(found).sum() == 2 * 4 * 64


def test_heads_are_not_moved() -> None:
    """(batch, places, heads, elements) as most write it, of contiguous arrays."""
    q, k, v = arrays(BFLOAT16, *[(2, 128, 4 * 64)] * 3)

    def attend(*args: Any) -> Any:
        q, k, v = (a.reshape(2, 128, 4, 64).transpose(0, 2, 1, 3) for a in args)
        result = kg.nn.attention(q, k, v, causal=True).astype(BFLOAT16)
        return result.transpose(0, 2, 1, 3).reshape(2, 128, 256)

    decorated = kg.kernel_graph(attend, device="cuda")
    found = decorated(q, k, v)
    assert [t.name for t in decorated.plan(q, k, v).tasks] == ["attention"]
    wide = [a.astype(float).reshape(2, 128, 4, 64).transpose(0, 2, 1, 3) for a in (q, k, v)]
    (expected,) = numpy_attention(*wide, np.tri(128, dtype=bool), scale=0.125, dtype="float64")
    near(found, expected.transpose(0, 2, 1, 3).reshape(2, 128, 256), 8e-3)


def test_a_network_is_replayed_as_one_graph() -> None:
    """Two convolutions and an attention, whose library calls are captured; other arrays at each call."""
    w1, w2 = (w / BFLOAT16(16) for w in arrays(BFLOAT16, (32, 3, 3, 3), (64, 32, 3, 3), seed=5))  # small scores

    def net(x: Any) -> Any:
        y = np.maximum(kg.nn.conv2d(x, w1, padding=1), 0)
        y = np.maximum(kg.nn.conv2d(y, w2, padding=1, stride=2), 0)
        tokens = y.reshape(y.shape[0], 64, -1).transpose(0, 2, 1)
        return kg.nn.attention(tokens, tokens, tokens).astype(np.float32)

    decorated, plain = kg.kernel_graph(net, device="cuda"), kg.kernel_graph(net, device="cpu")
    for seed in range(6):
        (x,) = arrays(BFLOAT16, (2, 3, 16, 16), seed=seed)
        near(np.asarray(decorated(x)), np.asarray(plain(x)).astype(float), 3e-2)
