"""What people are told of mistakes of their first hour: the line, the cause and the remedy, and no stand-in's name."""

from __future__ import annotations

import traceback

import pytest

from kernelgraph.dsl.core.errors import is_own_file
from tests.mistakes import MISTAKES, NEEDS, outcome, run


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_remedy(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    text = outcome(MISTAKES[name])
    for words in MISTAKES[name].words:
        assert words in text, text
    assert "Tracer" not in text.partition("NumPy, as it is written")[0]
    assert "mistake.py:" in text, text


@pytest.mark.parametrize("name", MISTAKES)
def test_a_traceback_is_the_users(name: str) -> None:
    """It is not hidden among this package's calls of itself."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    _, error = run(MISTAKES[name])
    if error is not None:
        files = [entry.filename for entry in traceback.extract_tb(error.__traceback__)]
        assert "mistake.py" in files and sum(map(is_own_file, files)) <= 3, files


def test_there_are_many() -> None:
    assert len(MISTAKES) >= 80
