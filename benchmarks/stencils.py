"""Stencils of stencils: what their plans store and compute again, and how long they take beside a copy.

    python benchmarks/stencils.py --device cuda
    python benchmarks/stencils.py --device cpu --size 1024 --only box --busy

A generated table: blurs, box sums, products of gradients summed over boxes, edges of blurs; 3 x 3 to 11 x 11.
`chosen`: the plan's; `everything`, `nothing`: all is stored that may be, or nothing but what must be; microseconds of
a call, queued. copy: of an array of that size; moved: bytes that the chosen plan's kernels read and write, in copies.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]
from common import clock_of, interleave, machine

import kernelgraph as kg
from kernelgraph.compiler.fusion import storage

MODES = ("chosen", "everything", "nothing")


@contextmanager
def storing(mode: str) -> Iterator[None]:
    """With costs that let everything be stored that may be, or nothing."""
    cost = {"everything": 0.0, "nothing": 1e30}.get(mode)
    if cost is None:
        yield
        return
    with patch.object(storage.StoragePlan, "_cost_of_storing", lambda plan, number, places: cost):
        yield


def shifts(x: Any, rows: int, columns: int) -> list[Any]:
    n, m = x.shape[0] - rows + 1, x.shape[1] - columns + 1
    return [x[i : i + n, j : j + m] for i in range(rows) for j in range(columns)]


def box(x: Any, size: int) -> Any:
    return sum(shifts(x, size, size))


def separable(x: Any, size: int) -> Any:
    taps = [1.0 / (2 + abs(k - size // 2)) for k in range(size)]
    y = sum(t * s for t, s in zip(taps, shifts(x, size, 1), strict=True))
    return sum(t * s for t, s in zip(taps, shifts(y, 1, size), strict=True))


def gradients(x: Any) -> tuple[Any, Any]:
    row, column = x[:, 2:] - x[:, :-2], x[2:, :] - x[:-2, :]
    across = (row[:-2] + 2.0 * row[1:-1] + row[2:]) / 12.0
    return across, (column[:, :-2] + 2.0 * column[:, 1:-1] + column[:, 2:]) / 12.0


def corners(x: Any, size: int, boxed: Callable[[Any, int], Any] = box) -> Any:
    across, down = gradients(x)
    xx, yy, xy = (boxed(a * b, size) for a, b in ((across, across), (down, down), (across, down)))
    return xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy)


def twice(x: Any, size: int) -> Any:
    return box(box(x, size), 3)


def edges(x: Any, size: int) -> Any:
    across, down = gradients(separable(x, size))
    return np.sqrt(across * across + down * down)


def ratio(x: Any, size: int) -> Any:
    return box(x / (1.0 + box(x, 3)[0, 0]), size) if size < 3 else box(np.sqrt(x) / 3.0, size)


KINDS: dict[str, Callable[[Any, int], Any]] = {
    "box": box, "separable": separable, "corners": corners, "corners separable": lambda x, n: corners(x, n, separable),
    "box of a box": twice, "edges of a blur": edges, "box of a root": ratio,
}  # fmt: skip


def programs() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    for kind, function in KINDS.items():
        for size in (3, 5, 7, 11):
            yield f"{kind} {size} x {size}", lambda x, f=function, n=size: f(x, n)


def compiled_for(function: Callable[[Any], Any], device: str) -> Any:
    return kg.kernel_graph(lambda x: function(x), device=device)


def plan_of(function: Any, x: Any) -> tuple[int, float]:
    """Kernels of a compiled call, and the bytes of the arrays that they read and write."""
    program = function._compiled_for((x,), {}).plan.program
    moved = sum(
        program.buffers[number].nbytes for task in program.tasks for number in {a.buffer for a in _pointers(task)}
    )
    return len(program.tasks), float(moved)


def _pointers(task: Any) -> list[Any]:
    return [a for a in task.arguments if hasattr(a, "buffer")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each program")
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--busy", action="store_true", help="minima, not medians: on a machine that others use")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(machine(None, ("numpy", "llvmlite", "numba-cuda")))
    middle = min if given.busy else statistics.median
    x = np.random.default_rng(0).uniform(0.1, 1, (given.size, given.size)).astype(np.float32)
    array = kg.asarray(x, device=given.device)
    print(
        "| program | kernels | moved, copies | " + " | ".join(given.modes) + " | copy | chosen / copy | best / chosen |"
    )
    print("|---|" + "--:|" * (len(given.modes) + 5))
    copy = kg.kernel_graph(lambda x: x + 1, device=given.device)
    for name, function in programs():
        if given.only and not any(part in name for part in given.only):
            continue
        calls: dict[str, Callable[[], Any]] = {"copy": lambda: copy(array)}
        compiled = {mode: compiled_for(function, given.device) for mode in given.modes}
        results = []
        for mode, f in compiled.items():
            with storing(mode):
                results.append(np.asarray(f(array)))
            calls[mode] = lambda f=f: f(array)
        kernels, moved = plan_of(compiled[given.modes[0]], array)
        same = all(np.array_equal(r, results[0]) for r in results)
        for call in calls.values():
            for _ in range(40):
                call()
            kg.waitall()
        found = interleave(calls, given.seconds, clock_of(kg.waitall), sample_seconds=5e-3)
        times = {label: middle(samples) * 1e6 for label, samples in found.items()}
        best, first = min(times[m] for m in given.modes), times[given.modes[0]]
        cells = " | ".join(f"{times[m]:,.4g}" for m in given.modes)
        print(
            f"| {name} | {kernels} | {moved / (2 * x.nbytes):.1f} | {cells} | {times['copy']:,.4g} "
            f"| {first / times['copy']:.2f} | {best / first:.2f} |{'' if same else ' DIFFERENT BITS'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
