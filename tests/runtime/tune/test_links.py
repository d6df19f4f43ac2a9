"""What copies between two devices take: the least of a link's last times, which are taken again as they grow old."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.tune import links
from kernelgraph.runtime.tune.links import FRESH_SECONDS, KEPT, LinkTimes


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(links, "_known", {})
    with override(cache_dir=str(tmp_path / "cache")):
        yield


class Clock:
    """What links are timed with: the time of day, and what copies of each size take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.takes = 1e9, (5.0, 5.0 + links.SIZES[1] - links.SIZES[0])
        self.timed: list[Any] = []
        monkeypatch.setattr(links, "time", SimpleNamespace(time=lambda: self.now))
        monkeypatch.setattr(links, "_least_copy_times", lambda a, b: self.timed.append((a, b)) or self.takes)


def test_a_copy_is_timed_once_and_read_from_disk_after(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = [CPUDevice(i) for i in range(2)]
    found = links.measured_copy_times(*devices)
    assert found[0] > 0 and 0 <= found[1] < math.inf
    monkeypatch.setattr(links, "_known", {})
    monkeypatch.setattr(links, "FRESH_SECONDS", math.inf)
    monkeypatch.setattr(links, "_least_copy_times", lambda *_: pytest.fail("it was timed again"))
    assert links.measured_copy_times(*devices) == found


def test_each_pair_has_times_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    first, second, third = (CPUDevice(i) for i in range(3))
    asked = [(first, second), (second, first), (first, third), (first, second)]
    assert [links.measured_copy_times(a, b) for a, b in asked] == [(5.0, 1.0)] * 4
    assert clock.timed == asked[:3]


def test_what_several_devices_do_has_times_of_its_own() -> None:
    devices, timed = [CPUDevice(i) for i in range(3)], list[str]()

    def measure(what: str, some: list[CPUDevice]) -> tuple[float, float]:
        return links.measured_times([what], some, (8, 108), lambda: timed.append(what) or (5.0, 15.0))

    for what, some in (("sum", devices), ("sum", devices), ("gather", devices), ("sum", devices[:2])):
        assert measure(what, some) == (5.0, 0.1)
    assert timed == ["sum", "gather", "sum"]


@pytest.mark.parametrize("known", ["by the process", "on disk"])
def test_times_of_a_busy_machine_do_not_stay(known: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, devices = Clock(monkeypatch), [CPUDevice(i) for i in range(2)]
    quiet, clock.takes = clock.takes, tuple(1000 * t for t in clock.takes)
    busy = links.measured_copy_times(*devices)
    for age, want in ((FRESH_SECONDS / 2, busy), (FRESH_SECONDS, (5.0, 1.0))):
        clock.now, clock.takes = 1e9 + age, quiet
        if known == "on disk":
            monkeypatch.setattr(links, "_known", {})
        assert links.measured_copy_times(*devices) == want
    clock.takes = 1e6, 1e9
    clock.now += FRESH_SECONDS
    assert links.measured_copy_times(*devices) == (5.0, 1.0)  # busy again
    assert len(clock.timed) == 3


def test_a_link_that_has_become_slow_is_seen_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, devices = Clock(monkeypatch), [CPUDevice(i) for i in range(2)]
    links.measured_copy_times(*devices)
    clock.takes = 50.0, 50.0
    for turn in range(KEPT):
        clock.now += FRESH_SECONDS * 2**turn
        found = links.measured_copy_times(*devices)
    assert found == (50.0, 0.0) and len(clock.timed) == KEPT + 1


@given(st.lists(st.floats(0, 1e5), max_size=300))
def test_a_link_is_timed_ever_less_often(gaps: list[float]) -> None:
    now = 1e9
    found = LinkTimes(now, now, ((1.0, 2.0),))
    timed = 1
    for gap in gaps:
        now += gap
        if found.is_due(now):
            timed += 1
            found = found.with_times(now, (1.0, 2.0))
    assert timed <= 3 + math.log2(1 + (now - 1e9) / FRESH_SECONDS)
    assert links._link_times_from_bytes(found.to_bytes()) == found
