"""Long sums of float32 are as near to float64's as NumPy's."""

from __future__ import annotations

import pytest

from .sum_accuracy import errors


@pytest.mark.parametrize("n", [1000, 10**6 + 7, 10**8])
def test_reductions_of_many_float32(n):
    assert not [found for found in errors("cpu", n) if found.breaks]
