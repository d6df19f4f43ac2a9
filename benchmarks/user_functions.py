"""Users' scalar functions beside numba: Mandelbrot escape counts, on the CPU or a GPU.

    python benchmarks/user_functions.py [--device cuda] [--seconds 3]

On two cores of the CPU: `@kg.elementwise` in a traced function beside numba's `@vectorize` (for one thread and, where
numba has it, parallel) and NumPy's array expressions. On a GPU: beside a numba.cuda kernel written by hand. *fused*
also makes the points of the plane, and sums the counts of each row, in the same kernel.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import interleave, machine, pin, show

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
PARSER.add_argument("--seconds", type=float, default=3.0, help="time for each workload")
OPTIONS = PARSER.parse_args()
if OPTIONS.device == "cpu":
    pin(2)

import statistics
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

import kernelgraph as kg

MOST = 200
Call = Callable[[], Any]


def escape(c, most):  # type: ignore[no-untyped-def]
    """How many steps z*z + c takes to leave the circle of radius 2."""
    z = 0j
    for step in range(most):
        if z.real * z.real + z.imag * z.imag > 4.0:
            return step
        z = z * z + c
    return most


counted = kg.elementwise(escape)


def plane(n: int) -> tuple[Any, Any]:
    return np.linspace(-2, 0.75, n), np.linspace(-1.25, 1.25, n)


def with_numpy(c: Any) -> Any:
    z, count = np.zeros_like(c), np.full(c.shape, MOST)
    with np.errstate(all="ignore"):
        for step in range(MOST):
            count[(count == MOST) & (z.real * z.real + z.imag * z.imag > 4.0)] = step
            z = z * z + c
    return count


def on_the_cpu(c: Any, x: Any, y: Any) -> tuple[dict[str, Call], dict[str, Call]]:
    types = ["int64(complex128, int64)"]
    one = numba.vectorize(types)(escape)
    f = kg.kernel_graph(lambda c: counted(c, MOST), device="cpu")
    rows = kg.kernel_graph(lambda x, y: counted(x + 1j * y[:, None], MOST).sum(1), device="cpu")
    calls: dict[str, Call] = {"kernelgraph": lambda: f(c), "numba vectorize": lambda: one(c, MOST)}
    fused: dict[str, Call] = {
        "kernelgraph": lambda: rows(x, y),
        "numba vectorize": lambda: one(x + 1j * y[:, None], MOST).sum(1),
    }
    try:
        many = numba.vectorize(types, target="parallel")(escape)
        calls["numba vectorize, parallel"] = lambda: many(c, MOST)
        fused["numba vectorize, parallel"] = lambda: many(x + 1j * y[:, None], MOST).sum(1)
    except Exception as error:
        print(f"- numba's parallel target: {error}")
    calls["NumPy"] = lambda: with_numpy(c)
    assert all((np.asarray(call()) == one(c, MOST)).all() for call in calls.values())
    assert all((np.asarray(call()) == one(c, MOST).sum(1)).all() for call in fused.values())
    return calls, fused


def on_a_gpu(c: Any, x: Any, y: Any) -> tuple[dict[str, Call], dict[str, Call]]:
    from numba import cuda

    inner = cuda.jit(device=True)(escape)

    @cuda.jit
    def by_hand(c, out, most):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < out.size:
            out[i] = inner(c[i], most)

    f = kg.kernel_graph(lambda c: counted(c, MOST), device="cuda")
    rows = kg.kernel_graph(lambda x, y: counted(x + 1j * y[:, None], MOST).sum(1), device="cuda")
    ours, held = kg.asarray(c, device="cuda"), [kg.asarray(a, device="cuda") for a in (x, y)]
    theirs, out = cuda.to_device(c.ravel()), cuda.device_array(c.size, np.int64)

    def numba_cuda() -> Any:
        by_hand[-(-c.size // 256), 256](theirs, out, MOST)
        cuda.synchronize()
        return out

    calls: dict[str, Call] = {"kernelgraph": lambda: f(ours).wait(), "numba.cuda by hand": numba_cuda}
    fused: dict[str, Call] = {"kernelgraph": lambda: rows(*held).wait()}
    wanted = numba.vectorize(["int64(complex128, int64)"])(escape)(c, MOST)
    assert (numba_cuda().copy_to_host().reshape(c.shape) == wanted).all()
    wrong = np.count_nonzero(np.asarray(f(ours)) != wanted)
    assert wrong == 0, f"{wrong} counts differ"
    assert (np.asarray(rows(*held)) == wanted.sum(1)).all()
    return calls, fused


def main() -> None:
    packages = ("kernelgraph", "numpy", "numba", "llvmlite", *(("numba-cuda",) if OPTIONS.device == "cuda" else ()))
    print(machine(2, packages))
    n = 1024 if OPTIONS.device == "cpu" else 4096
    x, y = plane(n)
    c = x + 1j * y[:, None]
    both = on_the_cpu(c, x, y) if OPTIONS.device == "cpu" else on_a_gpu(c, x, y)
    for name, calls in zip((f"Mandelbrot {n} x {n}, {MOST} steps", "the same, fused"), both, strict=True):
        samples = interleave(calls, OPTIONS.seconds)
        print(f"\n### {name}\n")
        for label, values in samples.items():
            print(f"- {label}: {show(min(values))} fastest, {show(statistics.median(values))} median")


if __name__ == "__main__":
    main()
