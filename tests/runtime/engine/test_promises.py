"""Events that Python completes: native work waits for them, and takes over their errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelgraph.runtime.core.errors import KernelGraphError
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.engine.promises import EnginePromise, PythonPromise, make_promise

MAKERS: list[Callable[[], Any]] = [make_promise, PythonPromise]


@pytest.mark.parametrize("make", MAKERS)
def test_a_promise_happens_once_it_is_complete(make: Callable[[], Any]) -> None:
    promise = make()
    assert not promise.event.query()
    waiting = threading.Thread(target=promise.event.wait)
    waiting.start()
    promise.complete()
    waiting.join(30)
    assert promise.event.query() and not waiting.is_alive()
    promise.event.finish()
    assert promise.event.failure is None


@pytest.mark.parametrize("make", MAKERS)
def test_its_error_is_raised_at_every_wait(make: Callable[[], Any]) -> None:
    promise = make()
    promise.complete(KernelGraphError("rank 2 is gone"), unread=False)
    for _ in range(2):
        with pytest.raises(KernelGraphError, match="rank 2 is gone"):
            promise.event.wait()


@pytest.mark.parametrize("failed", [False, True])
def test_native_work_follows_a_promise(failed: bool) -> None:
    """A copy that waits for it, and a copy of that, start when it is complete, or have its error."""
    device = CPUDevice()
    memories = [device.allocate(80_000) for _ in range(3)]
    values = np.arange(10_000.0)
    for _ in range(20):  # records are used again
        promise = make_promise()
        assert isinstance(promise, EnginePromise)
        device.upload(np.zeros(10_000), memories[0])
        first = device.copy_from(device, memories[0], memories[1], 80_000, promise.event)
        second = device.copy_from(device, memories[1], memories[2], 80_000, first)
        assert not first.query() and not second.query()
        device.upload(values, memories[0])
        if failed:
            promise.complete(KernelGraphError("rank 2 is gone"), unread=False)
            for event in (second, first):
                with pytest.raises(KernelGraphError, match="rank 2 is gone"):
                    event.wait()
            continue
        promise.complete()
        second.wait()
        result = np.empty(10_000)
        device.download(memories[2], result)
        np.testing.assert_array_equal(result, values)
    device.synchronize()
