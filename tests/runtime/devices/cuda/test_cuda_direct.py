"""Plans of one launch by the short way, and timed runs, on a GPU in memory."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelgraph.runtime.core.errors import DeviceLost
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.devices.cuda.driver.streams import CapturedStreamEvent
from kernelgraph.runtime.devices.cuda.graphs import one_launch
from kernelgraph.runtime.engine.direct_call import DirectArgument
from tests.runtime.cuda_calls import call, chain, counted, device_on, ready, start
from tests.runtime.cuda_fake import FakeContext


@pytest.fixture(autouse=True)
def _text_as_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU runs text: nothing is compiled."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))


def directly(device: Any, executable: Any) -> Any:
    """f(after, x): a call of a plan of one launch by its direct way, else by the ordinary one; the event, and what must
    stay alive."""
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])

    def run(after: Any, source: Any) -> Any:
        target = device.allocate(160)
        event = go((after,) if after else (), 0, source.address, target.address)
        direct = event is not None
        if not direct:
            memories = [source.address, target.address]
            (event,) = executable.run(memories, None, (), [(0, after)] if after else ())
        return event, target, direct

    return run


@pytest.mark.parametrize("refused", ["", "begin_capture", "instantiate", "update_kernel", "launch_graph"])
@pytest.mark.parametrize("chained", [False, True])
def test_a_launch_becomes_a_graph_of_one_node(monkeypatch: pytest.MonkeyPatch, refused: str, chained: bool) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 3)
    device = device_on(FakeContext())
    executable, _ = start(device, chain())
    driver = device.context.driver
    run = directly(device, executable)
    kept: list[Any] = []
    for turn in range(40):
        x = np.arange(40, dtype="f4") + turn
        source, after = device.allocate(160), None
        if chained and turn % 4:
            after, source, x = kept[-1][0], kept[-1][2], 2 * kept[-1][1]
        else:
            device.upload(x, source).wait()
        if turn == 3 and refused:
            driver.refuse[refused] = 1
        event, target, direct = run(after, source)
        assert not direct or turn > 3
        kept.append((event, x, target, source, direct))
    for event, x, target, *_ in kept:
        event.wait()
        got = np.empty_like(x)
        device.download(target, got)
        np.testing.assert_array_equal(got, x + x)
    count = sum(direct for *_, direct in kept)
    if refused in ("begin_capture", "instantiate"):
        assert count == counted(device, "launch_graph") == 0
    else:
        assert count >= 20
        assert len({event.stream for event, *_, direct in kept if direct}) == counted(device, "instantiate") > 1
        assert chained or count == 36 - bool(refused)
    run, executable = None, None
    gc.collect()
    assert not driver.graphs and not driver.functions


def test_trimming_lets_go_of_graphs_of_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no memory of their own, and are made anew."""
    monkeypatch.setattr(one_launch, "PLAIN", 1)
    device = device_on(FakeContext())
    executable, _ = start(device, chain())
    run, source = directly(device, executable), device.allocate(160)
    device.upload(np.arange(40, dtype="f4"), source).wait()
    for _ in range(2):
        found = [run(None, source) for _ in range(4)]
        assert [direct for *_, direct in found] == [False, False, True, True] and device.context.driver.graphs
        for event, target, _ in found:
            event.wait()
            got = np.empty(40, "f4")
            device.download(target, got)
            np.testing.assert_array_equal(got, 2 * np.arange(40, dtype="f4"))
        device.trim()
        assert not device.context.driver.graphs


def test_a_direct_call_leaves_to_others_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 0)
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    (source, upload), target = inputs[0], device.allocate(160)
    assert go((), 0, source.address, target.address) is None  # makes the graphs
    assert go((), 0, source.address, target.address) is not None
    failed = device.events.record(device._streams[False][0])
    failed.error = ValueError("no")
    assert go((failed,), 0, source.address, target.address) is None
    captured = CapturedStreamEvent(device.events, 1, upload.stream)
    assert go((captured,), 0, source.address, target.address) is None
    with pytest.raises(TypeError):
        go((), 0, source.address, None)
    two, _ = start(device, chain(4))
    assert two.direct([DirectArgument(b) for b in (*two.plan.program.inputs, *two.plan.program.outputs)]) is None


def test_a_lost_device_names_direct_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 0)
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    (source, _), targets = inputs[0], [device.allocate(160) for _ in range(2)]
    assert go((), 0, source.address, targets[0].address) is None
    event = go((), 0, source.address, targets[1].address)
    assert event is not None and not device.recent_launches
    device.context.driver.refuse["synchronize_event"] = 700
    with pytest.raises(DeviceLost, match=executable.launch_labels[0]):
        event.wait()


def test_a_direct_call_takes_new_handles_of_events_when_all_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 0)
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    (source, _), target = inputs[0], device.allocate(160)
    go((), 0, source.address, target.address)
    events = [go((), 0, source.address, target.address) for _ in range(50)]
    assert len({event.handle for event in events}) == 50
    native = next(iter(device.graphs.launched))
    device.events.free.clear()
    assert native.start(source.address, target.address) is None  # another thread has taken the last one


