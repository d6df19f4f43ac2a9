"""Streams of the caller's, and captures into somebody's graph, on a GPU in memory."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda import device as cuda
from tests.dsl.gpu_in_memory import ByInterface, Lender, X, function


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


def test_loops_become_part_of_somebody_elses_graph(gpu: cuda.CUDADevice) -> None:
    def halvings(x: Any) -> Any:
        return kg.while_loop(lambda c: c[0].max() > 1, lambda c: (c[0] * 0.5, c[1] + 1), (x, 0))

    f = kg.kernel_graph(halvings, device="cuda")
    lender, driver = Lender(gpu.context), gpu.context.driver
    made = lender.array(X)
    x = ByInterface(made.lender, made.memory, made.view)
    gpu.context.synchronize()
    driver.begin_capture(lender.handle, 0)
    with kg.stream(lender.handle):
        found = f(x)
    code, graph = driver.end_capture(lender.handle)
    assert code == 0
    _, executable = driver.instantiate(graph)
    for factor in (1, 40, 0):
        x.late(X * factor)
        driver.launch_graph(executable, lender.handle)
        gpu.context.synchronize()
        for one, other in zip(found, halvings(X * factor), strict=True):
            np.testing.assert_array_equal(one._read(), np.asarray(other))


def test_a_split_function_is_not_captured(gpu: cuda.CUDADevice) -> None:
    f = kg.kernel_graph(lambda x: x * 2 if x.sum() > 0 else x, device="cuda", untraceable="split")
    x = kg.asarray(X, device="cuda").wait()
    lender = Lender(gpu.context)
    gpu.context.driver.begin_capture(lender.handle, 0)
    with pytest.raises(kg.ArgumentsError, match="reads values"), kg.stream(lender.handle):
        f(x)
    gpu.context.driver.end_capture(lender.handle)


def test_what_changes_its_arguments_is_refused_in_somebody_elses_graph(gpu: cuda.CUDADevice) -> None:
    """A replay would not change them again."""

    def adding(held: dict[str, Any], x: Any) -> Any:
        held["n"] += 1
        return x * 2

    f, held = kg.kernel_graph(adding, device="cuda"), {"n": 0}
    x = kg.asarray(X, device="cuda").wait()
    lender = Lender(gpu.context)
    f(held, x)
    for _ in range(2):
        gpu.context.driver.begin_capture(lender.handle, 0)
        with kg.stream(lender.handle), pytest.raises(kg.ArgumentsError, match="changes what its arguments hold"):
            f(held, x)
        gpu.context.driver.end_capture(lender.handle)
    assert held == {"n": 1}
