"""Halide's larger applications in NumPy's words: bilateral grid, local Laplacian filters, camera pipe. Times nothing.

Written anew from the descriptions in Ragan-Kelley et al. (2013): the bilateral grid of Chen et al. (2007), the local
Laplacian filters of Paris et al. (2011), and a camera's pipe from raw Bayer data to pixels. As in `field_programs.py`
each is one function of words `m` (which library says them) and arrays.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from field_programs import FieldProgram, floats

CELL, DEPTH = 8, 12  # pixels to a cell of the bilateral grid, and its cells along intensity
TAPS = (1.0, 4.0, 6.0, 4.0, 1.0)
LEVELS, INTENSITIES = 4, 8  # of the pyramids, and of the remapped images


def smooth(m, x, axis):
    """Five taps along an axis; nothing lies beyond the ends."""
    n = x.shape[axis]
    x = m.pad_axes(x, [2 if i == axis else 0 for i in range(len(x.shape))])
    return sum(t * x[tuple(slice(k, k + n) if i == axis else slice(None) for i in range(3))]
               for k, t in enumerate(TAPS))  # fmt: skip


def bilateral_grid(m, x, rows, columns):
    """x: an image of intensities from 0 to 1; rows, columns: of each pixel."""
    n, k = x.shape
    shape = (n // CELL + 2, k // CELL + 2, DEPTH)
    size = shape[0] * shape[1] * shape[2]
    depth = x * (DEPTH - 2.0)
    nearest = ((rows + CELL // 2) // CELL * shape[1] + (columns + CELL // 2) // CELL) * DEPTH + m.whole(depth + 0.5)
    nearest = nearest.reshape(-1)
    sums, counts = m.fork(
        lambda: m.add_at(size, nearest, x.reshape(-1)), lambda: m.add_at(size, nearest, (x * 0.0 + 1.0).reshape(-1))
    )

    def blurred(grid):
        grid = grid.reshape(shape)
        for axis in (2, 1, 0):
            grid = smooth(m, grid, axis)
        return grid.reshape(-1)

    sums, counts = m.fork(lambda: blurred(sums), lambda: blurred(counts))
    row, column, deep = rows // CELL, columns // CELL, m.whole(depth)
    parts = [m.real(rows % CELL) / CELL, m.real(columns % CELL) / CELL, depth - m.real(deep)]

    def sliced(grid):
        total = 0.0
        for corner in range(8):
            at = [corner >> 2 & 1, corner >> 1 & 1, corner & 1]
            weight = 1.0
            for part, upper in zip(parts, at, strict=True):
                weight = weight * (part if upper else 1.0 - part)
            place = ((row + at[0]) * shape[1] + column + at[1]) * DEPTH + deep + at[2]
            total = total + weight * grid[place]
        return total

    return sliced(sums) / sliced(counts)


def halved(m, x):
    """A level up: taps 1 3 3 1 along both axes, each second pixel."""
    n, k = x.shape
    x = m.pad(x, 1)
    y = (x[0:n:2] + 3.0 * (x[1 : n + 1 : 2] + x[2 : n + 2 : 2]) + x[3 : n + 3 : 2]) / 8.0
    return (y[:, 0:k:2] + 3.0 * (y[:, 1 : k + 1 : 2] + y[:, 2 : k + 2 : 2]) + y[:, 3 : k + 3 : 2]) / 8.0


def doubled(m, x):
    """A level down: between two pixels a quarter of the one, three quarters of the other."""
    n, k = x.shape
    x = m.pad(x, 1)
    y = m.stack([0.75 * x[1 : n + 1] + 0.25 * x[:n], 0.75 * x[1 : n + 1] + 0.25 * x[2:]], 1).reshape(2 * n, k + 2)
    return m.stack([0.75 * y[:, 1 : k + 1] + 0.25 * y[:, :k], 0.75 * y[:, 1 : k + 1] + 0.25 * y[:, 2:]], 2).reshape(
        2 * n, 2 * k
    )


def gaussian_pyramid(m, x):
    found = [x]
    for _ in range(LEVELS - 1):
        found.append(halved(m, found[-1]))
    return found


def laplacian_pyramid(m, x):
    levels = gaussian_pyramid(m, x)
    return [*(a - doubled(m, b) for a, b in pairwise(levels)), levels[-1]]


def local_laplacian(m, x):
    """Details made stronger at each of some intensities, between which the pyramid of the image chooses."""

    def remapped(level):
        apart = (x - level) * (INTENSITIES - 1.0)
        return laplacian_pyramid(m, level + (x - level) + 0.25 * apart * m.exp(-0.5 * apart * apart))

    intensities = [k / (INTENSITIES - 1) for k in range(INTENSITIES)]
    pyramids = m.fork(*[lambda v=v: remapped(v) for v in intensities])
    out = None
    for level, image in reversed(list(enumerate(gaussian_pyramid(m, x)))):
        place = m.clip(image, 0.0, 1.0) * (INTENSITIES - 1.0)
        chosen = 0.0
        for k in range(INTENSITIES):  # a hat of width two around each intensity
            chosen = chosen + m.clip(1.0 - abs(place - float(k)), 0.0, 1.0) * pyramids[k][level]
        out = chosen if out is None else chosen + doubled(m, out)
    return out


MATRIX = ((1.6697, -0.2693, -0.4004), (-0.3576, 1.0615, 1.5949), (-0.2175, -1.8751, 6.9640))


def camera_pipe(m, raw, curve):
    """raw: a Bayer mosaic of 10 bits (green, red; blue, green), as float32; curve: 1,024 bytes. Without hot pixels, the
    missing colours from their neighbours along the direction that differs less, colours corrected, and the curve."""
    n, k = raw.shape[0] - 4, raw.shape[1] - 4
    near = [raw[2:-2, :-4], raw[2:-2, 4:], raw[:-4, 2:-2], raw[4:, 2:-2]]
    most = m.maximum(m.maximum(near[0], near[1]), m.maximum(near[2], near[3]))
    clean = m.pad(m.minimum(raw[2:-2, 2:-2], most), 2)

    def at(row, column):
        """Each second pixel of each second row, so far from the first of four."""
        return clean[2 + row : 2 + row + n : 2, 2 + column : 2 + column + k : 2]

    def green(row, column):
        """Where red or blue was measured."""
        left, right, up, down = at(row, column - 1), at(row, column + 1), at(row - 1, column), at(row + 1, column)
        return m.where(abs(left - right) < abs(up - down), (left + right) * 0.5, (up + down) * 0.5)

    def between(row, column, steps):
        """A colour from those beside it, corrected by how green differs."""
        return sum(at(row + r, column + c) for r, c in steps) / len(steps)

    across, along = ((0, -1), (0, 1)), ((-1, 0), (1, 0))
    corners = ((-1, -1), (-1, 1), (1, -1), (1, 1))
    greens = [at(0, 0), green(0, 1), green(1, 0), at(1, 1)]
    reds = [between(0, 0, across), at(0, 1), between(1, 0, corners), between(1, 1, along)]
    blues = [between(0, 0, along), between(0, 1, corners), at(1, 0), between(1, 1, across)]

    def joined(four):
        rows = [m.stack(four[:2], 2).reshape(n // 2, k), m.stack(four[2:], 2).reshape(n // 2, k)]
        return m.stack(rows, 1).reshape(n, k)

    red, blue, plain = m.fork(lambda: joined(reds), lambda: joined(blues), lambda: joined(greens))
    found = []
    for row in MATRIX:
        colour = row[0] * red + row[1] * plain + row[2] * blue
        found.append(curve[m.whole(m.clip(colour, 0.0, 1023.0))])
    return m.stack(found, 2)


def _grid_arrays(rows: int, columns: int) -> list[Any]:
    places = np.indices((rows, columns), dtype=np.int32)
    return [floats(3)(rows, columns), places[0].copy(), places[1].copy()]


def _camera_arrays(rows: int, columns: int) -> list[Any]:
    raw = np.random.default_rng(11).integers(25, 1024, (rows + 4, columns + 4)).astype(np.float32)
    return [raw, (255 * (np.arange(1024) / 1023) ** (1 / 1.8)).astype(np.uint8)]


IMAGE_PROGRAMS = (
    FieldProgram("bilateral grid 1536 x 2560", bilateral_grid, lambda: _grid_arrays(1536, 2560), 1e-3),
    FieldProgram("local Laplacian 1024^2", local_laplacian, lambda: [floats(3)(1024, 1024)], 1e-3),
    FieldProgram("camera pipe 1968 x 2592", camera_pipe, lambda: _camera_arrays(1968, 2592), 1e-2),
)
