"""`kg.memory` is what the device says, by owner, at every point; memory of another allocator goes back to it."""

from __future__ import annotations

import ctypes
import gc
import random
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.array import in_flight
from kernelgraph.dsl.array.memory import MemoryAccount
from kernelgraph.runtime.core import allocators
from kernelgraph.runtime.core.allocators import CupyAllocator, RmmAllocator, TorchAllocator
from kernelgraph.runtime.core.errors import KernelGraphError
from kernelgraph.runtime.core.host_pool import HostMemoryPool
from kernelgraph.runtime.core.recycling import TURNS
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.libraries.handles import CublasHandles
from kernelgraph.runtime.devices.cuda.memory.pool import LARGE, GpuMemoryPool
from kernelgraph.runtime.devices.fake import FakeDevice
from tests.counts import examples
from tests.dsl.gpu_in_memory import SharedContext, device_on
from tests.faults import opened


class Counting:
    """An allocator of the C library's memory. held: bytes by address."""

    def __init__(self, capacity: int = 1 << 40) -> None:
        self.capacity, self.calls = capacity, 0
        self.held: dict[int, tuple[int, Any]] = {}

    def allocate(self, nbytes: int, stream: int) -> int:
        self.calls += 1
        if sum(n for n, _ in self.held.values()) + nbytes > self.capacity:
            raise MemoryError("no more")
        raw = ctypes.create_string_buffer(nbytes + 256)
        address = ctypes.addressof(raw) + -ctypes.addressof(raw) % 256
        self.held[address] = nbytes, raw
        return address

    def free(self, pointer: int, nbytes: int, stream: int) -> None:
        assert self.held.pop(pointer)[0] == nbytes

    @property
    def nbytes(self) -> int:
        return sum(n for n, _ in self.held.values())


FUNCTIONS: list[Any] = [
    lambda x: x * 2 + 1,
    lambda x: np.sort(x) - np.cumsum(x),
    lambda x: (x + 1, np.sort(x * 2)),
    lambda x: x.sum(),
]


