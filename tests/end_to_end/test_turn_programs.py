"""Random programs of nested loops: what they give, write and raise is what NumPy does, recorded or unrolled."""

from __future__ import annotations

from tests.turn_programs import check


def test_random_loops() -> None:
    wrong, seen = check(11, 16)
    assert not wrong, "\n\n".join(wrong)
    assert seen["recorded"] >= 10


def test_random_comprehensions() -> None:
    wrong, seen = check(21, 12, comprehensions=True)
    assert not wrong, "\n\n".join(wrong)
    assert seen["recorded"] >= 3


def test_random_loops_that_go_back_after_a_few_turns() -> None:
    """What was traced by then counts as if it had never been."""
    wrong, seen = check(31, 16, late=True)
    assert not wrong, "\n\n".join(wrong)
    assert seen["recorded"] >= 8
