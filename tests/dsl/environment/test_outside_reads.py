"""What functions read from the world outside, or do to it, is read and done at each call, or told."""

from __future__ import annotations

import itertools

import pytest

from tests.outside_reads import Case, cases, wrong

STEP = 61  # has no factor in common with the numbers of ways and modes
SOME = [*itertools.islice(cases(), 0, None, STEP)]


@pytest.mark.parametrize("case", SOME, ids=lambda case: f"{case.mode}, {case.name}")
def test_what_lies_outside_is_told_or_read_at_each_call(case: Case) -> None:
    assert not wrong(case)
