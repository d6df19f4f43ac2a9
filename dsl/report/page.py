"""The data of reports in, one HTML file out that needs nothing else: style, script and data are all inside.

The data is JSON, compressed and in base64, so that no name or comment of the user's can be markup; the page's own
policy (Content-Security-Policy) forbids every request. page.js draws it; it writes text as text, never as HTML.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Sequence
from pathlib import Path

from .remarks import JsonObject

FOLDER = Path(__file__).parent


def html_page_of_reports(every: Sequence[JsonObject]) -> str:
    """The page of the data of one report or several. It shows one at a time.

    >>> page([report.data]).startswith("<!doctype html>")  # doctest: +SKIP
    True
    """
    text = json.dumps(every, separators=(",", ":"), default=str, allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    names = ", ".join(data["function"]["name"] for data in every)
    title = (
        html.escape(f"{names} · kernelgraph").encode("ascii", "xmlcharrefreplace").decode()
    )  # as of half a surrogate
    parts = {"title": title, "data": packed}
    parts |= {name: (FOLDER / f"page.{name}").read_text(encoding="utf-8") for name in ("css", "js")}
    whole = (FOLDER / "page.html").read_text(encoding="utf-8")
    for name, value in parts.items():
        before, after = whole.split(f"<!--{name}-->" if name in ("title", "data") else f"/*{name}*/")
        whole = before + value + after
    return whole
