"""What a traced function gives and leaves behind, as data: which output, number, argument or object is where."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial, reduce
from itertools import combinations
from typing import Any

import numpy as np

from ...compiler.graph.graph import Value
from ..array.array import Array
from ..core.errors import ConversionError, TraceError
from ..core.pytree import LEAF, Tree, flatten, renamed_pytree
from ..environment.returned_objects import returned_key, returned_user_object
from ..trace.aliasing import (
    TracerChoice,
    arrays_chosen_among,
    root_of_view,
    settle_reshapes_of_tracers,
    shares_memory,
    unwrap_contiguous_view,
    whole_arrays_among_rows,
)
from ..trace.dispatch import SPECIAL
from ..trace.failures import fail_where, fail_where_number_differs
from ..trace.operands import to_traced_array
from ..trace.trace import Trace, TracedLoopSymbolBase
from ..trace.tracer import CAPTURED, SCALAR, TracedNumber, Tracer
from .changes import Alternatives, HolderChange, Place, StateChanges
from .opened_arguments import OpenedArguments


def _exclude_each_other(trace: Trace, a: Sequence[Value], b: Sequence[Value]) -> bool:
    """Whether a flag of one and a flag of the other are opposites."""
    flags = {flag.number for flag in (*a, *b)}
    nodes = [trace.builder.nodes[number] for number in flags]
    return any(node.op == "logical_not" and node.args[0] in flags for node in nodes)


class ResultAndStateLocations:
    """outputs: the values that the graph gives; numbers: the host's names of those that it gives."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.outputs: list[Value] = []
        self.numbers: list[str] = []
        self.scalars: set[int] = set()  # the outputs that are NumPy's scalars
        self._arrays: dict[int, tuple[Tracer, Place]] = {}  # those that are stored, by identity
        self._flags: dict[int, int] = {}  # nodes -> outputs
        self._returned: dict[int, tuple[Tracer, Place]] = {}  # those that the function makes and returns
        self._made: dict[int, tuple[Any, int]] = {}  # the containers that are stored: which of `made`
        self._making: set[int] = set()
        self._linked: list[tuple[Tracer, str, str | None]] = []  # what is stored and may be another array; where; line
        self._name = ""  # of what is being stored
        self.made: list[tuple[Tree, tuple[Place, ...]]] = []
        self.chosen: list[Alternatives] = []

    # results

    def place(self, leaf: Any) -> Place:
        """Where a call finds a leaf of what the function returns."""
        trace = self._trace
        if (place := self._location_of_number_or_argument(leaf)) is not None:
            return place
        if id(leaf) in self._arrays:
            return self._arrays[id(leaf)][1]
        if (
            isinstance(leaf, Tracer)
            and leaf._owner in trace.assigned
            and _is_assigned_argument_itself(own := unwrap_contiguous_view(leaf), trace)
        ):
            return "argument", own._owner
        if isinstance(leaf, (Tracer, np.ndarray, np.generic, Array)) and not isinstance(leaf, (str, bytes)):
            if isinstance(leaf, Tracer):
                fail_where_number_differs(trace, leaf._held)
            if id(leaf) in self._returned:
                return self._returned[id(leaf)][1]
            place = "array", self.output_of(leaf)
            if isinstance(leaf, Tracer) and leaf._owner is None:
                self._returned[id(leaf)] = leaf, place
            return place
        return returned_user_object(trace, leaf)

    def _location_of_number_or_argument(self, leaf: Any) -> Place | None:
        """Where Python's own number is found, or an argument that is known by its contents; None of anything else."""
        if isinstance(leaf, TracedLoopSymbolBase):
            leaf.refuse()
        if (number := self._leaf_with_contents_of(leaf)) is not None:
            return "argument", number
        if type(leaf) is not TracedNumber:
            return None
        self.numbers.append(leaf._name)
        return "number", len(self.numbers) - 1

    def output_of(self, array: Any) -> int:
        """The number of a new output of the graph."""
        self.outputs.append(to_traced_array(array)._value)
        return len(self.outputs) - 1

    def output_of_elements(self, elements: Sequence[Any]) -> int:
        """The number of a new output that has these scalars, in order."""
        for x in elements:
            if isinstance(x, Tracer):
                fail_where_number_differs(self._trace, x._held)
        rows = elements
        while len(whole := [x for x, _ in whole_arrays_among_rows(rows)]) < len(rows):
            rows = whole
        return self.output_of(rows[0] if len(rows) == 1 else [*elements])

    def fail_where_results_are_one(self) -> None:
        """Notes a failure where values decide that two results are one array, which compiled code gives as two."""
        trace = self._trace
        alternatives: dict[int, list[list[Value]]] = {}
        for leaf, _ in self._returned.values():
            for array, flags in arrays_chosen_among(leaf):
                alternatives.setdefault(id(array), []).append(flags)
        if not trace.reruns or trace.depth:
            return
        for a, b in (pair for found in alternatives.values() for pair in combinations(found, 2)):
            if _exclude_each_other(trace, a, b):
                continue
            one = reduce(partial(trace.builder.map, "logical_and"), [*a, *b])
            fail_where(trace, one, ConversionError("two arrays of a result are one or two, as values decide"))

    # what is stored

    def state(self, opened: OpenedArguments) -> StateChanges:
        """What the function has changed in its arguments. Raises TraceError for what cannot be kept there."""
        found = []
        for difference in opened.differences():
            kind = opened.kinds[difference.holder]
            before = opened.before(difference.holder)
            put: list[tuple[Hashable, Place]] = []
            for name, value in difference.put:
                self._name = str(name)
                label = (
                    f"{kind.__name__}.{name}" if kind not in (list, dict) else f"the {kind.__name__}'s item {name!r}"
                )
                if difference.whole and id(value) in before:
                    put.append((name, ("old", before[id(value)])))
                else:
                    put.append((name, self._location_of_value_in_state(value, opened, label)))
            found.append(HolderChange(difference.holder, difference.whole, difference.removed, tuple(put)))
        self._check_state_arrays_not_aliased()
        return StateChanges(
            self._trace.leaves - len(opened.kinds) - 1,
            opened.kinds,
            tuple(self.made),
            tuple(found),
            tuple(self.chosen),
            frozenset(self.scalars),
        )

    def stops(self, opened: OpenedArguments) -> dict[int, Place]:
        """For the identity of what the call's result holds as it is: the holders, and what it has put there."""
        found: dict[int, Place] = {id(x): ("holder", i) for i, x in enumerate(opened.holders)}
        return found | {number: ("made", place) for number, (_, place) in self._made.items()}

    def _location_of_value_in_state(self, value: Any, opened: OpenedArguments, label: str) -> Place:
        """A value that is put into a holder."""
        world = self._trace.world
        self._trace.chosen.check_kept(value, world)
        if id(value) in opened.numbers:
            return "holder", opened.numbers[id(value)]
        if id(value) in self._made:
            return "made", self._made[id(value)][1]
        told = not isinstance(value, Tracer) and self._leaf_with_contents_of(value) is None
        if told and (own := world.users_object_told_apart(value)) is not None:
            return "static", own
        parts: list[Any] = []
        tree = flatten(value, parts, results=True, stop=_is_container_with_identity)
        tree = renamed_pytree(tree, partial(returned_key, self._trace))
        if tree == LEAF:
            place = self._location_of_leaf_in_state(value, label)
            if place[0] != "fresh":
                return place
            places = [place]
        else:
            if id(value) in self._making:
                raise TraceError(
                    f"what is assigned to {label} holds itself; return it instead", self._user_line_that_stores_array()
                )
            self._making.add(id(value))
            places = [self._location_of_value_in_state(part, opened, label) for part in parts]
        self.made.append((tree, tuple(places)))
        self._made[id(value)] = (value, len(self.made) - 1)
        return "made", len(self.made) - 1

    def _leaf_with_contents_of(self, value: Any) -> int | None:
        """The argument that a value stands for, where each call has another one with the same contents."""
        world = self._trace.world
        return world.leaves_by_contents.get(id(world.original_value(value)))

    def _location_of_leaf_in_state(self, leaf: Any, label: str) -> Place:
        if (place := self._location_of_number_or_argument(leaf)) is not None:
            return place
        leaf = to_traced_array(leaf) if type(leaf) in SPECIAL else leaf
        if isinstance(leaf, Tracer):
            fail_where_number_differs(self._trace, leaf._held)
            return self._location_of_array_in_state(leaf, label)
        if isinstance(leaf, (np.ndarray, np.generic, Array)):
            real = self._trace.world.original_value(leaf)
            return ("fresh" if real is leaf and type(leaf) is np.ndarray else "static"), real
        return returned_user_object(self._trace, leaf, f"{label} becomes", self._user_line_that_stores_array())

    def _location_of_array_in_state(self, array: Tracer, label: str) -> Place:
        """Where an array that is stored is found: an argument itself, or an output that nobody else has."""
        trace = self._trace
        known = self._arrays.get(id(array))
        if known is not None:
            return known[1]
        if array._owner != SCALAR and array._parent is not None:
            settle_reshapes_of_tracers(array)
            array = unwrap_contiguous_view(array)
            if id(array) in self._arrays:
                return self._arrays[id(array)][1]
        root = root_of_view(array)
        if array._owner != SCALAR and root is array:
            if isinstance(root._step, TracerChoice):
                return self._location_of_chosen_array(array, label)
            if (place := self._location_of_earlier_array(array)) is not None:
                return place
        if array._owner != SCALAR:
            others = [x for x, _ in self._arrays.values() if root_of_view(x) is root]
            foreign = root is not array and (root._owner is not None or root._step is not None)
            if foreign or any(shares_memory(array, x) for x in others):
                what = "an argument" if type(root._owner) is int else "another array"
                raise TraceError(
                    f"{label} becomes a view of {what}, which NumPy would let share its memory with that in later "
                    "calls; write .copy() behind what is assigned",
                    self._user_line_that_stores_array(array),
                )
        place = "array", self.output_of(array)
        self._arrays[id(array)] = array, place
        if array._owner == SCALAR:
            self.scalars.add(place[1])
        elif trace.noted_aliases(root):
            self._linked.append((root, label, self._user_line_that_stores_array(array)))
        return place

    def _location_of_earlier_array(self, array: Tracer) -> Place | None:
        """Where an array is found that is no view, and was there before the call; None for others."""
        trace = self._trace
        if type(array._owner) is int:
            return "argument", array._owner
        number = trace.captured_at[array._held.number] if array._owner == CAPTURED else None
        return None if number is None or number in trace.constants else ("static", trace.captured[number])

    def _location_of_chosen_array(self, array: Tracer, label: str) -> Place:
        """Where one of several arrays is found, which flags say that the call reads: it stays itself."""
        found = []
        for part, flags in arrays_chosen_among(array):
            flag = reduce(partial(self._trace.builder.map, "logical_and"), flags)
            if flag.number not in self._flags:
                self._flags[flag.number] = len(self.outputs)
                self.outputs.append(flag)
            found.append((self._flags[flag.number], self._location_of_array_in_state(part, label)))
        self.chosen.append(tuple(found))
        self._arrays[id(array)] = array, ("chosen", len(self.chosen) - 1)
        return self._arrays[id(array)][1]

    def _user_line_that_stores_array(self, array: Tracer | None = None) -> str | None:
        """The user's line that assigns what is stored, or that has made an array."""
        world = self._trace.world
        found = world.line_of_assignment(self._name)
        return found or (None if array is None else self._trace.builder.lines[array._held.number]) or None

    def _check_state_arrays_not_aliased(self) -> None:
        """Raises TraceError where what is stored may be another array of the arguments. A value decides that."""
        stored = {id(root_of_view(x)) for x, _ in self._arrays.values()}
        for root, label, line in self._linked:  # another place may hold what was there before
            if any(other._owner is not None or id(other) in stored for other in self._trace.noted_aliases(root)):
                raise TraceError(
                    f"{label} becomes one array or another, as a traced value decides, which the arguments hold at "
                    "another place too; write .copy() behind what is assigned",
                    line,
                )


def _is_container_with_identity(value: Any) -> bool:
    return not isinstance(value, tuple)


def _is_assigned_argument_itself(x: Tracer, trace: Trace) -> bool:
    """Whether it is an argument that was assigned to, and no view of one."""
    return x._parent is None and x._owner in trace.assigned
