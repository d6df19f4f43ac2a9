"""Layers of neural networks."""

# ruff: noqa: B905
from __future__ import annotations

from typing import Any

import numpy as np

from . import Case


def relu(x):
    return np.maximum(x, 0)


def softmax(x):
    shifted = x - np.max(x, axis=-1, keepdims=True)
    e = np.exp(shifted)
    return e / np.sum(e, axis=-1, keepdims=True)


def softmax_4d(x):
    tmp_max = np.max(x, axis=-1, keepdims=True)
    tmp_out = np.exp(x - tmp_max)
    tmp_sum = np.sum(tmp_out, axis=-1, keepdims=True)
    return tmp_out / tmp_sum


def mlp(x, w1, b1, w2, b2, w3, b3):
    x = relu(x @ w1 + b1)
    x = relu(x @ w2 + b2)
    return softmax(x @ w3 + b3)


def conv2d(inputs, weights):
    """Valid convolution of NHWC pictures, a pixel of the result at a time (NPBench's form)."""
    K = weights.shape[0]
    N, H, W, C_out = inputs.shape[0], inputs.shape[1] - K + 1, inputs.shape[2] - K + 1, weights.shape[3]
    output = np.empty((N, H, W, C_out), dtype=np.float32)
    for i in range(H):
        for j in range(W):
            output[:, i, j, :] = np.sum(
                inputs[:, i : i + K, j : j + K, :, np.newaxis] * weights[np.newaxis, :, :, :], axis=(1, 2, 3)
            )
    return output


def conv2d_taps(inputs, weights):
    """The same by whole pictures, one for each tap."""
    K = weights.shape[0]
    H, W = inputs.shape[1] - K + 1, inputs.shape[2] - K + 1
    output = np.zeros((inputs.shape[0], H, W, weights.shape[3]), dtype=inputs.dtype)
    for i in range(K):
        for j in range(K):
            output += inputs[:, i : i + H, j : j + W, :] @ weights[i, j]
    return output


