"""Two traces of one function for the same kinds of arguments in, an error out if they differ.

A trace keeps what it read from outside: globals and attributes are guarded, but not clocks, files, the environment, the
system's randomness or state within packages. `KERNELGRAPH_VERIFY=1` finds such reads by tracing each call again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from ...compiler.graph.graph import Node
from ..core.errors import TraceError
from .traced_function import TracedFunction

ADVICE = (
    "what it reads from a clock, a file, the system's randomness or a package's own state stays as it was in the first "
    "call; pass it as an argument, or draw random numbers with kg.random"
)


def check_traces_are_same(name: str, first: TracedFunction, again: TracedFunction | frozenset[int]) -> None:
    """Raises TraceError, at the line whose result differs, if the traces do."""
    if not isinstance(again, TracedFunction):
        raise TraceError(f"{name}, traced again, decides on the value of another number: {ADVICE}", needs_values=False)
    found = next(differences_between_traces(first, again), None)
    if found is not None:
        what, line = found
        raise TraceError(f"{name}, traced again, {what}: {ADVICE}", line or None, needs_values=False)


def differences_between_traces(first: TracedFunction, again: TracedFunction) -> Iterator[tuple[str, str]]:
    """What differs, and the user's line where that is known."""
    before, after = first.graph, again.graph
    lines = zip_longest(before.lines, after.lines, fillvalue="")
    nodes = zip_longest(before.nodes, after.nodes)
    for (a, b), (old, new) in zip(nodes, lines, strict=True):
        if a != b:
            yield (
                f"computes {_traced_node_text_for_check(b)} where it computed {_traced_node_text_for_check(a)}",
                new or old,
            )
    for x, y in zip(first.arrays, again.arrays, strict=False):
        if x is not y and (x.dtype != y.dtype or x.tobytes() != y.tobytes()):
            yield f"reads another {x.dtype} array of shape {x.shape}", ""
    for (kind, old), (other, new) in zip(first.results, again.results, strict=False):
        if kind == other and kind in ("static", "fresh") and not _same_returned_object(old, new):
            yield f"returns {new!r} where it returned {old!r}", ""
    parts = ("graph", "text", "checks", "tree", "assigned", "feeds", "line", "watched")
    if len(first.results) != len(again.results) or any(getattr(first, p) != getattr(again, p) for p in parts):
        yield "does something else", again.line


def _same_returned_object(a: Any, b: Any) -> bool:
    """Whether two returned objects that are no arrays are as good as each other; those without a text of their own
    are told apart by type."""
    if type(a) is not type(b):
        return False
    told: Any = type(a).__repr__
    return told is object.__repr__ or callable(a) or repr(a) == repr(b)


def _traced_node_text_for_check(node: Node | None) -> str:
    if node is None:
        return "nothing"
    if node.op == "const":
        return str(np.frombuffer(node.attr("value"), node.type.dtype)[0])
    return f"{node.op} {node.type}"
