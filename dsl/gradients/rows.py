"""`kg.vmap` of what no trace can do: the function is called for each row, and the results are stacked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..array.array import Array
from ..core.errors import ArgumentsError
from ..core.pytree import Tree, flatten, unflatten
from .options import Place


def stacked_results_of_rows(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any],
    axes: Mapping[Place, int],
    out_axis: int,
) -> Any:
    """The results of `function` for each row, stacked. axes: of the arguments that have rows. Raises ArgumentsError."""
    given: dict[Place, Any] = dict(enumerate(args))
    given.update((name, value) for name, value in options.items())
    split = {place: _split(value) for place, value in given.items()}
    lengths = {np.shape(x)[axis] for place, axis in axes.items() for x in split[place][1] if _has_rows(x)}
    if len(lengths) != 1:
        raise ArgumentsError(f"vmap needs axes of one length, got {sorted(lengths)}; write in_axes=None for the others")
    (count,) = lengths
    if count == 0:
        raise ArgumentsError("vmap of no rows cannot run in NumPy, which knows no shape of its results; pass a row")
    found: list[tuple[Tree, list[Any]]] = []
    for row in range(count):
        own = {place: _own_arguments(*parts, axes.get(place), row) for place, parts in split.items()}
        result = function(*(own[i] for i in range(len(args))), **{name: own[name] for name in options})
        found.append(_split(result, results=True))
    tree = found[0][0]
    if any(other != tree for other, _ in found):
        raise ArgumentsError("vmap needs results of one structure, and the rows give several; return one")
    columns = zip(*(leaves for _, leaves in found), strict=True)
    return unflatten(tree, [_stacked_leaves(column, out_axis) for column in columns])


def _split(value: Any, results: bool = False) -> tuple[Tree, list[Any]]:
    leaves: list[Any] = []
    return flatten(value, leaves, results=results), leaves


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, (np.ndarray, np.generic, Array, int, float, complex))


def _own_arguments(tree: Tree, leaves: Sequence[Any], axis: int | None, row: int) -> Any:
    """A row of an argument, or what all rows share: arrays that the function may write to."""
    own = [x if axis is None or not _has_rows(x) else np.moveaxis(np.asarray(x), axis, 0)[row] for x in leaves]
    return unflatten(tree, [x.copy() if isinstance(x, np.ndarray) else x for x in own])


def _stacked_leaves(column: Sequence[Any], axis: int) -> Any:
    """The leaves of all rows as one array; what is no number is the same for all."""
    if all(map(_has_rows, column)):
        return np.stack([np.asarray(x) for x in column], axis)
    return column[0]
