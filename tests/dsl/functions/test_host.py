"""What NumPy does on the host gives NumPy's results: values, dtypes and shapes, for random arrays and options."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.agreement import ANY, FLOATS, NUMBERS, REALS, agrees, arrays, axes_of, axis_of
from tests.dsl.tracing import assert_same, interpreted

few = settings(max_examples=examples(40), deadline=None)
many = settings(max_examples=examples(80), deadline=None)
data_of = st.data()


@given(arrays(ANY, special=True), data_of)
@many
def test_sorting(x: Any, data: Any) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-3, 2)))
    kind = data.draw(st.sampled_from([None, "stable", "heapsort"]))
    agrees(lambda x: (np.sort(x, axis, kind), np.argsort(x, axis=axis, stable=True)), x)
    agrees(lambda x: np.lexsort((x, -x)), x.astype("f8"))


@given(arrays(ANY, (1, 3), 1), data_of)
@few
def test_descending_order(x: Any, data: Any) -> None:
    axis = data.draw(axis_of(x.ndim))
    wanted = np.flip(np.sort(x, axis), axis)
    assert_same(interpreted(lambda x: kg.sort(x, axis=axis, descending=True), x), wanted)
    assert_same(np.asarray(kg.sort(kg.asarray(x, device="cpu"), axis=axis, descending=True)), wanted)

    def places(x: Any) -> Any:
        return kg.argsort(x, axis=axis, descending=True, stable=True)

    order = interpreted(places, x)
    assert_same(order, np.asarray(places(kg.asarray(x, device="cpu"))))
    ranked = np.moveaxis(np.take_along_axis(x, order, axis), axis, 0)
    moved = np.moveaxis(order, axis, 0)
    np.testing.assert_array_equal(ranked, np.moveaxis(np.flip(np.sort(x, axis), axis), axis, 0))
    assert np.all((ranked[1:] != ranked[:-1]) | (moved[1:] > moved[:-1]))  # among equals the earlier one first


def _argument(function: Any, value: Any) -> Any:
    return lambda x: function(x, value)


X, COUNTS, SQUARE = np.arange(6.0).reshape(2, 3) - 2, np.arange(6, dtype=np.uint8), np.arange(9).reshape(3, 3)
# what NumPy takes or refuses, and how it is asked
OPTIONS: tuple[tuple[str, Any, Any, tuple[Any, ...]], ...] = (
    ("take mode", lambda x, v: np.take(x, [0, 1], mode=v), X, ("raise", "clip", "wrap", "bogus")),
    ("meshgrid indexing", lambda x, v: np.meshgrid(x[0], x[1], indexing=v)[0], X, ("xy", "ij", "no")),
    ("one choice", lambda x, v: np.where(x > 0, *v), X, ((1, 2), (1,))),
    ("tril", lambda x, k: (np.tril(x, k), np.triu(x[0], k)), X, (0, 1, -1)),
    ("bincount", lambda x, n: np.bincount(x, minlength=n), COUNTS, (6, 9, -1)),
    ("clip", lambda x, v: np.clip(x, *v), COUNTS,
     ((0, 300), (-1, 4), (-5, -1), (300, 400), (None, 300), (-1, None), (0, 2.5), (-1, 300))),
    ("clip signed", lambda x, v: x.clip(*v), SQUARE.astype("i1"), ((-200, 3), (2, 500), (-129, -128))),
    ("full", lambda x, v: np.full_like(x, v)[0, 0] + x, SQUARE, (3, 3.7, True)),
    ("weights", lambda x, n: np.average(x, weights=np.ones(n)), X, (3, 2)),
    ("square", lambda x, n: np.linalg.inv(x[:n, :2] + np.eye(n, 2) * 9), SQUARE, (2, 3)),
    ("matrix", lambda x, n: np.linalg.det(x[0, :n]), SQUARE, (1, 3)),
    ("out", lambda x, v: np.add(x, 1.5, out=x, casting=v), SQUARE, ("unsafe", "same_kind", "no", "safe")),
    ("order of reshape", lambda x, v: x.reshape(3, 2, order=v), X, ("C", "F", "K", "no")),
    ("order of reshape of a transposed", lambda x, v: (x.T + 1).reshape(-1, order=v), X, ("C", "F")),
    ("reshape of a column in order", lambda x, v: x[:, 0].reshape(2, 1, order=v), X, ("C", "F", "A")),
    ("order of a new shape", lambda x, v: x.reshape(v, order="F"), X, ((6, 1), (-1, 2), (1, 2, 3), 6, (4, 2))),
    ("order of ravel", lambda x, v: (x.ravel(v), x.T.ravel(v), x.flatten(v)), X, ("C", "F")),
    ("order of ravel of a row", lambda x, v: (x[0].ravel(v), x[1, ::-1].flatten(v)), X, ("C", "F", "A", "K")),
)  # fmt: skip


@pytest.mark.parametrize(("function", "x", "values"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS])
def test_options_are_taken_and_refused_as_by_numpy(function: Any, x: Any, values: tuple[Any, ...]) -> None:
    for value in values:
        f = _argument(function, value)
        mine, numpys = x.copy(), x.copy()
        try:
            wanted = f(numpys)
        except (TypeError, ValueError, OverflowError) as error:
            kinds = (np.linalg.LinAlgError, ValueError, OverflowError, TypeError)
            with pytest.raises(next(k for k in kinds if isinstance(error, k))) as caught:
                kg.kernel_graph(device="cpu")(f)(mine)
            assert isinstance(caught.value, kg.KernelGraphError), value
        else:
            for got, each in zip(*(r if isinstance(r, tuple) else (r,) for r in
                                   (kg.kernel_graph(device="cpu")(f)(mine), wanted)), strict=True):  # fmt: skip
                assert_same(np.asarray(got), np.asarray(each))
            np.testing.assert_array_equal(mine, numpys)


@pytest.mark.parametrize("x", [X, np.asfortranarray(X), X[::-1], np.moveaxis(np.arange(24.0).reshape(2, 3, 4), 0, 1)])
def test_the_order_of_memory(x: Any) -> None:
    """It was taken for 'C': a Fortran array came out in another order than NumPy's."""
    shape = x.shape[::-1]
    looks = lambda x: (x.ravel("K"), x.flatten("A"), x.ravel("A"), x.reshape(shape, order="A"))  # noqa: E731
    f = kg.kernel_graph(looks, device="cpu")
    for _ in range(2):
        for got, wanted in zip(f(x), f.__wrapped__(x), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_nan_fills_integers_as_a_cast_does() -> None:
    assert np.asarray(kg.kernel_graph(device="cpu")(lambda x: np.full_like(x, np.nan))(SQUARE)).dtype == np.int64


KINDS = ("stable", "q", "bogus", "", 3)
KTHS: tuple[Any, ...] = (0, -1, 1, 2, 7, -7, True, np.True_, [True, False], [0, -1], [], np.array([], int), 1.0, [1.0],
                         None, [[1]], np.uint64(1))  # fmt: skip
ORDERS: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("sort kind", lambda x, kind: np.sort(x, kind=kind), KINDS),
    ("argsort kind", lambda x, kind: np.argsort(x, kind=kind), KINDS),
    ("partition", lambda x, kth: np.partition(x, kth), KTHS),
    ("argpartition", lambda x, kth: np.argpartition(x, kth), KTHS),
    ("partition kind", lambda x, kind: np.partition(x, 0, kind=kind), ("introselect", "bogus", 3)),
    ("partition axis", lambda x, axis: np.partition(x, 1, axis), (None, 0, 1, -2, -3, 2)),
    ("sort axis", lambda x, axis: np.sort(x, axis), (None, 0, 1, -1, -2, -3)),
    ("argsort axis", lambda x, axis: np.argsort(x, axis), (None, 0, 1, -1, -2, -3)),
    ("argsort method", lambda x, axis: x.argsort(axis), (None, 0, 1, -1, -2, -3)),
    ("argpartition axis", lambda x, axis: np.argpartition(x, 0, axis), (None, 0, 1, -1, -2)),
    ("lexsort axis", lambda x, axis: np.lexsort((x, x), axis), (None, 0, 1, -1, -2)),
    ("stable twice", lambda x, stable: np.sort(x, kind="stable", stable=stable), (True, False, None)),
)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 3), (2, 3)], ids=str)
@pytest.mark.parametrize(("name", "function", "values"), ORDERS, ids=[name for name, *_ in ORDERS])
def test_orders_take_and_refuse_what_numpys_do(name: str, function: Any, values: Any, shape: Any) -> None:
    """The same results, or an error of the same kind, at the call (and so on every device)."""
    x = np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape)
    for value in values:

        def f(x: Any) -> Any:
            return function(x, value)  # noqa: B023

        try:
            wanted = f(x)
        except (TypeError, ValueError) as error:
            kinds = [np.exceptions.AxisError] if isinstance(error, np.exceptions.AxisError) else [type(error)]
            with pytest.raises(tuple(kinds)) as caught:
                kg.kernel_graph(device="fake")(f).graph(x)
            assert isinstance(caught.value, kg.KernelGraphError), (name, value)
        else:
            assert_same(np.asarray(kg.kernel_graph(device="cpu")(f)(x)), np.asarray(wanted))


