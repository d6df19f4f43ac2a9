"""How a data-parallel step would scale to 1,024 ranks: its plan, timed by models of a GPU and of links. No measurement.

    python benchmarks/scaling.py [--picture docs/curves/ranks.svg]

The plan is that of `kg.DataParallel` on a mesh of ranks: which gradients are summed in one message, and in which order.
Its tasks take what the cost model says of an H200. Each gradient leaves when the task that makes it ends; sums follow
one another, beside what computes; an update starts when its sum is there. A sum over p ranks takes
2 log2(p) latency + 2 (p - 1) / p bytes / bandwidth (recursive halving and doubling: Thakur, Rabenseifner and Gropp,
2005) and what our thread and the agreement of the ranks take. No rank is late, and no two share a link.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib.figure
import numpy as np

import kernelgraph as kg
from kernelgraph.runtime.core.frozen import replace
from kernelgraph.runtime.program.collective import Collective
from kernelgraph.runtime.program.device import H200
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.schedule.cost_model import machine_model_of_device
from kernelgraph.runtime.schedule.timeline import predict_timeline

LAYERS, WIDTH, ITEM = 8, 4096, 4
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Link:
    """latency, overhead: us; bandwidth: bytes a us, of one rank."""

    name: str
    latency: float
    bandwidth: float
    overhead: float = 60.0  # of a small sum, beyond MPI's own: benchmarks/machines.py, 2 ranks

    def sum_time(self, nbytes: int, ranks: int) -> float:
        if ranks == 1:
            return 0.0
        return self.overhead + 2 * math.log2(ranks) * self.latency + 2 * (ranks - 1) / ranks * nbytes / self.bandwidth


LINKS = (
    Link("NVLink between GPUs (NCCL, measured with 2)", 11.0, 328_000),
    Link("400 Gb/s for each GPU (assumed: 5 us, 40 GB/s)", 5.0, 40_000),
    Link("100 Gb/s for each GPU (assumed: 20 us, 10 GB/s)", 20.0, 10_000),
)


def loss(w: Any, x: Any) -> Any:
    for one in w:
        x = np.maximum(x @ one, 0)
    return x.mean()


def descend(w: Any, g: Any) -> Any:
    return [a - np.float32(0.1) * b for a, b in zip(w, g, strict=True)]


def step_plan(rows: int) -> Plan:
    """Of one of two ranks, for an H200 that need not be there; it does not depend on how many there are."""

    def run() -> Plan:
        with kg.device("fake"):
            train = kg.DataParallel(loss, kg.Mesh(2), update=descend)
            return train.plan([kg.spec((WIDTH, WIDTH), "f4")] * LAYERS, kg.spec((2 * rows, WIDTH), "f4"))

    return kg.distributed.run_threads(2, run)[0]


def step_time(plan: Plan, sum_time: Callable[[int], float]) -> float:
    """us, from the start of a step to its end."""
    tasks = tuple(
        replace(task, cost=sum_time(sum(task.kernel.counts) * np.dtype(task.kernel.dtype).itemsize))
        if isinstance(task.kernel, Collective)
        else task
        for task in plan.tasks
    )
    timed = replace(plan, program=replace(plan.program, tasks=tasks))
    return max(interval.end for interval in predict_timeline(timed, machine_model_of_device("cuda", H200)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--picture", help="where to draw the curves")
    options = parser.parse_args()
    figure = matplotlib.figure.Figure((9, 3.6), layout="constrained")
    for place, rows in enumerate((4096, 256)):
        plan = step_plan(rows)
        axes = figure.add_subplot(1, 2, place + 1, xscale="log", xlabel="ranks", ylabel="efficiency", ylim=(0, 1.03))
        axes.set_title(f"{LAYERS} x Linear({WIDTH}), {rows} rows a rank")
        alone = step_time(plan, lambda nbytes: 0.0)
        print(f"\n### {rows} rows a rank, one rank {alone / 1e3:.2f} ms, {len(plan.collectives)} sums\n")
        print(f"| ranks | {' | '.join(link.name for link in LINKS)} |\n|--:|{'--:|' * len(LINKS)}")
        curves = [[alone / step_time(plan, partial(link.sum_time, ranks=p)) for p in RANKS] for link in LINKS]
        for i, ranks in enumerate(RANKS):
            print(f"| {ranks} | {' | '.join(f'{curve[i]:.3f}' for curve in curves)} |")
        for link, curve in zip(LINKS, curves, strict=True):
            axes.plot(RANKS, curve, marker=".", label=link.name)
        axes.set_xticks([1, 8, 64, 1024], ["1", "8", "64", "1024"])
        axes.minorticks_off()
    axes.legend(fontsize=7, loc="lower right")
    if options.picture:
        figure.savefig(options.picture)


if __name__ == "__main__":
    main()
