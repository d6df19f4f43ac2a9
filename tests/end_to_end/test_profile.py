"""A profile shows every kernel, copy, wait and phase, and costs nothing when it is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import types
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit.kernel_graph import KernelGraph
from kernelgraph.runtime.core import profile as recording
from kernelgraph.runtime.core.perfetto import chrome_trace_of_profile
from kernelgraph.runtime.core.profile import Span
from kernelgraph.runtime.devices.cuda import device as cuda
from kernelgraph.runtime.engine.engine import native_engine_functions
from kernelgraph.runtime.engine.run import EngineRunEvent
from tests.faults import opened
from tests.runtime.cuda_fake import FakeBlas, FakeContext

X = np.random.default_rng(0).random((300, 300))


def two_branches(x: Any, y: Any) -> Any:
    a = np.sort(np.exp(x), axis=1).sum(1)
    b = np.sort(np.tanh(y), axis=0).sum(1)
    return a, b


def names(spans: Any, process: str) -> Counter[str]:
    return Counter(s.name for s in spans if s.process == process and s.kind in ("kernel", "library"))


def test_every_task_of_every_call_is_there_with_its_line() -> None:
    f = kg.kernel_graph(device="cpu")(two_branches)
    tasks = Counter(t.name for t in kg.kernel_graph(device="cpu")(two_branches).program(X, X).tasks)
    x = kg.asarray(X, device="cpu")
    with kg.profile() as p:
        results = [f(x, x) for _ in range(3)]
    assert names(p.spans, "cpu") == Counter({name: 3 * n for name, n in tasks.items()})
    for span in p.spans:
        assert span.end >= span.start >= 0
        if span.process == "cpu" and span.kind != "wait":
            assert span.line.startswith("test_profile.py:") and span.program == "two_branches"
    numbered = Counter((s.run, s.task) for s in p.spans if s.task >= 0)
    assert numbered == Counter((run, task) for run in range(3) for task in range(tasks.total()))
    for a, b in results:
        np.testing.assert_allclose(a, np.sort(np.exp(X), axis=1).sum(1))
        np.testing.assert_allclose(b, np.sort(np.tanh(X), axis=0).sum(1))
    phases = Counter(s.kind for s in p.spans if s.process == "host")
    assert phases["call"] == phases["launch"] == phases["dispatch"] == 3
    assert phases["trace"] == phases["compile"] == 1
    for line in ("exp", "sort", "two_branches", "busy for"):
        assert line in p.table()


def test_streams_run_side_by_side() -> None:
    f = kg.kernel_graph(device="cpu", streams=2)(two_branches)
    x = kg.asarray(np.tile(X, (3, 1)), device="cpu")
    kg.waitall()
    f(x, x)[0].wait()
    for _ in range(10):
        with kg.profile() as p:
            f(x, x)
        found = [s for s in p.spans if s.process == "cpu" and s.kind != "wait"]
        for track in {s.track for s in found}:
            mine = [s for s in found if s.track == track]
            assert all(a.end <= b.start for a, b in pairwise(mine))  # a stream is in order
        if any(a.track != b.track and a.start < b.end and b.start < a.end for a in found for b in found):
            return
    pytest.fail("streams never overlapped")


def test_small_plans_are_on_the_callers_track() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x: np.exp(x) + 1)
    x = np.ones(10)
    with kg.profile() as p:
        f(x)
    (span,) = [s for s in p.spans if s.kind == "kernel"]
    assert (span.process, span.track) == ("host", threading.current_thread().name)


def test_a_wait_is_a_span_at_the_users_line() -> None:
    f = kg.kernel_graph(device="cpu")(two_branches)
    x = kg.asarray(np.tile(X, (6, 1)), device="cpu")
    f(x, x)[0].wait()
    with kg.profile() as p:
        f(x, x)[0].wait()
    assert any(s.kind == "wait" and s.process == "host" and "test_profile.py" in s.line for s in p.spans)


def test_the_trace_nests(tmp_path: Path) -> None:
    """What Perfetto asks for: on each track, spans follow or contain each other."""
    f = kg.kernel_graph(device="cpu")(two_branches)
    x = kg.asarray(X, device="cpu")
    with kg.profile() as p:
        for _ in range(4):
            f(x, x)
    p.save(tmp_path / "trace.json")
    found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [e for e in found if e["ph"] == "X"]
    predicted = [e for e in spans if e["cat"] == "predicted"]
    assert len(spans) == len(p.spans) + len(predicted) and all(e["name"] for e in spans)
    assert len(predicted) == len(f.plan(x, x).tasks)
    named = {(e["pid"], e["tid"]) for e in found if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in spans} == named
    check_nesting(spans)


def test_a_trace_has_tracks_in_order_arrows_and_counters() -> None:
    """Perfetto orders tracks by number, and takes a track whose number is its process' for the main thread."""
    spans = [Span("call", "f", 0.0, 40.0, "host", "MainThread"), Span("wait", "", 30.0, 31.0, "host", "MainThread")]
    for run in range(2):
        for task, stream in enumerate([10, 2, 2]):
            start = 20.0 * run + 4 * task
            spans.append(Span("kernel", f"k{task}", start, start + 3, "cpu", f"stream {stream}", "", "f", 8, run, task))
    events = chrome_trace_of_profile(spans, {"f": {1: [0], 2: [], 0: []}})["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert [names[tid] for tid in sorted(names)] == ["stream 2", "stream 10", "MainThread"]
    assert not {e["pid"] for e in events} & names.keys() and all(e["name"] for e in events)
    slices = {(e["args"].get("run"), e["args"].get("task")): e for e in events if e["ph"] == "X"}
    for number, run in ((1, 0), (2, 1)):
        leaves, comes = (next(e for e in events if e.get("id") == number and e["ph"] == phase) for phase in "sf")
        assert leaves["tid"] == slices[run, 0]["tid"] and leaves["ts"] == slices[run, 0]["ts"] + 3
        assert comes["tid"] == slices[run, 1]["tid"] and comes["ts"] == slices[run, 1]["ts"]
    assert sum(e["ph"] == "s" for e in events) == 2
    counts = [e["args"]["tasks"] for e in events if e["ph"] == "C"]
    assert max(counts) == 1 and counts[-1] == 0


def check_nesting(spans: Any) -> None:
    tracks: dict[Any, list[Any]] = {}
    for e in spans:
        tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for mine in tracks.values():
        for i, (a, b) in enumerate(mine):
            for c, d in mine[:i]:
                assert b <= c + 0.01 or d <= a + 0.01 or (a >= c - 0.01 and b <= d + 0.01) or (c >= a and d <= b)


def test_spans_that_cross_get_tracks_of_their_own() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        starts, lengths = rng.integers(0, 50, 20), rng.integers(0, 30, 20)
        spans = [
            Span("kernel", "k", float(s), float(s + n), "cpu", "stream 0") for s, n in zip(starts, lengths, strict=True)
        ]
        found = [e for e in chrome_trace_of_profile(spans)["traceEvents"] if e["ph"] == "X"]
        assert len(found) == 20
        check_nesting(found)


def test_nothing_is_left_behind_and_nothing_is_measured_when_it_is_off() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x: np.exp(x) - 2)
    x = np.ones(10)
    f(x)
    before = KernelGraph.__call__, EngineRunEvent.wait, kg.settings.engine
    with pytest.raises(ZeroDivisionError), kg.profile() as p:
        f(x)
        raise ZeroDivisionError
    assert (KernelGraph.__call__, EngineRunEvent.wait, kg.settings.engine) == before
    assert recording.active is None
    f(x)
    assert sum(s.kind == "call" for s in p.spans) <= 1
    with kg.profile(), pytest.raises(kg.OptionError, match="already"), kg.profile():
        pass


