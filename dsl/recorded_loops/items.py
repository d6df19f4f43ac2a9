"""Basic indexing with indices that differ from turn to turn: a section and a key in, a section of it out. And views of
the trace as sections of the memory that they look at; sections of one turn that another one touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...compiler.core.types import INT64
from ..trace.aliasing import TracerPermuteView, TracerReshapeView, TracerRowView, TracerSliceView
from ..trace.items import key_of_every_axis
from ..trace.trace import LoopNotRecordable
from ..trace.tracer import Tracer
from .linear import LinearExpression, LoopIntegerAtom
from .values import LoopArray, LoopArraySection, LoopIndexError, LoopNumber, Recorder, Sub


def loop_section_of_key(recorder: Recorder, section: LoopArraySection, key: Any) -> LoopArraySection:
    """`section[key]`. Raises LoopNotRecordable for what is no basic index; what is out of range raises when it runs."""
    items = key_of_every_axis(key if isinstance(key, tuple) else (key,), len(section.shape))
    shape: list[LinearExpression] = []
    moves: dict[int, tuple[LinearExpression, int, int]] = {}  # axis -> where it starts, its step, the new axis
    axis = 0
    for item in items:
        if item is None:
            shape.append(LinearExpression(1))
            continue
        n = section.shape[axis]
        if isinstance(item, slice):
            start, step, extent = slice_start_step_and_length(recorder, item, n)
            moves[axis] = (start, step, len(shape))
            shape.append(extent)
        elif not isinstance(item, LoopNumber) and (isinstance(item, (list, LoopArray)) or getattr(item, "shape", None)):
            raise LoopNotRecordable("an array is an index")
        else:
            moves[axis] = (_loop_index_counted_from_zero(recorder, recorder.linear(item), n, axis), 0, -1)
        axis += 1
    subs = tuple(_compose_section_with_slice(sub, moves) for sub in section.subs)
    return LoopArraySection(section.storage, subs, tuple(shape))


def _compose_section_with_slice(sub: Sub, moves: dict[int, tuple[LinearExpression, int, int]]) -> Sub:
    start, step, axis = sub
    if axis < 0:
        return sub
    first, by, new = moves[axis]
    return start + first * step, by * step, new


def _loop_index_counted_from_zero(
    recorder: Recorder, i: LinearExpression, n: LinearExpression, axis: int
) -> LinearExpression:
    """An index from 0 on."""
    if i.is_at_least(0) and n.is_at_least(i + 1):
        return i
    if (-i).is_at_least(1) and (i + n).is_at_least(0):
        return i + n
    body = recorder.body
    given, length = recorder.emit(i), recorder.emit(n)
    error = LoopIndexError(axis, n.known)
    if i.is_at_least(0):
        recorder.fail_if(given >= length, given, error)
        return i
    recorder.fail_if((given >= length) | (given < -length), given, error)
    wrapped = body.select(given < 0, given + length, given)
    found: LinearExpression = recorder.atom(wrapped, (LinearExpression(0),), (n - 1,))
    return found


def slice_start_step_and_length(
    recorder: Recorder, item: slice, n: LinearExpression
) -> tuple[LinearExpression, int, LinearExpression]:
    """Where it starts, its step, and how long it is."""
    step = 1 if item.step is None else item.step
    if type(step) is not int or step == 0:
        raise LoopNotRecordable("the step of a slice differs from turn to turn")
    if step < 0:
        return _backwards_slice_in_loop(recorder, item, n, step)
    start = (
        LinearExpression(0)
        if item.start is None
        else _clamped_slice_bound_in_loop(recorder, recorder.linear(item.start), n)
    )
    stop = n if item.stop is None else _clamped_slice_bound_in_loop(recorder, recorder.linear(item.stop), n)
    length = recorder.greatest(stop - start, LinearExpression(0))
    if step == 1:
        return start, 1, length
    if length.known is not None:
        return start, step, LinearExpression(-(-length.known // step))
    count = (recorder.emit(length) + recorder.body.const(step - 1, INT64)).quot(recorder.body.const(step, INT64))
    most = length.greatest
    return (
        start,
        step,
        recorder.atom(count, (LinearExpression(0),), () if most is None else (LinearExpression(-(-most // step)),)),
    )


def _backwards_slice_in_loop(
    recorder: Recorder, item: slice, n: LinearExpression, step: int
) -> tuple[LinearExpression, int, LinearExpression]:
    """With a negative step: from a place that is known to be within the axis."""
    start = n - 1 if item.start is None else recorder.linear(item.start)
    if not (start.is_at_least(-1) and n.is_at_least(start + 1)):
        if start.known is not None and start.known < 0 and n.is_at_least(-start.known):
            start = n + start
        else:
            raise LoopNotRecordable("where a slice with a negative step starts is not known to be in range")
    if item.start is not None and not start.is_at_least(0):
        raise LoopNotRecordable("where a slice with a negative step starts may be negative")
    stop = LinearExpression(-1)
    if item.stop is not None:
        stop = recorder.linear(item.stop)
        if not stop.is_at_least(0):
            raise LoopNotRecordable("where a slice with a negative step ends may be negative")
    length = recorder.greatest(start - stop, LinearExpression(0))
    if step == -1:
        return start, -1, length
    if length.known is None:
        raise LoopNotRecordable("a slice with a negative step has another length at each turn")
    return start, step, LinearExpression(-(-length.known // -step))


def _clamped_slice_bound_in_loop(recorder: Recorder, i: LinearExpression, n: LinearExpression) -> LinearExpression:
    """The bound of a slice within 0..n, as NumPy clamps it."""
    found: LinearExpression
    if i.is_at_least(0):
        found = recorder.least(i, n)
    elif (-i).is_at_least(1):
        found = recorder.greatest(i + n, LinearExpression(0))
    else:
        given, length = recorder.emit(i), recorder.emit(n)
        counted = recorder.body.select(given < 0, given + length, given)
        clamped = counted.maximum(recorder.zero()).minimum(length)
        found = recorder.atom(clamped, (LinearExpression(0),), (n,))
    return found


# views


Lengths = tuple[LinearExpression, ...]
MovedSub = Callable[[LinearExpression, int, int], Sub]  # where an axis starts, steps and goes, behind one more view


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
    return lambda start, by, axis: (start + step.starts[axis] * by, by * step.steps[axis], axis), _lengths(step.shape)


def _moved_by_row(step: TracerRowView, shape: Lengths) -> tuple[MovedSub, Lengths]:
    return lambda start, by, axis: (start, by, axis - 1) if axis else (start + step.index * by, 0, -1), shape[1:]


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
