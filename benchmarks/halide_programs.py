"""Halide's versions of its own programs, for its wheel: algorithms, and schedules by hand where simple.

A function of Halide's module and the input buffers gives the output `Func`, and a function that schedules it by hand or
None. `halide_calls` compiles each, by hand and by the automatic scheduler of Mullapudi et al. (2016), for NumPy arrays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from field_programs import gaussian

LANES, STRIP = 16, 32  # of vectors, and rows that a task takes
Made = tuple[Any, Callable[[], None] | None]


def _zero_around(hl: Any, image: Any) -> Any:
    extents = [(0, image.dim(k).extent()) for k in range(2)]
    return hl.BoundaryConditions.constant_exterior(image, hl.f32(0.0), extents)


def _blurred(hl: Any, padded: Any, width: int) -> tuple[Any, Any]:
    """Down the columns first, as `field_programs.blur` does."""
    i, j, taps, half = hl.Var("i"), hl.Var("j"), gaussian(width), width // 2
    down, across = hl.Func("down"), hl.Func("across")
    down[i, j] = sum((hl.f32(t) * padded[i, j + k - half] for k, t in enumerate(taps)), hl.f32(0.0))
    across[i, j] = sum((hl.f32(t) * down[i + k - half, j] for k, t in enumerate(taps)), hl.f32(0.0))
    return down, across


def _rows_in_strips(hl: Any, out: Any, inner: Sequence[Any]) -> Callable[[], None]:
    """Strips of rows in parallel; what feeds a row is kept for the next ones of its strip."""

    def schedule() -> None:
        i, j, outer, within = hl.Var("i"), hl.Var("j"), hl.Var("outer"), hl.Var("within")
        out.split(j, outer, within, STRIP).parallel(outer).vectorize(i, LANES)
        for each in inner:
            each.store_at(out, outer).compute_at(out, within).vectorize(i, LANES)

    return schedule


def wide_blur(hl: Any, image: Any) -> Made:
    down, across = _blurred(hl, _zero_around(hl, image), 11)
    return across, _rows_in_strips(hl, across, [down])


def unsharp(hl: Any, image: Any) -> Made:
    i, j, padded, out = hl.Var("i"), hl.Var("j"), _zero_around(hl, image), hl.Func("out")
    down, soft = _blurred(hl, padded, 7)
    x = padded[i, j]
    out[i, j] = x * hl.clamp(2.0 - soft[i, j] / (x + hl.f32(0.01)), 0.0, 2.0)
    return out, _rows_in_strips(hl, out, [down])


def harris(hl: Any, image: Any) -> Made:
    i, j, x = hl.Var("i"), hl.Var("j"), _zero_around(hl, image)
    across, down, out = hl.Func("across"), hl.Func("down"), hl.Func("out")
    row = lambda n: x[i + 1, j + n] - x[i - 1, j + n]  # noqa: E731
    column = lambda n: x[i + n, j + 1] - x[i + n, j - 1]  # noqa: E731
    across[i, j] = (row(-1) + 2.0 * row(0) + row(1)) / 12.0
    down[i, j] = (column(-1) + 2.0 * column(0) + column(1)) / 12.0

    def summed(a: Any, b: Any) -> Any:
        parts = [a[i + k, j + n] * b[i + k, j + n] for n in (-1, 0, 1) for k in (-1, 0, 1)]
        return sum(parts[1:], parts[0])

    xx, yy, xy = summed(across, across), summed(down, down), summed(across, down)
    out[i, j] = xx * yy - xy * xy - hl.f32(0.04) * (xx + yy) * (xx + yy)
    return out, _rows_in_strips(hl, out, [across, down])


def bilateral_grid(hl: Any, image: Any) -> Made:
    """Sums over the pixels of a cell, three blurs, and an interpolation; scheduled automatically alone."""
    i, j, z, c, taps = hl.Var("i"), hl.Var("j"), hl.Var("z"), hl.Var("c"), (1.0, 4.0, 6.0, 4.0, 1.0)
    columns, rows = image.dim(0).extent(), image.dim(1).extent()
    depth = hl.Func("depth")
    clamped = hl.BoundaryConditions.constant_exterior(image, hl.f32(0.0), [(0, columns), (0, rows)])
    depth[i, j] = hl.cast(hl.Int(32), clamped[i, j] * 10.0 + 0.5)
    cell, r = hl.Func("cell"), hl.RDom([(0, 8), (0, 8)])
    at = (i * 8 + r.x - 4, j * 8 + r.y - 4)
    there = (at[0] >= 0) & (at[0] < columns) & (at[1] >= 0) & (at[1] < rows)
    cell[i, j, z, c] = hl.f32(0.0)
    value = hl.select(c == 0, clamped[at[0], at[1]], hl.f32(1.0))
    cell[i, j, hl.clamp(depth[at[0], at[1]], 0, 11), c] += hl.select(there, value, hl.f32(0.0))
    inside = hl.BoundaryConditions.constant_exterior(
        cell, hl.f32(0.0), [(0, columns // 8 + 2), (0, rows // 8 + 2), (0, 12), (0, 2)]
    )
    one, two, three = hl.Func("one"), hl.Func("two"), hl.Func("three")
    one[i, j, z, c] = sum((hl.f32(t) * inside[i, j, z + k - 2, c] for k, t in enumerate(taps)), hl.f32(0.0))
    two[i, j, z, c] = sum((hl.f32(t) * one[i + k - 2, j, z, c] for k, t in enumerate(taps)), hl.f32(0.0))
    three[i, j, z, c] = sum((hl.f32(t) * two[i, j + k - 2, z, c] for k, t in enumerate(taps)), hl.f32(0.0))
    deep = clamped[i, j] * 10.0
    low = hl.clamp(hl.cast(hl.Int(32), deep), 0, 10)
    parts = (hl.cast(hl.Float(32), i % 8) / 8.0, hl.cast(hl.Float(32), j % 8) / 8.0, deep - low)
    slices, out = hl.Func("slices"), hl.Func("out")
    total = hl.f32(0.0)
    for corner in range(8):
        up = [corner & 1, corner >> 1 & 1, corner >> 2 & 1]
        weight = hl.f32(1.0)
        for part, upper in zip(parts, up, strict=True):
            weight = weight * (part if upper else 1.0 - part)
        total = total + weight * three[i / 8 + up[0], j / 8 + up[1], low + up[2], c]
    slices[i, j, c] = total
    out[i, j] = slices[i, j, 0] / slices[i, j, 1]
    return out, None


HALIDE_PROGRAMS = {
    "blur 11 x 11, 2048^2": wide_blur, "unsharp mask 2048^2": unsharp, "Harris corners 2048^2": harris,
    "bilateral grid 1536 x 2560": bilateral_grid,
}  # fmt: skip


def halide_calls(hl: Any, name: str, image: np.ndarray[Any, Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """For each way to schedule it a call that gives the result."""
    if name not in HALIDE_PROGRAMS:
        return
    folder = os.path.join(os.path.dirname(hl.__file__), "lib64")
    hl.load_plugin(os.path.join(folder, "libautoschedule_mullapudi2016.so"))
    machine = {"parallelism": str(os.cpu_count() or 1), "last_level_cache_size": str(32 << 20)}
    for label in ("Halide, automatic", "Halide, by hand"):
        source = hl.Buffer(image)
        out, by_hand = HALIDE_PROGRAMS[name](hl, source)
        pipeline, target = hl.Pipeline(out), hl.get_host_target()
        if label == "Halide, automatic":
            for dimension, extent in enumerate(reversed(image.shape)):
                out.set_estimate(out.args()[dimension], 0, extent)
            pipeline.apply_autoscheduler(target, hl.AutoschedulerParams("Mullapudi2016", machine))
        elif by_hand is None:
            continue
        else:
            by_hand()
        pipeline.compile_jit(target)
        result = np.empty(image.shape, np.float32)
        buffer = hl.Buffer(result)
        yield label, (lambda p=pipeline, b=buffer, r=result, keep=(source, out): (p.realize(b), r)[1])
