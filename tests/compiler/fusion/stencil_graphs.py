"""Random graphs of stencils of stencils: sums over shifts and over indices, reductions and many outputs, of operations
that round once.

    python -m tests.compiler.fusion.stencil_graphs [COUNT [SEED [DEVICE [LENGTH]]]]

Runs so many, each with all stored, with nothing stored but what must be, and as the plan says, on `cpu`, on a GPU's
emulator (`cuda`) or on a GPU (`gpu`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.fusion import storage
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes import stacked_parts
from tests.compiler.device_calls import on_device
from tests.compiler.targets.cpu.test_compiled import compiled

DTYPES = ("f4", "f4", "f8", "f2", "i4", "i1")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
STACKED = 200  # elements, of which stacks are not stacked again
MODES = ("chosen", "everything", "nothing")


@contextmanager
def storing(mode: str) -> Iterator[None]:
    """With costs that let everything be stored that may be, stacks as well, or nothing."""
    cost = {"everything": 0.0, "nothing": 1e30}.get(mode)
    with ExitStack() as patched:
        patched.enter_context(patch.object(stacked_parts, "LEAST", 0 if mode != "everything" else 1 << 60))
        if cost is not None:
            costs = patch.object(storage.StoragePlan, "_cost_of_storing", lambda plan, number, places: cost)
            patched.enter_context(costs)
            patched.enter_context(patch.object(storage, "MOST_PLACES", 1 if mode == "everything" else 300))
        yield


def stencil_graph(rng: Random, steps: int = 9, length: int = 24) -> tuple[Graph, list[np.ndarray[Any, Any]]]:
    """One or two axes; a later step is made of shifted views, of all, of rows or of elements of earlier ones."""
    builder = GraphBuilder("stencils")
    dtype, axes = np.dtype(rng.choice(DTYPES)), rng.choice((1, 2, 2))
    numbers = np.random.default_rng(rng.randrange(2**32))
    arrays: list[np.ndarray[Any, Any]] = []
    values: list[Value] = []

    def given(shape: tuple[int, ...]) -> Value:
        arrays.append(numbers.integers(-3, 4, shape).astype(dtype))
        values.append(builder.input(ArrayType(shape, dtype)))
        return values[-1]

    def places(count: int, size: int) -> Value:
        """Numbers of so many elements; those that were there serve again."""
        known = [i for i in indices if i.shape == (count,) and sizes[i] <= size]
        if known and rng.random() < 0.7:
            return rng.choice(known)
        arrays.append(numbers.integers(0, size, count))
        indices.append(builder.input(ArrayType((count,), np.dtype("i8"))))
        sizes[indices[-1]] = size
        return indices[-1]

    indices, sizes = list[Value](), dict[Value, int]()
    shape = tuple(rng.randint(length // 2, length) for _ in range(axes))
    for _ in range(rng.randint(1, 2)):
        given(shape)
    for _ in range(rng.randint(2, steps)):
        values.append(_step(rng, builder, values, places))
    most = len(values) if rng.random() < 0.2 else 4
    outputs = {*rng.sample(values, min(len(values), rng.randint(1, most))), values[-1]}
    return builder.finish([v for v in values if v in outputs]), arrays


def _step(rng: Random, builder: GraphBuilder, values: list[Value], places: Callable[[int, int], Value]) -> Value:
    a = rng.choice(values[-3:])
    kind = rng.choice((*["taps"] * 3, *["pointwise"] * 2, "row", "rows", "reduce", "strided", "places", "stacks"))
    if kind == "stacks" and a.type.size:
        return _stacks(rng, builder, a)
    if kind == "places" and a.type.size:
        return _sum_at_places(rng, builder, a, rng.choice(values), places)
    if kind == "taps" and all(n > 3 for n in a.shape):
        return _taps(rng, builder, a)
    if kind == "row" and a.shape:
        axis = rng.randrange(len(a.shape))
        first = builder.slice(
            a,
            [rng.randrange(n) if i == axis else 0 for i, n in enumerate(a.shape)],
            [1] * len(a.shape),
            [1 if i == axis else n for i, n in enumerate(a.shape)],
        )
        return builder.map("add", a, first)
    if kind == "rows" and a.shape:
        axis = rng.randrange(len(a.shape))
        row = _extreme(rng, builder, a, (axis,))
        return builder.map("subtract", a, builder.reshape(row, [*a.shape[:axis], 1, *a.shape[axis + 1 :]]))
    if kind == "reduce" and a.shape:
        reduced = _extreme(rng, builder, a, rng.choice([(0,), tuple(range(len(a.shape)))]))
        return builder.map("maximum", builder.map("minimum", a, reduced), builder.const(-90, a.dtype))
    if kind == "strided" and all(n > 5 for n in a.shape):
        lengths = [n // 2 for n in a.shape]
        parts = [builder.slice(a, [at] * len(lengths), [2] * len(lengths), lengths) for at in (0, 1)]
        return builder.map("add", *parts)
    if a.dtype.kind == "f" and rng.random() < 0.2:
        return builder.map("divide", a, builder.const(3, a.dtype))
    b = _cut(rng, builder, rng.choice(values), a.shape)
    return builder.map(rng.choice(BINARY), a, b if b is not None else builder.const(2, a.dtype))


def _stacks(rng: Random, builder: GraphBuilder, a: Value) -> Value:
    """What is computed of stacks of two or three parts, or of such stacks, which lie side by side in another shape.

    Parts may be rolled: rows in one array like a stack's, but not alike."""

    def stacked(depth: int, number: int) -> Value:
        if depth == 0:
            part = builder.map("add", a, builder.const(number, a.dtype)) if number else a
            if not rolled:
                return part
            (rows, *rest), begin, step = a.shape, [0] * (len(a.shape) - 1), [1] * len(a.shape)
            others = builder.slice(part, [1, *begin], step, [rows - 1, *rest])
            return builder.concat([others, builder.slice(part, [0, *begin], step, [1, *rest])], 0)
        parts = [stacked(depth - 1, depth * number + part) for part in range(count)]
        axis, shape = axes[depth - 1] % (len(parts[0].shape) + 1), parts[0].shape
        whole = builder.concat([builder.reshape(p, (*shape[:axis], 1, *shape[axis:])) for p in parts], axis)
        if joined == "stacked" or not shape:
            return whole
        at = min(axis, len(shape) - 1)
        return builder.reshape(whole, (*shape[:at], count * shape[at], *shape[at + 1 :]))

    count, depth, axes = rng.randint(2, 3), rng.randint(1, 2), [rng.randrange(4) for _ in range(2)]
    depth, joined = 1 if a.type.size > STACKED else depth, rng.choice(("stacked", "interleaved", "interleaved"))
    rolled = a.shape[:1] > (2,) and rng.random() < 0.3
    found = builder.map(rng.choice(BINARY), stacked(depth, 1), stacked(depth, rng.choice((0, 3))))
    if rng.random() < 0.5:
        found = builder.map("maximum", builder.map("minimum", found, stacked(depth, 2)), builder.const(-9, a.dtype))
    if a.shape and a.dtype.kind == "i" and rng.random() < 0.5:
        table = builder.slice(a, [0] * len(a.shape), [1] * len(a.shape), [*a.shape[:1], *[1] * (len(a.shape) - 1)])
        table = builder.reshape(table, a.shape[:1])
        clipped = builder.map("minimum", builder.map("maximum", found, 0), builder.const(a.shape[0] - 1, a.dtype))
        found = builder.gather(table, [builder.cast(clipped, np.dtype("i8"))], [0], [], found.shape, rng.random() < 0.5)
    first = [min(n, m) for n, m in zip((*a.shape, *[1] * 3), found.shape, strict=False)]
    part = builder.slice(found, [0] * len(first), [1] * len(first), first)
    return part if rng.random() < 0.5 else found


