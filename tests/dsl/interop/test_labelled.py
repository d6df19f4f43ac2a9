"""pandas, xarray and polars: a call gives what the plain function gives, kind, labels and dtype included."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.core.settings import override

ROWS = 7


def numbers(dtype: str, seed: int, shape: tuple[int, ...] = (ROWS,)) -> Any:
    rng = np.random.default_rng(seed)
    x = rng.integers(-4, 5, shape) if dtype != "float64" else rng.normal(size=shape)
    return x.astype(dtype)


def series(dtype: str, seed: int) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.Series(numbers(dtype, seed), index=list("abcdefg"), name="s")


def frame(dtype: str, seed: int) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(numbers(dtype, seed, (ROWS, 3)), index=list("abcdefg"), columns=["u", "v", "w"])


def data_array(dtype: str, seed: int) -> Any:
    xarray = pytest.importorskip("xarray")
    values, coords = numbers(dtype, seed, (ROWS, 3)), {"t": np.arange(ROWS) * 10, "month": ("t", np.arange(ROWS) % 3)}
    return xarray.DataArray(values, dims=("t", "x"), coords=coords, name="d", attrs={"units": "K"})


def polars_series(dtype: str, seed: int) -> Any:
    polars = pytest.importorskip("polars")
    return polars.Series("p", numbers(dtype, seed))


def polars_frame(dtype: str, seed: int) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({"a": numbers(dtype, seed), "b": numbers(dtype, seed + 1)})


def pandas_index(dtype: str, seed: int) -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.Index(numbers(dtype, seed))


KINDS: dict[str, Callable[[str, int], Any]] = {
    make.__name__: make for make in (series, frame, data_array, polars_series, polars_frame, pandas_index)
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "arithmetic": lambda x: (x * 2 + 1) / 3 - x,
    "ufuncs": lambda x: np.exp(-np.abs(x)) + np.sqrt(np.square(x)),
    "comparison": lambda x: x > 1,
    "both": lambda x: (x > 0) & (x < 3),
    "invert": lambda x: ~(x == 1),
    "maximum": lambda x: np.maximum(x, 0),
    "floor division": lambda x: x // 0,
    "remainder": lambda x: x % 2,
    "power": lambda x: x**2,
    "negative": lambda x: -x,
    "round": lambda x: np.round(x),
    "sum": lambda x: x.sum(),
    "std": lambda x: x.std(),
    "mean": lambda x: np.mean(x),
    "cumulative": lambda x: np.cumsum(x),
    "where": lambda x: np.where(x > 0, x, 0),
    "array": lambda x: np.asarray(x) * 2,
    "several": lambda x: (x + 1, {"twice": x * 2, "values": np.where(x > 0, 1.0, 0.0)}, 3),
    "length": lambda x: x + len(x),
    "shift": lambda x: x[1:],
    "first": lambda x: x[0:1],
    "transposed": lambda x: x.T + 1,
    "cast": lambda x: x.astype("float32"),
    "column": lambda x: x["u"] + x["v"],
    "labels": lambda x: x.index,
    "dimension": lambda x: x.mean("t"),
    "row": lambda x: x + np.arange(3.0),
    "rolling": lambda x: x.rolling(2).mean(),
    "branch": lambda x: x + 1 if x.ndim == 1 else x - 1,
    "shape": lambda x: x * x.shape[0],
    "nothing of it": lambda x: np.zeros(3),
    "scalar times": lambda x: np.float32(2) * x,
    "reversed": lambda x: 1 - x,
}


def plainly(f: Callable[..., Any], *given: Any) -> tuple[Any, Any]:
    """The result of the plain function, or the class of its error."""
    try:
        return f(*given), None
    except Exception as error:
        return None, error


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple):
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, (np.ndarray, np.generic, int, float, bool)):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
    else:
        assert type(ours) is type(theirs)
        module = type(theirs).__module__.partition(".")[0]
        if module == "pandas":
            import pandas.testing as check

            getattr(check, f"assert_{'frame' if theirs.ndim == 2 else type(theirs).__name__.lower()}_equal")(
                ours, theirs, rtol=1e-12
            )
        elif module == "xarray":
            import xarray

            xarray.testing.assert_allclose(ours, theirs, rtol=1e-12)
            assert ours.attrs == theirs.attrs and ours.name == theirs.name and ours.dtype == theirs.dtype
            assert ours.coords.identical(theirs.coords)
        else:
            import polars.testing

            check_polars = "assert_frame_equal" if theirs.__class__.__name__ == "DataFrame" else "assert_series_equal"
            getattr(polars.testing, check_polars)(ours, theirs)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float64", "int64", "float32", "int8", "bool"])
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS.keys())
def test_each_function_gives_what_it_gives_plainly(make: Callable[[str, int], Any], dtype: str) -> None:
    for name, function in FUNCTIONS.items():
        f = kg.kernel_graph(function, device="cpu")
        for seed in range(2):  # the first call is as written; the second is compiled where that keeps labels
            theirs, error = plainly(function, make(dtype, seed))
            if error is not None:
                with pytest.raises(Exception, match=""):
                    np.asarray(f(make(dtype, seed)))
                break
            try:
                same(f(make(dtype, seed)), theirs)
            except Exception as wrong:
                raise AssertionError(f"{name}, seed {seed}: {wrong}") from wrong


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [series, frame, data_array, polars_series])
def test_two_of_them_and_arrays(make: Callable[[str, int], Any]) -> None:
    function = lambda x, y, z, n: (x * y + z) * n  # noqa: E731
    f = kg.kernel_graph(function, device="cpu")
    for seed in range(4):
        x, y = make("float64", seed), make("float64", seed + 10)
        z = numbers("float64", seed, np.shape(np.asarray(x)))
        same(f(x, y, z, seed), function(x, y, z, seed))


@pytest.mark.filterwarnings("ignore")
def test_labels_that_differ_are_aligned_as_pandas_does() -> None:
    pandas = pytest.importorskip("pandas")
    f = kg.kernel_graph(lambda x, y: x + y, device="cpu")
    a, b = pandas.Series([1.0, 2.0], index=["p", "q"]), pandas.Series([3.0, 4.0], index=["q", "p"])
    for x, y in ((a, a), (a, b), (b, b), (a, a)):
        same(f(x, y), x + y)


@pytest.mark.filterwarnings("ignore")
def test_names_and_attributes_belong_to_the_call() -> None:
    pandas = pytest.importorskip("pandas")
    f = kg.kernel_graph(lambda x, y: x + y, device="cpu")
    for one, two in (("a", "a"), ("a", "b"), (None, "b"), ("c", "c"), ("a", "b")):
        x, y = pandas.Series([1.0, 2.0], name=one), pandas.Series([3.0, 4.0], name=two)
        same(f(x, y), x + y)
        same(f(x, y), x + y)


def test_elementwise_calls_are_compiled() -> None:
    f = kg.kernel_graph(lambda x: np.exp(x) * 2, device="cpu", untraceable="refuse")
    for seed in range(3):
        same(f(series("float64", seed)), np.exp(series("float64", seed)) * 2)
    assert "compiled" in f.why() and "runs in NumPy" not in f.why()
    result = f(series("float64", 5))
    result.iloc[0] = 1.0  # of its own memory


def test_what_is_not_elementwise_is_told_and_refused_at_its_line() -> None:
    function = lambda x: x.std()  # noqa: E731
    data = series("float64", 0)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        f = kg.kernel_graph(function, device="cpu")
        assert [f(data) for _ in range(3)] == [data.std()] * 3
    assert [w.category for w in given] == [kg.FallbackWarning] and "pass x.to_numpy()" in str(given[0].message)
    with override(untraceable="refuse"):
        strict = kg.kernel_graph(function, device="cpu")
    with pytest.raises(kg.DTypeError, match=r"test_labelled\.py:\d+: an argument has labels"):
        strict(data)


def test_a_dataset_is_refused_at_its_line() -> None:
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset({"u": data_array("float64", 0)})
    with pytest.raises(kg.DTypeError, match=r"test_labelled\.py:\d+: a xarray Dataset cannot be read"):
        kg.kernel_graph(lambda x: x + 1, device="cpu")(data)


OUTSIDE: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "on the right": lambda s: lambda x: x + s,
    "on the left": lambda s: lambda x: s * x,
    "in a ufunc": lambda s: lambda x: np.add(x, s),
    "in a function": lambda s: lambda x: np.where(x > 0, s, x),
    "its sum": lambda s: lambda x: x * s.sum(),
    "its values": lambda s: lambda x: x + s.to_numpy(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("make", [series, polars_series])
def test_what_is_found_outside_keeps_its_labels(make: Callable[[str, int], Any], name: str) -> None:
    function = OUTSIDE[name](make("float64", 1))
    f = kg.kernel_graph(function, device="cpu")
    for seed in range(2):
        x = numbers("float64", seed)
        same(f(x), function(x))
