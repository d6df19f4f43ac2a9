"""CPU kernels of random loop nests agree with the primitives' NumPy meaning, for any split of their units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from kernelgraph.compiler.kernel import LoopNest
from kernelgraph.compiler.types import DType, real_of

from .cpu_harness import AVX2, Compiled, array_in, host_features, reference, vector_library
from .cpu_nests import random_nest, sizes, values

TOLERANCE = {2: 1e-2, 4: 1e-5, 8: 1e-9}


def same(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], dtype: DType) -> bool:
    """Equal; for floats, NaN and infinity in the same places and close elsewhere (sums are rounded differently)."""
    if dtype.kind == "c":
        return all(same(getattr(found, p), getattr(wanted, p), real_of(dtype)) for p in ("real", "imag"))
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


@pytest.mark.parametrize("seed", range(0, 160, 8))
def test_random_nests(seed: int) -> None:
    for each in range(seed, seed + 8):
        nest = random_nest(each)
        check(each, nest, Compiled(nest, vector_library=vector_library()))


@pytest.mark.skipif("+avx512f" not in host_features(), reason="is the same as test_random_nests here")
@pytest.mark.parametrize("seed", range(1000, 1040, 8))
def test_random_nests_without_avx512(seed: int) -> None:
    for each in range(seed, seed + 8):
        nest = random_nest(each)
        check(each, nest, Compiled(nest, AVX2, vector_bytes=32))