@pytest.fixture(autouse=True)
def others_objects_left_alone() -> Iterator[None]:
    """Python looks for garbage, and for what knows a device, among the objects of a test alone: thousands of times."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def soak_device(name: str, device: Any, seed: int, check: Any) -> None:
    """Calls, arrays and functions made and dropped at random; a check after each."""
    rng = random.Random(seed)
    functions = [kg.kernel_graph(device=name)(f) for f in FUNCTIONS]
    arrays: list[Any] = []
    for _ in range(30):
        kind = rng.choice(("array", "call", "call", "call", "drop", "drop", "wait", "trim", "function", "alias"))
        if kind == "array" or not arrays:
            arrays.append(kg.asarray(np.ones(rng.choice((1, 100, 1 << 14, 1 << 17))), device=name))
        elif kind == "call":
            result = rng.choice(functions)(rng.choice(arrays))
            arrays += [x for x in (result if isinstance(result, tuple) else (result,)) if x.shape]
            del result
        elif kind == "drop":
            arrays.pop(rng.randrange(len(arrays)))
        elif kind == "wait":
            kg.waitall()
        elif kind == "trim":
            kg.empty_cache(name)
        elif kind == "function":
            at = rng.randrange(len(functions))
            functions[at] = kg.kernel_graph(device=name)(FUNCTIONS[at])
        else:
            arrays.append(rng.choice(arrays))
        check(kg.memory(name))


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 1 << 32), lent=st.booleans())
def test_the_account_is_the_devices_own_figure(seed: int, lent: bool) -> None:
    """Each byte has an owner, though calls are in flight."""
    device, allocator = FakeDevice(eager=False), Counting()

    def check_account(account: MemoryAccount) -> None:
        assert account.reserved == device.in_use == sum(account.in_use.values())
        assert account.in_use["rounding"] == 0 and account.cached == 0
        if lent:
            assert allocator.nbytes == device.in_use

    with opened("fake", device):
        if lent:
            kg.use_allocator(allocator, "fake")
        soak_device("fake", device, seed, check_account)
        gc.collect()
        kg.waitall()
    gc.collect()
    assert device.in_use == 0 and not allocator.held


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 1 << 32), lent=st.booleans())
def test_the_cpus_account_adds_up(seed: int, lent: bool) -> None:
    device, allocator = CPUDevice(), Counting()

    def check_account(account: MemoryAccount) -> None:
        stats = device.statistics()
        assert account.reserved <= stats["peak"] and min(account.in_use.values()) >= 0
        assert account.in_use["rounding"] <= max(account.in_use["results"] + account.in_use["temporaries"], 1 << 16)
        if lent:
            assert stats["in_use"] == allocator.nbytes and account.cached == 0

    with opened("cpu", device):
        if lent:
            kg.use_allocator(allocator, "cpu")
        soak_device("cpu", device, seed, check_account)
        kg.waitall()
    gc.collect()
    kg.waitall()
    assert device.statistics()["in_use"] == 0 and not allocator.held


def test_an_account_prints_in_units_that_people_read() -> None:
    account = MemoryAccount(
        "cuda:0", {"results": 3 << 30, "graphs": 0}, 1 << 20, 4 << 30, 0, {"code": 1536}, (70 << 30, 79 << 30)
    )
    assert str(account) == repr(account)
    assert [line.split() for line in str(account).splitlines()] == [
        ["memory", "of", "cuda:0"],
        ["results", "3", "GiB"],
        ["cached", "1", "MiB"],
        ["reserved", "3", "GiB"],
        ["peak", "4", "GiB"],
        ["code", "1.5", "KiB"],
        ["free,", "says", "the", "system", "70", "GiB"],
        ["others", "and", "the", "context", "6", "GiB"],
    ]


@pytest.mark.parametrize("name", ["cpu", "fake"])
def test_calls_use_the_memory_of_an_allocator(name: str) -> None:
    device, allocator = CPUDevice() if name == "cpu" else FakeDevice(), Counting()
    with opened(name, device):
        f = kg.kernel_graph(device=name)(lambda x: np.sort(x) + 1)
        x = kg.asarray(np.arange(1e5), device=name)
        before = f(x)  # of the device's own memory
        kg.use_allocator(allocator, name)
        results = [f(x) for _ in range(3)]
        kg.waitall()
        assert allocator.nbytes >= 3 * x.nbytes
        if name == "cpu":
            for i in range(3):
                np.testing.assert_array_equal(results[i], np.arange(1e5) + 1)
            np.testing.assert_array_equal(before, np.arange(1e5) + 1)
        kg.use_allocator("driver", name)
        calls = allocator.calls
        f(x).wait()
        assert allocator.calls == calls
        kg.waitall()
        del results
        device.statistics()
        assert not allocator.held


def test_what_is_no_allocator_is_refused() -> None:
    for wrong, text in (
        ("jemalloc", "write one of 'driver', 'torch'"),
        ("torch", "memory of GPUs"),
        (3, "int is no allo"),
    ):
        with pytest.raises(kg.OptionError, match=text):
            kg.use_allocator(wrong, "cpu")


def test_an_address_that_kernels_cannot_use_is_refused() -> None:
    class Odd(Counting):
        def allocate(self, nbytes: int, stream: int) -> int:
            return super().allocate(nbytes, stream) + 8

        def free(self, pointer: int, nbytes: int, stream: int) -> None:
            super().free(pointer - 8, nbytes, stream)

    odd = Odd()
    with opened("cpu", CPUDevice()):
        kg.use_allocator(odd, "cpu")
        with pytest.raises(KernelGraphError, match=r"Odd\.allocate.*multiple of 64"):
            kg.array(np.ones(100), device="cpu")
    assert not odd.held


def test_an_allocator_without_memory_is_out_of_memory_and_recovers() -> None:
    small = Counting(1 << 20)
    with opened("cpu", CPUDevice()):
        kg.use_allocator(small, "cpu")
        x = kg.array(np.ones(100_000), device="cpu")
        with pytest.raises(kg.OutOfMemory, match=r"Counting has no 800 KiB|has no .*KiB"):
            kg.array(np.ones(100_000), device="cpu")
        del x
        kg.array(np.ones(100_000), device="cpu")


def make_modules(monkeypatch: pytest.MonkeyPatch, **modules: Any) -> None:
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name.replace("__", "."), module)


def test_each_library_is_asked_by_its_own_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    class Within:
        def __init__(self, *what: Any) -> None:
            self.what = what

        def __enter__(self) -> None:
            asked.append(self.what)

        def __exit__(self, *_: Any) -> None:
            asked.append("left")

    def note(name: str, answer: Any = None) -> Any:
        return lambda *args: asked.append((name, *args)) or answer

    torch = {"caching_allocator_alloc": note("alloc", 512), "caching_allocator_delete": note("delete")}
    cupy = {
        "alloc": note("alloc", SimpleNamespace(ptr=512)),
        "Device": lambda i: Within("device", i),
        "ExternalStream": lambda s: Within("stream", s),
    }
    resource = SimpleNamespace(allocate=note("allocate", 512), deallocate=note("deallocate"))
    make_modules(
        monkeypatch,
        torch={"cuda": SimpleNamespace(**torch)},
        cupy={"cuda": SimpleNamespace(**cupy)},
        rmm={},
        rmm__mr={"get_per_device_resource": note("resource", resource)},
        rmm__pylibrmm={},
        rmm__pylibrmm__stream={"Stream": lambda stream: ("rmm", stream)},
        numba={},
        numba__cuda={"external_stream": lambda handle: ("numba", handle)},
    )
    expected: dict[Any, list[Any]] = {
        TorchAllocator: [("alloc", 64, 1, 7), ("delete", 512)],
        CupyAllocator: [
            *[("device", 1), ("stream", 7), ("alloc", 64), "left", "left"],
            *[("device", 1), ("stream", 7), "left", "left"],
        ],
        RmmAllocator: [
            ("resource", 1),
            ("allocate", 64, ("rmm", ("numba", 7))),
            ("deallocate", 512, 64, ("rmm", ("numba", 7))),
        ],
    }
    for kind, wanted in expected.items():
        asked.clear()
        allocator = kind(1)
        allocator.free(allocator.allocate(64, 7), 64, 7)
        assert asked == wanted


class Exhausted:
    """A driver with memory only once all has been tried that `room` names last."""

    def __init__(self, room: str) -> None:
        self.room, self.log = room, list[str]()

    def source(self, nbytes: int) -> Any:
        if self.room not in self.log:
            raise kg.OutOfMemory("full")
        return SimpleNamespace(handle=1 << 20)


@pytest.mark.parametrize("room", ["shrink", "idle", "others"])
def test_an_exhausted_gpu_is_trimmed_waited_for_and_others_are_asked(
    room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Exhausted(room)
    torch = SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: driver.log.append("others"))
    make_modules(monkeypatch, torch={"cuda": torch})
    pool = GpuMemoryPool(
        driver.source, lambda memory: None, lambda: driver.log.append("idle"), lambda: driver.log.append("shrink")
    )
    pool.allocate(2 * LARGE)
    order = ["shrink", "idle", "shrink", "others"]
    assert driver.log == order[: order.index(room) + 1] + (["shrink"] if room == "idle" else [])


@given(seed=st.integers(0, 1 << 32))
def test_what_is_free_beyond_a_bound_is_any_librarys_at_once(seed: int) -> None:
    """Nobody empties a cache: blocks that die go back to the driver, the largest first, but for the bound."""
    rng, held, address = random.Random(seed), dict[int, int](), 0

    def source(nbytes: int) -> Any:
        nonlocal address
        address += 1 << 40
        held[address] = nbytes
        pending.clear()  # the driver's pool keeps nothing beyond a synchronisation, which follows there
        return SimpleNamespace(handle=address)

    pending, bound = list[int](), 16 * LARGE
    pool = GpuMemoryPool(source, lambda memory: pending.append(held.pop(memory.handle)), int, pending.clear, bound)
    blocks: list[Any] = []
    for _ in range(60):
        if blocks and rng.random() < 0.5:
            blocks.pop(rng.randrange(len(blocks)))
        else:
            blocks.append(pool.allocate(rng.choice((LARGE, 3 * LARGE, 20 * LARGE))))
        stats = pool.statistics()
        assert stats["cached"] <= bound and sum(held.values()) == stats["reserved"] and not pending
    blocks.clear()
    assert sum(held.values()) <= bound and not pending


class CountingSource:
    """What a pool asks for memory. held: bytes by address. made: how many blocks there ever were."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.made = 0

    def __call__(self, nbytes: int) -> Any:
        self.made += 1
        self.held[self.made << 40] = nbytes
        return SimpleNamespace(handle=self.made << 40)

    def pool(self, most_free: int) -> GpuMemoryPool:
        return GpuMemoryPool(self, lambda memory: self.held.pop(memory.handle), int, int, most_free)


