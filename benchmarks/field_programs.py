"""The programs that stream schedulers and fusing compilers publish with, in NumPy's words. Times nothing.

Written anew from the papers' descriptions: GrCUDA's six (Parravicini et al., IPDPS 2021): VEC, B&S, IMG, ML, HITS, DL;
GoogLeNet (Szegedy et al., 2015) and BERT-base (Devlin et al., 2019), which Nimble and Opara publish with; a mixture of
experts; Halide's blur, unsharp mask and Harris corners (Ragan-Kelley et al., 2013); those of `field_networks.py`. Each
is one function of words `m` (which library says them) and arrays; `m.fork(f, g, ...)` gives all results and may run
them side by side.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from field_networks import (
    INCEPTION_V3,
    SQUEEZENET,
    bert_in_batches,
    deepfm,
    deepfm_arrays,
    network,
    network_arrays,
    randwire,
    randwire_arrays,
)

try:
    from numba import prange
except ImportError:
    prange = range

Arrays = list[np.ndarray[Any, Any]]
FloatMaker = Callable[..., np.ndarray[Any, Any]]


@dataclass(frozen=True)
class FieldProgram:
    """A program as published, at one size. arrays: makes its arguments. relative: how far results may lie apart. numba:
    the same in loops, for numba to compile; None where nobody would write them."""

    name: str
    body: Callable[..., Any]
    arrays: Callable[[], Sequence[Any]]
    relative: float = 2e-4
    numba: Callable[..., Any] | None = None


def floats(seed: int, low: float = 0.1, high: float = 1.0) -> FloatMaker:
    rng = np.random.default_rng(seed)
    return lambda *shape: rng.uniform(low, high, shape).astype(np.float32)


# GrCUDA's six


def vec(m, x, y):
    x2, y2 = m.fork(lambda: x * x, lambda: y * y)
    return (x2 - y2).sum()


def black_scholes(m, *spots):
    def call(s):
        d1 = (m.log(s / 1.1) + 0.045) / 0.3
        d2 = d1 - 0.3
        lower = [0.5 + 0.5 * m.erf(d * 0.70710678) for d in (d1, d2)]
        return s * lower[0] - 1.0675 * lower[1]

    return m.fork(*[lambda s=s: call(s) for s in spots])


def gaussian(width: int) -> list[float]:
    taps = np.exp(-0.5 * (np.arange(width) - width // 2) ** 2 / (width / 4) ** 2)
    return [float(t) for t in taps / taps.sum()]


def blur(m, x, width):
    n, pad, taps = x.shape[0], width // 2, gaussian(width)
    x = m.pad(x, pad)
    y = sum(t * x[i : i + n, :] for i, t in enumerate(taps))
    return sum(t * y[:, i : i + n] for i, t in enumerate(taps))


def sobel(m, x):
    n = x.shape[0]
    x = m.pad(x, 1)
    row = x[:, 2:] - x[:, :-2]
    column = x[2:, :] - x[:-2, :]
    across = row[:n] + 2.0 * row[1 : n + 1] + row[2:]
    down = column[:, :n] + 2.0 * column[:, 1 : n + 1] + column[:, 2:]
    return m.sqrt(across * across + down * down)


def image(m, x):
    small, large, soft = m.fork(lambda: blur(m, x, 3), lambda: blur(m, x, 11), lambda: blur(m, x, 7))
    edges, outline = m.fork(lambda: sobel(m, small), lambda: sobel(m, large))
    low, high = m.fork(lambda: outline.min(), lambda: outline.max())
    mask = m.clip(5.0 * (outline - low) / (high - low), 0.0, 1.0)
    sharp = m.clip(x + 0.5 * (x - soft), 0.0, 1.0)
    inner = sharp * mask + large * (1.0 - mask)
    return inner * edges + small * (1.0 - edges)


def log_softmax(m, z):
    z = z - m.rows(z.max, True)
    return z - m.log(m.rows(m.exp(z).sum, True))


def classifiers(m, x, ridge, bias, counts, prior):
    def linear():
        centred = x - m.rows(x.mean, True)
        spread = m.sqrt(m.rows((centred * centred).mean, True) + 1e-6)
        return log_softmax(m, (centred / spread) @ ridge + bias)

    scores = m.fork(linear, lambda: log_softmax(m, x @ counts + prior))
    return m.argmax_rows(scores[0] + scores[1])


def hits(m, source, target, ones):
    hub, authority = ones, ones
    nodes = ones.shape[0]
    for _ in range(10):
        authority, hub = m.fork(
            lambda hub=hub: m.add_at(nodes, target, hub[source]),
            lambda authority=authority: m.add_at(nodes, source, authority[target]),
        )
        authority, hub = m.fork(lambda a=authority: a / a.sum(), lambda h=hub: h / h.sum())
    return authority, hub


def towers(m, *arrays):
    def tower(x, first, second, dense):
        x = m.max_pool(m.relu(m.conv(x, first, 1, 1)), 2, 2, 0)
        x = m.max_pool(m.relu(m.conv(x, second, 1, 1)), 2, 2, 0)
        return m.relu(x.reshape(x.shape[0], -1) @ dense)

    left, right = m.fork(lambda: tower(*arrays[:4]), lambda: tower(*arrays[4:8]))
    return m.concatenate([left, right], 1) @ arrays[8]


# Halide's


def wide_blur(m, x):
    return blur(m, x, 11)


def unsharp(m, x):
    soft = blur(m, x, 7)
    return x * m.clip(2.0 - soft / (x + 0.01), 0.0, 2.0)


def harris(m, x):
    """The response of each pixel's neighbourhood: det - 0.04 trace^2 of the gradients' products, summed over 3 x 3."""
    n = x.shape[0]
    x = m.pad(x, 2)
    row, column = x[:, 2:] - x[:, :-2], x[2:, :] - x[:-2, :]
    across = (row[:-2] + 2.0 * row[1:-1] + row[2:]) / 12.0
    down = (column[:, :-2] + 2.0 * column[:, 1:-1] + column[:, 2:]) / 12.0

    def summed(y):
        return sum(y[i : i + n, j : j + n] for i in range(3) for j in range(3))

    xx, yy, xy = m.fork(lambda: summed(across * across), lambda: summed(down * down), lambda: summed(across * down))
    trace = xx + yy
    return xx * yy - xy * xy - 0.04 * trace * trace


# in loops, for numba


def vec_in_loops(x, y):
    total = np.float32(0)
    for i in prange(x.size):
        total += x[i] * x[i] - y[i] * y[i]
    return total


def black_scholes_in_loops(*spots):
    half, root, three, first, rate, shift = (
        np.float32(0.5), np.float32(0.70710678), np.float32(0.3), np.float32(1.1), np.float32(1.0675), np.float32(0.045)
    )  # fmt: skip
    found = []
    for s in spots:
        out = np.empty_like(s)
        for i in prange(s.size):
            d = (np.float32(math.log(s[i] / first)) + shift) / three
            low = half + half * np.float32(math.erf((d - three) * root))
            out[i] = s[i] * (half + half * np.float32(math.erf(d * root))) - rate * low
        found.append(out)
    return found


def wide_blur_in_loops(x):
    n, taps = x.shape[0], WIDE
    rows, out = np.empty_like(x), np.empty_like(x)
    for i in prange(n):
        for j in range(n):
            total = np.float32(0)
            for t in range(11):
                if 0 <= i + t - 5 < n:
                    total += taps[t] * x[i + t - 5, j]
            rows[i, j] = total
    for i in prange(n):
        for j in range(n):
            total = np.float32(0)
            for t in range(11):
                if 0 <= j + t - 5 < n:
                    total += taps[t] * rows[i, j + t - 5]
            out[i, j] = total
    return out


WIDE = np.array(gaussian(11), np.float32)


# networks


def bert(m, x, *weights):
    """Twelve layers of attention and a wide middle, of words that are embedded already."""

    def normed(x):
        centred = x - m.rows(x.mean, True)
        return centred / m.sqrt(m.rows((centred * centred).mean, True) + 1e-12)

    words, heads = x.shape[0], 12
    for layer in range(0, len(weights), 6):
        query, key, value, back, wide, narrow = weights[layer : layer + 6]
        parts = m.fork(lambda x=x, w=query: x @ w, lambda x=x, w=key: x @ w, lambda x=x, w=value: x @ w)
        seen = m.attention(*(p.reshape(words, heads, -1).swapaxes(0, 1) for p in parts))
        x = normed(x + seen.swapaxes(0, 1).reshape(words, -1) @ back)
        inner = x @ wide
        x = normed(x + (0.5 * inner * (1.0 + m.erf(inner * 0.70710678))) @ narrow)
    return x


def bert_arrays(words: int) -> Arrays:
    rng = np.random.default_rng(9)

    def weight(rows, columns):
        return (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)

    layer = ((768, 768),) * 4 + ((768, 3072), (3072, 768))
    return [weight(words, 768), *(weight(*shape) for _ in range(12) for shape in layer)]


def experts(m, x, gate, *weights):
    chosen = m.exp(log_softmax(m, m.dot(x, gate)))
    half = len(weights) // 2
    pairs = zip(weights[:half], weights[half:], strict=True)
    parts = m.fork(*[lambda a=a, b=b: m.dot(m.relu(m.dot(x, a)), b) for a, b in pairs])
    return m.like(sum(part * chosen[:, i : i + 1] for i, part in enumerate(parts)), x)


INCEPTION = (  # 1x1, 3x3 after a reduction, 5x5 after one, after the pool: Szegedy et al., table 1
    (192, 64, 96, 128, 16, 32, 32), (256, 128, 128, 192, 32, 96, 64), (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64), (512, 128, 128, 256, 24, 64, 64), (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128), (832, 256, 160, 320, 32, 128, 128), (832, 384, 192, 384, 48, 128, 128),
)  # fmt: skip


def googlenet_arrays(batch: int) -> Arrays:
    rng = np.random.default_rng(7)

    def weight(out, each, size):
        return (rng.standard_normal((out, each, size, size)) * (2 / (each * size * size)) ** 0.5).astype(np.float32)

    found = [rng.uniform(0, 1, (batch, 3, 224, 224)).astype(np.float32)]
    found += [weight(64, 3, 7), weight(64, 64, 1), weight(192, 64, 3)]
    for each, one, reduce3, three, reduce5, five, pool in INCEPTION:
        found += [weight(one, each, 1), weight(reduce3, each, 1), weight(three, reduce3, 3)]
        found += [weight(reduce5, each, 1), weight(five, reduce5, 5), weight(pool, each, 1)]
    return [*found, (rng.standard_normal((1024, 1000)) / 32).astype(np.float32)]


def googlenet(m, x, *weights):
    def conv(x, weight, stride=1, padding=0):
        return m.relu(m.conv(x, weight, stride, padding))

    x = m.max_pool(conv(x, weights[0], 2, 3), 3, 2, 1)
    x = m.max_pool(conv(conv(x, weights[1]), weights[2], 1, 1), 3, 2, 1)
    for block in range(len(INCEPTION)):
        w = weights[3 + 6 * block : 9 + 6 * block]
        branches = m.fork(
            lambda x=x, w=w: conv(x, w[0]),
            lambda x=x, w=w: conv(conv(x, w[1]), w[2], 1, 1),
            lambda x=x, w=w: conv(conv(x, w[3]), w[4], 1, 2),
            lambda x=x, w=w: conv(m.max_pool(x, 3, 1, 1), w[5]),
        )
        x = m.concatenate(branches, 1)
        if block in (1, 6):
            x = m.max_pool(x, 3, 2, 1)
    return m.dot(m.like(x.mean((2, 3)), x), weights[-1])


def in_bfloat16(arrays: Sequence[np.ndarray[Any, Any]]) -> Arrays:
    return [a.astype(ml_dtypes.bfloat16) if a.dtype == np.float32 else a for a in arrays]


def batched_bert_arrays(batch: int, words: int) -> Arrays:
    x, *weights = bert_arrays(words)
    return [np.stack([np.roll(x, i, 0) for i in range(batch)]), *weights]


def _networks() -> tuple[FieldProgram, ...]:
    """Of the networks those that are not in float32 alone, at batches of 1 and 16."""
    rows: list[tuple[str, Callable[..., Any], Callable[[int], Sequence[Any]], tuple[int, ...]]] = [
        ("GoogLeNet", googlenet, googlenet_arrays, ()),
        ("Inception-v3", network(INCEPTION_V3), lambda batch: network_arrays(INCEPTION_V3, batch, 299), (1, 16)),
        ("SqueezeNet", network(SQUEEZENET), lambda batch: network_arrays(SQUEEZENET, batch, 224), (1, 16)),
        ("RandWire", randwire, randwire_arrays, (1, 16)),
        ("BERT-base, 128 words", bert_in_batches, lambda batch: batched_bert_arrays(batch, 128), (16,)),
    ]
    found = []
    for name, body, arrays, batches in rows:
        made = functools.cache(arrays)
        found += [FieldProgram(f"{name}, batch {b}", body, lambda b=b, made=made: made(b), 5e-3) for b in batches]
        for b in (1, 16):
            half = lambda b=b, made=made: in_bfloat16(made(b))  # noqa: E731
            found.append(FieldProgram(f"{name}, batch {b}, bf16", body, half, 0.1))
    return (
        *found,
        *(FieldProgram(f"DeepFM, batch {b}", deepfm, lambda b=b: deepfm_arrays(b), 2e-3) for b in (1, 16)),
        FieldProgram(
            "8 experts, 256 x 1024 x 4096, bf16", experts, lambda: in_bfloat16(_expert_arrays(256, 1024, 4096)), 0.1
        ),
    )


def _edges(nodes: int, edges: int) -> Sequence[Any]:
    rng = np.random.default_rng(5)
    return [*(rng.integers(0, nodes, edges) for _ in range(2)), np.ones(nodes, np.float32)]


def _tower_arrays() -> Arrays:
    made = floats(6, -0.1, 0.1)
    tower = [(4, 3, 64, 64), (32, 3, 3, 3), (32, 32, 3, 3), (32 * 16 * 16, 256)]
    return [made(*s) for s in (*tower, *tower, (512, 10))]


def _classifier_arrays(rows: int) -> Arrays:
    made = floats(4)
    return [made(rows, 200), made(200, 10), made(10), made(200, 10), made(10)]


def _expert_arrays(rows: int, inner: int, outer: int) -> Arrays:
    made = floats(8, -0.1, 0.1)
    return [
        made(rows, inner),
        made(inner, 8),
        *(made(inner, outer) for _ in range(8)),
        *(made(outer, inner) for _ in range(8)),
    ]


def _cases() -> tuple[FieldProgram, ...]:
    return (
        FieldProgram("VEC 2^20", vec, lambda: [floats(1)(2**20), floats(2)(2**20)], 1e-2, vec_in_loops),
        *(
            FieldProgram(
                f"Black-Scholes, 10 of {title}",
                black_scholes,
                lambda size=size: [floats(i, 0.5, 2)(size) for i in range(10)],
                numba=black_scholes_in_loops,
            )
            for title, size in (("2^18", 2**18), ("2^22", 2**22))
        ),
        FieldProgram("image pipeline 512^2", image, lambda: [floats(3)(512, 512)]),
        FieldProgram("image pipeline 2048^2", image, lambda: [floats(3)(2048, 2048)]),
        FieldProgram("two classifiers 20,000 x 200", classifiers, lambda: _classifier_arrays(20_000)),
        FieldProgram("two classifiers 200,000 x 200", classifiers, lambda: _classifier_arrays(200_000)),
        FieldProgram("HITS, 100k nodes, 1M edges", hits, lambda: _edges(100_000, 1_000_000), 1e-3),
        FieldProgram("two convolution towers", towers, _tower_arrays),
        FieldProgram("8 experts, 32 x 512 x 1024", experts, lambda: _expert_arrays(32, 512, 1024)),
        FieldProgram("8 experts, 256 x 1024 x 4096", experts, lambda: _expert_arrays(256, 1024, 4096)),
        FieldProgram("GoogLeNet, batch 1", googlenet, lambda: googlenet_arrays(1), 2e-3),
        FieldProgram("GoogLeNet, batch 16", googlenet, lambda: googlenet_arrays(16), 2e-3),
        FieldProgram("BERT-base, 128 words", bert, lambda: bert_arrays(128), 2e-3),
        FieldProgram("blur 11 x 11, 2048^2", wide_blur, lambda: [floats(3)(2048, 2048)], numba=wide_blur_in_loops),
        FieldProgram("unsharp mask 2048^2", unsharp, lambda: [floats(3)(2048, 2048)]),
        FieldProgram("Harris corners 2048^2", harris, lambda: [floats(3)(2048, 2048)], 1e-3),
    )


FIELD_PROGRAMS = (*_cases(), *_networks())
