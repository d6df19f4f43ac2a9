"""Derivatives of high precision along a line, by mpmath: what those of kernelgraph are compared with.

A reference is a function of mpmath's numbers. Its derivatives of order 1 to 3 at t = 0 of f(a + t u, b + t v, ...) are
differences with hundreds of digits, on both sides of 0: their limits, whose mean is the convention where they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

ORDERS = 3
NEAR, NEARER, STEP = (mp.mpf(10) ** n for n in (-22, -27, -60))  # how far from 0, beside the arguments; and differences
CHANGES = mp.mpf(10) ** -10, mp.mpf(10) ** -12  # of the arguments, by which the condition is estimated
AGREE = mp.mpf(10) ** -9


@dataclass(frozen=True)
class Expected:
    """value: of a derivative, infinite where it diverges, None where there is none. condition: how much it changes, for
    a relative change of the arguments."""

    value: Any
    condition: Any


def wide(x: Any) -> Any:
    """An array, or a number, as mpmath's numbers."""
    if isinstance(x, np.ndarray):
        return np.array([wide(e) for e in x.ravel().tolist()] or [], object).reshape(x.shape)
    return mp.mpc(x) if isinstance(x, complex) else mp.mpf(x)


def on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of mpmath's, for arrays of its numbers too."""
    return lambda *args: (np.frompyfunc(function, len(args), 1) if _any_array(args) else function)(*args)


def _any_array(args: Sequence[Any]) -> bool:
    return any(isinstance(a, np.ndarray) for a in args)


def expected_derivatives(
    function: Callable[..., Any], args: Sequence[Any], line: Sequence[Any], side: int = 0
) -> list[Expected]:
    """Of order 1, 2, 3. side: -1 or 1 for the limit from below or above, 0 for the mean of both."""
    sizes = [abs(float(e)) for a in args for e in np.ravel(a).view(float) if np.isfinite(e) and e != 0]
    least, most = min([1.0, *sizes]), max([1.0, *sizes])
    digits = int(4 * (60 + np.log10(most / least)) + 3 * max(0, -np.log10(least))) + 60
    with mp.workdps(digits):
        exact, along = [wide(a) for a in args], [wide(u) for u in line]
        scale = mp.mpf(least)
        values = [
            _limit(*(_one_sided(function, exact, along, side, scale, d) for d in (NEAR, NEARER))) for side in (-1, 1)
        ]
        means = [_mean(left, right, side) for left, right in zip(*values, strict=True)]
        conditions = [mp.mpf(0)] * ORDERS
        for place in range(len(args)):
            first, second = (_changed(function, exact, along, place, scale, c, means) for c in CHANGES)
            for n, (a, b) in enumerate(zip(first, second, strict=True)):
                if a is not None and b is not None and abs(a - b) <= abs(a) / 4 and mp.isfinite(a):
                    conditions[n] += abs(a)
        return [Expected(v, c) for v, c in zip(means, conditions, strict=True)]


def _one_sided(
    function: Callable[..., Any], args: Sequence[Any], line: Sequence[Any], side: int, scale: Any, near: Any
) -> list[Any] | None:
    """The derivatives at a point beside 0; None where the function is not real there."""
    step, values = STEP * scale, []
    for k in (-3, -1, 1, 3):
        t = side * near * scale + k * step / 2
        try:
            value = function(*(a + t * u for a, u in zip(args, line, strict=True)))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(value, mp.mpc) and abs(value.imag) <= abs(value.real) * mp.mpf(10) ** (-mp.mp.dps + 20):
            value = value.real
        if isinstance(value, mp.mpc) or not mp.isfinite(value):
            return None
        values.append(value)
    a, b, c, d = values
    found = [(c - b) / step, (d - c - b + a) / (2 * step**2), (d - 3 * c + 3 * b - a) / step**3]
    noise = max(map(abs, values)) * mp.mpf(10) ** (20 - mp.mp.dps)
    return [mp.mpf(0) if abs(x) * step**n <= noise else x for n, x in enumerate(found, 1)]


def _limit(near: list[Any] | None, nearer: list[Any] | None) -> list[Any]:
    """What the derivatives go to, given them at two points."""
    if near is None or nearer is None:
        return [None] * ORDERS
    found = []
    for a, b in zip(near, nearer, strict=True):
        small = max(abs(a), abs(b)) < AGREE
        same = abs(a - b) <= AGREE * max(abs(a), abs(b))
        found.append(b if same else mp.mpf(0) if small else mp.sign(b) * mp.inf)
    return found


def _mean(left: Any, right: Any, side: int) -> Any:
    if side or left is None or right is None:
        return (right if left is None else left) if side <= 0 else (left if right is None else right)
    return (left + right) / 2 if left != right else left


def _changed(
    function: Callable[..., Any],
    args: Sequence[Any],
    line: Sequence[Any],
    place: int,
    scale: Any,
    change: Any,
    before: Sequence[Any],
) -> list[Any]:
    """How the derivatives change with an argument, by the change."""
    moved = [a * (1 + change) if i == place else a for i, a in enumerate(args)]
    found = _one_sided(function, moved, line, 1, scale, NEARER) or _one_sided(function, moved, line, -1, scale, NEARER)
    if found is None:
        return [None] * ORDERS
    return [None if b is None or not mp.isfinite(b) else (f - b) / change for f, b in zip(found, before, strict=True)]


def is_right(
    found: Any, expected: Expected, dtype: Any, ulps: float = 64, absolute: float = 0, anysign: bool = False
) -> bool:
    """Whether a derivative is as near as one of slightly other arguments. absolute: a size whose rounding error it may
    have too. anysign: whether an infinity may have another sign."""
    info, want = np.finfo(dtype), expected.value
    if want is None or mp.isnan(want):
        return True
    if mp.isinf(want):
        return bool(np.isinf(found) and (anysign or np.sign(found) == mp.sign(want)))
    if abs(want) > float(info.max) / 4:  # and what is between is too large, maybe with both signs
        return bool(not np.isfinite(found) or abs(found) > float(info.max) / 8)
    if not np.isfinite(found):
        return False
    error = abs(mp.mpf(float(found)) - want)
    return bool(error <= ulps * (float(info.eps) * (abs(want) + expected.condition + absolute) + float(info.tiny)))
