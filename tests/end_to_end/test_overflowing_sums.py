"""No sum is infinite or NaN by its own order of adding where NumPy's is finite."""

from __future__ import annotations

import numpy as np

import kernelgraph as kg
from tests.counts import examples
from tests.overflowing_sums import run


def test_sums_that_overflow_in_some_order() -> None:
    assert not run(examples(400))


def test_error_terms_that_overflow() -> None:
    """The sum of the halves is finite; what it was rounded by is not."""
    most = np.finfo(np.float64).max
    x = np.array([[1e308, 1, -most / 3, 1, 1, -most]] * 3)
    found = kg.kernel_graph(lambda x: x.sum(1), device="cpu")(x)
    np.testing.assert_allclose(np.asarray(found), x.sum(1), rtol=1e-15)
