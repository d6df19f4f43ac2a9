"""Sorting kernels of a GPU on the emulator, against NumPy; and they compile for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.algorithms import radix_sort_kernels
from kernelgraph.runtime.program.program import Library

from .test_device_calls import agrees, graph_of


def numbers(dtype: str, shape: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    """Many equal ones, and of floats all that is special."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    x = rng.integers(0 if kind.kind in "ub" else -9, 9, shape).astype(kind)
    if kind.kind == "f":
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(kind).tiny, np.finfo(kind).min])
        spots = rng.integers(0, x.size, 12)
        x.ravel()[spots] = special.astype(kind)[rng.integers(0, 8, 12)]
    return x


def test_rows_in_a_block() -> None:
    agrees(lambda x: np.sort(x), numbers("f4", 270))
    agrees(lambda x: np.argsort(x, axis=0, kind="stable"), numbers("i2", (30, 2)))
    agrees(lambda x: np.argsort(x, kind="stable"), numbers("f2", 40))
    agrees(lambda x: (np.sort(x), np.argsort(x, kind="stable")), numbers("?", (2, 20)))


@pytest.mark.parametrize("dtype", ["f2", "u1"])
def test_long_rows_in_tiles(dtype: str, monkeypatch: Any) -> None:
    for size in (1, 2):
        monkeypatch.setitem(radix_sort_kernels.EACH, size, 1)
    agrees(lambda x: np.sort(x, axis=1), numbers(dtype, (2, 300)))
    agrees(lambda x: np.argsort(x, kind="stable"), numbers(dtype, 520))


def test_no_host_call_is_left() -> None:
    x = np.zeros((70, 90), np.float32)
    for function in (lambda x: np.sort(x, 0), lambda x: np.argsort(x, 1), lambda x: np.partition(x, 3)):
        assert not any(
            isinstance(t.kernel, Library) for t in compile_graph_to_program(graph_of(function, x), "cuda").tasks
        )


@pytest.mark.parametrize(("dtype", "length"), [("f8", 100_000), ("i4", 3000)])
def test_they_compile(dtype: str, length: int) -> None:
    compile_module = pytest.importorskip("kernelgraph.runtime.devices.cuda.compile.compile")
    x = np.zeros((2, length), dtype)
    tasks = compile_graph_to_program(graph_of(lambda x: (np.sort(x), np.argsort(x)), x), "cuda").tasks
    for kernel in dict.fromkeys(t.kernel for t in tasks):
        assert compile_module.compile_cubin(kernel, (9, 0))
