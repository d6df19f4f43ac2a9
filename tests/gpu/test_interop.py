"""Arrays and streams exchanged with PyTorch, CuPy, JAX and numba on a GPU, with producers that are slow on purpose."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import kernelgraph as kg
from kernelgraph.dsl.interop import device_sharing
from kernelgraph.dsl.interop.device_sharing import SharedArray
from kernelgraph.dsl.interop.fast_import import import_arguments
from kernelgraph.dsl.jit.launcher import NOT_TAKEN
from kernelgraph.runtime.devices.cuda.graphs import one_launch

N = 1 << 16
CYCLES = 1_000_000_000  # some 0.5 s of a GPU
torch: Any = None


@pytest.fixture(autouse=True)
def _gpu(device: Any) -> None:
    """The first GPU, opened as the library opens it; PyTorch, which delays streams."""
    global torch
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    torch.zeros(1, device="cuda")


f = kg.kernel_graph(lambda x: x * 2 + 1, device="cuda")
pair = kg.kernel_graph(lambda x: (np.exp(x).sum(), (x * 3).sum(0)), device="cuda", streams="max")


def delay(handle: int) -> None:
    """The stream does nothing for a while. PyTorch makes a new stream of its own of the handle 0."""
    with torch.cuda.stream(torch.cuda.ExternalStream(handle) if handle else torch.cuda.default_stream()):
        torch.cuda._sleep(CYCLES)


def same(got: Any, value: float) -> None:
    np.testing.assert_array_equal(np.asarray(got), np.full(N, value, np.float32))


# PyTorch


@pytest.mark.parametrize("side", [False, True], ids=["default stream", "side stream"])
def test_torch_in_and_out_behind_a_slow_producer(side: bool) -> None:
    s = torch.cuda.Stream() if side else torch.cuda.current_stream()
    with torch.cuda.stream(s):
        x = torch.zeros(N, device="cuda")
        f(x).wait()
        for turn in range(-1, 3):  # the first loads PyTorch's kernels, for which CUDA may wait for everything
            delay(s.cuda_stream)
            x.fill_(turn)
            y = f(x)
            x.fill_(-1)  # after our last use
            assert turn < 0 or not y.is_ready()
            t = torch.from_dlpack(y)
            assert t.data_ptr() == y._memory.address
            z = t + 1
            delay(s.cuda_stream)
            t.fill_(9)  # a writable export: seen by the next use
            w = f(y)
            same(w, 19)
            same(z.cpu(), 2 * turn + 2)


def test_without_the_handshake_the_slow_producer_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: without the handshake, the old values are read."""
    x = torch.zeros(N, device="cuda")
    for _ in range(2):  # the second call knows PyTorch's streams
        f(x).wait()
    torch.cuda.synchronize()
    other = kg.Stream("cuda")
    monkeypatch.setattr(device_sharing.MemoryProducer, "streams", lambda self: ())
    monkeypatch.setattr(device_sharing.MemoryProducer, "handle", lambda self: other.handle)
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        delay(s.cuda_stream)
        x.fill_(5)
        y = f(x)
    same(y, 1)
    torch.cuda.synchronize()


two = kg.kernel_graph(lambda x, y: x * 2 + y, device="cuda")


def settled(x: Any, y: Any) -> None:
    """`two` launches graphs on PyTorch's current stream from now on."""
    for _ in range(one_launch.PLAIN + 8):
        two(x, y).wait()
    leaves, lender = import_arguments((x, y)) or ((), None)
    stream = 0 if lender is None or lender.handle is None else lender.handle() or device_sharing.LEGACY
    assert leaves and two._fast(leaves, stream) is not NOT_TAKEN


@pytest.mark.parametrize("side", [False, True], ids=["default stream", "side stream"])
def test_the_short_way_lies_on_torchs_stream(side: bool) -> None:
    """Behind slow producers, before what comes later; results go on to our streams and back, and to PyTorch."""
    s = torch.cuda.Stream() if side else torch.cuda.default_stream()
    own = kg.asarray(np.full(N, 100, np.float32), device="cuda").wait()
    with torch.cuda.stream(s):
        x, y = torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
        settled(x, y)
        settled(own, own)
        for turn in range(-1, 4):  # the first loads PyTorch's kernels, for which CUDA may wait for everything
            delay(s.cuda_stream)
            x.fill_(turn)
            first = two(x, y)
            x.fill_(-1)  # after our last use
            second = two(first, own)  # on a stream of ours
            third = two(second, y)
            z = torch.from_dlpack(third) + 1
            y.fill_(-1)
            y.fill_(1)
            assert turn < 0 or not any(each.is_ready() for each in (first, second, third))
            same(second, 4 * turn + 102)
            same(first, 2 * turn + 1)
            same(third, 8 * turn + 205)
            same(z.cpu(), 8 * turn + 206)


