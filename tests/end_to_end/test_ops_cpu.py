"""Every row of the op table on every dtype on the CPU, against NumPy under the numerical contract."""

from __future__ import annotations

import numpy as np
import pytest

from kernelgraph.compiler.graph import Builder
from kernelgraph.compiler.types import DTYPES, ArrayType
from kernelgraph.runtime.devices.cpu import CPUDevice

from ..compiler.op_groups import Group, groups
from .op_accuracy import sweep
from .op_device import check_group, compute

DEVICE = CPUDevice()


@pytest.mark.parametrize("group", groups(), ids=str)
def test_rows_agree_with_numpy(group: Group) -> None:
    check_group(DEVICE, group)


@pytest.mark.parametrize(
    ("dtype", "count"), [("f32", 100_000), ("f64", 30_000), ("c64", 30_000), ("c128", 10_000), ("bf16", 30_000)]
)
def test_accuracy_over_the_whole_range(dtype: str, count: int) -> None:
    """`benchmarks/accuracy.py` prints the same for more arguments."""
    assert not [found for found in sweep(DEVICE, DTYPES[dtype], count) if found.beyond]


@pytest.mark.parametrize(("narrow", "wide"), [("f2", "f4"), ("f4", "f8"), ("f8", "f4"), ("f4", "f2")])
def test_a_selected_zero_keeps_its_sign_through_a_conversion(narrow: str, wide: str) -> None:
    """np.where(x < 0, 0, x.astype(wide)) is no maximum."""
    b = Builder()
    x = b.input(ArrayType((37,), np.dtype(narrow)))
    graph = b.finish([b.map("where", b.map("less", x, 0.0), 0.0, b.cast(x, wide))])
    array = np.tile(np.array([0.0, -0.0, 1.0, -1.0, np.nan], narrow), 8)[:37]
    (got,) = compute(DEVICE, graph, [array])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.where(array < 0, 0, array)))