@given(arrays(REALS, (1, 3), 1), data_of)
@few
def test_partitions(x: Any, data: Any) -> None:
    axis = data.draw(axis_of(x.ndim))
    kth = data.draw(st.integers(-x.shape[axis], x.shape[axis] - 1))
    agrees(
        lambda x: (np.partition(x, kth, axis), np.sort(np.take_along_axis(x, np.argpartition(x, kth, axis), axis))), x
    )


@given(arrays(REALS, (1, 1), 1), arrays(REALS), st.sampled_from(["left", "right"]), st.booleans())
@many
def test_searching(a: Any, v: Any, side: Any, invert: Any) -> None:
    agrees(lambda a, v: (np.searchsorted(np.sort(a), v, side), a.searchsorted(v, sorter=np.argsort(a))), a, v)
    agrees(lambda a, v: (np.digitize(v, np.sort(a), side == "left"), np.isin(v, a, invert=invert)), a, v)
    agrees(lambda a, v: np.isin(v, np.concatenate([a] * 40)), a, v)


@given(arrays(ANY, special=True), data_of)
@many
def test_scans(x: Any, data: Any) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-3, 2)))
    dtype = data.draw(st.sampled_from([None, "f8", "i2"]))
    initial = data.draw(st.booleans())
    agrees(lambda x: (np.cumsum(x, axis, dtype), x.cumsum(axis)), x)
    agrees(lambda x: (np.cumprod(x, axis, dtype), np.nancumsum(x, axis), np.nancumprod(x, axis)), x)
    agrees(lambda x: np.cumulative_sum(x, axis=axis, include_initial=initial), x)
    agrees(lambda x: np.cumulative_prod(x, axis=axis, dtype=dtype, include_initial=initial), x)


