"""Random LoopNests, and values for their operands; a seed gives the same nest on every machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelgraph.compiler.core.types import (
    BOOL,
    FLOAT32,
    FLOAT64,
    HALVES,
    INT64,
    SHORT_NAMES,
    DType,
    complex_dtype,
    real_dtype,
)
from kernelgraph.compiler.kernel.body_builder import primitive_dtype
from kernelgraph.compiler.kernel.loop_nest import LOOP, POINT, Instr, LoopNest, Operand, Phase, Reduction
from kernelgraph.compiler.kernel.primitives import PRIMITIVES

DTYPES = list(SHORT_NAMES)
REALS = [d for d in DTYPES if d.kind != "c"]
INEXACT = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"}
INEXACT |= {"sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "cbrt", "erf", "erfc", "lgamma", "pow", "atan2"}
INEXACT |= {"hypot", "fmod"}
EXACT = [name for name in PRIMITIVES if name not in INEXACT]
SIZES = [1, 2, 3, 5, 16, 17, 33, 70]
LONG = [100, 600, 1300, 2100]
LIMIT = 60000  # elements of a nest's domain

Rng = np.random.Generator


def pick(rng: Rng, items: Any) -> Any:
    return items[int(rng.integers(len(items)))]


def values(rng: Rng, shape: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers of all sizes, small ones and special ones."""
    if dtype == BOOL:
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, rng.integers(0, 5, shape).astype(dtype), wide).astype(dtype)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5], shape)
    x = np.where(rng.random(shape) < 0.1, special, x)
    return (x + 1j * rng.standard_normal(shape) if dtype.kind == "c" else x).astype(dtype)


def sizes(rng: Rng, axes: int) -> list[int]:
    """One long axis at most, the others short."""
    found = [int(pick(rng, SIZES)) for _ in range(axes)]
    if axes:
        found[int(rng.integers(axes))] = int(pick(rng, LONG))
    while np.prod(found) > LIMIT:
        found[int(np.argsort(found)[-2])] = 2
    return found


