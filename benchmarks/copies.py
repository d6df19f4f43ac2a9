"""Copies that overlap compute on a GPU: `python benchmarks/copies.py [--mib 256] [--batches 16]`.

Prints the rates of copies, and how long a stream of batches takes that go to the GPU, through a program, and back:
beside the slower of copying and computing alone, and beside one batch after another.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import kernelgraph as kg

RUNS = 5


DEVICE = ["cuda"]


def best(run: Callable[[], Any], runs: int = RUNS) -> float:
    """Seconds, of the fastest run."""
    times = []
    for _ in range(runs):
        kg.synchronize(DEVICE[0])
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def program(depth: int) -> Any:
    """Elementwise work that takes a while."""

    def work(x: Any) -> Any:
        for _ in range(depth):
            x = np.sin(x) + x
        return x

    return kg.kernel_graph(work, device=DEVICE[0])


def device_time(f: Any, x: Any) -> float:
    """Seconds of one call on the GPU alone."""
    for _ in range(40):
        f(x).wait()
    s = kg.Stream(DEVICE[0])

    def once() -> float:
        with kg.stream(s):
            start = s.record()
            kept = f(x)
            end = s.record()
        kept.wait()
        return start.elapsed_time(end) / 1e3

    return min(once() for _ in range(RUNS))


def matched(x: Any, seconds: float) -> tuple[Any, float]:
    """A program that takes about so long for `x`, and how long it takes."""
    depth, f = 16, program(16)
    for _ in range(3):
        took = device_time(f, x)
        wanted = max(1, round(depth * seconds / took))
        if abs(wanted - depth) <= depth // 50:
            break
        depth, f = wanted, program(wanted)
    return f, device_time(f, x)


def pipelined(f: Any, batches: list[np.ndarray[Any, Any]], ahead: int = 3) -> float:
    """All batches in, through `f`, and back; the sum of a few results."""
    coming: deque[Any] = deque()
    total = 0.0
    for x in kg.prefetch(batches, depth=2, device=DEVICE[0]):
        coming.append(kg.to_device(f(x), "cpu", non_blocking=True))
        if len(coming) > ahead:
            total += coming.popleft().numpy().flat[-1]
    return total + sum(y.numpy().flat[-1] for y in coming)


def serial(f: Any, batches: list[np.ndarray[Any, Any]]) -> None:
    for x in batches:
        y = kg.to_device(x, DEVICE[0]).wait()
        kg.to_device(f(y).wait(), "cpu", non_blocking=True).wait()


def both_ways(host: np.ndarray[Any, Any], there: Any) -> None:
    back = kg.to_device(there, "cpu", non_blocking=True)
    kg.to_device(host, DEVICE[0], non_blocking=True).wait()
    back.wait()


def rows(mib: int, count: int) -> Iterator[tuple[str, str]]:
    n = mib << 18
    pinned = kg.pinned_empty(n, np.float32, device=DEVICE[0])
    pinned[...] = np.linspace(0, 1, n, dtype=np.float32)
    plain = pinned.copy()
    there = kg.to_device(pinned, DEVICE[0]).wait()
    nbytes = pinned.nbytes

    def rate(seconds: float) -> str:
        return f"{nbytes / seconds / 1e9:.1f} GB/s"

    back = kg.to_device(there, "cpu", non_blocking=True).wait()
    del back  # its page-locked memory is used again
    up = best(lambda: kg.to_device(pinned, DEVICE[0], non_blocking=True).wait())
    down = best(lambda: kg.to_device(there, "cpu", non_blocking=True).wait())
    each = best(lambda: both_ways(pinned, there))
    yield "page-locked, to the GPU", rate(up)
    yield "page-locked, from the GPU", rate(down)
    yield "page-locked, both at once", f"{rate(each)} each way"
    yield "ordinary memory, to the GPU", rate(best(lambda: kg.to_device(plain, DEVICE[0]).wait()))
    target = np.empty_like(plain)
    device: Any = there._device
    yield "ordinary memory, from the GPU", rate(best(lambda: device.download(there._memory, target)))

    f, compute = matched(there, each)
    slower = count * max(each, compute)
    yield "one batch: copies, compute", f"{each * 1e3:.2f} ms, {compute * 1e3:.2f} ms"
    for name, source in (("page-locked", pinned), ("ordinary memory", plain)):
        batches = [source] * count
        pipelined(f, batches)
        took = best(lambda batches=batches: pipelined(f, batches))  # type: ignore[misc]
        alone = best(lambda batches=batches: serial(f, batches), 2)  # type: ignore[misc]
        yield (
            f"{count} batches, {name}",
            f"{took * 1e3:.1f} ms, {took / slower:.3f} x the slower of the two ({slower * 1e3:.1f} ms); "
            f"one after another {alone * 1e3:.1f} ms, {alone / slower:.2f} x",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    DEVICE[0] = options.device
    for what, figure in rows(options.mib, options.batches):
        print(f"{what:32} {figure}", flush=True)


if __name__ == "__main__":
    main()
