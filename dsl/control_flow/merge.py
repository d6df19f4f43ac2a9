"""Two values, of which a traced decision takes one, as one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ...compiler.graph.graph import Value
from ...runtime.core.frozen import dataclass
from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError, UnsupportedError
from ..core.exact import exact_key_of_value
from ..core.object_model import PLAIN
from ..core.pytree import flatten, unflatten
from ..trace.aliasing import root_of_view
from ..trace.number_kinds import joined_number_kinds, with_other_number_kinds
from ..trace.operands import to_graph_operand
from ..trace.trace import Trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .effects import UNSET, ControlFlowSlot, containers_in_control_flow_value
from .rewrite import VALUE

_NUMBERS = (bool, int, float, complex)  # and no class of the user's that extends one
Later = Callable[[], Any]  # what gives the joined value, once there are nodes for it


@dataclass(frozen=True, slots=True)
class BranchSide:
    """What a side gave, changed and wrote to; what it raised."""

    given: Any
    changed: dict[tuple[int, Any], tuple[ControlFlowSlot, Any, Any]]
    written: dict[int, tuple[Tracer, Value, Value]]
    made: dict[int, Tracer]
    known: set[int]  # the objects that names and containers had before
    error: Exception | None
    failed: Value  # which error it has met first


class BranchMerge:
    """Collects pairs of values of one type in `both`; `finish` gives their nodes, and then all that was asked for."""

    def __init__(self, trace: Trace, sides: Sequence[BranchSide]) -> None:
        self.trace = trace
        self.both: list[tuple[Value, Value]] = []
        self._sides = sides
        self._arrays: WeakValueDictionary[tuple[int, int], Later] = WeakValueDictionary()  # for each pair of arrays
        self._named: dict[tuple[int, int], list[Tracer]] = {}  # for each side and array what stands for it afterwards
        self._nodes: list[Value] = []

    def finish(self, nodes: Sequence[Value]) -> None:
        self._nodes = [*nodes]

    def values(self, a: Value, b: Value) -> Later:
        """Two nodes of one type."""
        place = len(self.both)
        self.both.append((a, b))
        return lambda: self._nodes[place]

    def pair(self, a: Any, b: Any, name: str) -> Later:
        """Two values that the user calls `name`. Raises TraceError, ArgumentsError, ShapeError, DTypeError."""
        if a is b or (type(a) in PLAIN and type(a) is type(b) and exact_key_of_value(a) == exact_key_of_value(b)):
            return lambda: a
        if a is UNSET or b is UNSET:
            return self._merge_half_bound_name(a, b, name)
        returned = name.startswith(VALUE)
        name = "what the function returns" if returned else name
        leaves: tuple[list[Any], list[Any]] = [], []
        inside = [containers_in_control_flow_value(value) for value in (a, b)]
        common = tuple(inside[0].keys() & inside[1].keys())  # what both have stays itself
        trees = [flatten(value, found, above=common) for value, found in zip((a, b), leaves, strict=True)]
        chosen = [own[x] for own in inside for x in own if x not in common]
        changed = {number for side in self._sides for number, _ in side.changed}
        if not changed.isdisjoint(id(holder) for _, holder in chosen):
            raise TraceError(
                f"{name} is one list, dict or object or another one, as a traced value decides, and changes there; "
                "copy it, or assign to its elements",
                needs_values=True,
            )
        if trees[0] != trees[1]:
            raise UnsupportedError(
                f"{_describe_either_branch_value(name, a, b)}; give it the same structure on both sides",
                needs_values=True,
            )
        parts = [self._merge_branch_leaf(x, y, name, not returned) for x, y in zip(*leaves, strict=True)]
        if not chosen:
            return lambda: unflatten(trees[0], [part() for part in parts])

        def make_chosen_container() -> Any:
            made = unflatten(trees[0], [part() for part in parts])
            made_containers = containers_in_control_flow_value(made)
            self.trace.chosen.note([*chosen, *(made_containers[x] for x in made_containers if x not in common)])
            return made

        return make_chosen_container

    def _merge_half_bound_name(self, a: Any, b: Any, name: str) -> Later:
        """A name that is bound on one side only: what is returned is not read unless it was set there."""
        if not name.startswith(VALUE):
            return lambda: UNSET
        value, first = (a, True) if b is UNSET else (b, False)
        leaves: list[Any] = []
        tree = flatten(value, leaves, above=tuple(self._sides[not first].known))  # what was there stays itself
        parts = []
        for leaf in leaves:
            traced = isinstance(leaf, (Tracer, np.generic)) or type(leaf) is TracedNumber
            node = self._operand_at_branch_end(leaf, not first) if traced else None
            if not isinstance(node, Value):
                parts.append(_merged_constant(leaf))
                continue
            zeros = self.trace.builder.broadcast(self.trace.builder.const(0, node.dtype), node.shape)
            plain = Value(node.number, node.type)
            held = self.values(plain, zeros) if first else self.values(zeros, plain)
            parts.append(self._array_joined_from_branches(held, node, [leaf, leaf], False))
        return lambda: unflatten(tree, [part() for part in parts])

    def _merge_branch_leaf(self, a: Any, b: Any, name: str, shares: bool) -> Later:
        if a is b or (type(a) in PLAIN and type(a) is type(b) and exact_key_of_value(a) == exact_key_of_value(b)):
            return _merged_constant(a)
        if not (type(a) is type(b) is Tracer):
            return self._merge_numbers_or_arrays(a, b, name, shares)
        key = id(a), id(b)
        later = self._arrays.get(key)  # two names of one array have one afterwards
        if later is None:
            later = self._arrays[key] = cache(self._merge_numbers_or_arrays(a, b, name, shares))
        return later

    def _merge_numbers_or_arrays(self, a: Any, b: Any, name: str, shares: bool) -> Later:
        for value in (a, b):
            if not isinstance(value, (Tracer, np.ndarray, np.generic, TracedNumber)) and type(value) not in _NUMBERS:
                raise TraceError(
                    f"{_describe_either_branch_value(name, a, b)}; only arrays and numbers can depend on one",
                    needs_values=True,
                )
        nodes = [self._operand_at_branch_end(x, side) for side, x in enumerate((a, b))]
        joined = joined_number_kinds(nodes)
        if joined is None:
            raise UnsupportedError(
                f"{_describe_either_branch_value(name, a, b)}; convert one with x.astype(...)", needs_values=True
            )
        (dtype, weak), *_ = joined
        builder = self.trace.builder
        made = [builder.cast(builder.value(x, dtype), dtype) for x in nodes]
        if made[0].shape != made[1].shape:
            raise UnsupportedError(
                f"{name} has shape {made[0].shape} or {made[1].shape}, as a traced value decides; give it one shape",
                needs_values=True,
            )
        plain = [Value(x.number, x.type) for x in made]
        typed = with_other_number_kinds(Value(plain[0].number, plain[0].type, weak), joined)
        return self._array_joined_from_branches(self.values(*plain), typed, [a, b], shares)

    def _operand_at_branch_end(self, x: Any, side: int) -> Any:
        """The operand that stands for x at the end of a side."""
        written = self._sides[side].written.values()
        for root, _, after in written:
            root._held = after
        try:
            return to_graph_operand(x)
        finally:
            for root, before, _ in written:
                root._held = before

    def _array_joined_from_branches(self, held: Later, like: Value, sides: Sequence[Any], shares: bool) -> Later:
        """The array or scalar of a joined node. shares: it may be an array that was there before."""

        def make_joined_array() -> Any:
            value = held()
            scalar = like.shape == () and not any(isinstance(x, Tracer) and x._owner != SCALAR for x in sides)
            found = Tracer(
                self.trace, Value(value.number, value.type, like.weak, like.others), SCALAR if scalar else None
            )
            if not scalar:
                self._note_joined_aliases(found, sides, shares)
            return found

        return make_joined_array

    def _note_joined_aliases(self, joined: Tracer, sides: Sequence[Any], now: bool) -> None:
        """Notes which arrays a joined one may be. now: else once it is returned, before which nobody has it."""
        pairs = []
        for place, x in enumerate(sides):
            if not isinstance(x, Tracer) or x._owner == SCALAR:
                continue
            root = root_of_view(x)
            same = self._named.setdefault((place, id(root)), [])
            mine = id(root) in self._sides[place].made
            pairs += [
                (joined, other) for other in [*same, *(self.trace.possible_aliases(root, not now) if mine else [root])]
            ]
            same.append(joined)
        if now:
            self.trace.note_possible_aliases(pairs)
        else:
            self.trace.returned_later |= {(id(first), id(other)): (first, other) for first, other in pairs}


def _merged_constant(value: Any) -> Later:
    return lambda: value


def _describe_either_branch_value(name: str, a: Any, b: Any) -> str:
    return f"{name} is {_describe_branch_value(a)} or {_describe_branch_value(b)}, as a traced value decides"


def _describe_branch_value(value: Any) -> str:
    if isinstance(value, Tracer):
        return f"{value._value.type}"
    text = repr(value)
    return text if len(text) < 40 else with_article(type(value).__name__)
