"""Graph: typed nodes whose arguments point backwards. With the lines of the user's text that they come from.

`compiler/graph/builder.py` makes them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from ...runtime.core.frozen import dataclass, field, frozen
from ..core.types import ArrayType, DType, WeakType
from ..ops.table import OPS

Attrs = tuple[tuple[str, Any], ...]


class GraphError(Exception):
    """A request that makes no sense. The text says what is wrong and what to write. The dsl adds the user's line, where
    it is not known yet."""

    def __init__(self, message: str, kind: type[Exception] = ValueError, line: str = "") -> None:
        super().__init__(message)
        self.kind, self.line = kind, line


class Typed:
    """What has an ArrayType has its properties."""

    __slots__ = ()
    type: ArrayType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return self.type.size


@frozen
class Node(Typed):
    """One array. `args` are numbers of earlier nodes."""

    op: str
    args: tuple[int, ...]
    type: ArrayType
    attrs: Attrs = ()

    def attr(self, name: str) -> Any:
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)

    @property
    def kind(self) -> str:
        """What its row says: see `Op`."""
        return OPS[self.op].kind

    @property
    def options(self) -> dict[str, Any]:
        """Of a call by name: its keywords."""
        return dict(self.attr("options"))


@dataclass(frozen=True)
class Graph:
    """Equality and hash are structural. inputs: the nodes that the caller's arrays fill, in order. numbers: those that
    his Python numbers fill; lines[i]: the user's `file:line` that made node i (takes no part in equality)."""

    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    numbers: tuple[int, ...]
    outputs: tuple[int, ...]
    lines: tuple[str, ...] = field(default=(), compare=False, repr=False)
    name: str = field(default="graph", compare=False)

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """users[i]: the nodes that take node i as an argument, in order, each once."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for arg in dict.fromkeys(node.args):
                found[arg].append(number)
        return tuple(map(tuple, found))

    def lines_of_text(self) -> Iterator[str]:
        """A line for each node. The bodies of a loop or branch follow its first one."""
        shown: set[tuple[tuple[int, ...], int]] = set()
        yield f"graph {self.name}({', '.join(f'%{i}' for i in (*self.inputs, *self.numbers))})"
        for number, node in enumerate(self.nodes):
            args = ", ".join(f"%{a}" for a in node.args)
            attrs = "".join(f" {k}={_text_of_node_attr(node, k, v)}" for k, v in node.attrs)
            line = f"    # {self.lines[number]}" if self.lines and self.lines[number] else ""
            yield f"  %{number}: {node.type} = {node.op}{' ' if args else ''}{args}{attrs}{line}"
            for key, value in node.attrs:
                if key == "control" and (node.args, id(value)) not in shown:
                    shown.add((node.args, id(value)))
                    yield from ("    " + text for body in value.bodies for text in body.lines_of_text())
        yield "  return " + ", ".join(f"%{o}" for o in self.outputs)

    def __str__(self) -> str:
        return "\n".join(self.lines_of_text())

    def __repr__(self) -> str:
        from ...runtime.core.readable_text import shorten_printed_lines

        return shorten_printed_lines(self.lines_of_text())


def graph_has_place_nodes(graph: Graph) -> bool:
    """Whether some node of a graph, or of a body in it, has a place. Bodies are those of loops and branches."""
    return any(node.op == "place" for part in graph_and_bodies(graph) for node in part.nodes)


def graph_and_bodies(graph: Graph) -> Iterator[Graph]:
    """A graph, and the bodies of the loops and branches in it. Each comes once; each of its results is a node."""
    todo, seen = [graph], {id(graph)}
    while todo:
        yield (part := todo.pop())
        bodies = {id(body): body for node in part.nodes for body in bodies_of_node(node) if id(body) not in seen}
        seen.update(bodies)
        todo += bodies.values()


def needed_nodes(nodes: Sequence[Node], numbers: Iterable[int], ends: Container[int] = ()) -> Iterator[int]:
    """The nodes that these are computed from, and themselves. ends: of which the arguments do not count."""
    seen, todo = set[int](), [*numbers]
    while todo:
        number = todo.pop()
        if number not in seen:
            seen.add(number)
            todo += () if number in ends else nodes[number].args
            yield number


def bodies_of_node(node: Node) -> tuple[Graph, ...]:
    """Of a loop or branch."""
    return next((value.bodies for _, value in node.attrs if hasattr(value, "bodies")), ())


def own_maximum_of_comparison(nodes: Sequence[Node], node: Node) -> int | None:
    """The number of max(x), where the node takes x and the maximum of each element's own row, as x - max(x) does."""
    x, number = node.args
    while nodes[number].op == "broadcast":
        number = nodes[number].args[0]
    shape = nodes[number].shape
    while nodes[number].op == "reshape":
        number = nodes[number].args[0]
    most = nodes[number]
    if most.op != "max" or most.args[0] != x:
        return None
    lengths = nodes[x].shape
    own = tuple(1 if i in most.attr("axes") else n for i, n in enumerate(lengths))
    return number if (1,) * (len(lengths) - len(shape)) + shape == own else None


def _text_of_node_attr(node: Node, key: str, value: Any) -> str:
    if key == "value" and isinstance(value, bytes):
        return str(np.frombuffer(value, node.dtype)[0])
    return f"({value})" if key == "control" else str(value).replace(" ", "")


@frozen
class Value(Typed):
    """A handle on a node of one builder. weak: the Python type that the value is of, where it is no NumPy scalar.

    others: the dtypes, and Python types, that NumPy has in place of these, as values decide."""

    number: int
    type: ArrayType
    weak: WeakType | None = None
    others: tuple[tuple[DType, WeakType | None], ...] = ()

    @property
    def promotes_as(self) -> np.dtype[Any] | WeakType:
        """What NumPy's promotion (NEP 50) sees: a Python type that has no dtype of its own there, or the dtype."""
        return self.type.dtype if self.weak is None or self.weak is bool else self.weak


Values: TypeAlias = Sequence[Value]


class Line(str):
    """`file.py:12`, or several such lines. places: for each, what the front end knows of it. Passes carry it along."""

    __slots__ = ("places",)
    places: tuple[Any, ...]

    def __new__(cls, text: str, places: tuple[Any, ...] = ()) -> Line:
        line = super().__new__(cls, text)
        line.places = places
        return line

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def joined_user_lines(lines: Iterable[str]) -> Line:
    """Several lines as one, each once."""
    every = dict.fromkeys(line for line in lines if line)
    if len(every) == 1 and isinstance(only := next(iter(every)), Line):
        return only
    return Line(", ".join(every), tuple(place for line in every for place in getattr(line, "places", ())))
