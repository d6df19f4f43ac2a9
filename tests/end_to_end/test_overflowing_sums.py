"""No sum is infinite or NaN by its own order of adding where NumPy's is finite."""

from __future__ import annotations

from tests.counts import examples
from tests.overflowing_sums import run


def test_sums_that_overflow_in_some_order() -> None:
    assert not run(examples(400))
