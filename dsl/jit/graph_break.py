"""A trace that asks for values that arrays of the call decide: it is split there.

What is traced so far is a part of its own. It gives the value, and all arrays that live on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.core.types import ArrayType
from ...compiler.graph.graph import Value
from ...runtime.core.frozen import frozen
from ..core.errors import user_line
from ..core.pytree import Tree, unflatten
from ..trace.subgraph import Subgraph, extract_subgraph_of_trace
from ..trace.trace import TraceRestart
from ..trace.tracer import Tracer

if TYPE_CHECKING:
    from ..trace.trace import Trace
    from .launcher import Launcher
    from .traced_function import TracedFunction, Watched

Host = np.ndarray[Any, Any]


class GraphBreak(TraceRestart):
    """The trace has come to its first split."""

    def __init__(self, part: Segment) -> None:
        super().__init__()
        self.part = part


@frozen
class HostResult:
    """What a Python function gave: the structure, and for each leaf the type of an array or a value as it is."""

    tree: Tree
    leaves: tuple[Any, ...]

    @property
    def key(self) -> Hashable:
        return self.tree, tuple(x if type(x) is ArrayType else (type(x), repr(x)) for x in self.leaves)


@frozen
class HostError:
    """What a Python function raised: the trace goes on by raising it too."""

    error: Exception

    @property
    def key(self) -> Hashable:
        return type(self.error), repr(self.error)


Answer = Host | HostResult | HostError
Python = Callable[[Sequence[Host]], Any]


class Segment:
    """What runs between two splits. line: where values are read, or nothing for what ends the call. function: what is
    done with `count` values by Python; without one the value itself decides how the trace goes on. kept: of what lives
    on, which result it is (or -1 - its place among what lived before). children: the next part for each answer."""

    __slots__ = (
        "captured", "children", "count", "cut", "entry", "function", "kept", "last", "line", "nodes", "reads",
        "seconds", "type", "watched",
    )  # fmt: skip

    def __init__(
        self,
        cut_: Subgraph | None = None,
        line: str = "",
        values: Sequence[Value] = (),
        kept: Sequence[int] = (),
        function: Python | None = None,
        watched: Watched = (),
    ) -> None:
        self.cut, self.line, self.kept, self.function, self.watched = cut_, line, tuple(kept), function, watched
        self.nodes = tuple(v.number for v in values)
        self.type = ", ".join(str(v.type) for v in values)
        self.count = len(values)
        self.captured: TracedFunction | None = None
        self.entry: Launcher | None = None
        self.children: dict[Hashable, Segment] = {}
        self.reads, self.seconds = 0, 0.0
        self.last = 0.0  # when it last ran

    def same(self, other: Segment) -> bool:
        """Whether it was made by the same operations."""
        mine, theirs = self.cut, other.cut
        assert mine is not None and theirs is not None
        return (self.nodes, self.kept, mine.graph, mine.feeds) == (other.nodes, other.kept, theirs.graph, theirs.feeds)


class GraphBreakValueReader:
    """Answers a trace that asks for values. known: the nodes that earlier parts have left behind, and where."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}
        self._made = 0

    def read(self, trace: Trace, value: Value) -> Host:
        """The value of a node that arrays of the call decide."""
        found = self.answer(trace, self._segment_before_graph_break(trace, [value], None))
        assert isinstance(found, np.ndarray)
        trace.values[value.number] = found
        return found

    def call(self, trace: Trace, values: Sequence[Value], function: Python) -> Any:
        """What a Python function makes of the values of nodes; the arrays in it are traced. Only their types, and what
        else there is in it, decide how the trace goes on."""
        made = self.answer(trace, self._segment_before_graph_break(trace, values, function))
        if isinstance(made, HostError):
            raise made.error
        assert isinstance(made, HostResult)
        leaves = []
        for x in made.leaves:
            if type(x) is ArrayType:
                self._made += 1
                value = trace.builder.add("input", (), x, (("made", self._made),))
                self.known[value.number] = len(self.known)
                x = Tracer(trace, value)
            leaves.append(x)
        return unflatten(made.tree, leaves)

    def answer(self, trace: Trace, part: Segment) -> Answer:
        raise GraphBreak(part)

    def _segment_before_graph_break(self, trace: Trace, values: Sequence[Value], function: Python | None) -> Segment:
        """What gives the values, and all that lives on and is worth keeping."""
        living = {_segment_source_of_reshapes(trace, number) for number in trace.living_nodes()}
        lasting = sorted(number for number in living if _is_segment_value_worth_keeping(trace, self.known, number))
        places = {v.number: i for i, v in reversed([*enumerate(values)])}
        new = [n for n in lasting if n not in self.known and n not in places]
        places |= {n: i + len(values) for i, n in enumerate(new)}
        kept = [places[n] if n in places else -1 - self.known[n] for n in lasting]
        outputs = [*values, *map(trace.builder.at, new)]
        watched = outputs_to_read_at_break(trace, outputs)
        found = extract_subgraph_of_trace(trace, outputs, self.known)
        self.known = {n: i for i, n in enumerate(lasting)}
        return Segment(found, user_line(), values, kept, function, watched)


def outputs_to_read_at_break(trace: Trace, outputs: list[Value]) -> Watched:
    """What is to be looked at: it is added to the outputs, and no longer waits in the trace."""
    found = []
    for values, watcher in trace.watched:
        found.append((tuple(range(len(outputs), len(outputs) + len(values))), watcher))
        outputs += values
    trace.watched = []
    return tuple(found)


def _segment_source_of_reshapes(trace: Trace, number: int) -> int:
    """What a reshape is one of: another reshape of it, in a later part, is made of that."""
    nodes = trace.builder.nodes
    while nodes[number].op == "reshape":
        number = nodes[number].args[0]
    return number


def _is_segment_value_worth_keeping(trace: Trace, known: dict[int, int], number: int) -> bool:
    """Whether it is worth keeping: it is not made of numbers alone, nor is it a view of what is there anyway."""
    nodes = trace.builder.nodes
    while number not in known and nodes[number].op in _VIEWS:
        number = nodes[number].args[0]
    return number in known or (nodes[number].op != "input" and trace.depends_on_arrays(number))


_VIEWS = ("slice", "permute", "broadcast", "reshape", "windows")
