"""Values at boxes of whole numbers, found by place. What meets a box is found in time that grows with it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Generic, TypeVar

Box = tuple[tuple[int, int], ...]  # the lowest and the highest index along each axis
T = TypeVar("T")


def boxes_meet(a: Box, b: Box) -> bool:
    for (low, high), (low2, high2) in zip(a, b, strict=True):  # noqa: SIM110  # a generator takes twice as long
        if low > high2 or low2 > high:
            return False
    return True


def is_box_within(inner: Box, outer: Box) -> bool:
    for (low, high), (low2, high2) in zip(inner, outer, strict=True):  # noqa: SIM110
        if low < low2 or high > high2:
            return False
    return True


class BoxIndex(Generic[T]):
    """A value for each of some boxes of one rank, found by what they meet.

    A box lies in one cell of a grid whose cells are, along each axis, the power of two above its length: it meets only
    boxes of the cells that it touches, or of those just before them."""

    FEW = 16  # that are looked at one by one

    def __init__(self) -> None:
        self.boxes: dict[Box, T] = {}
        self.grids: dict[tuple[int, ...], dict[tuple[int, ...], dict[Box, T]]] = {}  # made once there are more

    def put(self, box: Box, value: T) -> T:
        """What is known for the box; if nothing is, the value, from now on."""
        if box in self.boxes:
            return self.boxes[box]
        self.boxes[box] = value
        if self.grids or len(self.boxes) > self.FEW:
            new = {box: value} if self.grids else self.boxes
            for each, held in new.items():
                scale, cell = _grid_cell_of_box(each)
                self.grids.setdefault(scale, {}).setdefault(cell, {})[each] = held
        return value

    def remove(self, box: Box) -> None:
        del self.boxes[box]
        if not self.grids:
            return
        scale, cell = _grid_cell_of_box(box)
        grid = self.grids[scale]
        del grid[cell][box]
        if not grid[cell]:
            del grid[cell]
            if not grid:
                del self.grids[scale]

    def meeting(self, box: Box) -> list[T]:
        """The values of the boxes that share an element with this one."""
        return [value for cell in self._cells_near(box) for b, value in cell.items() if boxes_meet(b, box)]

    def within(self, box: Box) -> list[tuple[Box, T]]:
        """The boxes of which this one has all elements, and their values."""
        return [each for cell in self._cells_near(box) for each in cell.items() if is_box_within(each[0], box)]

    def _cells_near(self, box: Box) -> Iterator[dict[Box, T]]:
        if len(self.boxes) <= self.FEW:
            yield self.boxes
            return
        for scale, grid in self.grids.items():
            near = [range((low >> s) - 1, (high >> s) + 1) for s, (low, high) in zip(scale, box, strict=True)]
            if prod(map(len, near)) < len(grid):
                yield from (grid[cell] for cell in product(*near) if cell in grid)
            else:
                yield from grid.values()


def _grid_cell_of_box(box: Box) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The grid and the cell of a box: powers of two of the cells' lengths, and where along each axis it begins."""
    scale = tuple([(high - low).bit_length() for low, high in box])
    return scale, tuple([low >> s for s, (low, _) in zip(scale, box, strict=True)])
