"""Which of several ways to run a program is the fastest. Times of early calls in, the winner out, kept on disk.

`PlanTuner` decides from plain numbers and touches no clock and no device: `next_candidate` says which candidate the
next call gets, `add_sample` takes what that call's events told later. `load_stored_tuning_winner` and
`store_tuning_winner` remember winners between processes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import Any

from ..core.disk_cache import DiskCache, sha256_digest
from ..core.frozen import dataclass, field, frozen
from ..program.program import (
    Argument,
    Constant,
    Int,
    Kernel,
    Library,
    Pointer,
    Program,
    Scalar,
    Task,
    control_flow_bodies,
)

SAMPLES = 5  # of each that count
CLOSE = 0.1  # those that the fastest leads by less than this
FINAL = 20  # have so many samples before one of them wins
WARM = 1  # before them: loads code, touches memory, builds graphs
TIE = 0.01  # a candidate must be this much faster than one that comes before it
OUT = 1.5  # one whose fastest sample is this many times the slowest of another is tried no more,
ENOUGH = 3  # once both have as many samples
PATIENCE = 32  # once so many more samples were lost than count, it is left to the model
BUCKETS = 32  # size classes kept of one program
FORMAT = 1


def lower_quartile_of_measured_times(times: Sequence[float]) -> float:
    """The lower quartile: what disturbs a sample only ever lengthens it."""
    return sorted(times)[len(times) // 4]


def hodges_lehmann_of_measured_times(times: Sequence[float]) -> float:
    """The median of the means of all pairs, at least 0: what one sample has too much may be missing in another."""
    return max(0.0, statistics.median((a + b) / 2 for a, b in combinations_with_replacement(times, 2)))


@dataclass(slots=True)
class PlanTuner:
    """names: the candidates in order of preference, one stream first: the first of those within TIE of the fastest
    wins. start: the one that runs where no sample is due, and wins if too few samples count.

    winner, reason: once it is decided. times: microseconds of the samples that count, in order. usual: of such, what a
    candidate takes.
    """

    names: tuple[str, ...]
    start: int = 0
    winner: int | None = None
    reason: str = ""
    times: list[list[float]] = field(default_factory=list)
    usual: Callable[[Sequence[float]], float] = lower_quartile_of_measured_times
    _issued: list[int] = field(default_factory=list)  # calls that count, may yet count, or were to warm up
    _warmed: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)  # samples of each that did not count
    _gave_up: bool = False
    _samples: int = SAMPLES  # samples of each that is left
    _out: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.start < len(self.names):
            raise ValueError(f"start={self.start} is none of {len(self.names)} candidates")
        self.times = [[] for _ in self.names]
        self._issued = [0] * len(self.names)
        self._warmed = [0] * len(self.names)
        self.lost = [0] * len(self.names)
        self._decide_winner()

    def next_candidate(self) -> int | None:
        """The candidate that the next call is to run and time. None where `start`, or the winner, runs untimed.

        Each answer has to be followed, sooner or later, by a `add_sample` (or a `drop`) of that candidate.
        """
        if self.winner is not None:
            return None
        due = [c for c in self.live_candidates if self._issued[c] < WARM + self._samples]
        if not due:
            return None
        turns = [issued + lost for issued, lost in zip(self._issued, self.lost, strict=True)]
        fewest = min(turns[c] for c in due)
        # The first of each round moves on, so that nobody always runs after the same neighbour.
        count = len(self.names)
        first = (self.start + max(0, fewest - WARM)) % count
        chosen = min((c for c in due if turns[c] == fewest), key=lambda c: (c - first) % count)
        self._issued[chosen] += 1
        return chosen

    def add_sample(self, candidate: int, microseconds: float) -> None:
        """What a timed call took; nan where it does not count: it failed, or overlapped other work."""
        if self.winner is not None:
            return
        if math.isnan(microseconds):
            self._issued[candidate] -= 1
            self.lost[candidate] += 1
        elif self._warmed[candidate] < WARM:
            self._warmed[candidate] += 1
        else:
            self.times[candidate].append(microseconds)
            self._drop_clear_losers(candidate)
        self._decide_winner()

    def drop(self, candidate: int, why: str) -> None:
        """The candidate cannot run here."""
        if candidate not in self._out and self.winner is None:
            self._out[candidate] = why
            self._decide_winner()

    @property
    def live_candidates(self) -> list[int]:
        """The candidates that have not been given up."""
        return [c for c in range(len(self.names)) if c not in self._out]

    @property
    def is_measured(self) -> bool:
        """Whether the winner was found by the clock."""
        return (
            self.winner is not None
            and all(len(self.times[c]) >= ENOUGH for c in self.live_candidates)
            and not self._gave_up
        )

    def measurements(self) -> dict[str, float]:
        """Microseconds of each candidate that was measured."""
        return {name: self.usual(times) for name, times in zip(self.names, self.times, strict=True) if times}

    def _drop_clear_losers(self, candidate: int) -> None:
        """A few samples are enough of a candidate that is far behind another."""
        known = [c for c in self.live_candidates if len(self.times[c]) >= ENOUGH]
        if candidate in known:
            slowest = {c: max(self.times[c]) for c in known}
            best = min(known, key=lambda c: slowest[c])
            for c in known:
                if min(self.times[c]) > OUT * slowest[best]:
                    self._out[c] = f"more than {OUT} times as slow as {self.names[best]}"

    def _decide_winner(self) -> None:
        live = self.live_candidates
        if len(live) <= 1:
            self.winner = live[0] if live else self.start
            self.reason = (
                f"more than {OUT} times as fast as any other" if self.is_measured else "the only one that runs"
            )
        elif all(len(self.times[c]) >= self._samples for c in live):
            usual = {c: self.usual(self.times[c]) for c in live}
            fastest = min(live, key=lambda c: usual[c])
            behind = [c for c in live if usual[c] > usual[fastest] * (1 + CLOSE)]
            if self._samples < FINAL and len(behind) < len(live) - 1:
                self._samples = FINAL
                self._out.update((c, f"more than {CLOSE:.0%} slower than {self.names[fastest]}") for c in behind)
                return
            self.winner = next(c for c in live if usual[c] <= usual[fastest] * (1 + TIE))
            if self.winner != fastest:
                self.reason = f"within {TIE:.0%} of {self.names[fastest]}, and simpler"
            else:
                second = min((usual[c] for c in live if c != fastest), default=math.inf)
                self.reason = f"measured {second / max(usual[fastest], 1e-9):.2f} times as fast as the next"
        elif sum(self.lost) >= PATIENCE + sum(map(len, self.times)):
            self.winner = self.start if self.start in live else live[0]
            self._gave_up = True
            self.reason = f"left to the model: {sum(self.lost)} calls overlapped other work"

    def lines(self) -> Iterator[str]:
        """A line for each candidate: its typical time, its samples, why it was given up."""
        for c, name in enumerate(self.names):
            times = self.times[c]
            found = f"measured {self.usual(times):.1f} us ({len(times)} samples: " if times else "not measured"
            found += ", ".join(f"{t:.1f}" for t in times) + ")" if times else ""
            yield f"{'*' if c == self.winner else ' '} {name}: {found}" + (
                f"; out: {self._out[c]}" if c in self._out else ""
            )


@frozen
class StoredWinner:
    """A winner from the disk. exact: of these very sizes' bucket, not of a neighbour's."""

    winner: str
    times: Mapping[str, float]
    exact: bool


def size_free_program_key(program: Program, *parts: object) -> str:
    """Names a program without its sizes, together with `parts`: device, driver, versions, options."""
    tasks = [_task_without_sizes(task) for task in program.tasks]
    kinds = [b.kind for b in program.buffers]
    return sha256_digest(FORMAT, program.target, tasks, kinds, program.inputs, program.outputs, program.scalars, *parts)


def _task_without_sizes(task: Task) -> tuple[Any, ...]:
    kernel = task.kernel
    what: Any
    if isinstance(kernel, Library):
        what = kernel.name, kernel.attrs
    elif isinstance(kernel, Kernel):
        what = _tuner_key_of_kernel_text(kernel)
    else:
        follows = getattr(kernel, "follows", ())
        what = [follows, *([_task_without_sizes(t) for t in body.tasks] for body in control_flow_bodies(task))]
    regions = [(r.buffer, len(r.shape), r.dtype) for r in (*task.reads, *task.writes)]
    arguments = [_tuner_key_of_argument(a) for a in task.arguments]
    return (what, arguments, regions, len(task.reads), sorted(task.same_element))


def _tuner_key_of_argument(argument: Argument) -> object:
    match argument:
        case Pointer(buffer, _):
            return buffer
        case Int():
            return "i"
        case Constant(_, dtype):
            return dtype
        case Scalar(index, dtype):
            return (index, dtype)


@lru_cache(4096)
def _tuner_key_of_kernel_text(kernel: Kernel) -> str:
    return sha256_digest(kernel.source, kernel.options)


def size_bucket_of_program(program: Program) -> tuple[int, ...]:
    """The power of two just above each size: bytes of every buffer, lengths of the inputs' and outputs' axes."""
    sizes = [b.nbytes for b in program.buffers]
    ends = {*program.inputs, *program.outputs}
    for task in program.tasks:
        for region in (*task.reads, *task.writes):
            if region.buffer in ends:
                ends.discard(region.buffer)
                sizes += region.shape
    return tuple(size.bit_length() for size in sizes)


_cache = DiskCache("tune")


def load_stored_tuning_winner(key: str, sizes: Sequence[int]) -> StoredWinner | None:
    """What is on disk for these sizes, or for the nearest ones."""
    found = _read_stored_tuning_rows(key)
    row = found.get(_tuner_size_bucket_text(sizes))
    if row is not None:
        return StoredWinner(row["winner"], row["times"], True)
    near = [(d, name) for name in found if (d := _size_bucket_distance(name, sizes)) is not None]
    if not near:
        return None
    row = found[min(near)[1]]
    return StoredWinner(row["winner"], row["times"], False)


def store_tuning_winner(
    key: str, sizes: Sequence[int], winner: str, times: Mapping[str, float], description: str = ""
) -> None:
    """Write a winner down. The oldest of too many buckets make room; what two processes write at once, one wins."""
    import json

    rows = _read_stored_tuning_rows(key)
    rows.pop(_tuner_size_bucket_text(sizes), None)
    rows[_tuner_size_bucket_text(sizes)] = {"winner": winner, "times": dict(times)}
    for old in list(rows)[:-BUCKETS]:
        del rows[old]
    _cache.put(key, json.dumps({"program": description, "buckets": rows}).encode())


def _read_stored_tuning_rows(key: str) -> dict[str, dict[str, Any]]:
    """The valid rows of an entry, oldest first."""
    payload = _cache.get(key)
    if payload is None:
        return {}
    import json

    try:
        rows = json.loads(payload)["buckets"].items()
        return {
            name: {"winner": str(row["winner"]), "times": {str(k): float(v) for k, v in row["times"].items()}}
            for name, row in rows
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _tuner_size_bucket_text(sizes: Sequence[int]) -> str:
    return ",".join(map(str, sizes))


def _size_bucket_distance(name: str, sizes: Sequence[int]) -> int | None:
    """How many doublings lie between two buckets; None if the name is none of this program."""
    parts = name.split(",")
    if len(parts) != len(sizes) or not all(p.isdecimal() for p in parts):
        return None
    return sum(abs(int(p) - s) for p, s in zip(parts, sizes, strict=True))
