"""The page in a real browser: what it draws agrees with its data, one selection links its panels, it asks for nothing.

One browser for all tests: some seconds to start, then a fraction of a second for each page.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.browser import Browser, open_browser
from tests.dsl.inspection.viewed import turns, two_ways

IMAGE, MASK = kg.spec((200, 300), np.float32), kg.spec((64, 64), np.float32)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("page") / "page.html"
    kg.kernel_graph(device="fake", streams="max")(two_ways).report(IMAGE, MASK, found)
    return found


def quiet(browser: Browser) -> None:
    """No error, and no request but for the file itself."""
    assert not browser.errors
    assert [r for r in browser.requests if not r.startswith("file:") and r != "about:blank"] == []
    assert len({r for r in browser.requests if r.startswith("file:")}) == 1


def lit(browser: Browser) -> list[str]:
    """The source lines that are marked."""
    return browser.evaluate("[...document.querySelectorAll('.line.on s')].map(s => s.textContent.trim())")


@pytest.mark.parametrize(("width", "dark"), [(400, False), (1000, True), (1700, False)])
def test_it_draws_at_every_width_light_and_dark(browser: Browser, path: Path, width: int, dark: bool) -> None:
    browser.open(path, width, 900, dark)
    quiet(browser)
    data = browser.evaluate("kernelgraph.data")
    assert browser.evaluate("document.querySelectorAll('tr[data-task]').length") == len(data["tasks"])
    assert browser.evaluate("document.querySelector('h1').textContent") == data["function"]["signature"]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for panel in ("schedule", "memory", "graph"):  # something is drawn in each
        pixels = f"document.querySelector('#{panel} canvas').getContext('2d').getImageData(0, 0, 380, 120).data"
        browser.until(f"new Set({pixels}).size > 3")
    assert browser.evaluate("document.querySelectorAll('*').length") < 3000


def test_a_bar_lights_its_lines_and_a_line_its_bars(browser: Browser, path: Path) -> None:
    browser.open(path, 1700, 1000)
    data = browser.evaluate("kernelgraph.data")
    product = next(i for i, t in enumerate(data["tasks"]) if t["name"].startswith("matmul"))
    browser.mouse(*browser.evaluate(f"kernelgraph.where({product})"), click=True)
    assert browser.evaluate("kernelgraph.selected()") == [product]
    assert lit(browser) == ["product = mask @ np.tanh(mask)"]
    assert browser.evaluate("location.hash") == f"#t={product}"
    assert "matmul" in browser.evaluate("document.querySelector('#details .body').textContent")
    box = "(() => { const b = [...document.querySelectorAll('.line.used')].find(l => l.textContent.includes('np.tanh'))"
    x, y = browser.evaluate(box + ".getBoundingClientRect(); return [b.left + 90, b.top + 5]; })()")
    browser.mouse(x, y)
    expected = sorted(
        i for i, t in enumerate(data["tasks"]) if any("two_ways" in data["paths"][p][-1] for p in t["paths"])
        and any(data["paths"][p][-1][1] == data["paths"][data["tasks"][product]["paths"][0]][-1][1] for p in t["paths"])
    )  # fmt: skip
    assert sorted(browser.evaluate("kernelgraph.selected()")) == expected and len(expected) == 2
    quiet(browser)


def test_keys_and_search(browser: Browser, path: Path) -> None:
    browser.open(path, 1400, 900)
    browser.key("/")
    browser.type("tanh")
    browser.until("document.querySelector('#found').textContent !== ''")
    found = browser.evaluate("kernelgraph.selected()")
    assert found and browser.evaluate("document.querySelector('#found').textContent") == f"{len(found)} found"
    browser.key("Escape")
    assert browser.evaluate("kernelgraph.selected()") == []
    browser.key("ArrowDown")
    browser.key("ArrowDown")
    assert browser.evaluate("kernelgraph.selected()") == [1]
    browser.open(path, 1400, 900, fragment="#t=2")
    assert browser.evaluate("kernelgraph.selected()") == [2]
    for tab in ("Task", "Cuts", "Decisions", "Versions", "Text", "Kernels"):
        browser.evaluate(f"[...document.querySelectorAll('#tabs button')].find(b => b.textContent === '{tab}').click()")
        assert browser.evaluate("document.querySelector('#details .body').textContent.length") > 20
    for number in range(browser.evaluate("document.querySelectorAll('#passes button').length")):
        browser.evaluate(f"document.querySelectorAll('#passes button')[{number}].click()")
    quiet(browser)


def test_the_roofline_has_a_point_for_each_task_that_computes(browser: Browser, path: Path) -> None:
    browser.open(path, 1700, 1000)
    browser.evaluate("[...document.querySelectorAll('#tabs button')].find(b => b.textContent === 'Roofline').click()")
    browser.until("document.querySelector('#details canvas').width > 300")
    data = browser.evaluate("kernelgraph.data")
    computing = [i for i, t in enumerate(data["tasks"]) if t["flops"] and t["bytes"] and "parent" not in t]
    hits = browser.evaluate("kernelgraph.roofline()")
    assert sorted(tasks[0] for *_, tasks in hits) == computing
    x, y = hits[-1][:2]
    browser.mouse(x, y)
    assert browser.evaluate("kernelgraph.selected()") == hits[-1][2]
    quiet(browser)


def test_hostile_names_are_text(browser: Browser, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=\"document.title='owned'\">"
    namespace: dict[str, Any] = {"np": np}
    source = f"def f(x):\n    # {evil}\n    return {{{evil!r}: np.exp(x) + len({evil!r})}}\n"
    file = tmp_path / "<b onclick=x>&.py"
    file.write_text(source, encoding="utf-8")
    exec(compile(source, str(file), "exec"), namespace)
    namespace["f"].__name__ = evil
    report = kg.kernel_graph(device="fake")(namespace["f"]).report(kg.spec((99,), np.float32))
    report.save(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("document.querySelectorAll('img, b:not(.line b)').length") == 0
    assert browser.evaluate("document.title") == f"{evil} · kernelgraph"
    assert evil in browser.evaluate("document.querySelector('#source').textContent")
    quiet(browser)


def test_one_page_holds_the_functions_of_a_profile(browser: Browser, tmp_path: Path) -> None:
    f, g = kg.kernel_graph(device="cpu")(two_ways), kg.kernel_graph(device="cpu")(turns)
    rng = np.random.default_rng(0)
    distinct = kg.kernel_graph(lambda x, few=3: np.unique(x)[:few], device="cpu", untraceable="numpy")
    with kg.profile() as p:
        f(rng.random((200, 300), np.float32), rng.random((64, 64), np.float32))
        for size in (1000, 1000, 1024):
            g(rng.random(size))
        distinct(np.ones(3), few=2)
    one, other, large, plain = p.report(tmp_path / "page.html")
    assert [len(report.data["runs"]) for report in (one, other, large, plain)] == [1, 2, 1, 0]
    assert "measured" in other.data and "float64[1024]" in str(large)
    assert "runs in NumPy" in str(plain) and "np.unique" in str(plain)
    assert plain.data["arguments"] == [{"name": "x", "type": "float64[3]"}, {"name": "few", "type": "int"}]
    for number, title in enumerate(("two_ways(image, mask)", "turns(x)", "turns(x)", "<lambda>(x, few=3)")):
        browser.open(tmp_path / "page.html", fragment=f"#r={number}")
        assert browser.evaluate("document.querySelector('h1').textContent") == title
        assert browser.evaluate("document.querySelectorAll('#which option').length") == 5
        quiet(browser)
    assert "runs in NumPy" in browser.evaluate("document.querySelector('#look').textContent")


def test_enter_goes_from_hit_to_hit(browser: Browser, path: Path) -> None:
    browser.open(path, 1400, 900)
    browser.key("/")
    browser.type("t")
    browser.until("document.querySelector('#found').textContent !== ''")
    hits = browser.evaluate("kernelgraph.selected()")
    assert len(hits) > 1
    for number, hit in enumerate([*hits, hits[0]]):
        browser.key("Enter")
        assert browser.evaluate("kernelgraph.selected()") == [hit]
        found = browser.evaluate("document.querySelector('#found').textContent")
        assert found == f"{number % len(hits) + 1} of {len(hits)}"
    quiet(browser)


def test_no_tip_stays_when_a_row_is_clicked(browser: Browser, path: Path) -> None:
    browser.open(path, 1400, 900)
    row = "document.querySelector('#details tr[data-task]')"
    move = "new MouseEvent('mousemove', {bubbles: true, clientX: 50, clientY: 50})"
    browser.evaluate(f"{row}.dispatchEvent({move})")
    assert browser.evaluate("document.querySelector('#tip').hidden") is False
    browser.evaluate(f"{row}.click()")
    assert browser.evaluate("document.querySelector('#tip').hidden") is True
    quiet(browser)


def test_kernels_that_are_launched_often_have_a_row(browser: Browser, tmp_path: Path) -> None:
    def towers(x: Any) -> Any:
        return [np.tanh(x @ w) @ x for w in (x, x.T, x + 1, x - 1)]

    page = tmp_path / "groups.html"
    report = kg.kernel_graph(device="fake", streams="max")(towers).report(kg.spec((64, 64), np.float32), page)
    labels = [task["label"] for task in report.data["tasks"] if "parent" not in task]
    often = {label for label in labels if labels.count(label) > 1}
    browser.open(page, 1400, 900)
    rows = browser.evaluate(
        "[...document.querySelectorAll('#groups tbody tr')]"
        ".map(row => [...row.children].slice(0, 2).map(cell => cell.textContent))"
    )
    assert {name: int(count) for name, count in rows} == {label: labels.count(label) for label in often}
    assert often
    quiet(browser)


def test_the_timeline_of_a_profile_has_every_span(browser: Browser, tmp_path: Path) -> None:
    f = kg.kernel_graph(device="cpu", streams="max")(two_ways)
    distinct = kg.kernel_graph(lambda x: np.unique(x), device="cpu", untraceable="numpy")
    with kg.profile() as p:
        for _ in range(3):
            f(np.ones((20, 30), np.float32), np.ones((6, 6), np.float32))
            distinct(np.ones(3))
    p.report(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", 1400, 900, fragment="#r=2")
    hits = browser.evaluate("kernelgraph.hits()")
    assert len(hits) == len(p.spans) and {s.kind for s in p.spans} >= {"call", "in NumPy", "kernel", "compile"}
    for one in hits:  # none lies on another
        for other in hits:
            apart = one[0] + one[2] <= other[0] + 0.1 or other[0] + other[2] <= one[0] + 0.1 or one[1] != other[1]
            assert one is other or apart
    rows = browser.evaluate(
        "[...document.querySelectorAll('#spans tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    calls = [row for row in rows if row[:3] == ["host", "call", "two_ways"]]
    assert len(calls) == 1 and calls[0][4] == "3"
    quiet(browser)


def test_the_profile_s_page_has_an_index_of_versions(browser: Browser, tmp_path: Path) -> None:
    """Each trace and compile of each function, with its time and its reason; functions in NumPy, too."""
    scale = [2.0]
    doubled = kg.kernel_graph(lambda x: x * scale[0], device="cpu")
    distinct = kg.kernel_graph(lambda x: np.unique(x), device="cpu", untraceable="numpy")
    with kg.profile() as p:
        doubled(np.ones(3))
        doubled(np.ones(4))
        scale[0] = 3.0
        doubled(np.ones(4))
        distinct(np.ones(3))
    p.report(tmp_path / "page.html")
    browser.open(tmp_path / "page.html", 1400, 900, fragment="#r=3")
    rows = browser.evaluate(
        "[...document.querySelectorAll('#versions tbody tr')].map(r => [...r.children].map(c => c.textContent))"
    )
    traced = [row for row in rows if row[0] == "<lambda>" and row[1].startswith("traced for")]
    assert [row[1] for row in traced] == [f"traced for (float64[{n}])" for n in (3, 4, 4)]
    assert traced[1][3] == "differs in x: float64[4], not float64[3]"
    assert all(row[2] and "test_page.py:" in row[4] for row in traced)
    assert any("traced again: scale has changed" in row[1] for row in rows)
    assert sum("np.unique cannot be traced" in row[1] for row in rows) == 1
    assert sum(row[1].startswith("compiled") and bool(row[2]) for row in rows) == 3
    assert "in all" in browser.evaluate("document.querySelector('#versions small').textContent")
    quiet(browser)


PANELS = ("source", "schedule", "memory", "graph", "details")


def widths(browser: Browser, what: str) -> dict[str, float]:
    return {
        name: browser.evaluate(f"document.querySelector('#{name}').getBoundingClientRect().{what}") for name in PANELS
    }


@pytest.mark.parametrize(("number", "what", "grows", "shrinks"), [
    (0, "width", "source", "schedule"), (1, "width", "graph", "details"),
    (2, "height", "schedule", "memory"), (3, "height", "memory", "graph"),
])  # fmt: skip
def test_panels_are_resized(browser: Browser, path: Path, number: int, what: str, grows: str, shrinks: str) -> None:
    browser.open(path, 1400, 900)
    before = widths(browser, what)
    node = f"document.querySelectorAll('.splitter')[{number}]"
    x, y, w, h = browser.evaluate(f"(b => [b.x, b.y, b.width, b.height])({node}.getBoundingClientRect())")
    browser.drag(x + w / 2, y + h / 2, 40, 40)
    after = widths(browser, what)
    assert after[grows] - before[grows] == pytest.approx(40, abs=1.5)
    assert after[shrinks] - before[shrinks] == pytest.approx(-40, abs=1.5)
    browser.evaluate(f"{node}.focus()")
    browser.key("ArrowLeft" if what == "width" else "ArrowUp")
    assert widths(browser, what)[grows] - after[grows] == pytest.approx(-20, abs=1.5)
    assert browser.evaluate("kernelgraph.selected()") == []
    browser.evaluate(f"{node}.dispatchEvent(new MouseEvent('dblclick'))")
    assert widths(browser, what) == before
    quiet(browser)


@pytest.mark.parametrize("name", ["schedule", "memory", "graph", "roofline"])
def test_drawings_are_saved_as_svg(browser: Browser, path: Path, tmp_path: Path, name: str) -> None:
    browser.open(path, 1400, 900)
    if name == "roofline":
        browser.evaluate(
            "[...document.querySelectorAll('#tabs button')].find(b => b.textContent === 'Roofline').click()"
        )
        browser.until("document.querySelector('#details canvas').width > 300")
    browser.download_to(tmp_path)
    browser.evaluate(f"document.querySelector('[aria-label=\"save the {name} as an SVG file\"]').click()")
    browser.wait_for(lambda: (tmp_path / f"{name}.svg").exists())
    text = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
    assert text == browser.evaluate(f"kernelgraph.svg('{name}')")
    root = ET.fromstring(text)
    shapes = [part for part in root.iter() if not part.tag.endswith(("svg", "clipPath"))]
    assert all(
        part.get("fill") and "NaN" not in "".join(part.attrib.values()) for part in shapes if part.get("opacity")
    )
    data = browser.evaluate("kernelgraph.data")
    labels = [part.text for part in root.iter() if part.tag.endswith("text")]
    if name == "schedule":
        assert {task["label"] for task in data["tasks"] if "parent" not in task} & {*labels}
    if name == "graph":
        colours = [part.get("fill") for part in root.iter() if part.tag.endswith("rect")]
        assert len(colours) - 1 == browser.evaluate("kernelgraph.graph().length")
    quiet(browser)


def test_a_label_stays_in_view(browser: Browser, path: Path) -> None:
    browser.open(path, 1400, 900)
    tasks = browser.evaluate("kernelgraph.data.tasks")
    longest = max(range(len(tasks)), key=lambda i: tasks[i]["end"] - tasks[i]["start"])
    browser.evaluate(f"kernelgraph.show({tasks[longest]['end'] * 0.6 + tasks[longest]['start'] * 0.4}, 20)")
    labels = texts(browser.evaluate("kernelgraph.svg('schedule')"))
    assert tasks[longest]["label"] in labels


def test_a_hit_is_brought_into_view(browser: Browser, tmp_path: Path) -> None:
    def long_chain(x: Any) -> Any:
        for i in range(60):
            x = np.sort(np.tanh(x) @ x, axis=i % 2)
        return x

    page = tmp_path / "chain.html"
    kg.kernel_graph(device="fake")(long_chain).report(kg.spec((64, 64), np.float32), page)
    browser.open(page, 1400, 900)
    browser.evaluate("[...document.querySelectorAll('#passes button')].at(-1).click()")
    sizes = "(n => [n.clientWidth, n.clientHeight])(document.querySelector('#{} canvas'))"
    for hit in ("t5 ", "t100 "):
        browser.evaluate("kernelgraph.show(0, 40)")  # the first of the tasks alone
        browser.key("Escape")
        browser.key("/")
        browser.type(hit)
        browser.until("document.querySelector('#found').textContent !== ''")
        browser.key("Enter")
        [task] = browser.evaluate("kernelgraph.selected()")
        box = next(h for h in browser.evaluate("kernelgraph.graph()") if h[4] == [task])
        assert 0 <= box[1] + box[3] / 2 <= browser.evaluate(sizes.format("graph"))[1]
        label = browser.evaluate(f"kernelgraph.data.tasks[{task}].label")
        assert label in texts(browser.evaluate("kernelgraph.svg('schedule')"))


def texts(svg: str) -> list[str | None]:
    return [part.text for part in ET.fromstring(svg).iter() if part.tag.endswith("text")]


def test_nodes_show_their_shapes(browser: Browser, path: Path) -> None:
    browser.open(path, 1700, 1000)
    browser.evaluate("document.querySelectorAll('#passes button')[0].click()")
    browser.evaluate("document.querySelector('#graph canvas').focus()")
    for _ in range(5):
        browser.key("+")
    labels = [
        p.text for p in ET.fromstring(browser.evaluate("kernelgraph.svg('graph')")).iter() if p.tag.endswith("text")
    ]
    assert labels and all("[" in (text or "") for text in labels)


def test_paper_has_every_tab(browser: Browser, path: Path) -> None:
    browser.open(path, 1400, 900)
    browser.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    heads = browser.evaluate("[...document.querySelectorAll('#details h3')].map(h => h.textContent)")
    assert {"Kernels", "Task", "Cuts", "Decisions", "Versions", "Text"} <= {*heads}
    browser.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert "Decisions" not in browser.evaluate("[...document.querySelectorAll('#details h3')].map(h => h.textContent)")
    quiet(browser)


def luminance(colour: str) -> float:
    """Of WCAG 2: #rgb or #rrggbb."""
    digits = colour.lstrip("#")
    digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("text", "ground"), [("text", "panel"), ("faint", "panel"), ("ground", "kernel")])
def test_texts_can_be_read_on_their_ground(text: str, ground: str, dark: bool) -> None:
    """The contrast that WCAG 2 asks of small text; the selected button is `ground` on `kernel`."""
    css = (Path(__file__).parents[3] / "dsl" / "report" / "page.css").read_text(encoding="utf-8")
    assert "background: var(--kernel); color: var(--ground)" in css
    light, _, rest = css.partition("@media (prefers-color-scheme: dark)")
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]+)", rest.partition("\n}\n")[0] if dark else light))
    bright, dim = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5
