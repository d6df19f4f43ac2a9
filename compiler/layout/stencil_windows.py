"""Which operands of a kernel are views of one array, shifted against each other: from accesses and their index maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..kernel.loop_nest import Phase, Window
from .index_maps import Map
from .operands import ALIGNMENT, OperandAccess

SHORTEST = 32  # of the innermost axis: less does not fill a warp
WIDEST = 8  # shifts along it, in vectors
ZIPPED = 8  # arrays


def stencil_windows(
    accesses: Sequence[OperandAccess], axes: Sequence[Sequence[int]], lengths: Mapping[int, int]
) -> tuple[tuple[Window, ...], int]:
    """The windows of a kernel without reduced axes, and their `vector` (see `LoopNest`).

    axes: the domain axes of each of the kernel's axes, innermost last; lengths: of the domain axes.
    """
    if math.prod(lengths[axis] for axis in axes[-1]) < SHORTEST:
        return (), 1
    found: dict[tuple[int, Map], list[tuple[int, tuple[int, ...]]]] = {}
    for number, access in enumerate(accesses):
        if (
            access.source is not None
            and access.role == "in"
            and _stride_along_axis(access, axes[-1]) == access.dtype.itemsize
        ):
            common, steps = _split_off_shift(access.source[1], {axis for group in axes for axis in group})
            place = tuple(_flat_steps(steps, group, lengths) for group in axes)
            found.setdefault((access.source[0], common), []).append((number, place))
    windows = tuple(_make_window(places) for places in found.values() if len(places) > 1)
    vector = _window_vector_length(windows, accesses, axes)
    windows = tuple(w for w in windows if w.span(len(axes) - 1) <= WIDEST * vector)
    return windows, vector if windows else 1


def interleaved_outputs(
    accesses: Sequence[OperandAccess], group: Sequence[int], phases: Sequence[Phase]
) -> tuple[tuple[int, ...], ...]:
    """The outputs that lie in turn in one array along a kernel's axis. The axis is made of these domain axes."""
    found: dict[object, dict[int, int]] = {}
    homes = {i.attr[0]: n for n, phase in enumerate(phases) for i in phase.instrs if i.op == "store"}
    for number, access in enumerate(accesses):
        size, step = access.dtype.itemsize, _stride_along_axis(access, group)
        if access.role == "out" and access.dtype.kind != "c" and 2 * size <= step <= ZIPPED * size and not step % size:
            whole, turn = divmod(access.offset, step)
            key = access.place.buffer, access.dtype, tuple(access.strides), homes.get(number), whole, turn % size
            found.setdefault(key, {})[turn // size] = number
    steps = {key: _stride_along_axis(accesses[min(turns.values())], group) for key, turns in found.items()}
    return tuple(
        tuple(turns[i] for i in range(len(turns)))
        for key, turns in found.items()
        if len(turns) * accesses[min(turns.values())].dtype.itemsize == steps[key]
    )


def _stride_along_axis(access: OperandAccess, group: Sequence[int]) -> int:
    """The stride, in bytes, along one of the kernel's axes."""
    return access.strides[group[-1]] if group and group[-1] < len(access.strides) else 0


def _split_off_shift(source: Map, moving: set[int]) -> tuple[Map, dict[int, int]]:
    """A map as what shifted views of a node have in common, and how many steps it starts along each domain axis."""
    axes = [axis for axis, _, _ in source]
    steps = {axis: start // step for axis, step, start in source if axis in moving and axes.count(axis) == 1}
    return tuple((a, step, start % step if a in steps else start) for a, step, start in source), steps


def _flat_steps(steps: Mapping[int, int], group: Sequence[int], lengths: Mapping[int, int]) -> int:
    """Steps along one of the kernel's axes."""
    flat = 0
    for axis in group:
        flat = flat * lengths[axis] + steps.get(axis, 0)
    return flat


def _make_window(places: Sequence[tuple[int, tuple[int, ...]]]) -> Window:
    corner = [min(steps) for steps in zip(*(place for _, place in places), strict=True)]
    shifts = (tuple(n - c for n, c in zip(place, corner, strict=True)) for _, place in places)
    return Window(tuple(number for number, _ in places), tuple(shifts))


def _window_vector_length(
    windows: Sequence[Window], accesses: Sequence[OperandAccess], axes: Sequence[Sequence[int]]
) -> int:
    """How many elements can be one access wherever a window begins, and wherever something is written."""
    shifted = [(w.operands[0], w.shifts[0]) for w in windows]
    written = [(k, (0,) * len(axes)) for k, access in enumerate(accesses) if access.role != "in"]
    vector = ALIGNMENT
    for number, shift in shifted + written:
        access = accesses[number]
        strides = [_stride_along_axis(access, group) for group in axes]
        corner = access.offset - sum(n * s for n, s in zip(shift, strides, strict=True))
        if strides[-1] in (0, access.dtype.itemsize):
            whole = math.gcd(ALIGNMENT, corner, *strides[:-1]) if access.place.aligned else 1
            vector = min(vector, max(1, whole // access.dtype.itemsize))
    return vector
