"""Programs run under KERNELGRAPH_ENGINE=chaos, several calls in flight, against the same plans one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.array.devices import device_place_of_name, open_device
from kernelgraph.runtime.core.settings import override
from tests.golden.programs import PROGRAMS

IN_FLIGHT = 8


def diamonds(x, y):
    """Branches that part and meet again, over and over."""
    for i in range(6):
        a, b = np.sort(x + i, axis=0), np.cumsum(y, axis=1)
        x, y = (a @ b) * np.float32(1e-3), np.tanh(a - b.T) + x.max(axis=0)
    return x, y, x.sum(), y.min(axis=1)


def updates(u, v):
    """Assignments that decide the order of readers and writers."""
    for i in range(5):
        w = u.copy()
        u[1:-1] = 0.5 * (w[:-2] + w[2:]) + v[1:-1]
        v[::2] = np.sort(u, axis=1)[::2]
        v[1::2] += u[1::2] * np.float32(i)
    return u, v, u - v


def reused(*xs):
    """Many temporaries in one arena."""
    total = xs[0] * 0
    for i, x in enumerate(xs):
        steps = [np.cumsum(x * np.float32(k), axis=k % 2) for k in range(4)]
        total = total + np.sort(steps[0] - steps[3], axis=0) + steps[1] * steps[2] + np.float32(i)
    return total, [x + 1 for x in xs]


SQUARES = [kg.spec((96, 96), np.float32)] * 6
CASES: dict[str, tuple[Callable[..., Any], Sequence[Any]]] = {
    **PROGRAMS,
    "diamonds": (diamonds, SQUARES[:2]),
    "updates": (updates, SQUARES[:2]),
    "reused": (reused, SQUARES),
}


def arguments(specs: Sequence[Any], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.1, 1, s.shape).astype(s.dtype) if isinstance(s, kg.Spec) else s for s in specs]


def flat(result: Any) -> list[np.ndarray]:
    if isinstance(result, list | tuple):
        return [leaf for part in result for leaf in flat(part)]
    return [np.asarray(result)]


@contextmanager
def dirty(name: str) -> Iterator[None]:
    """What functions that are compiled in the block allocate is full of rubbish: else what a racing step reads too
    early is what the call before has left there, which is right."""
    device: Any = open_device(device_place_of_name(name) or ("cpu", 0))
    allocate = device.allocate

    def scribbled(nbytes: int) -> Any:
        memory = allocate(nbytes)
        device.upload(np.full(nbytes, 0xA5, np.uint8), memory).wait()
        return memory

    device.allocate = scribbled
    try:
        yield
    finally:
        device.allocate = allocate


def differences(name: str, device: str, streams: Any, memory: str, calls: int) -> int:
    """How many of `calls` calls under chaos differ in any bit from the same plan run one step at a time."""
    function, specs = CASES[name]
    with override(tune=False), dirty(device):
        f = kg.kernel_graph(device=device, streams=streams, memory=memory)(function)
        seeds = range(min(3, calls))
        with override(engine="sync"):
            wanted = [[a.copy() for a in flat(f(*arguments(specs, seed)))] for seed in seeds]
        wrong = 0
        with override(engine="chaos"):
            for first in range(0, calls, IN_FLIGHT):
                flying = []
                for number in range(first, min(calls, first + IN_FLIGHT)):
                    given = arguments(specs, number % len(seeds))
                    on_device = [kg.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in given]
                    flying.append((number, f(*on_device)))
                for number, result in flying:
                    pairs = zip(flat(result), wanted[number % len(seeds)], strict=True)
                    wrong += any(got.tobytes() != want.tobytes() for got, want in pairs)
    return wrong


def chained(device: str, calls: int) -> int:
    """As `differences`, each call on what the call before returned, nothing waited for in between."""
    function, specs = CASES["diamonds"]
    with override(tune=False), dirty(device):
        f = kg.kernel_graph(device=device, streams="max")(function)
        ends = []
        for engine in ("sync", "chaos"):
            with override(engine=engine):
                x, y = (kg.asarray(a, device=device) for a in arguments(specs, 0))
                sums = []
                for _ in range(calls):
                    x, y, total, _ = f(x, y)
                    sums.append(total)
                ends.append([a.tobytes() for a in flat([x, y, *sums])])
    return sum(a != b for a, b in zip(*ends, strict=True))
