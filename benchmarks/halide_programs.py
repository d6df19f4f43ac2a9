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
from image_programs import INTENSITIES, LEVELS, MATRIX

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


def local_laplacian(hl: Any, image: Any) -> Made:
    """Pyramids of all intensities in one function each; an interpolation between the two nearest, as Halide's own."""
    i, j, k = hl.Var("i"), hl.Var("j"), hl.Var("k")

    def inside(image: Any, extents: Sequence[int], axes: int) -> Any:
        bounds = [(0, extents[0]), (0, extents[1]), (0, INTENSITIES)][:axes]
        return hl.BoundaryConditions.constant_exterior(image, hl.f32(0.0), bounds)

    def halved(image: Any, extents: Sequence[int], *other: Any) -> Any:
        x, down, out = inside(image, extents, 2 + len(other)), hl.Func("halved_down"), hl.Func("halved")
        down[(i, j, *other)] = (
            x[(i, 2 * j - 1, *other)]
            + 3.0 * (x[(i, 2 * j, *other)] + x[(i, 2 * j + 1, *other)])
            + x[(i, 2 * j + 2, *other)]
        ) / 8.0
        out[(i, j, *other)] = (
            down[(2 * i - 1, j, *other)]
            + 3.0 * (down[(2 * i, j, *other)] + down[(2 * i + 1, j, *other)])
            + down[(2 * i + 2, j, *other)]
        ) / 8.0
        return out

    def doubled(image: Any, extents: Sequence[int], *other: Any) -> Any:
        x, down, out = inside(image, extents, 2 + len(other)), hl.Func("doubled_down"), hl.Func("doubled")
        down[(i, j, *other)] = 0.75 * x[(i, j // 2, *other)] + 0.25 * x[(i, j // 2 - 1 + 2 * (j % 2), *other)]
        out[(i, j, *other)] = 0.75 * down[(i // 2, j, *other)] + 0.25 * down[(i // 2 - 1 + 2 * (i % 2), j, *other)]
        return out

    x, remapped = inside(image, [image.dim(d).extent() for d in range(2)], 2), hl.Func("remapped")
    sizes = [[image.dim(d).extent() >> level for d in range(2)] for level in range(LEVELS)]
    apart = (x[i, j] - hl.cast(hl.Float(32), k) / (INTENSITIES - 1.0)) * (INTENSITIES - 1.0)
    remapped[i, j, k] = x[i, j] + 0.25 * apart * hl.exp(hl.f32(-0.5) * apart * apart)
    pyramids, images = [remapped], [x]
    for level in range(LEVELS - 1):
        pyramids.append(halved(pyramids[-1], sizes[level], k))
        images.append(halved(images[-1], sizes[level]))
    out = None
    for level in reversed(range(LEVELS)):
        details, chosen = hl.Func("details"), hl.Func("chosen")
        details[i, j, k] = pyramids[level][i, j, k] - (
            doubled(pyramids[level + 1], sizes[level + 1], k)[i, j, k] if level < LEVELS - 1 else hl.f32(0.0)
        )
        place = hl.clamp(images[level][i, j], 0.0, 1.0) * (INTENSITIES - 1.0)
        low = hl.clamp(hl.cast(hl.Int(32), place), 0, INTENSITIES - 2)
        part = place - low
        found = (1.0 - part) * details[i, j, low] + part * details[i, j, low + 1]
        chosen[i, j] = found + (doubled(out, sizes[level + 1])[i, j] if out is not None else hl.f32(0.0))
        out = chosen
    return out, None


def camera_pipe(hl: Any, raw: Any, curve: Any) -> Made:
    """Colours in planes."""
    i, j, c = hl.Var("i"), hl.Var("j"), hl.Var("c")
    least, clean = hl.Func("least"), [raw.dim(d).extent() - 4 for d in range(2)]
    centre = lambda x, y: raw[i + 2 + x, j + 2 + y]  # noqa: E731
    most = hl.max(hl.max(centre(-2, 0), centre(2, 0)), hl.max(centre(0, -2), centre(0, 2)))
    least[i, j] = hl.min(centre(0, 0), most)
    inside = hl.BoundaryConditions.constant_exterior(least, hl.f32(0.0), [(0, clean[0]), (0, clean[1])])

    def at(row: int, column: int) -> Any:
        return inside[2 * i + column, 2 * j + row]

    def half(name: str, value: Any) -> Any:
        made = hl.Func(name)
        made[i, j] = value
        return made

    def green(row: int, column: int) -> Any:
        left, right, up, down = at(row, column - 1), at(row, column + 1), at(row - 1, column), at(row + 1, column)
        return hl.select(hl.abs(left - right) < hl.abs(up - down), (left + right) * 0.5, (up + down) * 0.5)

    def between(row: int, column: int, steps: Sequence[tuple[int, int]]) -> Any:
        near = [at(row + r, column + s) for r, s in steps]
        return sum(near[1:], near[0]) / float(len(steps))

    across, along = ((0, -1), (0, 1)), ((-1, 0), (1, 0))
    corners = ((-1, -1), (-1, 1), (1, -1), (1, 1))
    reds = [between(0, 0, across), at(0, 1), between(1, 0, corners), between(1, 1, along)]
    greens = [at(0, 0), green(0, 1), green(1, 0), at(1, 1)]
    blues = [between(0, 0, along), between(0, 1, corners), at(1, 0), between(1, 1, across)]
    joined = []
    for name, four in (("red", reds), ("green", greens), ("blue", blues)):
        parts = [half(f"{name}_{n}", value)[i // 2, j // 2] for n, value in enumerate(four)]
        even = hl.select(i % 2 == 0, parts[0], parts[1])
        joined.append(half(name, hl.select(j % 2 == 0, even, hl.select(i % 2 == 0, parts[2], parts[3])))[i, j])
    colours = [sum((hl.f32(w) * x for w, x in zip(row, joined, strict=True)), hl.f32(0.0)) for row in MATRIX]
    out, colour = hl.Func("out"), hl.select(c == 0, colours[0], c == 1, colours[1], colours[2])
    out[i, j, c] = curve[hl.cast(hl.Int(32), hl.clamp(colour, 0.0, 1023.0))]
    return out, None


HALIDE_PROGRAMS = {
    "blur 11 x 11, 2048^2": wide_blur, "unsharp mask 2048^2": unsharp, "Harris corners 2048^2": harris,
    "bilateral grid 1536 x 2560": bilateral_grid, "local Laplacian 1024^2": local_laplacian,
    "camera pipe 1968 x 2592": camera_pipe,
}  # fmt: skip


def halide_calls(hl: Any, name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """For each way to schedule it a call that gives the result."""
    if name not in HALIDE_PROGRAMS:
        return
    folder = os.path.join(os.path.dirname(hl.__file__), "lib64")
    hl.load_plugin(os.path.join(folder, "libautoschedule_mullapudi2016.so"))
    machine = {"parallelism": str(os.cpu_count() or 1), "last_level_cache_size": str(32 << 20)}
    image, camera = arrays[0], HALIDE_PROGRAMS[name] is camera_pipe
    for label in ("Halide, automatic", "Halide, by hand"):
        result = np.empty((3, *(n - 4 for n in image.shape)), np.uint8) if camera else np.empty_like(image)
        sources = [hl.Buffer(array) for array in (arrays if camera else arrays[:1])]
        out, by_hand = HALIDE_PROGRAMS[name](hl, *sources)
        pipeline, target = hl.Pipeline(out), hl.get_host_target()
        if label == "Halide, automatic":
            for dimension, extent in enumerate(reversed(result.shape)):
                out.set_estimate(out.args()[dimension], 0, extent)
            pipeline.apply_autoscheduler(target, hl.AutoschedulerParams("Mullapudi2016", machine))
        elif by_hand is None:
            continue
        else:
            by_hand()
        pipeline.compile_jit(target)
        buffer, seen = hl.Buffer(result), np.moveaxis(result, 0, 2) if camera else result
        yield label, (lambda p=pipeline, b=buffer, r=seen, keep=(sources, out, result): (p.realize(b), r)[1])
