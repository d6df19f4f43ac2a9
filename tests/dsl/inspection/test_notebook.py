"""What a notebook shows has no script and no style sheet, and its pictures are well-formed; hostile names stay text."""

from __future__ import annotations

import base64
import re
import sys
import types
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.report.svg import MemoryBlock, TaskBar, html_details_element, schedule_svg, svg_as_image_element
from tests.dsl.inspection.viewed import two_ways

IMAGE, MASK = kg.spec((200, 300), np.float32), kg.spec((64, 64), np.float32)


def pictures(html: str) -> list[ET.Element]:
    assert "<script" not in html.lower() and "<style" not in html.lower() and "<svg" not in html
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', html)
    return [ET.fromstring(base64.b64decode(text)) for text in found]


def rectangles(svg: ET.Element) -> int:
    return sum(path.attrib["d"].count("z") for path in svg.findall("{http://www.w3.org/2000/svg}path"))


class Formatter(dict[type, Any]):
    """IPython's, as far as it is used here."""

    def for_type(self, kind: type, function: Any) -> None:
        self[kind] = function


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Formatter:
    html = Formatter()
    shell = types.SimpleNamespace(display_formatter=types.SimpleNamespace(formatters={"text/html": html}))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    return html


def test_values_of_stages_have_pictures_in_a_notebook(notebook: Formatter) -> None:
    f = kg.kernel_graph(device="fake", streams="max")(two_ways)
    plan = f.plan(IMAGE, MASK)
    html = notebook[type(plan)](plan)
    (svg,) = pictures(html)
    placed = sum(offset is not None for offset in plan.offsets)
    assert rectangles(svg) == len(plan.tasks) + placed and len(html) < 15_000
    for value in (f.graph(IMAGE, MASK), f.program(IMAGE, MASK)):
        shown = notebook[type(value)](value)
        assert shown.startswith("<details><summary>") and pictures(shown) == []


def test_a_profile_and_a_report_have_pictures() -> None:
    f = kg.kernel_graph(device="cpu")(two_ways)
    rng = np.random.default_rng(0)
    with kg.profile() as p:
        f(rng.random((200, 300), np.float32), rng.random((64, 64), np.float32))
    (svg,) = pictures(p._repr_html_())
    assert rectangles(svg) == sum(s.task >= 0 for s in p.spans)
    bundle = f.report(IMAGE, MASK)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"} and len(pictures(bundle["text/html"])) == 1


def test_pictures_are_small_and_names_are_text() -> None:
    evil = "</text><script>alert(1)</script>\"'&"
    bars = [TaskBar(evil, i % 9, 3.0 * i, 3.0 * i + 900) for i in range(1000)]
    blocks = [MemoryBlock(64 * i, 64, float(i), i + 5.0) for i in range(1000)]
    svg = schedule_svg(bars, blocks)
    assert rectangles(ET.fromstring(svg)) == 400 and len(svg_as_image_element(svg, evil)) < 25_000
    assert pictures(svg_as_image_element(svg, evil)) and "<script" not in html_details_element(evil, evil)
    assert ET.fromstring(schedule_svg([])) is not None


def test_long_texts_are_folded_and_short_ones_are_not(notebook: Formatter) -> None:
    f = kg.kernel_graph(device="cpu")(two_ways)
    source = f.source(IMAGE, MASK)
    html = notebook[type(source)](source)
    assert html.startswith("<details><summary>") and f"({len(source.splitlines())} lines)" in html
    assert notebook[type(source)](f.explain(IMAGE, MASK)) is None


def test_folded_texts_are_code() -> None:
    """JupyterLab's own style sheet gives a `<pre>` the letters of prose, and leaves code alone."""
    assert "<pre><code>a &lt; b</code></pre>" in html_details_element("head", "a < b")


def test_the_picture_of_a_report_is_what_was_measured() -> None:
    f = kg.kernel_graph(lambda x: np.sqrt(x @ x).sum(), device="cpu")
    report = f.report(np.ones((40, 40)))
    runs = [run["tasks"] for run in report.data["runs"]]
    assert runs
    times = report._times_of_tasks()
    assert {tuple(times[task]) for task in range(len(times))} <= {(s, e) for run in runs for _, s, e in run}
    predicted = f.report(kg.spec((40, 40), np.float64))
    assert predicted._times_of_tasks() == [(t["start"], t["end"]) for t in predicted.data["tasks"]]


def test_a_report_of_many_arguments_is_short() -> None:
    f = kg.kernel_graph(lambda xs: sum(xs), device="cpu")
    text = str(f.report([kg.spec((3,), np.float64)] * 420))
    assert "... 408 more" in text and len(text.splitlines()[0]) < 600
