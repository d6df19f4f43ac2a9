"""Traces that get long though their source is short: what to look at, and when to begin again with loops recorded."""

from __future__ import annotations

from ...compiler.reroll.reroll import repeats, reroll_graph
from ...runtime.core.settings import settings
from ..trace.trace import TooMany, Trace

LONG = 512  # nodes from which it is looked at whether they are turns of a loop:
TURNS = 8  # so many times as many as lines of the source,
ROLLED = 3  # and not that much fewer once turns that repeat are a loop again, or
LOOPS = 6  # more loops than that


def watch_length(trace: Trace) -> None:
    """Sees to it that a trace which gets long, though its source is short, begins again with its loops recorded."""
    if trace.world is None or trace.split is not None or trace.loops_of is not None or not settings.roll:
        return
    builder = trace.builder
    builder.limit = LONG

    def look() -> None:
        builder.limit *= 4
        if trace.depth or trace.loops or len(builder.nodes) < TURNS * len({*builder.lines}):
            return
        ends = {*range(len(builder.nodes))}.difference(*(n.args for n in builder.nodes))
        graph = builder.finish([builder.at(n) for n in sorted(ends)])
        rolled = reroll_graph(graph).graph.nodes
        loops = sum(node.op == "loop" and node.attr("part") == 0 for node in rolled)
        if loops > LOOPS or (len(rolled) * ROLLED > len(graph.nodes) and not repeats(graph)):
            raise TooMany

    builder.at_limit = look
