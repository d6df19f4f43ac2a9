"""Finds what a repeated region carries between iterations, and what is used after it.

An iteration's argument is one of these: made in the same iteration; made `d` iterations before (then it is carried,
through `d` values that follow each other); made before the loop, and the same in every iteration; a constant, the same
or another in every iteration (then a window slides over an array of them); a slice of an array from before the loop
that moves on evenly (a window). An update that moves on evenly is a stacked result, written after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.core.frozen import dataclass, field
from ..core.types import ArrayType
from ..graph.control_flow import Window
from ..graph.graph import Graph
from ..ops.table import OPS
from .periods import TokenSequence

Array = np.ndarray[Any, Any]
LATEST = 2  # so many of the last iterations' values are carried for what comes after; more are stacked


class NotALoop(Exception):
    """The stretch does not repeat in the way that a loop does."""


class NumbersDiffer(NotALoop):
    """It would, if these numbers of the call were known: they are others in each iteration."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(numbers)
        self.numbers = frozenset(numbers)


@dataclass(frozen=True, slots=True)
class Carried:
    """A value made by place `slot` of the body, `depth` iterations late. initial: the nodes that stand for it in the
    iterations before the first, the oldest first (-1: nobody reads it)."""

    slot: int
    initial: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.initial)


def _depth_of_carried_value(value: Carried) -> int:
    return value.depth


