"""An inspected call in; a text out that says what became of it: a few lines, or everything."""

from __future__ import annotations

from ...compiler.pipeline import explain_decomposition
from ...runtime.schedule.schedule import explain_plan
from ..array.devices import target
from ..jit.compiled import Inspection
from ..jit.specializations import show


def explanation(inspection: Inspection, verbose: bool = True) -> str:
    """How a call was traced, fused and scheduled, and why."""
    return "\n".join(everything(inspection))


def everything(inspection: Inspection) -> list[str]:
    kind, captured, compiled = inspection.device[0], inspection.captured, inspection.compiled
    arrays = ", ".join(map(show, inspection.arguments))
    lines = [
        f"{inspection.name}({arrays}) on {kind}: {len(captured.graph.nodes)} nodes, {len(compiled.program.tasks)} tasks"
    ]
    known = [show(a) for a in inspection.arguments if a.static]
    if known:
        lines.append(f"part of the key, since the trace needs the value: {', '.join(known)}")
    if captured.graph.numbers:
        lines.append(f"{len(captured.graph.numbers)} numbers are passed at each call; another value compiles nothing")
    lines += captured.rolled
    if inspection.segments:
        lines += [*inspection.segments, "the first part:"]
    lines += explain_decomposition(captured.graph, target(kind), inspection.layouts)
    return [*lines, str(inspection.stages.fusion), explain_plan(compiled.plan), *compiled.lines()]
