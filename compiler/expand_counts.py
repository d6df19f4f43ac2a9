"""Graph -> Graph for a GPU: sums of weights by number. An index that has no place is not counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .builder import Builder
from .graph import Node, Value
from .types import FLOAT64


def bincount(builder: Builder, node: Node, args: Sequence[Value]) -> Value | None:
    """bincount(x, weights) -> zeros after add.at(zeros, x, weights)"""
    if len(args) != 2 or args[0].shape != args[1].shape or 0 in (*args[0].shape, *node.type.shape):
        return None
    numbers, weights = args
    if len(numbers.shape) != 1 or numbers.dtype.kind not in "iu" or weights.dtype.kind not in "biuf":
        return None
    if numbers.type.size >= 2**31:
        return None
    zeros = builder.broadcast(builder.const(np.float64(0)), node.type.shape)
    weights = builder.cast(weights, FLOAT64) if weights.dtype.kind == "b" else weights
    return builder.host("combine_at", [zeros, numbers, weights], [node.type], ufunc="add")[0]
