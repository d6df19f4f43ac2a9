"""What a call costs: small calls of a decorated function by kind of argument, and the time to compile a kernel.

    python benchmarks/calls.py [--seconds 1]

A call allocates its output and makes the result.
Compiling is from the text of a kernel to machine code, nothing cached, in time of the thread.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import interleave, machine, pin, show

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--seconds", type=float, default=1.0, help="time for each size")
OPTIONS = PARSER.parse_args()
pin(2)

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.runtime.codegen.llvm_jit import compile_llvm_ir_to_object_file
from kernelgraph.runtime.program.program import Kernel

SIZES = (16, 1024, 4096)


@kg.kernel_graph(device="cpu")
def chain(x: Any) -> Any:
    return np.exp(-(x * x)) * np.sin(x) + 0.5 * x


@kg.kernel_graph(device="cpu")
def scaled(x: Any, y: Any, a: float) -> Any:
    return x * a + y


@kg.kernel_graph(device="cpu")
def two_results(x: Any, y: Any) -> Any:
    return x + y, x * y


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


COMPILED: tuple[Callable[[Any], Any], ...] = (
    chain._function, softmax, lambda x: x + 1, lambda x: x.T + 1, lambda x: x.sum(axis=0), lambda x: (x * x).sum(),
    lambda x: x.argmax(axis=-1), lambda x: np.log1p(x) ** 1.7, lambda x: np.where(x > 0.5, x, np.tanh(x)),
    lambda x: (x - x.mean(axis=-1, keepdims=True)) / x.std(axis=-1, keepdims=True), lambda x: x.astype(np.float16),
)  # fmt: skip


def calls(size: int) -> dict[str, Callable[[], Any]]:
    x, y = (np.random.default_rng(i).random(size, np.float32) for i in range(2))
    held = kg.asarray(x, device="cpu")
    return {
        "chain, NumPy array": lambda: chain(x),
        "chain, kg.Array": lambda: chain(held),
        "two results, NumPy arrays": lambda: two_results(x, y),
        "with a number": lambda: scaled(x, y, 2.0),
        "chain, NumPy itself": lambda: chain._function(x),
    }


def kernel_seconds(repeats: int = 3) -> list[float]:
    """The least time of this thread for each kernel."""
    x = np.zeros((512, 768), np.float32)
    tasks = [task for f in COMPILED for task in kg.kernel_graph(device="cpu")(f).program(x).tasks]
    texts = dict.fromkeys(task.kernel.source for task in tasks if isinstance(task.kernel, Kernel))
    found = []
    for text in texts:
        taken = []
        for _ in range(repeats):
            start = time.thread_time()
            compile_llvm_ir_to_object_file(text)
            taken.append(time.thread_time() - start)
        found.append(min(taken))
    return found


def main() -> None:
    print(machine(2, ("kernelgraph", "numpy", "llvmlite")))
    print(f"- load: {os.getloadavg()[0]:.1f}")
    for size in SIZES:
        print(f"\n### {size} elements\n")
        for name, samples in interleave(calls(size), OPTIONS.seconds, sample_seconds=5e-4).items():
            print(f"- {name}: {show(min(samples))} fastest, {show(statistics.median(samples))} median")
    seconds = kernel_seconds()
    print(
        f"\n{len(seconds)} kernels compile in {show(statistics.median(seconds))} (median), {show(max(seconds))} (most)"
    )


if __name__ == "__main__":
    main()
