"""Batches read ahead, page-locked arrays, and copies that nobody waits for, on the CPU and on a GPU in memory."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import devices
from kernelgraph.dsl.jit import eager
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.memory import transfer
from tests.dsl.gpu_in_memory import SharedContext, device_on

BIG = np.arange(1 << 20, dtype=np.float32)  # 4 MiB


@pytest.fixture(params=["cpu", "cuda"])
def device(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU, and a GPU in memory that copies as late as it may."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(eager, "_COMPILED", {})
    made = device_on(SharedContext())
    monkeypatch.setitem(devices._open, ("cuda", 0), made)
    yield request.param
    kg.waitall()


def test_batches_arrive_in_order_and_whole_though_the_source_uses_its_memory_again(device: str) -> None:
    def source() -> Iterator[Any]:
        buffer = kg.pinned_empty(1000, np.float32, device=device)
        for i in range(8):
            buffer[...] = i
            yield {"x": buffer, "n": i, "pair": (np.full(2, i), "text")}

    seen = []
    for batch in kg.prefetch(source(), depth=3, device=device):
        assert isinstance(batch["x"], kg.Array) and batch["x"].device.startswith(device)
        np.testing.assert_array_equal(batch["x"], np.full(1000, batch["n"], np.float32))
        np.testing.assert_array_equal(batch["pair"][0], np.full(2, batch["n"]))
        assert batch["pair"][1] == "text"
        seen.append(batch["n"])
    assert seen == list(range(8))


def test_the_source_is_ahead_by_depth_and_no_more() -> None:
    taken: list[int] = []
    enough = threading.Event()

    def source() -> Iterator[int]:
        for i in range(50):
            taken.append(i)
            if len(taken) == 4:
                enough.set()
            yield i

    items = kg.prefetch(source(), depth=2, device="cpu")
    assert next(items) == 0
    assert enough.wait(60)  # the one in hand, two ready, and one that waits for room
    assert len(taken) == 4
    items.close()  # type: ignore[attr-defined]


def test_errors_of_the_source_come_in_their_turn() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("gone")

    items = kg.prefetch(source(), device="cpu")
    assert next(items) == 1
    with pytest.raises(KeyError, match="gone"):
        next(items)
    for depth in (0, 1.5, "2"):
        with pytest.raises(kg.OptionError, match="depth"):
            kg.prefetch([], depth=depth)  # type: ignore[arg-type]


def test_a_reader_that_leaves_lets_the_thread_go() -> None:
    before = threading.active_count()
    for _ in kg.prefetch(iter(range(1000)), device="cpu"):
        break
    for thread in threading.enumerate():
        if thread.name == "kernelgraph prefetch":
            thread.join(60)
    assert threading.active_count() <= before


def test_pinned_arrays_are_arrays(device: str) -> None:
    a = kg.pinned_empty((3, 4), "f4", device=device)
    assert a.shape == (3, 4) and a.dtype == np.float32 and a.flags.c_contiguous and a.flags.writeable
    a[...] = 2
    b = a[1:]
    del a
    others = [kg.pinned_empty((3, 4), "f4", device=device) for _ in range(4)]
    for other in others:
        other[...] = 0
    np.testing.assert_array_equal(b, np.full((2, 4), 2, "f4"))
    assert kg.pinned_empty((), device=device).shape == () and kg.pinned_empty(0, device=device).size == 0
    with pytest.raises(kg.DTypeError):
        kg.pinned_empty(3, object, device=device)


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("n", [10, 1 << 20])
def test_there_and_back(device: str, non_blocking: bool, pinned: bool, n: int) -> None:
    host = kg.pinned_empty(n, "f4", device=device) if pinned else np.empty(n, "f4")
    host[...] = BIG[:n]
    there = kg.to_device(host, device, non_blocking=non_blocking)
    if not (pinned and non_blocking):
        host[...] = -1  # it has been read
    double = kg.kernel_graph(lambda x: x * 2, device=device) if n < 100 else lambda x: x
    result = double(there)
    back = kg.to_device(result, "cpu", non_blocking=non_blocking)
    assert back.device == "cpu" and kg.to_device(back, "cpu", non_blocking=True) is back
    if non_blocking and device == "cuda":
        assert not back.is_ready()
    del there, result
    again = kg.kernel_graph(lambda x: x + 1, device="cpu")(back)
    np.testing.assert_array_equal(again, BIG[:n] * (2 if n < 100 else 1) + 1)


def test_large_copies_by_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU lets one thread in at a time: only who is first differs."""
    monkeypatch.setattr(transfer, "CHUNK", 1 << 12)
    monkeypatch.setattr(transfer, "CHUNKS", 3)
    monkeypatch.setattr(SharedContext, "copy_thread_count", 4, raising=False)
    context = SharedContext()
    made = device_on(context)
    host = np.random.default_rng(0).integers(0, 255, 300_001).astype(np.uint8)
    memory = made.allocate(host.nbytes)
    wanted = host.copy()
    event = made.upload(host, memory)
    host[...] = 0
    event.wait()
    got = np.empty_like(wanted)
    made.download(memory, got)
    np.testing.assert_array_equal(got, wanted)
    context.driver.refuse["to_device"] = 2
    with pytest.raises(kg.KernelGraphError):
        made.upload(wanted, memory)
    made.upload(wanted, memory).wait()  # all chunks are back


def test_a_result_of_any_shape_is_waited_for() -> None:
    """`kg.wait` gives back what it is given, once every array in it is ready."""

    @dataclasses.dataclass
    class Result:
        mean: Any
        parts: list[Any]

    def result(x: Any) -> Any:
        return {"a": x + 1, "b": (x.sum(), [x * 2])}, x.mean(), 3

    given = kg.kernel_graph(result, device="cpu")(np.arange(4.0))
    assert kg.wait(given) is given
    assert given[0]["a"].is_ready() and given[0]["b"][0].is_ready() and given[1].is_ready()
    inside = Result(given[1], [given[0]["a"], "text", None])
    assert kg.wait(inside) is inside
    assert kg.wait(5) == 5 and kg.wait(None) is None
    numpy_array = np.ones(2)
    assert kg.wait(numpy_array) is numpy_array
    assert kg.kernel_graph(lambda x: kg.wait(x + 1), device="cpu")(np.zeros(1)).tolist() == [1.0]  # traced: no effect


def test_waiting_raises_what_the_work_raised() -> None:
    singular = kg.kernel_graph(lambda x: np.linalg.inv(x), device="cpu")
    with pytest.raises(np.linalg.LinAlgError):
        kg.wait([singular(np.zeros((2, 2)))])