@given(seed=st.integers(0, 1 << 32))
def test_what_is_reserved_follows_what_is_in_use_however_many_sizes_come_and_go(seed: int) -> None:
    rng, source = random.Random(seed), CountingSource()
    pool, blocks, most = source.pool(1 << 16 << 20), list[Any](), 0
    for _ in range(800):
        while blocks and (len(blocks) > 12 or rng.random() < 0.4):
            blocks.pop(rng.randrange(len(blocks)))
        blocks.append(pool.allocate(int(2 ** rng.uniform(26, 36))))
        stats = pool.statistics()
        most = max(most, stats["in_use"])
        assert sum(source.held.values()) == stats["reserved"] <= 2 * most + (1 << 12 << 20)


@given(seed=st.integers(0, 1 << 32), phases=st.integers(1, 5), many=st.integers(1, 12))
def test_blocks_that_take_turns_are_kept(seed: int, phases: int, many: int) -> None:
    """However unlike the sizes are that a loop's parts need, the driver is asked in its first turns alone."""
    rng, source = random.Random(seed), CountingSource()
    pool = source.pool(1 << 41)
    sizes = [[rng.randrange(1 << 30, 40 << 30) for _ in range(many)] for _ in range(phases)]
    for turn in range(10):
        before = source.made
        for each in sizes:
            blocks = [pool.allocate(nbytes) for nbytes in each]
            del blocks
        assert turn < 6 or source.made == before


