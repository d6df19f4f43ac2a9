"""A GPU's memory is what the driver says, goes back to it, and is shared with other libraries."""

from __future__ import annotations

import gc
import os
import random
import threading
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.devices import device_named
from kernelgraph.runtime.core.allocators import LIBRARIES
from kernelgraph.runtime.program.program import Kernel, Pointer, Task

MEGABYTE = 1 << 20
TOLERANCE = 256 * MEGABYTE  # of what the driver itself takes beside the context's first size


ALONE = "PYTEST_XDIST_WORKER" not in os.environ  # others take and give memory of the card meanwhile


def others_and_context() -> int:
    """Bytes of the card that are neither free nor ours."""
    return kg.memory("cuda").others


def emptied() -> int:
    """Bytes that the driver has free when we hold nothing that we need not."""
    kg.waitall()
    gc.collect()
    kg.empty_cache("cuda")
    account = kg.memory("cuda")
    assert account.system is not None
    return account.system[0]


def sorted_rows(x: Any) -> Any:
    return np.cumsum(np.sort(x, axis=1), axis=1)


@pytest.mark.usefixtures("much_memory")
def test_the_account_is_the_drivers_at_every_point() -> None:
    rng = random.Random(5)
    kg.kernel_graph(device="cuda")(sorted_rows)(np.ones((64, 64), np.float32)).wait()
    emptied()
    context = others_and_context()
    functions: list[Any] = []
    arrays: list[Any] = []
    for turn in range(200):
        functions.append(kg.kernel_graph(device="cuda")(sorted_rows))
        rows = rng.choice((256, 1024, 4096))
        arrays.append(functions[-1](kg.asarray(np.ones((rows, 4096), np.float32), device="cuda")))
        while len(arrays) > 8:
            arrays.pop(rng.randrange(len(arrays)))
            functions.pop(rng.randrange(len(functions)))
        if not turn % 10:
            kg.waitall()
            assert not ALONE or abs(others_and_context() - context) <= TOLERANCE
    kg.waitall()


# each thread writes to its 16 KiB at a place that only the clock knows
STACKS = """.local .align 8 .b8 stack[16384];
ld.param.u64 %rd1, [arguments];
mov.u64 %rd2, stack;
mov.u32 %r1, %clock;
cvt.u64.u32 %rd3, %r1;
and.b64 %rd3, %rd3, 2047;
shl.b64 %rd3, %rd3, 3;
add.s64 %rd4, %rd2, %rd3;
st.local.u64 [%rd4], %rd1;
ld.local.u64 %rd5, [stack];
st.global.u64 [%rd1], %rd5;
ret;
}
"""


@pytest.mark.usefixtures("much_memory")
def test_the_stacks_of_kernels_are_in_the_account_and_go_back() -> None:
    kg.asarray(np.ones(100), device="cuda").wait()
    gpu: Any = device_named("cuda")
    before, context = emptied(), others_and_context()
    kernel = Kernel("stacks", "cuda", STACKS, ("ptr",), (("ptx", "stacks"),))
    task = Task("stacks", kernel, (Pointer(0),), (), (), grid=(1, 1, 1), block=(32, 1, 1))
    memory = gpu.allocate(1024)
    step = gpu.kernel_step_of_task(task)
    assert step([memory.address], (), gpu.handshake_stream.handle) == 0
    gpu.synchronize()
    assert kg.memory("cuda").beside["stacks"] > 1 << 30
    assert not ALONE or abs(others_and_context() - context) <= TOLERANCE
    del step, memory
    after = emptied()
    assert kg.memory("cuda").beside["stacks"] == 0
    assert not ALONE or after >= before - TOLERANCE


@pytest.mark.usefixtures("much_memory")
def test_all_is_given_back_when_nothing_is_alive() -> None:
    def use_many() -> None:
        for rows in (1024, 8192, 24576):
            f = kg.kernel_graph(device="cuda")(sorted_rows)
            x = kg.asarray(np.ones((rows, 16384), np.float32), device="cuda")
            for _ in range(10):
                y = f(x)
            del y

    kg.kernel_graph(device="cuda")(sorted_rows)(np.ones((64, 64), np.float32)).wait()
    before = emptied()
    use_many()
    assert not ALONE or emptied() >= 0.98 * before
    assert kg.memory("cuda").in_use["results"] == 0