@pytest.mark.skipif(native_engine_functions() is None, reason="the engine cannot be built here")
def test_calls_begin_natively_after_a_profile_of_the_first() -> None:
    text = """
        import kernelgraph as kg
        f = kg.kernel_graph(lambda x: x + 1.0, device="cpu")
        with kg.profile() as p:
            f(1.0), f(1.0)
        f(1.0)
        print(type(kg.KernelGraph.__call__).__name__, sum(s.kind == "call" for s in p.spans))
    """
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(text)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=given)
    assert ended.stdout.split() == ["wrapper_descriptor", "2"]


def test_nvtx_gets_the_users_names_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed, popped = [], []
    module = types.ModuleType("nvtx")
    module.push_range = lambda message, domain: pushed.append(message)  # type: ignore[attr-defined]
    module.pop_range = popped.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", module)
    f = kg.kernel_graph(device="cpu")(two_branches)
    with kg.profile():
        f(X[:4, :4], X[:4, :4])
    assert len(pushed) == len(popped)
    assert any(text.startswith("call two_branches (test_profile.py:") for text in pushed)
    assert any(text.startswith("kernel exp") and "test_profile.py:" in text for text in pushed)


def test_on_a_gpu_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and copies have the GPU's times and its streams."""
    monkeypatch.setattr(cuda, "compile_cubins", lambda kernels, cc: list(kernels))
    context = FakeContext()
    device: Any = cuda.CUDADevice(0, context)
    device.blas = FakeBlas(context, device.pool.allocate)
    driver = context.driver
    with opened("cuda", device), kg.override(tune=False):
        f = kg.kernel_graph(device="cuda", streams=2)(lambda x: (np.exp(x).sum(0), np.tanh(x).sum(1)))
        tasks = Counter(t.name for t in f.program(X[:4, :4]).tasks)
        small = X[:4, :4].copy()
        f(small)
        plain = driver.to_device
        with kg.profile() as p:
            for _ in range(2):
                results = f(small)
            np.testing.assert_allclose(results[0], np.exp(small).sum(0))
        assert names(p.spans, "cuda:0") == Counter({name: 2 * n for name, n in tasks.items()})
        copies = [s for s in p.spans if s.process == "cuda:0" and s.kind == "copy"]
        assert {s.name for s in copies} == {"to device", "to host"} and {s.nbytes for s in copies} == {128, 32}
        assert len({s.track for s in p.spans if s.process == "cuda:0" and s.kind == "kernel"}) > 1
        assert driver.to_device == plain and device.marks is None
        np.testing.assert_allclose(f(small)[1], np.tanh(small).sum(1))


