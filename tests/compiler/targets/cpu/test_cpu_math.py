"""The CPU's functions: within max(4 ulp, twice NumPy's error), special values as NumPy's, the same bits anywhere."""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from kernelgraph.compiler.core.types import FLOAT32, FLOAT64, DType
from kernelgraph.compiler.kernel.loop_nest import POINT, Instr, LoopNest, Operand, Phase
from kernelgraph.compiler.kernel.primitives import PRIMITIVES
from kernelgraph.compiler.targets.cpu.primitives import MATH
from tests.compiler.cpu_harness import AVX2, Compiled, vector_library

Array = np.ndarray[Any, Any]
BINARY = {"pow", "atan2", "hypot", "fmod"}
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, -3.0, 88.7, 88.8, -87.4, -103.9]
SPECIAL += [-104.1, 709.7, 709.8, -745.1, -745.2, 1e-3, -1e-3]
WIDER = {FLOAT32: np.dtype(np.float64), FLOAT64: np.dtype(np.longdouble)}
BY_LANE: dict[str, Callable[[float], float]] = {"erf": math.erf, "erfc": math.erfc, "lgamma": math.lgamma}


def apply(name: str, dtype: DType) -> LoopNest:
    """out = name(in...)."""
    arity = PRIMITIVES[name].arity
    loads = tuple(Instr("load", dtype, (), (i, 0)) for i in range(arity))
    body = (*loads, Instr(name, dtype, tuple(range(arity))), Instr("store", dtype, (arity,), (arity, 0)))
    operands = (*(Operand(dtype, "in", "1") for _ in range(arity)), Operand(dtype, "out", "1"))
    return LoopNest("kernel", 1, 0, operands, (), (Phase(POINT, 0, body),))


@cache
def compiled(name: str, dtype: DType, how: str) -> Compiled:
    if how == "library":
        return Compiled(apply(name, dtype), vector_library=vector_library())
    return Compiled(apply(name, dtype), AVX2, vector_bytes=32)


def call(kernel: Compiled, *arrays: Array) -> Array:
    out = np.full_like(arrays[0], 7)
    kernel([*arrays, out], [len(out)])
    return out


def arguments(name: str, dtype: DType, count: int = 4000) -> list[Array]:
    """Every size of number, numbers near the functions' interesting places, and special values (in all pairs)."""
    rng = np.random.default_rng(len(name))
    bits = np.dtype(f"u{dtype.itemsize}")

    def one() -> Array:
        parts = [
            rng.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True).view(dtype),
            rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 2, count),
            rng.uniform(-2, 2, count),
            rng.uniform(-110, 110, count),
            rng.uniform(-1e5, 1e5, count),
            1 + rng.standard_normal(count) * 10.0 ** rng.uniform(-7, -1, count),
            rng.integers(1, 60000, count) * (math.pi / 2),
            rng.integers(-30, 30, count),
        ]
        return np.concatenate([p.astype(dtype) for p in parts])

    info = np.finfo(dtype)
    special = np.array([*SPECIAL, info.max, -info.max, info.tiny, info.smallest_subnormal, -info.smallest_subnormal])
    special = special.astype(dtype)
    if name not in BINARY:
        return [np.concatenate([one(), special])]
    a, b = one(), one()
    pairs = np.array(np.meshgrid(special, special)).reshape(2, -1)
    likely = np.abs(rng.standard_normal(count) * 10).astype(dtype), rng.uniform(-30, 30, count).astype(dtype)
    order = rng.permutation(len(a))
    return [np.concatenate([x, *more]) for x, more in ((a[order], (pairs[0], likely[0])), (b, (pairs[1], likely[1])))]


def numpy_value(name: str, *arrays: Array) -> Array:
    if name in BY_LANE:
        own = np.vectorize(_guarded(BY_LANE[name]), otypes=[np.float64])
        return np.asarray(own(arrays[0].astype(np.float64)).astype(arrays[0].dtype))
    return np.asarray(PRIMITIVES[name].numpy(*arrays, arrays[0].dtype))


