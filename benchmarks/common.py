"""Timing for all benchmarks: interleaved candidates in, medians and ratios out as a Markdown table.

Machines drift, so every candidate is timed in the same run, in rounds, and what counts is the ratio of medians.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

Clock = Callable[[Callable[[], Any], int], float]
"""Seconds of one call, from `calls` calls in a row."""


LONG = 0.1  # seconds of a call that no other one warms up, and that a few samples of are enough


def wall_clock(call: Callable[[], Any], calls: int) -> float:
    """For work that is done when the call returns."""
    repeat = range(calls)
    start = time.perf_counter()
    for _ in repeat:
        call()
    return (time.perf_counter() - start) / calls


def clock_of(sync: Callable[[], Any]) -> Clock:
    """For work that goes on when the call returns, until `sync` has waited for it."""

    def clock(call: Callable[[], Any], calls: int) -> float:
        sync()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        sync()
        return (time.perf_counter() - start) / calls

    return clock


def interleave(
    candidates: Mapping[str, Callable[[], Any]],
    seconds: float,
    clock: Clock = wall_clock,
    sample_seconds: float = 2e-3,
    pause: float = 2e-3,
    least: int = 5,
) -> dict[str, list[float]]:
    """Seconds a call of each candidate, one sample a round, for about `seconds` in all and at least `least` rounds.

    A sample is one untimed call (none before calls of LONG seconds), then as many as fill `sample_seconds`. The pause
    before it lets the threads of the candidate before stop spinning.
    """
    calls = {}
    for name, call in candidates.items():
        call()
        once = clock(call, 1)
        if once < LONG:
            once = min(once, clock(call, 1), clock(call, 1))
        calls[name] = max(1, math.ceil(sample_seconds / max(once, 1e-9)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds
    order, shuffled = list(candidates), random.Random(0)
    while len(samples[order[0]]) < least or time.perf_counter() < end:
        for name in order:
            time.sleep(pause)
            if min(samples[name], default=0.0) < LONG:
                candidates[name]()
            samples[name].append(clock(candidates[name], calls[name]))
        shuffled.shuffle(order)  # so that nobody always runs after the same neighbour
    return samples


@dataclass
class Result:
    """One workload's medians in seconds a call. `nbytes` is the least traffic, or 0 where a rate says nothing."""

    workload: str
    samples: dict[str, list[float]]
    nbytes: int = 0
    notes: tuple[str, ...] = ()
    ours: str = "kernelgraph"

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

    def markdown(self) -> str:
        """A table: median, fastest, rate, and our median divided by this candidate's (below 1: we are faster)."""
        rate = "GB/s" if self.nbytes else ""
        lines = [f"### {self.workload}", "", f"| | median | fastest | {rate} | ours / this |", "|---|--:|--:|--:|--:|"]
        for name, samples in self.samples.items():
            middle = self.median(name)
            speed = f"{self.nbytes / middle / 1e9:.1f}" if self.nbytes else ""
            ratio = f"{self.median(self.ours) / middle:.2f}" if self.ours in self.samples else ""
            lines.append(f"| {name} | {show(middle)} | {show(min(samples))} | {speed} | {ratio} |")
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes), *([""] if self.notes else [])])


def print_tables(
    works: Iterable[Any],
    candidates: Callable[[Any], tuple[dict[str, Callable[[], Any]], list[str]]],
    clock: Callable[[Any], Clock],
    seconds: float,
    release: Callable[[], None],
) -> list[str]:
    """A table for each workload. One that fails is named, the others still count, and the names are returned."""
    failed = []
    for work in works:
        try:
            calls, notes = candidates(work)
            samples = interleave(calls, seconds, clock(work), sample_seconds=20e-3)
            print(Result(work.title, samples, work.nbytes, tuple(notes)).markdown(), flush=True)
        except Exception as error:
            print(f"### {work.title}\n\n- fails: {type(error).__name__}: {str(error)[:300]}\n", flush=True)
            failed.append(work.name)
        calls = {}
        release()
    return failed


def show(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


@dataclass
class Peers:
    """The libraries to compare with; what is not installed is remembered in `skipped`, to be named."""

    wanted: Sequence[str]
    modules: dict[str, ModuleType] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def load(self) -> Peers:
        for name in self.wanted:
            try:
                self.modules[name] = importlib.import_module(name)
            except ImportError as error:
                self.skipped[name] = "not installed" if isinstance(error, ModuleNotFoundError) else str(error)
        return self

    def get(self, name: str) -> ModuleType | None:
        return self.modules.get(name)


def machine(threads: int | None, packages: Iterable[str], device: str = "") -> str:
    """What a figure is worth nothing without: machine, versions, commit, date."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    rows = {
        "machine": device or f"{_cpu_name()}, {cores} cores",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version}" for name, version in _versions(packages)),
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    if threads:
        rows["threads"] = f"{threads} for every candidate"
    return "\n".join(f"- {name}: {value}" for name, value in rows.items())


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line for line in lines if line.startswith("flags")), "")
    wide = next((label for flag, label in ((" avx512f", "AVX-512"), (" avx2", "AVX2")) if flag in flags), "")
    return " ".join(filter(None, (names[0] if names else platform.machine(), wide)))


def _versions(packages: Iterable[str]) -> list[tuple[str, str]]:
    found = []
    for name in packages:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        dirty = " with changes" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short", "HEAD") + dirty
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def pin(threads: int) -> None:
    """Give this process `threads` cores and tell every library. Call it before the first import of NumPy."""
    if "numpy" in sys.modules:
        raise RuntimeError("pin() comes before the first import of NumPy")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))
    for variable in ("OMP", "MKL", "OPENBLAS", "NUMBA", "NUMEXPR"):
        os.environ[f"{variable}_NUM_THREADS"] = str(threads)
    os.environ["NUMEXPR_MAX_THREADS"] = os.environ["KERNELGRAPH_THREADS"] = str(threads)
