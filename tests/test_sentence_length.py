"""The pages that people read most are written in short sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sentence_length import mean_words, sentences

ROOT = Path(__file__).parent.parent
NAMES = "install language loops numpy-programs labelled index scheduling limits profiling caching reports"
PAGES = ["README.md", *(f"docs/{name}.md" for name in NAMES.split())]


@pytest.mark.parametrize("page", PAGES)
def test_sentences_are_short(page: str) -> None:
    assert mean_words((ROOT / page).read_text(encoding="utf-8")) <= 18


def test_how_they_are_counted() -> None:
    text = "# A heading\n\nOne two three. Four `code of five` [six seven](address)!\n\n- an item\n- one more\n\n| a |\n"
    assert [len(s.split()) for s in sentences(text)] == [3, 4, 2, 2]
