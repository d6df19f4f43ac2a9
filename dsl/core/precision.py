"""`kg.precision`: what factors of float32 products may be rounded to in a part of a program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...compiler.graph.precision import PRECISIONS, given_precision
from .context import context
from .errors import OptionError


def checked_precision(name: object) -> str:
    """Raises OptionError."""
    if name not in PRECISIONS:
        raise OptionError(f"precision={name!r} is none of {', '.join(map(repr, PRECISIONS))}")
    return str(name)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Let a GPU round the factors of float32 products and convolutions, in a `with` block.

    Parameters
    ----------
    name : str
        `tf32` (factors of 11 bits), `bf16` (8 bits), `tf32x3` (some 21 bits, in three products of TF32), or `float32`,
        which allows nothing. Sums are in float32. It is a permission: NumPy, CPUs and other dtypes take no notice. It
        goes for products inside of a traced function and for calls of functions that have no `precision=` of their own.

    Returns
    -------
    context manager

    Raises
    ------
    OptionError

    Examples
    --------
    >>> with kg.precision("tf32"):
    ...     np.matmul(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))[0, 0]
    np.float32(3.0)
    """
    before = context.precision
    with given_precision(checked_precision(name)):
        context.put_precision(name)
        try:
            yield
        finally:
            context.put_precision(before)