@given(arrays(REALS, (1, 3), 1), data_of)
@many
def test_methods_of_ufuncs(x: Any, data: Any) -> None:
    axis = data.draw(axis_of(x.ndim))
    ufunc = data.draw(st.sampled_from([np.add, np.multiply, np.maximum, np.subtract, np.logical_and]))
    places = data.draw(st.lists(st.integers(0, x.shape[axis] - 1), min_size=1, max_size=3))
    agrees(lambda x: (ufunc.accumulate(x, axis), ufunc.reduceat(x, places, axis), ufunc.outer(x, x)), x)
    agrees(lambda x: (ufunc.reduce(x, axis), ufunc.reduce(x, axis=axis, keepdims=True)), x)
    agrees(lambda x: np.bitwise_or.reduce(x > 0, axis=None), x)
    agrees(lambda x: np.hypot.reduce(x, axis, where=x > 0, initial=1), x)


@given(arrays(REALS, (1, 2), 2), data_of)
@few
def test_ufuncs_at_indices(x: Any, data: Any) -> None:
    places = np.array(data.draw(st.lists(st.integers(-2, 1), min_size=1, max_size=5)))

    def function(x: Any, places: Any) -> Any:
        y = x.copy()
        np.add.at(y, places, 2)
        np.negative.at(y, (places,))
        np.multiply.at(y, slice(0, 1), y[:1])
        return y

    agrees(function, x, places)


@given(arrays(REALS, (1, 3), 1, special=True), data_of)
@many
def test_medians_and_quantiles(x: Any, data: Any) -> None:
    axis, keepdims = data.draw(axes_of(x.ndim)), data.draw(st.booleans())
    if axis == ():
        return
    q = data.draw(st.one_of(st.integers(0, 100), st.lists(st.integers(0, 100), min_size=1, max_size=3)))
    method = data.draw(st.sampled_from(["linear", "lower", "nearest", "hazen"]))
    agrees(lambda x: (np.median(x, axis, keepdims=keepdims), np.nanmedian(x, axis)), x)
    agrees(lambda x: np.percentile(x, q, axis, method=method, keepdims=keepdims), x)
    # (of float32 with NaN, and of NaN alone, NumPy gives another dtype than of other values)
    agrees(lambda x: np.quantile(x, np.array(q) / 100, axis), x.astype("f8"))
    x.reshape(-1)[0] = 0
    agrees(lambda x: np.nanpercentile(x, q, None), x.astype("f8"))


