"""Programs on devices of one machine, whether what they give is right: `python -m tests.two_devices cuda 500 4`.

What follows the kind of device is how many of each, and of devices, two where none is said, and the first seed. Random
collectives against NumPy; the same in flight with random delays, against one step at a time; and faults, each of which
is an error within two seconds that the next call knows nothing of. `cpu` takes CPU devices.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np

import kernelgraph as kg
from tests import rank_cases

FAULTS = ("allocate", "copy_from", "upload")
IN_FLIGHT = 10


class InjectedError(RuntimeError):
    """What a device raises because it was told to."""


def program_of(case: rank_cases.Case, mesh: kg.Mesh) -> Any:
    return kg.kernel_graph(case.body, mesh=mesh, in_axes=0, out_axes=None)


def values_of(results: Any) -> list[list[np.ndarray[Any, Any]]]:
    return [[part.numpy() for part in result.parts] for result in results]


def count_wrong_collectives(mesh: kg.Mesh, count: int, first: int = 0) -> int:
    wrong = 0
    for seed in range(first, first + count):
        case = rank_cases.draw(seed, len(mesh))
        found = values_of(program_of(case, mesh)(case.given))
        for number, parts in enumerate(found):
            for rank, got in enumerate(parts):
                want = case.wanted[rank][number]
                loose = 0 if case.exact else 2e-2 if got.dtype.itemsize == 2 else 1e-5
                close = np.allclose(got.astype(complex), want.astype(complex), rtol=loose, atol=loose)
                wrong += not (got.dtype == want.dtype and got.shape == want.shape and close)
    return wrong


def count_differences(mesh: kg.Mesh, count: int, first: int = 0) -> int:
    """Of so many runs, ten in flight."""
    different = 0
    for seed in range(first, first - (-count // IN_FLIGHT)):
        case = rank_cases.draw(seed, len(mesh))
        program = program_of(case, mesh)
        with kg.override(engine="sync"):
            want = values_of(program(case.given))
        with kg.override(engine="chaos"):
            runs = [program(case.given) for _ in range(IN_FLIGHT)]
            for found in map(values_of, runs):
                pairs = zip(chain(*found), chain(*want), strict=True)
                different += not all(got.tobytes() == one.tobytes() for got, one in pairs)
    return different


@contextmanager
def failing(device: Any, what: str, turn: int) -> Iterator[None]:
    """The device's method fails at its call of this number, from 0."""
    method, left = getattr(device, what), [turn]

    def call_or_fail(*given: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise InjectedError(what)
        return method(*given, **options)

    setattr(device, what, call_or_fail)
    try:
        yield
    finally:
        setattr(device, what, method)


def run_faults(mesh: kg.Mesh, count: int) -> tuple[int, int, float]:
    """How many came out as errors, how many left something wrong, and the longest time of one."""
    rng, errors, wrong, longest = random.Random(0), 0, 0, 0.0
    x = np.arange(16.0 * len(mesh)).reshape(-1, 4)
    parts = np.split(x, len(mesh))
    for number in range(count):
        # a program of its own, so that its preparation meets faults as well
        program = kg.kernel_graph(
            lambda x, k=float(number): kg.all_reduce(np.tanh(x) * k) + kg.all_gather(x)[:4], mesh=mesh, out_axes=None
        )
        want = sum(np.tanh(part) * number for part in parts) + x[:4]
        device = mesh.devices[rng.randrange(len(mesh))]
        start = time.perf_counter()
        try:
            with failing(device, rng.choice(FAULTS), rng.randrange(4)):
                found = program(x).parts
                found = [part.numpy() for part in found]
            wrong += not all(np.allclose(part, want) for part in found)
        except (kg.KernelGraphError, InjectedError):
            errors += 1
        longest = max(longest, time.perf_counter() - start)
        wrong += not all(np.allclose(part.numpy(), want) for part in program(x).parts)
    return errors, wrong, longest


def main(kind: str, count: int, devices: int = 2, first: int = 0) -> int:
    if kind == "cpu":
        kg.settings.cpu_devices = max(devices, kg.settings.cpu_devices)
    mesh = kg.Mesh(tuple(f"{kind}:{i}" for i in range(devices)))
    wrong = count_wrong_collectives(mesh, count, first)
    print(f"{count} random collectives: {wrong} wrong", flush=True)
    different = count_differences(mesh, count, first)
    print(f"{count} runs with random delays: {different} different", flush=True)
    errors, left, longest = run_faults(mesh, max(10, count * 2 // 5))
    print(
        f"{max(10, count * 2 // 5)} faults: {errors} errors, {left} wrong after, the longest {longest:.2f} s",
        flush=True,
    )
    return wrong + different + left + (longest > 2)


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1], *map(int, sys.argv[2:]))))
