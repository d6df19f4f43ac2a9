"""Sorting kernels of a GPU on the emulator, against NumPy; and they compile for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.algorithms import radix_sort_kernels
from kernelgraph.compiler.targets.cuda.algorithms.kernel_language import kernel_text
from kernelgraph.runtime.program.program import Library
from tests.compiler import cuda_emulator

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


@pytest.mark.parametrize("tile", [0, 1, 2, 7, 8, 9, 17, 30])
def test_tiles_ask_those_before(tile: int) -> None:
    """Some have added up what is before them, the first always; the later ones have told their own counts alone."""
    rng = np.random.default_rng(tile)
    digits, total, through = radix_sort_kernels.DIGITS, radix_sort_kernels.TOTAL, radix_sort_kernels.THROUGH
    counts = rng.integers(0, 9, (tile + 1, digits))
    known = rng.integers(0, tile + 1, digits)  # the last that has added up, by digit
    flags = np.where(np.arange(tile + 1)[:, None] <= known, counts.cumsum(0) + through, counts + total)
    said = np.concatenate([[0], flags.ravel()]).astype("u8")
    said[1 + tile * digits :] = 0
    found = np.zeros(digits, "u8")
    keys_of_tiles_before, word_of = radix_sort_kernels.keys_of_tiles_before, radix_sort_kernels.I64
    u32, u64 = radix_sort_kernels.U32, radix_sort_kernels.U64

    def ask(said, tile, mine, found):
        x = word_of(radix_sort_kernels.tid_x())
        own = u32.load(mine, x)
        u64.store(found, x, keys_of_tiles_before(said, tile, 1 + tile * radix_sort_kernels.DIGITS + x, own))

    arrays = [said, counts[tile].astype("u4"), found]
    said_, mine, found_ = (cuda_emulator.pointer(a.view("u1"), 0, str(k), False) for k, a in enumerate(arrays))
    text = kernel_text(ask, digits).replace("NAME", "ask")
    cuda_emulator.run(text, "ask", (1, 1, 1), (digits, 1, 1), [said_, tile, mine, found_])
    assert np.array_equal(found, counts[:tile].sum(0))
    assert np.array_equal(said[1 + tile * digits :], counts.sum(0).astype("u8") + np.uint64(through))


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
