"""Rows of the op table on a device: groups of rows and their arguments in, what the device makes of them checked."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.graph import Builder, Graph
from kernelgraph.compiler.ops import OPS, Op
from kernelgraph.compiler.types import SHORT_NAMES, ArrayType, DType, kind_of, real_of
from kernelgraph.runtime.device import Device
from kernelgraph.runtime.machine import MACHINES
from kernelgraph.runtime.schedule import schedule

from ..compiler.op_cases import Array, inputs, loops, random_bits
from ..compiler.op_checks import agree, check

ROWS = 8  # rows a graph: as many as one kernel stores
SHIFT = 5  # by how many elements the second copy of the arguments is turned


def compute(device: Device, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The graph's outputs, computed by the device from contiguous arrays."""
    plan = schedule(pipeline.build(graph, device.kind), machine=MACHINES[device.kind])
    program = plan.program
    executable = device.prepare(plan)
    kept, after = [], []
    memories: list[Any] = [None] * len(program.buffers)
    for number, array in zip(program.inputs, arrays, strict=True):
        kept.append(device.allocate(array.nbytes))
        after.append((number, device.upload(np.ascontiguousarray(array), kept[-1])))
        memories[number] = kept[-1].address
    found = {o: device.allocate(program.buffers[o].nbytes) for o in program.outputs}
    for number, memory in found.items():
        memories[number] = memory.address
    arena = device.allocate(plan.arena_bytes)
    for event in executable.run(memories, arena.address, (), after):
        event.wait()
    results = []
    for output, number in zip(graph.outputs, program.outputs, strict=True):
        type = graph.nodes[output].type
        results.append(np.empty(type.shape, type.dtype))
        device.download(found[number], results[-1])
    return results


@dataclass(frozen=True)
class Group:
    """Rows of one loop, each with the dtype of its result: they share their arguments, and make one kernel."""

    loop: tuple[DType, ...]
    rows: tuple[tuple[Op, DType], ...]

    def __str__(self) -> str:
        return f"{'-'.join(d.name for d in self.loop)}:{','.join(row.name for row, _ in self.rows)}"

    def graph(self, length: int) -> Graph:
        b = Builder("rows")
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
    kind = kind_of(dtype)
    if kind == "b":
        return rng.random(count) < 0.5
    if kind == "c":
        parts = [random_values(real_of(dtype), rng, count) for _ in range(2)]
        return np.stack(parts, -1).view(dtype)[:, 0]
    if kind in "iu":
        small = rng.integers(0, 20, count).astype(dtype)
        return np.where(rng.random(count) < 0.5, random_bits(dtype, rng, count), small)
    ordinary = rng.normal(size=count) * np.exp(3 * rng.normal(size=count))
    with np.errstate(over="ignore"):
        choices = [rng.uniform(-1, 1, count).astype(dtype), ordinary.astype(dtype)]
    which = rng.integers(0, 3, count)
    return np.select([which == 0, which == 1], choices, random_bits(dtype, rng, count))


def check_group(device: Device, group: Group) -> None:
    """Each row's result keeps the contract, and equal arguments give equal bits wherever they stand."""
    arrays = arguments(group.loop)
    results = compute(device, group.graph(len(arrays[0])), arrays)
    wrong = []
    for (row, result), got in zip(group.rows, results, strict=True):
        half = len(got) // 2
        try:
            check_cast(arrays[0], got) if row.name == "cast" else check(row, list(arrays), result, got)
            again = np.roll(got[half : 2 * half], -SHIFT)
            np.testing.assert_array_equal(got[:half].view(np.uint8), again.view(np.uint8), "the place matters")
        except AssertionError as error:
            wrong.append(f"{row.name} -> {result}: {error}")
    assert not wrong, "\n".join(wrong)


def check_cast(x: Array, got: Array) -> None:
    """astype to the bit; what an integer cannot hold is left open."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore", category=np.exceptions.ComplexWarning):
        want = x.astype(got.dtype)
        good = got == want
        if kind_of(want.dtype) == "f":
            good = (good & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
        elif want.dtype.kind == "c":
            good |= np.isnan(got) & np.isnan(want)
        elif want.dtype.kind in "iu" and kind_of(x.dtype) in "fc":
            whole, info = np.trunc(x.real.astype("g")), np.iinfo(want.dtype)
            good |= ~((whole >= info.min) & (whole <= info.max))
    agree(good, [x], got, want)
