"""What happens while a profile is on, in; spans on one clock out. They make a table and a Chrome trace.

`active` is the recorder in force, if any. While there is one, `settings.engine` is "profile": every short way of a call
asks for "async" and so leaves the call to the general one, which records. Nothing is asked for when no profile is on.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from .frozen import frozen
from .readable_text import byte_count_in_words

HOST = "host"


@frozen
class Span:
    """start and end: microseconds from the start of the profile. kind: kernel, library, copy, wait, or a phase of the
    host (call, in NumPy, guard, trace, plan, compile, launch). process, track: a device and its stream, or host and
    thread.
    run: which of the profile's runs of a plan it belongs to, from 0; task, event: their numbers in that plan, of a wait
    the event that it waits for; -1 where there is none."""

    kind: str
    name: str
    start: float
    end: float
    process: str
    track: str
    line: str = ""
    program: str = ""
    nbytes: int = 0
    run: int = -1
    task: int = -1
    event: int = -1

    @property
    def duration(self) -> float:
        return self.end - self.start


@frozen
class MemorySample:
    """The bytes of a device at a moment, in microseconds from the start of the profile."""

    at: float
    process: str
    in_use: int
    reserved: int


Later = Callable[[], Iterable[Span]]


class ProfileRecorder:
    """Collects spans.

    What is known only when work is done is read at the end (`read_device_times_at_end`). May be used by any thread.
    """

    def __init__(self) -> None:
        self.began = time.monotonic_ns()
        self.spans: list[Span] = []
        self.samples: list[MemorySample] = []
        self._later: list[Later] = []
        self._runs = itertools.count()
        self._push, self._pop = _import_nvtx()

    def microseconds_since_start(self, nanoseconds: int) -> float:
        """A moment of the monotonic clock, in microseconds from the start."""
        return (nanoseconds - self.began) / 1e3

    def note_memory(self, process: str, statistics: Mapping[str, int]) -> None:
        """What a device holds now."""
        at = self.microseconds_since_start(time.monotonic_ns())
        self.samples.append(MemorySample(at, process, statistics["in_use"], statistics["reserved"]))

    def next_run(self) -> int:
        """The number of a run of a plan that starts now."""
        return next(self._runs)

    def read_device_times_at_end(self, read: Later) -> None:
        self._later.append(read)

    @contextmanager
    def host_span(
        self, kind: str, name: str, line: str = "", program: str = "", nbytes: int = 0, run: int = -1, task: int = -1
    ) -> Iterator[None]:
        """A span of the calling thread. An NVTX range too, where the package nvtx is installed."""
        self._push(f"{kind} {name}" + (f" ({line})" if line else ""))
        start = time.monotonic_ns()
        try:
            yield
        finally:
            end = time.monotonic_ns()
            self._pop()
            track = threading.current_thread().name
            begun, ended = self.microseconds_since_start(start), self.microseconds_since_start(end)
            self.spans.append(Span(kind, name, begun, ended, HOST, track, line, program, nbytes, run, task))

    def finish(self) -> list[Span]:
        """All spans, by their start; waits for work that is not done."""
        for read in self._later:
            self.spans += read()
        self._later.clear()
        self.spans.sort(key=lambda s: (s.start, -s.end))
        return self.spans


active: ProfileRecorder | None = None


def _import_nvtx() -> tuple[Callable[[str], Any], Callable[[], Any]]:
    try:
        nvtx = import_module("nvtx")
    except ImportError:
        return lambda text: None, lambda: None
    return (lambda text: nvtx.push_range(message=text, domain="kernelgraph")), lambda: nvtx.pop_range("kernelgraph")


def format_profile_table(spans: Sequence[Span], samples: Sequence[MemorySample] = ()) -> str:
    """For each kind and name: how often, microseconds in all, the mean, the least and the most; the longest first. Then
    how long each stream was busy, and the most memory of each device."""
    groups: dict[tuple[str, str, str], list[Span]] = {}
    for span in spans:
        groups.setdefault((span.process, span.kind, span.name), []).append(span)
    rows = []
    for (process, kind, name), found in groups.items():
        times = [s.duration for s in found]
        line = next((s.line for s in found if s.line), "")
        rows.append((sum(times), process, kind, name, len(times), min(times), max(times), line))
    rows.sort(key=lambda row: (row[1] == HOST, -row[0]))
    head = (
        f"{'where':<8} {'what':<8} {'name':<32} {'times':>6} {'total us':>11} {'mean':>9} {'min':>9} {'max':>9}  line"
    )
    lines = [head]
    for total, process, kind, name, count, least, most, line in rows:
        shown = name if len(name) <= 32 else name[:29] + "..."
        lines.append(
            f"{process:<8} {kind:<8} {shown:<32} {count:>6} {total:>11.1f} {total / count:>9.1f} {least:>9.1f} "
            f"{most:>9.1f}  {line}".rstrip()
        )
    for (process, track), busy in sorted(_profiled_busy_time_per_stream(spans).items()):
        lines.append(f"{process} {track}: busy for {busy:.1f} us")
    for process in dict.fromkeys(sample.process for sample in samples):
        held = [(sample.in_use, sample.reserved) for sample in samples if sample.process == process]
        in_use, reserved = (byte_count_in_words(max(column)) for column in zip(*held, strict=True))
        lines.append(f"{process} memory: at most {in_use} in use, {reserved} reserved")
    return "\n".join(lines)


def _profiled_busy_time_per_stream(spans: Sequence[Span]) -> dict[tuple[str, str], float]:
    """Microseconds of work on each stream of each device; waits are none."""
    found: dict[tuple[str, str], float] = {}
    for s in spans:
        if s.process != HOST and s.kind != "wait":
            found[s.process, s.track] = found.get((s.process, s.track), 0.0) + s.duration
    return found