@given(arrays((*REALS, "?")), data_of)
@many
def test_histograms(x: Any, data: Any) -> None:
    bins = data.draw(st.one_of(st.integers(1, 5), st.just([-1, 0, 2.5]), st.just(np.array([0, 1, 2]))))
    limits = data.draw(st.sampled_from([None, (-2, 2), (0, 1.5)])) if isinstance(bins, int) else None
    density = data.draw(st.booleans())
    agrees(lambda x: np.histogram(x, bins, limits, density), x)
    agrees(lambda x: np.histogram(x, bins, limits, weights=x * 0.5), x)
    agrees(
        lambda x: np.histogram2d(x.ravel(), -x.ravel(), bins if isinstance(bins, int) else [bins, bins]),
        x.astype(float),
    )
    agrees(lambda x: np.bincount(abs(x.ravel()).astype(int), minlength=10), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, e: np.histogram(a, e[:1]),
        lambda a, e: np.histogram2d(a[0], a[1], [e[:1], e]),
        lambda a, e: tuple(np.linalg.svd(a[:, :0])),
        lambda a, e: tuple(np.linalg.svd(a[:0])),
        lambda a, e: tuple(np.linalg.qr(a[:, :0], "complete")),
    ],
)
def test_the_other_results_of_a_call_that_has_an_empty_one(function: Any) -> None:
    args = np.arange(12.0).reshape(3, 4), np.array([3.5, 4.5, 7.0])
    compiled = kg.kernel_graph(function, device="cpu")
    assert compiled.program(*args).tasks
    for got, want in zip(compiled(*args), function(*args), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want, strict=True)


def test_no_bins() -> None:
    agrees(lambda x, e: np.histogram(x, e), np.arange(3.0), np.zeros(0))


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "f8"])
@pytest.mark.parametrize("q", [0.5, [0.1, 0.7]])
def test_quantiles_of_nothing(dtype: str, q: Any) -> None:
    """As in NumPy they are the mean of nothing, whatever is asked for."""
    for shape, axis, keepdims in (((0,), None, False), ((0, 3), 0, False), ((3, 0), 1, True), ((0, 3), 1, False)):
        x = np.zeros(shape, dtype)
        agrees(lambda x, a=axis, k=keepdims: np.nanquantile(x, q, axis=a, method="higher", keepdims=k), x)


def test_bincount_says_so_when_its_result_would_be_longer() -> None:
    counts = kg.kernel_graph(lambda x: np.bincount(x, minlength=3), device="cpu")
    np.testing.assert_array_equal(counts(np.array([0, 2, 2])), [1, 0, 2])
    with pytest.raises(ValueError, match="minlength=6"):
        counts(np.array([5])).wait()


SIDES = st.sampled_from([1.0, 2, 1j, np.float32(3), np.complex128(1 - 2j)])


@given(arrays(REALS), arrays(NUMBERS, (1, 1), 2, 2), st.dictionaries(st.sampled_from(["left", "right"]), SIDES))
@few
def test_interpolation(x: Any, fp: Any, options: Any) -> None:
    agrees(lambda x, fp: np.interp(x, np.array([-1.0, 1.5]), fp, **options), x, fp)
    agrees(lambda x, fp: np.interp(x, [0.5, 1.0], fp, period=2.0), x, fp)


@given(arrays(ANY, (1, 3), 1), data_of)
@many
def test_taking(x: Any, data: Any) -> None:
    axis = data.draw(st.one_of(st.none(), axis_of(x.ndim)))
    n = x.size if axis is None else x.shape[axis]
    places = data.draw(st.lists(st.integers(-n - 1, n), max_size=4))
    mode = data.draw(st.sampled_from(["raise", "wrap", "clip"]))
    index = np.array(places, np.intp)
    agrees(lambda x: (np.take(x, places, axis, mode=mode), x.take(places, axis=axis, mode=mode)), x)
    agrees(lambda x, index: (np.take(x, index, axis, mode=mode), np.take(x, index[None], axis, mode=mode)), x, index)
    agrees(lambda x: np.take_along_axis(x, np.argsort(x, axis), axis), x)
    agrees(lambda x: np.choose(x > 0, [x, -1], mode=mode), x.astype(float))


@given(arrays(REALS, (2, 2), 2), data_of)
@few
def test_putting(x: Any, data: Any) -> None:
    values = np.array([[7], [8]])

    def function(x: Any) -> Any:
        y, z = x.copy(), x.copy()
        np.put_along_axis(y, np.argsort(x[:2], 1)[:, :1], values, 1)
        np.put(z, [0, -1, 0], [1, 2, 3])
        return y, z

    agrees(function, x[:2])


