"""Published NumPy programs run with nothing but the decorator added, and give NumPy's answers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from tests.dsl.tracing import assert_same

from .numpy_kernels import Case, cases

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_results_and_arguments(case: Case) -> None:
    options = {"untraceable": "split"} if case.split else {}
    decorated = kg.kernel_graph(case.function, device="cpu", **options)  # type: ignore[call-overload]
    for _ in range(1 + case.split):  # the second time every split is known
        check(case, decorated)


def check(case: Case, decorated: kg.KernelGraph) -> None:
    """One call, on results and on what becomes of the arguments."""
    reference, mine = case.make(case.small), case.make(case.small)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = case.function(*reference)
    assert_same(decorated(*mine), expected, case.ulps)
    left: list[Any] = []
    right: list[Any] = []
    flatten(mine, left)
    flatten(reference, right)
    for a, b in zip(left, right, strict=True):
        if isinstance(b, np.ndarray):
            assert_same(a, b, case.ulps)


@pytest.mark.parametrize("case", [c for c in CASES if c.split], ids=lambda c: c.name)
def test_decisions_are_compiled_without_splitting(case: Case) -> None:
    decorated = kg.kernel_graph(case.function, device="cpu")
    if case.name == "romberg":  # whose table grows until a value ends it
        with pytest.raises(kg.TraceError, match="changes its size"):
            decorated(*case.make(case.small))
    else:  # a number that a value decides is an array of no axis
        got: list[Any] = []
        want: list[Any] = []
        flatten(decorated(*case.make(case.small)), got)
        flatten(case.function(*case.make(case.small)), want)
        for a, b in zip(got, want, strict=True):
            assert_same(np.asarray(a), np.asarray(b), case.ulps)


def test_there_are_many_of_many_fields() -> None:
    assert len(CASES) >= 100 and len({c.field for c in CASES}) >= 12 and len({c.name for c in CASES}) == len(CASES)
