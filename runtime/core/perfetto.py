"""Spans in; a trace that https://ui.perfetto.dev and chrome://tracing open, out: tracks in order, flows, counters.

The Chrome trace format (its JSON object form). Perfetto orders tracks by their numbers alone, and calls a thread whose
number is its process' the main thread: a process has the number 1000, 2000, ..., its tracks the numbers after that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .profile import HOST, MemorySample, Span

Waits = Mapping[str, Mapping[int, Iterable[int]]]  # program -> task -> the tasks of other streams that it waits for
APART = 1000  # between the numbers of two processes


def chrome_trace_of_profile(
    spans: Sequence[Span], waits: Waits | None = None, samples: Sequence[MemorySample] = ()
) -> dict[str, Any]:
    """The trace. waits: an arrow is drawn from each task to what waits for it. samples: of memory, which are drawn.

    Spans of one track that overlap without nesting, which the format cannot show, are put on tracks beside it.

    >>> chrome_trace_of_profile([Span("kernel", "exp", 0.0, 2.0, "cpu", "stream 0")])["traceEvents"][-3]["name"]
    'exp'
    """
    placed: list[tuple[Span, str]] = []
    open_: dict[tuple[str, str], list[float]] = {}
    for span in sorted(spans, key=lambda s: (s.start, -s.end)):
        lane, track = 1, span.track
        while not _span_nests_in_trace_track(open_.setdefault((span.process, track), []), span):
            lane += 1
            track = f"{span.track} ({lane})"
        placed.append((span, track))
    numbers, names = _profile_trace_track_numbers(placed)
    events = [_profile_trace_slice_event(span, *numbers[span.process, track]) for span, track in placed]
    flows = _profile_trace_flow_events(placed, numbers, waits or {})
    return {
        "traceEvents": [*names, *events, *flows, *_profile_trace_counter_events(spans, samples, numbers)],
        "displayTimeUnit": "ms",
    }


def _profile_trace_track_numbers(
    placed: Sequence[tuple[Span, str]],
) -> tuple[dict[tuple[str, str], tuple[int, int]], list[dict[str, Any]]]:
    """The process and thread number of each track, devices before the host and streams by number; and their names."""
    tracks: dict[str, set[str]] = {}
    for span, track in placed:
        tracks.setdefault(span.process, set()).add(track)
    numbers: dict[tuple[str, str], tuple[int, int]] = {}
    names = []
    for place, process in enumerate(sorted(tracks, key=lambda p: (p == HOST, p)), 1):
        pid = APART * place
        names.append(_profile_trace_metadata_event("process_name", pid, 0, process))
        for i, track in enumerate(sorted(tracks[process], key=_natural_order_of_profile_tracks), 1):
            numbers[process, track] = pid, pid + i
            names.append(_profile_trace_metadata_event("thread_name", pid, pid + i, track))
    return numbers, names


def _natural_order_of_profile_tracks(text: str) -> list[tuple[int, str]]:
    """Numbers within a name by their size: stream 10 comes after stream 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", text)]


def _profile_trace_slice_event(span: Span, pid: int, tid: int) -> dict[str, Any]:
    details = {"line": span.line, "program": span.program, "bytes": span.nbytes}
    numbers = {"run": span.run, "task": span.task, "event": span.event}
    args = {k: v for k, v in details.items() if v} | {k: v for k, v in numbers.items() if v >= 0}
    return {
        "name": span.name or span.kind, "cat": span.kind, "ph": "X", "pid": pid, "tid": tid, "ts": round(span.start, 3),
        "dur": round(span.duration, 3), "args": args,
    }  # fmt: skip


def _profile_trace_flow_events(
    placed: Sequence[tuple[Span, str]], numbers: Mapping[tuple[str, str], tuple[int, int]], waits: Waits
) -> Iterable[dict[str, Any]]:
    """Two events for each arrow: where it leaves one slice, and where it comes to another."""
    tasks = {(s.process, s.program, s.run, s.task): (s, track) for s, track in placed if s.task >= 0}
    count = 0
    for (process, program, run, task), (to, to_track) in tasks.items():
        for source in waits.get(program, {}).get(task, ()):
            found = tasks.get((process, program, run, source))
            if found is None:
                continue
            count += 1
            start, start_track = found
            for phase, span, track, at in (("s", start, start_track, start.end), ("f", to, to_track, to.start)):
                pid, tid = numbers[span.process, track]
                at = min(max(at, span.start), span.end)
                event = {"name": "waits for", "cat": "event", "ph": phase, "id": count, "pid": pid, "tid": tid}
                yield event | {"ts": round(at, 3)} | ({"bp": "e"} if phase == "f" else {})


def _profile_trace_counter_events(
    spans: Sequence[Span], samples: Sequence[MemorySample], numbers: Mapping[tuple[str, str], tuple[int, int]]
) -> Iterable[dict[str, Any]]:
    """How many tasks of each device run at a time, and its memory."""
    changes: dict[str, list[tuple[float, int]]] = {}
    for span in spans:
        if span.process != HOST and span.kind != "wait":
            changes.setdefault(span.process, []).extend([(span.start, 1), (span.end, -1)])
    pids = {process: pid for (process, _), (pid, _) in numbers.items()}
    for process, moments in changes.items():
        running = 0
        for at, change in sorted(moments):
            running += change
            args = {"tasks": running}
            yield {"name": "running", "ph": "C", "pid": pids[process], "tid": 0, "ts": round(at, 3), "args": args}
    for one in samples:
        pid, held = pids.get(HOST, APART), {"in use": one.in_use, "cached": one.reserved - one.in_use}
        at = round(one.at, 3)
        yield {"name": f"memory of {one.process}", "ph": "C", "pid": pid, "tid": 0, "ts": at, "args": held}


def _span_nests_in_trace_track(ends: list[float], span: Span) -> bool:
    """Whether a span comes after the open ones of its track or lies within the innermost; it is then open itself."""
    while ends and ends[-1] <= span.start:
        ends.pop()
    if ends and span.end > ends[-1]:
        return False
    ends.append(span.end)
    return True


def _profile_trace_metadata_event(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
