"""Memory between calls: `python benchmarks/memory.py [--device cpu|cuda] [--seconds 480]`.

Prints a row for each goal: a queued loop beside the same with a wait and beside NumPy, the time in which an operator
returns, what a queue reserves, and, on a GPU, how far the account is from the driver's figure and what is given back.
"""

from __future__ import annotations

import argparse
import gc
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.runtime.core.readable_text import byte_count_in_words as words

ROUNDS = 12


def least_seconds_in_turns(loops: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Of each loop the fastest run; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(ROUNDS):
        for name, loop in loops.items():
            start = time.perf_counter()
            loop()
            times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}


def step(x: Any) -> Any:
    return x * 0.99 + 0.01


def print_loops(device: str, nbytes: int) -> None:
    values = np.linspace(0.0, 1.0, nbytes // 8)
    x, f = kg.asarray(values, device=device), kg.kernel_graph(device=device)(step)
    count = max(20, (1 << 31) // nbytes // 2)

    def turn(call: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = call(start)
        return start

    found = least_seconds_in_turns(
        {
            "queued": lambda: turn(f, x).wait(),
            "waiting": lambda: turn(lambda a: f(a).wait(), x),
            "operators": lambda: turn(step, x).wait(),
            "numpy": lambda: turn(step, values),
        }
    )
    waits, numpys = (found["queued"] / found[name] for name in ("waiting", "numpy"))
    print(
        f"{count} turns on {words(nbytes)}: queued / with a wait {waits:.2f}, / NumPy {numpys:.2f}; operators / NumPy "
        f"{found['operators'] / found['numpy']:.2f}; at most {words(kg.memory(device).peak)} reserved"
    )


def print_operator(device: str) -> None:
    x, y = (kg.asarray(np.ones(18_000_000), device=device) for _ in range(2))
    parts = []
    for _ in range(ROUNDS + 4):
        start = time.perf_counter()
        z = x + y
        returned = time.perf_counter() - start
        z.wait()
        parts.append(returned / (time.perf_counter() - start))
        del z
    print(f"x + y of two arrays of {words(x.nbytes)}: returns after {100 * min(parts):.2f} % of its time")


def print_small_operators(device: str) -> None:
    for n in (16, 1024):
        values = np.ones(n)
        x = kg.asarray(values, device=device)

        def repeat(a: Any) -> None:
            for _ in range(1000):
                a + a

        found = least_seconds_in_turns({"ours": lambda x=x: repeat(x), "numpy": lambda v=values: repeat(v)})
        print(f"x + x of {n} elements: {1e3 * found['ours']:.2f} us (NumPy {1e3 * found['numpy']:.2f} us)")


def sorted_rows(x: Any) -> Any:
    return np.cumsum(np.sort(x, axis=1), axis=1)


def print_soak(seconds: float) -> None:
    """Eight threads make, call and drop functions; the account beside the driver's figure."""
    kg.kernel_graph(device="cuda")(sorted_rows)(np.ones((64, 64), np.float32)).wait()
    kg.waitall()
    gc.collect()
    kg.empty_cache("cuda")
    start = kg.memory("cuda")
    assert start.system is not None
    context = start.system[1] - start.system[0] - start.reserved
    until, wrong, calls = time.monotonic() + seconds, [0], [0]
    lock = threading.Lock()

    def use_in_thread(seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < until:
            f, n = kg.kernel_graph(device="cuda")(sorted_rows), rng.choice((16, 200, 1000, 4096))
            values = np.random.default_rng(n).normal(size=(n, 512))
            for _ in range(10):
                result = np.asarray(f(kg.asarray(values, device="cuda")))
                with lock:
                    calls[0] += 1
                    wrong[0] += not np.allclose(result, sorted_rows(values))

    threads = [threading.Thread(target=use_in_thread, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    apart: list[int] = []
    while time.monotonic() < until:
        time.sleep(seconds / 1000)
        account = kg.memory("cuda")
        assert account.system is not None
        apart.append(abs(account.system[1] - account.system[0] - account.reserved - context))
    for thread in threads:
        thread.join()
    kg.waitall()
    gc.collect()
    kg.empty_cache("cuda")
    end = kg.memory("cuda")
    assert end.system is not None
    print(f"soak: {calls[0]} calls, {wrong[0]} wrong; account and driver at most {words(max(apart))} apart")
    print(f"after empty_cache {100 * end.system[0] / start.system[0]:.1f} % of what was free at the start")
    print(end)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=480.0)
    given = parser.parse_args()
    for nbytes in (1_000_000, 8_000_000, 32_000_000):
        print_loops(given.device, nbytes)
    print_operator(given.device)
    print_small_operators(given.device)
    if given.device == "cuda":
        print_soak(given.seconds)


if __name__ == "__main__":
    main()
