"""Whatever of a value is seen as other shapes, and whatever it becomes a part of, in either order: the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.compiler.access_audit import run_program


def _updated(s: Any) -> Any:
    u = np.zeros((5, 6))
    u[1:4, 1:5] = s
    return u


VALUES: dict[str, Callable[[Any], Any]] = {"host": lambda a: np.sort(a, 0), "kernel": lambda a: a + 1}
WHOLES: dict[str, Callable[[Any], Any]] = {
    "above": lambda s: np.concatenate([s, s + 1]),
    "beside": lambda s: np.concatenate([s, s + 1], 1),
    "within": lambda s: np.pad(s, 1),
    "nested": lambda s: np.pad(np.concatenate([s, s + 1]), ((0, 0), (1, 1))),
    "updated": _updated,
}
SHAPES: dict[str, Callable[[Any], Any]] = {
    "flat": lambda s: s.reshape(-1) * 2,
    "reduced": lambda s: s.ravel().argmin(),
    "rows": lambda s: s[1:].reshape(-1) * 2,
    "columns": lambda s: s.T.reshape(-1) + 1,
}


@pytest.mark.parametrize(("value", "whole", "shape", "first"), [*product(VALUES, WHOLES, SHAPES, (False, True))])
def test_a_part_that_is_reshaped(value: str, whole: str, shape: str, first: bool) -> None:
    def f(a: Any) -> Any:
        s = VALUES[value](a)
        if first:
            seen, large = SHAPES[shape](s), WHOLES[whole](s)
        else:
            large, seen = WHOLES[whole](s), SHAPES[shape](s)
        return large, large.sum(0), seen

    a = (np.arange(12.0) * 7 % 5).reshape(3, 4)
    found = run_program(kg.kernel_graph(f, device="cpu").program(a), [a])
    for got, want in zip(found, map(np.asarray, f(a)), strict=True):
        np.testing.assert_array_equal(got.view(want.dtype).reshape(want.shape), want)
