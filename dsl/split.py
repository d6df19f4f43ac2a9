"""A trace that asks for values that arrays of the call decide: it is split there.

What is traced so far is a part of its own. It gives the value, and all arrays that live on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.graph import Value
from .cut import Cut, cut
from .errors import user_line

if TYPE_CHECKING:
    from .capture import Captured
    from .entry import Entry
    from .trace import Trace

Host = np.ndarray[Any, Any]


class Suspended(BaseException):
    """The trace has come to its first split. Not an Exception, so that a user's `except Exception` does not stop it."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.part = part


class Part:
    """What runs between two splits. line: where its value is read, or nothing for what ends the call. kept: of what
    lives on, which result it is (or -1 - its place among what lived before). children: the next part for each value."""

    __slots__ = ("captured", "children", "cut", "entry", "kept", "line", "node", "reads", "seconds", "type")

    def __init__(self, cut_: Cut | None, line: str, type_: str, node: int, kept: Sequence[int]) -> None:
        self.cut, self.line, self.type, self.node, self.kept = cut_, line, type_, node, tuple(kept)
        self.captured: Captured | None = None
        self.entry: Entry | None = None
        self.children: dict[Hashable, Part] = {}
        self.reads, self.seconds = 0, 0.0

    def same(self, other: Part) -> bool:
        """Whether it was made by the same operations."""
        mine, theirs = self.cut, other.cut
        assert mine is not None and theirs is not None
        return (self.node, self.kept, mine.graph, mine.feeds) == (other.node, other.kept, theirs.graph, theirs.feeds)


class Reader:
    """Answers a trace that asks for values. known: the nodes that earlier parts have left behind, and where."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def read(self, trace: Trace, value: Value) -> Host:
        """The value of a node that arrays of the call decide."""
        part = self._part(trace, value)
        found = self.answer(trace, part)
        trace.values[value.number] = found
        return found

    def answer(self, trace: Trace, part: Part) -> Host:
        raise Suspended(part)

    def _part(self, trace: Trace, value: Value) -> Part:
        """What gives the value, and all that lives on and is worth keeping."""
        lasting = sorted(dict.fromkeys(number for number in trace.living() if _costs(trace, self.known, number)))
        new = [n for n in lasting if n not in self.known and n != value.number]
        places = {value.number: 0, **{n: i + 1 for i, n in enumerate(new)}}
        kept = [places[n] if n in places else -1 - self.known[n] for n in lasting]
        found = cut(trace, [value, *map(trace.builder.at, new)], self.known)
        self.known = {n: i for i, n in enumerate(lasting)}
        return Part(found, user_line(), str(value.type), value.number, kept)


def _costs(trace: Trace, known: dict[int, int], number: int) -> bool:
    """Whether it is worth keeping: it is not made of numbers alone, nor is it a view of what is there anyway."""
    nodes = trace.builder.nodes
    while number not in known and nodes[number].op in _VIEWS:
        number = nodes[number].args[0]
    return number in known or (nodes[number].op != "input" and trace.needs_arrays(number))


_VIEWS = ("slice", "permute", "broadcast", "reshape")
