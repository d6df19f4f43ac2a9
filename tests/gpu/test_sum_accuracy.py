"""Long sums of float32 on a GPU are as near to float64's as NumPy's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.end_to_end.sum_accuracy import errors


@pytest.mark.parametrize("n", [1000, 10**6 + 7, 10**8])
def test_reductions_of_many_float32(device: Any, n: int) -> None:
    """The worst of ours is no worse than the worst of NumPy's; a single one may be off by a last place more."""
    found = list(errors("cuda", n))
    assert max(f.ulp for f in found) <= max(1.0, *(f.numpys for f in found)), found
