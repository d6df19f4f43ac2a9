"""Radix selects of a GPU on the emulator, against NumPy; and they compile for GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.cuda.algorithms import radix_select, radix_select_kernels
from kernelgraph.runtime.program.program import Library
from kernelgraph.runtime.verify.plan import find_plan_violations

from .test_device_calls import agrees, graph_of
from .test_device_sort import numbers


@pytest.fixture
def small(monkeypatch: Any) -> None:
    """Small blocks, digits of at most 8 bits for keys and 4 for places, and no row that a block sorts."""
    for module in (radix_select, radix_select_kernels):
        monkeypatch.setattr(module, "THREADS", 32)
        monkeypatch.setattr(module, "PICKING", 32)
        monkeypatch.setattr(module, "BINS", 256)
        monkeypatch.setattr(module, "EACH", 2)
    monkeypatch.setattr(radix_select_kernels, "BITS", 4)
    monkeypatch.setattr(radix_select, "keys_of_thread_in_block_sort", lambda length, dtype: 0)


@pytest.mark.parametrize("rows", [0, 1000], ids=["a block for a row", "blocks for stretches"])
def test_the_first_of_each_row(small: None, monkeypatch: Any, rows: int) -> None:
    monkeypatch.setattr(radix_select, "ROWS", rows)
    agrees(lambda x: kg.topk(x, 9), numbers("f2", (2, 70)))  # more NaN than one
    agrees(lambda x: kg.topk(x, 7, 0, False), numbers("u1", (70, 1)))  # more equal ones than wanted


@pytest.mark.parametrize("rows", [0, 1000], ids=["a block for a row", "blocks for stretches"])
def test_values_in_places_of_the_order(small: None, monkeypatch: Any, rows: int) -> None:
    monkeypatch.setattr(radix_select, "ROWS", rows)
    agrees(lambda x: np.median(x, axis=1), np.stack([numbers("i2", 50), np.arange(50, dtype="i2")]))
    agrees(lambda x: np.percentile(x, [10, 80], axis=0), numbers("i1", (90, 1)))


def test_a_block_picks_from_rows_that_it_sorts() -> None:
    agrees(lambda x: np.median(x, axis=1), numbers("u1", (2, 30)))
    agrees(lambda x: kg.topk(x, 3), numbers("u1", (2, 20)))


def test_most_of_a_row_is_sorted(small: None) -> None:
    x = np.zeros((3, 5000), np.float32)
    for k, name in ((600, "collect"), (2500, "sort_pass")):
        assert name in [
            t.name for t in compile_graph_to_program(graph_of(lambda x, k=k: kg.topk(x, k), x), "cuda").tasks
        ]


def test_plans_of_device_calls_are_safe() -> None:
    """Sorts, scans and counts pass words between their blocks; the verifier is told so."""

    def added(x: Any, i: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, 1)
        return y

    x, i = np.zeros((3, 9000), np.float32), np.zeros(9000, np.int64)
    calls = (lambda x: np.sort(x), lambda x: np.argsort(x, 1), lambda x: np.cumsum(x, 1), np.median, np.nanmedian)
    for call in (*calls, lambda x: kg.topk(x, 5), lambda x: kg.topk(x.T[::2], 4000, 0)):
        assert not find_plan_violations(kg.kernel_graph(call, device="fake", streams="max").plan(x))
    for places in (9, 5000):
        assert not find_plan_violations(
            kg.kernel_graph(added, device="fake", streams="max").plan(np.zeros(places, "f4"), i)
        )


@pytest.mark.parametrize(("dtype", "shape"), [("f2", (1, 1 << 14)), ("u1", (200, 1 << 13))])
def test_they_compile(dtype: str, shape: tuple[int, int]) -> None:
    compile_module = pytest.importorskip("kernelgraph.runtime.devices.cuda.compile.compile")
    tasks = compile_graph_to_program(graph_of(lambda x: kg.topk(x, 9), np.zeros(shape, dtype)), "cuda").tasks
    assert not any(isinstance(t.kernel, Library) for t in tasks)
    for kernel in dict.fromkeys(t.kernel for t in tasks if t.name.startswith(("select", "collect"))):
        assert compile_module.compile_cubin(kernel, (9, 0))