@given(seed=st.integers(0, 1 << 32))
def test_what_nobody_takes_any_more_goes_back_though_no_new_size_is_asked_for(seed: int) -> None:
    """Sizes that a program has used once, and then few of them for long."""
    rng, source = random.Random(seed), CountingSource()
    pool = source.pool(1 << 41)
    sizes = [rng.randrange(10 * LARGE, 40 * LARGE) for _ in range(40)]
    blocks = [pool.allocate(nbytes) for nbytes in sizes]
    del blocks
    many = 2 * (TURNS + 1) * pool.statistics()["reserved"] // sum(sizes[:3])  # it is asked twice what is idle
    for turn in range(many + 1):
        before = source.made
        blocks = [pool.allocate(nbytes) for nbytes in sizes[:3]]
        del blocks
        assert turn == 0 or source.made == before
    assert pool.statistics()["reserved"] <= 1.25 * sum(sizes[:3]) + LARGE


def test_queued_calls_ask_what_is_over_once_in_many_bytes() -> None:
    """Not each of them, where all that are in flight hold much."""
    asked = []

    def query() -> bool:
        asked.append(1)
        return False

    flights = in_flight.DeviceFlights(8, 1 << 40, 64 << 20)
    for _ in range(60):
        flights.track((SimpleNamespace(query=query, error=None),), (), 20 << 20)  # type: ignore[arg-type]
    assert 0 < len(asked) <= 60 * 20 // 64 + 2


