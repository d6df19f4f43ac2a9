"""Streams, events, wait scopes, and what follows what: on the CPU with steps that stop until they are told to go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.devices import open_device

X = np.arange(100_000, dtype=np.float32)


class Gate:
    """A host step that copies its argument, once the gate is open."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()

        def step(x: Any, out: Any) -> None:
            self.reached.set()
            assert self.open.wait(60)
            out[...] = x

        self.slow = kg.kernel_graph(
            lambda x: kg.host(step, reads=x * 2, writes=kg.spec(x.shape, x.dtype)), device="cpu"
        )

    def opened_soon(self) -> None:
        threading.Timer(0.05, self.open.set).start()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()
    kg.waitall()


def put(values: Any = X) -> Any:
    return kg.asarray(values, device="cpu")


quick = kg.kernel_graph(lambda x: x + 1, device="cpu")


def test_each_wait_waits_for_its_own_scope(gate: Gate) -> None:
    """While a host step stands still, everything that does not follow it can be waited for."""
    x = put()
    s = kg.Stream("cpu")
    late = gate.slow(x)
    with kg.stream(s):
        soon = quick(x)
    event = s.record()
    kg.Array.wait(soon)
    event.synchronize()
    s.synchronize()
    kg.synchronize("fake")  # another device
    np.testing.assert_array_equal(quick(put()), X + 1)  # reading is waiting for one array
    assert event.query() and s.query() and soon.is_ready() and not late.is_ready()


@pytest.mark.parametrize("scope", ["array", "event", "stream", "device", "all"])
def test_each_wait_waits_for_all_of_its_scope(gate: Gate, scope: str) -> None:
    s = kg.Stream("cpu")
    with kg.stream(s):
        late = gate.slow(put())
    event = s.record()
    waits: dict[str, Callable[[], Any]] = {
        "array": late.wait,
        "event": event.synchronize,
        "stream": s.synchronize,
        "device": lambda: kg.synchronize("cpu"),
        "all": kg.waitall,
    }
    assert not late.is_ready() and not event.query() and not s.query()
    gate.opened_soon()
    waits[scope]()
    assert late.is_ready() and gate.open.is_set()
    np.testing.assert_array_equal(late, X * 2)


# what follows what


def test_calls_follow_their_arrays_and_not_each_other(gate: Gate) -> None:
    x, y = put(), put(X + 1)
    late = gate.slow(x)
    after = quick(late)
    np.testing.assert_array_equal(quick(y), X + 2)
    np.testing.assert_array_equal(quick(x), X + 1)  # both read x
    assert not late.is_ready() and not after.is_ready()
    gate.open.set()
    np.testing.assert_array_equal(after, X * 2 + 1)


def test_assignment_to_what_an_earlier_call_still_reads(gate: Gate) -> None:
    add = kg.kernel_graph(lambda u: u.__iadd__(1), device="cpu")
    u = put()
    late = gate.slow(u)
    add(u)
    np.testing.assert_array_equal(u, X + 1)  # without a wait for the reader
    assert not late.is_ready()
    gate.open.set()
    np.testing.assert_array_equal(late, X * 2)


def test_assignment_by_an_earlier_call_is_followed() -> None:
    release, out = threading.Event(), put()

    def step(x: Any, into: Any) -> None:
        assert release.wait(60)
        into[...] = x

    def assign(u: Any, x: Any) -> None:
        u[...] = kg.host(step, reads=x, writes=kg.spec(x.shape, x.dtype))

    kg.kernel_graph(assign, device="cpu")(out, put(X * 3))
    after = quick(out)
    assert not after.is_ready()
    release.set()
    np.testing.assert_array_equal(after, X * 3 + 1)
    np.testing.assert_array_equal(out, X * 3)


def test_a_stream_puts_calls_in_order(gate: Gate) -> None:
    s, t = kg.Stream("cpu"), kg.Stream("cpu")
    with kg.stream(s):
        late = gate.slow(put())
        behind = quick(put())  # reads nothing of it
    with kg.stream(t):
        free = quick(put())
    assert free.wait().is_ready() and t.query()
    assert not behind.is_ready() and not late.is_ready()
    event = s.record()
    t.wait(event)
    with kg.stream(t):
        held = quick(put())
    other = kg.Stream("cpu")
    other.wait_stream(s)
    assert not held.is_ready() and not t.query() and not other.query()
    gate.open.set()
    other.synchronize()
    np.testing.assert_array_equal(held, X + 1)
    np.testing.assert_array_equal(behind, X + 1)


