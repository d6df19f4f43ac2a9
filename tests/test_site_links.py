"""The check of the built site finds links that lead nowhere, and those that were never made links."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.site_links import missing

PAGE = '<html><body id="top">{}</body></html>'


@pytest.mark.parametrize(
    "body, lacking",
    [
        ('<a href="other.html#place">x</a>', []),
        ('<a href="https://example.org/none">x</a>', []),
        ('<a href="none.html">x</a>', ["index.html: none.html"]),
        ('<a href="other.html#none">x</a>', ["index.html: other.html#none"]),
        ('<span class="xref myst">x</span>', ["index.html: 1 links to pages that are not there"]),
        ('<span class="pre">x</span>', []),
    ],
)
def test_links(tmp_path: Path, body: str, lacking: list[str]) -> None:
    (tmp_path / "index.html").write_text(PAGE.format(body), encoding="utf-8")
    (tmp_path / "other.html").write_text(PAGE.format('<h2 id="place">x</h2>'), encoding="utf-8")
    assert missing(tmp_path) == lacking
