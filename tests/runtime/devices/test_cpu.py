"""The CPU device: its memory, copies, arguments of every type, library calls, and plans of one and several tasks."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelgraph.runtime.codegen import elf_loader, llvm_jit
from kernelgraph.runtime.core.errors import CompileError, OutOfMemory, PlanError
from kernelgraph.runtime.core.host_pool import (
    HUGE,
    LARGE,
    HostMemoryPool,
    numpy_view_of_pool_block,
    pool_size_class_bytes,
)
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.engine import engine as native
from kernelgraph.runtime.interpret.library_calls import numpy_region_viewer
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.program.program import Buffer, Int, Kernel, Pointer, Program, Region, Scalar, Task
from tests.counts import examples
from tests.runtime.cpu_plans import ADD, DOUBLE, SCALE, call, in_order, kernel_task, library_task, region


@pytest.fixture(scope="module")
def device():
    return CPUDevice(0)


def numbers(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


# Memory.


@given(st.integers(0, 1 << 40))
def test_size_classes_are_tight(n):
    size = pool_size_class_bytes(n)
    assert size % 64 == 0 and size >= n and size >= 64
    assert n == 0 or size - n <= max(63, n / 8)
    assert pool_size_class_bytes(size) == size
    assert n == 0 or pool_size_class_bytes(n - 1) <= size


@given(st.lists(st.tuples(st.integers(0, 1 << 19), st.booleans()), max_size=40), st.randoms())
@hypothesis_settings(deadline=None, max_examples=examples(40))
def test_living_blocks_are_apart_aligned_and_keep_their_bytes(requests, rng):
    pool = HostMemoryPool()
    alive = []
    for number, (nbytes, drop) in enumerate(requests):
        block = pool.allocate(nbytes)
        assert block.nbytes == nbytes and block.address % 64 == 0
        assert pool_size_class_bytes(nbytes) < LARGE or block.address % HUGE == 0
        view = numpy_view_of_pool_block(block, np.uint8, (nbytes,))
        view[...] = number
        alive.append((number, view))
        del block, view
        if drop:
            alive.pop(rng.randrange(len(alive)))
    for number, view in alive:
        assert (view == number).all()
    spans = sorted((v.ctypes.data, v.nbytes) for _, v in alive if v.nbytes)
    assert all(a + n <= b for (a, n), (b, _) in pairwise(spans))
    statistics = pool.statistics()
    assert statistics["in_use"] == sum(pool_size_class_bytes(v.nbytes) for _, v in alive)
    assert statistics["in_use"] + statistics["cached"] == statistics["reserved"] <= statistics["peak"]


@pytest.mark.parametrize("nbytes", [100, 1 << 20, 5 << 20])
def test_a_block_comes_back_when_its_last_array_dies(nbytes):
    pool = HostMemoryPool()
    block = pool.allocate(nbytes)
    address = block.address
    array = numpy_view_of_pool_block(block, np.float32, (5, 5))
    part = array[2:].T
    del block, array
    other = pool.allocate(nbytes)
    assert other.address != address
    del part
    assert pool.allocate(nbytes).address == address


def test_free_large_blocks_are_bounded_and_can_be_given_back():
    pool = HostMemoryPool()
    with override(pool_bytes=8 << 20):
        blocks = [pool.allocate(3 << 20) for _ in range(6)]
        assert pool.statistics()["in_use"] >= 18 << 20
        del blocks
    assert pool.statistics()["cached"] <= 8 << 20
    before = pool.statistics()
    assert pool.trim() == before["cached"] > 0
    assert pool.statistics() == {"in_use": 0, "cached": 0, "reserved": 0, "peak": before["peak"]}
    assert pool.allocate(3 << 20).nbytes == 3 << 20


def test_too_much_is_out_of_memory_and_the_pool_goes_on():
    pool = HostMemoryPool()
    with pytest.raises(OutOfMemory):
        pool.allocate(1 << 60)
    with pytest.raises(MemoryError):
        pool.allocate(1 << 80)
    with pytest.raises(ValueError, match="-1 bytes"):
        pool.allocate(-1)
    with override(memory_limit=10 << 20):
        kept = pool.allocate(6 << 20)
        with pytest.raises(OutOfMemory, match="6 MiB more than 6 MiB pass the limit of 10 MiB"):
            pool.allocate(6 << 20)
        del kept
        assert pool.allocate(8 << 20).nbytes == 8 << 20  # the free 6 MiB are given back for it
    assert pool.statistics()["peak"] <= 10 << 20


def test_threads_never_share_a_block():
    pool = HostMemoryPool()
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        alive = []
        for number in range(3000):
            block = numpy_view_of_pool_block(pool.allocate(int(rng.integers(1, 3000))), np.uint8, (1,))
            mark = (seed * 31 + number) % 251
            block[0] = mark
            alive.append((block, mark))
            if len(alive) > 20:
                old, value = alive.pop(int(rng.integers(20)))
                if old[0] != value:
                    wrong.append((seed, number))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    gc.collect()
    assert pool.statistics()["in_use"] == 0


DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64"]
DTYPES += ["complex128", "bfloat16", "float8_e4m3fn"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (2, 3, 5)])
def test_copies_keep_every_bit(device, dtype, shape):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    size = int(np.prod(shape)) * dtype.itemsize
    host = np.frombuffer(np.random.default_rng(1).bytes(size), dtype).reshape(shape)
    memory = device.allocate(host.nbytes)
    event = device.upload(host, memory)
    event.wait()
    assert event.query()
    back = np.empty_like(host)
    device.download(memory, back)
    assert back.tobytes() == host.tobytes()


# Arguments.

# Copies slot 1, whatever it is.
RAW = Kernel(
    "raw",
    "cpu",
    """
