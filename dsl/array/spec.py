"""`Spec`: the shape and dtype of an argument or result. Equal specs are one object: keys compare by identity."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType
from ..core.checks import checked_dtype, to_shape
from ..core.errors import DTypeError, ShapeError


class Spec:
    """What a trace needs to know of a C-contiguous array. Make one with `kg.spec(shape, dtype)`.

    >>> kg.spec((2, 3), "f4").nbytes
    24
    """

    __slots__ = (
        "__weakref__",
        "aligned",
        "contiguous",
        "dtype",
        "nbytes",
        "scalar",
        "shape",
        "size",
        "strides",
        "type",
    )

    type: ArrayType
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int
    nbytes: int
    strides: tuple[int, ...]
    contiguous: bool
    aligned: bool  # to 16 bytes
    scalar: bool  # whether it is one of NumPy's scalars, which never changes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"spec({self.shape}, {self.dtype})"

    def __reduce__(self) -> Any:
        return spec, (self.shape, self.dtype)


_known: dict[ArrayType, Spec] = {}
_scalars: dict[ArrayType, Spec] = {}
_lock = threading.Lock()


def spec_of(type: ArrayType, scalar: bool = False) -> Spec:
    """The spec of a type. scalar: of one that NumPy makes a scalar of."""
    known = _scalars if scalar else _known
    found = known.get(type)
    if found is None:
        with _lock:
            found = known.get(type)
            if found is None:
                found = Spec()
                found.type, found.shape, found.dtype = type, type.shape, type.dtype
                found.size, found.nbytes = type.size, type.nbytes
                stride, strides = type.dtype.itemsize, []
                for n in reversed(type.shape):
                    strides.append(stride)
                    stride *= max(n, 1)
                found.strides = tuple(reversed(strides))
                found.contiguous = found.aligned = True
                found.scalar = scalar
                known[type] = found
    return found


_strided: dict[tuple[ArrayType, tuple[int, ...], bool], Spec] = {}


def strided_spec(type: ArrayType, strides: tuple[int, ...], aligned: bool) -> Spec:
    """The spec of an array that lies in memory in its own way. strides: in bytes; that of a length of 1 is free.
    aligned: whether its first element is, to 16 bytes."""
    plain = spec_of(type)
    strides = tuple(p if n == 1 else s for n, s, p in zip(type.shape, strides, plain.strides, strict=True))
    if aligned and (strides == plain.strides or not plain.size):
        return plain
    key = (type, strides, aligned)
    with _lock:
        found = _strided.get(key)
        if found is None:
            found = _strided[key] = Spec()
            found.type, found.shape, found.dtype = type, type.shape, type.dtype
            found.size, found.nbytes = type.size, type.nbytes
            found.strides, found.contiguous, found.aligned = strides, strides == plain.strides, aligned
            found.scalar = False
    return found


def spec(shape: Any, dtype: Any = np.float64) -> Spec:
    """Stands for an array in `f.graph(...)`, `f.compile(...)` and the like.

    shape: an int or a sequence of ints. Raises DTypeError and ShapeError.

    >>> kg.kernel_graph(lambda x: x @ x).graph(kg.spec((4, 4), "f4")).nodes[-1].type.shape
    (4, 4)
    """
    lengths = to_shape(shape)
    if min(lengths, default=0) < 0:
        raise ShapeError(f"negative length in shape {lengths}")
    if dtype is None:
        raise DTypeError("dtype=None is no dtype; leave it out for float64")
    return spec_of(ArrayType(lengths, checked_dtype(dtype)))
