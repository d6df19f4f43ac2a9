"""Every row of the op table on every dtype on the CPU, against NumPy under the numerical contract."""

from __future__ import annotations

import pytest

from kernelgraph.runtime.devices.cpu import CPUDevice

from .op_device import Group, check_group, groups

DEVICE = CPUDevice()


@pytest.mark.parametrize("group", groups(), ids=str)
def test_rows_agree_with_numpy(group: Group) -> None:
    check_group(DEVICE, group)
