"""GPU memory shared with other libraries, on a GPU in memory whose streams run in a random order, and late."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl import devices, dlpack, eager, lending, streams
from kernelgraph.runtime.devices import cuda
from kernelgraph.runtime.settings import override

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
from gpu_in_memory import ByDlpack, ByInterface, Lender, SharedContext, Theirs, device_on  # noqa: E402

PACES = ("they are slow", "they are quick", "any order")  # the others' streams, beside ours
X = np.arange(12, dtype=np.float32).reshape(3, 4)
WAYS = [ByDlpack, ByInterface]


class Known(ByDlpack):
    """Of a library whose current stream can be asked for."""

    handshakes = False


@pytest.fixture(params=PACES)
def gpu(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[cuda.CUDADevice]:
    """The device `cuda`, for a while."""
    monkeypatch.setattr(cuda, "cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(eager, "_COMPILED", {})
    made = device_on(SharedContext())
    made.context.driver.pace = request.param
    monkeypatch.setitem(devices._open, ("cuda", 0), made)
    yield made
    kg.waitall()


def function(device: str = "cuda") -> Any:
    return kg.kernel_graph(lambda x: x * 2 + 1, device=device)


def given(gpu: cuda.CUDADevice, kind: type[Theirs], values: Any = X, handle: int | None = None) -> Any:
    made = Lender(gpu.context, handle).array(values)
    return kind(made.lender, made.memory, made.view)


@pytest.fixture
def lender_is_known(gpu: cuda.CUDADevice, monkeypatch: pytest.MonkeyPatch) -> Lender:
    lender = Lender(gpu.context)
    monkeypatch.setitem(streams.CURRENT, Known.__module__.partition(".")[0], lambda module, index: lender)
    return lender


# in


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("handle", [None, 1])
def test_what_a_slow_producer_makes_is_waited_for_on_the_device(
    gpu: cuda.CUDADevice, kind: type[Theirs], handle: int | None
) -> None:
    x = given(gpu, kind, handle=handle)
    y = function()(x)
    assert not y.is_ready()  # nobody waited on the host
    np.testing.assert_array_equal(y, X * 2 + 1)


@pytest.mark.parametrize("kind", WAYS)
def test_without_the_handshake_the_result_would_be_wrong(
    gpu: cuda.CUDADevice, kind: type[Theirs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: with both ends of the handshake cut, poison is read."""
    gpu.context.driver.pace = "they are slow"
    monkeypatch.setattr(ByDlpack, "handshakes", False)
    monkeypatch.setattr(lending.Borrowed, "streams", lambda self: ())
    assert not np.array_equal(np.asarray(function()(given(gpu, kind))), X * 2 + 1)


@pytest.mark.parametrize("kind", WAYS)
def test_the_lender_waits_for_our_last_use(gpu: cuda.CUDADevice, kind: type[Theirs]) -> None:
    for _ in range(5):
        # DLPack does not tell the lender's stream: what is joined is the legacy one
        x = given(gpu, kind, handle=1 if kind is ByDlpack else None)
        y = function()(x)
        x.late(np.full_like(X, np.nan))  # right after the call
        np.testing.assert_array_equal(y, X * 2 + 1)


def test_a_known_library_is_followed_and_joined_on_its_current_stream(
    gpu: cuda.CUDADevice, lender_is_known: Lender
) -> None:
    f = function()
    for turn in range(5):
        made = lender_is_known.array(X + turn)
        x = Known(made.lender, made.memory, made.view)
        y = f(x)
        x.late(np.full_like(X, np.nan))
        np.testing.assert_array_equal(y, (X + turn) * 2 + 1)


def test_the_owner_is_held_for_as_long_as_needed(gpu: cuda.CUDADevice) -> None:
    x = given(gpu, ByDlpack)
    y = function()(x)
    assert x.alive == 1
    np.testing.assert_array_equal(y, X * 2 + 1)
    kg.waitall()
    gc.collect()
    assert x.alive == 0