@dataclass(slots=True)
class RepeatedRegion:
    """Places [start, start + period * iterations) of a row, read as a loop. Its methods raise NotALoop."""

    graph: Graph
    row: TokenSequence
    start: int
    period: int
    iterations: int
    carried: dict[Carried, int] = field(default_factory=dict)  # to its number
    windows: dict[tuple[Any, ...], tuple[ArrayType, Window]] = field(default_factory=dict)  # (key, array) -> its row
    constants: dict[tuple[int, ...], Array] = field(default_factory=dict)
    stacked: dict[int, int] = field(default_factory=dict)  # slot -> number among the stacked results
    moving: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)  # slot -> starts, moves
    _looked_through: set[int] = field(default_factory=set)  # slots of views whose base is being found

    # what each argument is

    def node(self, iteration: int, slot: int) -> int:
        return int(self.row.order[self.start + iteration * self.period + slot])

    def _position_in_region(self, number: int) -> tuple[int, int] | None:
        """(iteration, slot) of a node of the loop."""
        x = int(self.row.place[number]) - self.start
        return divmod(x, self.period) if 0 <= x < self.iterations * self.period else None

    def _classified_args_of_slot(self, slot: int) -> list[Any]:
        """For each argument: an int (slot of the same iteration), a Carried, ("outer", node) or ("const", nodes)."""
        places = self.start + slot + self.period * np.arange(self.iterations)
        count = len(self.graph.nodes[self.node(0, slot)].args)
        return [self._classify_argument(slot, self.row.args[places, a]) for a in range(count)]

    def _classify_argument(self, slot: int, numbers: Array) -> Any:
        places = self.row.place[numbers]
        if all(self.graph.nodes[n].op == "const" for n in {int(numbers[0]), int(numbers[-1])}):
            ops = {self.graph.nodes[n].op for n in set(numbers.tolist())}
            types = {self.graph.nodes[n].type for n in set(numbers.tolist())}
            if ops != {"const"} or len(types) != 1:
                raise NotALoop
            return ("const", tuple(numbers.tolist()))
        if not (numbers == numbers[0]).all() and all(self.graph.nodes[n].op == "number" for n in numbers.tolist()):
            raise NumbersDiffer([self.graph.nodes[n].attr("index") for n in numbers.tolist()])
        first = self.start + slot + self.period * np.arange(self.iterations)
        offset = int(first[-1] - places[-1])
        back = slot - offset
        late, source = -(back // self.period), back % self.period
        if places[-1] >= self.start and 0 <= late < self.iterations:
            if not np.array_equal(places[late:], first[late:] - offset):
                raise NotALoop
            return self._value_of_earlier_iteration(source, tuple(numbers[:late].tolist())) if late else source
        if not (numbers == numbers[0]).all() or places[0] >= self.start:
            raise NotALoop
        return ("outer", int(numbers[0]))

    def _value_of_earlier_iteration(self, slot: int, initial: tuple[int, ...]) -> Any:
        """What a slot's value of an earlier iteration is: a Carried, or ("view", (slot, Carried))."""
        seen = self._view_of_carried_value(slot, initial)
        if seen is not None:
            return ("view", (slot, seen))
        type = self.graph.nodes[self.node(0, slot)].type
        if any(self.row.place[n] >= self.start or self.graph.nodes[n].type != type for n in initial):
            raise NotALoop
        return self._number_carried_value(Carried(slot, initial))

    def _view_of_carried_value(self, slot: int, initial: tuple[int, ...]) -> Carried | None:
        """The view that a slot of an earlier iteration is, as a view of a carried value: a view is not carried
        itself."""
        node = self.graph.nodes[self.node(0, slot)]
        if OPS[node.op].kind != "view" or slot in self._looked_through:
            return None  # or a view of itself, iterations ago
        for n in initial:
            other = self.graph.nodes[n]
            if (other.op, other.type, other.attrs) != (node.op, node.type, node.attrs) or self.row.place[
                n
            ] >= self.start:
                return None
        self._looked_through.add(slot)
        try:
            (base,) = self._classified_args_of_slot(slot)
        finally:
            self._looked_through.remove(slot)
        older = tuple(self.graph.nodes[n].args[0] for n in initial)
        value = None
        if isinstance(base, int):
            value = Carried(base, older)
        elif isinstance(base, Carried):
            value = Carried(base.slot, older + base.initial)
        if value is None:
            return None
        type = self.graph.nodes[self.node(0, value.slot)].type
        if any(self.graph.nodes[n].type != type for n in value.initial):
            return None
        return self._number_carried_value(value)

    def _number_carried_value(self, value: Carried) -> Carried:
        """Number it, and those that it follows."""
        for depth in range(1, value.depth + 1):
            self.carried.setdefault(Carried(value.slot, value.initial[value.depth - depth :]), len(self.carried))
        return value

    def _check_slice_starts_move(self, slot: int, args: list[Any]) -> None:
        """Slices and updates that do not start at the same place in each iteration."""
        node = self.graph.nodes[self.node(0, slot)]
        if node.op not in ("slice", "update"):
            return
        every = np.array(
            [self.graph.nodes[self.node(t, slot)].attr("starts") for t in range(self.iterations)], np.int64
        )
        moves = every[1] - every[0]
        if not moves.any() and (every == every[0]).all():
            return
        if every.ndim != 2 or not (np.diff(every, axis=0) == moves).all():
            raise NotALoop
        starts, each = tuple(map(int, every[0])), tuple(map(int, moves))
        if node.op == "update":
            self.moving[slot] = starts, each
            return
        if not (isinstance(args[0], tuple) and args[0][0] == "outer"):
            raise NotALoop
        self.windows["slice", slot, args[0][1]] = node.type, Window(starts, node.attr("steps"), each)
        args[:] = [("window", ("slice", slot, args[0][1]))]

    # what comes after the loop

    def _used_outside(self) -> dict[int, dict[int, None]]:
        """For each slot the iterations whose values are used after the loop."""
        found: dict[int, dict[int, None]] = {}
        after = self.row.order[self.start + self.iterations * self.period :].tolist()
        wanted = [a for n in after for a in self.graph.nodes[n].args] + list(self.graph.outputs)
        for number in wanted:
            at = self._position_in_region(number)
            if at is not None:
                found.setdefault(at[1], {}).setdefault(at[0])
        return found

    def _deliver_used_outside(self, slot: int, iterations: dict[int, None], args: list[list[Any]]) -> None:
        """Values that are used after the loop are carried to its end, or stacked."""
        if slot in self.moving:
            if set(iterations) != {self.iterations - 1} or not self._is_update_of_own_version(slot, args):
                raise NotALoop
            self.stacked.setdefault(args[slot][1], len(self.stacked))
            return
        late = [self.iterations - t for t in iterations]
        if max(late) > LATEST:
            self.stacked.setdefault(slot, len(self.stacked))
            return
        for depth in late:
            known = max(
                (c for c in self.carried if c.slot == slot and c.depth <= depth),
                key=_depth_of_carried_value,
                default=None,
            )
            initial = known.initial if known else ()
            self._number_carried_value(Carried(slot, (-1,) * (depth - len(initial)) + initial))

    def _is_update_of_own_version(self, slot: int, args: list[list[Any]]) -> bool:
        """Whether a moving update only goes on with its own last version, and is read by nothing else in the loop."""
        own, value = args[slot]
        if not (isinstance(own, Carried) and own.slot == slot and own.depth == 1 and isinstance(value, int)):
            return False
        axes = [a for a, m in enumerate(self.moving[slot][1]) if m]
        shape = self.graph.nodes[self.node(0, value)].type.shape
        readers = [j for j, row in enumerate(args) for a in row if _slot_of_argument(a) == slot]
        return readers == [slot] and len(axes) == 1 and shape[axes[0]] == 1


def _slot_of_argument(arg: Any) -> int | None:
    """The slot that a classified argument comes from, of whichever iteration; None of what is outside of the loop."""
    if isinstance(arg, int):
        return arg
    if isinstance(arg, Carried):
        return arg.slot
    return _slot_of_argument(arg[1][1]) if arg[0] == "view" else None
