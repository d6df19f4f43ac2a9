"""`Report`: what a function became and how long it took, as plain data, as a page and as a few lines of text."""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from ...runtime.core.readable_text import byte_count_in_words
from .page import html_page_of_reports
from .remarks import JsonObject
from .svg import MemoryBlock, TaskBar, html_details_element, schedule_svg, svg_as_image_element
from .text import count_in_words, duration_as_text

LARGEST_FRAME = 4 << 20  # bytes of a page that is put into a notebook
MOST_ARGUMENTS = 12  # in the text of a report


class Report:
    """What `f.report(x)` gives. `data` is numbers, texts, lists and dicts alone, as JSON has them.

    Examples
    --------
    >>> report = kg.kernel_graph(lambda x: x + 1).report(kg.spec((9,), "f4"))
    >>> report.data["nodes"], report.page()[:15]
    (3, '<!doctype html>')
    """

    def __init__(self, data: JsonObject) -> None:
        self.data = data

    def page(self) -> str:
        """One HTML file that needs nothing else, as text."""
        return html_page_of_reports([self.data])

    def json(self) -> str:
        """The data as JSON."""
        return json.dumps(self.data, default=str, allow_nan=False)

    def save(self, path: Any) -> None:
        """Write the page, or, where the name ends in `.json`, the data."""
        text = self.json() if str(path).endswith(".json") else self.page()
        Path(path).write_text(text, encoding="utf-8")

    def show(self) -> Path | None:
        """Write the page to a new temporary file and open it in a browser. In a notebook, display it there instead.
        Returns the file, which is yours to keep."""
        shell = sys.modules.get("IPython")
        if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
            shell.display.display(
                {"text/plain": str(self), "text/html": self._html_for_notebook(opened=True)}, raw=True
            )
            return None
        handle, name = tempfile.mkstemp(prefix=f"kernelgraph-{self.data['function']['name'][:40]}-", suffix=".html")
        os.close(handle)
        path = Path(name)
        self.save(path)
        webbrowser.open(path.as_uri())
        return path

    def __str__(self) -> str:
        data, memory = self.data, self.data["memory"]
        if not data["passes"]:  # it became no program
            return "\n".join(data["notes"])
        tasks = sum("parent" not in task for task in data["tasks"])
        shown = [f"{a['name']}: {a['type']}" for a in data["arguments"][:MOST_ARGUMENTS]]
        if len(data["arguments"]) > MOST_ARGUMENTS:
            shown.append(f"... {len(data['arguments']) - MOST_ARGUMENTS} more")
        arguments = ", ".join(shown)
        times = f"predicted {duration_as_text(data['predicted'])}"
        if "measured" in data:
            times += f", measured {duration_as_text(data['measured'])}"
        lines = [
            f"{data['function']['name']}({arguments}) on {data['device']['name']}",
            f"{count_in_words(data['nodes'], 'node')}, {count_in_words(tasks, 'task')} on "
            f"{count_in_words(data['plan']['streams'], 'stream')}; {times}",
            f"temporaries take {byte_count_in_words(memory['arena'])}; "
            f"no plan could do with less than {byte_count_in_words(memory['bound'])}",
        ]
        return "\n".join([*lines, *(f"- {remark['text']}" for remark in data["remarks"])])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._html_for_notebook()}

    def _times_of_tasks(self) -> list[tuple[float, float]]:
        """Start and end of each task: in the run of median length, where one was measured, else as predicted."""
        runs = sorted(
            (run["tasks"] for run in self.data["runs"] if run["tasks"]), key=lambda run: max(t[2] for t in run)
        )
        measured = {task: (start, end) for task, start, end in runs[len(runs) // 2]} if runs else {}
        return [measured.get(i, (task["start"], task["end"])) for i, task in enumerate(self.data["tasks"])]

    def _html_for_notebook(self, opened: bool = False) -> str:
        """In a notebook: the text; a picture of the schedule and the memory, which stays where the notebook is not
        trusted; and the page in a frame of its own, folded unless `opened`."""
        data = self.data
        tasks = [
            {**task, "start": start, "end": end}
            for task, (start, end) in zip(data["tasks"], self._times_of_tasks(), strict=True)
            if "parent" not in task
        ]
        bars = [TaskBar(task["label"], task["stream"], task["start"], task["end"]) for task in tasks]
        blocks = []
        for number, buffer in enumerate(data["buffers"]):
            users = [task for task in tasks if number in task["reads"] or number in task["writes"]]
            if buffer["offset"] is not None and users:
                start, end = min(task["start"] for task in users), max(task["end"] for task in users)
                blocks.append(MemoryBlock(buffer["offset"], buffer["bytes"], start, end))
        html = html_details_element("report", str(self)) + svg_as_image_element(schedule_svg(bars, blocks), str(self))
        whole = self.page()
        if len(whole) <= LARGEST_FRAME:
            source = base64.b64encode(whole.encode()).decode()
            frame = f'<iframe src="data:text/html;base64,{source}" style="width:100%;height:860px;border:0"></iframe>'
            html += f"<details{' open' * opened}><summary>the page</summary>{frame}</details>"
        return html
