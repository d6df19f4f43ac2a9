"""CPU kernels of random loop nests agree with the primitives' NumPy meaning, for any split of their units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from kernelgraph.compiler.core.types import BOOL, FLOAT32, FLOAT64, HALVES, SHORT_NAMES, DType, real_dtype
from kernelgraph.compiler.kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Operand, Phase, Reduction
from kernelgraph.compiler.targets.cpu import access
from kernelgraph.runtime.codegen.llvm_jit import llvm_cpu_features
from tests.compiler.cpu_harness import AVX2, Compiled, array_in, reference, vector_library
from tests.compiler.cpu_nests import random_nest, sizes, values

TOLERANCE = {2: 1e-2, 4: 1e-5, 8: 1e-9}


def same(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Equal; for floats, NaN and infinity in the same places and close elsewhere (sums are rounded differently)."""
    if dtype.kind == "c":
        return all(same(getattr(found, p), getattr(wanted, p), real_dtype(dtype)) for p in ("real", "imag"))
    if dtype.kind in "biu":
        return bool(np.array_equal(found, wanted))
    a, b = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    scale = np.maximum(np.abs(b[finite]), 1e-3 + np.abs(b[finite]).max(initial=0.0) * 1e-2)
    return bool((np.abs(a[finite] - b[finite]) <= TOLERANCE[dtype.itemsize] * scale).all())


def check(seed: int, nest: LoopNest, kernel: Compiled, rounds: int = 3) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        shape = sizes(rng, nest.axes)
        arrays = [array_in(rng, values(rng, shape, o.dtype), o.layout) for o in nest.operands]
        scalars = [values(rng, 1, d)[0] for d in nest.scalars]
        with np.errstate(all="ignore"):
            wanted = reference(nest, arrays, shape, scalars)
        kernel(arrays, shape, scalars, cuts=rng.random(2))
        first = [a.copy() for a in arrays]
        kernel(arrays, shape, scalars)
        for number, operand in enumerate(nest.operands):
            assert first[number].tobytes() == arrays[number].tobytes(), f"a{number} depends on the split\n{nest}"
            with np.errstate(all="ignore"):
                assert same(arrays[number], wanted[number], operand.dtype), f"a{number} of {shape} is wrong\n{nest}"


@pytest.mark.parametrize("seed", range(0, 112, 8))
def test_random_nests(seed: int) -> None:
    for each in range(seed, seed + 8):
        nest = random_nest(each)
        check(each, nest, Compiled(nest, vector_library=vector_library()))


@pytest.mark.skipif("avx512f" not in llvm_cpu_features(), reason="is the same as test_random_nests here")
@pytest.mark.parametrize("seed", range(1000, 1024, 8))
def test_random_nests_without_avx512(seed: int) -> None:
    for each in range(seed, seed + 8):
        nest = random_nest(each)
        check(each, nest, Compiled(nest, AVX2, vector_bytes=32))


def transposing(dtype: DType, layouts: tuple[str, str], add: bool) -> LoopNest:
    """out = a + b with a read across (or out = a for dtypes without addition)."""
    part = real_dtype(dtype)
    instrs: list[Instr] = []
    for operand in range(2):
        for p in range(2 if dtype.kind == "c" else 1):
            instrs.append(Instr("load", part, (), (operand, p)))
    parts = len(instrs) // 2
    if add:
        instrs += [Instr("add", part, (p, parts + p)) for p in range(parts)]
    first = len(instrs) - parts if add else 0
    instrs += [Instr("store", part, (first + p,), (2, p)) for p in range(parts)]
    axes = len(layouts[0])
    operands = (Operand(dtype, "in", layouts[0]), Operand(dtype, "in", layouts[1]), Operand(dtype, "out", layouts[1]))
    return LoopNest("kernel", axes, 0, operands, (), (Phase(POINT, 0, tuple(instrs)),))


