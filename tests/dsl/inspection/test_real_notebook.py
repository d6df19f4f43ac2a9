"""A notebook in a real kernel: what its cells show is there for trusted and untrusted readers."""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.interop import library

ROOT = Path(__file__).parent.parent.parent.parent
PROGRAM = """import numpy as np, kernelgraph as kg
x = np.random.default_rng(0).random((300, 300))
@kg.kernel_graph(device="cpu")
def f(x):
    low = np.sqrt(x * x + 1)
    return low / low.sum(1, keepdims=True), x @ x
"""
CELLS = [
    PROGRAM,
    "f(x)[0]",
    "f.plan(x)",
    "f.graph(x)",
    "with kg.profile() as p:\n    f(x)\np",
    "f.report(x)",
    "f.explain(x)",
    "f",
    "f.show(x)",
    "f(x + 1, 2, 3)",
]


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each cell shows: MIME types and texts; of the last one the traceback."""
    nbclient, nbformat = library("nbclient"), library("nbformat")
    library("ipykernel")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path, before or ""])
    try:
        folder = str(tmp_path_factory.mktemp("notebook"))
        client = nbclient.NotebookClient(book, timeout=120, allow_errors=True, resources={"metadata": {"path": folder}})
        client.execute()
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.__setitem__("PYTHONPATH", before)
    return [
        {k: v for out in cell.outputs for k, v in (out.get("data") or dict(out)).items()}
        | {"outputs": len(cell.outputs)}
        for cell in book.cells
    ]


def test_an_array_says_where_it_is(cells: list[dict[str, Any]]) -> None:
    text = cells[CELLS.index("f(x)[0]")]["text/plain"]
    assert text.startswith("array([[") and text.endswith("  # on cpu")


def test_every_cell_shows_text_that_fits(cells: list[dict[str, Any]]) -> None:
    for source, shown in zip(CELLS[1:-1], cells[1:-1], strict=True):
        assert "text/plain" in shown, (source, shown)
        assert 0 < len(shown["text/plain"]) < 12_000, source
    told = cells[6]["text/plain"]
    assert "2 tasks" in told and "\\n" not in told
    assert "In[1]:6" in told and ".py" not in told  # the line of the cell, as the notebook numbers it


def test_show_displays_the_page_once_and_opened(cells: list[dict[str, Any]]) -> None:
    shown = cells[CELLS.index("f.show(x)")]
    assert shown["outputs"] == 1 and "<details open><summary>the page</summary><iframe" in shown["text/html"]


@pytest.mark.parametrize("number", [2, 4, 5])
def test_pictures_survive_notebooks_that_are_not_trusted(cells: list[dict[str, Any]], number: int) -> None:
    html = cells[number]["text/html"]
    kept = re.sub(r"<details><summary>the page</summary>.*?</details>", "", html, flags=re.DOTALL)
    assert not re.search(r"<(script|style|svg|iframe)|\son\w+=", kept)
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', kept)
    assert pictures
    for picture in pictures:
        root = ElementTree.fromstring(base64.b64decode(picture))
        assert root.tag.endswith("svg") and len(list(root.iter())) > 3
    assert len(kept) < 15_000


def test_an_error_is_at_the_cells_line(cells: list[dict[str, Any]]) -> None:
    assert cells[-1]["ename"] == "ArgumentsError"
    traceback = re.sub(r"\x1b\[[\d;]*m", "", "\n".join(cells[-1]["traceback"]))
    assert "Cell In[10], line 1" in traceback and traceback.count("kernelgraph/dsl") == 1