def test_a_block_that_was_let_go_is_missed_once() -> None:
    source = CountingSource()
    pool = source.pool(1 << 41)
    pool._let_go.append(4 * LARGE)
    blocks = [pool.allocate(4 * LARGE) for _ in range(8)]
    assert pool._missed <= 4 * LARGE, blocks


def test_others_that_cannot_be_asked_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    make_modules(monkeypatch, torch={}, cupy={"get_default_memory_pool": lambda: 1 / 0})
    allocators.trim_gpu_caches_of_other_libraries()


def test_a_gpus_account_has_its_owners_and_what_the_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU in memory."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    made = device_on(SharedContext())
    with opened("cuda", made):
        x = kg.asarray(np.ones(1 << 18), device="cuda")
        y = kg.kernel_graph(device="cuda")(lambda x: x * 2 + 1)(kg.asarray(np.ones(200), device="cuda"))
        kg.waitall()
        account = kg.memory("cuda")
        assert account.in_use["results"] == x.nbytes + y.nbytes and account.in_use["temporaries"] == 0
        assert account.beside["staging (host)"] > 0
        assert account.system is not None
        free, every = account.system
        assert every - free == made.context.used >= account.reserved
        others = account.others
        made.context.fragments = 300 << 20  # the driver's pool keeps what nobody uses
        account = kg.memory("cuda")
        assert account.beside["driver's pool"] == 300 << 20 and account.others == others
        made.context.fragments = 0
        made.context.driver.log.clear()
        del x, y
        assert kg.empty_cache("cuda") >= 2 << 20
        assert ("shrink",) in made.context.driver.log and kg.memory("cuda").reserved < 1 << 20
        with pytest.raises(kg.OutOfMemory, match=r"GiB.*cuda:0 holds .*by what the system says .* are free"):
            kg.kernel_graph(device="cuda")(lambda x: x[:, None] * x[None, :])(
                kg.asarray(np.ones(1 << 15), device="cuda")
            )


