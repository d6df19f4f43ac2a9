"""A function and the arguments of a call in; what people see of it out: text, a report, a page in a browser."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.core.profile import Span
from ...runtime.core.readable_text import Text
from ...runtime.program.plan import Plan, least_bytes_of_task
from ...runtime.schedule.cost_model import machine_model_of_device
from ...runtime.schedule.timeline import predict_timeline, tasks_in_issue_order
from ..api.profile import ProfiledCall, profile
from ..array.in_flight import waitall
from ..core.errors import Refusal, is_own_mistake
from ..core.pytree import flatten
from ..core.spec import Spec
from ..jit.kernel_graph import KernelGraph
from ..jit.traced_function import SpecializationEvent
from ..report.page import html_page_of_reports
from ..report.report import Report
from .explanation import explained_source_text, explanation_summary, full_explanation, why_lines
from .notebook import profile_html as profile_html
from .notebook import show_in_notebooks as show_in_notebooks
from .report_data import report_data, report_data_of_call_in_numpy, spans_of_runs, timeline_data_of_profile

CALLS = 3  # that a report measures, after one that compiles


def explanation_text(graph: KernelGraph, args: tuple[Any, ...], options: dict[str, Any], verbose: bool) -> Text:
    """How a call was traced, fused and scheduled; see `KernelGraph.explain`."""
    return Text("\n".join((full_explanation if verbose else explanation_summary)(graph.inspect(args, options))))


def inspected_source_text(plan: Plan) -> Text:
    """The text of a plan's kernels; see `KernelGraph.source`."""
    return Text(explained_source_text(plan))


def why_text(name: str, log: Iterable[SpecializationEvent], parameters: tuple[str, ...]) -> Text:
    """What happened to a function's versions; see `KernelGraph.why`."""
    return Text("\n".join(why_lines(log, parameters)) or f"{name} has not been traced yet")


def report_of_call(
    graph: KernelGraph,
    args: tuple[Any, ...],
    options: dict[str, Any],
    path: str | os.PathLike[str] | None = None,
    calls: int | None = None,
    source: bool = True,
) -> Report:
    """See `KernelGraph.report`."""
    args, path = _page_path_among_arguments(graph, args, options, path)
    spans: Sequence[Span] = ()
    if calls is None:
        calls = 0 if graph.changes_arguments(args, options) else CALLS
    if calls and _are_inspected_leaves_values((args, options)):
        spans = measured_spans_for_report(graph, args, options, calls)
    inspection = graph.inspect(args, options)  # with the plan that is chosen by now
    made = Report(
        report_data(inspection, spans, versions_that_made_report(), source, graph.lines_of_devices(args, options))
    )
    if path is not None:
        made.save(path)
    return made


def reports_of_profiled_calls(
    calls: Mapping[KernelGraph, Mapping[Any, ProfiledCall]], spans: Sequence[Span], path: Any = None
) -> list[Report]:
    """A report of each kind of call, with a profile's times. path: where one page for all of them goes."""
    timeline = timeline_data_of_profile(spans, calls)  # before reports trace what has changed since
    found = []
    for graph, (args, options) in _every_profiled_call(calls):
        with _passing_over_failed_call():
            found.append(Report(_data_of_profiled_call(graph, args, options, spans)))
    if path is not None:
        pages = [*(report.data for report in found), timeline]
        Path(path).write_text(html_page_of_reports(pages), encoding="utf-8")
    return found


@contextlib.contextmanager
def _passing_over_failed_call() -> Iterator[None]:
    """A profile holds calls that failed, too: what is made of one ends as the call did, by any error."""
    try:
        yield
    except Exception as error:
        if is_own_mistake(error):
            raise


def _every_profiled_call(
    calls: Mapping[KernelGraph, Mapping[Any, ProfiledCall]],
) -> Iterator[tuple[KernelGraph, ProfiledCall]]:
    return ((graph, call) for graph, kinds in calls.items() for call in kinds.values())


def _data_of_profiled_call(
    graph: KernelGraph, args: tuple[Any, ...], options: dict[str, Any], spans: Sequence[Span]
) -> dict[str, Any]:
    made = versions_that_made_report()
    try:
        return report_data(graph.inspect(args, options), spans, made)
    except Refusal as refusal:
        if (reason := graph.reason_to_run_in_numpy(refusal)) is None:
            raise
        return report_data_of_call_in_numpy(graph, args, options, reason, made)


def spans_with_predicted_times(
    calls: Mapping[KernelGraph, Mapping[Any, ProfiledCall]], spans: Sequence[Span]
) -> tuple[list[Span], dict[str, dict[int, Sequence[int]]]]:
    """The spans, and beside each program's first run its predicted times. These are as those of a process of its own;
    and which task waits for which of another stream, by program."""
    every, waits = list(spans), {}
    for graph, (args, options) in _every_profiled_call(calls):
        inspection = None
        with _passing_over_failed_call():
            inspection = graph.inspect(args, options)
        if inspection is None:
            continue
        plan, name = inspection.plan, inspection.plan.program.name
        waits[name] = dict(enumerate(tasks_in_issue_order(plan)[2]))
        if own := spans_of_runs(spans, plan):
            first = min((s for run in own for s in run), key=lambda s: s.start)
            for i in predict_timeline(plan, machine_model_of_device(inspection.device[0], inspection.gpu)):
                task, times = plan.tasks[i.task], (first.start + i.start, first.start + i.end)
                process = f"{inspection.device[0]}, as predicted"
                every.append(
                    Span("predicted", task.name, *times, process, f"stream {i.stream}", task.line, name,
                         least_bytes_of_task(task), first.run, i.task)
                )  # fmt: skip
    return every, waits


def measured_spans_for_report(
    graph: KernelGraph, args: tuple[Any, ...], options: dict[str, Any], calls: int
) -> Sequence[Span]:
    """What a profile sees of some calls, after one that compiles."""
    graph(*args, **options)
    waitall()
    with profile() as found:
        for _ in range(calls):
            graph(*args, **options)
            waitall()
    return found.spans


def _page_path_among_arguments(
    graph: KernelGraph, args: tuple[Any, ...], options: dict[str, Any], path: Any
) -> tuple[tuple[Any, ...], Any]:
    """`f.report(x, "page.html")`: a last argument that is a page's name, where no other one says it."""
    last = args[-1] if args else None
    if path is None and isinstance(last, str | Path) and str(last).endswith((".html", ".json")):
        return args[:-1], last
    return args, path


def _are_inspected_leaves_values(given: Any) -> bool:
    leaves: list[Any] = []
    flatten(given, leaves)
    return not any(type(leaf) is Spec for leaf in leaves)


def versions_that_made_report() -> dict[str, str]:
    """What made a report: versions, machine, command, moment."""
    root = sys.modules[__name__.partition(".")[0]]
    return {
        "kernelgraph": str(getattr(root, "__version__", "")),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "command": " ".join([os.path.basename(sys.argv[0] or "python"), *sys.argv[1:]])[:200] if sys.argv else "",
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
