"""Philox4x32-10, a random number generator without state. Four counter words and two key words in, four words out.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel.body_builder import KernelValue
from ..kernel.primitives import PRIMITIVES

ROUNDS = 10
MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85  # what is added to the key after each round
_MASK = 0xFFFFFFFF


def philox_formula(
    c0: KernelValue, c1: KernelValue, c2: KernelValue, c3: KernelValue, k0: KernelValue, k1: KernelValue, word: int = 0
) -> KernelValue:
    """Word number `word` of the block. The words of one block share their rounds in a kernel."""
    for turn in range(ROUNDS):
        if turn:
            k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
        c0, c1, c2, c3 = (
            c2.mulhi(c2.const(MULTIPLIERS[1])) ^ c1 ^ k0,
            c2 * MULTIPLIERS[1],
            c0.mulhi(c0.const(MULTIPLIERS[0])) ^ c3 ^ k1,
            c0 * MULTIPLIERS[0],
        )
    return (c0, c1, c2, c3)[word]


def philox_reference(*words: Any, word: int = 0) -> np.ndarray[Any, Any]:
    """The same on arrays of uint32 that broadcast, by products of 64 bits."""
    c0, c1, c2, c3, k0, k1 = (np.asarray(w, np.uint64) for w in words)
    for turn in range(ROUNDS):
        low, high = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        key = [(k + np.uint64(turn * w & _MASK)) & np.uint64(_MASK) for k, w in zip((k0, k1), WEYL, strict=True)]
        c0, c1 = (high >> np.uint64(32)) ^ c1 ^ key[0], high & np.uint64(_MASK)
        c2, c3 = (low >> np.uint64(32)) ^ c3 ^ key[1], low & np.uint64(_MASK)
    return np.asarray((c0, c1, c2, c3)[word]).astype(np.uint32)


def multiply_high_formula(a: KernelValue, b: KernelValue) -> KernelValue:
    """The upper half of the product."""
    return a.mulhi(b)


def multiply_high_reference(a: Any, b: Any) -> np.ndarray[Any, Any]:
    x, y = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    return np.asarray(PRIMITIVES["mulhi"].numpy(x, y, x.dtype))