@pytest.mark.parametrize("wished", [False, True])
def test_stacks_are_in_the_account_until_they_are_given_back(monkeypatch: pytest.MonkeyPatch, wished: bool) -> None:
    """Those that somebody wished for stay."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    made = device_on(SharedContext())
    monkeypatch.setattr(made.context, "local_bytes", lambda function: 4096)
    with opened("cuda", made):
        f = kg.kernel_graph(device="cuda")(lambda x: x * 2 + 1)
        f(kg.asarray(np.ones(200), device="cuda")).wait()
        made.context.stack_size = 9000 if wished else 4096
        taken = kg.memory("cuda").beside["stacks"]
        assert taken == made.context.stack_bytes() > 0
        del f
        gc.collect()
        assert kg.memory("cuda").beside["stacks"] == taken
        kg.empty_cache("cuda")
        assert kg.memory("cuda").beside["stacks"] == (taken if wished else 0)


def test_calls_that_are_over_hold_nothing_once_somebody_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits may make no other call for long: others may need what the calls before held."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    monkeypatch.setattr(in_flight._on_devices, "many", 1 << 10)
    with opened("cuda", device_on(SharedContext())):
        f = kg.kernel_graph(device="cuda")(lambda x: x * 2 + 1)
        x = kg.asarray(np.ones(200), device="cuda")
        results = [f(x) for _ in range(6)]
        results[-1].wait()
        for y in results:
            y.wait()
        del results, y
        assert in_flight.in_flight_counts()[1] <= 1 << 10


class CublasModule:
    """What the bindings of cuBLAS do here: it notes on which stream and in which workspace a product was made."""

    HANDLE_BYTES = 70 << 20

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free, self.handles, self.set_to, self.workspace = 80 << 30, 0, 0, 0
        self.waited: list[int] = []
        self.captured: set[int] = set()
        self.products: list[tuple[int, int, int]] = []
        self.driver: Any = SimpleNamespace(
            memory_info=lambda: (self.free, 80 << 30),
            is_capturing=self.captured.__contains__,
            synchronize_stream=self.waited.append,
        )
        names = ("create", "set_stream", "set_workspace", "set_math_mode", "product")
        make_modules(
            monkeypatch, nvmath={}, nvmath__bindings={}, nvmath__bindings__cublas={n: getattr(self, n) for n in names}
        )
        self.pool = HostMemoryPool()
        self.blas = CublasHandles(self.pool.allocate, 80 << 30, self.driver, lambda: 0, str)

    def create(self) -> int:
        self.handles += 1
        self.free -= self.HANDLE_BYTES
        return self.handles

    def set_math_mode(self, handle: int, mode: int) -> None:
        assert handle == 1

    def set_stream(self, handle: int, stream: int) -> None:
        self.set_to, self.workspace = stream, 0
        time.sleep(0)  # another thread may come in between

    def set_workspace(self, handle: int, address: int, nbytes: int) -> None:
        self.workspace = address

    def product(self, handle: int, stream: int) -> None:
        self.products.append((stream, self.set_to, self.workspace))


def test_cublas_has_one_handle_and_a_workspace_for_each_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    library = CublasModule(monkeypatch)
    blas = library.blas
    assert blas.handle_bytes == blas.nbytes == 0

    def multiply(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(200):
            stream = rng.randrange(1, 30)
            blas.call("product", stream, stream)

    threads = [threading.Thread(target=multiply, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert library.handles == 1 and blas.handle_bytes == library.HANDLE_BYTES
    assert len(library.products) == 800 and all(asked == had for asked, had, _ in library.products)
    workspaces = {stream: address for stream, _, address in library.products}
    assert all(workspaces[stream] == address for stream, _, address in library.products)  # its own, always the same
    assert 0 not in workspaces.values() and len(set(workspaces.values())) == len(workspaces) == 29
    assert blas.nbytes == 29 * blas.prepare([1])[0].nbytes


def test_workspaces_go_back_but_those_of_graphs_and_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    library = CublasModule(monkeypatch)
    blas, pool = library.blas, library.pool
    of_graph = blas.prepare([1, 2])
    for stream in range(3, 8):
        blas.call("product", stream, stream)
    library.captured.add(5)
    held = blas.workspaces([5, 6, 99])[0].address
    assert len(blas.workspaces([5, 6, 99])) == 2
    blas.trim()
    assert sorted(library.waited) == [1, 2, 3, 4, 6, 7]
    assert pool.statistics()["in_use"] >= 3 * of_graph[0].nbytes > pool.statistics()["in_use"] - of_graph[0].nbytes
    blas.call("product", 5, 5)
    assert library.products[-1] == (5, 5, held)
    (renewed,) = blas.prepare([1])
    assert renewed.address != of_graph[0].address  # the graph works in its own
    assert library.handles == 1


def test_a_gpu_takes_memory_of_an_allocator_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class OfContext:
        def __init__(self, context: SharedContext) -> None:
            self.context, self.held, self.streams = context, dict[int, Any](), set[int]()

        def allocate(self, nbytes: int, stream: int) -> int:
            self.streams.add(stream)
            memory = self.context.allocate(nbytes)
            self.held[memory.handle] = memory
            return memory.handle

        def free(self, pointer: int, nbytes: int, stream: int) -> None:
            assert stream in self.streams
            self.context.release(self.held.pop(pointer))

    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    made = device_on(SharedContext())
    allocator = OfContext(made.context)
    with opened("cuda", made):
        kg.use_allocator(allocator, "cuda")
        f = kg.kernel_graph(device="cuda")(lambda x: (x - x.max()) * 2)
        for n in (100, 400):
            values = np.linspace(1.0, 0.0, n)
            np.testing.assert_array_equal(np.asarray(f(kg.asarray(values, device="cuda"))), (values - 1.0) * 2)
            kg.waitall()
            assert kg.memory("cuda").in_use["rounding"] <= kg.memory("cuda").reserved
        assert allocator.held and 0 not in allocator.streams
        kg.use_allocator("driver", "cuda")
    gc.collect()
    made.synchronize()
    made.trim()
    assert sum(memory.data.size for memory in allocator.held.values()) <= 1 << 21  # what the code of kernels keeps
