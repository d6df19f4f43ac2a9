"""Arrays of the trace as sections of the memory that they look at."""

from __future__ import annotations

from ..trace.aliasing import TracerPermuteView, TracerReshapeView, TracerRowView, TracerSliceView
from ..trace.tracer import Tracer
from .linear import LinearExpression
from .values import Sub


def loop_view_steps_of_tracer(x: Tracer) -> tuple[Tracer, tuple[Sub, ...], tuple[int, ...]] | None:
    """The array that owns the memory of `x`, and how its axes map to it. For each axis: where it starts, steps and
    goes in `x`; and the shape of `x`.

    None for views that are more than slices and permutations."""
    chain = []
    root = x
    while root._parent is not None:
        chain.append(root._step)
        root = root._parent
    shape = root.shape
    subs: list[Sub] = [(LinearExpression(0), 1, axis) for axis in range(len(shape))]
    for step in reversed(chain):
        if isinstance(step, TracerSliceView):
            subs = [
                (start + step.starts[axis] * by, by * step.steps[axis], axis) if axis >= 0 else (start, by, axis)
                for start, by, axis in subs
            ]
            shape = step.shape
        elif isinstance(step, TracerRowView):
            subs = [
                (start + step.index * by, 0, -1) if axis == 0 else (start, by, axis - 1 if axis > 0 else axis)
                for start, by, axis in subs
            ]
            shape = shape[1:]
        elif isinstance(step, TracerPermuteView):
            places = [step.axes.index(axis) for axis in range(len(shape))]
            subs = [(start, by, places[axis] if axis >= 0 else axis) for start, by, axis in subs]
            shape = tuple(shape[axis] for axis in step.axes)
        elif isinstance(step, TracerReshapeView) and [n for n in step.shape if n != 1] == [n for n in shape if n != 1]:
            long = iter([axis for axis, n in enumerate(step.shape) if n != 1])
            places = [-1 if n == 1 else next(long) for n in shape]
            subs = [(start, by, places[axis] if axis >= 0 else axis) for start, by, axis in subs]
            shape = step.shape
        else:
            return None
    return root, tuple(subs), tuple(shape)
