"""Networks that stream schedulers and fusing compilers publish with, in NumPy's words. Times nothing.

Written anew from the papers: Inception-v3 (Szegedy et al., 2016), SqueezeNet 1.1 (Iandola et al., 2016), a RandWire of
three stages (Xie et al., 2019), DeepFM (Guo et al., 2017), BERT-base in batches (Devlin et al., 2019). Those of
convolutions are layers as data: what computes one and what makes its weights both read them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Pair = tuple[int, int]
Arrays = list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Conv:
    """A convolution and a relu."""

    out: int
    size: Pair
    stride: int = 1
    padding: Pair = (0, 0)


@dataclass(frozen=True)
class Pool:
    """kind: `max` or `mean`."""

    kind: str
    size: int
    stride: int
    padding: int = 0


@dataclass(frozen=True)
class Branches:
    """Chains of layers side by side, their results one behind the other."""

    chains: tuple[Chain, ...]


Chain = tuple["Conv | Pool | Branches", ...]


def square(out: int, size: int, stride: int = 1, padding: int | None = None) -> Conv:
    """Padded so that the image keeps its size, unless told."""
    around = size // 2 if padding is None else padding
    return Conv(out, (size, size), stride, (around, around))


def weight_shapes(chain: Chain, channels: int) -> tuple[list[tuple[int, ...]], int]:
    """Of the weights of a chain, in the order in which they are taken; and the channels of its result."""
    shapes: list[tuple[int, ...]] = []
    for layer in chain:
        if isinstance(layer, Conv):
            shapes.append((layer.out, channels, *layer.size))
            channels = layer.out
        elif isinstance(layer, Branches):
            parts = [weight_shapes(branch, channels) for branch in layer.chains]
            shapes += [shape for part, _ in parts for shape in part]
            channels = sum(out for _, out in parts)
    return shapes, channels


def apply_chain(m: Any, chain: Chain, x: Any, weights: Iterator[Any]) -> Any:
    for layer in chain:
        if isinstance(layer, Conv):
            x = m.relu(m.conv(x, next(weights), layer.stride, layer.padding))
        elif isinstance(layer, Pool):
            pool = m.max_pool if layer.kind == "max" else m.mean_pool
            x = pool(x, layer.size, layer.stride, layer.padding)
        else:
            taken = [[next(weights) for _ in weight_shapes(branch, 1)[0]] for branch in layer.chains]
            pairs = zip(layer.chains, taken, strict=True)
            branches = [lambda x=x, c=chain, w=own: apply_chain(m, c, x, iter(w)) for chain, own in pairs]
            x = m.concatenate(m.fork(*branches), 1)
    return x


def network(chain: Chain) -> Any:
    """The function of an image and weights: the layers, the mean of each channel, one product."""

    def body(m: Any, x: Any, *weights: Any) -> Any:
        return m.dot(m.like(apply_chain(m, chain, x, iter(weights)).mean((2, 3)), x), weights[-1])

    return body


def network_arrays(chain: Chain, batch: int, size: int) -> Arrays:
    rng = np.random.default_rng(7)
    shapes, channels = weight_shapes(chain, 3)
    weights = [rng.standard_normal(s) * (2 / math.prod(s[1:])) ** 0.5 for s in shapes]
    last = rng.standard_normal((channels, 1000)) / channels**0.5
    return [a.astype(np.float32) for a in (rng.uniform(0, 1, (batch, 3, size, size)), *weights, last)]


# Inception-v3


def inception_a(pooled: int) -> Branches:
    return Branches((
        (square(64, 1),),
        (square(48, 1), square(64, 5)),
        (square(64, 1), square(96, 3), square(96, 3)),
        (Pool("mean", 3, 1, 1), square(pooled, 1)),
    ))  # fmt: skip


def inception_b(c: int) -> Branches:
    row, column = Conv(c, (1, 7), 1, (0, 3)), Conv(c, (7, 1), 1, (3, 0))
    return Branches((
        (square(192, 1),),
        (square(c, 1), row, Conv(192, (7, 1), 1, (3, 0))),
        (square(c, 1), column, row, column, Conv(192, (1, 7), 1, (0, 3))),
        (Pool("mean", 3, 1, 1), square(192, 1)),
    ))  # fmt: skip


INCEPTION_C = Branches((
    (square(320, 1),),
    (square(384, 1), Branches(((Conv(384, (1, 3), 1, (0, 1)),), (Conv(384, (3, 1), 1, (1, 0)),)))),
    (square(448, 1), square(384, 3), Branches(((Conv(384, (1, 3), 1, (0, 1)),), (Conv(384, (3, 1), 1, (1, 0)),)))),
    (Pool("mean", 3, 1, 1), square(192, 1)),
))  # fmt: skip
INCEPTION_V3: Chain = (
    square(32, 3, 2, 0), square(32, 3, 1, 0), square(64, 3), Pool("max", 3, 2), square(80, 1), square(192, 3, 1, 0),
    Pool("max", 3, 2), inception_a(32), inception_a(64), inception_a(64),
    Branches(((square(384, 3, 2, 0),), (square(64, 1), square(96, 3), square(96, 3, 2, 0)), (Pool("max", 3, 2),))),
    inception_b(128), inception_b(160), inception_b(160), inception_b(192),
    Branches((
        (square(192, 1), square(320, 3, 2, 0)),
        (square(192, 1), Conv(192, (1, 7), 1, (0, 3)), Conv(192, (7, 1), 1, (3, 0)), square(192, 3, 2, 0)),
        (Pool("max", 3, 2),),
    )),
    INCEPTION_C, INCEPTION_C,
)  # fmt: skip


# SqueezeNet 1.1


def fire(squeezed: int, expanded: int) -> Chain:
    return (square(squeezed, 1), Branches(((square(expanded, 1),), (square(expanded, 3),))))


SQUEEZENET: Chain = (
    square(64, 3, 2, 0), Pool("max", 3, 2), *fire(16, 64), *fire(16, 64), Pool("max", 3, 2),
    *fire(32, 128), *fire(32, 128), Pool("max", 3, 2),
    *fire(48, 192), *fire(48, 192), *fire(64, 256), *fire(64, 256),
)  # fmt: skip


# RandWire


def small_world(nodes: int, near: int, rewired: float, seed: int) -> list[list[int]]:
    """Which nodes each reads, of a graph of Watts and Strogatz, its edges towards the larger number."""
    rng, edges = np.random.default_rng(seed), set[Pair]()
    for step in range(1, near // 2 + 1):
        for node in range(nodes):
            other = (node + step) % nodes
            if rng.random() < rewired:
                other = int(rng.integers(0, nodes))
            edges |= {(min(node, other), max(node, other))} if node != other else set()
    return [sorted(a for a, b in edges if b == node) for node in range(nodes)]


STAGES = tuple(small_world(16, 4, 0.75, seed) for seed in (1, 2, 3))
WIDTH = 78  # channels of the first stage


def randwire_arrays(batch: int) -> Arrays:
    rng = np.random.default_rng(8)

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) * (2 / math.prod(shape[1:])) ** 0.5).astype(np.float32)

    found = [rng.uniform(0, 1, (batch, 3, 112, 112)).astype(np.float32), weight(WIDTH, 3, 3, 3)]
    channels = WIDTH
    for number, graph in enumerate(STAGES):
        wide = WIDTH * 2**number
        for reads in graph:
            each = wide if reads else channels
            found += [weight(each, 1, 3, 3), weight(wide, each, 1, 1), weight(max(1, len(reads)), 1)[:, 0]]
        channels = wide
    return [*found, weight(1000, channels).T.copy()]


def randwire(m: Any, x: Any, first: Any, *weights: Any) -> Any:
    """In each stage nodes that read none halve the image, and what no node reads is the mean of all such. Nodes that
    are as far from those run side by side."""

    def unit(x: Any, own: Sequence[Any], stride: int) -> Any:
        return m.conv(m.depthwise(m.relu(x), own[0], stride, 1), own[1], 1, 0)

    def joined(parts: Sequence[Any], own: Sequence[Any]) -> Any:
        kept = 1.0 / (1.0 + m.exp(-own[2]))
        return m.like(sum(part * kept[i] for i, part in enumerate(parts)), parts[0])

    x, at = m.conv(x, first, 2, 1), 0
    for graph in STAGES:
        depth: list[int] = []
        for reads in graph:
            depth.append(1 + max((depth[a] for a in reads), default=-1))
        made: dict[int, Any] = {}
        for level in range(max(depth) + 1):
            numbers = [n for n, d in enumerate(depth) if d == level]
            given = [([made[a] for a in graph[n]] or [x], weights[at + 3 * n : at + 3 * n + 3]) for n in numbers]
            branches = [
                lambda parts=parts, own=own, level=level: unit(
                    joined(parts, own) if level else parts[0], own, 1 + (not level)
                )
                for parts, own in given
            ]
            made |= dict(zip(numbers, m.fork(*branches), strict=True))
        ends = [made[n] for n in made if not any(n in reads for reads in graph)]
        x, at = m.like(sum(ends) / len(ends), x), at + 3 * len(graph)
    return m.dot(m.like(m.relu(x).mean((2, 3)), x), weights[-1])


# DeepFM


FIELDS, WORDS, FACTORS, DEEP = 26, 40_000, 16, 400


def deepfm_arrays(batch: int) -> list[Any]:
    rng = np.random.default_rng(10)

    def weight(*shape: int) -> Any:
        return (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)

    places = rng.integers(0, WORDS, (batch, FIELDS)) + WORDS * np.arange(FIELDS)
    tables = [(rng.standard_normal((FIELDS * WORDS, n)) / 4).astype(np.float32) for n in (FACTORS, 1)]
    return [
        places, rng.uniform(0, 1, (batch, 13)).astype(np.float32), *tables,
        weight(FIELDS * FACTORS + 13, DEEP), weight(DEEP, DEEP), weight(DEEP, DEEP), weight(DEEP, 1),
    ]  # fmt: skip


def deepfm(m: Any, places: Any, dense: Any, factors: Any, single: Any, *weights: Any) -> Any:
    found = factors[places]

    def pairs() -> Any:
        total = found.sum(1)
        return 0.5 * (total * total - (found * found).sum(1)).sum(1)

    def deep() -> Any:
        x = m.concatenate([found.reshape(places.shape[0], -1), dense], 1)
        for w in weights[:-1]:
            x = m.relu(m.dot(x, w))
        return m.dot(x, weights[-1])[:, 0]

    first, second, third = m.fork(lambda: single[places].sum((1, 2)), pairs, deep)
    return 1.0 / (1.0 + m.exp(-(first + second + third)))


# BERT-base


def bert_in_batches(m: Any, x: Any, *weights: Any) -> Any:
    """Twelve layers of attention and a wide middle, of batches of words that are embedded already."""

    def normed(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return m.like(centred / m.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12), x)

    batch, words, width = x.shape
    for layer in range(0, len(weights), 6):
        query, key, value, back, wide, narrow = weights[layer : layer + 6]
        parts = m.fork(*[lambda x=x, w=w: m.dot(x, w) for w in (query, key, value)])
        mixed = m.attention(*(p.reshape(batch, words, 12, -1).swapaxes(1, 2) for p in parts))
        x = normed(x + m.dot(mixed.swapaxes(1, 2).reshape(batch, words, width), back))
        inner = m.dot(x, wide)
        x = normed(x + m.dot(m.like(0.5 * inner * (1.0 + m.erf(inner * 0.70710678)), x), narrow))
    return x
