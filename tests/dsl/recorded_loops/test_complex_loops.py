"""Recorded loops of complex numbers, and of few turns each in many loops: what NumPy gives, in few nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded


def scattered(a: Any, b: Any, places: Any) -> Any:
    """As scattering_self_energies of NPBench: loops of few turns, eight deep there."""
    total = np.zeros_like(a)
    for k in range(3):
        for e in range(4):
            for q in range(2):
                for w in range(2):
                    for i in range(2):
                        for j in range(3):
                            for p in range(4):
                                if e - w >= 0:
                                    left = a[e - w, places[p, i]] @ b[p, i]
                                    total[e, p] += left @ (b[p, j % 2] * a[q, w, i, j]) * (k + 1)
    return total


def recurrence(a: Any, b: Any, places: Any) -> Any:
    z, count = 0j, 0
    for i in range(40):
        z = z * z + a[i % 4, 0, 0, 0]
        z = z.conjugate() * 0.5
        if abs(z) > 2:
            z = z / 4
            count += 1
        if z.real < -1:
            break
    return z, count


def turned(a: Any, b: Any, places: Any) -> Any:
    for i in range(30):
        a[0, :, 1] = a[0, :, 0] * 1j - np.conj(a[1, :, 0]) + i
        a[0, i % 4, 0] = a[2].sum() / (4 + 1j)
        a[1, :, 0] = np.where(np.abs(a[0, :, 0]) > 1, a[0, :, 1], a[1, :, 0].imag if False else 0.25)
    return a


PROGRAMS = [scattered, recurrence, turned]


@pytest.mark.parametrize("dtype", ["c16", "c8"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gives_what_numpy_gives(program: Callable[..., Any], dtype: str) -> None:
    rng = np.random.default_rng(5)

    def made(*shape: int) -> Any:
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)

    given = made(4, 4, 3, 3), made(4, 2, 3, 3), rng.integers(0, 4, (4, 2))
    ours, theirs = ([x.copy() for x in given] for _ in range(2))
    with recorded() as notes:
        compiled = kg.kernel_graph(program, device="cpu")
        got = compiled(*ours)
    want = program(*theirs)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == "c8" else 1e-11)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4 if dtype == "c8" else 1e-11)
    assert notes and not notes[-1].reasons


def test_loops_of_few_turns_are_recorded_where_they_are_many() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(size=(4, 4, 3, 3)) + 0j, rng.normal(size=(4, 2, 3, 3)) + 1j
    compiled = kg.kernel_graph(scattered, device="cpu")
    assert len(compiled.graph(a, b, rng.integers(0, 4, (4, 2))).nodes) < 20
