"""What docs/interop.md says of each library, tried with the library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

from .interop import library

X = np.arange(24.0).reshape(2, 3, 4)


def ours(x: Any) -> kg.Array:
    return kg.asarray(x, device="cpu")


def cpu(function: Any) -> Any:
    return kg.kernel_graph(function, device="cpu")


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)


def test_array_api_compat() -> None:
    compat = library("array_api_compat")
    a = ours(X)
    assert compat.is_array_api_obj(a) and compat.array_namespace(a) is kg and compat.device(a) == "cpu"
    equal(cpu(lambda x: compat.array_namespace(x).sum(x * x, axis=0))(X), (X * X).sum(0))


def test_einops() -> None:
    library("einops")
    einops: Any = library("einops.array_api")

    def all_of(x: Any) -> Any:
        return (
            einops.rearrange(x, "a b c -> (a b) c"),
            einops.reduce(x, "a b c -> b", "mean"),
            einops.repeat(x, "a b c -> a b c d", d=2),
        )

    expected = X.reshape(6, 4), X.mean((0, 2)), np.repeat(X[..., None], 2, -1)
    for found in (all_of(ours(X)), cpu(all_of)(X)):
        for a, b in zip(found, expected, strict=True):
            assert isinstance(a, kg.Array)
            equal(a, b)


def test_opt_einsum() -> None:
    contract = library("opt_einsum").contract
    assert isinstance(contract("abc,abc->a", ours(X), ours(X)), kg.Array)
    for found in (contract("abc,abc->a", ours(X), ours(X)), cpu(lambda x: contract("abc,abc->a", x, x))(X)):
        equal(found, (X * X).sum((1, 2)))


def test_xarray() -> None:
    xarray = library("xarray")
    values = np.arange(10.0)
    data = xarray.DataArray(ours(values), dims="t", coords={"t": np.arange(10) % 2})
    assert isinstance(data.data, kg.Array) and isinstance((data + 1).data, kg.Array)
    equal(data.rolling(t=3).mean(), [np.nan, np.nan, *range(1, 9)])
    equal(data.rolling(t=3, min_periods=1).sum(), [0, 1, *(3 * i for i in range(1, 9))])
    equal(data.groupby("t").mean(), [4, 5])
    equal(data.isel(t=slice(2, 4)), [2, 3])
    assert float(data.mean()) == 4.5


def test_zarr(tmp_path: Path) -> None:
    zarr = library("zarr")
    zarr.save(str(tmp_path / "a.zarr"), ours(X))
    equal(zarr.load(str(tmp_path / "a.zarr")), X)
    stored = zarr.create_array(str(tmp_path / "b.zarr"), shape=X.shape, dtype="f8")
    stored[:] = ours(X)
    equal(kg.asarray(stored), X)


def test_h5py(tmp_path: Path) -> None:
    h5py = library("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = ours(X)
        file["x"][1] = ours(X[0])
        equal(cpu(lambda x: x * 2)(file["x"]), np.stack([X[0], X[0]]) * 2)


def test_pandas() -> None:
    pandas = library("pandas")
    values = np.arange(5.0)
    frame = pandas.DataFrame({"a": ours(values), "b": ours(values + 1)})
    frame["c"] = ours(values)
    assert frame.dtypes.unique().tolist() == [np.float64] and frame.to_numpy().sum() == 35
    equal(cpu(lambda x: x * 2)(frame["a"]), values * 2)
    assert isinstance(frame["a"] + ours(values), pandas.Series)


def test_scikit_learn() -> None:
    library("sklearn")
    linear, preprocessing = library("sklearn.linear_model"), library("sklearn.preprocessing")
    samples = np.random.default_rng(0).random((20, 3))
    model = linear.LinearRegression().fit(ours(samples), ours(samples @ [1.0, 2.0, 3.0]))
    equal(model.coef_, [1, 2, 3])
    equal(preprocessing.StandardScaler().fit_transform(ours(samples)).mean(0), np.zeros(3))


DISPATCH = """
import numpy as np, kernelgraph as kg, sklearn
from sklearn.preprocessing import StandardScaler
with sklearn.config_context(array_api_dispatch=True):
    print(type(StandardScaler().fit_transform(kg.asarray(np.eye(3), device="cpu"))) is kg.Array)
