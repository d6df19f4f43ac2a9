"""A step that NumPy does for a GPU: which bytes cross."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from kernelgraph.runtime.devices.cuda.modules.launch import NumpyHostStep
from kernelgraph.runtime.program.program import Pointer, Region, Task


class Driver:
    """The GPU's memory is the host's."""

    def __init__(self) -> None:
        self.copies: list[tuple[str, int]] = []

    def to_host(self, target: int, source: int, nbytes: int, stream: int) -> int:
        self.copies.append(("to the host", nbytes))
        ctypes.memmove(target, source, nbytes)
        return 0

    def to_device(self, target: int, source: int, nbytes: int, stream: int) -> int:
        self.copies.append(("to the GPU", nbytes))
        ctypes.memmove(target, source, nbytes)
        return 0

    def synchronize_stream(self, stream: int) -> int:
        return 0


def row(buffer: int, step: int = 4) -> Region:
    return Region(buffer, 0, (6,), (step,), 4, "float32")


@pytest.mark.parametrize(
    ("reads", "written", "copies"),
    [
        ([row(0)], row(1), [("to the host", 24), ("to the GPU", 24)]),
        (
            [row(0)],
            row(1, 8),
            [("to the host", 24), ("to the host", 44), ("to the GPU", 44)],
        ),  # gaps keep what they hold
        ([row(0)], row(0), [("to the host", 24), ("to the GPU", 24)]),
        ([], row(1), [("to the GPU", 24)]),
    ],
)
def test_a_result_is_not_brought_before_it_is_written(reads: Any, written: Region, copies: Any) -> None:
    memory = [np.arange(12, dtype=np.float32) + 100 * i for i in range(2)]
    expected = [m.copy() for m in memory]
    step = written.strides[0] // 4
    values = memory[0][:6].copy() if reads else np.zeros(6, np.float32)
    expected[written.buffer][: 6 * step : step] = values * 2

    def call(places: Any) -> None:
        out = np.frombuffer((ctypes.c_char * written.span[1]).from_address(places[written.buffer]), np.float32)
        out[::step] = 2 * np.frombuffer((ctypes.c_char * 24).from_address(places[0]), np.float32) if reads else 0

    task = Task("host", None, (Pointer(written.buffer),), tuple(reads), (written,))  # type: ignore[arg-type]
    driver: Any = Driver()
    assert NumpyHostStep(driver, task, [call])([m.ctypes.data for m in memory], (), 0) == 0
    assert driver.copies == copies
    for got, wanted in zip(memory, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
