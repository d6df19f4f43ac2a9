"""Published NumPy programs run with nothing but the decorator added, and give NumPy's answers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.pytree import flatten
from kernelgraph.dsl.jit.trace_function import TraceAttempt
from tests.dsl.tracing import assert_same

from .numpy_kernels import LOOPS, Case, cases

CASES = cases()


MOST_TRACES = 5  # of a first call: one, and another for each group of numbers whose values decide
TRACED_TWICE = {  # though all arguments are arrays
    "lenet5",  # whose loops are in functions that it calls: it begins again once the trace is long,
    "resnet_block",
    "sparse_rows",  # and this one where a traced index is refused in the function's own code
}
BY_NUMPY = {
    "romberg",  # whose table of lists grows until a value ends it
}


@pytest.mark.parametrize("case", [*CASES, *cases(LOOPS)], ids=lambda c: f"{c.field}-{c.name}")
def test_results_and_arguments(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[TraceAttempt] = []
    trace = TraceAttempt.run
    monkeypatch.setattr(TraceAttempt, "run", lambda attempt: (traces.append(attempt), trace(attempt))[1])
    decorated = kg.kernel_graph(case.function, device="cpu", untraceable="numpy" if case.name in BY_NUMPY else "refuse")
    check(case, decorated)
    assert ("runs in NumPy" in decorated.why()) == (case.name in BY_NUMPY)
    assert len(traces) <= (1 + (case.name in TRACED_TWICE) if is_of_arrays(case) else MOST_TRACES)


def is_of_arrays(case: Case) -> bool:
    """Whether no number of its arguments may decide how the trace goes on."""
    leaves: list[Any] = []
    flatten(case.make(case.small), leaves)
    return all(isinstance(leaf, np.ndarray) for leaf in leaves)


def check(case: Case, decorated: kg.KernelGraph) -> None:
    """One call, on results and on what becomes of the arguments."""
    reference, mine = case.make(case.small), case.make(case.small)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = case.function(*reference)
    got = decorated(*mine)
    if case.decides:
        assert_leaves_same(got, expected, case.ulps, numbers=True)
    else:
        assert_same(got, expected, case.ulps)
    assert_leaves_same(mine, reference, case.ulps, numbers=False)


def assert_leaves_same(got: Any, expected: Any, ulps: float, numbers: bool) -> None:
    """All arrays, and numbers as arrays of no axis."""
    left: list[Any] = []
    right: list[Any] = []
    flatten(got, left)
    flatten(expected, right)
    for a, b in zip(left, right, strict=True):
        if numbers or isinstance(b, np.ndarray):
            assert_same(np.asarray(a), np.asarray(b), ulps)


def test_there_are_many_of_many_fields() -> None:
    assert len(CASES) >= 100 and len({c.field for c in CASES}) >= 12 and len({c.name for c in CASES}) == len(CASES)
