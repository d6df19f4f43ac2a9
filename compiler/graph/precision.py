"""How exactly products of float32 and complex64 are computed where a library is faster with less: a permission, which a
trace notes on its products. NumPy and CPUs take no notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

PRECISIONS = ("float32", "tf32", "bf16", "tf32x3")  # tf32x3: numbers as sums of two of TF32
ROUNDED_DTYPES = (np.dtype(np.float32), np.dtype(np.complex64))
_given: ContextVar[str] = ContextVar("precision", default="")  # empty: the function's own


@contextmanager
def given_precision(name: str) -> Iterator[None]:
    """Products that are traced inside have it; empty: that which they had anyway."""
    token = _given.set(name or _given.get())
    try:
        yield
    finally:
        _given.reset(token)


@contextmanager
def own_precision() -> Iterator[None]:
    """Products that are traced inside have that of their function, whatever is given around."""
    token = _given.set("")
    try:
        yield
    finally:
        _given.reset(token)


def precision_attrs(dtype: Any, own: str | None = None) -> tuple[tuple[str, str], ...]:
    """Attributes of a product with a result of the dtype. own: of a product that it is derived from."""
    name = _given.get() if own is None else own
    return (("precision", name),) if name and dtype in ROUNDED_DTYPES else ()


def precision_of_attrs(attrs: tuple[tuple[str, Any], ...]) -> str:
    """What a product's attributes say; empty where nothing."""
    return str(dict(attrs).get("precision", ""))