def _guarded(function: Callable[[float], float]) -> Callable[[float], float]:
    def one(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.inf

    return one


def errors(name: str, found: Array, exact: Array) -> Array:
    """In units of the last place of the exact value rounded (for lgamma of at least 1: Python's is no better)."""
    rounded = exact.astype(found.dtype)
    both = np.isfinite(found) & np.isfinite(rounded)
    wide = WIDER[found.dtype]
    size = np.abs(rounded[both])
    place = np.spacing(np.maximum(size, 1) if name == "lgamma" else size).astype(wide)
    return np.asarray(np.abs(found[both].astype(wide) - exact[both].astype(wide)) / place)


@pytest.mark.parametrize("how", ["library", "plain"])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", sorted(MATH))
def test_accuracy_and_special_values(name: str, dtype: DType, how: str) -> None:
    args = arguments(name, dtype, 1000 if name in BY_LANE else 4000)
    if name == "lgamma":  # between its poles Python's is too rough to compare with
        args = [a[~(np.signbit(a) & (np.abs(a) < 1e6))] for a in args]
    with np.errstate(all="ignore"):
        found, own = call(compiled(name, dtype, how), *args), numpy_value(name, *args)
        exact = numpy_value(name, *(a.astype(WIDER[dtype]) for a in args))
        largest = np.finfo(dtype).max
        at_the_edge = (np.abs(exact) > 0.999 * largest) & (np.abs(exact) < 1.001 * largest)
    for what, of_found, of_own in [
        ("NaN", np.isnan(found), np.isnan(own)),
        ("infinity", np.isinf(found) & ~at_the_edge, np.isinf(own) & ~at_the_edge),
        ("sign", np.signbit(found) & ~np.isnan(found), np.signbit(own) & ~np.isnan(own)),
    ]:
        wrong = np.flatnonzero(of_found != of_own)[:3]
        assert not wrong.size, f"{what}: {[(*(a[i] for a in args), found[i], own[i]) for i in wrong]}"
    with np.errstate(all="ignore"):
        error = errors(name, found, exact)
        allowed = max({"lgamma": 16.0, "tgamma": 8.0}.get(name, 4.0), 2 * float(errors(name, own, exact).max()))
    assert error.max() <= allowed


@pytest.mark.parametrize("how", ["library", "plain"])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", sorted(MATH))
def test_same_bits_at_any_position(name: str, dtype: DType, how: str) -> None:
    args = [a[::37] for a in arguments(name, dtype, 500)]
    kernel = compiled(name, dtype, how)
    whole = call(kernel, *(np.ascontiguousarray(a) for a in args))
    for length in (1, 3, 13):
        parts = [
            call(kernel, *(np.ascontiguousarray(a[start : start + length]) for a in args))
            for start in range(0, len(args[0]), length)
        ]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.skipif(platform.machine() != "x86_64" or platform.system() != "Linux", reason="the flag's number")
@pytest.mark.parametrize("how", ["library", "avx2"])
@pytest.mark.parametrize(("name", "dtype"), [("exp", FLOAT64), ("exp", FLOAT32), ("exp2", FLOAT32)])
def test_exponentials_far_below_zero_do_not_underflow_on_the_way(name: str, dtype: DType, how: str) -> None:
    """A core takes a hundred times as long for a result that underflows; a masked softmax has many of them."""
    fenv = ctypes.CDLL(None)
    kernel, x = compiled(name, dtype, how), np.array([-1e10, -746.5, -np.inf, 1.0, np.nan] * 9, dtype)
    out, underflow = np.empty_like(x), 0x10
    fenv.feclearexcept(underflow)
    kernel([x, out], [len(x)])
    assert not fenv.fetestexcept(underflow)
    np.testing.assert_array_equal(out[:3], 0.0)
