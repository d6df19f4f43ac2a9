"""Errors of long float32 reductions against float64, in units of the last place of the exact result, and NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgraph as kg

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "sum of squares": lambda x: (x * x).sum(),
    "variance": lambda x: x.var(),
}
NUMBERS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "uniform": lambda rng, n: rng.random(n, np.float32),
    "normal": lambda rng, n: rng.standard_normal(n, np.float32),
    "exponential": lambda rng, n: rng.standard_exponential(n, np.float32),
}


@dataclass(frozen=True)
class Found:
    """ulp, numpys: errors in units of the last place."""

    reduction: str
    numbers: str
    ulp: float
    numpys: float

    @property
    def breaks(self) -> bool:
        """Whether ours is further off than NumPy's and than the last place: 1 for a result rounded once or twice."""
        return self.ulp > max(self.numpys, 1.0)


def errors(device: str, n: int) -> Iterator[Found]:
    for numbers, make in NUMBERS.items():
        x = make(np.random.default_rng(0), n)
        given = x if device == "cpu" else kg.asarray(x, device=device)
        for name, reduce in REDUCTIONS.items():
            exact = _exact(name, x)
            unit = float(np.spacing(np.float32(abs(exact))))
            ours = float(np.asarray(kg.kernel_graph(device=device)(reduce)(given)))
            yield Found(name, numbers, abs(ours - exact) / unit, abs(float(reduce(x)) - exact) / unit)


def _exact(name: str, x: Any) -> float:
    """In float64, a piece at a time. A square is that of float32, as the program says."""
    total = squares = rounded = 0.0
    for piece in np.array_split(x, max(1, x.size >> 22)):
        wide = piece.astype(np.float64)
        total, squares = total + float(wide.sum()), squares + float((wide * wide).sum())
        rounded += float((piece * piece).astype(np.float64).sum())
    mean = total / x.size
    return {"sum": total, "mean": mean, "sum of squares": rounded, "variance": squares / x.size - mean * mean}[name]
