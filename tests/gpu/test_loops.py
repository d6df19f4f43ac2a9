"""Loops, branches and rolled time steps on a GPU give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.devices import cuda_control
from tests.compiler.loop_programs import FUNCTIONS
from tests.compiler.test_roll import PROGRAMS


def leaves(value: Any) -> list[Any]:
    return [x for v in value for x in leaves(v)] if isinstance(value, (tuple, list)) else [np.asarray(value)]


@pytest.mark.parametrize("turns", [0, 1, 7, 300])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_loops(function: Any, turns: int) -> None:
    u = np.random.default_rng(turns).integers(-4, 4, 6).astype(np.float64)
    decorated = kg.kernel_graph(device="cuda")(lambda u: function(u, turns))
    for _ in range(3):
        for one, other in zip(leaves(decorated(u)), leaves(function(u, turns)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name", PROGRAMS)
def test_rolled_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, start = PROGRAMS[name]
    for least in (2, 1 << 30):
        monkeypatch.setattr(cuda_control, "LEAST_LAUNCHES", least)
        decorated = kg.kernel_graph(device="cuda")(lambda x: function(x, 12))
        for one, other in zip(leaves(decorated(start.copy())), leaves(function(start.copy(), 12)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
