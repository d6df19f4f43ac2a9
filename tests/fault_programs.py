"""Twenty programs, each with its arguments, for the tests that let every request to a device fail once in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg

Arrays = tuple[Any, ...]


def _matrix(*shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return rng.uniform(0.1, 1, shape).astype(np.float32)


def chain(x):
    return np.exp(-x * x) * np.sin(x) + 0.5 * x


def several(x):
    y = np.exp(x)
    return y.sum(0), y.max(1), y - 1


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, scale):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def totals(x):
    return (x * x).sum(), x.mean(), np.abs(x).max()


def stencil(u):
    inner = u[1:-1, 1:-1] + 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return np.pad(inner, 1)


def transposed(x):
    return x.T + 2 * x.T.sum(0)


def product(a, b):
    return np.maximum(a @ b, 0)


def branches(x, a, b, c):
    return [np.maximum(x @ w, 0) @ w for w in (a, b, c)]


def perceptron(x, first, second):
    return np.tanh(x @ first) @ second


def assigned(x):
    x[1:] = x[:-1] * 2
    x[0] = 1
    return x + 1


def integers(x):
    n = (x * 100).astype(np.int32)
    return n // 7, n % 5, (n & 3).sum()


def chosen(x):
    return np.where(x > 0.5, np.sqrt(x), x * x)


def sort_rows(x):
    return np.sort(x, axis=1) + 1


def running(x):
    return np.cumsum(x, axis=0) * 2, np.sort(x, axis=0)


def solved(a, b):
    return np.linalg.solve(a + 4 * np.eye(8, dtype=np.float32), b) - b


def spectrum(x):
    return np.abs(np.fft.fft(x)).sum(-1)


def gathered(x, index):
    return x[index] * 2


def distances(x):
    return np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))


def attention(q, k, v):
    return kg.nn.softmax(q @ k.T / 4.0) @ v


PROGRAMS: dict[Callable[..., Any], Arrays] = {
    chain: (_matrix(40, 30),),
    several: (_matrix(24, 32),),
    softmax: (_matrix(16, 64),),
    layer_norm: (_matrix(16, 64), _matrix(64)),
    totals: (_matrix(500),),
    stencil: (_matrix(20, 20),),
    transposed: (_matrix(24, 16),),
    product: (_matrix(16, 8), _matrix(8, 12)),
    branches: (_matrix(8, 8), _matrix(8, 9)[:, :8], _matrix(8, 10)[:, :8], _matrix(8, 11)[:, :8]),
    perceptron: (_matrix(4, 8), _matrix(8, 16), _matrix(16, 3)),
    assigned: (_matrix(30),),
    integers: (_matrix(100),),
    chosen: (_matrix(10, 10),),
    sort_rows: (_matrix(12, 9),),
    running: (_matrix(9, 12),),
    solved: (_matrix(8, 8), _matrix(8)),
    spectrum: (_matrix(4, 16),),
    gathered: (_matrix(20), np.arange(19, -1, -2)),
    distances: (_matrix(12, 3),),
    attention: (_matrix(6, 16), _matrix(7, 16), _matrix(7, 5)),
}