"""


def test_scikit_learn_over_the_array_api() -> None:
    library("sklearn")
    run = subprocess.run(
        [sys.executable, "-c", DISPATCH], capture_output=True, text=True, env={**os.environ, "SCIPY_ARRAY_API": "1"}
    )
    assert run.stdout.strip() == "True", run.stderr


SCIPY: dict[str, Any] = {
    "ndimage": lambda s, x: s("ndimage").gaussian_filter(x, 1.0),
    "linalg": lambda s, x: s("linalg").solve(x[0, :3, :3], x[0, :3, 0]),
    "fft": lambda s, x: s("fft").dct(x),
    "interpolate": lambda s, x: s("interpolate").interp1d(x[0, 0], x[0, 1])(0.5),
    "sparse": lambda s, x: s("sparse").csr_matrix(x[0]),
    "spatial": lambda s, x: s("spatial.distance").cdist(x[0], x[1]),
    "optimize": lambda s, x: s("optimize").minimize(lambda p: (p**2).sum(), x[0, 0]).x,
}


@pytest.mark.parametrize("name", SCIPY)
def test_scipy_inside_of_a_trace_is_refused_with_what_to_write(name: str) -> None:
    loaded = {module: library(f"scipy.{module}") for module in (name, "spatial.distance")}

    def scipy(module: str) -> Any:
        return loaded[module]

    program = kg.kernel_graph(lambda x: SCIPY[name](scipy, x), device="cpu", untraceable="refuse")
    with pytest.raises(Exception) as raised:
        program(X)
    assert "kg.host(" in "\n".join([str(raised.value), *getattr(raised.value, "__notes__", ())])


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
@pytest.mark.filterwarnings("ignore:overflow|invalid|divide:RuntimeWarning")
def test_every_ufunc_of_scipy_is_itself() -> None:
    """Those without a kernel run in NumPy."""
    special, wrong, tried = library("scipy.special"), [], 0
    x = np.array([0.2, 0.5, 0.9])
    for name, ufunc in sorted(vars(special).items()):
        if not isinstance(ufunc, np.ufunc) or "d" * ufunc.nin not in {t.partition("->")[0] for t in ufunc.types}:
            continue
        tried += 1
        want = ufunc(*[x] * ufunc.nin)
        got = cpu(lambda *args, ufunc=ufunc: ufunc(*args))(*[x] * ufunc.nin)
        pairs = zip(got, want, strict=True) if ufunc.nout > 1 else [(got, want)]
        if not all(np.allclose(np.asarray(g), w, rtol=1e-12, equal_nan=True) for g, w in pairs):
            wrong.append(name)
    assert not wrong and tried > 150


def test_scipy_by_kg_host() -> None:
    ndimage = library("scipy.ndimage")

    def blurred(x: Any, out: Any) -> None:
        out[...] = ndimage.gaussian_filter(x, 1.0)

    def function(x: Any) -> Any:
        return kg.host(blurred, reads=x * 2, writes=kg.spec(x.shape, x.dtype)) + 1

    equal(cpu(function)(X), ndimage.gaussian_filter(X * 2, 1.0) + 1)


# what pickles by value

BY_VALUE = """
import sys, cloudpickle, numpy as np, kernelgraph as kg
SCALE = 3.0

@kg.kernel_graph(device="cpu", static_argnames="n")
def f(x, n=1):
    return SCALE * x * n if n < 3 else f(x, n - 1)

@kg.elementwise
def clipped(x):
    return x * SCALE if x > 0 else 0.0

class Model:
    k = 2.0

    @kg.kernel_graph(device="cpu")
    def apply(self, x):
        return clipped(x * self.k)

def outer(k):
    @kg.kernel_graph(device="cpu")
    def inner(x):
        return x * k + f(x)
    return inner

many = (f, kg.kernel_graph(lambda x: x + SCALE, device="cpu"), outer(5.0), clipped, Model())
sys.stdout.buffer.write(cloudpickle.dumps(many))
"""
READ = """
import sys, pickle, numpy as np
f, added, inner, clipped, model = pickle.load(sys.stdin.buffer)
x = np.ones(2)
print([np.asarray(r).tolist() for r in (f(x), f(x, 2), f(x, 3), added(x), inner(x), clipped(-x), model.apply(x))])
"""


def test_cloudpickle_takes_functions_of_a_script_by_value() -> None:
    library("cloudpickle")
    written = subprocess.run([sys.executable, "-c", BY_VALUE], capture_output=True)
    assert not written.returncode, written.stderr.decode()
    read = subprocess.run([sys.executable, "-c", READ], input=written.stdout, capture_output=True)
    expected = [[3.0, 3.0], [6.0, 6.0], [6.0, 6.0], [4.0, 4.0], [8.0, 8.0], [0.0, 0.0], [6.0, 6.0]]
    assert read.stdout.decode().strip() == str(expected), read.stderr.decode()


WORKERS = """
import numpy as np, kernelgraph as kg
SCALE = 3.0

@kg.kernel_graph(device="cpu")
def f(x):
    return x * SCALE

if __name__ == "__main__":
    inputs = [np.full(2, i) for i in range(3)]
    if {joblib}:
        import joblib
        results = joblib.Parallel(n_jobs=2)(joblib.delayed(f)(x) for x in inputs)
    else:
        import dask
        results = dask.compute(*[dask.delayed(f)(x) for x in inputs], scheduler="processes", num_workers=2)
    print([np.asarray(r).tolist() for r in results])
"""


@pytest.mark.parametrize("name", ["joblib", "dask"])
def test_workers(name: str, tmp_path: Path) -> None:
    library(name)
    script = tmp_path / "script.py"
    script.write_text(WORKERS.replace("{joblib}", str(name == "joblib")))
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert run.stdout.strip() == "[[0.0, 0.0], [3.0, 3.0], [6.0, 6.0]]", run.stderr
