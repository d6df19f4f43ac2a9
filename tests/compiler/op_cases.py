"""Inputs for the op table's tests: ordinary and special values of every dtype, and a row run by the evaluator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from kernelgraph.compiler.core.types import BOOL, INT64, SHORT_NAMES, UINT64, DType, dtype_kind, real_dtype
from kernelgraph.compiler.kernel.body_builder import KernelBody
from kernelgraph.compiler.ops.table import OPS, Op, resolve_op_row_dtypes
from tests.compiler.nest_evaluator import evaluate_phases_of_loop_nest

Array = np.ndarray[Any, Any]
PAIRS = 20_000  # at most so many pairs of values


def finfo(dtype: DType) -> Any:
    return ml_dtypes.finfo(real_dtype(dtype))


def specials(dtype: DType) -> list[float]:
    info = finfo(dtype)
    least, normal, eps = float(info.smallest_subnormal), float(info.smallest_normal), float(info.eps)
    positive = [0.0, np.inf, 0.5, 1, 1 + eps, 1 - eps / 2, 1.5, 2, 2.5, 3, float(info.max), normal, least, 5 * least]
    positive.append(1.5 * float(info.max) ** 0.5)  # whose products overflow, but not by much
    return [np.nan, *positive, *(-x for x in positive)]


def values(dtype: DType, rng: np.random.Generator) -> Array:
    """Special, ordinary and random values of one dtype."""
    kind = dtype_kind(dtype)
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        info = np.iinfo(dtype)
        edge = [0, 1, 2, 3, 7, info.max, info.max - 1, info.min, info.min + 1, info.bits - 1, info.bits]
        small = rng.integers(-20 if kind == "i" else 0, 20, 30).tolist()
        wide = rng.integers(info.min, info.max, 60, dtype=dtype, endpoint=True)
        return np.unique(
            np.concatenate([np.array(edge + small + ([-1, -info.bits] if kind == "i" else []), dtype), wide])
        )
    if kind == "f":
        ordinary = rng.normal(size=80) * np.exp(3 * rng.normal(size=80))
        parts = np.array(specials(dtype)), ordinary
        return np.concatenate([*(p.astype(dtype) for p in parts), random_bits(dtype, rng, 40)])
    return complex_values(dtype, rng)


def random_bits(dtype: DType, rng: np.random.Generator, count: int) -> Array:
    """Numbers of any bits; NaNs of either sign, quiet ones."""
    found = rng.integers(0, 256, (count, dtype.itemsize), np.uint8).view(dtype)[:, 0]
    if dtype_kind(dtype) != "f":
        return found
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(found), np.copysign(np.array(np.nan, dtype), found), found)


def complex_values(dtype: DType, rng: np.random.Generator) -> Array:
    """All pairs of special parts, ordinary numbers, and numbers near the singular points 0, 1, -1, i."""
    grid = np.array(list(itertools.product(specials(dtype), repeat=2)))
    n = 300
    ordinary = rng.normal(size=(n, 2)) * np.exp(2 * rng.normal(size=(n, 2)))
    centre = np.array([(0, 0), (1, 0), (-1, 0), (0, 1)])[rng.integers(0, 4, n)]
    near = centre + rng.normal(size=(n, 2)) * 10.0 ** rng.uniform(-7, 0, (n, 1))
    parts = np.concatenate([grid, ordinary, near]).astype(real_dtype(dtype))
    return np.ascontiguousarray(parts).view(dtype)[:, 0]


def inputs(loop: Sequence[DType], seed: int = 0) -> list[Array]:
    """Aligned arrays of arguments; all pairs of values where these are few."""
    rng = np.random.default_rng(seed)
    found = [values(d, rng) for d in loop]
    if len(loop) == 1:
        return found
    if len(loop) == 2 and len(found[0]) * len(found[1]) <= PAIRS:
        return [np.repeat(found[0], len(found[1])), np.tile(found[1], len(found[0]))]
    return [v[rng.integers(0, len(v), PAIRS)] for v in found]


def loops(row: Op) -> Iterator[tuple[tuple[DType, ...], DType]]:
    """Every loop of a row on equal dtypes, and the mixed ones that NumPy has."""
    seen = set()
    mixed = [(INT64, UINT64), (UINT64, INT64)] if row.arity == 2 else []
    mixed += [(f, i) for f in SHORT_NAMES for i in SHORT_NAMES if i.kind == "i"] if row.name == "ldexp" else []
    for dtypes in [(d,) * row.arity for d in SHORT_NAMES] + mixed:
        given = (BOOL, *dtypes[1:]) if row.name == "where" else dtypes
        try:
            loop = resolve_op_row_dtypes(row, given)
        except TypeError:
            continue
        if loop not in seen:
            seen.add(loop)
            yield loop


def cases() -> list[Any]:
    import pytest

    return [
        pytest.param(row, loop, result, id=f"{row.name}-{'-'.join(d.name for d in loop)}")
        for row in OPS.values()
        if row.kind == "map"
        for loop, result in loops(row)
    ]


def build(row: Op, loop: Sequence[DType], result: DType, attrs: dict[str, Any] | None = None) -> Any:
    """The phases of a kernel that computes the row once."""
    body = KernelBody()
    body.begin_phase("point")
    args = [body.load(i, d) for i, d in enumerate(loop)]
    body.store(len(loop), body.apply(row, args, result, attrs))
    body.end_phase()
    return body.finish()


def part_of(array: Array, part: int) -> Array:
    return (array.imag if part else array.real) if array.dtype.kind == "c" else array


def run(row: Op, arrays: Sequence[Array], result: DType, attrs: dict[str, Any] | None = None) -> Array:
    """The row's expansion, evaluated."""
    out = np.empty(len(arrays[0]), result)

    def load(operand: int, part: int) -> Array:
        return part_of(arrays[operand], part)

    def store(operand: int, part: int, value: Array) -> None:
        part_of(out, part)[...] = value

    evaluate_phases_of_loop_nest(build(row, [a.dtype for a in arrays], result, attrs), out.shape, 1, load, store)
    return out