def _extreme(rng: Random, builder: GraphBuilder, a: Value, axes: tuple[int, ...]) -> Value:
    """The largest or smallest along axes. Of zeros of both signs either may come out: 0 is added."""
    found = builder.reduce(rng.choice(("max", "min")), a, axes)
    return builder.map("add", found, builder.const(0, a.dtype)) if a.dtype.kind == "f" else found


def _sum_at_places(
    rng: Random, builder: GraphBuilder, a: Value, other: Value, places: Callable[[int, int], Value]
) -> Value:
    """`a` after `np.add.at` or the like, of elements that are taken from a value or are its own in order."""
    size, table = a.type.size, builder.reshape(other, (other.type.size,))
    count = rng.choice((size, table.type.size)) if rng.random() < 0.8 else rng.randint(1, 2 * size)
    if count != table.type.size or rng.random() < 0.7:
        table = builder.gather(table, [places(count, table.type.size)], [0], [], (count,), rng.random() < 0.5)
    arrays = [builder.reshape(a, (size,)), places(count, size), table]
    types, ufunc = [ArrayType((size,), a.dtype)], rng.choice(("add", "add", "subtract", "maximum"))
    return builder.reshape(builder.host("combine_at", arrays, types, ufunc=ufunc)[0], a.shape)


def _cut(rng: Random, builder: GraphBuilder, value: Value, shape: Sequence[int]) -> Value | None:
    """A part of that shape; None where it has none."""
    if len(value.shape) != len(shape) or any(n < m for n, m in zip(value.shape, shape, strict=True)):
        return None
    starts = [rng.randint(0, n - m) for n, m in zip(value.shape, shape, strict=True)]
    return builder.slice(value, starts, [1] * len(shape), shape)


