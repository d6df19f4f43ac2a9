"""The short way of tensors of PyTorch and arrays of CuPy: stand-ins, on a GPU in memory whose streams run late."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array import in_flight
from kernelgraph.dsl.interop import fast_import as module
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.graphs import one_launch
from tests.dsl.gpu_in_memory import Lender, X
from tests.dsl.torch_in_memory import Tensor, cupy_with, tensor_of, torch_with
from tests.interop import library

ORDINARY = 3  # calls of a function before it launches graphs


@pytest.fixture
def torch(gpu: cuda.CUDADevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """PyTorch, all of whose tensors are on the GPU in memory."""
    monkeypatch.setattr(one_launch, "PLAIN", 1)
    kind = type("Tensor", (Tensor,), {"__module__": "torch"})
    made = kind.library = torch_with(Lender(gpu.context), kind)
    monkeypatch.setitem(sys.modules, "torch", made)
    yield made
    module.VIEWS.pop(kind, None)


@pytest.fixture
def cupy(gpu: cuda.CUDADevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(one_launch, "PLAIN", 1)
    made = cupy_with(Lender(gpu.context))
    monkeypatch.setitem(sys.modules, "cupy", made)
    yield made
    module.VIEWS.pop(made.ndarray, None)


def function(body: Any = lambda x, y: x * 2 + y) -> Any:
    return kg.kernel_graph(body, device="cuda")


def direct(body: Any, torch: Any, *values: Any, calls: int = ORDINARY) -> Any:
    """A function that launches graphs of such tensors by now."""
    f = function(body)
    for _ in range(calls):
        f(*(tensor_of(torch, v) for v in values))
    kg.waitall()
    return f


def names(gpu: cuda.CUDADevice) -> list[str]:
    return [entry[0] for entry in gpu.context.driver.log]


def test_a_call_lies_on_the_lenders_stream_and_waits_for_nothing(gpu: cuda.CUDADevice, torch: Any) -> None:
    f = direct(lambda x, y: x * 2 + y, torch, X, X)
    for turn in range(5):
        x, y = tensor_of(torch, X + turn), tensor_of(torch, X)
        gpu.context.driver.log.clear()
        asked = torch.asked
        z = f(x, y)
        assert set(names(gpu)) <= {"launch_graph", "update_kernel", "record"} and names(gpu).count("record") == 1
        assert {e[1] for e in gpu.context.driver.log if e[0] == "launch_graph"} == {torch.lender.handle}
        assert torch.asked == asked and type(z) is kg.Array
        assert not z.is_ready()  # the lender has not written yet
        for tensor in (x, y):
            tensor.late(np.full_like(X, np.nan))  # right after the call
        np.testing.assert_array_equal(z, (X + turn) * 2 + X)


def test_on_another_stream_the_result_would_be_wrong(
    gpu: cuda.CUDADevice, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail."""
    f = direct(lambda x: x * 2 + 1, torch, X)
    gpu.context.driver.pace = "they are slow"
    other = gpu.context.stream(False).handle
    monkeypatch.setattr(module.MemoryProducer, "handle", lambda self: other)
    seen = [f(tensor_of(torch, X)) for _ in range(4)]
    assert not all(np.array_equal(np.asarray(z), X * 2 + 1) for z in seen)


def plans() -> list[Any]:
    """Of one launch, of several, on several streams, with a number, with a call of a library."""
    return [
        lambda x, y: x * 2 + y,
        lambda x, y: (x.sum(0), np.exp(y) * x),
        lambda x, y: (np.exp(x).sum(0), np.sin(y).sum(1), (x - y).max()),
        lambda x, y: x @ y.T + x[0, 0],
    ]