KEYS = [np.s_[::2, 1:], np.s_[::-1], np.s_[1, :], np.s_[:, ::-2], np.s_[2:1], np.s_[None, :, 0], np.s_[1:, 1:]]


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("kind", WAYS)
def test_any_strides(gpu: cuda.CUDADevice, kind: type[Theirs], key: Any) -> None:
    x = given(gpu, kind)[key]
    np.testing.assert_array_equal(function()(x), X[key] * 2 + 1)
    borrowed = kg.from_dlpack(x) if kind is ByDlpack else kg.asarray(x, device="cuda")
    np.testing.assert_array_equal(borrowed, X[key])
    np.testing.assert_array_equal(function()(borrowed), X[key] * 2 + 1)
    np.testing.assert_array_equal(function("cpu")(x), X[key] * 2 + 1)


def test_fortran_order_and_dtypes(gpu: cuda.CUDADevice) -> None:
    for dtype in ("bool", "int8", "uint16", "int64", "float16", "float64", "complex64", "complex128"):
        values = np.asfortranarray((X % 5).astype(dtype))
        made = Lender(gpu.context).array(values, order="F")
        x = ByDlpack(made.lender, made.memory, made.view)
        same = kg.kernel_graph(lambda x: x.T, device="cuda")
        got = np.asarray(same(x))
        assert got.dtype == values.dtype
        np.testing.assert_array_equal(got, values.T)


def test_assignment_reaches_the_lender(gpu: cuda.CUDADevice) -> None:
    def change(u: Any) -> Any:
        u[1:] += u[:-1]
        return u

    expected = X.copy()
    change(expected)
    for kind in WAYS:
        x = given(gpu, kind)
        assert kg.kernel_graph(change, device="cuda")(x) is x
        seen: list[Any] = []
        stream = x.lender.handle if kind is ByInterface else 1
        gpu.context.driver._put(stream, "read", lambda x=x, seen=seen: seen.append(x.view.copy()))  # type: ignore[misc]
        gpu.context.synchronize()
        np.testing.assert_array_equal(seen[0], expected)


def test_what_may_not_be_assigned_to(gpu: cuda.CUDADevice) -> None:
    f = kg.kernel_graph(lambda u, v=1.0: u.__setitem__(..., v), device="cuda")
    x = given(gpu, ByInterface)
    with pytest.raises(kg.ReadOnlyError, match="not contiguous"):
        f(x[:, 1:])
    with pytest.raises(kg.ArgumentsError, match="shares"):
        f(x, x[1:2])
    x.readonly = True
    with pytest.raises(kg.ReadOnlyError, match="read-only"):
        f(x)


def test_what_cannot_be_borrowed_is_refused(gpu: cuda.CUDADevice) -> None:
    class Tracked(ByDlpack):
        requires_grad = True

        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it needs gradients.")

    made = given(gpu, Tracked)
    with pytest.raises(kg.ArgumentsError, match=r"needs gradients; write x\.detach"):
        function()(made)
    masked = SimpleNamespace(__cuda_array_interface__={"mask": 1, "shape": (), "typestr": "<f4", "data": (0, False)})
    with pytest.raises(kg.ArgumentsError, match="mask"):
        function()(masked)


# out


def taken(gpu: cuda.CUDADevice, a: Any, stream: Any, versioned: bool = True) -> tuple[Any, np.ndarray[Any, Any]]:
    """What a consumer gets: the capsule, and the memory as it sees it."""
    capsule = a.__dlpack__(stream=stream, **({"max_version": (1, 0)} if versioned else {}))
    t = dlpack.read(capsule)
    assert t.device == (2, 0) and not t.readonly
    memory = gpu.context.pointer(t.address)
    view = np.ndarray(t.shape, t.dtype, memory.data, t.address - memory.data.ctypes.data, t.strides)
    return capsule, view


@pytest.mark.parametrize("versioned", [True, False])
def test_a_consumer_waits_for_the_values_on_its_stream(gpu: cuda.CUDADevice, versioned: bool) -> None:
    for stream, handle in ((None, 1), (1, 1), (2, 2), (Lender(gpu.context).handle,) * 2):
        a = function()(kg.asarray(X, device="cuda"))
        _capsule, view = taken(gpu, a, stream, versioned)
        seen: list[Any] = []
        gpu.context.driver._put(handle, "read", lambda v=view, s=seen: s.append(v.copy()))  # type: ignore[misc]
        gpu.context.synchronize()
        np.testing.assert_array_equal(seen[0], X * 2 + 1)


