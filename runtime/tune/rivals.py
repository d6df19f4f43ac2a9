"""Whether calls of one kind run compiled or in NumPy, as written. Runs of both in, timed in pairs; the faster out.

It is decided once, before the first such call, and kept on disk: each process gives the same answers to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.disk_cache import sha256_digest
from ..core.frozen import frozen
from ..core.settings import settings
from ..program.device import Device
from ..program.plan import Branch, Loop
from ..program.program import Program
from .time_limit import ends_within_seconds
from .tuner import load_stored_tuning_winner, size_bucket_of_program, size_free_program_key, store_tuning_winner

COMPILED, PLAIN = "compiled", "NumPy"
SMALL = 1000.0  # predicted microseconds: above, a program without loops hides the overhead of a call, or,
SMALL_TASK = 20.0  # in the mean of many tasks, that of a step
WARM, WARM_SECONDS = 100, 0.3  # compiled runs at most before the pairs, and of this thread: plans are chosen in them
PAIRS, SECONDS = 40, 0.03  # of runs, and in all of them: at most; the first ten or so are slower than those to come
GAIN = 0.95  # NumPy wins if it takes less than this part of the time
PATIENCE = 0.02  # seconds after which a first run in NumPy is broken off,
LATER = 4  # or compiled runs, if so many take longer
MANY_LOOPS = 64  # compiling so many takes a second
LOOP_SECONDS = 1e-5  # what a compiled one of these takes at least
Rival = Callable[[], Any]  # one that is timed gives its seconds


@frozen
class Contest:
    """What tells a program's contest from others. bounded: the run in NumPy may take much longer than the
    compiled one."""

    key: str
    sizes: tuple[int, ...]
    name: str
    bounded: bool

    def stored_winner(self) -> tuple[str, Mapping[str, float]] | None:
        """What an earlier process has found, and the microseconds of each."""
        known = load_stored_tuning_winner(self.key, self.sizes)
        return (known.winner, known.times) if known is not None and known.exact else None

    def decide_winner(
        self, compiled: Rival, plain: Rival, untimed: Rival, has_plan: Callable[[], bool]
    ) -> tuple[str, Mapping[str, float]]:
        """The winner by the clock, which is kept. plain: a run in NumPy. untimed: one that may be broken off between
        two of Python's instructions. has_plan: whether the compiled runs need no more trials of their own."""
        start = time.thread_time()
        first = min(compiled(), compiled())
        for _ in range(WARM):
            if has_plan() or time.thread_time() - start > WARM_SECONDS:
                break
            first = min(first, compiled())
        times: tuple[list[float], list[float]] = ([first], [])
        if not self.bounded or ends_within_seconds(max(PATIENCE, LATER * first), untimed):
            plain()
            while len(times[1]) < PAIRS and (sum(map(sum, times)) < SECONDS or not times[1]):
                for i in (0, 1) if len(times[1]) % 2 else (1, 0):
                    times[i].append((compiled, plain)[i]())
        least = {name: min(each) * 1e6 for name, each in zip((COMPILED, PLAIN), times, strict=True) if each}
        winner = PLAIN if least.get(PLAIN, least[COMPILED]) < GAIN * least[COMPILED] else COMPILED
        store_tuning_winner(self.key, self.sizes, winner, least, self.name)
        return winner, least


def open_contest(program: Program, device: Device, direct: bool, function: str) -> Contest | None:
    """The contest for a program; None where NumPy has no chance, or the device is no CPU.

    direct: whether calls run its kernels past the engine. function: what tells the Python function from others."""
    loops = any(isinstance(task.kernel, Loop | Branch) for task in program.tasks)
    cost = sum(task.cost for task in program.tasks)
    small = not direct and 0 < cost < max(SMALL, SMALL_TASK * len(program.tasks))
    if not _is_contest_allowed(device) or not (loops or small):
        return None
    key = size_free_program_key(program, device.identity, PLAIN, function)
    return Contest(key, size_bucket_of_program(program), program.name, loops or cost >= SMALL)


def wins_uncompiled(text: str, loops: int, device: Device, run: Rival) -> bool:
    """Whether NumPy is faster than a program of so many loops can be: by one run, and nothing is compiled. text: tells
    the program from others."""
    if loops < MANY_LOOPS or not _is_contest_allowed(device):
        return False
    key = sha256_digest(PLAIN, text, device.identity)
    known = load_stored_tuning_winner(key, ())
    if known is None:
        start = time.thread_time()
        ends = ends_within_seconds(PATIENCE, run)
        winner = PLAIN if ends and time.thread_time() - start < loops * LOOP_SECONDS else COMPILED
        store_tuning_winner(key, (), winner, {})
        return winner == PLAIN
    return known.winner == PLAIN


def _is_contest_allowed(device: Device) -> bool:
    allowed = settings.tune and settings.numpy and settings.engine == "async" and not settings.verify
    return allowed and device.kind == "cpu"
