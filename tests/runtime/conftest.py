"""Fixtures of the native engine's tests."""

from __future__ import annotations

import threading

import pytest

from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.interpret.library_calls import LIBRARY
from tests.runtime.native_runs import check_rest


@pytest.fixture(scope="module")
def device():
    return CPUDevice(0)


@pytest.fixture
def engine_comes_to_rest():
    """After each test: no work is left, no slot is lost, every worker sleeps."""
    yield
    check_rest()


@pytest.fixture
def library(monkeypatch):
    """Library calls: `add_one` to the write, which notes the thread that it runs on; `fail`."""
    seen = []

    def add_one(reads, writes, attrs):
        writes[0][...] += attrs.get("by", 1)
        seen.append(threading.current_thread())

    def fail(reads, writes, attrs):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setitem(LIBRARY, "add_one", add_one)
    monkeypatch.setitem(LIBRARY, "fail", fail)
    return seen
