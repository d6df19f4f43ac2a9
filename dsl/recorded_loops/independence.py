"""Whether the turns of a recorded loop may run at once: the memory that one touches and another one writes to."""

from __future__ import annotations

from collections.abc import Sequence

from .linear import LinearExpression, LoopIntegerAtom
from .values import LoopArraySection

Access = tuple[LoopArraySection, bool]  # and whether it is written


def recorded_iterations_are_independent(turn: LoopIntegerAtom, accesses: Sequence[Access]) -> bool:
    """Whether it is proved that no turn touches what another one writes. accesses: of the body."""
    each: dict[Access, None] = dict.fromkeys(accesses)
    written = {section.storage for section, writes in each if writes}
    mine = [access for access in each if access[0].storage in written]
    moved = {
        turn: LoopIntegerAtom(turn.value, (*turn.lows, LinearExpression(1, ((turn, 1),))), turn.highs)
    }  # a later turn
    later = [(_section_in_other_iteration(section, turn, moved), writes) for section, writes in mine]
    return all(
        a.storage is not b.storage or not (writes or wrote) or a.is_apart_from(b)
        for a, writes in mine
        for b, wrote in later
    )


def _section_in_other_iteration(
    section: LoopArraySection, turn: LoopIntegerAtom, moved: dict[LoopIntegerAtom, LoopIntegerAtom]
) -> LoopArraySection:
    """A section of one turn as that of another one. moved: what stands there for the values of the first."""
    subs = tuple(
        (_linear_expression_in_other_iteration(start, turn, moved), step, axis) for start, step, axis in section.subs
    )
    return LoopArraySection(
        section.storage, subs, tuple(_linear_expression_in_other_iteration(n, turn, moved) for n in section.shape)
    )


def _linear_expression_in_other_iteration(
    x: LinearExpression, turn: LoopIntegerAtom, moved: dict[LoopIntegerAtom, LoopIntegerAtom]
) -> LinearExpression:
    found = LinearExpression(x.constant)
    for atom, factor in x.terms:
        if atom.order > turn.order and atom not in moved:  # it is made anew in each turn
            bounds = (
                [_linear_expression_in_other_iteration(b, turn, moved) for b in ends]
                for ends in (atom.lows, atom.highs)
            )
            moved[atom] = LoopIntegerAtom(atom.value, *bounds)
        found = found + LinearExpression(0, ((moved.get(atom, atom), factor),))
    return found
