"""Published NumPy programs with nothing but the decorator added, beside NumPy, numba and jax, as a Markdown table.

    python benchmarks/numpy_kernels.py --peers                  # the table of docs/numpy-programs.md
    python benchmarks/numpy_kernels.py --all                    # every program of the tests, beside NumPy
    python benchmarks/numpy_kernels.py --only jacobi_2d kmeans --seconds 1 --threads 2 --small

Every call gets fresh copies of its arguments, made before the clock starts, and is timed until its results are there;
the fastest call of each counts.
numba gets the same source with `njit` on every function; jax the same source with `jax.numpy` in NumPy's place and
`jit`, or, where that is refused, rewritten by `functional.py` (marked *). A dash: it refuses the program, gives other
results, or compiles for longer than a minute; the reasons stand below the table.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT), str(ROOT / "src")]
from common import Peers, machine, pin, show

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--only", nargs="*", default=[], help="names of programs")
PARSER.add_argument("--all", action="store_true", help="every program of the tests, not the published table's only")
PARSER.add_argument("--seconds", type=float, default=1.0, help="time for each program, compilation not included")
PARSER.add_argument("--threads", type=int, default=2, help="cores for every candidate")
PARSER.add_argument(
    "--processor", action="store_true", help="the processor's time: for a machine with other work on it"
)
PARSER.add_argument("--small", action="store_true", help="the sizes of the tests: checks the benchmark")
PARSER.add_argument("--peers", action="store_true", help="numba and jax too")
OPTIONS = PARSER.parse_args()
pin(OPTIONS.threads)

import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from program_peers import PEERS, Call, Peer, copied, peer, waited

import kernelgraph as kg
from kernelgraph.runtime.program.program import Kernel
from tests.end_to_end.numpy_kernels import Case, cases

# fmt: off
PUBLISHED = (
    "cavity_flow", "channel_flow", "lattice_boltzmann", "euler_2d", "shallow_water", "jacobi_2d", "heat_3d",
    "wave_2d", "burgers_1d", "red_black", "game_of_life", "gray_scott", "mandelbrot_masks", "nbody",
    "lorenz_rk4", "ising", "lennard_jones", "boids", "black_scholes", "heston_paths", "asian_option",
    "implied_volatility", "portfolio_risk", "sobel_edges", "gaussian_blur", "unsharp_mask", "rgb_to_hsv",
    "median_filter", "bilinear_resize", "rolling_std", "standardize", "pca", "kernel_density",
    "gaussian_mixture_em", "kalman_filter", "logistic_regression", "kmeans", "adam", "k_nearest",
    "two_layer_network", "lenet5", "transformer_block", "lstm", "fir_lowpass", "welch", "spectral_poisson",
    "goertzel", "haar_wavelet", "haversine", "hdiff", "vadv", "hillshade", "lorenz_96", "pagerank",
    "conjugate_gradient", "newton_root", "cholesky",
)
# fmt: on


CLOCK = time.process_time if OPTIONS.processor else time.perf_counter


def clock(call: Call, arguments: Any) -> float:
    """Seconds of one call."""
    mine = copied(arguments)
    start = CLOCK()
    waited(call(*mine))
    return CLOCK() - start


def samples(candidates: dict[str, Call], arguments: Any, seconds: float) -> dict[str, float]:
    """The seconds of the fastest call of each, taken in turns: other work on the machine only ever adds to them."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found["NumPy"]) < 5:
        for name, call in candidates.items():
            found[name].append(clock(call, arguments))
    return {name: min(times) for name, times in found.items()}


def row(case: Case, peers: Peers, reasons: dict[str, list[str]]) -> tuple[str, dict[str, float]]:
    """A line of the table, and how many times longer than ours each other takes."""
    arguments = case.make(case.small if OPTIONS.small else case.large)
    ours = kg.kernel_graph(case.function, device="cpu")
    start = time.perf_counter()
    first = clock(ours, arguments)
    for _ in range(12):  # the plan is chosen among the first calls
        if time.perf_counter() - start < 20:
            clock(ours, arguments)
    others = {name: peer(name, module, case, arguments) for name, module in peers.modules.items()}
    candidates: dict[str, Call] = {"kernelgraph": ours, "NumPy": case.function}
    for name, found in others.items():
        if found.call is not None:
            candidates[name] = found.call
        else:
            reasons.setdefault(name, []).append(f"{case.name} ({found.reason})")
    times = samples(candidates, arguments, OPTIONS.seconds)
    ratios = {name: seconds / times["kernelgraph"] for name, seconds in times.items() if name != "kernelgraph"}
    cells = [
        case.name,
        case.field,
        case.after,
        "in NumPy" if "runs in NumPy" in ours.why() else _tasks(ours, arguments),
        show(first),
        show(times["NumPy"]),
        show(times["kernelgraph"]),
        f"{ratios['NumPy']:.2f}",
        *(_cell(found, ratios.get(name)) for name, found in others.items()),
    ]
    return f"| {' | '.join(cells)} |", ratios


def _tasks(ours: kg.KernelGraph, arguments: Any) -> str:
    """How many kernels a call launches, and what else it does."""
    tasks = [type(task.kernel) for task in ours.program(*copied(arguments)).tasks]
    kernels = tasks.count(Kernel)
    return f"{kernels} + {len(tasks) - kernels}" if len(tasks) > kernels else str(kernels)


def _cell(found: Peer, ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}{'*' if found.changed else ''}"


def summary(name: str, ratios: Sequence[float]) -> str:
    mean = statistics.geometric_mean(ratios)
    faster = sum(r >= 1 for r in ratios)
    return (
        f"- {name}: our time or more in {faster} of {len(ratios)}; geometric mean {mean:.2f}, least {min(ratios):.2f}"
    )


def main() -> None:
    chosen = [c for c in cases() if (c.name in OPTIONS.only if OPTIONS.only else OPTIONS.all or c.name in PUBLISHED)]
    peers = Peers(tuple(PEERS) if OPTIONS.peers else ()).load()
    print(machine(OPTIONS.threads, ("kernelgraph", "numpy", "llvmlite", *peers.modules)))
    titles = ["program", "field", "published by", "kernels + other tasks", "first call"]
    titles += ["NumPy", "kernelgraph", "NumPy / ours", *(f"{name} / ours" for name in peers.modules)]
    print(f"\n| {' | '.join(titles)} |\n|--|--|--|{'--:|' * (len(titles) - 3)}")
    ratios: dict[str, list[float]] = {}
    reasons: dict[str, list[str]] = {}
    for case in chosen:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            line, found = row(case, peers, reasons)
        print(line, flush=True)
        for name, ratio in found.items():
            ratios.setdefault(name, []).append(ratio)
    print()
    for name, its in ratios.items():
        print(summary(name, its))
    for name, which in reasons.items():
        print(f"\nNot in {name} ({len(which)}): {'; '.join(which)}.")


if __name__ == "__main__":
    main()
