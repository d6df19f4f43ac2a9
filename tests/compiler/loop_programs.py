"""Programs with loops and branches, for the tests of devices: of an array and a number of turns."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernelgraph as kg


def jacobi(u: Any, turns: int) -> Any:
    def step(i: Any, u: Any) -> Any:
        u[1:-1] = 0.5 * (u[:-2] + u[2:])
        return u

    return kg.fori_loop(0, turns, step, u)


def wave(u: Any, turns: int) -> Any:
    def step(i: Any, state: Any) -> Any:
        before, u = state
        return u, 2 * u - before + 0.25 * np.roll(u, 1)

    return kg.fori_loop(0, turns, step, (u * 0.5, u))


def counted_turns(u: Any, turns: int) -> Any:
    return kg.fori_loop(2, turns + 2, lambda i, u: u * 0.5 + i, u)


def halved(u: Any, turns: int) -> Any:
    return kg.while_loop(lambda c: c[1] < turns, lambda c: (c[0] * 0.5, c[1] + 1), (u, 0))


def either(u: Any, turns: int) -> Any:
    return kg.cond(u.sum() > turns, lambda u: (u + 1, u[::-1] * 2), lambda u: (u - 1, u * 3), u)


def scanned(u: Any, turns: int) -> Any:
    return kg.scan(lambda c, row: (c * 0.5 + row, c.max()), u, np.arange(turns * 6.0).reshape(turns, 6))


def nested(u: Any, turns: int) -> Any:
    return kg.fori_loop(0, turns, lambda i, u: jacobi(u, 3) + i, u)


FUNCTIONS = (jacobi, wave, counted_turns, halved, either, scanned, nested)