def _taps(rng: Random, builder: GraphBuilder, a: Value) -> Value:
    """Shifted views along one axis or all of them, weighed or not, added or taken the largest of."""
    axis, reach = rng.choice([None, *range(len(a.shape))]), rng.randint(1, 3)
    beyond = [reach if axis in (None, i) else 0 for i in range(len(a.shape))]
    lengths = [n - b for n, b in zip(a.shape, beyond, strict=True)]
    total: Value | None = None
    join, weighed = rng.choice(("add", "add", "subtract", "maximum")), rng.random() < 0.5
    for _ in range(rng.randint(2, 6)):
        tap = builder.slice(a, [rng.randint(0, b) for b in beyond], [1] * len(lengths), lengths)
        tap = builder.map("multiply", tap, builder.const(rng.randint(-2, 2), a.dtype)) if weighed else tap
        total = tap if total is None else builder.map(join, total, tap)
    assert total is not None
    return total


def differences(graph: Graph, arrays: list[np.ndarray[Any, Any]], devices: Sequence[str] = ("cpu",)) -> list[str]:
    """In which modes and on which device a result is not NumPy's, or not the one that is chosen, bit by bit."""
    found = []
    with np.errstate(all="ignore"):
        wanted = interpret_graph(graph, arrays)
    for device in devices:
        chosen: list[np.ndarray[Any, Any]] = []
        for mode in MODES:
            with storing(mode):
                results = RUNS[device](graph, arrays)
            chosen = chosen or results
            right = [np.array_equal(r, w, equal_nan=w.dtype.kind == "f") for r, w in zip(results, wanted, strict=True)]
            if not all(right) or [r.tobytes() for r in results] != [c.tobytes() for c in chosen]:
                found.append(f"{mode} on {device}")
    return found


@cache
def _gpu() -> Any:
    from kernelgraph.runtime.devices.cuda.device import CUDADevice

    return CUDADevice(0)


def on_gpu(graph: Graph, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    from tests.gpu.gpu_runs import Call, plan_of

    device = _gpu()
    types = [graph.nodes[o].type for o in graph.outputs]
    return Call(device, device.prepare(plan_of(graph)), arrays).results([np.empty(t.shape, t.dtype) for t in types])


RUNS = {"cpu": compiled, "cuda": on_device, "gpu": on_gpu}


def main(count: int = 1000, seed: int = 0, device: str = "cpu", length: int = 24) -> int:
    wrong = 0
    for number in range(seed, seed + count):
        found = differences(*stencil_graph(Random(number), length=length), (device,))
        wrong += bool(found)
        if found:
            print(f"seed {number}: {', '.join(found)}", flush=True)
    print(f"{count} graphs from seed {seed} on {device}, {len(MODES)} ways each: {wrong} wrong", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(*[int(a) if a.isdecimal() else a for a in sys.argv[1:]])))  # type: ignore[arg-type]
