"""Two independent branches of equal work, each for one thread alone, on one stream and on two: the gain on two cores.

    python benchmarks/branches_cpu.py [--seconds 4]

*sort*: host steps, which release the interpreter lock. *powers*: kernels with one unit of work, a sum of one row.
*orbits*: a user's scalar function (`@kg.elementwise`) with a loop of many thousand turns, on as few elements.
The bare threads do the same sorts without kernelgraph: what the machine can give at the time. 2 is perfect.
Calls with NumPy arrays wait for both branches at once; those with arrays of kernelgraph return at once, and the results
are waited for one by one. Where other programs run too, the fastest calls say more than the median ones.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import interleave, machine, pin, show

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--seconds", type=float, default=4.0, help="time for each workload")
OPTIONS = PARSER.parse_args()
pin(2)

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import kernelgraph as kg

RANDOM = np.random.default_rng(0)
POWERS = 40


def powers(x: Any) -> Any:
    for _ in range(POWERS):
        x = (x + 1.1) ** 0.37
    return x.sum()


@kg.elementwise
def orbit(x):  # type: ignore[no-untyped-def]
    """The logistic map, far from a fixed point."""
    for _ in range(20_000):
        x = 3.9 * x * (1.0 - x)
    return x


def orbits(x: Any) -> Any:
    return orbit(x)


def pair(branch: Callable[[Any], Any], streams: int, arrays: list[Any]) -> Callable[[], Any]:
    """A call of both branches that returns when both results are there."""
    both = kg.kernel_graph(device="cpu", streams=streams)(lambda a, b: (branch(a), branch(b)))

    def call() -> Any:
        return [result.wait() for result in both(*arrays)]

    return call


def gain(samples: dict[str, list[float]], one: str, two: str) -> str:
    fastest = min(samples[one]) / min(samples[two])
    middle = statistics.median(samples[one]) / statistics.median(samples[two])
    return f"{fastest:.2f} (fastest), {middle:.2f} (median)"


def main() -> None:
    threads = ThreadPoolExecutor(2)
    print(machine(2, ("kernelgraph", "numpy", "llvmlite")))
    print(f"- load: {os.getloadavg()[0]:.1f}")
    for name, branch, length in (("sort", np.sort, 400_000), ("powers", powers, 16_000), ("orbits", orbits, 100)):
        arrays = [RANDOM.random(length) for _ in range(2)]
        held = [kg.asarray(x, device="cpu") for x in arrays]
        calls = {"one stream": pair(branch, 1, arrays), "two streams": pair(branch, 2, arrays)}
        calls["two streams, waited for one by one"] = pair(branch, 2, held)
        if branch is np.sort:
            calls["one bare thread"] = lambda arrays=arrays: list(map(np.sort, arrays))
            calls["two bare threads"] = lambda arrays=arrays: list(threads.map(np.sort, arrays))
        samples = interleave(calls, OPTIONS.seconds)
        print(f"\n### {name}\n")
        for label, values in samples.items():
            print(f"- {label}: {show(min(values))} fastest, {show(statistics.median(values))} median")
        print(f"- two streams give {gain(samples, 'one stream', 'two streams')}")
        print(f"- waited for one by one they give {gain(samples, 'one stream', 'two streams, waited for one by one')}")
        if "two bare threads" in samples:
            print(f"- two bare threads give {gain(samples, 'one bare thread', 'two bare threads')}")
    threads.shutdown()


if __name__ == "__main__":
    main()
