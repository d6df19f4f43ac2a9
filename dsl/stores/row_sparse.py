"""`kg.RowSparse`: an array of which some rows are stored, and the rows of a stored value."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..array.array import Array, asarray
from ..array.devices import name_of
from ..core.errors import ArgumentsError, IndexingError, ShapeError
from ..core.spec import Host
from ..jit.kernel_graph import KernelGraph


class RowSparse:
    """An array of which some rows are stored, and all others are zeros. `KVStore.row_sparse_pull` fills one.

    Parameters
    ----------
    data
        The rows.
    indices
        Which they are, each once.
    shape : tuple[int, ...]
        The shape of the whole array. `numpy()` is that.

    Examples
    --------
    >>> kg.RowSparse(np.ones((1, 2)), [1], (3, 2)).numpy().tolist()
    [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    """

    __slots__ = ("data", "indices", "shape")

    def __init__(self, data: Any, indices: Any, shape: tuple[int, ...]) -> None:
        """Raises ShapeError, IndexingError."""
        self.shape: tuple[int, ...] = tuple(shape)
        self.data: Any = data if isinstance(data, Array) else np.asarray(data)
        self.indices: Host = checked_rows(indices, self.shape)
        if self.data.shape != (self.indices.size, *self.shape[1:]):
            raise ShapeError(
                f"{self.indices.size} rows of an array of shape {self.shape} are an array of shape "
                f"{(self.indices.size, *self.shape[1:])}, not {self.data.shape}"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype  # type: ignore[no-any-return]

    def numpy(self) -> Host:
        """The whole array."""
        whole = np.zeros(self.shape, self.dtype)
        whole[self.indices] = np.asarray(self.data)
        return whole

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Host:
        return np.asarray(self.numpy(), dtype)

    def __repr__(self) -> str:
        return f"RowSparse({self.dtype}{list(self.shape)}, {self.indices.size} rows)"


def checked_rows(rows: Any, shape: tuple[int, ...]) -> Host:
    """Numbers of rows, sorted and each once. Raises ShapeError, IndexingError."""
    if not shape:
        raise ShapeError("an array without axes has no rows")
    given = np.asarray(rows)
    found = np.unique(given.astype(np.int64))
    if given.size and (given.dtype.kind not in "iuf" or not np.isin(given, found).all()):
        raise IndexingError(f"rows are whole numbers, not {given.dtype} as in {given.reshape(-1)[0]!r}")
    if found.size and not 0 <= found[0] <= found[-1] < shape[0]:
        raise IndexingError(f"row {found[0] if found[0] < 0 else found[-1]} is none of the {shape[0]} rows")
    return found


def rows_of_array(array: Array, rows: Host) -> Array:
    """Some rows of an array, on its device. rows: as `checked_rows` gives them."""
    if not rows.size:
        return asarray(np.zeros((0, *array.shape[1:]), array.dtype), device=name_of(array._device))
    most = 1 << int(rows.size - 1).bit_length()  # few numbers of rows are compiled for
    padded = np.concatenate([rows, np.repeat(rows[-1:], most - rows.size)])
    return _gather_on_device(name_of(array._device))(array, padded)[: rows.size]  # type: ignore[no-any-return]


@functools.cache
def _gather_on_device(device: str) -> KernelGraph:
    def gathered(array: Any, rows: Any) -> Any:
        return array[rows]

    return KernelGraph(gathered, device=device)


def check_row_sparse_target(key: Any, target: Any, shape: tuple[int, ...]) -> None:
    """Raises ArgumentsError, ShapeError where rows of a key's value cannot be pulled into a target."""
    if not isinstance(target, RowSparse):
        raise ArgumentsError(
            f"rows of key {key!r} are pulled into kg.RowSparse, not {type(target).__name__}; pull takes whole arrays"
        )
    if target.shape != shape:
        raise ShapeError(f"key {key!r} has shape {shape}, and rows are pulled into an array of shape {target.shape}")
