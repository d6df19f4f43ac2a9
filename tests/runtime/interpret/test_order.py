"""The first k of an order without sorting the rest, against a stable sort of all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgraph.runtime.interpret.topk import numpy_topk
from tests.counts import examples


def sorted_first(x: np.ndarray[Any, Any], k: int, axis: int, largest: bool) -> np.ndarray[Any, Any]:
    """The first k of a stable sort, the greatest first by two turns."""
    if not largest:
        return np.take(np.argsort(x, axis, kind="stable"), np.arange(k), axis)
    turned = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return np.take(turned, np.arange(k), axis)


@given(st.integers(0, 999), st.sampled_from(["f2", "f4", "f8", "i1", "u8", "?", "c8"]), st.booleans(), st.data())
@settings(max_examples=examples(60), deadline=None)
def test_the_first_of_an_order(seed: int, dtype: str, largest: bool, data: Any) -> None:
    rng, axis = np.random.default_rng(seed), data.draw(st.integers(0, 2))
    shape = [data.draw(st.integers(0, 3)) for _ in range(3)]
    shape[axis] = data.draw(st.integers(0, 60))
    x = rng.integers(0, 5, shape).astype(dtype)
    if x.dtype.kind in "fc" and x.size:
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0])
        x.ravel()[rng.integers(0, x.size, x.size // 3)] = rng.choice(special, x.size // 3)
    k = data.draw(st.integers(0, shape[axis]))
    np.testing.assert_array_equal(numpy_topk(x, k, axis, largest), sorted_first(x, k, axis, largest))
