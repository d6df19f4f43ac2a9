"""A folder of HTML in; out, what its pages link to and the folder lacks: files, and places within pages.

python -m tests.site_links build/docs
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.unresolved = 0  # links whose page was not found, which the site shows as text
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kinds = (dict(attrs).get("class") or "").split()
        self.unresolved += tag == "span" and {"xref", "myst"} <= {*kinds}
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name in ("id", "name") and value:
                self.places.add(value)


def missing(root: Path) -> list[str]:
    """`page: link` of each that leads nowhere. Addresses elsewhere are not asked for."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(root.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if page.unresolved:
            found.append(f"{path.relative_to(root.resolve())}: {page.unresolved} links to pages that are not there")
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not there.exists() or (place and there in pages and place not in pages[there].places):
                found.append(f"{path.relative_to(root.resolve())}: {link}")
    return found


if __name__ == "__main__":
    lacking = missing(Path(sys.argv[1]))
    print("\n".join(lacking) or "every link leads somewhere")
    sys.exit(bool(lacking))
