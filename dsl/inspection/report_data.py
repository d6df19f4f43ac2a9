"""An inspected call, and what a profile saw of it, in; everything that a report shows out, as plain data for JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...compiler.graph.graph import Graph, Node
from ...compiler.pipeline import PipelineStages
from ...runtime.core.profile import Span
from ...runtime.program.plan import Launch, Plan, Record, Wait, flops_of_task, least_bytes_of_task
from ...runtime.program.program import Kernel, Library, Task, control_flow_bodies
from ...runtime.schedule.cost_model import MachineModel, machine_model_of_device
from ...runtime.schedule.schedule import plan_memory_bound, predicted_microseconds
from ...runtime.schedule.timeline import critical_path_of_timeline, predict_timeline
from ..jit.kernel_graph import KernelGraph
from ..jit.specializations import CompiledCall, describe_traced_argument
from ..report.layered import layered_node_positions
from ..report.remarks import JsonObject, remarks_about_report
from ..report.text import text_shortened_for_report
from .explanation import version_events, why_lines
from .names import names_of_call_arguments, names_of_program_inputs, names_of_program_outputs
from .provenance import SourcePaths

VERSION = 1  # of the form of the data
MOST_DRAWN = 20_000  # nodes of a graph
MOST_LABEL = 60  # characters
MOST_SPANS = 20_000  # of a profile's timeline


def report_data(
    inspection: CompiledCall,
    spans: Sequence[Span],
    made: dict[str, str],
    source: bool = True,
    devices: Sequence[str] = (),
) -> JsonObject:
    """Numbers, texts, lists and dicts only. Times are microseconds; a task, buffer or path is named by its number.

    made: what made the report. source: whether the user's code is part of it. devices: the plan over several devices,
    as lines of text, beside which the rest of the data is about one device."""
    return _ReportBuilder(inspection, SourcePaths(source), spans).whole(made) | {"devices": list(devices)}


def timeline_data_of_profile(spans: Sequence[Span], graphs: Iterable[KernelGraph]) -> JsonObject:
    """What a profile's page shows beside the reports of the calls: all spans, and what happened to the versions."""
    tracks = {place: i for i, place in enumerate(dict.fromkeys((s.process, s.track) for s in spans))}
    kept = [
        [s.kind, s.name, tracks[s.process, s.track], round(s.start, 3), round(s.end, 3), s.line]
        for s in spans[:MOST_SPANS]
    ]
    found = {"tracks": [" · ".join(place) for place in tracks], "spans": kept, "omitted": len(spans) - len(kept)}
    versions = [
        [graph._name, *event]
        for graph in graphs
        for event in version_events(graph._versions.log, graph._parameters.every)
    ]
    return {"function": {"name": "profile"}, "timeline": found | {"versions": versions}}


def report_data_of_call_in_numpy(
    graph: KernelGraph, args: tuple[Any, ...], options: dict[str, Any], reason: str, made: dict[str, str]
) -> JsonObject:
    """Of a call that became no program: what it was, and why it runs in NumPy."""
    parameters = graph._parameters
    names = [*parameters.names, *[f"{parameters.rest or 'args'}[{i}]" for i in range(len(args))]]
    given = [*zip(names, args, strict=False), *options.items()]
    return {
        "version": VERSION,
        "made": made,
        "function": {"name": graph._name, "signature": str(parameters), "options": {}},
        "device": {"kind": "cpu", "name": "NumPy", "bandwidth": 0.0, "flops": 0.0, "cores": 1},
        "arguments": [{"name": name, "type": _type_in_words(x)} for name, x in given],
        "nodes": 0, "predicted": 0.0, "tasks": [], "kernels": [], "buffers": [],
        "memory": {"arena": 0, "bound": 0, "peak": []},
        "plan": {"streams": 0, "records": 0, "waits": 0, "steps": [], "trial": []},
        "runs": [], "passes": [], "groups": [], "cuts": [], "notes": [f"{graph._name} {reason}"],
        "log": why_lines(graph._versions.log, parameters.every), "paths": [], "files": [], "devices": [],
        "remarks": [{"text": reason, "tasks": []}],
    }  # fmt: skip


