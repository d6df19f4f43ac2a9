"""Random programs that decide on traced values: what they give, write and raise is what NumPy does."""

from __future__ import annotations

from tests.control_flow_programs import SUITE
from tests.random_cases import explore


def test_random_control_flow() -> None:
    report = explore(SUITE, 20, 7, "cpu")
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.program()}" for p, o in report.wrong)
    assert report.calls > 40 and report.refused.total() < 12
