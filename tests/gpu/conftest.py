"""Tests that need an NVIDIA GPU: without one they are skipped, with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def device() -> Any:
    """The first GPU."""
    try:
        from kernelgraph.runtime.devices.cuda.device import CUDADevice

        return CUDADevice(0)
    except Exception as error:
        pytest.skip(f"no GPU: {error}")


@pytest.fixture(scope="session", autouse=True)
def gpu(device: Any) -> None:
    """Every test here needs a GPU, also one that does not ask for the device by name."""