def test_tensors_that_are_let_go_at_once_are_read_as_they_were() -> None:
    """Their memory is PyTorch's again only when the call is over, whatever stream it is used on next."""
    s = torch.cuda.Stream()
    y = torch.ones(N, device="cuda")
    with torch.cuda.stream(s):
        settled(y, y)
    found = []
    for turn in range(20):
        x = torch.full((N,), float(turn), device="cuda")
        s.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(s):
            if turn % 5 == 0:
                delay(s.cuda_stream)
            found.append((two(x, y), 2 * turn + 1))
        del x
        torch.full((N,), -1.0, device="cuda")  # would take the memory, on the other stream
    for got, wanted in found:
        same(got, wanted)


def test_threads_with_torch_streams_of_their_own() -> None:
    def work(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for turn in range(60):
                x = torch.full((N,), float(number + turn), device="cuda")
                z = two(x, x)
                x.fill_(-1)
                if turn % 7 == 0:
                    same(z, 3.0 * (number + turn))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(0, 4000, 1000)))


def test_tensors_that_cannot_be_read_are_refused_on_the_short_way_too() -> None:
    x = torch.ones(N, device="cuda")
    settled(x, x)
    freed = torch.ones(N, device="cuda")
    part = freed[4:]
    c = torch.ones(N, device="cuda", dtype=torch.complex64)
    freed.untyped_storage().resize_(0)
    cases = [(x.clone().requires_grad_(), "detach"), (c.conj(), "resolve_conj"), (c.conj().imag, "resolve_neg")]
    cases += [(freed, "resized to nothing"), (part, "resized to nothing"), (x.to_sparse(), "cannot be read")]
    for _ in range(2):
        for bad, words in cases:
            with pytest.raises(kg.ArgumentsError, match=words):
                two(bad, x)
        with pytest.raises(kg.ArgumentsError):
            torch.func.vmap(lambda row: two(row, row))(x.reshape(4, -1))
    same(two(x, x), 3)


def test_calls_in_a_graph_of_torchs_without_being_told_the_stream() -> None:
    x, y = torch.ones(N, device="cuda"), torch.ones(N, device="cuda")
    settled(x, y)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.mul_(1.0)
        z = two(x, y)
        out = torch.from_dlpack(z) + 0
    for turn in range(1, 4):
        x.fill_(turn)
        g.replay()
        torch.cuda.synchronize()
        same(out.cpu(), 2 * turn + 1)
    same(two(x, y), 7)
    del g, out, z
    gc.collect()
    torch.cuda.synchronize()
    assert len(kg.dsl.array.devices.open_device(("cuda", 0)).captures) == 0


def test_torch_strides_dtypes_and_assignment() -> None:
    x = torch.arange(48, device="cuda", dtype=torch.float32).reshape(6, 8)
    for view in (x.T, x[::2, 1:], x[1], x[:, 3], x.expand(2, 6, 8)):
        np.testing.assert_array_equal(f(view), view.cpu().numpy() * 2 + 1)
    for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.bool, torch.complex64):
        got = kg.kernel_graph(lambda x: x.T, device="cuda")(x.to(dtype))
        np.testing.assert_array_equal(np.asarray(got, "c8"), x.T.cpu().numpy().astype(np.asarray(got).dtype))

    def change(u: Any) -> Any:
        u[1:] += u[:-1]
        return u

    expected = x.cpu().numpy()
    change(expected)
    assert kg.kernel_graph(change, device="cuda")(x) is x
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    with pytest.raises(kg.ReadOnlyError, match="contiguous"):
        kg.kernel_graph(change, device="cuda")(x.T)
    with pytest.raises(kg.ArgumentsError, match="detach"):
        f(x.requires_grad_())


def test_memory_in_use_by_torch_is_not_used_again() -> None:
    s = torch.cuda.Stream()
    for turn in range(5):
        y = f(kg.asarray(np.full(N, turn, np.float32), device="cuda")).wait()
        with torch.cuda.stream(s):
            t = torch.from_dlpack(y)
            del y
            delay(s.cuda_stream)
            z = t.clone()
            del t
        gc.collect()
        others = [f(kg.asarray(np.zeros(N, np.float32), device="cuda")) for _ in range(8)]
        s.synchronize()
        same(z.cpu(), 2 * turn + 1)
        same(others[-1], 1)


def test_a_call_under_a_torch_stream_and_in_its_graph() -> None:
    x = torch.ones(64, 32, device="cuda")
    total, sums = pair(x)
    np.testing.assert_allclose(sums, np.full(32, 192.0))
    s = torch.cuda.Stream()
    with kg.stream(s), torch.cuda.stream(s):
        delay(s.cuda_stream)
        x.fill_(2)
        total, sums = pair(kg.from_dlpack(x))
        x.fill_(0)
    np.testing.assert_allclose(sums, np.full(32, 384.0))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        x.mul_(1.0)
        with kg.stream(torch.cuda.current_stream()):
            total, sums = pair(x)
            twice = f(sums)
        out = torch.from_dlpack(twice) + 0
    del total, sums
    gc.collect()
    kept = [pair(kg.asarray(np.zeros((64, 32), np.float32), device="cuda")) for _ in range(8)]
    for turn in range(1, 4):
        x.fill_(turn)
        g.replay()
        torch.cuda.synchronize()
        np.testing.assert_allclose(out.cpu(), np.full(32, 64 * 3 * turn * 2 + 1))
    for total, _ in kept:
        np.testing.assert_allclose(total, 2048)
    captures = kg.dsl.array.devices.open_device(("cuda", 0)).captures
    assert len(captures) == 1
    del g, out, twice
    gc.collect()
    torch.cuda.synchronize()
    assert len(captures) == 0


