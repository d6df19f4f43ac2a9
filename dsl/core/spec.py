"""Arrays as a caller gives them: shapes, dtypes and kinds checked, where they lie in memory, and their `Spec`.

Kernels read arrays in native byte order, aligned, in steps of whole elements.
"""

from __future__ import annotations

import ctypes
import operator
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ...compiler.core.types import ArrayType, dtype_of
from ...runtime.core.readable_text import with_article
from .errors import ArgumentKindError, DTypeError, DTypeRefusal, Refusal, ShapeError
from .foreign_names import instead_of

Host = np.ndarray[Any, Any]
SCALAR_TYPES = frozenset({np.dtype(kind).type for kind in "?bBhHiIlLqQefdFD"})  # NumPy's numbers that kernels compute
MOST_SCALARS = 16  # of NumPy's in a result that are a `kg.Array` each: of more, all stay what they are


def are_many_scalars(leaves: Iterable[Any]) -> bool:
    """Whether the leaves of a result have so many scalars of NumPy's that these stay such."""
    return next(islice(filter(SCALAR_TYPES.__contains__, map(type, leaves)), MOST_SCALARS, None), None) is not None


def to_index(x: Any, what: str) -> int:
    """A Python int. Raises DTypeError for anything else, TraceError for a traced one."""
    try:
        return operator.index(x)
    except Refusal:
        raise
    except TypeError:
        raise DTypeError(f"{what} must be an int, not {describe_value(x)}") from None


def to_shape(shape: Any) -> tuple[int, ...]:
    """A tuple of Python ints from an int or a sequence of ints. Raises DTypeError."""
    if type(shape) is np.ndarray:
        shape = shape.tolist()
    return tuple(to_length(n) for n in entries_of(shape))


def entries_of(given: Any) -> Sequence[Any]:
    """The axes or lengths of one or several."""
    return given if isinstance(given, (tuple, list, range)) else (given,)


def to_length(n: Any) -> int:
    """A length in a shape, which is no bool. Raises DTypeError."""
    if type(n) is bool:
        raise DTypeError(f"a length in a shape: an integer is required, not {n}; write int({n})")
    return to_index(n, "a length in a shape")


INSTEAD = "; write one of NumPy's, such as np.float32"
DTYPE_NAMES = [f"{kind}{bits}" for kind in ("int", "uint", "float", "complex") for bits in (8, 16, 32, 64, 128)]


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """The supported dtype that `dtype` names. Raises DTypeError."""
    if hasattr(dtype, "__array_ufunc__") and not isinstance(dtype, (type, np.generic)):
        raise DTypeError("cannot construct a dtype from an array; write x.dtype")
    try:
        return dtype_of(dtype)
    except TypeError as error:
        known = str(error).startswith("dtype ")  # to NumPy
        instead = "" if known else instead_of(str(dtype).rpartition(".")[2], {}, DTYPE_NAMES) or INSTEAD
        raise (DTypeRefusal if known else DTypeError)(f"{error}{instead}") from None


def is_plain_array(kind: Any) -> bool:
    """Whether arrays of this kind are NumPy's, in memory or in a file, and their results too."""
    return kind is np.ndarray or kind is np.memmap


def array_subclass_spec_error(kind: type) -> ArgumentKindError:
    """The error for arrays of a subclass with a meaning of its own."""
    instead = "x.filled(0)" if hasattr(kind, "filled") else "np.asarray(x)"
    return ArgumentKindError(f"{with_article(kind.__name__)} has a meaning of its own; write {instead}")


def describe_value(x: Any) -> str:
    """A value in an error's text: itself where that is short, else its type."""
    text = repr(x)
    return text if len(text) < 40 else with_article(type(x).__name__)


def _spec_address_by_ctypes(array: Host) -> int:
    return array.ctypes.data


def _make_address_reader_of_arrays() -> Callable[[Host], int]:
    """`array.ctypes.data` takes 0.9 us. In every NumPy so far the field `data` is the first after the object's head."""
    offset = object.__basicsize__
    read = ctypes.c_void_p.from_address

    def read_data_pointer_of_array(array: Host) -> int:
        return read(id(array) + offset).value or 0

    samples: list[Host] = [
        np.arange(12, dtype=np.int16).reshape(3, 4)[1:, ::-2],
        np.zeros(0),
        np.float64(2) * np.ones(()),
        np.eye(5),
    ]
    return (
        read_data_pointer_of_array
        if _read_array_addresses_agree(read_data_pointer_of_array, samples)
        else _spec_address_by_ctypes
    )


def _read_array_addresses_agree(fast: Callable[[Host], int], samples: list[Host]) -> bool:
    import platform

    if platform.python_implementation() != "CPython":
        return False
    return all(fast(np.asarray(s)) == np.asarray(s).ctypes.data for s in samples)


address: Callable[[Host], int] = _make_address_reader_of_arrays()


def is_kernel_readable(array: Host) -> bool:
    """Whether kernels can read the array where it lies."""
    flags, dtype = array.flags, array.dtype
    return dtype.isnative and flags.aligned and not any(s % dtype.itemsize for s in array.strides)


def kernel_readable_copy(array: Host) -> Host:
    """The array, or a copy of it that kernels can read."""
    return array if is_kernel_readable(array) else np.array(array, native_byte_order(array.dtype), order="C")


def native_byte_order(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in native byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


class Spec:
    """What a trace needs to know of a C-contiguous array. Make one with `kg.spec(shape, dtype)`.

    Examples
    --------
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

    Parameters
    ----------
    shape
        An int or a sequence of ints.
    dtype : optional
        A dtype, as NumPy takes it.

    Returns
    -------
    Spec
        A `kg.Spec`.

    Raises
    ------
    DTypeError
    ShapeError

    Examples
    --------
    >>> kg.kernel_graph(lambda x: x @ x).graph(kg.spec((4, 4), "f4")).nodes[-1].shape
    (4, 4)
    """
    lengths = to_shape(shape)
    if min(lengths, default=0) < 0:
        raise ShapeError(f"negative length in shape {lengths}")
    if dtype is None:
        raise DTypeError("dtype=None is no dtype; leave it out for float64")
    return spec_of(ArrayType(lengths, checked_dtype(dtype)))
