"""The article that a text puts before a noun, and that all texts of the package let it choose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelgraph.runtime.core.readable_text import with_article

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "noun",
    ["an int64", "a uint8", "a float32", "an object", "an IndexingError", "an UnsupportedError", "a UserWarning",
     "a ufunc", "an _Inner", "a bool[3]"],
)  # fmt: skip
def test_the_article_is_that_of_the_sound(noun: str) -> None:
    assert with_article(noun.partition(" ")[2]) == noun


def test_no_text_puts_an_article_of_its_own_before_what_it_names() -> None:
    layers = [path for layer in ("compiler", "dsl", "runtime") for path in (ROOT / layer).rglob("*.py")]
    assert len(layers) > 100
    written = re.compile(r"""(?i)(?<![\w"'])an? \{|f["']an? \{""")
    assert {p.name: found for p in layers if (found := written.findall(p.read_text(encoding="utf-8")))} == {}