def _type_in_words(value: Any) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    return type(value).__name__ if dtype is None or shape is None else f"{dtype}{[*shape]}"


def spans_of_runs(spans: Iterable[Span], plan: Plan) -> list[list[Span]]:
    """The spans of each whole run of a plan, told by its tasks: programs of other functions may have its name."""
    runs: dict[int, list[Span]] = {}
    for span in spans:
        if span.task >= 0 and span.program == plan.program.name:
            runs.setdefault(span.run, []).append(span)
    wanted = {i: (task.name, task.line, least_bytes_of_task(task)) for i, task in enumerate(plan.tasks)}
    return [run for run in runs.values() if {s.task: (s.name, s.line, s.nbytes) for s in run} == wanted]


class _ReportBuilder:
    def __init__(self, inspection: CompiledCall, provenance: SourcePaths, spans: Sequence[Span]) -> None:
        self.inspection, self.provenance, self.spans = inspection, provenance, spans
        self.plan = inspection.plan
        self.program = self.plan.program
        self.machine: MachineModel = machine_model_of_device(inspection.device[0], inspection.gpu)
        self.bodies = {key_of_reported_plan(plan): stages for plan, stages in inspection.stages.bodies}
        self.kernels: dict[tuple[str, str], int] = {}

    def whole(self, made: dict[str, str]) -> JsonObject:
        inspection, plan = self.inspection, self.plan
        kind, index = inspection.device
        runs = self._profiled_runs()
        tasks = list(self._report_tasks(runs))
        data: JsonObject = {
            "version": VERSION,
            "made": made,
            "function": {"name": inspection.name, "signature": inspection.signature, "options": self._report_options()},
            "device": {"kind": kind, "name": f"{kind}:{index}" if kind == "cuda" else kind, **self._device_limits()},
            "arguments": self._report_arguments(),
            "nodes": len(inspection.graph.nodes),
            "predicted": predicted_microseconds(plan) if plan.report is not None else 0.0,
            "tasks": tasks,
            "kernels": [{"name": name, "text": text} for name, text in self.kernels],
            "buffers": self._report_buffers(),
            "memory": self._report_memory(),
            "plan": self._schedule_decision(),
            "runs": runs,
            "passes": list(self._graph_after_each_pass()),
            "groups": [str(group) for group in inspection.stages.fusion.groups],
            "cuts": self._fusion_cuts(tasks),
            "notes": [*self.inspection.captured.rolled, *self.inspection.segments],
            "log": why_lines(inspection.log, inspection.parameters),
        }
        if runs:
            data["measured"] = statistics.median(max(end for _, _, end in run["tasks"]) for run in runs if run["tasks"])
        data["paths"] = self.provenance.paths
        data["files"] = self.provenance.files()
        data["remarks"] = remarks_about_report(data)
        return data

    # the head

    def _report_options(self) -> JsonObject:
        return {name: getattr(self.inspection.options, name) for name in ("streams", "memory", "fastmath", "precision")}

    def _device_limits(self) -> dict[str, float]:
        """What the device does at most, in the cost model's bytes and flops a microsecond."""
        model = self.inspection.stages.model
        return {"bandwidth": model.bandwidth, "flops": model.flops, "cores": self.machine.cores}

    def _report_arguments(self) -> list[dict[str, str]]:
        names = names_of_call_arguments(self.inspection.tree, self.inspection.parameters)
        shown = (text_shortened_for_report(describe_traced_argument(a), MOST_LABEL) for a in self.inspection.arguments)
        return [{"name": name, "type": text} for name, text in zip(names, shown, strict=True)]

    # tasks

    def _report_tasks(self, runs: Sequence[JsonObject]) -> Iterator[JsonObject]:
        """The plan's tasks; then those of loops' and branches' bodies, each with the number of the one that runs it."""
        intervals = predict_timeline(self.plan, self.machine)
        critical = set(critical_path_of_timeline(intervals))
        times: dict[int, list[float]] = {}
        for run in runs:
            for task, start, end in run["tasks"]:
                times.setdefault(task, []).append(end - start)
        inner: list[tuple[int, int | None, Plan]] = []
        for number, (task, interval) in enumerate(zip(self.plan.tasks, intervals, strict=True)):
            row = self._report_task(task, self.inspection.stages)
            row |= {
                "stream": interval.stream,
                "start": round(interval.start, 3),
                "end": round(interval.end, 3),
                "cause": interval.cause,
                "after": interval.after,
                "critical": number in critical,
                "measured": round(statistics.median(times[number]), 3) if number in times else None,
            }
            yield row
            inner += [(number, _loop_iterations_for_report(task), body) for body in control_flow_bodies(task)]
        count = len(self.plan.tasks)
        while inner:
            parent, turns, body = inner.pop(0)
            stages = self.bodies.get(key_of_reported_plan(body))
            for task in body.tasks:
                inner += [(count, _loop_iterations_for_report(task), deeper) for deeper in control_flow_bodies(task)]
                yield self._report_task(task, stages) | {"parent": parent, "turns": turns}
                count += 1

    def _source_paths_of_task(self, task: Task, stages: PipelineStages | None) -> list[int]:
        """The paths of what a task computes; of a loop or branch those of its bodies' tasks come first."""
        found = [
            path
            for body in control_flow_bodies(task)
            for inner in sorted(body.tasks, key=lambda inner: -inner.cost)
            for path in self._source_paths_of_task(inner, self.bodies.get(key_of_reported_plan(body)))
        ]
        found += [] if stages is None else self.provenance.of_nodes(stages.prepared, task.nodes)
        return list(dict.fromkeys(found)) or self.provenance.of_line(task.line)

    def _report_task(self, task: Task, stages: PipelineStages | None) -> JsonObject:
        paths = self._source_paths_of_task(task, stages)
        kernel = task.kernel
        text = self.provenance.text(paths) or task.name
        found: JsonObject = {
            "name": task.name,
            "label": text_shortened_for_report(f"{kernel}: {text}" if control_flow_bodies(task) else text, MOST_LABEL),
            "kind": "kernel" if isinstance(kernel, Kernel) else "library" if isinstance(kernel, Library) else "control",
            "cost": task.cost,
            "bytes": least_bytes_of_task(task),
            "flops": round(flops_of_task(task)),
            "reads": sorted({r.buffer for r in task.reads}),
            "writes": sorted({w.buffer for w in task.writes}),
            "nodes": list(task.nodes),
            "paths": paths,
            "launch": _launch_description(task),
        }
        if isinstance(kernel, Kernel):
            found["kernel"] = self.kernels.setdefault((kernel.name, kernel.source), len(self.kernels))
        return found

    def _profiled_runs(self) -> list[JsonObject]:
        """For each run that the profile saw: task, start and end of each task, from the start of the first."""
        found = []
        for run in spans_of_runs(self.spans, self.plan):
            first = min(s.start for s in run)
            found.append({"tasks": [[s.task, round(s.start - first, 3), round(s.end - first, 3)] for s in run]})
        return found

    # memory

    def _report_buffers(self) -> list[JsonObject]:
        names = dict(zip(self.program.inputs, names_of_program_inputs(self.inspection), strict=False))
        for buffer, name in zip(self.program.outputs, names_of_program_outputs(self.inspection), strict=False):
            names.setdefault(buffer, name)
        return [
            {"name": names.get(i, ""), "kind": b.kind, "bytes": b.nbytes, "offset": self.plan.offsets[i]}
            for i, b in enumerate(self.program.buffers)
        ]

    def _report_memory(self) -> JsonObject:
        bound, peak = plan_memory_bound(self.plan)
        return {"arena": self.plan.arena_bytes, "bound": bound, "peak": list(peak)}

    # decisions

    def _schedule_decision(self) -> JsonObject:
        plan, report, trial = self.plan, self.plan.report, self.inspection.compiled.trial
        found: JsonObject = {
            "streams": plan.streams,
            "records": plan.records,
            "waits": plan.waits,
            "steps": [_step_description(step) for step in plan.steps],
            "trial": [] if trial is None else list(trial.lines()),
        }
        if report is None:
            return found
        return found | {
            "width": report.width,
            "critical": report.critical_path,
            "chosen": report.chosen,
            "reason": report.reason,
            "memory": report.memory,
            "candidates": [
                {"name": c.name, "streams": c.streams, "records": c.inner.records, "waits": c.inner.waits,
                 "predicted": c.predicted} for c in report.candidates
            ],
        }  # fmt: skip

    def _fusion_cuts(self, tasks: Sequence[JsonObject]) -> list[JsonObject]:
        """What passes between kernels through memory, and why; by tasks, of a kernel in two stages the first one."""
        fusion = self.inspection.stages.fusion
        home = {node: number for number in reversed(range(len(self.plan.tasks))) for node in tasks[number]["nodes"]}
        task_of = [home.get(next(iter(g.stores or g.computes), -1)) for g in fusion.groups]
        return [
            {"node": cut.node, "from": task_of[cut.writer], "to": task_of[cut.reader], "rule": cut.reason.rule,
             "text": str(cut.reason)} for cut in fusion.cuts
        ]  # fmt: skip

    # graphs

    def _graph_after_each_pass(self) -> Iterator[JsonObject]:
        """Each pass's graph with a place for every node that is drawn; of one that changed nothing the name."""
        before: Graph | None = None
        for name, graph in self.inspection.stages.passes:
            if graph == before:
                yield {"name": name, "same": True}
            elif len(graph.nodes) > MOST_DRAWN:
                yield {"name": name, "count": len(graph.nodes)}
            else:
                yield {"name": name, "count": len(graph.nodes), **self._graph_drawing(graph)}
            before = graph

    def _graph_drawing(self, graph: Graph) -> JsonObject:
        """Columns of the nodes that are drawn: constants, and what is made of these alone, are left out."""
        plain: set[int] = set()
        for number, node in enumerate(graph.nodes):
            if node.op in ("const", "number", "index") or (node.args and plain.issuperset(node.args)):
                plain.add(number)
        plain -= {*graph.outputs}
        shown = [n for n in range(len(graph.nodes)) if n not in plain]
        place = {number: i for i, number in enumerate(shown)}
        above = [[place[a] for a in dict.fromkeys(graph.nodes[n].args) if a in place] for n in shown]
        spots = layered_node_positions(above)
        return {
            "numbers": shown,
            "ops": [graph.nodes[n].op for n in shown],
            "types": [str(graph.nodes[n].type) for n in shown],
            "attrs": [_node_attributes_for_report(graph.nodes[n]) for n in shown],
            "above": above,
            "x": [x for x, _ in spots],
            "y": [y for _, y in spots],
            "paths": [self.provenance.of_line(graph.lines[n] if graph.lines else "") for n in shown],
            "outputs": [place[o] for o in graph.outputs if o in place],
        }