def test_a_consumer_may_write_after_our_reads_and_we_read_after_its_writes(gpu: cuda.CUDADevice) -> None:
    f = function()
    for _ in range(5):
        consumer = Lender(gpu.context)
        a = f(kg.asarray(X, device="cuda"))
        b = f(a)  # may still be reading `a` when the consumer writes
        capsule, view = taken(gpu, a, consumer.handle)
        consumer.put(lambda v=view: v.__setitem__(..., 7))  # type: ignore[misc]
        c = f(a)
        consumer.put(lambda v=view: v.__setitem__(..., 9))  # type: ignore[misc]
        np.testing.assert_array_equal(b, (X * 2 + 1) * 2 + 1)
        np.testing.assert_array_equal(c, np.full_like(X, 15))
        np.testing.assert_array_equal(a, np.full_like(X, 9))
        del capsule


def test_the_memory_of_a_consumer_is_not_used_again_before_it_is_done(gpu: cuda.CUDADevice) -> None:
    f = function()
    for _ in range(5):
        consumer = Lender(gpu.context)
        a = f(kg.asarray(X, device="cuda"))
        capsule, view = taken(gpu, a, consumer.handle)
        seen: list[Any] = []
        a.wait()  # no call of ours holds the memory
        del a
        others = [f(kg.asarray(X * 0, device="cuda")) for _ in range(3)]
        consumer.put(lambda v=view, s=seen: s.append(v.copy()))  # type: ignore[misc]
        del capsule  # while the consumer's work is still to come
        others += [f(kg.asarray(X * 0, device="cuda")) for _ in range(5)]
        gpu.context.synchronize()
        np.testing.assert_array_equal(seen[0], X * 2 + 1)


def test_an_array_that_nobody_holds_any_more_is_an_ordinary_one(gpu: cuda.CUDADevice) -> None:
    f = function()
    a = f(kg.asarray(X, device="cuda"))
    capsule, _ = taken(gpu, a, 1)
    assert type(a) is not kg.Array and isinstance(a, kg.Array)
    del capsule
    gpu.context.synchronize()
    np.testing.assert_array_equal(f(a), (X * 2 + 1) * 2 + 1)
    assert type(a) is kg.Array
    np.testing.assert_array_equal(a, X * 2 + 1)


def test_assignment_to_an_array_that_others_hold_gives_it_new_memory(gpu: cuda.CUDADevice) -> None:
    a = function()(kg.asarray(X, device="cuda"))
    capsule, view = taken(gpu, a, 1)
    kg.kernel_graph(lambda u: u.__setitem__(..., 5), device="cuda")(a)
    np.testing.assert_array_equal(a, np.full_like(X, 5))
    b = function()(kg.asarray(X, device="cuda"))
    other, seen = taken(gpu, b, 1)
    b[0] = 3
    np.testing.assert_array_equal(np.asarray(b)[0], 3)
    gpu.context.synchronize()
    for old in (view, seen):
        np.testing.assert_array_equal(old, X * 2 + 1)
    del capsule, other


def test_the_cuda_array_interface(gpu: cuda.CUDADevice) -> None:
    f = function()
    for _ in range(5):
        a = f(kg.asarray(X, device="cuda"))
        found = a.__cuda_array_interface__
        assert (found["version"], found["shape"], found["typestr"], found["strides"]) == (3, (3, 4), "<f4", None)
        address, readonly = found["data"]
        memory = gpu.context.pointer(address)
        view = np.ndarray((3, 4), "f4", memory.data, address - memory.data.ctypes.data)
        assert not readonly
        consumer = Lender(gpu.context, 1)
        if found["stream"] is not None:
            event = gpu.context.event().handle
            gpu.context.driver.record(event, found["stream"])
            gpu.context.driver.wait(consumer.handle, event, 0)
        seen: list[Any] = []
        consumer.put(lambda v=view, s=seen: s.append(v.copy()))  # type: ignore[misc]
        consumer.put(lambda v=view: v.__setitem__(..., 1))  # type: ignore[misc]
        np.testing.assert_array_equal(f(a), np.full_like(X, 3))
        np.testing.assert_array_equal(seen[0], X * 2 + 1)