def maxpool2d(x):
    output = np.empty([x.shape[0], x.shape[1] // 2, x.shape[2] // 2, x.shape[3]], dtype=x.dtype)
    for i in range(x.shape[1] // 2):
        for j in range(x.shape[2] // 2):
            output[:, i, j, :] = np.max(x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, :], axis=(1, 2))
    return output


def lenet5(x, conv1, b1, conv2, b2, fc1, fb1, fc2, fb2, fc3, fb3):
    x = relu(conv2d_taps(x, conv1) + b1)
    x = maxpool2d(x)
    x = relu(conv2d_taps(x, conv2) + b2)
    x = maxpool2d(x)
    x = np.reshape(x, (x.shape[0], x.shape[1] * x.shape[2] * x.shape[3]))
    x = relu(x @ fc1 + fb1)
    x = relu(x @ fc2 + fb2)
    return x @ fc3 + fb3


def batchnorm2d(x, eps=1e-5):
    mean = np.mean(x, axis=0, keepdims=True)
    std = np.std(x, axis=0, keepdims=True)
    return (x - mean) / np.sqrt(std + eps)


def resnet_block(x, w1, w2, w3):
    padded = np.zeros((x.shape[0], x.shape[1] + 2, x.shape[2] + 2, w1.shape[3]), dtype=x.dtype)
    padded[:, 1:-1, 1:-1, :] = conv2d_taps(x, w1)
    y = relu(batchnorm2d(padded))
    y = relu(batchnorm2d(conv2d_taps(y, w2)))
    y = batchnorm2d(conv2d_taps(y, w3))
    return relu(y + x)


def layer_norm(x, g, b, eps=1e-5):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.var(x, axis=-1, keepdims=True)
    return g * (x - mean) / np.sqrt(variance + eps) + b


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(q, k, v, mask):
    return softmax(q @ k.T / np.sqrt(q.shape[-1]) + mask) @ v


def transformer_block(x, blocks, n_head):
    """A decoder block of GPT-2, from a dict of weights (as in picoGPT)."""

    def linear(x, w, b):
        return x @ w + b

    def mha(x, c_attn, c_proj):
        x = linear(x, **c_attn)
        qkv_heads = [np.split(part, n_head, axis=-1) for part in np.split(x, 3, axis=-1)]
        causal = (1 - np.tri(x.shape[0], dtype=x.dtype)) * -1e10
        heads = [attention(q, k, v, causal) for q, k, v in zip(*qkv_heads)]
        return linear(np.hstack(heads), **c_proj)

    x = x + mha(layer_norm(x, **blocks["ln_1"]), **blocks["attn"])
    up = gelu(linear(layer_norm(x, **blocks["ln_2"]), **blocks["mlp"]["c_fc"]))
    return x + linear(up, **blocks["mlp"]["c_proj"])


def lstm(x, h, c, Wx, Wh, b):
    """A sequence through one cell."""
    n = h.shape[-1]
    out = np.zeros((len(x), *h.shape))
    for t in range(len(x)):
        a = x[t] @ Wx + h @ Wh + b
        i, f, o = (1 / (1 + np.exp(-a[:, k * n : (k + 1) * n])) for k in range(3))
        g = np.tanh(a[:, 3 * n :])
        c = f * c + i * g
        h = o * np.tanh(c)
        out[t] = h
    return out, h, c


def rand(*shapes: Any) -> list[Any]:
    rng = np.random.default_rng(37)
    return [(rng.normal(size=shape) * 0.3).astype(np.float32) for shape in shapes]


def lenet(n: int) -> tuple[Any, ...]:
    shapes = [
        (n, 28, 28, 1),
        (5, 5, 1, 6),
        (6,),
        (5, 5, 6, 16),
        (16,),
        (256, 120),
        (120,),
        (120, 84),
        (84,),
        (84, 10),
        (10,),
    ]
    return tuple(rand(*shapes))


def gpt(n: int) -> tuple[Any, ...]:
    e = 16
    shapes = [(n, e), e, e, e, e, (e, 3 * e), 3 * e, (e, e), e, (e, 4 * e), 4 * e, (4 * e, e), e]
    x, ga, ba, gb, bb, wa, va, wp, vp, wf, vf, wo, vo = (a.astype(np.float64) for a in rand(*shapes))
    blocks = {
        "ln_1": {"g": ga, "b": ba},
        "ln_2": {"g": gb, "b": bb},
        "attn": {"c_attn": {"w": wa, "b": va}, "c_proj": {"w": wp, "b": vp}},
        "mlp": {"c_fc": {"w": wf, "b": vf}, "c_proj": {"w": wo, "b": vo}},
    }
    return x, blocks, 4


def recurrent(n: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(38)
    k = 8
    return (
        rng.normal(size=(6, n, 5)),
        np.zeros((n, k)),
        np.zeros((n, k)),
        0.3 * rng.normal(size=(5, 4 * k)),
        0.3 * rng.normal(size=(k, 4 * k)),
        np.zeros(4 * k),
    )


CASES = [
    Case(softmax_4d, lambda n: tuple(rand((2, 3, n, n))), 12, 512, "NPBench"),
    Case(mlp, lambda n: tuple(rand((n, 20), (20, 30), 30, (30, 20), 20, (20, 10), 10)), 8, 20_000, "NPBench", ulps=256),
    Case(conv2d, lambda n: tuple(rand((2, n, n, 3), (3, 3, 3, 4))), 8, 16, "NPBench", ulps=256),
    Case(conv2d_taps, lambda n: tuple(rand((2, n, n, 3), (3, 3, 3, 4))), 10, 256, "LeCun et al., 1998", ulps=256),
    Case(lenet5, lenet, 2, 16, "LeCun et al., 1998", ulps=1e3),
    Case(
        resnet_block,
        lambda n: tuple(rand((3, n, n, 8), (1, 1, 8, 4), (3, 3, 4, 4), (1, 1, 4, 8))),
        8,
        56,
        "He et al., 2015",
        ulps=1e4,
    ),
    Case(transformer_block, gpt, 10, 256, "Radford et al., 2019; Mody, picoGPT, 2023", ulps=1e3),
    Case(lstm, recurrent, 4, 5_000, "Hochreiter & Schmidhuber, 1997"),
]