define void @raw(ptr %slots, i64 %begin, i64 %end) {
  %p = load ptr, ptr %slots
  %q = getelementptr i64, ptr %slots, i64 1
  %v = load i64, ptr %q
  store i64 %v, ptr %p
  ret void
}
""",
    ("ptr", "any"),
)
VALUES = [0, 1, -1, 127, 300, 2**40, -(2**63), 0.5, -0.0, 1e-42, 3e38, 1e300, float("inf"), float("nan"), True]
VALUES += [np.float32(1.1), np.float64(1.1), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True)]


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("complex64", "complex128")])
def test_scalars_arrive_as_numpy_converts_them(device, dtype, engine):
    task = Task("raw", RAW, (Pointer(0), Scalar(0, dtype)), (), (region(0, 1, "int64"),))
    executable = device.prepare(in_order([Buffer(8, "output")], [task], (), (0,), (dtype,)))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for value in VALUES:
        with np.errstate(all="ignore"):
            try:
                expected = np.asarray(value).astype(kind).tobytes()
            except (TypeError, ValueError, OverflowError):
                continue
        if kind.kind in "iu" and isinstance(value, float) and not abs(value) < 127:
            continue  # the conversion is not defined
        memory = device.allocate(8)
        with override(engine=engine):
            for event in executable.run((memory.address,), None, (value,), ()):
                event.wait()
        got = numpy_view_of_pool_block(memory, np.uint8, (8,)).tobytes()[: len(expected)]
        if got != expected:
            assert np.isnan(value) and np.isnan(np.frombuffer(got, kind)[0].astype(float)), (value, got, expected)


def test_a_scalar_of_16_bytes_is_refused(device):
    task = Task("raw", RAW, (Pointer(0), Scalar(0, "complex128")), (), (region(0, 1, "int64"),))
    executable = device.prepare(in_order([Buffer(8, "output")], [task], (), (0,), ("complex128",)))
    with pytest.raises(CompileError, match="complex128"):
        executable.run((device.allocate(8).address,), None, (1j,), ())


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
@given(sizes=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3), offset=st.integers(0, 5))
@hypothesis_settings(max_examples=examples(20), deadline=None)
def test_integers_and_offsets_arrive(device, engine, sizes, offset):
    buffers = [Buffer(8 * len(sizes), "output"), Buffer(64, "temp"), Buffer(64, "output"), Buffer(8, "input")]
    tasks = [
        Task("raw", RAW, (Pointer(0, 8 * i), Int(size)), (), (region(0, 1, "int64", 8 * i),))
        for i, size in enumerate(sizes)
    ]
    tasks.append(Task("raw", RAW, (Pointer(1, 8 * offset), Int(sizes[0])), (), (region(1, 1, "int64", 8 * offset),)))
    tasks.append(library_task("copy", (region(1, 1, "int64", 8 * offset),), (region(2, 1, "int64"),)))
    executable = device.prepare(in_order(buffers, tasks, (3,), (0, 2)))
    first, second, arena = (device.allocate(n) for n in (8 * len(sizes), 64, executable.plan.arena_bytes))
    with override(engine=engine):
        for event in executable.run((first.address, None, second.address, 0), arena.address, (), ()):
            event.wait()
    assert numpy_view_of_pool_block(first, np.int64, (len(sizes),)).tolist() == sizes
    assert numpy_view_of_pool_block(second, np.int64, (1,))[0] == sizes[0]


# Library calls.


@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    strides=st.lists(st.integers(-6, 6), min_size=3, max_size=3),
    dtype=st.sampled_from(["float32", "int8", "complex128", "bfloat16"]),
)
def test_views_of_regions_are_those_of_numpy(shape, strides, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    data = np.frombuffer(np.random.default_rng(0).bytes(200 * kind.itemsize), kind).copy()
    steps = tuple(s * kind.itemsize for s in strides[: len(shape)])
    start = 100 * kind.itemsize
    view = numpy_region_viewer(Region(0, start, tuple(shape), steps, kind.itemsize, dtype))(data.ctypes.data)
    expected = np.lib.stride_tricks.as_strided(data[100:], tuple(shape), steps)
    assert view.shape == expected.shape and view.dtype == kind
    assert view.tobytes() == expected.tobytes()


@pytest.mark.parametrize("cost", [0.5, 100.0])
def test_matmul_then_kernel(device, cost):
    x, y = numbers(60), numbers(60, 1)
    buffers = [Buffer(240, "input"), Buffer(240, "input"), Buffer(400, "temp"), Buffer(400, "output")]
    a = Region(0, 0, (10, 6), (24, 4), 4, "float32")
    b = Region(1, 0, (6, 10), (4, 24), 4, "float32")  # transposed
    c = Region(2, 0, (10, 10), (40, 4), 4, "float32")
    tasks = [library_task("matmul", (a, b), (c,), cost=cost), kernel_task(DOUBLE, (2,), 3, 100)]
    (out,) = call(device, device.prepare(in_order(buffers, tasks, (0, 1), (3,))), (x, y))
    np.testing.assert_allclose(out.reshape(10, 10), 2 * (x.reshape(10, 6) @ y.reshape(10, 6).T), rtol=1e-5)


@pytest.mark.parametrize("cost", [0.5, 100.0])
def test_library_calls_do_not_see_the_callers_error_state(device, cost):
    big = np.full(4, 3e38, np.float32)
    buffers = [Buffer(16, "input"), Buffer(4, "output")]
    row, column = Region(0, 0, (1, 4), (16, 4), 4, "float32"), Region(0, 0, (4, 1), (4, 4), 4, "float32")
    task = library_task("matmul", (row, column), (Region(1, 0, (1, 1), (4, 4), 4, "float32"),), cost=cost)
    with np.errstate(all="raise"):
        (out,) = call(device, device.prepare(in_order(buffers, [task], (0,), (1,))), (big,))
    assert out[0] == np.inf


def test_an_unknown_library_call_is_refused(device):
    r = (region(0, 1),)
    with pytest.raises(CompileError, match="no library call 'fft'; it has matmul"):
        device.prepare(in_order([Buffer(8, "output")], [library_task("fft", r, r)], (), (0,)))


# Plans.


def chain(n):
    """out = s * (x + y + x + y), through temporaries."""
    kinds = ["input", "input", "temp", "temp", "output"]
    tasks = [
        kernel_task(ADD, (0, 1), 2, n),
        kernel_task(DOUBLE, (2,), 3, n),
        kernel_task(SCALE, (3,), 4, n, scalars=(0,)),
    ]
    return in_order([Buffer(4 * n, kind) for kind in kinds], tasks, (0, 1), (4,), ("float32",))


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
@pytest.mark.parametrize("n", [1, 17, 1000, 300_000])
def test_a_chain_of_kernels(device, n, engine):
    x, y = numbers(n), numbers(n, 1)
    with override(engine=engine):
        (out,) = call(device, device.prepare(chain(n)), (x, y), (0.5,))
    np.testing.assert_array_equal(out, np.float32(0.5) * ((x + y) + (x + y)))


@pytest.mark.parametrize("engine", ["async", "sync", "chaos"])
@pytest.mark.parametrize("cost", [0.5, 1000.0])
def test_no_units_no_call(device, engine, cost):
    plan = in_order([Buffer(8, "output")], [kernel_task(DOUBLE, (0,), 0, 0, cost=cost)], (), (0,))
    with override(engine=engine):
        for event in device.prepare(plan).run((0,), None, (), ()):  # a null pointer
            event.wait()


def test_several_tasks_in_one_launch_are_refused(device):
    """They are a GPU's: of such a launch a CPU would do the first task only."""
    kernel = replace(DOUBLE, options=(*DOUBLE.options, ("packed", 2)))
    plan = in_order([Buffer(8, "output")], [kernel_task(kernel, (0,), 0, 2)], (), (0,))
    with pytest.raises(PlanError, match="several tasks"):
        device.prepare(plan)