def test_one_profile_at_a_time_in_all_threads_and_left_in_any() -> None:
    f = kg.kernel_graph(lambda x: x * 3 + 1, device="cpu")
    x = np.arange(4.0)
    block = kg.profile()
    found = block.__enter__()
    refusals: list[BaseException] = []

    def other() -> None:
        f(x)
        try:
            with kg.profile():
                pass
        except kg.OptionError as error:
            refusals.append(error)
        block.__exit__(None, None, None)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert len(refusals) == 1 and "a profile is on already" in str(refusals[0])
    assert any(span.kind == "call" for span in found.spans)
    with kg.profile() as again:
        f(x)
    assert again.spans


def test_a_profile_has_the_memory_of_each_device_after_each_call() -> None:
    f = kg.kernel_graph(device="cpu")(lambda x: np.exp(x) + x)
    x = kg.asarray(np.ones(1 << 17), device="cpu")
    with kg.profile() as profile:
        kept = [f(x).wait() for _ in range(4)]
    found = [sample for sample in profile.memory if sample.process == "cpu"]
    assert len(found) >= 4 and found[-1].in_use >= found[0].in_use + 3 * x.nbytes
    assert all(0 < sample.in_use <= sample.reserved for sample in found)
    assert "cpu memory: at most" in profile.table() and len(kept) == 4
    moments = chrome_trace_of_profile(profile.spans, samples=profile.memory)["traceEvents"]
    assert sum(event["name"] == "memory of cpu" and event["ph"] == "C" for event in moments) >= 4