@pytest.mark.parametrize("which", range(4))
def test_any_plan_between_what_comes_before_and_after(gpu: cuda.CUDADevice, torch: Any, which: int) -> None:
    body = plans()[which]
    f = kg.kernel_graph(body, device="cuda", streams="max")
    for turn in range(8):
        x, y = tensor_of(torch, X * 0.1), tensor_of(torch, X * 0.2 + turn)
        found = f(x, y)
        x.late(np.full_like(X, np.nan))
        y.late(np.full_like(X, np.nan))
        wanted = body(np.float32(0.1) * X, (X * 0.2 + turn).astype("f4"))
        for one, other in zip(*([v] if not isinstance(v, tuple) else v for v in (found, wanted)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


def test_results_go_into_the_next_calls(gpu: cuda.CUDADevice, torch: Any) -> None:
    """On the lender's stream, on ours, and back."""
    f = direct(lambda x, y: x * 2 + y, torch, X, X)
    own = kg.asarray(X, device="cuda").wait()
    for turn in range(10):
        x = tensor_of(torch, X + turn)
        first = f(x, own)
        x.late(np.full_like(X, np.nan))
        second, third = f(first, own), f(first, first)
        y = tensor_of(torch, X)
        fourth = f(second, y)
        y.late(np.full_like(X, np.nan))
        a = (X + turn) * 2 + X
        b = a * 2 + X
        for got, wanted in ((fourth, b * 2 + X), (third, a * 3), (second, b), (first, a)):
            np.testing.assert_array_equal(got, wanted)
    gpu.context.driver.log.clear()
    assert f(f(tensor_of(torch, X), own), own).shape == X.shape
    assert set(names(gpu)) <= {"launch_graph", "update_kernel", "record", "wait"}  # the second is direct too


def test_the_current_stream_may_change(gpu: cuda.CUDADevice, torch: Any) -> None:
    f = direct(lambda x: x * 2 + 1, torch, X)
    lenders = [Lender(gpu.context) for _ in range(one_launch.CALLERS + 2)] + [Lender(gpu.context, 1)]
    for turn in range(3 * len(lenders)):
        torch.lender = lenders[turn % len(lenders)]
        x = tensor_of(torch, X + turn)
        y = f(x)
        x.late(np.full_like(X, np.nan))
        z = f(y)  # by a stream of ours
        np.testing.assert_array_equal(z, ((X + turn) * 2 + 1) * 2 + 1)
        np.testing.assert_array_equal(y, (X + turn) * 2 + 1)


KEYS = [np.s_[::2, 1:], np.s_[1, :], np.s_[:, 3], np.s_[2:1], np.s_[None, :, 0], np.s_[1:, 1:], np.s_[...]]


def test_any_layout_and_dtype(gpu: cuda.CUDADevice, torch: Any) -> None:
    same = function(lambda x: x.T)
    for _ in range(3):
        for key in KEYS:
            np.testing.assert_array_equal(same(tensor_of(torch, X)[key]), X[key].T)
        for dtype in ("bool", "int8", "int64", "float16", "float64", "complex64"):
            values = (X % 5).astype(dtype)
            got = np.asarray(same(tensor_of(torch, values, "F")))
            assert got.dtype == values.dtype
            np.testing.assert_array_equal(got, values.T)


def flagged(torch: Any, **flags: Any) -> Any:
    made = tensor_of(torch, np.ones((3, 4), "c8") if "conjugated" in flags else X)
    for name, value in flags.items():
        setattr(made, name, value)
    return made


REFUSED = [
    ({"requires_grad": True}, r"write x\.detach"),
    ({"negated": True}, "negative bit"),
    ({"conjugated": True}, r"write x\.resolve_conj"),
    ({"freed": True}, "resized to nothing"),
    ({"freed": True, "offset": 4}, "resized to nothing"),
    ({"wrapped": True}, "have storage"),
]


@pytest.mark.parametrize(("flags", "words"), REFUSED)
@pytest.mark.parametrize("assigns", [False, True])
def test_what_cannot_be_read_is_refused_at_every_call(
    gpu: cuda.CUDADevice, torch: Any, flags: Any, words: str, assigns: bool
) -> None:
    f = function((lambda x: x.__iadd__(1)) if assigns else (lambda x: x + 1))
    kind = "c8" if "conjugated" in flags else "f4"
    for _ in range(ORDINARY):
        bad = flagged(torch, **flags)
        with pytest.raises(kg.ArgumentsError, match=words):
            f(bad)
        f(tensor_of(torch, np.ones((3, 4), kind)))
    assert kg.waitall() is None


def test_dtypes_that_are_not_known_take_the_long_way(gpu: cuda.CUDADevice, torch: Any) -> None:
    f = direct(lambda x: x + 1, torch, X)
    x = tensor_of(torch, X.astype("u8"))  # the stand-in has no such dtype
    asked = torch.asked
    np.testing.assert_array_equal(f(x), X.astype("u8") + 1)
    assert torch.asked == asked + 1


def test_tensors_beside_pytorchs_current_gpu_take_the_long_way(gpu: cuda.CUDADevice, torch: Any) -> None:
    """PyTorch itself refuses to hand these over."""
    torch.cuda.device_count, torch.cuda.current_device = (lambda: 2), (lambda: torch.index)
    torch.index = 0
    f = direct(lambda x: x + 1, torch, X)
    asked = torch.asked
    f(tensor_of(torch, X))
    assert torch.asked == asked
    torch.index = 1
    f(tensor_of(torch, X))
    assert torch.asked == asked + 1


def test_assignment_reaches_the_lender(gpu: cuda.CUDADevice, torch: Any) -> None:
    def change(u: Any) -> Any:
        u[1:] += u[:-1]
        return u

    expected = X.copy()
    change(expected)
    f = function(change)
    for _ in range(ORDINARY):
        x = tensor_of(torch, X)
        assert f(x) is x
        seen: list[Any] = []
        x.later(lambda view, seen=seen: seen.append(view.copy()))  # type: ignore[misc]
        gpu.context.synchronize()
        np.testing.assert_array_equal(seen[0], expected)
    with pytest.raises(kg.ReadOnlyError, match="not contiguous"):
        f(tensor_of(torch, X)[:, 1:])
    add = function(lambda u, v: u.__iadd__(v))
    x = tensor_of(torch, X)
    with pytest.raises(kg.ArgumentsError, match="shares"):
        add(x, x[1:2])


def test_the_tensor_lives_until_the_work_is_done(gpu: cuda.CUDADevice, torch: Any) -> None:
    f = direct(lambda x: x * 2 + 1, torch, X)
    x = tensor_of(torch, X)
    alive = weakref.ref(x)
    y = f(x)
    del x
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(y, X * 2 + 1)
    in_flight._on_devices.forget_finished()
    assert alive() is None


def test_calls_become_part_of_a_graph_that_the_lender_captures(gpu: cuda.CUDADevice, torch: Any) -> None:
    f = direct(lambda x: x * 2 + 1, torch, X)
    x = tensor_of(torch, X)
    gpu.context.synchronize()
    driver, handle = gpu.context.driver, torch.lender.handle
    driver.log.clear()
    driver.begin_capture(handle, 0)
    y = f(x)
    z = f(x)
    code, graph = driver.end_capture(handle)
    assert code == 0 and driver.mode == 0 and "launch_graph" not in names(gpu)
    _, executable = driver.instantiate(graph)
    for turn in range(3):
        x.late(X + turn)
        driver.launch_graph(executable, handle)
        gpu.context.synchronize()
        for each in (y, z):
            np.testing.assert_array_equal(each._read(), (X + turn) * 2 + 1)
    np.testing.assert_array_equal(f(x), (X + 2) * 2 + 1)
    driver.destroy_all()


def test_other_ways_to_call(gpu: cuda.CUDADevice, torch: Any) -> None:
    """By name, in a list, under a stream, one step at a time, on the CPU, beside a number."""
    f = direct(lambda x, y: x * 2 + y, torch, X, X)
    s, on_cpu = Lender(gpu.context), kg.kernel_graph(lambda x: x * 2, device="cpu")
    listed = function(lambda xs: xs[0] * 2 + xs[1])
    for turn in range(ORDINARY):
        x, y = tensor_of(torch, X + turn), tensor_of(torch, X)
        with kg.stream(s.handle):
            under = f(x, y)
        with override(engine="sync"):
            slow = f(x, y)
        found = [f(x, y=y), listed([x, y]), under, slow, f(x, X), f(x, kg.asarray(X, device="cuda"))]
        host = on_cpu(x)
        number = f(x, 1.0)
        for tensor in (x, y):
            tensor.late(np.full_like(X, np.nan))
        for each in found:
            np.testing.assert_array_equal(each, (X + turn) * 2 + X)
        np.testing.assert_array_equal(host, (X + turn) * 2)
        np.testing.assert_array_equal(number, (X + turn) * 2 + 1)


def test_a_launch_that_fails_poisons_its_result_alone(gpu: cuda.CUDADevice, torch: Any) -> None:
    f = direct(lambda x: x * 2 + 1, torch, X)
    x = tensor_of(torch, X)
    gpu.context.driver.refuse.update(launch_graph=1, launch=1)
    y = f(x)
    with pytest.raises(cuda.LaunchError):
        y.wait()
    with pytest.raises(cuda.LaunchError):
        f(y).numpy()
    np.testing.assert_array_equal(f(x), X * 2 + 1)


@pytest.mark.parametrize("calls", [ORDINARY, 2 * ORDINARY, one_launch.THREADS + 2 * ORDINARY])
def test_a_function_that_is_dropped_leaves_no_launch_behind(gpu: cuda.CUDADevice, torch: Any, calls: int) -> None:
    """Its kernels are unloaded, but not before what is still to come on the lender's stream is done."""
    f = direct(lambda x: np.sqrt(x) + 3, torch, X, calls=calls)
    found = [f(tensor_of(torch, X + turn)) for turn in range(3)]
    assert not found[-1].is_ready()
    del f
    gc.collect()
    gpu.modules.forget_unheld_kernels()
    own = kg.asarray(X, device="cuda").wait()
    for body in (lambda x: x - 5, lambda x: x * x + 5, np.sin):  # to load kernels unloads those that may go
        function(body)(own).wait()
        gpu.context.synchronize()  # kernels go once all streams are past an event, those without any work too
    assert kg.memory_stats("cuda")["kernels"] == 3
    for turn, got in enumerate(found):
        np.testing.assert_allclose(got, np.sqrt(X + turn) + 3, rtol=1e-6)


# CuPy


def test_cupys_arrays(gpu: cuda.CUDADevice, cupy: Any) -> None:
    f = function(lambda x: x * 2 + 1)
    for turn in range(8):
        x = tensor_of(cupy, X + turn)
        gpu.context.driver.log.clear()
        y = f(x)
        assert turn < ORDINARY or set(names(gpu)) <= {"launch_graph", "update_kernel", "record"}
        x.late(np.full_like(X, np.nan))
        np.testing.assert_array_equal(y, (X + turn) * 2 + 1)
    for _ in range(2):
        for key in [*KEYS, np.s_[::-1, ::-2]]:
            np.testing.assert_array_equal(f(tensor_of(cupy, X)[key]), X[key] * 2 + 1)


def test_two_libraries_with_streams_of_their_own(gpu: cuda.CUDADevice, torch: Any, cupy: Any) -> None:
    f = function()
    for turn in range(ORDINARY):
        x, y = tensor_of(torch, X + turn), tensor_of(cupy, X)
        z = f(x, y)
        for each in (x, y):
            each.late(np.full_like(X, np.nan))
        np.testing.assert_array_equal(z, (X + turn) * 2 + X)


# PyTorch itself: its tensors on the CPU have the same attributes


@pytest.fixture
def viewed(gpu: cuda.CUDADevice) -> Any:
    """How PyTorch's tensors on the CPU look if they are taken to lie on a GPU; None where the long way is taken."""
    torch = library("torch")
    c = SimpleNamespace(_cuda_getCurrentRawStream=lambda index: 0)
    given = SimpleNamespace(_C=c, **{name: getattr(torch, name) for name in module._TORCH})
    module.VIEWS[OnGpu] = module._torch_gpu_tensor_importer(given, 0, lambda tensor: None)
    yield lambda tensor: module.import_foreign_array(OnGpu(tensor))
    del module.VIEWS[OnGpu]


class OnGpu:
    is_cuda = True

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def test_pytorchs_tensors_are_read_as_they_lie(viewed: Any) -> None:
    torch = library("torch")
    x = torch.arange(48.0).reshape(6, 8)
    halves = [x.to(getattr(torch, name))[1:] for name in module._TORCH]
    for tensor in (x, x.T, x[::2, 1:], x[3], x[:, 3], x.expand(2, 6, 8), x[0, 0], *halves):
        leaf = viewed(tensor)
        wanted = (tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor).numpy()
        assert (leaf.shape, leaf._memory.address) == (wanted.shape, wanted.ctypes.data)
        assert leaf.dtype.name == str(tensor.dtype).removeprefix("torch.")
        inner = [(n, a, b) for n, a, b in zip(wanted.shape, leaf._spec.strides, wanted.strides, strict=True) if n > 1]
        assert all(a == b for _, a, b in inner)
        assert leaf._spec.aligned == (wanted.ctypes.data % 16 == 0)
        assert leaf._memory.nbytes == wanted.itemsize + sum((n - 1) * b for n, _, b in inner)
        assert leaf._memory.owner.tensor is tensor and leaf._memory.producer.handle() == 0


def test_pytorchs_tensors_that_are_not_read_as_they_lie(viewed: Any) -> None:
    torch = library("torch")
    x = torch.ones(3, 4)
    freed = torch.ones(3, 4)
    part = freed[1:]
    freed.untyped_storage().resize_(0)
    c = torch.ones(3, dtype=torch.complex64)
    odd = [
        x.clone().requires_grad_(), c.conj(), c.conj().imag, freed, part, x.to_sparse(), x.to_sparse_csr(), x[:0],
        torch._efficientzerotensor((3,)), torch.empty(3, device="meta"), x.to(torch.float8_e4m3fn),
        torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), torch.nested.nested_tensor([x, x]),
    ]  # fmt: skip
    assert viewed(c.conj().real) is not None  # nothing is left to conjugate
    assert [viewed(tensor) for tensor in odd] == [None] * len(odd)
    traced: list[Any] = []

    def look(tensor: Any) -> Any:
        traced.append(viewed(tensor))
        return tensor.sum()

    for way in (
        torch.func.vmap,
        torch.func.grad,
        torch.func.functionalize,
        lambda f: lambda x: torch.func.jvp(f, (x,), (x,)),
    ):
        way(look)(x)
    assert traced == [None] * 4
