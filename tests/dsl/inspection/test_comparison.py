"""`kg.compare`: what is equal is joined and left out, what differs is told; in text, in data and in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.browser import open_browser
from tests.dsl.inspection.viewed import turns, two_ways

IMAGE, MASK = kg.spec((200, 300), np.float32), kg.spec((64, 64), np.float32)


def report(function: Any, *args: Any, **options: Any) -> kg.Report:
    return kg.kernel_graph(device="fake", **options)(function).report(*args)


def from_text(folder: Path, text: str) -> Any:
    folder.mkdir()
    file = folder / "program.py"
    file.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"np": np}
    exec(compile(text, str(file), "exec"), namespace)
    return namespace["f"]


@pytest.mark.parametrize(("function", "args"), [(two_ways, (IMAGE, MASK)), (turns, (kg.spec((99,), np.float64),))])
def test_a_report_does_not_differ_from_itself(function: Any, args: Any, tmp_path: Path) -> None:
    one = report(function, *args)
    one.save(tmp_path / "one.json")
    data = kg.compare(tmp_path / "one.json", one).data
    for name in ("lines", "tasks"):
        assert data[name] and all(row["times"][0] == row["times"][1] and all(row["tasks"]) for row in data[name])
    assert all(a == b for _, a, b in [*data["facts"], *data["cuts"]])
    assert len(str(kg.compare(one, one)).splitlines()) == 2


def test_each_task_is_in_one_row_of_each_table() -> None:
    one, other = report(two_ways, IMAGE, MASK), report(two_ways, kg.spec((20, 30), np.float32), MASK, streams=1)
    data = kg.compare(one, other).data
    for k, made in enumerate((one, other)):
        tasks = {i for i, task in enumerate(made.data["tasks"]) if "parent" not in task}
        assert sorted(i for row in data["tasks"] for i in row["tasks"][k]) == sorted(tasks)
        assert {i for row in data["lines"] for i in row["tasks"][k]} == tasks
        total = sum(made.data["tasks"][i]["cost"] for i in tasks)
        assert sum(row["times"][k] or 0 for row in data["lines"]) == pytest.approx(total, abs=0.01)
    differences = [abs((b or 0) - (a or 0)) for a, b in (row["times"] for row in data["lines"])]
    assert differences == sorted(differences, reverse=True)


def test_lines_that_moved_are_joined_by_their_text(tmp_path: Path) -> None:
    body = "    y = np.sqrt(x)\n    z = y.sum()\n    return y * z"
    before = from_text(tmp_path / "before", f"def f(x):\n{body}\n")
    one = report(before, kg.spec((99,), np.float32))
    after = from_text(tmp_path / "after", f"# moved\n\ndef f(x):\n    w = np.sort(x)\n{body} + w\n")
    found = kg.compare(one, report(after, kg.spec((99,), np.float32)))
    rows = {row["text"]: row["times"] for row in found.data["lines"]}
    assert None not in rows["y = np.sqrt(x)"] and rows["w = np.sort(x)"][0] is None
    assert "w = np.sort(x)" in str(found)


def test_its_page_shows_both(tmp_path: Path) -> None:
    one, other = report(two_ways, IMAGE, MASK), report(two_ways, kg.spec((20, 30), np.float32), MASK, streams=1)
    path = tmp_path / "page.html"
    data = kg.compare(one, other, path).data
    with open_browser() as browser:
        for width, dark in ((400, True), (1700, False)):
            browser.open(path, width, 900, dark)
            assert browser.evaluate("document.querySelectorAll('#byline tbody tr').length") == len(data["lines"])
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            for k in (0, 1):
                pixels = f"document.querySelector('#schedule{k} canvas').getContext('2d').getImageData(0, 0, 380, 120)"
                browser.until(f"new Set({pixels}.data).size > 3")
            row = "document.querySelector('#byline tbody tr').getBoundingClientRect()"
            browser.mouse(*browser.evaluate(f"[{row}.left + 9, {row}.top + 5]"))
            assert browser.evaluate("kernelgraph.lit()") == data["lines"][0]["tasks"]
        browser.open(path, 1700, 900, fragment="#r=1")
        assert browser.evaluate("kernelgraph.data.plan.streams") == other.data["plan"]["streams"]
        assert not browser.errors
        assert {r for r in browser.requests if r.startswith("file:")} != set()
        assert all(r.startswith("file:") or r == "about:blank" for r in browser.requests)
