"""Views as sections of the memory that they look at; sections of one turn that another one touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..trace.aliasing import TracerPermuteView, TracerReshapeView, TracerRowView, TracerSliceView
from ..trace.tracer import Tracer
from .linear import LinearExpression, LoopIntegerAtom, product_of_integers
from .values import LoopArraySection, Sub

Lengths = tuple[LinearExpression, ...]
MovedSub = Callable[[LinearExpression, Any, int], Sub]  # where an axis starts, steps and goes, behind one more view


def loop_view_steps_of_tracer(x: Tracer) -> tuple[Tracer, tuple[Sub, ...], Lengths] | None:
    """The array of the trace that owns the memory of `x`, and how its axes map to it. For each axis: where it starts,
    steps and goes in `x`; and the shape of `x`.

    None for views that are more than slices and permutations, and for what a value has chosen."""
    chain = []
    root = x
    while root._parent is not None:
        chain.append(root._step)
        root = root._parent
    if root._step is not None:
        return None
    shape: Lengths = tuple(map(LinearExpression, root.shape))
    found = subs_behind_view_steps(
        [(LinearExpression(0), 1, axis) for axis in range(len(shape))], shape, reversed(chain)
    )
    return None if found is None else (root, *found)


def subs_behind_view_steps(
    subs: Sequence[Sub], shape: Lengths, steps: Iterable[Any]
) -> tuple[tuple[Sub, ...], Lengths] | None:
    """How memory is looked at behind more views, and their shape. None for views that are not followed."""
    for step in steps:
        found = _VIEW_STEPS[type(step)](step, shape) if type(step) in _VIEW_STEPS else None
        if found is None:
            return None
        moved, shape = found
        subs = [sub if sub[2] < 0 else moved(*sub) for sub in subs]
    return tuple(subs), shape


def _lengths(shape: Iterable[Any]) -> Lengths:
    return tuple(n if isinstance(n, LinearExpression) else LinearExpression(n) for n in shape)


def _moved_by_slice(step: TracerSliceView, shape: Lengths) -> tuple[MovedSub, Lengths]:
    def moved(start: LinearExpression, by: Any, axis: int) -> Sub:
        return start + product_of_integers(step.starts[axis], by), product_of_integers(by, step.steps[axis]), axis

    return moved, _lengths(step.shape)


def _moved_by_row(step: TracerRowView, shape: Lengths) -> tuple[MovedSub, Lengths]:
    return lambda start, by, axis: (start, by, axis - 1) if axis else (start + by * step.index, 0, -1), shape[1:]


def _moved_by_permutation(step: TracerPermuteView, shape: Lengths) -> tuple[MovedSub, Lengths]:
    return lambda start, by, axis: (start, by, step.axes.index(axis)), tuple(shape[axis] for axis in step.axes)


def _moved_by_reshape(step: TracerReshapeView, shape: Lengths) -> tuple[MovedSub, Lengths] | None:
    """That of a view that only adds or drops axes of length 1."""
    wanted = _lengths(step.shape)
    long, others = ([axis for axis, n in enumerate(of) if n.known != 1] for of in (wanted, shape))
    if [wanted[axis] for axis in long] != [shape[axis] for axis in others]:
        return None
    places = dict(zip(others, long, strict=True))
    return lambda start, by, axis: (start, by, places.get(axis, -1)), wanted


_VIEW_STEPS: dict[type, Callable[[Any, Lengths], tuple[MovedSub, Lengths] | None]] = {
    TracerSliceView: _moved_by_slice,
    TracerRowView: _moved_by_row,
    TracerPermuteView: _moved_by_permutation,
    TracerReshapeView: _moved_by_reshape,
}


# which memory a turn touches that another one writes to

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
        (
            _linear_expression_in_other_iteration(start, turn, moved),
            step if isinstance(step, int) else _linear_expression_in_other_iteration(step, turn, moved),
            axis,
        )
        for start, step, axis in section.subs
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
