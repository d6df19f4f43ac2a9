"""Random arrays, and the property that a traced function gives what NumPy gives, or refuses what NumPy refuses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from hypothesis import strategies as st

from .tracing import assert_same, interpreted, magnitudes

FLOATS = ("f4", "f8")
REALS = ("i1", "u2", "i8", *FLOATS)
NUMBERS = (*REALS, "c8", "c16")
ANY = ("?", *NUMBERS, "f2")


@st.composite
def arrays(
    draw: Any,
    dtypes: tuple[str, ...] = NUMBERS,
    ndim: tuple[int, int] = (0, 3),
    least: int = 0,
    most: int = 5,
    shape: tuple[int, ...] | None = None,
    special: bool = False,
) -> np.ndarray[Any, Any]:
    """Values of a few digits; special: NaN, infinities and zeros among them."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    lengths = (
        shape
        if shape is not None
        else tuple(draw(st.lists(st.integers(least, most), min_size=ndim[0], max_size=ndim[1])))
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values: Any = np.asarray(rng.integers(-9, 9, lengths) / 4 if dtype.kind in "fc" else rng.integers(-9, 9, lengths))
    if dtype.kind == "c":
        values = values + 1j * rng.integers(-9, 9, lengths) / 4
    if dtype.kind == "u":
        values = np.abs(values)
    result = np.asarray(values > 0 if dtype.kind == "b" else values).astype(dtype)
    if special and dtype.kind in "fc" and result.size:
        places = rng.integers(0, result.size, 1 + result.size // 3)
        result.reshape(-1)[places] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], len(places))
    return result


def axis_of(ndim: int) -> st.SearchStrategy[int]:
    return st.integers(-ndim, ndim - 1)


def axes_of(ndim: int) -> st.SearchStrategy[Any]:
    """None, one axis, or a tuple of distinct ones."""
    several = st.lists(st.integers(0, ndim - 1), max_size=ndim, unique=True).map(tuple) if ndim else st.just(())
    return st.one_of(st.none(), several, *([axis_of(ndim)] if ndim else []))


def agrees(function: Any, *args: Any, ulps: float = 40, products: bool = False, **options: Any) -> None:
    """The trace of `function` gives NumPy's values, dtypes and shapes; it raises where NumPy does. products: it is one
    of `magnitudes`."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        try:
            expected = function(*args, **options)
        except Exception as refused:
            try:
                found = interpreted(function, *copies, **options)
            except Exception:
                return
            raise AssertionError(f"NumPy raises {refused!r}, the trace gives {found}") from None
        room = magnitudes(function, *args) if products else None
        assert_same(interpreted(function, *copies, **options), expected, ulps, room)
