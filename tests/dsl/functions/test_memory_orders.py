"""`order=` is NumPy's: capital and small letters, None, and what is refused, seen through the order of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg


def stored(x: Any, into: Any) -> Any:
    into[...] = x
    return into


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "reshape": lambda x, order: x.reshape(x.shape[::-1], order=order),
    "np.reshape": lambda x, order: np.reshape(x, x.shape[::-1], order=order),
    "ravel": lambda x, order: x.ravel(order=order),
    "flatten": lambda x, order: x.flatten(order=order),
    "copy": lambda x, order: (x + 1).copy(order=order).ravel("K"),
    "np.copy": lambda x, order: np.copy(x, order=order).ravel("K"),
    "astype": lambda x, order: x.astype("f4", order=order).ravel("K"),
    "astype without a copy": lambda x, order: x.astype("f8", order=order, copy=False).ravel("K"),
    "array": lambda x, order: np.array(x, order=order).ravel("K"),
    "asarray": lambda x, order: np.asarray(x, order=order).ravel("K"),
    "zeros": lambda x, order: stored(x, np.zeros(x.shape, order=order)).ravel("K"),
    "empty_like": lambda x, order: stored(x, np.empty_like(x, order=order)).ravel("K"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_order(way: str) -> None:
    x = np.arange(6.0).reshape(2, 3)
    for given in (x, x.T.copy().T, np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2)):
        for order in (*"CFAKcfak", None, "x", "fortran", ""):
            traced = kg.kernel_graph(lambda x, order=order: WAYS[way](x, order), device="cpu", untraceable="refuse")
            try:
                expected = WAYS[way](given.copy(order="K"), order)
            except (ValueError, TypeError):
                with pytest.raises((ValueError, TypeError)):
                    traced(given.copy(order="K"))
            else:
                np.testing.assert_array_equal(traced(given.copy(order="K")), expected, err_msg=repr(order))
