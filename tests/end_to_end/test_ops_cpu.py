"""Every row of the op table on every dtype on the CPU, against NumPy under the numerical contract."""

from __future__ import annotations

import pytest

from kernelgraph.compiler.core.types import DTYPES
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from tests.compiler.op_groups import Group, groups

from .op_accuracy import sweep
from .op_device import check_constants, check_group, check_products, check_rows_with_attributes, check_selected_zero

DEVICE = CPUDevice()


@pytest.mark.parametrize("group", groups(), ids=str)
def test_rows_agree_with_numpy(group: Group) -> None:
    check_group(DEVICE, group)


@pytest.mark.parametrize(
    ("dtype", "count"), [("f32", 100_000), ("f64", 30_000), ("c64", 30_000), ("c128", 10_000), ("bf16", 30_000)]
)
def test_accuracy_over_the_whole_range(dtype: str, count: int) -> None:
    """`benchmarks/accuracy.py` prints the same for more arguments."""
    assert not [found for found in sweep(DEVICE, DTYPES[dtype], count) if found.breaks]


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_a_constant(dtype: str) -> None:
    check_constants(DEVICE, DTYPES[dtype])


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_rows_with_attributes(dtype: str) -> None:
    check_rows_with_attributes(DEVICE, DTYPES[dtype])


@pytest.mark.parametrize(("narrow", "wide"), [("f2", "f4"), ("f4", "f8"), ("f8", "f4"), ("f4", "f2")])
def test_a_selected_zero_keeps_its_sign_through_a_conversion(narrow: str, wide: str) -> None:
    check_selected_zero(DEVICE, narrow, wide)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_products_and_sums_keep_their_roundings(dtype: str) -> None:
    check_products(DEVICE, dtype)