@pytest.mark.usefixtures("much_memory")
def test_a_queued_loop_holds_what_the_budget_allows() -> None:
    step = kg.kernel_graph(device="cuda")(lambda x: x * 0.99 + 0.01)
    x = kg.asarray(np.ones(1 << 24), device="cuda")
    step(x).wait()
    emptied()
    with kg.override(in_flight_bytes=1 << 30):
        for _ in range(400):
            x = step(x)
        kg.waitall()
        assert kg.memory("cuda").reserved <= (1 << 30) + 16 * x.nbytes


@pytest.mark.usefixtures("much_memory")
def test_the_drivers_pool_keeps_nothing_that_others_could_use() -> None:
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    before = emptied()
    kg.asarray(np.ones(1 << 28, np.float32), device="cuda").wait()
    assert not ALONE or emptied() >= 0.98 * before
    share = int((0.6 if ALONE else 0.1) * before)
    theirs = torch.empty(share, dtype=torch.uint8, device="cuda")
    assert theirs.numel() == share
    del theirs
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("much_memory")
def test_another_library_gets_what_we_do_not_need_without_a_word() -> None:
    """Nobody empties our cache, though functions have come and gone that had more than the card together."""
    torch: Any = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    emptied()
    every = kg.memory("cuda").system[1]  # type: ignore[index]
    scale = 1.0 if ALONE else 0.1
    for rows in (4096, 16_384, 24_576):
        f = kg.kernel_graph(device="cuda")(sorted_rows)
        x = kg.asarray(np.ones((int(scale * rows), 16_384), np.float32), device="cuda")
        held = [f(x) for _ in range(8)]
        held[-1].wait()
        del f, x, held
    gc.collect()
    assert kg.memory("cuda").cached <= 0.25 * every + 64 * MEGABYTE
    assert torch.empty(int(0.6 * scale * every), dtype=torch.uint8, device="cuda").nbytes
    torch.cuda.empty_cache()


@pytest.mark.parametrize("name", LIBRARIES)
def test_memory_comes_from_another_library(name: str) -> None:
    pytest.importorskip(name)
    if name == "torch" and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("PyTorch without CUDA")
    f = kg.kernel_graph(device="cuda")(lambda x: np.sort(x) * 2 + 1)
    try:
        kg.use_allocator(name, "cuda")
        for n in (100, 5000, 1 << 20):
            values = np.random.default_rng(n).normal(size=n)
            np.testing.assert_array_equal(np.asarray(f(kg.asarray(values, device="cuda"))), np.sort(values) * 2 + 1)
    finally:
        kg.use_allocator("driver", "cuda")
    values = np.arange(1000.0)
    np.testing.assert_array_equal(np.asarray(f(kg.asarray(values, device="cuda"))), values * 2 + 1)


def test_an_operator_returns_before_its_operand_is_there() -> None:
    x = kg.asarray(np.ones((8192, 8192), np.float32), device="cuda")
    y = np.sqrt(x) + x
    y.wait()
    for _ in range(20):
        y = np.sort(y, axis=1)
    z = y * 2.0 - x
    assert not z.is_ready()
    np.testing.assert_array_equal(np.asarray(z), np.full((8192, 8192), 3.0, np.float32))


def test_threads_make_and_drop_functions_while_the_account_stays_right() -> None:
    failures: list[BaseException] = []

    def use_in_thread(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(20):
                f, n = kg.kernel_graph(device="cuda")(sorted_rows), rng.choice((16, 200, 1000))
                values = np.random.default_rng(n).normal(size=(n, 256))
                np.testing.assert_allclose(np.asarray(f(kg.asarray(values, device="cuda"))), sorted_rows(values))
                account = kg.memory("cuda")
                assert account.reserved == sum(account.in_use.values()) + account.cached
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use_in_thread, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
