"""Scaling curves: time and bandwidth of five workloads from 1 Ki to 2^30 elements, beside the peers and a copy.

    python benchmarks/curves.py --device cpu [--threads 2] [--sizes 10 30] [--seconds 0.5] [--only sum chain]
    python benchmarks/curves.py --device cuda
    python benchmarks/curves.py --device cpu --draw      # the pictures again, from what was measured

What is measured goes to docs/curves/DEVICE.json (workloads that are not measured stay as they are), the pictures beside
it. A point is the fastest of several samples; candidates are interleaved, but for sizes of which memory holds one
candidate at a time. A peer is left out where its next size would not fit in memory or a call of it takes too long. On a
GPU, arrays are there already; NumPy's are on the host.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from common import Peers, clock_of, interleave, machine, pin, wall_clock
from curve_candidates import Call, Make, arrays_of, cpu_makers, cuda_makers, leaves, outputs_of, shapes_of

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
PARSER.add_argument("--only", nargs="*", default=[], help="names of workloads (default: all)")
PARSER.add_argument("--skip", nargs="*", default=[], help="peers to leave out")
PARSER.add_argument("--sizes", nargs=2, type=int, default=(10, 30), metavar=("LOW", "HIGH"), help="powers of two")
PARSER.add_argument("--seconds", type=float, default=0.5, help="time for each size, all candidates together")
PARSER.add_argument("--slow", type=float, default=2.0, help="a candidate that takes longer than this ends there")
PARSER.add_argument("--threads", type=int, default=2, help="cores for every candidate on the CPU")
PARSER.add_argument("--out", type=Path, default=HERE.parent / "docs" / "curves")
PARSER.add_argument("--coarse", nargs="*", default=[], help="peers measured at every second size: they compile long")
PARSER.add_argument("--draw", action="store_true", help="measure nothing")

NAMES = ("chain", "softmax", "sum", "black-scholes", "stencil")
STEP = 2  # powers of two from one size to the next
OTHERS = ("C0", "C1", "C2", "C4", "C5", "C9")


def free_bytes(device: str) -> int:
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info()[0])
    lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


MEMORY = {"NumPy": 5.0, "copy (limit)": 1.0}  # of the workload's traffic that a candidate needs; others: 1.5


def memory(name: str) -> float:
    return MEMORY.get(name, 1.5)


def measure(
    work: Any, makers: dict[str, Make], options: Any, clock: Any, release: Callable[[], None]
) -> dict[str, list[list[float]]]:
    """For each candidate its points: elements, bytes, fastest and median seconds.

    Candidates are interleaved where memory holds them all together, else each is alone with the arguments."""
    points: dict[str, list[list[float]]] = {name: [] for name in makers}
    last: dict[str, float] = {}
    for power in range(options.sizes[0], options.sizes[1] + 1, STEP):
        n = 1 << power
        shapes = outputs_of(work.name, n)
        need = 4 * (sum(map(math.prod, shapes_of(work.name, n))) + sum(map(math.prod, shapes)))
        host, there = free_bytes("cpu"), free_bytes(options.device)
        if need * 2.2 > host or (options.device == "cuda" and need * 3 > there):
            print(f"  2^{power}: {need >> 20} MiB do not fit")
            break
        odd = power % (2 * STEP) != options.sizes[1] % (2 * STEP)
        names = [x for x in makers if last.get(x, 0.0) * 4 <= options.slow and not (odd and x in options.coarse)]
        arrays = arrays_of(work.name, n)
        together = sum(memory(x) for x in names if x != "NumPy") * need < 0.8 * min(free_bytes("cpu"), there)
        samples: dict[str, list[float]] = {}
        wanted: list[Any] = []  # the first numbers that we give
        for group in [names] if together else [[x] for x in names]:
            room = 0.9 * free_bytes("cpu"), 0.9 * free_bytes(options.device)
            fitting = [x for x in group if memory(x) * need <= room[x != "NumPy"]]
            calls = ready({x: makers[x] for x in fitting}, arrays, shapes, clock, wanted, last, f"  2^{power}")
            for name in [x for x in calls if last[x] > options.slow]:  # one call says enough
                samples[name] = [last[name]]
                del calls[name]
            if calls:
                sample, pause = (3e-3, 0.0) if options.device == "cuda" else (1e-3, 1e-3)
                seconds = options.seconds * len(calls) / len(names)
                samples |= interleave(calls, seconds, clock, sample, pause, least=3)
            calls.clear()
            release()
        for name, times in samples.items():
            last[name] = min(times)
            points[name].append([n, need, min(times), sorted(times)[len(times) // 2]])
        how = "" if together else " (one by one)"
        print(f"  2^{power}{how}: " + ", ".join(f"{x} {last[x] * 1e6:.1f} us" for x in samples), flush=True)
    return {name: found for name, found in points.items() if found}


def ready(
    makers: dict[str, Make],
    arrays: tuple[Any, ...],
    shapes: list[tuple[int, ...]],
    clock: Any,
    wanted: list[Any],
    last: dict[str, float],
    where: str,
) -> dict[str, Call]:
    """The candidates' calls, each made a few times; last: its latest time. One that fails or gives something else is
    named, and left out for good."""
    import numpy as np

    calls: dict[str, Call] = {}
    for name, make in makers.items():
        try:
            call = make(arrays, shapes)
            clock(call, 1)
            if name == "kernelgraph":
                wanted[:] = [head(call())]
            elif wanted and "copy" not in name and "warm" not in name:
                np.testing.assert_allclose(head(call()), wanted[0], rtol=1e-2, atol=1e-3)
            last[name] = clock(call, 1)
            calls[name] = call
        except Exception as error:
            print(f"{where}: {name} is left out: {type(error).__name__}: {' '.join(str(error).split())[:120]}")
            last[name] = math.inf
    return calls


def head(result: Any) -> Any:
    """The first numbers of the first result, which they do not keep alive."""
    import numpy as np

    first = leaves(result)[0]
    if hasattr(first, "wait"):
        return np.asarray(first).reshape(-1)[:1000].copy()
    some = first.reshape(-1)[:1000]
    return some.cpu().numpy().copy() if hasattr(some, "cpu") else some.get() if hasattr(some, "get") else np.array(some)


def crossover(ours: list[list[float]], theirs: list[list[float]]) -> float | None:
    """The number of elements from which on we are faster, between two sizes by their logarithms; None: never, or at
    every size."""
    other = {n: t for n, _, t, _ in theirs}
    gain = [(math.log(n), math.log(other[n] / t)) for n, _, t, _ in ours if n in other]
    for (x0, y0), (x1, y1) in zip(gain[-2::-1], gain[:0:-1], strict=True):
        if y0 < 0 <= y1:
            return math.exp(x0 - y0 * (x1 - x0) / (y1 - y0))
    return None


def draw(data: dict[str, Any], folder: Path, device: str) -> None:
    """One SVG a workload: time on the left, bandwidth on the right."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "kernelgraph", "font.size": 9}
    for name, work in data["workloads"].items():
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
        for number, (label, points) in enumerate(work["points"].items()):
            n, nbytes, seconds = ([p[i] for p in points] for i in range(3))
            ours, limit = label == "kernelgraph", "copy" in label
            style = {
                "label": label, "color": "black" if limit else "crimson" if ours else OTHERS[number % len(OTHERS)],
                "linestyle": ":" if limit else "-", "linewidth": 2.4 if ours else 1.2, "zorder": 3 if ours else 2,
                "marker": None if limit else ".",
            }  # fmt: skip
            left.plot(n, [t * 1e6 for t in seconds], **style)
            right.plot(n, [b / t / 1e9 for b, t in zip(nbytes, seconds, strict=True)], **style)
        points = work["points"]
        at = crossover(points["kernelgraph"], points["NumPy"]) if "NumPy" in points else None
        if at is not None:
            left.axvline(at, color="grey", linestyle="--", linewidth=1)
            left.text(at, left.get_ylim()[1], f" faster than NumPy\n from {at:.0f} elements", va="top", fontsize=8)
        elif "NumPy" in points:
            left.set_title("faster than NumPy at every size", fontsize=9)
        left.set(xscale="log", yscale="log", xlabel="elements", ylabel="microseconds a call")
        right.set(xscale="log", xlabel="elements", ylabel="GB/s (least traffic / time)")
        right.legend(fontsize=8)
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.grid(alpha=0.3)
        figure.suptitle(f"{work['title']}, {device}", fontsize=10)
        figure.savefig(folder / f"{device}-{name}.svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


def main() -> None:
    options = PARSER.parse_args()
    path = options.out / f"{options.device}.json"
    data = json.loads(path.read_text()) if path.exists() else {"workloads": {}}
    if options.draw:
        draw(data, options.out, options.device)
        return
    if options.device == "cpu":
        pin(options.threads)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    wanted = ("numexpr", "jax", "torch", "scipy.special") if options.device == "cpu" else (
        "jax", "torch", "cupy", "scipy.special"
    )  # fmt: skip
    peers = Peers([p for p in wanted if p not in options.skip]).load()
    for name, why in peers.skipped.items():
        print(f"{name} is left out: {why}")
    from cpu_workloads import WORKLOADS

    import kernelgraph as kg

    clock, about = wall_clock, ""
    if options.device == "cuda":
        from cuda.core import Device

        device = Device(0)
        device.set_current()
        about = device.name
        clock = clock_of(device.sync)

    def release() -> None:
        gc.collect()
        kg.empty_cache(options.device)
        if options.device == "cuda" and (cupy := peers.get("cupy")):
            cupy.get_default_memory_pool().free_all_blocks()

    options.out.mkdir(parents=True, exist_ok=True)
    packages = ("numpy", "numexpr", "torch", "jax", "cupy", "numba-cuda")
    for work in WORKLOADS:
        if work.name not in NAMES or (options.only and work.name not in options.only):
            continue
        title = work.title.rsplit(",", 1)[0] if work.name != "black-scholes" else "Black-Scholes, 3 in 2 out"
        print(title, flush=True)
        makers = cpu_makers(work, peers, options.threads) if options.device == "cpu" else cuda_makers(work, peers)
        points = measure(work, makers, options, clock, release)
        if not points:
            continue
        threads = options.threads if options.device == "cpu" else None
        data["workloads"][work.name] = {
            "title": f"{title}, float32", "measured": machine(threads, packages, about), "points": points
        }  # fmt: skip
        path.write_text(json.dumps(data, indent=1).replace("\n      ", " ").replace("\n     ]", "]") + "\n")
    try:
        draw(data, options.out, options.device)
    except ImportError:
        print("matplotlib is not installed; draw the pictures with --draw where it is")


if __name__ == "__main__":
    main()