def test_a_plan_without_steps(device):
    executable = device.prepare(Plan(Program((Buffer(8, "input"),), (), (0,), ()), (), 1, 0, (None,), 0))
    assert executable.run((device.allocate(8).address,), None, (), ()) == ()
    device.synchronize()


def test_a_kernel_is_compiled_once(device, monkeypatch):
    device.load([ADD, DOUBLE, ADD])
    monkeypatch.setattr(llvm_jit, "_load_object_code", None)
    device.load([ADD, DOUBLE])


def test_text_that_does_not_define_its_kernel_is_refused(device):
    with pytest.raises(CompileError, match="does not define @other"):
        device.load([Kernel("other", "cpu", ADD.source, ADD.signature)])


def test_the_vector_library_follows_the_features(device):
    widest = device.vector_library
    assert widest in (None, "libmvec-avx2", "libmvec-avx512")
    with override(cpu_features="-avx512f"):
        assert device.vector_library in (None, "libmvec-avx2")
        assert device.vector_library == ("libmvec-avx2" if widest else None)
        assert device.vector_bytes <= 32
    with override(cpu_features="-avx512f,-avx2"):
        assert device.vector_library is None
        assert device.vector_bytes == 16
    if widest:
        assert elf_loader.find_c_function_address("_ZGVeN16v_expf" if widest.endswith("512") else "_ZGVdN8v_expf")


def test_here_the_native_engine_is_there():
    assert native.why_no_native_engine() is None
