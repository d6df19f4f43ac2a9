"""Least bytes count each element once; loops count their turns."""

from __future__ import annotations

from random import Random

import numpy as np

import kernelgraph as kg
from kernelgraph.runtime.program.plan import flops_of_task, least_bytes_of_task
from kernelgraph.runtime.program.program import Region, union_bytes_of_regions


def covered(regions: list[Region], size: int) -> int:
    """The bytes that regions touch, marked one by one."""
    marked = np.zeros(size, bool)
    for r in regions:
        for index in np.ndindex(*r.shape):
            at = r.offset + sum(i * s for i, s in zip(index, r.strides, strict=True))
            marked[at : at + r.itemsize] = True
    return int(marked.sum())


def test_the_union_is_never_less_than_what_is_touched_nor_more_than_each_alone() -> None:
    rng = Random(5)
    for _ in range(200):
        shape = (rng.randint(1, 4), rng.randint(0, 5))
        strides = rng.choice([(32, 4), (4, 32), (0, 4), (24, 8)])
        regions = [Region(0, 4 * rng.randint(0, 12), shape, strides, 4) for _ in range(rng.randint(1, 5))]
        union, exact = union_bytes_of_regions(regions), covered(regions, 512)
        assert exact <= union <= sum(union_bytes_of_regions([r]) for r in regions)
    stencil = [Region(0, 4 * i, (100,), (4,), 4) for i in range(5)]
    assert union_bytes_of_regions(stencil) == 4 * 104 == covered(stencil, 512)
    channels = [Region(0, 4 * i, (10,), (12,), 4) for i in range(3)]
    assert union_bytes_of_regions(channels) == 120


def test_a_loop_counts_its_turns() -> None:
    @kg.kernel_graph(device="fake")
    def once(x):
        return x * 2.0 + 1.0

    @kg.kernel_graph(device="fake")
    def often(x):
        return kg.fori_loop(0, 10, lambda i, y: y * 2.0 + 1.0, x)

    x = kg.spec((1 << 16,), np.float32)
    (one,), (loop,) = once.program(x).tasks, often.program(x).tasks
    assert least_bytes_of_task(one) == 2 * 4 << 16 and flops_of_task(one) >= 2 << 16
    assert least_bytes_of_task(loop) == 10 * least_bytes_of_task(one) and flops_of_task(loop) == 10 * flops_of_task(one)
    assert one.nodes and loop.nodes


def test_a_stencils_shifted_reads_cost_once() -> None:
    """Each read was counted: a stencil of 25 points was predicted to take thirteen times as long as a copy."""
    plain = kg.kernel_graph(device="fake")(lambda x: x[12:-12] + 1)
    wide = kg.kernel_graph(device="fake")(lambda x: sum(x[i : x.shape[0] - 24 + i] for i in range(25)))
    x = kg.spec((1 << 22,), np.float32)
    (one,), (many,) = plain.program(x).tasks, wide.program(x).tasks
    assert many.cost < 1.2 * one.cost