# linear algebra


@given(arrays(("i8", "f4", "f8", "c8", "c16"), shape=(2, 3, 3)), arrays(("f4", "f8"), (1, 3), 3, 3))
@many
def test_square_matrices(a: Any, b: Any) -> None:
    a = a + (np.eye(3) * 20).astype(a.dtype)  # regular
    agrees(lambda a: (np.linalg.inv(a), np.linalg.det(a), np.linalg.slogdet(a), np.linalg.tensorinv(a[0], 1)), a)
    agrees(lambda a, b: np.linalg.solve(a, b), a, b)
    agrees(lambda a: [np.linalg.matrix_power(a, n) for n in (-3, 0, 1, 2, 3, 5)], a, ulps=400)
    agrees(lambda a: np.linalg.cond(a), a, ulps=400)


@given(arrays(("i8", "f4", "f8", "c16"), (2, 3), 1, 4), st.booleans())
@many
def test_decompositions(a: Any, full: bool) -> None:
    agrees(lambda a: (np.linalg.qr(a), np.linalg.qr(a, "complete"), np.linalg.qr(a, "r"), np.linalg.svd(a, full)), a)
    agrees(lambda a: (np.linalg.svd(a, compute_uv=False), np.linalg.svdvals(a), np.linalg.matrix_rank(a)), a)
    agrees(lambda a: (np.linalg.matrix_rank(a, rtol=0.1), np.linalg.matrix_rank(a, tol=np.array([0.5]))), a)
    agrees(lambda a: (np.linalg.pinv(a), np.linalg.pinv(a, rcond=1e-3), np.linalg.pinv(a, rtol=0.01)), a, ulps=400)
    agrees(lambda a: (np.linalg.eigvals(a), np.linalg.eig(a)), a.astype("c16"))
    agrees(lambda a: np.linalg.eigvalsh(a), a)

    def of_squares(a: Any) -> Any:
        s = a @ a.swapaxes(-1, -2)
        return np.linalg.eigh(s), np.linalg.eigvalsh(s, "U"), np.linalg.cholesky(s + np.eye(s.shape[-1]) * 99)

    agrees(of_squares, a.real.astype("f8"))


@given(arrays(("i8", "f4", "f8", "c16"), (1, 3), 1, 4), data_of)
@many
def test_norms(x: Any, data: Any) -> None:
    ord = data.draw(st.sampled_from([None, "fro", "nuc", 0, 1, -1, 2, -2, 3, 2.5, np.inf, -np.inf]))
    axis, keepdims = data.draw(axes_of(x.ndim)), data.draw(st.booleans())
    if axis == ():
        return
    agrees(lambda x: np.linalg.norm(x, ord, axis, keepdims), x, ulps=100)
    agrees(lambda x: np.linalg.matrix_norm(x, ord=ord, keepdims=keepdims), x, ulps=100)
    agrees(lambda x: np.linalg.vector_norm(x, ord=ord, axis=axis, keepdims=keepdims), x, ulps=100)


@given(st.lists(st.integers(1, 4), min_size=3, max_size=6), st.sampled_from(FLOATS))
@example([1, 2, 4, 2, 1], "f4")  # whose terms cancel
@few
def test_chains_of_products(lengths: list[int], dtype: str) -> None:
    rng = np.random.default_rng(0)
    chain = [rng.normal(size=s).astype(dtype) for s in pairwise(lengths)]
    many = (lambda chain: np.linalg.multi_dot(chain)), (lambda chain: np.linalg.multi_dot([chain[0][0], *chain[1:]]))
    for function in many:
        agrees(function, chain, products=True)


def test_the_array_apis_names() -> None:
    x = np.arange(18.0).reshape(2, 3, 3)
    agrees(
        lambda x: (np.linalg.diagonal(x, offset=1), np.linalg.trace(x, dtype="f4"), np.linalg.outer(x[0, 0], x[0, 1])),
        x,
    )
    agrees(lambda x: (np.linalg.matmul(x, x), np.linalg.vecdot(x, x), np.linalg.tensordot(x, x, axes=1)), x)
    agrees(
        lambda x: (
            np.linalg.cross(x, x[0]),
            np.linalg.matrix_transpose(x),
            np.linalg.tensorsolve(x + np.eye(3), x[..., 0]),
        ),
        x,
    )


# Fourier transforms


