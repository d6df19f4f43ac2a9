"""Host calls as graphs of what a GPU has kernels for: the graphs mean what the calls meant."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.decompose.rules import decompose_host_calls
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.pipeline import explain_decomposition_stage
from kernelgraph.runtime.core.settings import override
from tests.compiler.targets.cuda.test_device_calls import graph_of
from tests.counts import examples

some = settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
REALS = ("f2", "f4", "f8", "i4", "u1", "?")
QUANTILES = (0, 1, 0.5, 0.93, (0.1, 1.0, 0.0, 0.5, 0.77), [0, 1], [[0.2, 0.5], [0.6, 0.1]])
PLACES = ("lower", "higher", "nearest", "inverted_cdf", "closest_observation")  # methods that give one of the values
COMBINING = ("combine_at", "places_in_order", "combine_in_order")
BETWEEN = ("averaged_inverted_cdf", "hazen", "weibull", "median_unbiased")
METHODS = ("linear", "midpoint", *PLACES, *BETWEEN)


def means(function: Any, *args: Any, rtol: float = 0.0, left: frozenset[str] = frozenset()) -> None:
    """The graph for a GPU gives what NumPy does, to the bit but for signs of zero; no host call is left in it but of
    sorts and their like."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = function(*args)
        graph = decompose_host_calls(graph_of(function, *args), "cuda")
    known = {"sort", "argsort", "kth", "cumsum", "cumprod", *COMBINING} | left
    assert {n.attr("function") for n in graph.nodes if n.op == "host"} <= known
    for got, want in zip(interpret_graph(graph, args), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype and got.shape == want.shape
        if rtol:
            np.testing.assert_allclose(got, want, rtol, rtol)
        else:
            np.testing.assert_array_equal(got, want)


@st.composite
def arrays(draw: Any, dtypes: tuple[str, ...] = REALS) -> tuple[np.ndarray[Any, Any], Any]:
    """An array with equal ones, infinities and NaN, and axes of it."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    if dtype.kind == "c":
        x = np.empty(shape, dtype)
        x.real, x.imag = (special(rng, shape, np.dtype(f"f{dtype.itemsize // 2}")) for _ in range(2))
    else:
        x = special(rng, shape, dtype)
    axis = draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1), st.just(tuple(range(len(shape))))))
    return x, axis


def special(rng: np.random.Generator, shape: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    x = (rng.integers(0, 9, shape) / (2 if dtype.kind == "f" else 1)).astype(dtype)
    if dtype.kind == "f":
        odds = rng.random(shape) + rng.choice([0.0, 0.3])
        x[odds < 0.15], x[(odds > 0.15) & (odds < 0.2)], x[odds > 1.25] = np.nan, np.inf, -np.inf
    return x


@given(arrays((*REALS, "c8")), st.booleans())
@some
def test_medians(case: Any, keepdims: bool) -> None:
    x, axis = case
    means(lambda x: np.median(x, axis=axis, keepdims=keepdims), x)
    if x.dtype.kind in "iuf":
        means(lambda x: np.nanmedian(x, axis=axis, keepdims=keepdims), x)


@given(arrays(), st.sampled_from(QUANTILES), st.sampled_from(METHODS), st.booleans())
@some
def test_quantiles(case: Any, q: Any, method: str, keepdims: bool) -> None:
    x, axis = case
    if x.dtype.kind == "b" and method not in PLACES:
        return
    hard = np.asarray(q).dtype.kind == "i" and method in BETWEEN
    left = frozenset({"quantile", "percentile"} if hard else ())
    scaled = (100 * np.asarray(q)).tolist()
    means(lambda x: np.quantile(x, q, axis=axis, method=method, keepdims=keepdims), x, left=left)
    means(lambda x: np.percentile(x, scaled, axis=axis, method=method, keepdims=keepdims), x, left=left)


@given(arrays(("f2", "f4", "f8", "i4")), st.sampled_from(QUANTILES[2:5]), st.sampled_from(METHODS[:1] + PLACES))
@some
def test_quantiles_without_nan(case: Any, q: Any, method: str) -> None:
    x, axis = case
    if x.dtype.kind == "f" and np.isnan(x).all(-1).any():  # then NumPy's dtype depends on data
        x[..., 0] = 1
    for keepdims in (False, True):
        means(lambda x, k=keepdims: np.nanquantile(x, q, axis=axis, method=method, keepdims=k), x)


def test_arrays_of_quantiles() -> None:
    x, q = np.random.default_rng(0).random((20, 3)).astype("f4"), np.array([0.25, 0.5])
    means(lambda x: np.quantile(x, np.float64(0.3), axis=0), x)  # in float64; a Python number's would be in float32
    means(lambda x, q: np.quantile(x, q, axis=0), x, q, left=frozenset({"quantile"}))  # they come with the call
    for known in (lambda: np.linspace(0, 1, 4), lambda: np.array([[0.2, 0.3], [0.1, 0.9]])):
        graph = decompose_host_calls(graph_of(lambda x, known=known: np.quantile(x, known(), axis=0), x), "cuda")
        assert {n.attr("function") for n in graph.nodes if n.op == "host"} == {"sort"}


@given(arrays(("c8", "c16")))
@some
def test_complex_order(case: Any) -> None:
    x, axis = case
    at = axis if isinstance(axis, int) else -1
    means(lambda x: (np.sort(x, axis=at, kind="stable"), np.argsort(x, axis=at, kind="stable")), x)


@given(st.lists(arrays((*REALS, "c8")), min_size=1, max_size=3))
@some
def test_lexsort(cases: Any) -> None:
    keys = [np.resize(x, 24).reshape(4, 6) for x, _ in cases]
    for axis in (0, -1):
        means(lambda *keys, a=axis: np.lexsort(keys, axis=a), *keys)


@given(arrays(("f4", "i4", "?", "c8", "c16")))
@some
def test_running_totals(case: Any) -> None:
    x, axis = np.nan_to_num(case[0], posinf=2, neginf=-2), case[1] if isinstance(case[1], int) else 0
    for initial in (False, True):
        means(lambda x, i=initial: np.cumulative_sum(x, axis=axis, include_initial=i), x, rtol=1e-5)
        means(lambda x, i=initial: np.cumulative_prod(x, axis=axis, include_initial=i), x, rtol=1e-5)
    means(
        lambda x: (np.cumprod(x, axis), np.multiply.accumulate(x, axis)), x, rtol=1e-5, left=frozenset({"accumulate"})
    )
    means(lambda x: np.cumsum(x, axis, dtype="c16"), x, rtol=1e-5)


def test_weighted_counts() -> None:
    rng = np.random.default_rng(0)
    for dtype in ("i8", "u1"):
        i, w = rng.integers(0, 7, 90).astype(dtype), rng.random(90).astype("f4")
        means(lambda i, w: np.bincount(i, w, 9), i, w)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4"])
@pytest.mark.parametrize("shape", [(70, 70), (130, 5, 5), (2, 65, 65)])
def test_determinants_and_factors(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=shape) / shape[-1] ** 0.5
    a = (a + 1j * rng.normal(size=shape) / 9 if dtype[0] == "c" else 9 * a if dtype[0] == "i" else a).astype(dtype)
    left = frozenset({"linalg.lu", "linalg.qr_factors", "linalg.qr_upper", "linalg.cholesky_factor"})
    means(lambda a: tuple(np.linalg.slogdet(a)), a, rtol=1e-3, left=left)
    means(lambda a: np.linalg.det(a / 4) * 1e60, a, rtol=1e-3, left=left)
    a[..., 1] = a[..., 0]
    means(lambda a: np.linalg.det(a) * 0, a, left=left)
    if shape[-1] >= 64:
        means(lambda a: tuple(np.linalg.qr(a[..., :64], "complete")), a, left=left, rtol=1e-5)
        means(lambda a: np.linalg.qr(a[..., :64, :], "r"), a, left=left, rtol=1e-5)
    if len(shape) > 2:
        square = lambda a: np.linalg.cholesky(a @ a.swapaxes(-1, -2).conj() + np.eye(shape[-1], dtype=a.dtype))  # noqa: E731
        means(square, a * 0, left=left, rtol=1e-5)


@pytest.mark.parametrize("verify", [False, True])
def test_bad_numbers_are_left_to_the_host_where_calls_are_verified(verify: bool) -> None:
    graph = graph_of(lambda i, w: (np.bincount(i, w, 9), np.median(w)), np.zeros(3, int), np.zeros(3))
    with override(verify=verify):
        functions = {n.attr("function") for n in decompose_host_calls(graph, "cuda").nodes if n.op == "host"}
    assert functions == ({"bincount", "kth"} if verify else {"places_in_order", "combine_in_order", "kth"})


COUNTED = frozenset({"bincount"})
NUMBERS = ("f2", "f4", "f8", "i1", "u1", "i4", "i8", "u8")


@given(arrays(NUMBERS), st.sampled_from(("f4", "f8", "i4", "u1")), st.integers(1, 6), st.integers(0, 99))
@some
def test_bins_by_edges(case: Any, dtype: str, n: int, seed: int) -> None:
    """Rising, falling and equal edges, values on them, outside, infinite and NaN."""
    x, rng = case[0], np.random.default_rng(seed)
    edges, weights = np.sort(rng.integers(0, 9, n)).astype(dtype), rng.integers(0, 9, x.shape)
    for ordered in (edges, edges[::-1].copy()):
        for right in (False, True):
            means(lambda x, e, r=right: np.digitize(x, e, r), x, ordered)
    if n > 1:
        means(lambda x, e: np.histogram(x, e), x, edges, left=COUNTED)
        means(lambda x, e, w: np.histogram(x, e, weights=w), x, edges, weights)
        means(lambda x, e, w: np.histogram(x, e, None, True, w), x, edges, rng.random(x.shape), rtol=1e-12)


@given(st.sampled_from(NUMBERS[1:]), st.integers(1, 60), st.integers(1, 20), st.integers(0, 99))
@some
def test_bins_in_the_range_of_the_values(dtype: str, n: int, count: int, seed: int) -> None:
    """Equal values, those far apart, and the ends of integer types."""
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=n) * 10.0 ** rng.integers(-3, 6)).astype("f4")
    if dtype[0] == "f":
        x = (x + np.round(x)).astype(dtype)
    else:
        info, step = np.iinfo(dtype), int(rng.choice([1, 2, 100]))
        x = rng.integers(info.min // step, info.max // step, n, dtype, endpoint=True)
    x = x[:1].repeat(n) if seed % 7 == 0 else x
    weights = rng.integers(0, 9, n)
    try:
        np.histogram(x, count)
    except ValueError:  # too many bins
        return
    for density in (False, True):
        means(lambda x, d=density: np.histogram(x, count, density=d), x, left=COUNTED)
    means(lambda x, w: np.histogram(x, count, weights=w), x, weights)
    means(lambda x: np.histogram_bin_edges(x, count), x)


@pytest.mark.parametrize("dtype", ["i4", "i8", "u8"])
def test_integer_weights_of_bins_by_edges_are_added_up_as_integers(dtype: str) -> None:
    """They wrap, and none is rounded to a float64."""
    x, edges = np.arange(9) % 3, np.arange(4)
    weights = np.full(9, np.iinfo(dtype).max - 2, dtype) + np.arange(9).astype(dtype) % 2
    means(lambda x, e, w: np.histogram(x, e, weights=w), x, edges, weights, left=COUNTED)


def test_the_density_between_booleans_is_left_to_the_host() -> None:
    x, edges = np.arange(5), np.array([False, True])
    means(lambda x, e: np.histogram(x, e, density=True), x, edges, left=COUNTED | {"histogram"})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_range_that_is_not_finite_counts_nothing(bad: float) -> None:
    """NumPy refuses it by the values, which a GPU does not wait for."""
    x = np.array([1.0, bad, 3.0])
    counts, _ = interpret_graph(decompose_host_calls(graph_of(lambda x: np.histogram(x, 4), x), "cuda"), [x])
    assert counts.tolist() == [0] * 4


def test_what_is_checked_by_the_values_is_left_to_the_host_where_all_is_checked() -> None:
    x = np.arange(5.0)
    graphs = [graph_of(lambda x: np.histogram(x, 3), x), graph_of(lambda x: np.digitize(x, x), x)]
    with override(verify=True):
        assert all(decompose_host_calls(graph, "cuda") == graph for graph in graphs)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i4"])
@pytest.mark.parametrize("shape", [(40, 5, 5), (4, 8, 7, 3), (32, 2, 6)])
def test_vectors_of_many_small_matrices(dtype: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=shape)
    a = (a + 1j * rng.normal(size=shape) if dtype[0] == "c" else 9 * a if dtype[0] == "i" else a).astype(dtype)
    left = frozenset({"linalg.eigh_rows", "linalg.svd_whole", "linalg.svdvals"})
    for full in (False, True):
        means(lambda a, f=full: tuple(np.linalg.svd(a, f)), a, rtol=1e-4, left=left)
    means(lambda a: np.linalg.svd(a, compute_uv=False), a, rtol=1e-4, left=left)
    if shape[-1] == shape[-2]:
        h = a + a.conj().swapaxes(-1, -2)
        for uplo in "Lu":
            means(lambda h, u=uplo: tuple(np.linalg.eigh(h, u)), h, rtol=1e-4, left=left)


def test_a_few_small_matrices_are_left_to_the_host() -> None:
    for shape in ((8, 5, 5), (5, 5), (40, 5, 33)):
        graph = graph_of(lambda a: tuple(np.linalg.svd(a)), np.ones(shape))
        assert {n.attr("function") for n in decompose_host_calls(graph, "cuda").nodes if n.op == "host"} == {
            "linalg.svd"
        }


X, TABLE = np.arange(9.0), np.arange(5.0)
DECIDED = [  # what a target does with a call, and a word of why
    (lambda x, t: np.searchsorted(t, x), "ops with kernels", "ops with kernels"),
    (lambda x, t: np.isin(x, t), "ops with kernels", "ops with kernels"),
    (lambda x, t: np.isin(t, np.resize(x, 40)), "more than 32", "more than 32"),
    (lambda x, t: np.convolve(x, t), "ops with kernels", "ops with kernels"),
    (lambda x, t: np.histogram(x, 4, range=(0, 1))[0], "ops with kernels", "ops with kernels"),
    (lambda x, t: np.digitize(x, t), "no kernels on cpu", "ops with kernels"),
    (lambda x, t: np.sort(x), "fewer than 4096 rows", "kernels of cuda's own"),
    (lambda x, t: np.argsort(x), "no kernels on cpu", "kernels of cuda's own"),
    (lambda x, t: np.cumsum(x), "kernels of cpu's own", "kernels of cuda's own"),
    (lambda x, t: np.cumsum(x.reshape(3, 3), 0), "do not lie close together", "kernels of cuda's own"),
    (lambda x, t: np.prod(x * 1j), "NumPy on the host", "NumPy on the host"),
]


@pytest.mark.parametrize("number", range(len(DECIDED)))
def test_one_table_says_who_runs_a_call_and_why(number: int) -> None:
    """The front end emits the call, whatever its sizes and dtypes."""
    function, *words = DECIDED[number]
    graph = graph_of(function, X, TABLE)
    assert any(node.op in ("host", "prod") for node in graph.nodes)
    for target, word in zip(("cpu", "cuda"), words, strict=True):
        layouts = [MemoryLayout.contiguous(graph.nodes[n].type) for n in graph.inputs]
        assert word in "".join(explain_decomposition_stage(graph, target, layouts))


def test_explain_says_who_runs_a_call() -> None:
    assert "sort at test_expand.py" in kg.kernel_graph(device="cpu")(lambda x: np.sort(x)).explain(X, verbose=True)
