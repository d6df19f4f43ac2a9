"""Every reduction with every keyword gives what NumPy gives, and raises what NumPy raises."""

from __future__ import annotations

import pytest

from tests.counts import examples
from tests.reduction_keywords import run


@pytest.mark.parametrize("seed", range(2))
def test_keywords_of_reductions(seed: int) -> None:
    assert not run(examples(600), seed)[2]
