"""The driver's start, with a driver in memory: once for each GPU, in a thread, and beside the trace of a first call."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.runtime.devices.cuda.driver import early_start


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the driver was asked for."""
    found: list[Any] = []

    def answer(name: str, code: int = 0) -> Any:
        return lambda *a: found.append((name, *(x for x in a if isinstance(x, int)))) or code

    driver = SimpleNamespace(
        cuInit=answer("init"), cuDeviceGet=answer("device"), cuDevicePrimaryCtxRetain=answer("context")
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(early_start, "_started", {})
    return found


def test_once_for_each_gpu(asked: list[Any]) -> None:
    threads = [early_start.start_cuda_context_early(index) for index in (0, 0, 1)]
    for thread in threads:
        thread.join()
    assert threads[0] is threads[1]
    assert sorted(asked) == [("context",)] * 2 + [("device", 0), ("device", 1)] + [("init", 0)] * 2


def test_no_driver(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    def none(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", none)
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    early_start.start_cuda_context_early(0).join()
    assert not asked and not failed


def test_a_first_call_begins_before_it_traces(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cuda_installed", lambda: True)

    def f(x):
        raise ArithmeticError

    for device in ("cuda:7", "cpu"):
        with pytest.raises(ArithmeticError):
            kg.kernel_graph(device=device)(f)(np.ones(3))
    assert list(early_start._started) == [7]
