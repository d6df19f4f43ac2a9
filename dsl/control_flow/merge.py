"""Two values, of which a traced decision takes one, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...compiler.graph.graph import Value
from ...runtime.core.frozen import frozen
from ...runtime.core.readable_text import with_article
from ..core.errors import TraceError, UnsupportedError
from ..core.exact import exact_key_of_value
from ..core.object_journal import Slot
from ..core.object_model import (
    ORIGINAL,
    PLAIN,
    UNSET,
    VARS,
    attributes_of_object,
    dict_of_object,
    is_object_of_attributes,
    is_user_class,
)
from ..core.pytree import LEAF, Tree, flatten, unflatten
from ..trace.aliasing import TracerChoice, chosen_array, view_of_tracer
from ..trace.number_kinds import joined_number_kinds, note_joined_number, with_other_number_kinds
from ..trace.operands import to_graph_operand
from ..trace.trace import Trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .rewrite import VALUE

_NUMBERS = (bool, int, float, complex)  # and no class of the user's that extends one
Later = Callable[[], Any]  # what gives the joined value, once there are nodes for it
Flag = Value | bool


@frozen
class BranchSide:
    """What a side gave, changed and wrote to; what it raised."""

    given: Any
    changed: dict[tuple[int, Any], tuple[Slot, Any, Any]]
    written: dict[int, tuple[Tracer, Value, Value]]
    made: dict[int, Tracer]
    known: set[int]  # the objects that names and containers had before
    error: Exception | None
    failed: Value  # which error it has met first


class BranchMerge:
    """Collects pairs of values of one type in `both`; `finish` gives their nodes, and then all that was asked for."""

    def __init__(self, trace: Trace, flag: Value, sides: Sequence[BranchSide], first: int) -> None:
        """flag: whether the first side is taken. first: the first node of the sides."""
        self.trace, self.flag = trace, flag
        self.both: list[tuple[Value, Value]] = []
        self._sides, self._first = sides, first
        self._changed = {number for side in sides for number, _ in side.changed}
        self._pairs: dict[tuple[int, int], Later] = {}  # for each pair of values
        self._alive: list[Any] = []  # whose identities are known
        self._beside: dict[tuple[int, int], set[tuple[int, int]]] = {}  # the pairs that a side's container is in
        self._owned: dict[tuple[int, int], Later] = {}  # for each side and array that it made what that is afterwards
        self._begun: list[tuple[Tracer, Value]] = []  # chosen arrays, and what they are when the branch ends
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
            return _merged_constant(a)
        if a is UNSET or b is UNSET:
            return self._merge_half_bound_name(a, b, name)
        key = id(a), id(b)
        if key not in self._pairs:  # two names of one array, list or object have one afterwards
            self._alive.append((a, b))
            self._pairs[key] = _refuse_cycle_of_containers
            name = "what the function returns" if name.startswith(VALUE) else name
            self._pairs[key] = cache(self._merge_containers(a, b, name) or self._merge_numbers_or_arrays(a, b, name))
        return self._pairs[key]

    def _merge_containers(self, a: Any, b: Any, name: str) -> Later | None:
        """Two tuples, lists, dicts or objects as one; None of what is none.

        Those that the sides have made, each beside one other, are that one from now on. Else it is a copy to read."""
        for x in (a, b):
            self.trace.world.require_opened(x, "__dict__")  # a copy has all that it may be asked for
        parts: tuple[list[Any], list[Any]] = [], []
        trees = [self._structure_of_container(x, into) for x, into in zip((a, b), parts, strict=True)]
        if LEAF in trees and trees[0] == trees[1]:
            return None
        if trees[0] != trees[1]:
            raise UnsupportedError(
                f"{_describe_either_branch_value(name, a, b)}; give it the same structure on both sides"
            )
        places = [(side, id(x)) for side, x in enumerate((a, b))]
        known = [x for x, (side, number) in zip((a, b), places, strict=True) if number in self._sides[side].known]
        if any(not self._changed.isdisjoint((id(x), id(dict_of_object(x)))) for x in known):
            raise TraceError(
                f"{name} is one list, dict or object or another one, as a traced value decides, and changes there; "
                "copy it, or assign to its elements"
            )
        for place in places:
            self._beside.setdefault(place, set()).add((id(a), id(b)))
        laters = [self.pair(x, y, name) for x, y in zip(*parts, strict=True)]

        def make_merged_container() -> Any:
            made = unflatten(trees[0], [later() for later in laters])
            if known or any(len(self._beside[place]) > 1 for place in places):
                self.trace.chosen.note_copy(made, a, b)
            return made

        return make_merged_container

    def _structure_of_container(self, x: Any, parts: list[Any]) -> Tree:
        """The structure of a tuple, list, dict or object, whose parts are appended; a leaf of anything else."""
        tree, kind, world = flatten(x, parts, stop=lambda part: True), type(x), self.trace.world
        if tree != LEAF or not is_user_class(kind) or not is_object_of_attributes(VARS(kind).get(ORIGINAL, kind)):
            return tree
        if world.original_value(x) is not x:  # the user's, which may be seen by other names
            if world.may_open:
                raise world.open_arguments()
            return tree
        held = attributes_of_object(x)
        parts[:] = held.values()
        return Tree(kind, tuple(held), (LEAF,) * len(held))

    def _merge_half_bound_name(self, a: Any, b: Any, name: str) -> Later:
        """A name that is bound on one side only: what is returned is not read unless it was set there."""
        if not name.startswith(VALUE):
            return lambda: UNSET
        value, side = (a, 0) if b is UNSET else (b, 1)
        leaves: list[Any] = []
        tree = flatten(value, leaves, above=tuple(self._sides[1 - side].known))  # what was there stays itself
        parts = []
        for leaf in leaves:
            traced = isinstance(leaf, (Tracer, np.generic)) or type(leaf) is TracedNumber
            node = self._operand_at_branch_end(leaf, side) if traced else None
            if isinstance(node, Value):
                alone = (leaf, UNSET) if side == 0 else (UNSET, leaf)
                parts.append(self._join_arrays(alone, self._beside_zeros(node, side), node))
            else:
                parts.append(_merged_constant(leaf))
        return lambda: unflatten(tree, [part() for part in parts])

    def _beside_zeros(self, node: Value, side: int) -> tuple[Value, Value]:
        """A node of one side, with zeros for the other one."""
        builder, plain = self.trace.builder, Value(node.number, node.type)
        zeros = builder.broadcast(builder.const(0, node.dtype), node.shape)
        return (plain, zeros) if side == 0 else (zeros, plain)

    def _merge_numbers_or_arrays(self, a: Any, b: Any, name: str) -> Later:
        for value in (a, b):
            if not isinstance(value, (Tracer, np.ndarray, np.generic, TracedNumber)) and type(value) not in _NUMBERS:
                raise TraceError(
                    f"{_describe_either_branch_value(name, a, b)}; only arrays and numbers can depend on one"
                )
        nodes = [self._operand_at_branch_end(x, side) for side, x in enumerate((a, b))]
        joined = joined_number_kinds(nodes)
        if joined is None:
            raise UnsupportedError(f"{_describe_either_branch_value(name, a, b)}; convert one with x.astype(...)")
        (dtype, weak), *_ = joined
        builder = self.trace.builder
        first, second = (builder.cast(builder.value(x, dtype), dtype) for x in nodes)
        if first.shape != second.shape:
            raise UnsupportedError(
                f"{name} has shape {first.shape} or {second.shape}, as a traced value decides; give it one shape"
            )
        plain = Value(first.number, first.type), Value(second.number, second.type)
        like = with_other_number_kinds(Value(first.number, first.type, weak), joined)
        note = note_joined_number(self.trace, nodes[0], nodes[1], like, self.values)
        return self._join_arrays((a, b), plain, like, note)

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

    # arrays

    def _join_arrays(
        self,
        sides: tuple[Any, Any],
        nodes: tuple[Value, Value],
        like: Value,
        note: Callable[[Value], None] = lambda value: None,
    ) -> Later:
        """The array or scalar that is one thing or another, or nothing on one side. nodes: what these stand for. note:
        to be called with the node of a scalar."""
        if not any(isinstance(x, Tracer) and x._owner != SCALAR for x in sides):
            held, scalar = self.values(*nodes), SCALAR if like.shape == () else None

            def make_joined_scalar() -> Tracer:
                note(held())
                return Tracer(self.trace, Value(held().number, like.type, like.weak, like.others), scalar)

            return make_joined_scalar
        new: Later | None = None
        choice: dict[Any, tuple[Later, list[Flag]]] = {}  # what it may be, and when it is that
        for side, x in enumerate(sides):
            for array, flag in [] if x is UNSET else [*self._arrays_on_side(x, side)]:
                place = self._array_after(array, side, like, array is x)
                if place is None:
                    new = new or self._new_array(nodes, sides)
                    place = "new", self._owned.setdefault((side, id(x)), new)
                choice.setdefault(place[0], (place[1], [False, False]))[1][side] = flag
        flags = [self._flag_after(*flags) for _, flags in choice.values()]

        def make_joined_array() -> Tracer:
            arrays = [later() for later, _ in choice.values()]
            if len(arrays) == 1:
                return arrays[0]  # type: ignore[no-any-return]
            made = chosen_array(self.trace, arrays, [flag() for flag in flags])
            if new is not None:
                self._begun.append((made, new()._held))
            return made

        return make_joined_array

    def _new_array(self, nodes: tuple[Value, Value], sides: Sequence[Any]) -> Later:
        """An array of its own that is one node or the other; it may be what those of the sides may be."""
        held, trace = self.values(*nodes), self.trace
        others = [other for x in sides if isinstance(x, Tracer) for other in trace.noted_aliases(x)]

        def make_array() -> Tracer:
            made = Tracer(trace, held())
            trace.note_possible_aliases([(made, other) for other in others])
            return made

        return cache(make_array)

    def _arrays_on_side(self, x: Any, side: int) -> Iterator[tuple[Any, Flag]]:
        """All that it may be where the side ends, and when: through what the side, or `x` itself, has chosen."""
        root, steps = _root_and_steps(x) if isinstance(x, Tracer) else (x, [])
        choice = getattr(root, "_step", None)
        if isinstance(choice, TracerChoice) and (root is x or id(root) in self._sides[side].made):
            for array, flag in zip(choice.arrays, choice.flags, strict=True):
                for part, other in self._arrays_on_side(view_of_tracer(array, *steps), side):
                    yield part, flag if other is True else self.trace.builder.map("logical_and", flag, other)
        else:
            yield x, True

    def _array_after(self, x: Any, side: int, like: Value, alone: bool) -> tuple[Any, Later] | None:
        """What an array of a side is afterwards, by what tells it apart; None where that has yet to be made.

        Raises UnsupportedError where that cannot be told."""
        if not isinstance(x, Tracer) or x._owner == SCALAR:
            return None
        root, steps = _root_and_steps(x)
        late = any(index.number >= self._first for step in steps for index in getattr(step, "indices", ()))
        if x._held.type != like.type or (late and self.trace.may_raise):
            raise UnsupportedError(
                "a traced value decides which array this is, or which part of one; write .copy() behind it"
            )
        if id(root) not in self._sides[side].made:
            return id(x), _merged_constant(x)
        if not steps and alone and (side, id(root)) not in self._owned:
            return None
        own = self._own_array(root, side)
        return (side, id(x)), cache(lambda: view_of_tracer(own(), *steps)) if steps else own

    def _own_array(self, root: Tracer, side: int) -> Later:
        """What an array that a side has made is afterwards."""
        if (side, id(root)) not in self._owned:
            node = self._operand_at_branch_end(root, side)
            self._owned[side, id(root)] = self._new_array(self._beside_zeros(node, side), [root])
        return self._owned[side, id(root)]

    def _flag_after(self, a: Flag, b: Flag) -> Later:
        """Whether something is the case, of which each side knows whether it is."""
        builder = self.trace.builder
        if (a is True and b is False) or (a is False and b is True):
            return lambda: self.flag if a is True else builder.map("logical_not", self.flag)
        return self.values(*(x if isinstance(x, Value) else builder.const(np.bool_(x)) for x in (a, b)))

    def begin(self) -> None:
        """To be called once all effects are joined: what is known of chosen arrays need not be computed again."""
        for array, held in self._begun:
            array._held, array._base = held, array._step.versions()


def _root_and_steps(x: Tracer) -> tuple[Tracer, list[Any]]:
    """The array whose memory x looks at, and how."""
    steps: list[Any] = []
    while x._parent is not None:
        steps.insert(0, x._step)
        x = x._parent
    return x, steps


def _merged_constant(value: Any) -> Later:
    return lambda: value


def _refuse_cycle_of_containers() -> Any:
    raise UnsupportedError("what holds itself is one thing or another, as a traced value decides")


def _describe_either_branch_value(name: str, a: Any, b: Any) -> str:
    return f"{name} is {_describe_branch_value(a)} or {_describe_branch_value(b)}, as a traced value decides"


def _describe_branch_value(value: Any) -> str:
    if isinstance(value, Tracer):
        return f"{value._value.type}"
    text = repr(value)
    return text if len(text) < 40 else with_article(type(value).__name__)
