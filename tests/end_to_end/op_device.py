"""Graphs and groups of rows on a device: arrays in, what the device makes of them out, or checked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import ArrayType, DType, dtype_kind, real_dtype
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.ops.table import OPS, Op
from kernelgraph.runtime.program.device import Device
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.op_cases import Array, loops, values
from tests.compiler.op_checks import ATTRIBUTES, check, check_attributes
from tests.compiler.op_groups import SHIFT, Group, arguments


def compute(device: Device, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The graph's outputs, computed by the device from contiguous arrays."""
    plan = schedule(pipeline.compile_graph_to_program(graph, device.kind), machine=MACHINES[device.kind])
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


def raw(array: Array) -> Array:
    """The bytes of the numbers. NaNs are all alike: which of two a sum gives, and so its sign, LLVM leaves open."""
    if dtype_kind(array.dtype) not in "fc":
        return array.view(np.uint8)
    parts = array.view(real_dtype(array.dtype))
    found = parts.view(np.uint8).reshape(len(parts), -1).copy()
    found[np.isnan(parts)] = 0xFF
    return found


def check_group(device: Device, group: Group) -> None:
    """Each row's result keeps the contract, and equal arguments give equal bits wherever they stand."""
    arrays = arguments(group.loop)
    results = compute(device, group.graph(len(arrays[0])), arrays)
    wrong = []
    for (row, result), got in zip(group.rows, results, strict=True):
        half = len(got) // 2
        try:
            check(row, list(arrays), result, got)
            again = np.roll(got[half : 2 * half], -SHIFT)
            np.testing.assert_array_equal(raw(got[:half]), raw(again), "the place matters")
        except AssertionError as error:
            wrong.append(f"{row.name} -> {result}: {error}")
    assert not wrong, "\n".join(wrong)


Case = tuple[Op, list[Array], DType]  # a row, its arguments, the dtype of its result


@cache
def constants(dtype: DType) -> tuple[Graph, Array, list[Case]]:
    """Rows of two arguments with a constant on either side, which formulas and rewrite rules may look at."""
    rng = np.random.default_rng(2)
    x = values(dtype, rng)
    few = {"b": [0, 1], "u": [0, 1, 2, 3, 8], "i": [-2, -1, 0, 1, 2, 3, 8]}.get(dtype_kind(dtype))
    numbers = np.array(few or [-2, -1, 0, 0.5, 1, 2, 3, np.inf]).astype(dtype)
    b, outputs, cases = GraphBuilder("constants"), [], []
    given = b.input(ArrayType(x.shape, dtype))
    for row in OPS.values():
        for loop, result in loops(row) if row.kind == "map" and row.arity == 2 else ():
            for order in (1, -1) if set(loop) == {dtype} else ():
                c = rng.choice(numbers)
                outputs.append(b.map(row.name, *(given, b.const(c))[::order]))
                cases.append((row, [x, np.full(len(x), c)][::order], result))
    return b.finish(outputs), x, cases


def check_constants(device: Device, dtype: DType) -> None:
    graph, x, cases = constants(dtype)
    wrong = []
    for (row, arrays, result), got in zip(cases, compute(device, graph, [x]), strict=True):
        try:
            check(row, arrays, result, got)
        except AssertionError as error:
            wrong.append(f"{row.name}: {error}")
    assert not wrong, "\n".join(wrong)


def check_rows_with_attributes(device: Device, dtype: DType) -> None:
    x = values(dtype, np.random.default_rng(3))
    b = GraphBuilder("attributes")
    given = b.input(ArrayType(x.shape, dtype))
    graph = b.finish([b.map(name, given, **attrs) for name, attrs in ATTRIBUTES])
    for (name, attrs), got in zip(ATTRIBUTES, compute(device, graph, [x]), strict=True):
        check_attributes(OPS[name], attrs, x, got)


def check_selected_zero(device: Device, narrow: str, wide: str) -> None:
    """np.where(x < 0, 0, x.astype(wide)) is no maximum: -0 stays."""
    b = GraphBuilder()
    x = b.input(ArrayType((37,), narrow))
    graph = b.finish([b.map("where", b.map("less", x, 0.0), 0.0, b.cast(x, wide))])
    array = np.tile(np.array([0.0, -0.0, 1.0, -1.0, np.nan], narrow), 8)[:37]
    (got,) = compute(device, graph, [array])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.where(array < 0, 0, array)))


def check_products(device: Device, dtype: str) -> None:
    """x*y + z*w and x*y - z*w in one kernel, to the bit."""
    rng = np.random.default_rng(0)
    width = 1 + (np.dtype(dtype).kind == "c")
    arrays = [rng.standard_normal(1001 * width).astype(np.zeros(0, dtype).real.dtype).view(dtype) for _ in range(4)]
    b = GraphBuilder()
    x, y, z, w = (b.input(ArrayType((1001,), dtype)) for _ in arrays)
    products = b.map("multiply", x, y), b.map("multiply", z, w)
    graph = b.finish([b.map("add", *products), b.map("subtract", *products)])
    wanted = arrays[0] * arrays[1], arrays[2] * arrays[3]
    for got, want in zip(compute(device, graph, arrays), (np.add(*wanted), np.subtract(*wanted)), strict=True):
        np.testing.assert_array_equal(got, want)