def test_events_tell_the_time(gate: Gate) -> None:
    s, began = kg.Stream("cpu"), time.monotonic()
    start = s.record()
    with kg.stream(s):
        late = gate.slow(put())
    end = s.record()
    gate.opened_soon()
    took = start.elapsed_time(end)
    assert 40 < took <= (time.monotonic() - began) * 1e3  # the gate opened after 50 ms
    assert late.is_ready() and end.elapsed_time(start) == -start.elapsed_time(end)
    with pytest.raises(kg.ArgumentsError, match="same device"):
        start.elapsed_time(kg.Stream("fake").record())


def test_what_fails_raises_at_its_arrays_and_nowhere_else() -> None:
    def step(x: Any, out: Any) -> None:
        raise RuntimeError("no luck")

    bad = kg.kernel_graph(lambda x: kg.host(step, reads=x, writes=kg.spec(x.shape, x.dtype)), device="cpu")
    s = kg.Stream("cpu")
    with kg.stream(s):
        failed = bad(put())
    event = s.record()
    event.synchronize()
    s.synchronize()
    kg.synchronize("cpu")
    kg.waitall()
    with pytest.raises(RuntimeError, match="no luck"):
        failed.wait()
    with kg.stream(s):
        np.testing.assert_array_equal(quick(put()), X + 1)


def test_the_current_stream_is_the_threads_own() -> None:
    s, t = kg.Stream("cpu"), kg.Stream("cpu")
    seen: list[Any] = []
    assert kg.current_stream() is None
    with kg.stream(s) as entered:
        assert kg.current_stream() is entered is s
        with kg.stream(t):
            assert kg.current_stream() is t
            with kg.stream(None):
                assert kg.current_stream() is None
        thread = threading.Thread(target=lambda: seen.append(kg.current_stream()))
        thread.start()
        thread.join()
        inner = kg.kernel_graph(lambda x: quick(x) * 2, device="cpu")
        np.testing.assert_array_equal(inner(put()), (X + 1) * 2)  # also of calls within a trace
        np.testing.assert_array_equal(inner(X), (X + 1) * 2)
        with pytest.raises(kg.UserError):
            quick(put(), put())
    assert seen == [None] and kg.current_stream() is None
    with pytest.raises(ZeroDivisionError), kg.stream(s):
        raise ZeroDivisionError
    assert kg.current_stream() is None


def test_streams_are_refused_where_they_make_no_sense() -> None:
    s = kg.Stream("cpu")
    with pytest.raises(kg.ArgumentsError, match="wait_stream"):
        s.wait(s)  # type: ignore[arg-type]
    with pytest.raises(kg.ArgumentsError, match="no CUDA stream"):
        s.__cuda_stream__()
    with pytest.raises(kg.ArgumentsError, match=r"write s.record\(\)"):
        kg.Event()
    for priority in ("a", 1.5, None, True, 1 << 40):
        with pytest.raises(kg.OptionError, match="is no small integer"):
            kg.Stream("cpu", priority=priority)  # type: ignore[arg-type]
    assert kg.Stream("cpu", priority=np.int8(-1)).priority == -1  # type: ignore[arg-type]
    assert (s.device, s.handle, s.priority) == ("cpu", 0, 0)
    assert "cpu" in repr(s) and "cpu" in repr(s.record())


def test_a_device_without_hardware_writes_down_entry_and_exit() -> None:
    f = kg.kernel_graph(lambda x: (np.exp(x).sum(0), np.sin(x).sum(1)), device="fake", streams="max")
    x = kg.asarray(np.ones((200, 300), np.float32), device="fake")
    device: Any = open_device(("fake", 0))
    report = f.plan(x).report
    assert report is not None
    f(x)
    s = kg.Stream("fake", priority=-1)
    device.log.clear()
    with kg.stream(s):
        f(x)
    rows = [row[0] for row in device.log]
    assert rows.count("fork") == report.entry.records == 1
    assert rows.count("after") == report.entry.waits
    assert rows.count("join") == report.exit.waits
    assert rows.index("fork") < rows.index("launch") and rows[-1] == "join"
    assert s.priority == -1 and s.record().elapsed_time(s.record()) == 1
