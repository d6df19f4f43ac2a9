"""The CPU device: memory, loading, and plans of one and several tasks."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cpu_plans import ADD, DOUBLE, SCALE, Buffer, Region, call, in_order, kernel_task, library_task

from kernelgraph.runtime.devices.cpu import CPUDevice
from kernelgraph.runtime.settings import override


@pytest.fixture(scope="module")
def device():
    return CPUDevice(0)


def numbers(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def chain(n):
    """out = s * (x + y + x + y), through a temporary."""
    buffers = [Buffer(4 * n, "input"), Buffer(4 * n, "input"), Buffer(4 * n, "temp"), Buffer(4 * n, "temp"), Buffer(4 * n, "output")]
    tasks = [
        kernel_task(ADD, (0, 1), 2, n),
        kernel_task(DOUBLE, (2,), 3, n),
        kernel_task(SCALE, (3,), 4, n, scalars=(0,)),
    ]
    return in_order(buffers, tasks, (0, 1), (4,), ("float32",))


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
@pytest.mark.parametrize("n", [1, 17, 1000, 300_000])
def test_a_chain_of_kernels(device, n, engine):
    x, y = numbers(n), numbers(n, 1)
    with override(engine=engine):
        (out,) = call(device, device.prepare(chain(n)), (x, y), (0.5,))
    np.testing.assert_array_equal(out, np.float32(0.5) * ((x + y) + (x + y)))


def test_matmul_then_kernel(device):
    x, y = numbers(60), numbers(60, 1)
    buffers = [Buffer(240, "input"), Buffer(240, "input"), Buffer(400, "temp"), Buffer(400, "output")]
    a = Region(0, 0, (10, 6), (24, 4), 4, "float32")
    b = Region(1, 0, (6, 10), (4, 24), 4, "float32")  # transposed
    c = Region(2, 0, (10, 10), (40, 4), 4, "float32")
    plan = in_order(buffers, [library_task("matmul", (a, b), (c,)), kernel_task(DOUBLE, (2,), 3, 100)], (0, 1), (3,))
    (out,) = call(device, device.prepare(plan), (x, y))
    np.testing.assert_allclose(out.reshape(10, 10), 2 * (x.reshape(10, 6) @ y.reshape(10, 6).T), rtol=1e-5)
