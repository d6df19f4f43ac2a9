"""The mean number of words in a page's sentences, and the longest of them.

python -m tests.sentence_length docs/language.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def sentences(text: str) -> list[str]:
    """The sentences of a Markdown page: without code, tables and headings; an item of a list ends one too."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^(\||#).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))
    parts = re.split(r"(?<=[.?!])\**\s+(?:- )?|\n\s*\n\s*(?:- )?|\n\s*- ", text)
    return [part for part in (" ".join(p.split()) for p in parts) if len(part.split()) > 1]


def mean_words(text: str) -> float:
    counts = [len(sentence.split()) for sentence in sentences(text)]
    return sum(counts) / len(counts)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name).read_text(encoding="utf-8")
        print(f"{name}: {mean_words(page):.1f} words a sentence")
        for sentence in sorted(sentences(page), key=lambda s: -len(s.split()))[:5]:
            print(f"  {len(sentence.split())}: {sentence[:300]}")
