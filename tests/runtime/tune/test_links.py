"""What copies between two devices take: timed once on a machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.tune import links


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(links, "_known", {})
    with override(cache_dir=str(tmp_path / "cache")):
        yield


def test_a_copy_is_timed_once_and_read_from_disk_after(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [CPUDevice(i) for i in range(2)]
    found = links.measured_copy_times(*devices)
    assert found[0] > 0 and 0 <= found[1] < math.inf
    monkeypatch.setattr(links, "_known", {})
    monkeypatch.setattr(links, "_measure_copy_times", lambda *_: pytest.fail("it was timed again"))
    assert links.measured_copy_times(*devices) == found


def test_each_pair_has_times_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs: list[Any] = []
    monkeypatch.setattr(links, "_measure_copy_times", lambda a, b: pairs.append((a, b)) or (float(len(pairs)), 0.5))
    first, second, third = (CPUDevice(i) for i in range(3))
    asked = [(first, second), (second, first), (first, third), (first, second)]
    assert [links.measured_copy_times(a, b) for a, b in asked] == [(1.0, 0.5), (2.0, 0.5), (3.0, 0.5), (1.0, 0.5)]
    assert pairs == asked[:3]
