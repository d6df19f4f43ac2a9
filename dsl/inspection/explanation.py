"""An inspected call in; out, a text that says what became of it: a few lines, or everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...compiler.pipeline import explain_decomposition_stage
from ...runtime.core.readable_text import byte_count_in_words, with_article
from ...runtime.program.plan import Plan
from ...runtime.program.program import Kernel, Library, Task, control_flow_bodies
from ...runtime.schedule.schedule import explain_plan, plan_memory_bound, predicted_microseconds
from ..array.devices import kernel_target_of_device_kind
from ..core.pytree import MetAgain, Tree
from ..jit.specializations import CompiledCall, describe_traced_argument
from ..jit.traced_function import SpecializationEvent
from ..report.text import duration_as_text, text_shortened_for_report
from .names import names_within_call_arguments

MOST_TASKS, MOST_CUTS, MOST_NOTES = 5, 3, 2
WIDTH = 118


def explanation_summary(inspection: CompiledCall) -> list[str]:
    """At most 15 lines: what became what and takes how long, what was kept apart and why, the plan, the memory."""
    plan = inspection.plan
    tasks = sorted(range(len(plan.tasks)), key=lambda i: -plan.tasks[i].cost)
    lines = [
        _call_line_of_explanation(inspection),
        *(_task_line_of_explanation(i, plan.tasks[i]) for i in tasks[:MOST_TASKS]),
    ]
    if len(tasks) > MOST_TASKS:
        rest = sum(plan.tasks[i].cost for i in tasks[MOST_TASKS:])
        lines.append(f"  and {len(tasks) - MOST_TASKS} more, {duration_as_text(rest)}")
    lines += [
        *_fusion_cut_lines_of_explanation(inspection),
        _plan_line_of_explanation(inspection),
        _memory_line_of_explanation(plan),
    ]
    notes = list(_explanation_notes(inspection))
    lines += notes[:MOST_NOTES]
    lines.append(f"everything: {inspection.name}.explain(..., verbose=True); a page: {inspection.name}.report(...)")
    return [text_shortened_for_report(line, WIDTH) for line in lines]


def _call_line_of_explanation(inspection: CompiledCall) -> str:
    given = text_shortened_for_report(", ".join(map(describe_traced_argument, inspection.arguments)), 60)
    nodes, tasks = len(inspection.graph.nodes), len(inspection.plan.tasks)
    return f"{inspection.name}({given}) on {inspection.device[0]}: {nodes} nodes, {tasks} tasks"


def _task_line_of_explanation(number: int, task: Task) -> str:
    where = task.line.split(", ")
    lines = where[0] + (f" and {len(where) - 1} more line{'s' * (len(where) > 2)}" if len(where) > 1 else "")
    what = text_shortened_for_report(name_of_task_with_numbers(task), 60)
    return f"  t{number} {duration_as_text(task.cost)}: {what}" + (f" ({lines})" if task.line else "")


def name_of_task_with_numbers(task: Task) -> str:
    """A task's name; of a product with what it multiplies, and what it writes where that is another dtype."""
    if not isinstance(task.kernel, Library) or task.kernel.name != "matmul":
        return task.name
    given, result = task.reads[0].dtype, task.writes[0].dtype
    return f"{task.name} of {given}" + (f" into {result}" if result != given else "")


def _fusion_cut_lines_of_explanation(inspection: CompiledCall) -> Iterator[str]:
    """How many arrays pass between kernels through memory, and the rules that kept those apart."""
    cuts, graph = inspection.stages.fusion.cuts, inspection.stages.prepared
    if not cuts:
        yield "nothing passes between kernels through memory"
        return
    yield f"{len(cuts)} times an array passes between kernels through memory, because"
    first = {cut.reason.rule: cut for cut in reversed(cuts)}
    for rule, count in Counter(cut.reason.rule for cut in cuts).most_common(MOST_CUTS):
        line = graph.lines[first[rule].node] if graph.lines else ""
        yield f"  {first[rule].reason}: {count}" + (f", such as {line.split(', ')[0]}" if line else "")


