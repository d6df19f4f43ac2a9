"""Long rows, which are read in sections: every element is taken once, and the order depends on the length alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from kernelgraph.compiler.kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Operand, Phase, Reduction
from kernelgraph.compiler.targets.cpu.body import LONG, SECTIONS
from tests.compiler.cpu_harness import Compiled

LENGTHS = (1, 1000, LONG - 1, LONG, LONG + 1, LONG + SECTIONS * 1024 + 77, 3 * LONG + 12345)


def reduction(combine: str, dtype: Any) -> Compiled:
    """Of the rows of a matrix."""
    kind = np.dtype(dtype)
    load = [Instr("load", kind, (), (0, 0))]
    values: tuple[int, ...] = (0,)
    result = Instr("result", kind, (), (0, 0, 0))
    if combine == "argmax":
        load.append(Instr("index", np.dtype(np.int64), (), 1))
        values, result = (0, 1), Instr("result", np.dtype(np.int64), (), (0, 0, 1))
    first = len(load)
    loop = Phase(LOOP, 0, tuple(load), (Reduction(combine, kind, values),))
    end = Phase(POINT, first, (result, Instr("store", result.dtype, (first,), (1, 0))))
    operands = Operand(kind, "in", "s1"), Operand(result.dtype, "out", "10")
    return Compiled(LoopNest(f"{combine}_{kind}", 1, 1, operands, (), (loop, end)))


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "int8"])
def test_a_sum_takes_every_element_once(dtype):
    kernel = reduction("sum", dtype)
    rng = np.random.default_rng(0)
    for length in LENGTHS:
        x, out = rng.integers(-3, 4, (2, length)).astype(dtype), np.zeros((2, 1), dtype)
        kernel([x, out], (2, length))
        np.testing.assert_array_equal(out[:, 0], x.sum(axis=1, dtype=dtype))


@pytest.mark.parametrize("combine", ["max", "argmax"])
def test_an_extreme_is_found_wherever_it_is(combine):
    kernel = reduction(combine, "float32")
    rng = np.random.default_rng(1)
    for length in LENGTHS[2:]:
        for at in rng.integers(0, length, 4):
            x = np.zeros((1, length), np.float32)
            x[0, at] = 1
            out = np.zeros((1, 1), np.float32 if combine == "max" else np.int64)
            kernel([x, out], (1, length))
            assert out[0, 0] == (1 if combine == "max" else at)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_do_not_depend_on_where_the_row_lies(dtype):
    kernel = reduction("sum", dtype)
    length = 2 * LONG + 4321
    values = np.random.default_rng(2).standard_normal(length).astype(dtype)
    found = set()
    for offset in (0, 1, 7, 16):
        x = np.empty(length + 64, dtype)[offset : offset + length]
        x[:] = values
        out = np.zeros((1, 1), dtype)
        kernel([x[None], out], (1, length))
        found.add(out.tobytes())
    assert len(found) == 1
