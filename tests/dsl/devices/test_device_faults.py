"""Faults on one of several devices: an error comes out, nothing hangs, and no memory is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.devices import open_device
from kernelgraph.runtime.devices.fake import FakeDevice
from tests import two_devices

X = np.ones((8, 8), np.float32)


@pytest.fixture
def fakes() -> Iterator[list[FakeDevice]]:
    devices: list[Any] = [open_device(("fake", i)) for i in (5, 6)]
    yield devices
    kg.waitall()


def placed(x: Any, w: Any) -> Any:
    a = np.maximum(x @ w, 0)
    b = kg.place(a, "fake:6") * 2
    c = kg.place(w, "fake:6") @ w
    return a + 1, b + c, kg.place(b, "fake:5").sum()


def body(x: Any, w: Any) -> Any:
    return kg.all_reduce(np.tanh(x @ w)), (x * 2).sum(axis=1)


def failures_of(program: Any, args: Any) -> int:
    """How many of a call's arrays have failed."""
    failed = 0
    for result in program(*args):
        for array in getattr(result, "parts", [result]):
            try:
                array.wait()
            except Exception:
                failed += 1
    return failed


@pytest.mark.parametrize("eager", [True, False])
def test_a_fault_is_an_error_and_nothing_is_kept(fakes: list[FakeDevice], eager: bool) -> None:
    mesh = kg.Mesh(("fake:5", "fake:6"))
    programs = [
        (kg.kernel_graph(placed, device="fake:5"), (X, X)),
        (kg.kernel_graph(body, mesh=mesh, in_axes=(0, None)), (X, X)),
    ]
    for program, args in programs:
        program(*args)
    kg.waitall()
    gc.collect()
    before = [device.in_use for device in fakes]
    rng = Random(0)
    seen = 0
    for turn in range(60):
        program, args = programs[turn % 2]
        device = rng.choice(fakes)
        device.eager = eager
        what = rng.choice(["allocate", "upload", "copy", "launch", "work"])
        error = ValueError(f"fault {turn}") if what in ("launch", "work") else None
        device.fail(what, rng.randrange(4), error)
        try:
            seen += failures_of(program, args)
        except (kg.OutOfMemory, kg.LaunchError, ValueError):
            seen += 1
        finally:
            device.eager = True
            device._faults.clear()
            error = None  # whose traceback holds arrays
        kg.waitall()
        for device in fakes:
            device.synchronize()  # which forgets its events
    gc.collect()
    assert seen > 20
    assert [device.in_use for device in fakes] == before
    assert [failures_of(program, args) for program, args in programs] == [0, 0]  # as good as new


def test_what_runs_on_two_gpus_runs_on_two_cpu_devices() -> None:
    with kg.override(cpu_devices=2):
        mesh = kg.Mesh(("cpu:0", "cpu:1"))
        assert two_devices.count_wrong_collectives(mesh, 10) == 0
        assert two_devices.count_differences(mesh, 20) == 0
        errors, wrong, _ = two_devices.run_faults(mesh, 12)
    assert errors and not wrong