def _plan_line_of_explanation(inspection: CompiledCall) -> str:
    plan, trial = inspection.plan, inspection.compiled.trial
    text = f"plan: {plan.streams} streams" if plan.streams != 1 else "plan: one stream"
    if plan.report is not None:
        longest = plan.report.critical_path
        text += (
            f", predicted {duration_as_text(predicted_microseconds(plan))}, longest chain {duration_as_text(longest)}"
        )
    if trial is not None:
        return f"{text}; {list(trial.lines())[-1]}"
    return text + (f" ({plan.report.reason})" if plan.report is not None else "")


def _memory_line_of_explanation(plan: Plan) -> str:
    if not plan.arena_bytes:
        return "memory: no temporaries"
    bound, _ = plan_memory_bound(plan)
    above = plan.arena_bytes / bound - 1 if bound else 0.0
    words = "the least possible in this order" if above < 5e-3 else f"{above:.0%} above the least possible"
    return f"memory: {byte_count_in_words(plan.arena_bytes)} of temporaries, {words}"


def _explanation_notes(inspection: CompiledCall) -> Iterator[str]:
    """What a user would want to know before all else."""
    known = [describe_traced_argument(a) for a in inspection.arguments if a.static]
    if known:
        yield f"part of the key, since the trace needs the value: {', '.join(known)}"
    yield from inspection.segments[:1]
    yield from _explain_kept_states(inspection)
    if len(inspection.options.devices) > 1:
        yield f"as on one device; how it is spread over several: {inspection.name}.device_plan(...)"
    graph = inspection.graph
    given = [graph.nodes[i].type for i in graph.inputs if graph.nodes[i].shape]
    if given and any(t.dtype.kind == "f" for t in given) and all(t.dtype.itemsize < 8 for t in given):
        for number, node in enumerate(graph.nodes):
            if node.dtype.name == "float64" and node.type.size > 1:
                line = graph.lines[number] if graph.lines else "a line"
                yield f"{line} computes in float64, though no argument does: twice the bytes"
                break
    for line in explain_decomposition_stage(
        inspection.captured.graph,
        kernel_target_of_device_kind(inspection.device[0]),
        inspection.layouts,
        inspection.gpu.dnn,
        inspection.gpu,
    ):
        if "host" in line or "pip install" in line:
            yield line
    yield from dict.fromkeys(inspection.captured.rolled)
    executable = inspection.compiled.executable
    yield from dict.fromkeys(executable.notes if executable is not None else ())


def _explain_kept_states(inspection: CompiledCall) -> Iterator[str]:
    """Of each loop that goes back through another one's turns: how much it keeps, and what more and less would cost."""
    graph = inspection.graph
    for number, node in enumerate(graph.nodes):
        control = node.attr("control") if node.op == "loop" and not node.attr("part") else None
        if control is None or control.kept is None or not control.kept.nbytes:
            continue
        kept, line = control.kept, graph.lines[number].split(", ")[0] if graph.lines else "a loop"
        others = ", ".join(
            f"{byte_count_in_words(nbytes)}: {runs:.3g}" for nbytes, runs in kept.curve if nbytes != kept.nbytes
        )
        text = f"{line}: back through {kept.iterations} turns with {byte_count_in_words(kept.nbytes)} of states"
        yield f"{text}, {kept.passes:.3g} runs of each" + (f" ({others})" if others else "")


def full_explanation(inspection: CompiledCall) -> list[str]:
    """The graph that fusion covers, groups and cuts, how each was decided, and the plan."""
    captured, compiled = inspection.captured, inspection.compiled
    arrays = ", ".join(map(describe_traced_argument, inspection.arguments))
    nodes, tasks = len(captured.graph.nodes), len(compiled.program.tasks)
    lines = [f"{inspection.name}({arrays}) on {inspection.device[0]}: {nodes} nodes, {tasks} tasks"]
    known = [describe_traced_argument(a) for a in inspection.arguments if a.static]
    if known:
        lines.append(f"part of the key, since the trace needs the value: {', '.join(known)}")
    if captured.graph.numbers:
        lines.append(f"{len(captured.graph.numbers)} numbers are passed at each call; another value compiles nothing")
    lines += [*captured.rolled, *_explain_kept_states(inspection)]
    if inspection.segments:
        lines += [*inspection.segments, "the first part:"]
    lines += explain_decomposition_stage(
        captured.graph,
        kernel_target_of_device_kind(inspection.device[0]),
        inspection.layouts,
        inspection.gpu.dnn,
        inspection.gpu,
    )
    stages = inspection.stages
    lines += ["prepared for fusion:", *stages.prepared.lines_of_text(), "groups, and what passes between them:"]
    return [*lines, str(stages.fusion), explain_plan(compiled.plan), *compiled.lines()]


