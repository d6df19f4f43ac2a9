"""Functions that are dropped leave no kernel loaded on a GPU in memory."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np

import kernelgraph as kg


def numbered(i: int) -> Any:
    """A function that shares no kernel with that of another number."""

    def f(x: Any) -> Any:
        for bit in bin(i)[2:]:
            x = np.sqrt(x) if bit == "1" else x + x
        return x

    return f


def test_kernels_go_with_their_functions(gpu: Any) -> None:
    x = np.arange(6.0)
    kept = kg.kernel_graph(numbered(8), device="cuda")
    for i in range(9, 13):
        f = kg.kernel_graph(numbered(i), device="cuda")
        result = f(x)
        assert np.allclose(np.asarray(result), numbered(i)(x))
        kept(x)
    assert kg.memory_stats("cuda")["kernels"] == 5
    del f, result
    gc.collect()
    kg.empty_cache("cuda")
    assert kg.memory_stats("cuda")["kernels"] == 1
    assert np.allclose(np.asarray(kept(x)), numbered(8)(x))
    assert np.allclose(np.asarray(kg.kernel_graph(numbered(10), device="cuda")(x)), numbered(10)(x))