def key_of_reported_plan(plan: Plan) -> tuple[Any, ...]:
    """Equal for the plans of one body, whose tasks' lines may be others."""
    return (plan.program.name, tuple((t.name, t.nodes, t.arguments) for t in plan.tasks), plan.program.buffers)


def _loop_iterations_for_report(task: Task) -> int | None:
    """How often a loop's body runs, if that is known."""
    return getattr(task.kernel, "count", 1)


def _launch_description(task: Task) -> str:
    if task.grid != (1, 1, 1) or task.block != (1, 1, 1):
        return f"grid {'x'.join(map(str, task.grid))}, block {'x'.join(map(str, task.block))}"
    return f"{task.units} units in chunks of {task.grain}" if isinstance(task.kernel, Kernel) else ""


def _step_description(step: Launch | Record | Wait) -> list[Any]:
    number = step.task if isinstance(step, Launch) else step.event
    return [type(step).__name__.lower(), step.stream, number]


def _node_attributes_for_report(node: Node) -> str:
    """A node's attributes for people; a constant's number, and of a loop no more than what it is."""
    parts = []
    for key, value in node.attrs:
        if key == "value" and isinstance(value, bytes):
            value = np.frombuffer(value, node.dtype)[0]
        parts.append(f"{key}={text_shortened_for_report(str(value), 40)}")
    return " ".join(parts)