def explained_source_text(plan: Plan) -> str:
    """Every kernel's text, below the tasks that launch it; what is no kernel has its name alone."""
    tasks: dict[Kernel | str, list[str]] = {}
    for name, task in _all_tasks_to_explain(plan, ""):
        what = task.kernel if isinstance(task.kernel, Kernel) else f"{task.name}: no kernel of ours"
        tasks.setdefault(what, []).append(f"{name} {task.name}" + (f" ({task.line})" if task.line else ""))
    parts = []
    for what, users in tasks.items():
        mark = ";" if isinstance(what, Kernel) and what.target == "cpu" else "#"
        head = "\n".join(f"{mark} {user}" for user in users)
        parts.append(f"{head}\n{what.source}" if isinstance(what, Kernel) else f"{head}: no kernel of ours")
    return "\n\n".join(parts)


def _all_tasks_to_explain(plan: Plan, prefix: str) -> Iterator[tuple[str, Task]]:
    """Tasks and those of loops' and branches' bodies, which are named `t3.t0`."""
    for number, task in enumerate(plan.tasks):
        bodies = control_flow_bodies(task)
        if not bodies:
            yield f"{prefix}t{number}", task
        for body in bodies:
            yield from _all_tasks_to_explain(body, f"{prefix}t{number}.")


class VersionEvent(NamedTuple):
    """A line of `why`: what happened, how long it took, who called, and what differs from the nearest version."""

    text: str
    microseconds: float
    line: str
    difference: str

    def __str__(self) -> str:
        took = f", {duration_as_text(self.microseconds)}" if self.microseconds else ""
        caller = f", called at {self.line}" if self.line else ""
        return f"{self.text}{took}{caller}{f'; {self.difference}' if self.difference else ''}"


def version_events(log: Iterable[SpecializationEvent], parameters: tuple[str, ...]) -> Iterator[VersionEvent]:
    """What happened to a function's versions, in order."""
    before: list[dict[str, str]] = []
    for event in log:
        difference = ""
        if event.kind == "traced":
            leaves = iter(event.shown)
            shown = {
                name: next(leaves) if inside.kind is None else _structure_in_words(inside)
                for name, inside in names_within_call_arguments(event.tree, parameters)
            }
            difference = _specialization_difference(shown, before)
            before.append(shown)
        yield VersionEvent(event.text, event.microseconds, event.line, difference)


def why_lines(log: Iterable[SpecializationEvent], parameters: tuple[str, ...]) -> list[str]:
    """A line for each event."""
    return [str(event) for event in version_events(log, parameters)]


def _structure_in_words(tree: Tree) -> str:
    """What a value that is no leaf is, beside what it holds."""
    assert tree.kind is not None
    if tree.kind is MetAgain:
        return "one that is also elsewhere"
    return with_article(tree.kind.__name__)


def _specialization_difference(shown: dict[str, str], before: Sequence[dict[str, str]]) -> str:
    """How a version's arguments differ from those of the nearest one that was there before."""
    if not before or shown in before:
        return ""
    nearest = min(reversed(before), key=lambda other: len(shown.items() ^ other.items()))
    names = [name for name in {**shown, **nearest} if shown.get(name) != nearest.get(name)]
    return "differs in " + ", ".join(
        f"{name}: {shown.get(name, 'none')}, not {nearest.get(name, 'none')}" for name in names[:3]
    )
