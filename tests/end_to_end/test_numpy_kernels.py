"""Published NumPy programs run with nothing but the decorator added, and give NumPy's answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.tree import flatten

from ..dsl.tracing import assert_same
from .numpy_kernels import Case, cases

CASES = cases()


@pytest.mark.parametrize("case", [c for c in CASES if not c.split], ids=lambda c: c.name)
def test_results_and_arguments(case: Case) -> None:
    reference, mine = case.make(case.small), case.make(case.small)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = case.function(*reference)
    result = kg.kernel_graph(case.function, device="cpu")(*mine)
    assert_same(result, expected, case.ulps)
    left, right = [], []
    flatten(mine, left)
    flatten(reference, right)
    for a, b in zip(left, right, strict=True):
        if isinstance(b, np.ndarray):
            assert_same(a, b, case.ulps)


def test_there_are_many_of_many_fields() -> None:
    assert len(CASES) >= 100 and len({c.field for c in CASES}) >= 12 and len({c.name for c in CASES}) == len(CASES)
