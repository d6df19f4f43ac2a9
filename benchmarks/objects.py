"""Methods of classes as programs have them, a new object at each call, beside NumPy, as a Markdown table.

    python benchmarks/objects.py
    python benchmarks/objects.py --only particles "Kalman filter" --seconds 1 --threads 2

Each call gets an object of its own, made before the clock starts; the fastest call of each counts. `traces` says how
often the method was traced for all of them. The last rows are calls of one sum, to which ten fields come as fields of a
new object or as arguments.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "src")]
from common import machine, pin

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--only", nargs="*", default=[], help="names of programs")
PARSER.add_argument("--seconds", type=float, default=1.0, help="time for each program, compilation not included")
PARSER.add_argument("--threads", type=int, default=2, help="cores for every candidate")
OPTIONS = PARSER.parse_args()
pin(OPTIONS.threads)

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import kernelgraph as kg
from tests.object_programs import PROGRAMS, Made, ObjectProgram

OBJECTS = 40  # made at a time
WARM = 1000  # calls before any is timed: plans are chosen in them
FIELDS = 10


def fastest(method: Callable[..., Any], make: Callable[[], Made]) -> float:
    """Seconds of the fastest of many calls, each of a new object."""
    found, end = float("inf"), time.perf_counter() + OPTIONS.seconds / 2
    while time.perf_counter() < end:
        for made, args in [make() for _ in range(OBJECTS)]:
            begin = time.perf_counter()
            method(made, *args)
            found = min(found, time.perf_counter() - begin)
    return found


def row(name: str, times: Sequence[float], traces: int) -> str:
    numpy, ours = times
    return f"| {name} | {numpy * 1e6:.1f} | {ours * 1e6:.1f} | {numpy / ours:.2f} | {traces} |"


def program_row(program: ObjectProgram) -> str:
    rng = np.random.default_rng(0)
    f = kg.kernel_graph(program.method, device="cpu")
    for _ in range(WARM):
        made, args = program.make(rng)
        f(made, *args)
    times = [fastest(method, lambda: program.make(rng)) for method in (program.method, f)]
    return row(program.name, times, str(f.why()).count("traced for"))


class Fields:
    def __init__(self, values: Sequence[Any]) -> None:
        self.a, self.b, self.c, self.d, self.e, self.f, self.g, self.h, self.i, self.j = values


def sum_of_fields(o: Fields) -> Any:
    return o.a * o.b + o.c * o.d + o.e * o.f + o.g * o.h + o.i * o.j


def sum_of_arguments(a, b, c, d, e, f, g, h, i, j):
    return a * b + c * d + e * f + g * h + i * j


def field_rows() -> list[str]:
    """Ten arrays of 8 numbers as the fields of a new object, and as arguments."""
    rng = np.random.default_rng(0)

    def values() -> list[Any]:
        return [rng.random(8) for _ in range(FIELDS)]

    found = []
    for name, function, make in (
        ("ten fields of an object", sum_of_fields, lambda: (Fields(values()), ())),
        ("ten arguments", sum_of_arguments, lambda: (given := values())[:1] and (given[0], tuple(given[1:]))),
    ):
        f = kg.kernel_graph(function, device="cpu")
        for _ in range(WARM):
            first, rest = make()
            f(first, *rest)
        found.append(row(name, [fastest(x, make) for x in (function, f)], str(f.why()).count("traced for")))
    return found


print(machine(OPTIONS.threads, ["numpy"]))
print("\n| program | NumPy, us | kernelgraph, us | ratio | traces |\n|---|---:|---:|---:|---:|")
for one in PROGRAMS:
    if not OPTIONS.only or one.name in OPTIONS.only:
        print(program_row(one), flush=True)
if not OPTIONS.only:
    print("\n".join(field_rows()))