@dataclass
class Builder:
    """Collects a nest's operands, scalars and phases; `known` are the values in reach as (number, dtype)."""

    rng: Rng
    parallel: int
    reduced: int
    operands: list[Operand] = field(default_factory=list)
    scalars: list[DType] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    instrs: list[Instr] = field(default_factory=list)
    known: list[tuple[int, DType]] = field(default_factory=list)
    finished: list[tuple[tuple[int, int, int], DType]] = field(default_factory=list)
    count: int = 0

    def layout(self, role: str, point: bool) -> str:
        axes, inner = self.parallel + self.reduced, (self.parallel - 1, self.parallel + self.reduced - 1)
        letters = []
        for axis in range(axes):
            if axis >= self.parallel and point:
                letters.append("0")
            elif role == "out":
                letters.append("1" if axis in inner and self.rng.random() < 0.6 else "s")
            else:
                letters.append(pick(self.rng, "0111ss" if axis in inner else "0ssss1"))
        ones = [a for a in range(axes) if letters[a] == "1"]
        kept = pick(self.rng, ones) if ones else None
        for axis in ones:
            if axis != kept:
                letters[axis] = "s"
        return "".join(letters)

    def put(self, op: str, dtype: DType, args: tuple[int, ...] = (), attr: Any = None) -> int:
        self.instrs.append(Instr(op, dtype, args, attr))
        self.count += 1
        if op != "store":
            self.known.append((self.count - 1, dtype))
        return self.count - 1

    def load(self, dtype: DType, point: bool) -> None:
        self.operands.append(Operand(dtype, "in", self.layout("in", point)))
        for part in range(2 if dtype.kind == "c" else 1):
            self.put("load", real_dtype(dtype), (), (len(self.operands) - 1, part))

    def store(self, point: bool) -> None:
        number, dtype = pick(self.rng, self.known)
        if dtype in (FLOAT32, FLOAT64) and self.rng.random() < 0.3:
            other = [n for n, d in self.known if d == dtype][-1]
            self.operands.append(Operand(complex_dtype(dtype), "out", self.layout("out", point)))
            self.put("store", dtype, (number,), (len(self.operands) - 1, 0))
            self.put("store", dtype, (other,), (len(self.operands) - 1, 1))
            return
        self.operands.append(Operand(dtype, "out", self.layout("out", point)))
        self.put("store", dtype, (number,), (len(self.operands) - 1, 0))

    def sources(self, point: bool, dtypes: list[DType]) -> None:
        rng, axes = self.rng, self.parallel + (0 if point else self.reduced)
        for _ in range(int(rng.integers(1, 4))):
            self.load(pick(rng, dtypes), point)
        for attr, dtype in self.finished:
            self.put("result", dtype, (), attr)
        if rng.random() < 0.3 and axes:
            self.put("index", INT64, (), int(rng.integers(axes)))
        if rng.random() < 0.3 and self.parallel + self.reduced:
            self.put("size", INT64, (), int(rng.integers(self.parallel + self.reduced)))
        if rng.random() < 0.3:
            self.scalars.append(pick(rng, REALS))
            self.put("scalar", self.scalars[-1], (), len(self.scalars) - 1)
        if rng.random() < 0.3:
            dtype = pick(rng, REALS)
            self.put("const", dtype, (), values(rng, 1, dtype).tobytes())

    def work(self) -> None:
        for _ in range(int(self.rng.integers(0, 8))):
            op = pick(self.rng, EXACT)
            for _ in range(20):
                args = [pick(self.rng, self.known) for _ in range(PRIMITIVES[op].arity)]
                try:
                    dtype = primitive_dtype(op, tuple(a[1] for a in args), pick(self.rng, REALS))
                except TypeError:
                    continue
                if op == "cast" and args[0][1].kind in "fV" and dtype.kind in "iu":
                    continue  # beyond the integer's range C and NumPy give anything
                self.put(op, dtype, tuple(a[0] for a in args))
                break

    def reductions(self) -> list[Reduction]:
        found = []
        for _ in range(int(self.rng.integers(1, 3))):
            combine = pick(self.rng, ["sum", "prod", "min", "max", "any", "all", "argmin", "argmax"])
            fitting = [
                (n, d)
                for n, d in self.known
                if d not in HALVES and (d == BOOL) == (combine in ("any", "all")) and (combine, d.kind) != ("prod", "f")
            ]
            if not fitting or (combine.startswith("arg") and self.reduced > 1):
                continue
            number, dtype = pick(self.rng, fitting)
            more = (self.put("index", INT64, (), self.parallel),) if combine.startswith("arg") else ()
            found.append(Reduction(combine, dtype, (number, *more)))
        return found

    def phase(self, kind: str, dtypes: list[DType]) -> None:
        point, before, self.instrs, first = kind == POINT, list(self.known), [], self.count
        self.sources(point, dtypes)
        self.work()
        found = [] if point else self.reductions()
        if point or not found or self.rng.random() < 0.5:
            self.store(point)
        self.phases.append(Phase(kind, first, tuple(self.instrs), tuple(found)))
        if not point:
            self.known = before
        for r, reduction in enumerate(found):
            for part in range(len(reduction.values)):
                self.finished.append(((len(self.phases) - 1, r, part), INT64 if part else reduction.dtype))

    def store_results(self) -> None:
        self.instrs, first = [], self.count
        for attr, dtype in self.finished:
            number = self.put("result", dtype, (), attr)
            self.operands.append(Operand(dtype, "out", self.layout("out", True)))
            self.put("store", dtype, (number,), (len(self.operands) - 1, 0))
        if self.instrs:
            self.phases.append(Phase(POINT, first, tuple(self.instrs)))


POINTS = [[POINT], [POINT], [POINT, POINT]]
LOOPS = [[LOOP], [LOOP, POINT], [LOOP, LOOP], [POINT, LOOP, POINT], [LOOP, POINT, LOOP]]


def random_nest(seed: int) -> LoopNest:
    """Elementwise for even seeds, with reductions for odd ones."""
    rng = np.random.default_rng(seed)
    parallel, reduced = (int(rng.integers(0, 4)), int(rng.integers(1, 3))) if seed % 2 else (int(rng.integers(1, 4)), 0)
    builder = Builder(rng, parallel, reduced)
    dtypes = [pick(rng, DTYPES) for _ in range(int(rng.integers(1, 4)))]
    for kind in pick(rng, LOOPS if seed % 2 else POINTS):
        builder.phase(kind, dtypes)
    builder.store_results()
    return LoopNest("kernel", parallel, reduced, tuple(builder.operands), tuple(builder.scalars), tuple(builder.phases))
