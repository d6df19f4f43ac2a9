"""A plan, a program, a graph, a profile or a function in; what a notebook shows of it (HTML without scripts) out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ...compiler.graph.graph import Graph
from ...runtime.core.profile import HOST, Span
from ...runtime.core.readable_text import MOST_LINES, Text, shorten_printed_lines
from ...runtime.program.plan import Plan
from ...runtime.program.program import Program
from ...runtime.schedule.cost_model import machine_model_of_device
from ...runtime.schedule.timeline import predict_timeline
from ..report.svg import MemoryBlock, TaskBar, html_details_element, schedule_svg, svg_as_image_element


def show_in_notebooks() -> None:
    """Tell the notebook that runs, if any, how to show the values of stages."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    formatter: Any = getattr(shell, "display_formatter", None)
    if formatter is not None:
        html = formatter.formatters["text/html"]
        html.for_type(Plan, notebook_html_of_plan)
        for kind in (Program, Graph):
            html.for_type(kind, notebook_html_of_value)
        html.for_type(Text, notebook_html_of_text)


def notebook_html_of_plan(plan: Plan) -> str:
    """The predicted schedule and the memory as a picture. The plan's text is folded below it."""
    times = predict_timeline(plan, machine_model_of_device(plan.program.target))
    bars = [TaskBar(plan.tasks[i.task].name, i.stream, i.start, i.end) for i in times]
    blocks = []
    for number, offset in enumerate(plan.offsets):
        users = [
            times[i]
            for i, task in enumerate(plan.tasks)
            if any(region.buffer == number for region in (*task.reads, *task.writes))
        ]
        if offset is not None and users:
            nbytes = plan.program.buffers[number].nbytes
            blocks.append(MemoryBlock(offset, nbytes, min(u.start for u in users), max(u.end for u in users)))
    lines = list(plan.lines())
    return svg_as_image_element(schedule_svg(bars, blocks), lines[0]) + html_details_element(
        lines[0], shorten_printed_lines(lines)
    )


def notebook_html_of_value(value: Program | Graph) -> str:
    """The text, folded below its first line."""
    text = repr(value)
    return html_details_element(text.partition("\n")[0], text)


def notebook_html_of_text(text: Text) -> str | None:
    """A long text, such as the kernels of a call, folded below its first line; None for a short one."""
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return None
    return html_details_element(f"{lines[0]} ({len(lines)} lines)", text)


def profile_html(spans: Sequence[Span], table: str) -> str:
    """What each stream did when, as a picture, and the table folded below it."""
    work = [s for s in spans if s.kind != "wait" and (s.process != HOST or s.task >= 0)]
    tracks = {key: i for i, key in enumerate(sorted({(s.process, s.track) for s in work}))}
    first = min((s.start for s in work), default=0.0)
    bars = [TaskBar(s.name, tracks[s.process, s.track], s.start - first, s.end - first) for s in work]
    return svg_as_image_element(schedule_svg(bars), table) + html_details_element("where the time went", table)
