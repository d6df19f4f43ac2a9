"""The report, a profile's page and the site in a real browser, at two widths: axe finds nothing serious.

Of the site each page. It is what `make docs` has built, which continuous integration does before its tests.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.browser import Browser, open_browser
from tests.dsl.inspection.viewed import two_ways
from tests.interop import library

SITE = Path(__file__).parent.parent / "build" / "docs"
PAGES = ["index", "install", "tutorial", "gallery", "search", "errors/TraceError"]
VIEWS = [(1280, False), (390, True)]  # widths, and whether dark
FOUND = """axe.run(document, {resultTypes: ["violations"], rules: {"color-contrast": {enabled: %s}}}).then(
    found => found.violations.filter(v => ["serious", "critical"].includes(v.impact))
        .map(v => v.id + ": " + v.nodes[0].html.slice(0, 200)))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def axe() -> str:
    library("axe_core_python")
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def serious(browser: Browser, axe: str, path: Path, width: int, dark: bool, contrast: bool = True) -> Any:
    """What axe finds of impact serious or critical."""
    browser.resize(width, 900, dark)
    browser.visit(path.resolve().as_uri().replace("%23", "#"))
    browser.until("document.readyState === 'complete'")
    assert not browser.errors and browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate(f"{axe}; 0")
    return browser.evaluate(FOUND % str(contrast).lower())


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_reports(browser: Browser, axe: str, tmp_path: Path, width: int, dark: bool) -> None:
    f = kg.kernel_graph(device="cpu", streams="max")(two_ways)
    image, mask = np.ones((20, 30), np.float32), np.ones((6, 6), np.float32)
    with kg.profile() as profile:
        f(image, mask)
    first = f.report(image, mask, tmp_path / "report.html")
    second = kg.kernel_graph(two_ways, device="cpu", streams=1).report(image, mask)
    profile.report(tmp_path / "profile.html")
    kg.compare(first, second, path=tmp_path / "comparison.html")
    # the last but one: the whole profile
    for name in ("report.html", "profile.html", "profile.html#r=1", "comparison.html"):
        assert serious(browser, axe, tmp_path / name, width, dark) == [], name


def test_what_is_wrong_is_found(browser: Browser, axe: str, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        '<html lang="en"><meta name="viewport" content="width=device-width"><title>x</title>'
        '<main><h1>x</h1><img src="data:,"></main></html>'
    )
    assert [text.partition(":")[0] for text in serious(browser, axe, page, 400, False)] == ["image-alt"]


@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_the_site(browser: Browser, axe: str, width: int, dark: bool) -> None:
    if not SITE.is_dir():
        reason = "no site in build/docs: make docs"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    pages = [
        path for path in sorted(SITE.rglob("*.html")) if "sphinx" in path.read_text(encoding="utf-8")
    ]  # no reports
    names = [path.relative_to(SITE).with_suffix("").as_posix() for path in pages]
    assert {*PAGES} <= {*names} and len(names) > 50
    for name, path in zip(names, pages, strict=True):
        contrast = name in PAGES  # the rule that looks at each word, for which every page has the same colours
        assert serious(browser, axe, path, width, dark, contrast=contrast) == [], name
