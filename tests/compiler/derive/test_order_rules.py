"""Sorting, selection, histograms and interpolation: both modes against differences, to the second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph import UnsupportedError

from .derivatives import check_function

rng = np.random.default_rng(0)
X = rng.permutation(60).reshape(3, 5, 4) * 0.25 - 6.0
NAN = X.copy()
NAN[0, 1, 2] = NAN[2, 3, 3] = np.nan


def squared(function: Any) -> Any:
    def f(*arrays: Any) -> Any:
        y = function(*arrays)
        return y * y

    return f


ONE: dict[str, Any] = {
    "sort": lambda x: np.sort(x, 1),
    "sort flat": lambda x: np.sort(x, None),
    "sort stable": lambda x: np.sort(x, 0, stable=True),
    "partition": lambda x: np.partition(x, 2, 1),
    "partition at several": lambda x: np.partition(x, (1, 30), None),
    "topk": lambda x: kg.topk(x, 2, 1)[0],
    "median": lambda x: np.median(x, 1),
    "median of an even number": lambda x: np.median(x, (0, 2), keepdims=True),
    "median of all": np.median,
    "quantile": lambda x: np.quantile(x, 0.3, 1),
    "quantiles": lambda x: np.quantile(x, [0.1, 0.5, 0.9], (0, 1)),
    "many quantiles": lambda x: np.quantile(x, [i / 8 for i in range(9)], 1),
    "percentile": lambda x: np.percentile(x, 35.0, 2),
    **{
        method: lambda x, method=method: np.quantile(x, 0.37, 1, method=method)
        for method in ("lower", "higher", "nearest", "midpoint", "hazen", "weibull", "median_unbiased", "inverted_cdf")
    },
}


@pytest.mark.parametrize("name", ONE)
def test_orders(name: str) -> None:
    check_function(squared(ONE[name]), X)


def test_complex_numbers_have_an_order_too() -> None:
    check_function(lambda x: np.sort(x, 1) ** 2, X + 1j * X[::-1])


NANS: dict[str, Any] = {
    "nanmedian": lambda x: np.nanmedian(x, 1),
    "nanquantile": lambda x: np.nanquantile(x, [0.2, 0.5], (0, 1)),
    "nanpercentile": lambda x: np.nanpercentile(x, 25.0, 1),
}


@pytest.mark.parametrize("name", NANS)
def test_values_that_are_nan_have_no_part(name: str) -> None:
    check_function(squared(NANS[name]), X)
    found = kg.grad(lambda x: NANS[name](x).sum())(NAN)
    assert np.isfinite(np.asarray(found)).all() and found[0, 1, 2] == 0


def test_choices() -> None:
    index = np.array([[0, 1, 2, 1], [2, 0, 0, -1]])
    for mode in ("wrap", "clip"):
        check_function(
            squared(lambda i, a, b, c, mode=mode: np.choose(i, [a, b, c], mode=mode)),
            index,
            *(rng.normal(size=s) for s in ((2, 4), (4,), (2, 1))),
        )


@pytest.mark.parametrize("sides", [{}, {"left": -1.0}, {"left": 0.5, "right": 2.0}, {"period": 3.0}])
def test_interpolation(sides: dict[str, Any]) -> None:
    x = rng.uniform(-0.5, 4.5, (3, 4))
    xp, fp = np.array([0.0, 0.7, 1.9, 2.6, 4.0]), rng.normal(size=5)
    check_function(squared(lambda x, xp, fp: np.interp(x, xp, fp, **sides)), x, xp, fp, near=1e-5)
    check_function(squared(lambda x, xp, fp: np.interp(x, xp, fp, **sides)), x, xp, fp + 1j * fp[::-1], near=1e-5)
    check_function(lambda x, fp: np.interp(x, np.arange(5), fp), x.astype(np.float32), fp, order=1, differences=False)


def test_sides_of_an_interpolation_are_arguments() -> None:
    x, xp, fp = np.array([-1.0, 0.5, 9]), np.array([0.0, 1, 2]), np.array([1.0, 3, 2])
    side = np.array(0.3)
    check_function(lambda x, xp, fp, s: np.interp(x, xp, fp, left=s, right=2 * s), x, xp, fp, side)
    check_function(lambda x, xp, fp: np.interp(x, xp[:1], fp[:1]), x, xp, fp)


def test_bessel() -> None:
    x = np.array([-3.0, -0.2, 0.0, 0.7, 8.5, 20.0])
    check_function(np.i0, x[:4])
    np.testing.assert_allclose(kg.grad(lambda x: np.i0(x).sum())(x)[-1], 4.245497338512777e7, rtol=1e-13)  # i1(20)


def test_weights_of_histograms() -> None:
    x, w = rng.uniform(-1, 6, 20), rng.normal(size=20)
    n = rng.integers(0, 4, 20)
    check_function(lambda n, w: np.bincount(n, w, 4) ** 2, n, w)
    check_function(lambda n, w: np.bincount(n, w, 4) ** 2, n, w.astype(np.float32), differences=False)
    check_function(lambda x, w: np.histogram(x, 5, (0, 5), weights=w)[0] ** 2, x, w)
    check_function(lambda x, w, e: np.histogram(x, e, weights=w)[0] ** 2, x, w, np.array([0.0, 1, 2.5, 6]))
    check_function(lambda x, w: np.histogram(x, 5, (0, 5), weights=w**2, density=True)[0], x, w)
    check_function(lambda x, w: np.histogram(x, 4, weights=w)[0] ** 2, x, w)
    check_function(lambda x: np.histogram(x, 4)[1] ** 2, x)
    points = rng.uniform(-1, 6, (20, 2))
    check_function(lambda x, w: np.histogramdd(x, (3, 4), ((0, 5), (0, 6)), weights=w)[0] ** 2, points, w)
    edges = np.array([0.0, 2, 5]), np.array([-1.0, 0, 1, 6])
    check_function(lambda x, w, a, b: np.histogramdd(x, [a, b], weights=w)[0] ** 2, points, w, *edges)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.histogramdd(x, 3)[0].sum(),
        lambda x: np.histogramdd(x, 3, ((0, 1),) * 2, density=True)[0].sum(),
        lambda x: np.quantile(x, x[0, 0] / 10),
    ],
)
def test_what_has_none_says_so(function: Any) -> None:
    with pytest.raises(UnsupportedError, match="no derivative"):
        kg.grad(function)(np.abs(rng.normal(size=(6, 2))))
