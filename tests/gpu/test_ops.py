"""Every row of the op table on every dtype on a GPU, against NumPy under the numerical contract."""

from __future__ import annotations

from typing import Any

import pytest

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.core.types import DTYPES, SHORT_NAMES
from kernelgraph.runtime.program.program import Kernel
from tests.compiler.op_groups import Group, arguments, groups
from tests.end_to_end.op_accuracy import rounding_groups, sweep
from tests.end_to_end.op_device import (
    check_constants,
    check_group,
    check_products,
    check_rows_with_attributes,
    check_selected_zero,
    constants,
)

SWEPT = [("f32", 100_000), ("f64", 30_000), ("c64", 30_000), ("c128", 10_000), ("bf16", 30_000)]


@pytest.fixture(scope="session")
def loaded(device: Any) -> Any:
    """The device with all the kernels, compiled side by side."""
    graphs = [g.graph(len(arguments(g.loop)[0])) for g in groups()] + [constants(d)[0] for d in SHORT_NAMES]
    graphs += [g.graph(count) for dtype, count in SWEPT for g in rounding_groups(DTYPES[dtype])]
    programs = [pipeline.compile_graph_to_program(graph, "cuda") for graph in graphs]
    device.load([t.kernel for p in programs for t in p.tasks if isinstance(t.kernel, Kernel)])
    return device


@pytest.mark.parametrize("group", groups(), ids=str)
def test_rows_agree_with_numpy(loaded: Any, group: Group) -> None:
    check_group(loaded, group)


@pytest.mark.parametrize(("dtype", "count"), SWEPT)
def test_accuracy_over_the_whole_range(loaded: Any, dtype: str, count: int) -> None:
    """`benchmarks/accuracy.py --device cuda` prints the same for more arguments."""
    assert not [found for found in sweep(loaded, DTYPES[dtype], count) if found.breaks]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_a_constant(loaded: Any, dtype: str) -> None:
    check_constants(loaded, DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_rows_with_attributes(device: Any, dtype: str) -> None:
    check_rows_with_attributes(device, DTYPES[dtype])


@pytest.mark.parametrize(("narrow", "wide"), [("f2", "f4"), ("f4", "f8"), ("f8", "f4"), ("f4", "f2")])
def test_a_selected_zero_keeps_its_sign_through_a_conversion(device: Any, narrow: str, wide: str) -> None:
    check_selected_zero(device, narrow, wide)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_and_sums_keep_their_roundings(device: Any, dtype: str) -> None:
    check_products(device, dtype)
