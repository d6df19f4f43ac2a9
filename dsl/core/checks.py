"""Shapes, integers, dtypes and kinds of arrays as the caller gives them, checked."""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_of
from .errors import DTypeError

# Subclasses of NumPy's arrays that have ways of their own, which change nothing of what the arrays mean.
_HARMLESS = frozenset({np.memmap})
_NO_MEANING = frozenset({"__doc__", "__module__", "__new__", "__hash__"})


def to_index(x: Any, what: str) -> int:
    """A Python int. Raises DTypeError for anything else."""
    try:
        return operator.index(x)
    except TypeError:
        raise DTypeError(f"{what} must be an int, not {describe_value(x)}") from None


def to_shape(shape: Any) -> tuple[int, ...]:
    """A tuple of Python ints from an int or a sequence of ints. Raises DTypeError."""
    if type(shape) is np.ndarray:
        shape = shape.tolist()
    entries = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(to_length(n) for n in entries)


def to_length(n: Any) -> int:
    """A length in a shape, which is no bool. Raises DTypeError."""
    if type(n) is bool:
        raise DTypeError(f"a length in a shape: an integer is required, not {n}; write int({n})")
    return to_index(n, "a length in a shape")


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """The supported dtype that `dtype` names. Raises DTypeError."""
    if hasattr(dtype, "__array_ufunc__") and not isinstance(dtype, (type, np.generic)):
        raise DTypeError("cannot construct a dtype from an array; write x.dtype")
    try:
        return dtype_of(dtype)
    except TypeError as error:
        raise DTypeError(str(error)) from None


def is_plain_array(kind: Any) -> bool:
    """Whether arrays of this kind are NumPy's and mean nothing else, as units, masks and a `*` that is matmul do."""
    return kind is np.ndarray or _is_harmless_subclass(kind)


@cache
def _is_harmless_subclass(kind: Any) -> bool:
    own = {name for base in kind.__mro__[: kind.__mro__.index(np.ndarray)] for name in vars(base)} - _NO_MEANING
    return kind in _HARMLESS or own.isdisjoint(vars(np.ndarray))


def refused_subclass_error(kind: type) -> DTypeError:
    """The error for arrays of a subclass with a meaning of its own."""
    instead = "x.filled(0)" if hasattr(kind, "filled") else "np.asarray(x)"
    return DTypeError(f"a {kind.__name__} has a meaning of its own; write {instead}")


def describe_value(x: Any) -> str:
    """A value in an error's text: itself where that is short, else its type."""
    text = repr(x)
    return text if len(text) < 40 else f"a {type(x).__name__}"
