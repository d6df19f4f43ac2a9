"""How the reductions of a kernel join two of their results: one row per reduction."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.core.frozen import frozen
from .types import BOOL, DType


@frozen
class Combiner:
    """primitive: the instruction that joins two values; the ufunc means the same. carries_index: the value that stays
    brings its index along, which is the answer: the first NaN wins, else the first index."""

    name: str
    primitive: str
    ufunc: np.ufunc
    carries_index: bool = False

    def identity(self, dtype: DType) -> Any:
        """The value that changes nothing."""
        return reduction_identity(self.primitive, dtype)


def reduction_identity(primitive: str, dtype: DType) -> Any:
    """The value of `dtype` that a primitive joins to any other without changing it."""
    if primitive in _IDENTITIES:
        return _IDENTITIES[primitive]
    least = primitive == "minimum"
    if dtype.kind == "f":
        return np.inf if least else -np.inf
    if dtype == BOOL:
        return int(least)
    return int(np.iinfo(dtype).max if least else np.iinfo(dtype).min)


_IDENTITIES = {"add": 0, "mul": 1, "or": 0, "and": 1}

COMBINERS: dict[str, Combiner] = {
    row.name: row
    for row in (
        Combiner("sum", "add", np.add),
        Combiner("prod", "mul", np.multiply),
        Combiner("min", "minimum", np.minimum),  # NaN wins
        Combiner("max", "maximum", np.maximum),
        Combiner("any", "or", np.logical_or),
        Combiner("all", "and", np.logical_and),
        Combiner("argmin", "minimum", np.minimum, carries_index=True),
        Combiner("argmax", "maximum", np.maximum, carries_index=True),
    )
}
