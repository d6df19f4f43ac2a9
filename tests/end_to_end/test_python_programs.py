"""Random functions of Python's own things: guards, errors, side effects, iterators and numbers are as in Python."""

from __future__ import annotations

from tests.python_programs import SUITE
from tests.random_cases import explore


def test_random_functions_of_python() -> None:
    report = explore(SUITE, 150, 7, "cpu")
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.program()}" for p, o in report.wrong)
    compiled = report.cases - report.refused["runs in NumPy"] - report.refused_cases
    assert report.calls > 500 and report.refused["runs in NumPy"] < 120 and compiled < report.cases
