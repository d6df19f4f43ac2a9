"""Every allocation, compilation, launch and copy of twenty programs fails once: what then must hold, holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.fault_programs import PROGRAMS, assigned, chosen
from tests.faults import FaultyCPU, check, faulty_cuda, faulty_fake
from tests.runtime.cuda_fake import FakeBlas, FakeContext

pytestmark = pytest.mark.filterwarnings("ignore:.*no replay as a graph")


@pytest.fixture(autouse=True)
def _model_alone() -> Iterator[None]:
    """The number of requests is the same in every run. Python looks for garbage among a test's own objects alone: what
    has no memory looks for it, a thousand times."""
    gc.collect()
    gc.freeze()
    with override(tune=False):
        yield
    gc.unfreeze()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_on_the_fake_device(program: Any) -> None:
    outcomes = check("fake", faulty_fake, program, PROGRAMS[program])
    assert {o.partition(":")[0] for o in outcomes} == {"allocate", "compile", "copy", "launch"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_on_the_cpu(program: Any) -> None:
    """Kernels cannot fail; the engine `sync` starts them one by one, so that a test can say that one has."""
    outcomes = check("cpu", FaultyCPU, program, PROGRAMS[program])
    with override(engine="sync"):
        one_by_one = check("cpu", FaultyCPU, program, PROGRAMS[program], ["launch"])
    assert {o.partition(":")[0] for o in outcomes + one_by_one} == {"allocate", "compile", "copy", "launch"}


SMALL = [(assigned, False), (assigned, True), (chosen, False)]  # the emulator is slow


@pytest.mark.parametrize(("program", "replay"), SMALL)
def test_on_a_gpu_in_memory(program: Any, replay: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """All twenty run on a GPU: see tests/gpu/test_faults.py."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(cuda, "is_graph_replay_worthwhile", lambda plan, runners: replay)

    def make(faults: Any) -> Any:
        context = FakeContext()
        device = faulty_cuda(context)(faults)
        device.blas = FakeBlas(context, device.pool.allocate)
        return device

    outcomes = check("cuda", make, program, PROGRAMS[program])
    assert {o.partition(":")[0] for o in outcomes} == {"allocate", "compile", "copy", "launch"}
