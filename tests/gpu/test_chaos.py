"""200 runs on a GPU with random delays between launches: not one bit differs from the same plan, one step at a time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.end_to_end.chaos_runs import CASES, chained, differences

CALLS, CHAINED = 18, 20


@pytest.mark.parametrize("name", CASES)
def test_programs(device: Any, name: str) -> None:
    assert differences(name, "cuda", "max", "balanced", CALLS) == 0


def test_calls_on_the_results_of_calls(device: Any) -> None:
    assert chained("cuda", CHAINED) == 0


def test_there_are_two_hundred_runs() -> None:
    assert len(CASES) * CALLS + CHAINED >= 200
