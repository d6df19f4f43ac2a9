"""How accurate the rows that round are on a device: a dtype and a number of arguments in, errors in ulp a row out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelgraph.compiler.core.types import DType, real_dtype
from kernelgraph.compiler.ops.special import SPECIAL_FUNCTIONS
from kernelgraph.compiler.ops.table import Op
from kernelgraph.runtime.program.device import Device
from tests.compiler.op_cases import Array, finfo, random_bits
from tests.compiler.op_checks import EXACT, reference, ulps, widened
from tests.compiler.op_groups import Group, all_values, groups

from .op_device import compute


@dataclass(frozen=True)
class Accuracy:
    """The largest error of a row and of NumPy, where the row's is, and how many results are further off than 4 ulp and
    twice NumPy's error for the same arguments."""

    row: str
    dtype: DType
    ulp: float
    numpys: float
    at: tuple[object, ...]
    beyond: int

    @property
    def breaks(self) -> bool:
        """A few of a million complex numbers may be a little beyond where NumPy's own largest error is as large."""
        return self.beyond > 0 and self.ulp > max(4, 2 * self.numpys)


def rounding_groups(dtype: DType) -> list[Group]:
    """The rows on this dtype whose results are not NumPy's to the bit; for complex also those exact for reals."""
    exact = EXACT - {"sign", "add", "subtract", "multiply", "divide", "square", "reciprocal", "absolute", "sqrt"}
    skip = {*(exact if dtype.kind == "c" else EXACT), *SPECIAL_FUNCTIONS}  # which `check_special` bounds
    found = []
    for group in groups():
        rows = tuple((row, result) for row, result in group.rows if row.name not in skip and result.kind not in "biu")
        if rows and set(group.loop) == {dtype}:
            found.append(Group(group.loop, rows))
    return found


def sweep(device: Device, dtype: DType, count: int, seed: int = 0) -> list[Accuracy]:
    """Every rounding row on `count` arguments of all sizes; on all there are, of one 16-bit float."""
    found = []
    for group in rounding_groups(dtype):
        rng = np.random.default_rng(seed)
        arrays = arguments(group, rng, count)
        results = compute(device, group.graph(len(arrays[0])), arrays)
        found += [accuracy(row, arrays, result, got) for (row, result), got in zip(group.rows, results, strict=True)]
    return found


def arguments(group: Group, rng: np.random.Generator, count: int) -> list[Array]:
    dtype = group.loop[0]
    if dtype.itemsize == 2 and len(group.loop) == 1:
        return [all_values(dtype)]
    return [all_sizes(dtype, rng, count) for _ in group.loop]


def all_sizes(dtype: DType, rng: np.random.Generator, count: int) -> Array:
    """Numbers of any bits, of every order of magnitude near 1, from -2 to 2, and from -1000 to 1000."""
    if dtype.kind == "c":
        parts = [all_sizes(real_dtype(dtype), rng, count) for _ in range(2)]
        return np.stack(parts, -1).view(dtype)[:, 0]
    quarters = [
        random_bits(dtype, rng, count),
        rng.standard_normal(count) * 10.0 ** rng.uniform(-6, 2, count),
        rng.uniform(-2, 2, count),
        rng.uniform(-1000, 1000, count),
    ]
    with np.errstate(over="ignore"):
        return np.choose(rng.integers(0, 4, count), [q.astype(dtype) for q in quarters])


def accuracy(row: Op, arrays: Sequence[Array], result: DType, got: Array) -> Accuracy:
    """Where NumPy's result and the exact one are finite."""
    with np.errstate(all="ignore"):
        want, wide = reference(row, list(arrays), result), widened(row, list(arrays))
        good = np.isfinite(want) & np.isfinite(wide) & (abs(wide) <= float(finfo(result).max))
        own, numpys = (np.where(good, ulps(row, x, wide, list(arrays)), 0) for x in (got, want))
        own = np.where(np.isnan(own), np.inf, own)
    worst = int(own.argmax())
    beyond = int((own > np.maximum(4, 2 * numpys)).sum())
    at = tuple(x[worst] for x in arrays)
    return Accuracy(row.name, arrays[0].dtype, float(own[worst]), float(numpys.max()), at, beyond)
