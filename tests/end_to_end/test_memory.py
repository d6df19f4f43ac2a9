"""What memory holds is counted, may be limited, and does not grow."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.codegen import llvm_jit
from kernelgraph.runtime.core.readable_text import byte_count_in_words as words
from kernelgraph.runtime.devices.cpu import device as cpu
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.devices.cuda.memory.pool import GpuMemoryPool
from kernelgraph.runtime.devices.fake import FakeDevice
from tests.faults import opened

MEGABYTE = 1 << 20


@pytest.fixture(params=["cpu", "fake"])
def name(request: pytest.FixtureRequest) -> Any:
    with opened(request.param, CPUDevice() if request.param == "cpu" else FakeDevice()):
        yield request.param


def stats(name: str) -> dict[str, int]:
    gc.collect()
    return kg.memory_stats(name)


def test_arrays_are_counted_while_they_live(name: str) -> None:
    f = kg.kernel_graph(device=name)(lambda x: x * 2 + 1)
    x = kg.asarray(np.ones(MEGABYTE // 4, np.float32), device=name)
    before = stats(name)
    results = [f(x) for _ in range(3)]
    kg.waitall()
    during = stats(name)
    assert during["arrays"] == before["arrays"] + 3
    assert during["in_use"] >= before["in_use"] + 3 * MEGABYTE
    assert during["reserved"] == during["in_use"] + during["cached"] <= during["peak"]
    assert (during["calls"], during["in_flight"]) == (0, 0)
    assert during["executables"] >= 1 and during["kernels"] >= 1
    del results
    after = stats(name)
    assert (after["arrays"], after["in_use"]) == (before["arrays"], before["in_use"])
    assert after["peak"] == during["peak"]


def test_the_cache_is_given_back() -> None:
    with opened("cpu", CPUDevice()):
        f = kg.kernel_graph(device="cpu")(lambda x: x * 2 + 1)
        x = np.ones(MEGABYTE)
        del f, x
        arrays = [kg.asarray(np.ones(MEGABYTE), device="cpu") for _ in range(3)]
        del arrays
        before = stats("cpu")
        assert before["cached"] >= 24 * MEGABYTE
        assert kg.empty_cache("cpu") >= 24 * MEGABYTE
        assert stats("cpu")["reserved"] <= before["reserved"] - 24 * MEGABYTE


def test_a_limit_holds_and_its_error_says_what_less_would_do(name: str) -> None:
    def wide(x: Any) -> Any:
        return [np.cumsum(np.sort(x * i), axis=0) for i in range(1, 4)]

    f = kg.kernel_graph(device=name, memory="concurrency", streams="max")(wide)
    x = kg.asarray(np.ones(MEGABYTE // 8), device=name)
    peak, small = f.plan(x).peak_bytes, kg.kernel_graph(device=name, memory="small")(wide).plan(x).peak_bytes
    assert small < peak
    assert kg.memory_limit(device=name) == 0
    assert kg.memory_limit(stats(name)["in_use"] + (small + peak) // 2, name) == kg.memory_stats(name)["limit"]
    with pytest.raises(
        kg.OutOfMemory,
        match=f"a call of wide needs {words(peak)} .*memory='concurrency'.*{words(small)}.* holds 1 MiB of results",
    ):
        f(x)
    for _ in range(3):  # calls that fit go on, and wait for each other's memory
        kg.kernel_graph(device=name, memory="small")(wide)(x)
    assert stats(name)["reserved"] <= kg.memory_limit(device=name)
    kg.memory_limit(0, name)
    assert [r.shape for r in f(x)] == [x.shape] * 3


def test_results_larger_than_the_machine_are_told_with_what_would_help() -> None:
    outer = kg.kernel_graph(device="cpu")(lambda x: np.outer(x, x))
    x = np.ones(2_000_000)
    with pytest.raises(
        kg.OutOfMemory, match=r"29\.1 TiB of outputs .* the outputs alone are more than the .*GiB that there"
    ):
        outer(x)


def test_the_setting_limits_devices_that_have_no_limit_of_their_own() -> None:
    with opened("cpu", CPUDevice()), kg.override(memory_limit=4 * MEGABYTE):
        assert kg.memory_limit(device="cpu") == 4 * MEGABYTE
        with pytest.raises(kg.OutOfMemory, match="pass the limit"):
            kg.asarray(np.ones(MEGABYTE), device="cpu")
        kg.memory_limit(16 * MEGABYTE, "cpu")
        kg.asarray(np.ones(MEGABYTE), device="cpu")
    for wrong in (-1, 1.5, "1", True):
        with pytest.raises(kg.OptionError, match="number of bytes"):
            kg.memory_limit(wrong, "cpu")  # type: ignore[arg-type]


def test_a_gpus_pool_is_limited() -> None:
    class Memory:
        handle = 1 << 20

    pool = GpuMemoryPool(lambda nbytes: Memory(), lambda memory: None, lambda: None)
    pool.limit.own = 8 * MEGABYTE
    one = pool.allocate(6 * MEGABYTE)
    with pytest.raises(kg.OutOfMemory, match="pass the limit"):
        pool.allocate(4 * MEGABYTE)
    del one  # cached: given back for another size
    pool.allocate(4 * MEGABYTE)


def repeated(count: int) -> Any:
    def f(x: Any) -> Any:
        for _ in range(count):
            x = np.abs(x - 0.25) * x
        return x

    return f


def test_kernels_are_let_go_of_once_no_plan_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without end, one after the other: what is loaded stays bounded, and what is in use stays right."""
    monkeypatch.setattr(cpu, "LOADED", 5)
    made: list[weakref.ref[Any]] = []
    load = llvm_jit._load_object_code

    def watched(*args: Any) -> Any:
        code = load(*args)
        made.append(weakref.ref(code.keep.memory))
        return code

    monkeypatch.setattr(llvm_jit, "_load_object_code", watched)
    with opened("cpu", CPUDevice()):
        kept = kg.kernel_graph(device="cpu")(lambda x: np.exp(x) + x**3)
        first = np.asarray(kept(np.ones(7)))
        for count in range(2, 20):
            once = kg.kernel_graph(device="cpu")(repeated(count))
            np.testing.assert_allclose(once(np.full(5, 0.5)), repeated(count)(np.full(5, 0.5)))
            del once
            np.testing.assert_array_equal(kept(np.ones(7)), first)
        gc.collect()
        assert len(made) >= 15
        assert sum(ref() is not None for ref in made) <= 8
        assert kg.memory_stats("cpu")["kernels"] <= 5