def test_what_is_not_lent(gpu: cuda.CUDADevice) -> None:
    a = function()(kg.asarray(X, device="cuda"))
    with pytest.raises(BufferError, match="stream=0"):
        a.__dlpack__(stream=0)
    borrowed = kg.from_dlpack(given(gpu, ByDlpack))
    with pytest.raises(BufferError, match="another library"):
        borrowed.__dlpack__()
    assert not hasattr(borrowed, "__cuda_array_interface__")
    cpu = kg.asarray(X, device="cpu")
    assert not hasattr(cpu, "__cuda_array_interface__")
    own = kg.array(borrowed)  # a copy
    np.testing.assert_array_equal(own, X)
    np.testing.assert_array_equal(np.from_dlpack(a, device="cpu"), X * 2 + 1)
    assert type(a) is kg.Array


# streams


def test_a_call_under_a_stream_lies_between_what_comes_before_and_after(gpu: cuda.CUDADevice) -> None:
    f = kg.kernel_graph(lambda x: (np.exp(x), x.sum(0), x.sum(1) * 2), device="cuda", streams="max")
    for handle in (None, 1, 2):
        lender = Lender(gpu.context, handle)
        x = kg.asarray(X, device="cuda")
        x.wait()
        address = x._memory.address
        memory = gpu.context.pointer(address)
        view = np.ndarray((3, 4), "f4", memory.data, address - memory.data.ctypes.data)
        lender.put(lambda v=view: v.__setitem__(..., 1))  # type: ignore[misc]  # before
        with kg.stream(lender.handle) as s:
            assert kg.current_stream() is s
            results = f(x)
        lender.put(lambda v=view: v.__setitem__(..., 2))  # type: ignore[misc]  # after
        ones = np.ones_like(X)
        for got, wanted in zip(results, (np.exp(ones), ones.sum(0), ones.sum(1) * 2), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        assert kg.current_stream() is None


def test_entry_and_exit_are_as_few_as_the_plan_says(gpu: cuda.CUDADevice) -> None:
    f = kg.kernel_graph(lambda x: (np.exp(x).sum(0), np.sin(x).sum(1)), device="cuda", streams="max")
    x = kg.asarray(X, device="cuda").wait()
    report = f.plan(x).report
    assert report is not None
    s = kg.Stream("cuda")
    log = gpu.context.driver.log
    with override(tune=False):
        f(x)[0].wait()
        log.clear()
        kept = f(x)
    plain = {name: sum(row[0] == name for row in log) for name in ("record", "wait")}
    log.clear()
    with kg.stream(s):
        kept += f(x)
    under = {name: sum(row[0] == name for row in log) for name in ("record", "wait")}
    assert under["record"] - plain["record"] == report.entry.records + report.exit.records
    assert under["wait"] - plain["wait"] == report.entry.waits + report.exit.waits
    assert len(kept) == 4


def test_streams_of_ours_wait_and_tell_the_time(gpu: cuda.CUDADevice) -> None:
    f = function()
    x = kg.asarray(X, device="cuda").wait()
    a, b = kg.Stream("cuda"), kg.Stream("cuda", priority=-1)
    start = a.record()
    with kg.stream(a):
        y = f(x)
    end = a.record()
    b.wait(end)
    b.wait_stream(a)
    assert not a.query() and not b.query() and not end.query()
    assert a.__cuda_stream__() == (0, a.handle) and b.priority == -1
    b.synchronize()
    assert a.query() and b.query() and end.query() and y.is_ready()
    assert start.elapsed_time(end) > 0
    handle = a.handle
    del a
    assert kg.Stream("cuda").handle == handle  # used again


def test_anything_that_is_a_stream_is_taken(gpu: cuda.CUDADevice) -> None:
    lender = Lender(gpu.context)
    ours = kg.Stream("cuda")
    forms: list[Any] = [
        lender.handle,
        SimpleNamespace(__cuda_stream__=lambda: (0, lender.handle)),
        SimpleNamespace(__cuda_stream__=(0, lender.handle)),
        SimpleNamespace(cuda_stream=lender.handle, device_index=0),
        SimpleNamespace(ptr=lender.handle),
        SimpleNamespace(handle=SimpleNamespace(value=lender.handle)),
    ]
    for form in forms:
        assert kg.Stream.external(form).handle == lender.handle
    assert kg.Stream.external(ours) is ours
    assert kg.Stream.external(0).handle == kg.default_stream("cuda").handle == 1
    assert kg.default_stream("cuda", per_thread=True).handle == 2
    with pytest.raises(kg.ArgumentsError, match="no stream"), kg.stream("s"):
        pass
    with pytest.raises(kg.OptionError, match="no foreign streams"):
        kg.Stream.external(1, device="cpu")


def test_calls_follow_their_arrays_and_not_each_other(gpu: cuda.CUDADevice) -> None:
    f, add = function(), kg.kernel_graph(lambda u: u.__iadd__(1), device="cuda")
    u, v = (kg.asarray(X, device="cuda").wait() for _ in range(2))
    log = gpu.context.driver.log
    f(u).wait()
    add(v)
    v.wait()

    def waits() -> int:
        found = sum(row[0] == "wait" for row in log)
        log.clear()
        return found

    waits()
    first = f(u)
    second = f(v)
    add(u)  # new memory: the reader is not waited for
    assert waits() == 0
    streams = {event.stream for event in (first._event, second._event, u._event)}
    assert len(streams) == 3  # they overlap
    third = f(u)
    assert waits() == 0 and third._event.stream == u._event.stream  # after the assignment, by its stream
    both = kg.kernel_graph(lambda x, y: x + y, device="cuda")(first, second)
    assert waits() == 1
    np.testing.assert_array_equal(both, (X * 2 + 1) + (X + 1) * 2 + 1)
    np.testing.assert_array_equal(third, (X + 1) * 2 + 1)


# captured by others


def test_calls_become_part_of_somebody_elses_graph(gpu: cuda.CUDADevice) -> None:
    f = kg.kernel_graph(lambda x: (np.exp(x).sum(0), np.sin(x).sum(1)), device="cuda", streams="max")
    lender = Lender(gpu.context)
    driver = gpu.context.driver
    made = lender.array(X)
    x = ByInterface(made.lender, made.memory, made.view)
    gpu.context.synchronize()
    driver.begin_capture(lender.handle, 0)
    with kg.stream(lender.handle):
        first = f(x)
        second = function()(first[0])
    code, graph = driver.end_capture(lender.handle)
    assert code == 0 and driver.mode == 0 and len(gpu.captures) == 1
    _, executable = driver.instantiate(graph)
    others = []
    for turn in range(3):
        x.late(X + turn)
        driver.launch_graph(executable, lender.handle)
        others += [f(kg.asarray(X * 0, device="cuda"))]  # do not take the graph's memory
        gpu.context.synchronize()
        values = X + turn
        np.testing.assert_allclose(first[0]._read(), np.exp(values).sum(0), rtol=1e-5)
        np.testing.assert_allclose(first[1]._read(), np.sin(values).sum(1), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(second._read(), np.exp(values).sum(0) * 2 + 1, rtol=1e-5)
    del first  # its memory stays the graph's
    gc.collect()
    others = [f(kg.asarray(X * 0, device="cuda"))[0].wait() for _ in range(8)]
    driver.launch_graph(executable, lender.handle)
    gpu.context.synchronize()
    for other in others:
        np.testing.assert_array_equal(other._read(), np.full(4, 3, "f4"))
    driver.destroy_all()
    assert len(gpu.captures) == 0


def test_a_split_function_is_not_captured(gpu: cuda.CUDADevice) -> None:
    f = kg.kernel_graph(lambda x: x * 2 if x.sum() > 0 else x, device="cuda", untraceable="split")
    x = kg.asarray(X, device="cuda").wait()
    lender = Lender(gpu.context)
    gpu.context.driver.begin_capture(lender.handle, 0)
    with pytest.raises(kg.ArgumentsError, match="reads values"), kg.stream(lender.handle):
        f(x)
    gpu.context.driver.end_capture(lender.handle)