# the others


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    s = cupy.cuda.Stream(non_blocking=True)
    with s:
        x = cupy.zeros(N, cupy.float32)
        x.fill(1)  # compiles
        f(x).wait()
        delay(s.ptr)
        x.fill(4)
        y = f(x)
        x.fill(-1)
        assert not y.is_ready()
        t = cupy.from_dlpack(y)
        u = cupy.asarray(f(x))  # by the array interface
        assert t.data.ptr == y._memory.address
        t += 1
        delay(s.ptr)
        t += 1
        z = f(y)
        same(z, 23)
        same(cupy.asnumpy(t), 11)
        same(cupy.asnumpy(u), -1)
    np.testing.assert_array_equal(f(cupy.arange(12, dtype="f4").reshape(3, 4)[::-1, ::2]),
                                  np.arange(12, dtype="f4").reshape(3, 4)[::-1, ::2] * 2 + 1)  # fmt: skip
    with kg.stream(s):
        y = f(x)
    s.synchronize()
    assert y.is_ready()


def test_numba() -> None:
    numba_cuda = pytest.importorskip("numba.cuda")

    @numba_cuda.jit
    def add(x: Any, value: float) -> None:
        i = numba_cuda.grid(1)
        if i < x.size:
            x[i] += value

    s = numba_cuda.stream()
    handle = s.handle.value if hasattr(s.handle, "value") else int(s.handle)
    x = numba_cuda.to_device(np.zeros(N, np.float32), stream=s)
    s.synchronize()
    delay(handle)
    add[N // 256, 256, s](x, 3)
    y = f(x)  # tells its stream
    add[N // 256, 256, s](x, 100)
    same(y, 7)
    t = numba_cuda.as_cuda_array(y)  # by the array interface; by itself, numba lets go of `y` before it launches
    add[N // 256, 256](t, 1)
    same(f(y), 17)
    same(y, 8)
    kg.kernel_graph(lambda u: u.__imul__(2), device="cuda")(x)
    same(x.copy_to_host(), 206)


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 2000, lambda i, v: v * 1.0 + 1, x))
    x = slow(jax.numpy.zeros(N, np.float32))
    y = f(x)
    same(y, 4001)
    t = jax.dlpack.from_dlpack(y)
    assert isinstance(y, SharedArray)
    same(t + 1, 4002)
    del x
    same(f(kg.from_dlpack(slow(t))), (4001 + 2000) * 2 + 1)


# streams


def test_both_meanings_of_the_default_stream() -> None:
    """The legacy stream waits for ordinary streams of others; the per-thread one does not."""
    numba_cuda = pytest.importorskip("numba.cuda")
    ordinary = numba_cuda.stream()  # PyTorch's and ours do not wait for the legacy stream
    handle = ordinary.handle.value if hasattr(ordinary.handle, "value") else int(ordinary.handle)
    x = kg.asarray(np.zeros(N, np.float32), device="cuda")
    f(x).wait()
    torch.cuda.synchronize()
    delay(handle)
    with kg.stream(kg.default_stream("cuda", per_thread=True)):
        own = f(x)
    own.wait()
    assert not kg.Stream.external(ordinary).query()
    with kg.stream(kg.default_stream("cuda")):
        legacy = f(x)
    assert not legacy.is_ready()
    legacy.wait()
    assert kg.Stream.external(ordinary).query()


def test_every_wait_waits_for_its_own_scope() -> None:
    x = kg.asarray(np.zeros(N, np.float32), device="cuda").wait()
    f(x).wait()
    slow, quick = kg.Stream("cuda"), kg.Stream("cuda", priority=-1)
    for s in (slow, quick):  # all that is made at first use is made
        with kg.stream(s):
            f(x).wait()
        s.record().elapsed_time(s.record())
    delay(slow.handle)
    start = quick.record()
    with kg.stream(slow):
        late = f(x)
    with kg.stream(quick):
        soon = f(x)
    end = quick.record()
    other = f(x)
    soon.wait()
    other.wait()
    end.synchronize()
    quick.synchronize()
    assert end.query() and quick.query() and start.elapsed_time(end) < 250
    assert not late.is_ready() and not slow.query()
    quick.wait_stream(slow)
    assert not quick.query()
    quick.synchronize()
    assert slow.query() and late.is_ready()
    for wait in (kg.waitall, lambda: kg.synchronize("cuda"), slow.synchronize, lambda: slow.record().synchronize()):
        delay(slow.handle)
        with kg.stream(slow):
            late = f(x)
        assert not late.is_ready()
        wait()
        assert late.is_ready()
