"""The programs whose every stage is kept as text."""

import math

import numpy as np

import kernelgraph as kg


def black_scholes(s, k, t, r, v):
    d1 = (np.log(s / k) + (r + v * v / 2) * t) / (v * np.sqrt(t))
    d2 = d1 - v * np.sqrt(t)
    phi = lambda x: 0.5 * (1 + kg.erf(x / math.sqrt(2)))  # noqa: E731
    discounted = k * np.exp(-r * t)
    return s * phi(d1) - discounted * phi(d2), discounted * phi(-d2) - s * phi(-d1)


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layer_norm(x, gain, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return gain * centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) + bias


def stencil(u):
    return 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])


def branches(x, *weights):
    return [np.maximum(np.maximum(x @ w, 0) @ w, 0) for w in weights]


def long_sum(x):
    return np.sqrt((x * x).sum())


def transposed(x, y):
    return x.T + 2 * y


def rolled_jacobi(u):
    for _ in range(100):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def while_loop(x):
    return kg.while_loop(lambda s: s[0].max() > 1e-3, lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))


f32 = np.float32
PROGRAMS = {
    "black_scholes": (black_scholes, [kg.spec((1000,), f32)] * 3 + [0.03, 0.2]),
    "softmax": (softmax, [kg.spec((512, 1024), f32)]),
    "layer_norm": (layer_norm, [kg.spec((512, 1024), f32), kg.spec((1024,), f32), kg.spec((1024,), f32)]),
    "stencil": (stencil, [kg.spec((256, 256), f32)]),
    "branches": (branches, [kg.spec((512, 512), f32)] * 5),
    "long_sum": (long_sum, [kg.spec((1 << 22,), f32)]),
    "rolled_jacobi": (rolled_jacobi, [kg.spec((256, 256), f32)]),
    "while_loop": (while_loop, [kg.spec((1000,), f32)]),
    "transposed": (transposed, [kg.spec((256, 512), f32), kg.spec((512, 256), f32)]),
}


def convolution_chain(x, square, bias, one, other):
    x = np.maximum(kg.nn.conv2d(x, square, bias, padding=1), 0)
    x = kg.nn.max_pool2d(x, 2)
    x = np.concatenate([kg.nn.conv2d(x, one), np.maximum(kg.nn.conv2d(x, other, padding=1), 0)], 1)
    return kg.nn.conv2d(x, one).mean((2, 3))


CHAIN = (
    convolution_chain,
    [kg.spec(shape, "bfloat16") for shape in ((2, 64, 8, 8), (64, 64, 3, 3), (64,), (32, 64, 1, 1), (32, 64, 3, 3))],
)
