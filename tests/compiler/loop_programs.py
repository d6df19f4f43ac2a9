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


# What is decided on the way


def shrunk(u: Any, turns: int) -> Any:
    """A condition of the values: NaN ends it, too."""
    return kg.while_loop(lambda c: (c[0].max() > 2.0**-turns) & (c[1] < 17), lambda c: (c[0] * 0.5, c[1] + 1), (u, 0))


def leapfrog(u: Any, turns: int) -> Any:
    """Values that take over others: the pattern of buffers has six turns."""

    def step(c: Any) -> Any:
        before, now, n = c
        return now, 2 * now - before + 0.25 * np.roll(now, 1), n + 1

    return kg.while_loop(lambda c: c[2] < turns, step, (u * 0.5, u, 0))


def kept(u: Any, turns: int) -> Any:
    """One value that never changes is carried along."""
    return kg.while_loop(lambda c: c[2] < turns, lambda c: (c[0], c[1] + c[0], c[2] + 1), (u, u * 0, 0))


def whiles(u: Any, turns: int) -> Any:
    def inner(c: Any) -> Any:
        x, n = c
        x, m = kg.while_loop(lambda d: d[1] < n % 3, lambda d: (d[0] + 1, d[1] + 1), (x, 0))
        return x * 0.5 + m, n + 1

    return kg.while_loop(lambda c: c[1] < turns, inner, (u, 0))


def chosen(u: Any, turns: int) -> Any:
    def step(c: Any) -> Any:
        x, n = c
        return kg.cond(n % 2 == 0, lambda x: x * 0.5, lambda x: x[::-1] + 1, x), n + 1

    return kg.while_loop(lambda c: c[1] < turns, step, (u, 0))


def either_way(u: Any, turns: int) -> Any:
    """A loop in one branch, a branch in the other."""
    more = u.sum() > 0
    return kg.cond(
        more,
        lambda u: shrunk(u, turns)[0],
        lambda u: kg.cond(u.max() > turns, lambda u: u - 1, lambda u: u * 2, u),
        u,
    )


def swept(u: Any, turns: int) -> Any:
    """Turns of a known number within, and turns of one that was computed beside."""

    def step(c: Any) -> Any:
        x, n = c
        return kg.fori_loop(0, 3, lambda i, x: x * 0.5 + i, x), n + 1

    return kg.while_loop(lambda c: c[1] < turns, step, (u, 0))


def multiplied(u: Any, turns: int) -> Any:
    """A library's product in each turn."""

    def turn(c: Any) -> Any:
        x, n = c
        return (x @ x.T + x[::-1] * 2 + n) % 7, n + 1

    return kg.while_loop(lambda c: c[1] < turns, turn, (np.arange(1600.0).reshape(40, 40) % 5 + u.sum(), 0))


DECIDED = (shrunk, leapfrog, kept, whiles, chosen, either_way, swept, multiplied)


# What is counted by a number that is computed, and turns that differ


def numbered(u: Any, turns: int) -> Any:
    """Turns of a number in memory, which use theirs."""
    return kg.fori_loop(0, (u * 0 + turns).max().astype(np.int64), lambda i, u: u[::-1] * 0.5 + i, u)


def two_at_once(u: Any, turns: int) -> Any:
    """Another array's row at each turn, by a window, and two values carried."""

    def step(c: Any, row: Any) -> Any:
        a, b = c
        return (a * 0.5 + row, b + a), (b.sum(), row - a)

    return kg.scan(step, (u, u * 2), np.arange(turns * 6.0).reshape(turns, 6))


def rounds(u: Any, turns: int) -> Any:
    """Turns that count within turns that count; the outer number only reaches the outer kernels."""

    def outer(i: Any, x: Any) -> Any:
        return kg.fori_loop(0, (x * 0 + 3).max().astype(np.int32), lambda j, x: x * 0.5 + j, x) + i

    return kg.fori_loop(0, turns, outer, u)


def counting_while(u: Any, turns: int) -> Any:
    """Turns that count, each of which has a loop and a branch."""

    def turn(i: Any, x: Any) -> Any:
        x = kg.while_loop(lambda c: c[1] < 2, lambda c: (c[0] + 1, c[1] + 1), (x, 0))[0]
        return kg.cond(x.sum() > 40, lambda x: x * 0.5, lambda x: x + 2, x)

    return kg.fori_loop(0, (u * 0 + turns).max().astype(np.int64), turn, u)


COUNTED = (counted_turns, scanned, numbered, two_at_once, rounds, counting_while)
