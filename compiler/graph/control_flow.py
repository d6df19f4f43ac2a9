"""Loops and branches as nodes, with bodies cut out of a graph being built. Bodies are graphs of their own.

A loop node's arguments, in order: the initial values of what is carried; the arrays that windows slide over; the
invariants; the count (where no number or flag decides); the numbers that the body takes after its first, the
iteration's. A branch node's: the flag; the inputs of both bodies; their numbers. A node of either is one part of the
result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any

from ...runtime.core.frozen import dataclass, frozen
from ..core.types import INT64, ArrayType
from .builder import GraphBuilder
from .graph import Graph, Node, Value, Values


@frozen
class Window:
    """A slice that moves with the iteration. At iteration t it starts at `starts + t * moves`, in `steps`."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    moves: tuple[int, ...]


class _ControlFlowNodeBodies:
    """What has bodies: hashed once."""

    def __hash__(self) -> int:
        if "_hash" not in self.__dict__:
            self.__dict__["_hash"] = hash(tuple(self._fields()))
        return int(self.__dict__["_hash"])

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}

    def _fields(self) -> Iterator[Any]:
        raise NotImplementedError


@frozen
class KeptStates:
    """What a loop that goes back through another one's iterations has of their states. passes: how often those are run,
    on average; curve: (bytes, passes) for more states and for fewer, the most first."""

    iterations: int
    nbytes: int
    passes: float
    curve: tuple[tuple[int, float], ...]


UNKNOWN_ITERATIONS = 100  # the guess for what a call decides


@dataclass(frozen=True)
class Loop(_ControlFlowNodeBodies):
    """body: its inputs are the carried values, the windows, the invariants; its outputs the new carried values, then
    what each iteration adds to the stacked results. count: the iterations, or None; flag: an iteration runs only while
    carried value 0, a bool, is true. expected: about how many there are where no count says it, for the cost model;
    kept: of a loop that goes back through another one's iterations."""

    body: Graph
    carried: int
    windows: tuple[Window, ...] = ()
    count: int | None = None
    flag: bool = False
    expected: float = UNKNOWN_ITERATIONS
    kept: KeptStates | None = None

    __hash__ = _ControlFlowNodeBodies.__hash__

    def _fields(self) -> Iterator[Any]:
        yield from (self.body, self.carried, self.windows, self.count, self.flag)

    @property
    def bodies(self) -> tuple[Graph, ...]:
        return (self.body,)

    @property
    def counted(self) -> bool:
        """Whether an argument says how many iterations there are."""
        return self.count is None and not self.flag

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """Of the results."""
        found = [self.body.nodes[o].type for o in self.body.outputs]
        stacked = [ArrayType((self.count or 0, *t.shape), t.dtype) for t in found[self.carried :]]
        return (*found[: self.carried], *stacked)

    def __str__(self) -> str:
        times = "while %0" if self.flag else "times the argument" if self.count is None else f"{self.count} times"
        moving = "".join(f", window{w.starts}+t*{w.moves}" for w in self.windows).replace(" ", "")
        return f"{times}, carries {self.carried}{moving.replace(',window', ', window')}"


@dataclass(frozen=True)
class Branch(_ControlFlowNodeBodies):
    """Two bodies with the same inputs, numbers and types of outputs. The first runs where the flag is true.

    expected: the number of the one that is thought to run, for the cost model; None for the dearer one."""

    bodies: tuple[Graph, Graph]
    expected: int | None = None

    __hash__ = _ControlFlowNodeBodies.__hash__

    def _fields(self) -> Iterator[Any]:
        yield self.bodies

    @property
    def types(self) -> tuple[ArrayType, ...]:
        return tuple(self.bodies[0].nodes[o].type for o in self.bodies[0].outputs)

    def __str__(self) -> str:
        return "two bodies"


@dataclass(frozen=True)
class CustomDerivativeNode(_ControlFlowNodeBodies):
    """The derivative that the user has given of a part of the graph. The node's arguments: the part's results, of which
    each node is one; its inputs; the rest of a body's inputs, and its numbers.

    reverse: cotangents of the results that are floats, and the rest -> the inputs' cotangents; forward: tangents of the
    inputs, and the rest -> the tangents of those results. One of them is None."""

    results: int
    inputs: int
    reverse: Graph | None
    forward: Graph | None

    __hash__ = _ControlFlowNodeBodies.__hash__

    def _fields(self) -> Iterator[Any]:
        yield from (self.results, self.inputs, self.reverse, self.forward)

    @property
    def bodies(self) -> tuple[Graph, ...]:
        return tuple(body for body in (self.reverse, self.forward) if body is not None)

    def __str__(self) -> str:
        mode = "cotangents" if self.forward is None else "tangents"
        return f"{self.results} results, {self.inputs} inputs, a rule for {mode}"


