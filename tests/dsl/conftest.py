"""A GPU in memory as the device `cuda`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelgraph as kg

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

PACES = ("they are slow", "they are quick", "any order")  # the others' streams, beside ours


@pytest.fixture(params=PACES)
def gpu(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device `cuda`, for a while."""
    from gpu_in_memory import SharedContext, device_on

    from kernelgraph.dsl import devices, eager
    from kernelgraph.runtime.devices import cuda

    monkeypatch.setattr(cuda, "cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(eager, "_COMPILED", {})
    made = device_on(SharedContext())
    made.context.driver.pace = request.param
    monkeypatch.setitem(devices._open, ("cuda", 0), made)
    yield made
    kg.waitall()
