"""Kernels of empty arrays touch no memory: an array of no elements has no address that could be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.compiler.device_calls import emulated

SHAPES = [(0,), (0, 3), (3, 0), (1, 0), (2, 0, 3), (0, 40)]
FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: np.vdot(x, x),
    lambda x: x.reshape(-1).sum(),
    lambda x: np.trace(x) if x.ndim > 1 else x.prod(),
    lambda x: (x.sum(), x.sum(0), x.any(-1)),
    lambda x: x[..., ::2].sum(-1),
    lambda x: np.broadcast_to(x, (2, *x.shape)).sum((0, 1)),
    lambda x: np.cumsum(x, axis=0),
    lambda x: np.concatenate([x, x]).sum(0),
    lambda x: x.reshape(-1) @ x.reshape(-1),
    lambda x: x[x > 0].sum(),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_memory_is_touched(function: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    x = np.zeros(shape)
    want = function(x)
    want = want if isinstance(want, tuple) else (want,)
    program = kg.kernel_graph(function, device="fake").program(x)
    for got, value in zip(emulated(program, [x]), want, strict=True):
        np.testing.assert_array_equal(got.view(value.dtype).reshape(value.shape), value)