def add_control_flow_node(builder: GraphBuilder, control: Loop | Branch, args: Values) -> list[Value]:
    """The node of each result."""
    op = "loop" if isinstance(control, Loop) else "branch"
    numbers = tuple(a.number for a in args)
    fixed = ("control", control)
    return [builder.add(op, numbers, t, (fixed, ("part", i))) for i, t in enumerate(control.types)]


def memory_argument_count_of_node(node: Node) -> int:
    """How many of a loop's or branch's arguments are read from memory. The rest are a count and numbers."""
    control: Loop | Branch = node.attr("control")
    numbers = len(control.bodies[0].numbers)
    if isinstance(control, Branch):
        return len(node.args) - numbers
    return len(node.args) - (numbers - 1) - control.counted


@frozen
class Cut:
    """A body, and the nodes outside of it that fill its inputs after the placeholders, and its numbers."""

    body: Graph
    inputs: tuple[int, ...]
    numbers: tuple[int, ...]


def cut_body_graphs_from_builder(
    builder: GraphBuilder,
    placeholders: Sequence[Values],
    outputs: Sequence[Values],
    first: int,
    index: Value | None = None,
    *,
    hoist: bool = True,
    fixed: Set[int] = frozenset(),
) -> list[Cut]:
    """Bodies as graphs of their own, all with the same inputs and numbers.

    placeholders[i]: what stands for the first inputs of body i; index: for its first number. first: nodes before it are
    outside. hoist: nodes that depend on no placeholder are outside too; else all nodes from `first` on are inside.
    fixed: nodes that are inside, wherever they are, and what is made of them."""
    stand_ins = {v.number for values in placeholders for v in values} | ({index.number} if index else set())
    inside: dict[int, bool] = {}
    for number in range(min(first, *fixed) if fixed else first, len(builder.nodes)):
        node = builder.nodes[number]
        inside[number] = number in stand_ins or number in fixed
        inside[number] |= number >= first and not hoist and node.op not in ("input", "number", "placeholder")
        inside[number] = inside[number] or any(inside.get(a, False) for a in node.args)
    every = [_nodes_needed_by_body_graph(builder, inside, stand_ins, [o.number for o in values]) for values in outputs]
    outer = sorted({n for order in every for n in order if not inside.get(n, False)})
    kept = [n for n in outer if not should_body_graph_repeat_node(builder.nodes, n)]
    inputs = tuple(n for n in kept if builder.nodes[n].op != "number")
    numbers = tuple(n for n in kept if builder.nodes[n].op == "number")
    return [
        Cut(_build_body_graph(builder, values, index, order, inputs, numbers, results), inputs, numbers)
        for values, order, results in zip(placeholders, every, outputs, strict=True)
    ]


def _nodes_needed_by_body_graph(
    builder: GraphBuilder, inside: dict[int, bool], stand_ins: set[int], outputs: Sequence[int]
) -> list[int]:
    """What a body computes or takes, in order."""
    found, todo = set[int](), list(outputs)
    while todo:
        number = todo.pop()
        if number in found:
            continue
        found.add(number)
        if number not in stand_ins and (
            inside.get(number, False) or should_body_graph_repeat_node(builder.nodes, number)
        ):
            todo += builder.nodes[number].args
    return sorted(found)


def should_body_graph_repeat_node(nodes: Sequence[Node], number: int) -> bool:
    """Whether each iteration had better make the node again. It is one of constants, indices, views of
    them, and arithmetic on numbers."""
    todo, seen = [number], set[int]()
    single = nodes[number].size == 1
    while todo:
        n = todo.pop()
        if n in seen:
            continue
        seen.add(n)
        node = nodes[n]
        kind = node.kind
        if len(seen) > 32 or node.op in ("input", "placeholder") or (n == number and node.op == "number"):
            return False
        if not (kind in ("source", "view") or node.op == "cast" or (kind == "map" and single)):
            return False
        todo += node.args
    return True


def _build_body_graph(
    builder: GraphBuilder,
    placeholders: Values,
    index: Value | None,
    order: Sequence[int],
    inputs: Sequence[int],
    numbers: Sequence[int],
    outputs: Values,
) -> Graph:
    made = GraphBuilder("body")
    line = ""
    made.where = lambda: line
    new: dict[int, Value] = {}
    for placeholder in placeholders:
        new[placeholder.number] = made.input(placeholder.type)
    for number in inputs:
        new[number] = made.input(builder.nodes[number].type)
    if index is not None:
        new[index.number] = add_body_scalar(made, index.type)
    for number in numbers:
        new[number] = add_body_scalar(made, builder.nodes[number].type)
    for number in order:
        if number not in new:
            node, line = builder.nodes[number], builder.lines[number]
            new[number] = made.copy(node, [new[a] for a in node.args])
    return made.finish([new[o.number] for o in outputs])


def add_body_scalar(builder: GraphBuilder, type: ArrayType) -> Value:
    """The next number of a body."""
    value = builder.add("number", (), type, (("index", len(builder.numbers)),))
    builder.numbers.append(value.number)
    return value


ITERATION = ArrayType((), INT64)
