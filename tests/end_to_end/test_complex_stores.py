"""Complex numbers of which one part alone depends on a reduction are stored whole."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(3, 3), (1, 5), (40, 7), (0, 3)])
@pytest.mark.parametrize("operate", [operator.add, operator.sub, operator.mul])
def test_a_count_beside_complex_numbers(dtype: str, shape: tuple[int, int], operate: Any) -> None:
    def function(b: Any, c: Any) -> Any:
        count = np.count_nonzero(b)
        c[:1] = 2.0
        c[:, ::-1] = operate(c[:, ::-1], count)
        c[:, ::-1] = operate(c[:, ::-1], count)
        return c.T, np.where(c.real > 0, 1, 0)

    b = np.ones((3, 3), dtype)
    expected = np.arange(float(shape[0] * shape[1])).reshape(shape).astype(dtype)
    given = expected.copy()
    wanted = function(b, expected)
    got = kg.kernel_graph(function, device="cpu")(b, given)
    np.testing.assert_array_equal(given, expected)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
