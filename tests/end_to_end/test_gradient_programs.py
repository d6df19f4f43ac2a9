"""Random differentiable programs: derivatives in both modes agree with differences and with each other."""

from __future__ import annotations

from tests.gradient_programs import SUITE
from tests.random_cases import explore


def test_random_gradients() -> None:
    report = explore(SUITE, 40, 7, "cpu")
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.text}" for p, o in report.wrong)
    assert not report.refused