def test_a_direct_call_waits_for_streams_that_no_plan_is_launched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 0)
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    program = executable.plan.program
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    (source, upload), targets = inputs[0], [device.allocate(160) for _ in range(3)]
    upload.wait()
    go((), 0, source.address, targets[0].address)
    x, log = np.arange(40, dtype="f4"), device.context.driver.log
    first = device.upload(2 * x, source)
    log.clear()
    second = go((first,), 0, source.address, targets[0].address)
    assert counted(device, "wait") == 1
    third = go((second, first), 0, targets[0].address, targets[1].address)  # on the stream of the second
    assert third.stream == second.stream and counted(device, "wait") == 2
    third.wait()
    device.download(targets[1], x)
    np.testing.assert_array_equal(x, 8 * np.arange(40, dtype="f4"))


def test_a_direct_call_on_somebodys_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_launch, "PLAIN", 0)
    monkeypatch.setattr(one_launch, "CALLERS", 2)
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    program, driver = executable.plan.program, device.context.driver
    go = executable.direct([DirectArgument(b) for b in (*program.inputs, *program.outputs)])
    (source, upload), target = inputs[0], device.allocate(160)
    streams = [device.context.stream(False).handle for _ in range(3)]
    for stream in streams:
        assert go((upload,), stream, source.address, target.address) is None
    driver.log.clear()
    events = [go((upload,), stream, source.address, target.address) for stream in streams]
    assert [event is None for event in events] == [False, False, True]  # only so many graphs are kept
    assert [entry[1] for entry in driver.log if entry[0] == "launch_graph"] == streams[:2]
    assert not {event.stream for event in events[:2]} & {*streams, *device._numbers}  # its handle may be used again
    events[0].wait()
    got = np.empty(40, "f4")
    device.download(target, got)
    np.testing.assert_array_equal(got, 2 * np.arange(40, dtype="f4"))
    del go, executable
    gc.collect()
    assert not driver.graphs and not driver.functions


def test_winners_are_kept_by_gpu_and_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_on(FakeContext())
    first = device.identity
    assert first == device.identity and "H200" in first and "13.0" in first and "nvmath-python" in first
    monkeypatch.setattr(device.context.driver, "version", lambda: (13, 1))
    second = device.identity
    device.properties = replace(device.properties, multiprocessors=100)
    assert len({first, second, device.identity}) == 3


@pytest.mark.parametrize("way", ["streams", "replay"])
@pytest.mark.parametrize("seed", range(4))
def test_timed_runs_have_the_device_to_themselves(way: str, seed: int) -> None:
    device = device_on(FakeContext(seed), replay=True)
    plan = ready(chain(4))
    assert set(device.ways(plan)) == {"streams", "replay"}
    timed, other = device.prepare(plan, way), device.prepare(plan, "streams")
    _, inputs = start(device, chain(4))
    kept, times = [], []
    for turn in range(12):
        kept.append(call(device, timed if turn % 2 else other, inputs, timed=turn % 2 == 1))
        if turn % 2:
            (_, timing), *_ = kept[-1][1]
            times.append(timing)
            assert timing.query() is None or math.isnan(timing.query())
    device.synchronize()
    found = [timing.query() for timing in times]
    replayed = way == "replay"
    assert [math.isnan(us) for us in found] == [replayed and turn < 3 for turn in range(6)]
    steps = 3 + 2 * len(plan.steps)
    assert all(0 < us <= steps + 2 * len(plan.program.buffers) for us in found if not math.isnan(us))


@pytest.mark.parametrize("way", ["streams", "replay"])
def test_on_an_idle_device_a_timed_run_is_issued_as_any_other(way: str) -> None:
    device = device_on(FakeContext(), replay=True)
    executable = device.prepare(ready(chain(4)), way)
    _, inputs = start(device, chain(4))
    kept = []
    for _ in range(3):
        kept.append(call(device, executable, inputs))
        device.synchronize()
    log, found = device.context.driver.log, []
    for timed in (False, True):
        log.clear()
        kept.append(call(device, executable, [(inputs[0][0], None)], timed=timed))
        own = [entry[0] for entry in log if device.clock._stream not in entry]
        found.append([name for name in own if name != "record"])
        device.synchronize()
    assert found[0] == found[1] and found[0]
    assert 0 < kept[-1][1][0][1].query() < 1e6


def test_a_timed_run_that_fails_does_not_count() -> None:
    device = device_on(FakeContext())
    executable, inputs = start(device, chain())
    device.context.driver.refuse["launch"] = 1
    _, ((events, timing), *_) = call(device, executable, inputs, timed=True)
    with pytest.raises(cuda.LaunchError):
        events[0].wait()
    assert math.isnan(timing.query())
