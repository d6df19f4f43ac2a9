"""Every allocation, compilation, launch and copy of twenty programs fails once on a GPU; see tests/faults.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelgraph.runtime.settings import override
from tests.fault_programs import PROGRAMS
from tests.faults import check, faulty_cuda

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _model_alone() -> Iterator[None]:
    with override(tune=False):
        yield


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_every_request_fails_once(program: Any, device: Any, capsys: Any) -> None:
    outcomes = check("cuda", faulty_cuda(device.context), program, PROGRAMS[program])
    with capsys.disabled():
        print(f"{program.__name__}: {outcomes.total()} faults, {dict(outcomes)}")
    assert {o.partition(":")[0] for o in outcomes} >= {"allocate", "copy", "launch"}


LOST = """
import ctypes
import numpy as np
import kernelgraph as kg
from kernelgraph.dsl.devices import open_device

double = kg.kernel_graph(device="cuda")(lambda x: x * 2 + 1)
on_cpu = kg.kernel_graph(device="cpu")(lambda x: x * 2 + 1)
x = kg.asarray(np.ones(1 << 20, np.float32), device="cuda")
np.asarray(double(x))
address = x._memory.address
x._memory.address = 0x10  # an illegal address for the next kernel
poisoned = double(x)
x._memory.address = address
for attempt in range(2):
    try:
        poisoned.wait()
        raise SystemExit("nothing was raised")
    except kg.DeviceLost as error:
        print(error)
for what in (
    lambda: np.asarray(double(x)),
    lambda: kg.asarray(np.ones(5), device="cuda"),
    lambda: np.asarray(x),
    lambda: np.asarray(kg.kernel_graph(device="cuda")(lambda x: np.exp(x) - 5)(x)),
):
    try:
        what()
        raise SystemExit("nothing was raised")
    except kg.DeviceLost:
        pass
assert np.asarray(on_cpu(np.ones(5))).tolist() == [3.0] * 5
print("the CPU goes on")
"""


def test_an_illegal_address_loses_the_device_and_nothing_else(device: Any) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=120, cwd=ROOT,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert "the CPU goes on" in found.stdout
    assert "is lost to this process" in found.stdout and "KERNELGRAPH_ENGINE=sync" in found.stdout
    assert "It is one of" in found.stdout and "<lambda>" in found.stdout
