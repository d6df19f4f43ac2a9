"""A GPU in memory as the device `cuda`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import kernelgraph as kg

PACES = ("they are slow", "they are quick", "any order")  # the others' streams, beside ours


@pytest.fixture(params=PACES)
def gpu(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The device `cuda`, for a while."""
    from kernelgraph.dsl.array import devices
    from kernelgraph.dsl.jit import eager
    from kernelgraph.runtime.devices.cuda import device as cuda
    from tests.dsl.gpu_in_memory import SharedContext, device_on

    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(eager, "_COMPILED", {})
    made = device_on(SharedContext())
    made.context.driver.pace = request.param
    monkeypatch.setitem(devices._open, ("cuda", 0), made)
    yield made
    kg.waitall()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that are decorated in a test refuse what they cannot trace, unless they say otherwise."""
    from kernelgraph.dsl.jit import kernel_graph

    checked = kernel_graph.checked_kernel_graph_options
    monkeypatch.setattr(
        kernel_graph, "checked_kernel_graph_options", lambda **given: checked(**{"untraceable": "refuse", **given})
    )
