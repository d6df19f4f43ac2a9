"""Groups of rows of the op table that make one kernel each, and arguments for them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernelgraph.compiler.core.types import SHORT_NAMES, ArrayType, DType, dtype_kind, real_dtype
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.ops.table import OPS, Op

from .op_cases import Array, inputs, loops, random_bits

ROWS = 8  # rows a graph: as many as one kernel stores
SHIFT = 5  # by how many elements the second copy of the arguments is turned


@dataclass(frozen=True)
class Group:
    """Rows of one loop, each with the dtype of its result: they share their arguments, and make one kernel."""

    loop: tuple[DType, ...]
    rows: tuple[tuple[Op, DType], ...]

    def __str__(self) -> str:
        return f"{'-'.join(d.name for d in self.loop)}:{','.join(row.name for row, _ in self.rows)}"

    def graph(self, length: int) -> Graph:
        b = GraphBuilder("rows")
        args = [b.input(ArrayType((length,), d)) for d in self.loop]
        found = [b.cast(*args, to) if row.name == "cast" else b.map(row.name, *args) for row, to in self.rows]
        assert [f.dtype for f in found] == [to for _, to in self.rows]
        return b.finish(found)


def groups() -> list[Group]:
    """Every row on every dtype, and every cast."""
    by_loop: dict[tuple[DType, ...], list[tuple[Op, DType]]] = defaultdict(list)
    for row in OPS.values():
        if row.kind == "map" and row.name != "cast":
            for loop, result in loops(row):
                by_loop[loop].append((row, result))
    for dtype in SHORT_NAMES:
        by_loop[dtype,] += [(OPS["cast"], to) for to in SHORT_NAMES]
    return [
        Group(loop, tuple(rows[start : start + ROWS]))
        for loop, rows in by_loop.items()
        for start in range(0, len(rows), ROWS)
    ]


@cache
def arguments(loop: tuple[DType, ...]) -> tuple[Array, ...]:
    """Special values in all pairs and over a thousand random ones, or all values of one 8- or 16-bit dtype; and all
    of these again SHIFT places on."""
    rng = np.random.default_rng(1)
    if len(loop) == 1 and loop[0].itemsize <= 2 and loop[0].kind != "b":
        many = [all_values(loop[0])]
    else:
        many = [np.concatenate([x, random_values(d, rng, 1201)]) for x, d in zip(inputs(loop), loop, strict=True)]
    twice = [np.concatenate([x, np.roll(x, SHIFT), x[:1]]) for x in many]
    return tuple(twice)


def all_values(dtype: DType) -> Array:
    return np.arange(256**dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)


def random_values(dtype: DType, rng: np.random.Generator, count: int) -> Array:
    """A third each of random bits, small numbers, and numbers of ordinary size."""
    kind = dtype_kind(dtype)
    if kind == "b":
        return rng.random(count) < 0.5
    if kind == "c":
        parts = [random_values(real_dtype(dtype), rng, count) for _ in range(2)]
        return np.stack(parts, -1).view(dtype)[:, 0]
    if kind in "iu":
        small = rng.integers(0, 20, count).astype(dtype)
        return np.where(rng.random(count) < 0.5, random_bits(dtype, rng, count), small)
    ordinary = rng.normal(size=count) * np.exp(3 * rng.normal(size=count))
    with np.errstate(over="ignore"):
        choices = [rng.uniform(-1, 1, count).astype(dtype), ordinary.astype(dtype)]
    which = rng.integers(0, 3, count)
    return np.select([which == 0, which == 1], choices, random_bits(dtype, rng, count))
