"""What lies outside of a traced function: it is traced where it computes. Arrays made inside, values that are known."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.linalg as la
from numpy import arange, zeros

from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import Grid, X, agree, cpu

SCALE = 2.0
OFFSETS = np.arange(8.0)


# arrays made inside


COPIES: Any = np._CopyMode  # type: ignore[attr-defined]  # as code for many array libraries passes it


def every_maker(x: Any, n: int) -> Any:
    made = [
        np.zeros(n),
        np.zeros((n, 2), dtype=int),
        np.zeros(shape=(2, n), dtype=np.float32, order="F"),
        np.ones((n,), bool),
        np.full(n, 2.5),
        np.full((2, n), 7, dtype="i2"),
        np.full(n, x[:n]),
        np.empty((n, n)) * 0,
        np.arange(n),
        np.arange(1, n, 2),
        np.arange(0.0, 1.0, 0.25),
        np.arange(start=2, stop=9, step=3),
        np.arange(n, dtype=np.float32),
        np.linspace(0, 1, n),
        np.linspace(0, 1, n, endpoint=False, dtype=np.float32),
        np.eye(n),
        np.eye(n, n + 1, k=1, dtype=int),
        np.eye(n, M=2),
        np.identity(n),
        np.tri(n),
        np.zeros_like(x),
        np.ones_like(x, dtype=int),
        np.full_like(x, 3),
        np.zeros_like([1, 2, 3]),
        np.array([1, 2, 3]),
        np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32),
        np.array([x[0], x[1] * 2, 1]),
        np.array([[x[0], 1], [2, x[1]]]),
        np.array([x, x + 1]),
        np.array(x),
        np.array([x[0], 2.0], copy=COPIES.IF_NEEDED),
        np.asarray(x, copy=COPIES.ALWAYS, device=x.device),
        np.array(5.0),
        np.array(x[:2], ndmin=2),
        np.asarray([x[0], 2.0]),
        np.ascontiguousarray(x[::2]),
        np.copy(x),
        np.fromiter((x[i] for i in range(n)), float),
        np.indices((2, n)),
        np.mgrid[0:n, 0:2],
        np.mgrid[-1:1:5j],
        np.mgrid[[slice(2), slice(n)]],
        np.ogrid[0:n],
        np.meshgrid(np.arange(n), np.arange(2.0))[0],
        np.r_[x[:2], 1.0, 2:4],
        np.c_[x[:3], x[1:4]],
        np.tile([1, 0], n),
        np.hanning(n),
        np.cumsum([1, 2, 3]),
        np.repeat([1, 2], 2),
        np.fft.fftfreq(n),
        np.logspace(0, 2, n),
        np.diag([1, 2, 3]),
        np.fromfunction(lambda i, j: i + j, (n, 2)),
        np.add.outer([1, 2], [3, 4]),
        zeros(n),
        arange(n),
        la.inv(np.eye(2) * 2),
    ]
    return made


def test_every_function_that_makes_arrays() -> None:
    agree(every_maker, X, 4)


def test_what_is_made_can_be_assigned_to() -> None:
    def function(x: Any, n: int) -> Any:
        made = every_maker(x, n)
        for array in made:
            array[...] = 4
            if array.dtype != bool:
                array += 1
        return made

    agree(function, X, 4)


def test_numpys_own_programs() -> None:
    def stack(x: Any) -> Any:
        rows = np.zeros((3, x.size))
        for i in range(3):
            rows[i] = x**i
        total = np.zeros(())
        for row in rows:
            total += row.sum()
        return rows, total

    def stencil(x: Any, steps: int) -> Any:
        new = np.empty_like(x)
        for _ in range(steps):
            new[1:-1] = (x[2:] + x[:-2]) / 2
            new[0] = new[-1] = 0
            x, new = new.copy(), x
        return x

    agree(stack, X)
    agree(stencil, X, 3)


def test_imports_inside() -> None:
    def function(x: Any) -> Any:
        import numpy
        import numpy.linalg as inner
        from numpy import full as filled

        from tests.dsl import world_helpers as helpers
        from tests.dsl.world_helpers import smoothed as smooth

        out = numpy.zeros(x.shape)
        out[:] = filled(x.shape, 3.0) + smooth(x) * helpers.WIDTH + helpers.blank(8) * 0
        return out, inner.norm(out)

    agree(function, X)


# values that no argument decides are known


def test_known_values_decide() -> None:
    directions = np.array([[0, 1], [1, 0], [-2, 0]])

    def function(x: Any) -> Any:
        shifts = np.array([0, 1, -1])
        out = np.zeros_like(x)
        for shift, weight in zip(shifts, np.linspace(0, 1, 3), strict=True):
            if weight > 0.1 and shift in (0, 1, -1):
                out += weight * np.roll(x, shift)
        for along, _ in directions:
            out = out + np.roll(x, along)
        count = int(np.arange(5).sum())
        table = {int(s): i for i, s in enumerate(shifts)}
        parts = out[: int(shifts.max()) + 3], x[shifts[1] :], np.zeros(np.array([2, 3]))
        return *parts, count, table[1], shifts.tolist()

    f = agree(function, X)
    directions[0] = 3
    assert_same(f(X), function(X))  # the contents decided how the trace went: traced again
    assert f.why().count("traced again") == 1
    assert_same(f(X), function(X))
    assert f.why().count("traced again") == 1


def test_a_captured_array_is_read_at_every_call() -> None:
    table = np.ones(8)
    f = cpu(lambda x: x * np.exp(table) + np.cumsum(table)[-1])
    for value in (1, 2, 3):
        table[:] = value
        assert_same(f(X), X * np.exp(table) + np.cumsum(table)[-1])
    assert f.why().count("traced for") == 1


# the rest


def test_isinstance_sees_arrays_and_scalars() -> None:
    def function(x: Any) -> Any:
        assert isinstance(x, np.ndarray) and isinstance(np.zeros(3), np.ndarray) and not np.isscalar(x)
        assert isinstance(x[0], np.float64) and isinstance(x[0], float) and np.isscalar(x.sum())
        assert isinstance(np.sin, np.ufunc) and np.sin == np.sin and {np.sin: 1}[np.sin] == 1
        assert np.shape([x, x]) == (2, 8) and np.ndim(x) == 1 and np.size(x) == 8 and np.size([x, x], 0) == 2
        return np.sin(x)

    agree(function, X)


def test_a_class_made_inside() -> None:
    def function(x: Any) -> Any:
        class Local:
            size = x.size

            def __init__(self, start: Any) -> None:
                self.value = start

            def grown(self) -> Any:
                return np.ones(self.size) * self.value

        class Derived(Local):
            def grown(self) -> Any:
                return super().grown() + 1

        @dataclass
        class Wider(Grid):
            more: Any = 2.0

            def gradient(self, y: Any) -> Any:
                return super().gradient(y) * self.more

        wider = Wider(8)
        assert isinstance(wider, Grid) and isinstance(wider, Wider) and not isinstance(x, Wider)
        return Derived(x).grown(), wider.gradient(x)

    agree(function, X)


def test_ordered_dicts_and_default_arguments() -> None:
    table = OrderedDict(b=X, a=2.0)
    agree(lambda x, w=OFFSETS: [x * v + w for v in table.values()], X)
