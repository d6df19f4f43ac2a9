"""Random programs that write to what their arguments hold: results and state are Python's after every call."""

from __future__ import annotations

from tests.state_programs import explore


def test_random_programs_with_state() -> None:
    report = explore(60, 7)
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.text()}\n{p.turns}" for p, o in report.wrong)
    assert report.calls > 150 and sum(report.refused.values()) < 15
