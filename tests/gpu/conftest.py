"""Tests that need an NVIDIA GPU: without one they are skipped, with the reason."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgraph.runtime.core.settings import settings

WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))  # processes on the card


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


@pytest.fixture(scope="session", autouse=True)
def share_of_the_card(device: Any) -> None:
    """Processes beside each other keep and queue no more than their share."""
    if WORKERS > 1:
        from kernelgraph.dsl.array.devices import device_named

        settings.pool_bytes = device.properties.memory_bytes // (8 * WORKERS)
        settings.in_flight_bytes = device.properties.memory_bytes // (4 * WORKERS)
        for each in (device, device_named("cuda")):
            each.graphs.limit //= WORKERS


@pytest.fixture
def much_memory(device: Any) -> Iterator[None]:
    """For tests that take gigabytes: one at a time on the card, which gives all back."""
    import fcntl

    import kernelgraph as kg

    with open(Path(tempfile.gettempdir()) / "kernelgraph-tests-much-memory", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        gc.collect()
        kg.empty_cache("cuda")