@given(arrays((*REALS, "f2", "c8", "c16"), (1, 3), 1), data_of)
@many
def test_transforms(x: Any, data: Any) -> None:
    axis, n = data.draw(axis_of(x.ndim)), data.draw(st.one_of(st.none(), st.integers(1, 7)))
    norm = data.draw(st.sampled_from([None, "ortho", "forward", "backward"]))
    agrees(lambda x: (np.fft.fft(x, n, axis, norm), np.fft.ifft(x, n=n, axis=axis), np.fft.fftshift(x, axis)), x)
    agrees(lambda x: np.fft.irfft(x, n, axis, norm), x)
    agrees(lambda x: np.fft.hfft(x, n, axis), x)
    agrees(lambda x: (np.fft.rfft(x, n, axis, norm), np.fft.ihfft(x, n, axis)), x)
    axes = data.draw(st.lists(st.integers(0, x.ndim - 1), min_size=1, max_size=x.ndim, unique=True))
    s = data.draw(st.one_of(st.none(), st.lists(st.integers(1, 5), min_size=len(axes), max_size=len(axes))))
    agrees(lambda x: (np.fft.fftn(x, s, axes, norm), np.fft.ifftn(x, s, axes=axes), np.fft.ifftshift(x, axes)), x)
    agrees(lambda x: np.fft.irfftn(x, s, axes), x)
    agrees(lambda x: (np.fft.rfftn(x, s, axes, norm), np.fft.fftn(x)), x)
    agrees(lambda x: (np.fft.fft2(x), np.fft.ifft2(x), np.fft.irfft2(x)), x)
    agrees(lambda x: np.fft.rfft2(x, axes=(0, -1)), x)


@given(st.integers(1, 9), st.floats(0.1, 5.0))
@few
def test_frequencies(n: int, d: float) -> None:
    f = kg.kernel_graph(
        lambda x, d: (x + 0 * kg.fft.fftfreq(n, d), kg.fft.fftfreq(n, d), kg.fft.rfftfreq(n)), device="cpu"
    )
    _, full, half = interpreted(f, np.ones(n), d)
    assert_same((full, half), (np.fft.fftfreq(n, d), np.fft.rfftfreq(n)))
    assert_same((kg.fft.fftfreq(n, d), kg.fft.rfftfreq(n)), (np.fft.fftfreq(n, d), np.fft.rfftfreq(n)))


# the whole way, and outside of traces


