"""What people are told of mistakes of their first hour: the line, the cause and the remedy, and no stand-in's name."""

from __future__ import annotations

import pytest

from tests.mistakes import MISTAKES, NEEDS, outcome


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    text = outcome(MISTAKES[name])
    for words in MISTAKES[name].words:
        assert words in text, text
    assert "Tracer" not in text.partition("NumPy, as it is written")[0]
    assert "mistake.py:" in text, text


def test_there_are_many() -> None:
    assert len(MISTAKES) >= 80