@pytest.mark.parametrize("without", [(), AVX2], ids=["", "avx2"])
@pytest.mark.parametrize("dtype", SHORT_NAMES, ids=str)
def test_transposed_reads(dtype: DType, without: tuple[str, ...]) -> None:
    """Tiles of every item size, whole ones and their rests, with the unit stride on any outer axis."""
    rng = np.random.default_rng(dtype.itemsize)
    nest = transposing(dtype, ("ss", "s1"), add=dtype not in (BOOL, *HALVES))
    kernel = Compiled(nest, without, vector_bytes=32 if without else 64)
    for rows, columns in [(1, 1), (64, 128), (129, 300), (33, 17), (5, 700), (300, 3)]:
        a = values(rng, (columns, rows), dtype).T
        b, out = values(rng, (rows, columns), dtype), np.zeros((rows, columns), dtype)
        second = values(rng, (rows, 2 * columns - 1), dtype)[:, ::2]
        for source in (a, a[::-1], np.asfortranarray(b)[:, ::-1], b[::-1, ::-1], second):
            with np.errstate(all="ignore"):
                wanted = reference(nest, [source, b, out], (rows, columns))[2]
            kernel([source, b, out], (rows, columns), cuts=rng.random(2))
            assert out.tobytes() == wanted.tobytes() or same(out, wanted, dtype)


def test_transposed_reads_of_three_axes() -> None:
    nest = transposing(FLOAT32, ("1ss", "ss1"), add=True)
    kernel = Compiled(nest)
    rng = np.random.default_rng(3)
    for shape in [(64, 3, 300), (33, 5, 17), (2, 70, 1)]:
        a = values(rng, shape[::-1], FLOAT32).T
        b, out = values(rng, shape, FLOAT32), np.zeros(shape, np.float32)
        kernel([a, b, out], shape, cuts=rng.random(3))
        with np.errstate(all="ignore"):
            assert same(out, a + b, FLOAT32)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_division_by_one_number_is_rounded_as_a_division(dtype: DType) -> None:
    """Hard quotients lie near the middle of two floats; others under- or overflow on the way."""
    body = (
        Instr("load", dtype, (), (0, 0)),
        Instr("scalar", dtype, (), 0),
        Instr("div", dtype, (0, 1)),
        Instr("store", dtype, (2,), (1, 0)),
    )
    operands = Operand(dtype, "in", "1"), Operand(dtype, "out", "1")
    kernel = Compiled(LoopNest("kernel", 1, 0, operands, (dtype,), (Phase(POINT, 0, body),)))
    rng = np.random.default_rng(7)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)
    wide, out = np.longdouble, np.empty(40000, dtype)
    one, two = dtype.type(1), dtype.type(2)
    mantissas = [*(1 + rng.random(30)), np.nextafter(two, one), np.nextafter(one, two), 1.5]
    for b in [*mantissas, *(-rng.random(20) * 10.0 ** rng.integers(-39, 38, 20)), *special]:
        divisor = dtype.type(b)
        quotients = (1 + rng.random(20000)).astype(dtype)
        with np.errstate(all="ignore"):
            middles = quotients.astype(wide) + np.spacing(quotients).astype(wide) / 2
            hard = (middles * wide(divisor)).astype(dtype)
            easy = (rng.standard_normal(20000 - 8) * 10.0 ** rng.integers(-44, 38, 20000 - 8)).astype(dtype)
            a = np.concatenate([hard, easy, special])
            kernel([a, out], [len(a)], [divisor])
            wanted = a / divisor
        assert np.array_equal(out, wanted, equal_nan=True)
        assert np.array_equal(np.signbit(out[~np.isnan(out)]), np.signbit(wanted[~np.isnan(out)]))


def softmax(dtype: DType, layout: str) -> LoopNest:
    """out = exp(a - max) / sum(exp(a - max)) along rows."""
    operands = Operand(dtype, "in", layout), Operand(dtype, "out", layout)
    first = Phase(LOOP, 0, (Instr("load", dtype, (), (0, 0)),), (Reduction("max", dtype, (0,)),))
    exps = (Instr("load", dtype, (), (0, 0)), Instr("sub", dtype, (2, 1)), Instr("exp", dtype, (3,)))
    again = (Instr("load", dtype, (), (0, 0)), Instr("sub", dtype, (6, 1)), Instr("exp", dtype, (7,)))
    phases = (
        first,
        Phase(POINT, 1, (Instr("result", dtype, (), (0, 0, 0)),)),
        Phase(LOOP, 2, exps, (Reduction("sum", dtype, (4,)),)),
        Phase(POINT, 5, (Instr("result", dtype, (), (2, 0, 0)),)),
        Phase(LOOP, 6, (*again, Instr("div", dtype, (8, 5)), Instr("store", dtype, (9,), (1, 0)))),
    )
    return LoopNest("kernel", 1, 1, operands, (), phases)


