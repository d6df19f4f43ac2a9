"""Mixed programs called from many threads, again and again: every result is checked, and memory has to stay flat.

python -m tests.soak --calls 100000 --threads 8
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from tests.fault_programs import PROGRAMS

TIMEOUT = 600  # seconds without an end: every thread's stack is printed
NEW_EVERY = 1000  # calls of a thread between two functions that nobody has seen


@dataclass
class Case:
    """A decorated function, its arguments (NumPy's or the device's) and its results; the first may be assigned to."""

    function: Any
    arguments: tuple[Any, ...]
    expected: list[Any]
    assigns: bool = False

    def call(self) -> Any:
        if not self.assigns:
            return self.function(*self.arguments)
        first, *rest = self.arguments
        own = np.array(first)
        return self.function(own if type(first) is np.ndarray else kg.asarray(own, device=first.device), *rest)

    def is_right(self, results: Any) -> bool:
        return all(np.array_equal(np.asarray(a), b) for a, b in zip(_leaves(results), self.expected, strict=True))


@dataclass
class Report:
    """calls, wrong results, seconds; after a tenth, a half and all of the calls, when all work is done and the cache is
    given back: bytes of the process, bytes in use on the device, arrays alive."""

    calls: int
    wrong: int
    seconds: float
    resident: list[int]
    in_use: list[int]
    arrays: list[int]

    def __str__(self) -> str:
        resident = ", ".join(f"{n / 1e6:.1f}" for n in self.resident)
        return (
            f"{self.calls} calls, {self.wrong} wrong, {self.seconds:.1f} s; after a tenth, a half and all of them: "
            f"process {resident} MB, in use {self.in_use} bytes, arrays {self.arrays}"
        )


def _leaves(results: Any) -> list[Any]:
    found: list[Any] = []
    flatten(results, found)
    return found


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def cases(device: str) -> list[Case]:
    """Every program of the fault tests on NumPy's and on the device's arrays; some on larger ones; with numbers."""
    found = []
    for function, arrays in PROGRAMS.items():
        traced = kg.kernel_graph(device=device)(function)
        for on_device in (False, True):
            given = tuple(kg.asarray(a, device=device) if on_device else a for a in arrays)
            found.append(_case(traced, given, function.__name__ == "assigned"))
    rng = np.random.default_rng(0)
    scaled = kg.kernel_graph(device=device)(lambda x, a: (np.tanh(x * a), np.sort(x, axis=-1).sum(-1)))
    for n in (10, 200, 900):
        x = rng.random((n, 64))
        found += [_case(scaled, (kg.asarray(x, device=device), 0.5 * a)) for a in range(4)]
        found.append(_case(scaled, (x, 2.5)))
    return found


def _case(function: Any, arguments: tuple[Any, ...], assigns: bool = False) -> Case:
    made = Case(function, arguments, [], assigns)
    with kg.override(engine="sync"):
        made.expected = [np.array(leaf) for leaf in _leaves(made.call())]
    return made


def fresh(number: int) -> Callable[..., Any]:
    """A program that was not there before: its text differs, so that it is traced and compiled."""

    def f(x: Any) -> Any:
        for bit in f"{number:b}":
            x = np.abs(x - 0.5) if bit == "1" else x * x
        return x

    return f


def soak(calls: int, threads: int, seed: int = 0, device: str = "cpu") -> Report:
    """Make so many calls in all, from so many threads at once."""
    faulthandler.dump_traceback_later(TIMEOUT, exit=True)
    every, wrong = cases(device), [0] * threads
    chained = kg.kernel_graph(device=device)(lambda x: x * 0.5 + 1)
    door = threading.Barrier(threads + 1)
    errors: list[BaseException] = []

    def work(me: int, count: int) -> None:
        rng, held = random.Random(seed * 1000 + me), []
        value: Any = kg.asarray(np.full(300, 2.0), device=device)  # 2 is what the chain gives of 2
        door.wait()
        for turn in range(count):
            case = rng.choice(every)
            held.append((case, case.call()))
            value = chained(value)
            if len(held) > rng.randrange(6):  # several calls are in flight before one is read
                case, results = held.pop(rng.randrange(len(held)))
                wrong[me] += not case.is_right(results)
            if turn % NEW_EVERY == NEW_EVERY - 1:
                new, x = fresh((me << 20) + turn + (seed << 30)), np.linspace(0, 1, 50)
                wrong[me] += not np.allclose(kg.kernel_graph(device=device)(new)(x), new(x))
                wrong[me] += not np.array_equal(np.asarray(value), np.full(300, 2.0))
        wrong[me] += sum(not case.is_right(results) for case, results in held)

    def guarded(me: int, count: int) -> None:
        try:
            work(me, count)
        except BaseException as error:
            errors.append(error)
            door.abort()

    def run(count: int) -> None:
        own = [count // threads // 2] * threads  # each turn makes two calls
        team = [threading.Thread(target=guarded, args=(i, n), daemon=True) for i, n in enumerate(own)]
        for thread in team:
            thread.start()
        door.wait()
        for thread in team:
            thread.join()
        if errors:
            raise errors[0]

    report = Report(calls, 0, 0.0, [], [], [])
    start = time.monotonic()
    for tenths in (1, 4, 5):
        run(calls * tenths // 10)
        gc.collect()
        kg.empty_cache(device)
        stats = kg.memory_stats(device)
        report.resident.append(resident())
        report.in_use.append(stats["in_use"])
        report.arrays.append(stats["arrays"])
    faulthandler.cancel_dump_traceback_later()
    report.wrong, report.seconds = sum(wrong), time.monotonic() - start
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    report = soak(given.calls, given.threads, device=given.device)
    print(report)
    grows = report.arrays[-1] > report.arrays[0] or report.in_use[-1] > report.in_use[0]
    raise SystemExit(1 if report.wrong or grows else 0)


if __name__ == "__main__":
    main()
