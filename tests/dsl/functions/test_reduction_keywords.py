"""Every reduction with every keyword gives what NumPy gives, and raises what NumPy raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.counts import examples
from tests.reduction_keywords import run


@pytest.mark.parametrize("seed", range(2))
def test_keywords_of_reductions(seed: int) -> None:
    assert not run(examples(300), seed)[2]


def test_a_large_sum_is_written_to_an_out_of_a_narrower_dtype() -> None:
    def into(m: Any, w: Any) -> Any:
        np.sum(m, axis=0, out=w)
        return w

    m = np.arange(200 * 200, dtype="i4").reshape(200, 200)
    np.testing.assert_array_equal(kg.kernel_graph(into, device="cpu")(m, np.zeros(200, "i4")), m.sum(axis=0))