@pytest.mark.parametrize("layout", ["s1", "ss"])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
def test_rows_that_fit_a_buffer_and_rows_that_do_not(dtype: DType, layout: str) -> None:
    """Both ways of a softmax: exponentials kept from its second loop to its third, and computed again."""
    kernel = Compiled(softmax(dtype, layout))
    rng = np.random.default_rng(5)
    for length in (1, 7, 16, 100, 4096, 8192, 8193, 16384, 16385, 40000):
        a = (rng.standard_normal((3, length)) * 5).astype(dtype)
        out = np.empty_like(a)
        step = slice(None, None, -1 if layout == "ss" else 1)
        kernel([a[:, step], out[:, step]], a.shape)
        e = np.exp(a.astype(np.longdouble) - a.max(1, keepdims=True))
        np.testing.assert_allclose(out, (e / e.sum(1, keepdims=True)).astype(dtype), rtol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("layout", ["s1", "1s"])
def test_sums_are_as_good_as_pairwise(dtype: DType, layout: str) -> None:
    """Within twice the error of NumPy's pairwise sum, or a few units of the sum of sizes for awkward values."""
    operands = Operand(dtype, "in", layout), Operand(dtype, "out", "10")
    loop = Phase(LOOP, 0, (Instr("load", dtype, (), (0, 0)),), (Reduction("sum", dtype, (0,)),))
    end = Phase(POINT, 1, (Instr("result", dtype, (), (0, 0, 0)), Instr("store", dtype, (1,), (1, 0))))
    kernel = Compiled(LoopNest("kernel", 1, 1, operands, (), (loop, end)))
    rng = np.random.default_rng(11)
    eps = float(np.finfo(dtype).eps)
    for length in (1, 15, 1000, 100_003):
        shape = (5, length)
        uneven = rng.standard_normal(shape) * 10 ** rng.uniform(-9, 9, shape)
        for numbers in (rng.random(shape), rng.standard_normal(shape), uneven):
            a = numbers.astype(dtype)
            given = a if layout == "s1" else np.asfortranarray(a)
            out = np.empty(5, dtype)
            kernel([given, np.lib.stride_tricks.as_strided(out, a.shape, (out.itemsize, 0))], a.shape)
            exact = np.array([math.fsum(row) for row in a.astype(np.float64)])
            sizes_sum = np.abs(a).sum(1, dtype=np.float64)
            allowed = np.maximum(2 * np.abs(a.sum(1) - exact), eps * np.abs(exact)) + eps * 1e-2 * sizes_sum
            assert (np.abs(out - exact) <= allowed + (eps * sizes_sum if dtype == FLOAT64 else 0)).all()
    for special, wanted in [([np.inf, 1.0], np.inf), ([-np.inf, np.inf], np.nan), ([np.nan, 1.0], np.nan)]:
        a = np.zeros((1, 700), dtype)
        a[0, 3:5] = special
        out = np.empty(1, dtype)
        given = a if layout == "s1" else np.asfortranarray(a)
        kernel([given, np.lib.stride_tricks.as_strided(out, a.shape, (out.itemsize, 0))], a.shape)
        np.testing.assert_array_equal(out, [wanted])


@pytest.mark.parametrize("without", [(), AVX2], ids=["", "avx2"])
@pytest.mark.parametrize("dtype", [d for d in SHORT_NAMES if d.itemsize >= 4], ids=str)
def test_streaming_stores(dtype: DType, without: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Large outputs that start anywhere in a cache line: every element is written, and nothing beside them."""
    monkeypatch.setattr(access, "STREAMED_BYTES", 256)
    nest = transposing(dtype, ("s1", "s1"), add=True)
    kernel = Compiled(nest, without, vector_bytes=32 if without else 64)
    assert ", !nontemporal" in kernel.text
    rng = np.random.default_rng(2)
    part = real_dtype(dtype).itemsize
    for rows, columns in [(1, 1), (3, 15), (2, 64), (5, 100), (2, 2100)]:
        a, b = values(rng, (rows, columns), dtype), values(rng, (rows, columns), dtype)
        for offset in range(0, 80, part):
            room = np.full(rows * (columns + 1) * dtype.itemsize + 256, 0xA5, np.uint8)
            start = -room.ctypes.data % 64 + 64 + offset
            out = np.ndarray((rows, columns), dtype, room, start, ((columns + 1) * dtype.itemsize, dtype.itemsize))
            kernel([a, b, out], (rows, columns), cuts=rng.random(2))
            with np.errstate(all="ignore"):
                assert same(out, a + b, dtype)
            out[...] = np.frombuffer(b"\xa5" * dtype.itemsize, dtype)
            assert (room == 0xA5).all()
