"""Two GPUs in one process: which of them is current, and copies between them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from kernelgraph.runtime.devices.cuda.driver.context import GpuDriverContext
from tests.runtime.cuda_calls import counted, device_on
from tests.runtime.cuda_fake import FakeContext


class Gpu:
    """cuda-core's device: what is made of it belongs to whichever is current."""

    current = threading.local()

    def __init__(self, index: int) -> None:
        self.index = index

    def set_current(self) -> None:
        self.current.index = self.index

    def create_stream(self, options: Any) -> Any:
        return (self.index, self.current.index)

    def create_event(self) -> Any:
        return (self.index, self.current.index)

    def sync(self) -> None:
        assert self.current.index == self.index


def contexts() -> list[GpuDriverContext]:
    made = []
    for index in range(2):
        context = GpuDriverContext.__new__(GpuDriverContext)
        context._device, context.index, context.alone = Gpu(index), index, True
        context.core = type("Core", (), {"StreamOptions": lambda priority: priority})
        made.append(context)
    return made


def test_the_gpu_that_work_is_for_is_current() -> None:
    first, second = contexts()
    for context in (first, second, first, first, second):
        context.enter()
        assert Gpu.current.index == context.index


def test_streams_and_events_belong_to_the_gpu_that_makes_them() -> None:
    first, second = contexts()
    second.enter()
    assert first.stream(False) == (0, 0)
    second.enter()
    assert first.event() == (0, 0)
    second.synchronize()
    first.synchronize()


def test_each_thread_has_a_current_gpu_of_its_own() -> None:
    first, second = contexts()
    first.enter()
    seen = []

    def other() -> None:
        first.enter()
        seen.append(Gpu.current.index)
        second.enter()
        seen.append(Gpu.current.index)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    first.enter()
    assert (seen, Gpu.current.index) == ([0, 1], 0)


def test_what_another_library_makes_current_is_seen() -> None:
    first, second = contexts()  # of which the second need not be in use
    for context in (first, second):
        context.handle, context.alone = context.index, False
        context.driver = type("Driver", (), {"current_context": lambda self: Gpu.current.index})()
    first.enter()
    second._device.set_current()  # as torch.cuda.set_device(1) does
    first.enter()
    assert Gpu.current.index == 0


def test_a_copy_to_a_peer_follows_what_it_copies() -> None:
    context = FakeContext()
    one, two = device_on(context), device_on(context)
    values = np.arange(1000.0)
    memory, target = one.allocate(values.nbytes), two.allocate(values.nbytes)
    written = one.upload(values, memory)
    for _ in range(2):
        copied = two.copy_from(one, memory, target, values.nbytes, written)
        assert not copied.query()
    found = np.empty_like(values)
    copied.wait()
    two.download(target, found)
    np.testing.assert_array_equal(found, values)
    assert (counted(two, "to_peer"), counted(two, "open")) == (2, 2)  # each way once


def test_a_copy_of_what_failed_fails() -> None:
    context = FakeContext()
    one, two = device_on(context), device_on(context)
    memory, target = one.allocate(8), two.allocate(8)
    written = one.upload(np.ones(1), memory)
    written.error = ValueError("lost")
    copied: Any = two.copy_from(one, memory, target, 8, written)
    assert copied.error is written.error
