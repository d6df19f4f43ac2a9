"""Random loops whose turns repeat, raise, or are cut off by Ctrl-C: what they give and write is what NumPy does."""

from __future__ import annotations

from tests.random_cases import explore
from tests.repeating_programs import SUITE


def test_random_repeating_loops() -> None:
    report = explore(SUITE, 16, 5, "cpu")
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.text}" for p, o in report.wrong)
    assert report.refused_cases < 8
