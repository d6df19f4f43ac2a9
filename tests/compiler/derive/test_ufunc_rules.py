"""Methods of ufuncs, and assignments: both modes against differences, to the second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph import UnsupportedError

from .derivatives import check_function

rng = np.random.default_rng(0)
X = rng.permutation(35).reshape(5, 7) * 0.1 - 1.73
LOGS = [np.logaddexp, np.logaddexp2, np.hypot]
EXTREMA = [np.maximum, np.minimum, np.fmax, np.fmin]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.subtract, np.divide, *LOGS, *EXTREMA])
def test_accumulations(ufunc: Any, axis: int) -> None:
    check_function(lambda x: ufunc.accumulate(x, axis) ** 2, X, near=1e-4 if ufunc is np.divide else 2e-6)
    if ufunc in (np.add, np.multiply, np.subtract):
        check_function(lambda x: ufunc.accumulate(x, axis), X + 1j * X**2, near=1e-5)


def test_running_sums_with_a_start() -> None:
    check_function(lambda x: np.cumulative_sum(x, axis=0, include_initial=True) ** 2, X)
    check_function(lambda x: np.cumulative_prod(x, axis=1, include_initial=True), X, near=1e-5)
    check_function(lambda x: np.nancumprod(x, 0), X, near=1e-5)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
@pytest.mark.parametrize("ufunc", [*LOGS, np.fmax, np.fmin])
def test_reductions(ufunc: Any, axis: Any) -> None:
    check_function(lambda x: ufunc.reduce(x, axis) ** 2, X)
    check_function(lambda x: ufunc.reduce(x, axis, keepdims=True, initial=0.3) ** 2, X)


@pytest.mark.parametrize("ufunc", [*LOGS, np.fmax])
def test_reductions_of_some(ufunc: Any) -> None:
    mask = rng.random(X.shape) < 0.6
    mask[:, 0] = True
    check_function(lambda m, x: ufunc.reduce(x, 1, where=m, initial=-5.0) ** 2, mask, X)


def test_complex_reductions() -> None:
    check_function(lambda x: np.prod(x, 1), X + 1j * X**2, near=1e-5)


@pytest.mark.parametrize("indices", [[0, 2, 4], [1, 1, 1, 3], [0], [2, 4]])
def test_sums_of_parts(indices: list[int]) -> None:
    at = np.array(indices)
    check_function(lambda x, i: np.add.reduceat(x, i, 0) ** 2, X, at)
    check_function(lambda x, i: np.add.reduceat(x, i, 1) ** 2, X, at)


def test_parts_that_overlap_have_no_derivative() -> None:
    at = np.array([3, 1])
    assert np.isnan(np.asarray(kg.grad(lambda x, i: np.add.reduceat(x, i).sum())(np.arange(5.0), at))).all()


def test_methods_without_one_say_so() -> None:
    for function in (lambda x: np.power.accumulate(x).sum(), lambda x: np.multiply.reduceat(x, [0, 2]).sum()):
        with pytest.raises(UnsupportedError, match="no derivative"):
            kg.grad(function)(np.arange(1.0, 5))


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
def test_extremes_at_places(ufunc: Any) -> None:
    places = np.array([2, 0, 2, -4, 2])

    def function(x: Any, v: Any, at: Any) -> Any:
        x = x * 1.0
        ufunc.at(x, at, v)
        return x**2

    check_function(function, X, rng.normal(size=(5, 7)), places)
    check_function(function, X, rng.normal(size=7), places)


@pytest.mark.parametrize("count", [3, 5, 8])
@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_put(mode: str, count: int) -> None:
    places = np.array([[2, 0], [-4, 2], [33, 7]]) if mode == "raise" else np.array([2, 40, -1, 2, 77, 5])

    def function(x: Any, v: Any, at: Any) -> Any:
        x = x * 1.0
        np.put(x, at, v, mode=mode)
        return x**2

    check_function(function, X, rng.normal(size=count), places)


@pytest.mark.parametrize("count", [1, 4, 40])
def test_place(count: int) -> None:
    mask = rng.random(X.shape) < 0.4

    def function(x: Any, v: Any, mask: Any) -> Any:
        x = x * 1.0
        np.place(x, mask, v)
        return x**2

    check_function(function, X, rng.normal(size=count), mask)


def test_values_that_are_spread_over_a_mask() -> None:
    mask = np.array([True, False, True, True, False])

    def function(x: Any, v: Any, mask: Any) -> Any:
        x = x * 1.0
        x[mask] = v
        return x**2

    check_function(function, X, rng.normal(size=(3, 7)), mask)
    check_function(function, X, rng.normal(size=(3, 1)), mask)
    check_function(function, X[:, 0], rng.normal(size=3), mask)


def test_a_mask_at_places_is_refused() -> None:
    def function(x: Any, mask: Any) -> Any:
        x = x * 1.0
        np.add.at(x, mask, x[0])
        return x.sum()

    with pytest.raises(UnsupportedError, match=r"x\[mask\] \+= values"):
        kg.grad(function)(X, np.array([True, False, True, True, False]))


def test_arrays_without_elements() -> None:
    for x in (np.ones((0, 3)), np.ones((3, 0))):
        for function in (np.subtract.accumulate, np.maximum.accumulate, np.hypot.reduce, np.logaddexp.reduce):
            for axis in (0, 1):
                check_function(lambda x, f=function, axis=axis: f(x, axis), x, differences=False)