def test_host_calls_compiled_and_run() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 5, 5))

    def function(x: Any) -> Any:
        values, vectors = np.linalg.eigh(x + x.swapaxes(1, 2))
        order = np.sort(values * 2, axis=0)
        spectrum = np.fft.rfft(order.cumsum(1))
        return np.abs(spectrum), np.linalg.solve(x, vectors), np.median(x, axis=(0, 2)), np.linalg.svd(x).S

    found = kg.kernel_graph(function, device="cpu")(x)
    for a, b in zip(found, function(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_functions_of_eigenvalues_of_real_matrices_run_in_numpy() -> None:
    traced = kg.kernel_graph(lambda x: np.linalg.eigvals(x * 2), device="cpu")
    with pytest.warns(UserWarning, match="runs in NumPy"):
        assert traced(np.eye(2)).dtype == np.linalg.eigvals(np.eye(2)).dtype  # complex from NumPy 2.5 on
    assert traced(np.array([[0.0, 1.0], [-1.0, 0.0]])).dtype == np.complex128


def test_errors_on_the_host_are_numpys_and_name_the_line() -> None:
    result = kg.kernel_graph(lambda x: np.linalg.inv(x) + 1, device="cpu")(np.zeros((2, 2)))
    with pytest.raises(np.linalg.LinAlgError, match="Singular") as caught:
        result.wait()
    assert any("test_host.py" in note for note in caught.value.__notes__)


MISTAKES: list[Any] = [
    (lambda x: np.linalg.inv(x), np.ones((2, 3)), kg.ShapeError, "square"),
    (lambda x: np.linalg.solve(x, x[0, :1]), np.eye(2), kg.ShapeError, "2 rows"),
    (lambda x: np.linalg.eig(x), np.eye(2), kg.UnsupportedError, "astype"),
    (lambda x: np.linalg.inv(x), np.eye(2, dtype=np.float16), kg.DTypeError, "float16"),
    (lambda x: np.unique(x), np.ones(3), kg.UnsupportedError, "depends on data"),
    (lambda x: np.nonzero(x), np.ones(3), kg.UnsupportedError, "np.where"),
    (lambda x: np.histogram(x, "auto"), np.ones(3), kg.UnsupportedError, "number of bins"),
    (lambda x: np.bincount(x), np.ones(3, int), kg.UnsupportedError, "minlength"),
    (lambda x: np.bincount(x, minlength=3), np.ones(3), kg.DTypeError, r"dtype\('float64'\) to dtype\('int64'\)"),
    (lambda x: np.bincount(x, x[1:] * 1.0, 3), np.ones(3, int), kg.ShapeError, r"\(3,\) and \(2,\)"),
    (
        lambda x: np.bincount(x, x * 1j, 3),
        np.ones(3, int),
        kg.DTypeError,
        r"dtype\('complex128'\) to dtype\('float64'\)",
    ),
    (lambda x: np.lexsort((x, x[1:])), np.ones(3), kg.ShapeError, "one shape"),
    (lambda x: np.repeat(x, 2**62), np.ones(3), kg.ShapeError, "more elements than there can be"),
    (lambda x: np.zeros((2**40, 2**30)) + x, np.ones(1), kg.ShapeError, "more elements than there can be"),
    (lambda x: np.repeat(x, -1), np.ones(3), kg.ShapeError, "negative"),
    (lambda x: np.partition(x, 3), np.ones(3), kg.ShapeError, "out of bounds"),
    (lambda x: np.fft.fft(x, 0), np.ones(3), kg.ShapeError, "data points"),
    (lambda x: np.polyfit(x, x, 1, full=True), np.ones(3), kg.UnsupportedError, "lstsq"),
    (lambda x: np.compress(x > 0, x), np.ones(3), kg.UnsupportedError, "np.where"),
]


@pytest.mark.parametrize("function, x, kind, words", MISTAKES)
def test_mistakes(function: Any, x: Any, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        kg.kernel_graph(function, device="cpu").graph(x)
    assert str(caught.value).startswith("test_host.py:")


def test_nothing_is_assigned_to_an_empty_array() -> None:
    def assigned(x: Any, i: Any) -> None:
        x[i] = 1

    puts = (lambda x, i: np.put(x, i, 1), lambda x, i: np.put_along_axis(x, i, 1, 0), lambda x, i: np.add.at(x, i, 1))
    for function in (assigned, *puts):
        f = kg.kernel_graph(lambda x, i, f=function: f(x.copy(), i), device="cpu")
        with pytest.raises(IndexError, match=r"is empty|no index is in range|out of bounds"):
            f.graph(np.zeros(0), np.zeros(2, int))
        f(np.zeros(0), np.zeros(0, int))


def test_outside_of_a_trace_numpy_does_it_at_once() -> None:
    x = np.array([[2.0, 1.0], [1.0, 3.0]])
    a = kg.asarray(x, device="cpu")
    values, vectors = kg.linalg.eigh(a)
    assert isinstance(values, kg.Array)
    np.testing.assert_array_equal(vectors, np.linalg.eigh(x)[1])
    np.testing.assert_array_equal(kg.sort(a, axis=0), np.sort(x, 0))
    np.testing.assert_array_equal(np.fft.fft(a), np.fft.fft(x))
    np.testing.assert_array_equal(kg.unique(a), np.unique(x))
    np.testing.assert_array_equal(a.cumsum(), x.cumsum())


def test_empty_temporaries_of_host_calls() -> None:
    counted = kg.kernel_graph(lambda x: np.histogram(x, [-1, 0, 2.5], weights=x * 0.5), device="cpu")
    counts, edges = counted(np.zeros(0))
    np.testing.assert_array_equal(counts, [0, 0])
    np.testing.assert_array_equal(edges, [-1, 0, 2.5])


@given(arrays(("i8", "f4", "f8", "c16"), (2, 2), 1, 5), arrays(("f8", "f4"), (1, 2), 1, 3), data_of)
@many
def test_least_squares(a: Any, b: Any, data: Any) -> None:
    b = np.resize(b, (a.shape[0], *b.shape[1:]))
    rcond = data.draw(st.sampled_from([None, 1e-3]))

    def chosen(a: Any, b: Any) -> Any:
        x, _, rank, values = np.linalg.lstsq(a, b, rcond)
        return x, rank, values

    agrees(chosen, a, b, ulps=1e4)
    if a.shape[0] <= a.shape[1]:
        agrees(lambda a, b: np.linalg.lstsq(a, b, rcond)[1], a, b)
    x = np.arange(1.0, 1 + len(b))
    degree = data.draw(st.integers(0, 2))
    agrees(lambda x, b: np.polyfit(x, b, degree), x, b, ulps=1e5)
    agrees(lambda x, b: np.polyfit(x, b, degree, w=1 / x), x, b, ulps=1e5)


def test_the_residuals_of_least_squares_are_refused_when_used() -> None:
    solve = kg.kernel_graph(lambda a, b: np.linalg.lstsq(a, b)[0], device="cpu")
    a, b = np.vander(np.arange(5.0), 3), np.arange(5.0)
    np.testing.assert_allclose(solve(a, b), np.linalg.lstsq(a, b)[0], atol=1e-12)
    for use in (lambda r: r + 1, lambda r: r.sum(), lambda r: np.sqrt(r), lambda r: r[0], lambda r: 2 * r):
        with pytest.raises(kg.UnsupportedError, match="residuals"):
            kg.kernel_graph(lambda a, b, f=use: f(np.linalg.lstsq(a, b)[1]), device="cpu").graph(a, b)


@given(arrays(ANY, (1, 3), 1, 6), data_of)
@many
def test_sliding_windows(x: Any, data: Any) -> None:
    view = np.lib.stride_tricks.sliding_window_view
    axis = data.draw(axis_of(x.ndim))
    n = data.draw(st.integers(1, 7))
    agrees(lambda x: view(x, n, axis), x)
    agrees(lambda x: view(x, (n,) * x.ndim), x)
    agrees(lambda x: view(x, (n, 2), (axis, 0)), x)


def test_long_windows_are_one_task() -> None:
    view = np.lib.stride_tricks.sliding_window_view
    mean = kg.kernel_graph(lambda x: view(x, 50).mean(-1), device="cpu")
    x = np.arange(200.0)
    np.testing.assert_allclose(mean(x), view(x, 50).mean(-1))


@given(arrays(("i4", "f4", "u1", "f8", "c8", "?"), (0, 3)), st.sampled_from(["u4", "f4", "i8", "u1", "c8", None]))
@many
def test_bytes_as_another_dtype(x: Any, dtype: Any) -> None:
    agrees(lambda x: (x.view(dtype) if dtype else x.view(), x.T.copy().view(x.dtype)), x)


def test_a_view_of_bytes_sees_what_is_assigned_to_the_array() -> None:
    def function(x: Any) -> Any:
        y = x.copy()
        bits = y.view(np.uint32)
        y[1:] = -0.0
        return bits >> 31

    agrees(function, np.ones(3, np.float32))


def test_bytes_are_assigned_through_another_dtype() -> None:
    def function(x: Any) -> Any:
        y = x.copy()
        y.view("u4")[:1] = 1
        y.view("u2")[-1] = 7
        return y

    agrees(function, np.ones(3, "f4"))


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_products_are_never_minus_zero(k: int, n: int, dtype: str) -> None:
    a, b = -np.ones((3, k), dtype), np.zeros((k, n), dtype)
    result = np.asarray(kg.kernel_graph(lambda a, b: a @ b)(a, b))
    np.testing.assert_array_equal(np.signbit(result), np.signbit(a @ b))


def solve_or_zero(m: Any) -> Any:
    try:
        return solved(m)
    except np.linalg.LinAlgError:
        return np.zeros(2)


def solved(m: Any) -> Any:
    return np.linalg.solve(m, np.ones(2))


def inverted_quietly(m: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.linalg.inv(m)


@pytest.mark.parametrize("singular", [False, True])
def test_an_error_that_values_decide_is_caught_where_numpy_raises_it(singular: bool) -> None:
    """The call cannot know while it is traced: where it raises, it runs again in NumPy."""
    m = np.array([[1.0, 2.0], [2.0, 4.0 if singular else 5.0]])
    f = kg.kernel_graph(solve_or_zero, device="cpu")
    np.testing.assert_allclose(np.asarray(f(m)), solve_or_zero(m))
    assert "runs in NumPy" not in f.why()


def test_an_error_that_nobody_within_catches_leaves_the_call() -> None:
    f, g = (kg.kernel_graph(function, device="cpu") for function in (solved, inverted_quietly))
    m = np.array([[1.0, 2.0], [2.0, 5.0]])
    for h, plain in ((f, solved), (g, inverted_quietly)):
        np.testing.assert_allclose(np.asarray(h(m)), plain(m))
        assert "runs in NumPy" not in h.why()
    with pytest.raises(np.linalg.LinAlgError):
        np.asarray(f(np.ones((2, 2))))
