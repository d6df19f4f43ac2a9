"""A call's arguments as a trace sees them, and a trace that is over: data; and what two traces differ in.

A trace keeps what it read from outside: globals and attributes are guarded, but not clocks, files, the environment, the
system's randomness or state within packages. `KERNELGRAPH_VERIFY=1` finds such reads by tracing each call again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from ...compiler.graph.graph import Graph, Node
from ...runtime.core.frozen import frozen
from ..array.array import Array
from ..core.errors import TraceError
from ..core.host_scalars import Host
from ..core.pytree import LEAF, Tree
from ..core.spec import Spec
from ..environment.guards import GuardSet
from ..state.argument_writes import ArgumentWrite, AssignedArguments
from ..state.changes import StateChanges
from ..trace.failures import Failures

Watched = tuple[tuple[tuple[int, ...], Callable[[Sequence[Any]], None]], ...]  # results, and what looks at them


@frozen
class TracedArgument:
    """One leaf of the arguments: an array of a spec, a Python number that is passed at each call, or a static value.
    value: of what is no array, and of a 0-d NumPy array. key: what tells it apart from other arguments. strides: of an
    array whose layout (of a 0-d one: value) is part of the key. whole: what is assigned to it is wanted as a whole.
    own: of a static value whether each call has another one with the same contents."""

    spec: Spec | None
    value: Any
    key: Hashable
    static: bool = False
    strides: tuple[int, ...] | None = None
    whole: bool = False
    own: bool = False


@frozen
class SpecializationEvent:
    """Something that happened to a function's versions.

    kind: `traced`, `traced again`, `compiled`, `placed`, `exchanges` or `split`; line: who called; shown: of a trace
    the leaves as people read them; tree: what they are the leaves of; microseconds: what it took."""

    kind: str
    text: str
    line: str = ""
    shown: tuple[str, ...] = ()
    microseconds: float = 0.0
    tree: Tree = LEAF


@frozen
class TracedFunction:
    """A trace that is over, or a part of one. host: a call's leaves -> the graph's scalars, then the numbers that are
    returned. results: for each returned leaf ("array", output), ("item", (output, number of the element, whether it is
    Python's)), ("number", place in host's results), ("argument",
    leaf), ("static", value), or ("fresh", value), of which each call gets a copy. feeds: the leaves that fill the
    graph's inputs, before `arrays`. text: of `host`, if it does anything. line: where it was split. watched: outputs
    that are looked at when they are there, and by what; failures: those that tell of errors, before anything is
    written; reruns: whether a call that has met one runs again in
    NumPy. rolled: remarks on Python loops. state: what the call does to
    its arguments, where they are opened."""

    graph: Graph
    arrays: tuple[np.ndarray[Any, Any], ...]
    host: Host
    checks: tuple[str, ...]
    tree: Tree
    results: tuple[tuple[str, Any], ...]
    assigned: AssignedArguments
    guards: GuardSet
    feeds: tuple[int, ...]
    text: str = ""
    line: str = ""
    watched: Watched = ()
    failures: Failures = ()
    reruns: bool = False
    rolled: tuple[str, ...] = ()
    state: StateChanges | None = None

    @property
    def writes(self) -> tuple[ArgumentWrite, ...]:
        """What is written to arguments, in order."""
        return tuple(write for _, writes in self.assigned for write in writes)

    @property
    def uses_holders(self) -> bool:
        """Whether a call changes, or gives, lists, dicts and objects that are opened in its arguments."""
        gives = any(kind == "holder" for kind, _ in self.results)
        return self.state is not None and (gives or bool(self.state.changes))


def no_host_numbers_of_call(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """The `host` of a trace that does no arithmetic on the call's numbers."""
    return ()


def item_of_result(array: Array, place: tuple[int, int, bool]) -> Any:
    """One of many numbers of a result: see `TracedFunction`."""
    found = array.numpy().flat[place[1]]
    return found.item() if place[2] else found


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
        return str(np.frombuffer(node.attr("value"), node.dtype)[0])
    return f"{node.op} {node.type}"
