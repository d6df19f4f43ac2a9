"""GPU memory shared with other libraries, on a GPU in memory whose streams run in a random order, and late."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import streams
from kernelgraph.dsl.interop import device_sharing, dlpack
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.dsl.gpu_in_memory import ByDlpack, ByInterface, Lender, Theirs, X, function, given

WAYS = [ByDlpack, ByInterface]


class Known(ByDlpack):
    """Of a library whose current stream can be asked for."""

    handshakes = False


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
    monkeypatch.setattr(device_sharing.ImportedMemory, "streams", lambda self: ())
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
    t = dlpack.read_capsule(capsule)
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
