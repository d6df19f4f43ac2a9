"""Looking up, scanning, sorting, counting and scattering on a GPU, against NumPy; no step runs on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.interpret.topk import numpy_topk

pytestmark = pytest.mark.usefixtures("device")

SHAPES = [((1000,), 0), ((300_001,), 0), ((37, 5000), 1), ((5000, 37), 0), ((20, 9, 130), 1), ((9000, 40), 0)]
DTYPES = ["f4", "f8", "i4", "i8", "u1", "i2", "f2", "?"]


def numbers(dtype: str, shape: Any, special: bool = False) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    kind = np.dtype(dtype)
    if kind.kind in "biu":
        info = (0, 2) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        return rng.integers(*info, shape, dtype=kind)
    x = rng.standard_normal(shape).astype(kind)
    if special:
        x.ravel()[rng.integers(0, x.size, 40)] = np.resize([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], 40)
    return x


def ours(function: Any, *args: Any) -> Any:
    f = kg.kernel_graph(device="cuda")(function)
    assert not any(
        "host" in note for note in str(f.explain(*args, verbose=True)).splitlines() if "runs on the host" in note
    )
    return np.asarray(f(*args))


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_order(dtype: str, shape: Any, axis: int) -> None:
    x = numbers(dtype, shape, special=True)
    np.testing.assert_array_equal(ours(lambda x: np.sort(x, axis), x), np.sort(x, axis))
    few = x if dtype in ("f4", "?", "u1") else (x > 0).astype(dtype)  # many equal ones
    np.testing.assert_array_equal(
        ours(lambda x: np.argsort(x, axis, kind="stable"), few), np.argsort(few, axis, kind="stable")
    )


@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((1 << 24,), 0)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
def test_running_sums(dtype: str, shape: Any, axis: int) -> None:
    x = numbers(dtype, shape)
    wanted = np.cumsum(x, axis, dtype=np.longdouble if x.dtype.kind == "f" else None)
    got = ours(lambda x: np.cumsum(x, axis), x)
    if x.dtype.kind == "f":
        scale = np.abs(wanted).max()
        assert np.abs(got - wanted).max() <= scale * np.finfo(x.dtype).eps * 40
        again = ours(lambda x: np.cumsum(x, axis), x)
        assert np.array_equal(again, got)
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "?", "c8", "f2"])
def test_looking_up(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 2, (700, 33)) if dtype == "?" else rng.integers(-9, 9, (700, 33))).astype(dtype)
    i, j = rng.integers(-700, 700, (50, 3)), rng.integers(0, 33, (50, 3)).astype("u1")
    for function in (
        lambda x, i, j: x[i],
        lambda x, i, j: x[i, j],
        lambda x, i, j: x[:, j],
        lambda x, i, j: x[::-2, None, j],
        lambda x, i, j: x[i].sum(-1),
        lambda x, i, j: np.take(x, i, 1, mode="wrap"),
        lambda x, i, j: np.take(x.T, i, 1, mode="clip"),
    ):
        np.testing.assert_array_equal(ours(function, x, i, j), function(x, i, j))


def test_bad_indices_stay_inside() -> None:
    f = kg.kernel_graph(device="cuda")(lambda x, i: x[i])
    x = np.arange(10.0)
    assert np.asarray(f(x, np.array([99, -99, 3])))[2] == 3


def test_counting() -> None:
    rng = np.random.default_rng(0)
    for dtype, bins in (("i4", 256), ("u1", 256), ("i8", 40_000), ("i4", 3)):
        x = rng.integers(0, min(bins, 200), 1_000_003).astype(dtype)
        np.testing.assert_array_equal(
            ours(lambda x, n=bins: np.bincount(x, minlength=n), x), np.bincount(x, minlength=bins)
        )
    x = numbers("f4", 1_000_003, special=True)
    histogram = lambda x: np.histogram(x, 100, (-3.0, 3.0))[0]  # noqa: E731
    np.testing.assert_array_equal(ours(histogram, x), histogram(x))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8", "i1"])
def test_bins(dtype: str) -> None:
    """By edges, rising and falling, and in the range of the values."""
    x, w = numbers(dtype, 300_007), np.random.default_rng(0).integers(0, 9, 300_007)
    edges = np.sort(numbers(dtype, 50))
    for function in (
        lambda x, e, w: np.digitize(x, e),
        lambda x, e, w: np.digitize(x, e[::-1], True),
        lambda x, e, w: np.histogram(x, e)[0],
        lambda x, e, w: np.histogram(x, e, weights=w)[0],
        lambda x, e, w: np.histogram(x, 77)[0],
        lambda x, e, w: np.histogram(x, 77)[1],
        lambda x, e, w: np.histogram(x, 5, weights=w)[0],
        lambda x, e, w: np.histogram(x * 0 + 3, 4, density=True)[0],
    ):
        np.testing.assert_array_equal(ours(function, x, edges, w), function(x, edges, w))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u8"])
def test_searching(dtype: str) -> None:
    table, x = np.sort(numbers(dtype, 5000)), numbers(dtype, (300, 70))
    for side in ("left", "right"):
        function = lambda t, x, s=side: np.searchsorted(t, x, s)  # noqa: E731
        np.testing.assert_array_equal(ours(function, table, x), function(table, x))


@pytest.mark.parametrize("dtype", ["f4", "i8", "f2"])
def test_scattering(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, i = rng.integers(-9, 9, (300, 40)).astype(dtype), rng.integers(-300, 300, 20_000)
    v = rng.integers(-9, 9, (20_000, 40)).astype(dtype)

    def last(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        y[i] = v
        return y

    def added(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, v)
        return y

    np.testing.assert_array_equal(ours(last, x, i, v), last(x, i, v))
    np.testing.assert_array_equal(ours(added, x, i, v), added(x, i, v))


@pytest.mark.parametrize(("shape", "axis"), [SHAPES[0], SHAPES[3], ((4, 90_001), 1), ((200, 9000), 1)])
@pytest.mark.parametrize("dtype", ["f4", "i8", "u1", "f2", "?"])
def test_the_greatest(dtype: str, shape: Any, axis: int) -> None:
    x = numbers(dtype, shape, special=True)
    for k, largest in ((1, True), (min(23, shape[axis]), False), (shape[axis] // 20, True), (shape[axis] // 3, False)):
        places = ours(lambda x, k=k, g=largest: kg.topk(x, k, axis, g)[1], x)
        np.testing.assert_array_equal(places, numpy_topk(x, k, axis, largest))


@pytest.mark.parametrize(("shape", "axis"), [SHAPES[0], ((9000, 40), (0, 1)), ((200, 9000), 1), ((1 << 22,), None)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "f2"])
def test_order_statistics(dtype: str, shape: Any, axis: Any) -> None:
    x = numbers(dtype, shape)
    y = x.copy()
    if x.dtype.kind == "f":
        y.ravel()[:: x.size // 7] = np.nan
    for function in (
        lambda x, y: np.median(x, axis),
        lambda x, y: np.median(y, axis),
        lambda x, y: np.percentile(x, 93.3, axis),
        lambda x, y: np.quantile(x, (0.1, 0.25, 0.9), axis, method="higher"),
        lambda x, y: np.nanmedian(y, axis),
        lambda x, y: np.nanpercentile(y, [10, 99], axis),
        lambda x, y: np.quantile(x, (0.3, 0.5), axis, method="inverted_cdf"),
        lambda x, y: np.quantile(x, 0.41, axis, method="averaged_inverted_cdf"),
        lambda x, y: np.percentile(y, 50.0, axis, method="closest_observation"),
        lambda x, y: np.nanquantile(y, 0.77, axis, method="closest_observation"),
        lambda x, y: np.nanquantile(y, (0.2, 0.9), axis, method="nearest"),
    ):
        np.testing.assert_array_equal(ours(function, x, y), function(x, y))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers(dtype: str) -> None:
    x = numbers("f4", (50, 600), special=True).astype(dtype)
    x.imag = numbers("f4", (50, 600), special=True)[::-1].round()
    x.real = x.real.round()
    for axis in (0, 1):
        place = lambda x, a=axis: np.argsort(x, axis=a, kind="stable")  # noqa: E731
        np.testing.assert_array_equal(ours(place, x), place(x))
        np.testing.assert_array_equal(ours(lambda x, a=axis: np.sort(x, axis=a), x), np.sort(x, axis=axis))
        z = np.nan_to_num(x, nan=0.5, posinf=1, neginf=1)
        for function in (np.cumsum, lambda z, a: np.cumprod(z / (2 * abs(z) + 1), a)):
            wanted = function(z.astype("c16"), axis)
            got = ours(lambda z, f=function, a=axis: f(z, a), z)
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-4 * np.abs(wanted).max())


def test_order_by_several_keys() -> None:
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 5, (3, 20_000)).astype("i2"), rng.random((3, 20_000)).round(2), rng.random((3, 20_000)) < 0.3
    for axis in (0, 1):
        function = lambda *keys, a=axis: np.lexsort(keys, axis=a)  # noqa: E731
        np.testing.assert_array_equal(ours(function, *keys), function(*keys))


@pytest.mark.parametrize("places", [1, 16, 4096, 1 << 19])
def test_many_values_for_few_places(places: int) -> None:
    """Integers as NumPy has them, floats near it and the same bits each time; weighted counts."""
    rng = np.random.default_rng(0)
    i = np.append(rng.integers(0, places, 1_000_003), np.full(70_000, places // 2))
    v, zeros = rng.standard_normal(len(i)).astype("f4"), np.zeros(places, "f4")

    def added(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.add.at(y, i, v)
        return y

    whole = (100 * v).astype("i4")
    wanted = added(zeros.astype("i4"), i, whole)
    np.testing.assert_array_equal(ours(added, zeros.astype("i4"), i, whole), wanted)

    def greatest(x: Any, i: Any, v: Any) -> Any:
        y = x.copy()
        np.maximum.at(y, i, v)
        return y

    given = zeros.astype("u4"), i, whole.astype("u4")
    np.testing.assert_array_equal(ours(greatest, *given), greatest(*given))
    got = ours(added, zeros, i, v)
    np.testing.assert_array_equal(ours(added, zeros, i, v), got)
    np.testing.assert_allclose(got, added(zeros.astype("f8"), i, v), rtol=1e-3, atol=1e-2)
    weighed = ours(lambda i, v: np.bincount(i, v, places), i, v)
    np.testing.assert_allclose(weighed, np.bincount(i, v, places), rtol=1e-9, atol=1e-9)
