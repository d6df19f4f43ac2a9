"""Arrays of every dtype with scalars of every kind, in a sample of `tests.scalars`; and what NumPy raises."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import interpreted
from tests.scalars import cases, compared, edge_cases, judge

every_case, every_edge = cache(cases), cache(edge_cases)  # made by who runs such a test, not by all who collect them


@pytest.mark.parametrize("seed", range(8))
def test_a_sample_of_the_table(seed: int) -> None:
    wrong = [(c.name, c.dtype, c.scalar, c.given, why) for c in random.Random(seed).sample(every_case(), 60)
             for verdict, why in [judge(c)] if verdict == "wrong"]  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("seed", range(8))
def test_a_sample_of_the_edges(seed: int) -> None:
    wrong = [(c.name, c.dtype, c.shape, c.scalar, c.given, why) for c in random.Random(seed).sample(every_edge(), 300)
             for verdict, why in [judge(c)] if verdict == "wrong"]  # fmt: skip
    assert not wrong


EDGES = {
    "np.linalg.tensorsolve(x, x)": ("f8", (1, 1)), "np.linalg.pinv(x)": ("u8", (0, 3)), "np.bincount(x)": ("u8", (0,)),
    "np.corrcoef(x)": (">c16", (0, 3)), "np.corrcoef(x, y=s)": ("f8", (0, 3)), "np.matvec(x, s)": ("f8", (1,)),
    "np.vecmat(s, s)": ("f8", ()), "np.lexsort(x)": ("f8", (0,)), "np.take(x, s, wrap)": ("f8", (0,)),
    "np.piecewise": ("f8", ()), "np.histogramdd(x, weights=s)": ("f8", (1,)), "np.insert(x, 1, s)": ("f8", (0,)),
    "np.linalg.multi_dot": ("f8", (1,)), "np.put_along_axis(x, [0], s)": ("f8", ()), "np.gradient": ("f8", (0, 3)),
    "np.nanquantile(x, s)": ("f8", (0,)), "np.histogram2d(x, x)": (">c16", (0,)), "np.fromiter": ("?", (1,)),
    "np.linalg.tensordot(x, s)": ("f8", (0, 3)), "np.linalg.cond(x, p=s)": ("f8", (0, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges_that_were_wrong_once(name: str) -> None:
    chosen = [c for c in every_edge() if c.name == name and (c.dtype, c.shape) == EDGES[name]]
    assert chosen and not [why for c in chosen for verdict, why in [judge(c)] if verdict == "wrong"]


def test_the_table_finds_a_wrong_value_dtype_and_sign() -> None:
    x = np.array([0.0, 1.0, np.nan])
    assert compared((x, x), (x, x.copy()), False)[0] == "right"
    for other in (x + 1, x.astype("f4"), x[:2], np.array([-0.0, 1, np.nan]), np.nan_to_num(x)):
        assert compared((x, x), (x, other), False)[0] == "wrong"


def run(function: Any, *args: Any) -> Any:
    return np.asarray(kg.kernel_graph(function, device="cpu")(*args))


ONE = {
    "np.nanmin(x, initial=s)": float("nan"), "np.nanmax(x, initial=s)": np.float64("nan"), "np.einsum": np.bool_(True),
    "np.round": np.bool_(True), "np.power(x, s, out)": -1, "operator.ipow(x, s)": -1,
    "np.array_split(x, s)": float("inf"), "np.split(x, s)": float("inf"),
    "np.take(axis=s)": True, "np.compress(axis=s)": True,
    "np.trapezoid(axis=s)": True, "np.squeeze(axis=s)": True, "np.rot90(axes=s)": True,
    "np.roll(axis=s)": np.bool_(True), "np.clip(a number)": 2, "np.round(x)": True,
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_rows_that_were_wrong_once(name: str) -> None:
    chosen = [
        c
        for c in cases(lambda row: row == name)
        if type(c.scalar) is type(ONE[name]) and repr(c.scalar) == repr(ONE[name])
    ]
    assert chosen and not [why for c in chosen[:6] for verdict, why in [judge(c)] if verdict == "wrong"]


CHOICES = {
    "where not": lambda x, n: np.where(x > 1, x, n),
    "where": lambda x, n: np.where(x > 1, n, x),
    "select": lambda x, n: np.select([x > 1], [x], n),
}


@pytest.mark.parametrize("number", [0, 255, 256, -1, 2**31, -(2**63)])
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_where_takes_integers_that_do_not_fit_as_numpy_of_that_version(number: int, choose: Any) -> None:
    """Before 2.5 modulo the range."""
    x = np.arange(4, dtype=np.uint8)
    for function, given in ((choose, (x, number)), (lambda x: choose(x, number), (x,))):
        traced = kg.kernel_graph(function, device="cpu")
        try:
            expected = function(*given)
        except OverflowError:
            with pytest.raises(OverflowError):
                np.asarray(traced(*given))
        else:
            np.testing.assert_array_equal(np.asarray(traced(*given)), expected, strict=True)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 3, -1])
@pytest.mark.parametrize("name", ["lcm", "gcd", "bitwise_xor", "left_shift", "right_shift", "add"])
def test_an_integer_argument_has_the_dtype_that_an_array_of_it_has(name: str, number: int) -> None:
    ufunc, x = getattr(np, name), np.array([0, 1, 3, 100], np.uint64)
    traced = kg.kernel_graph(lambda x, n: ufunc.outer(x, n), device="cpu")
    for _ in range(2):
        try:
            wanted = ufunc.outer(x, number)
        except TypeError:
            with pytest.raises(TypeError):
                traced(x, number)
        else:
            np.testing.assert_array_equal(np.asarray(traced(x, number)), wanted, strict=True)


@pytest.mark.parametrize("low, high", [(0, 1), (-0.0, 1), (-1, -0.0), (0.0, -0.0), (np.nan, 1), (0, np.nan)])
@pytest.mark.parametrize("kind", ["number", "array", "known"])
def test_clip_keeps_the_signs_of_zeros(low: float, high: float, kind: str) -> None:
    x = np.array([-0.0, 0.0, 2.0, -2.0, np.nan] * 8)
    bounds = (np.full(40, low), np.full(40, high)) if kind == "array" else (low, high)
    found = run(lambda x: np.clip(x, *bounds), x) if kind == "known" else run(np.clip, x, *bounds)
    np.testing.assert_array_equal(found, np.clip(x, *bounds))
    np.testing.assert_array_equal(np.signbit(found[::5]), np.signbit(np.clip(x, *bounds))[::5])


def assigned(x: Any, k: Any) -> Any:
    y = np.zeros_like(x)
    y[1:] = k
    return y


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u8", "f4", "?"])
def test_floats_of_the_call_put_into_integers_are_checked_at_each_call(dtype: str) -> None:
    x = np.zeros(3, dtype)
    f = kg.kernel_graph(assigned, device="cpu")
    for k in (1.5, float("nan"), -0.5, 255.9, 256.0, 1e10, -1.0, float("inf"), 1e300, 2.0, -129.0, 127.5):
        try:
            expected = assigned(x, k)
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)) as caught:
                f(x, k)
            assert isinstance(caught.value, kg.KernelGraphError)
        else:
            np.testing.assert_array_equal(f(x, k), expected, strict=True)


def shape(x: Any) -> Any:
    try:
        return x + np.ones(7)
    except ValueError:
        return x * 2


def overflow(x: Any) -> Any:
    try:
        return x.astype(np.uint8) + 300
    except OverflowError:
        return x * 3


def index(x: Any) -> Any:
    try:
        return x[5]
    except IndexError:
        return x * 4


def kinds(x: Any) -> Any:
    try:
        return np.bitwise_and(x, 1)
    except TypeError:
        return x * 5


def nothing(x: Any) -> Any:
    try:
        return np.max(x[:0])
    except ValueError:
        return x * 6


def uncopied(x: Any) -> Any:
    try:
        return np.array(x, np.float32, copy=False)
    except ValueError:
        return x * 7


@pytest.mark.parametrize("function", [shape, overflow, index, kinds, nothing, uncopied])
def test_an_except_clause_inside_catches_what_numpy_raises(function: Any) -> None:
    x = np.arange(3.0)
    np.testing.assert_array_equal(run(function, x), function(x), strict=True)


def test_many_caught_errors_leave_the_trace_usable() -> None:
    def f(x: Any) -> Any:
        return shape(x) + overflow(x) * index(x) - kinds(x) + nothing(x)

    x = np.arange(3.0)
    np.testing.assert_array_equal(run(f, x), f(x))


@pytest.mark.parametrize(
    "width", [1, (1, 2), ((1, 2), (0, 3)), {0: 1, 1: (0, 2)}, {-1: 2}, [[1], [2]], np.array([1, 0])]
)
@pytest.mark.parametrize("values", [0, 7, (5, 6), ((1, 2), (3, 4)), [[8], [9]], 2.5])
def test_pad(width: Any, values: Any) -> None:
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    f = lambda x: np.pad(x, width, constant_values=values)  # noqa: E731
    np.testing.assert_array_equal(interpreted(f, x), f(x), strict=True)


@pytest.mark.parametrize("function", [np.nanmax, np.nanmin])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_extremes_of_complex_numbers_skip_nan(function: Any, axis: Any) -> None:
    x = np.array([[1 + 1j, np.nan], [complex(np.nan, 1), 5], [3, -2j]])
    np.testing.assert_array_equal(run(lambda x: function(x, axis=axis), x), function(x, axis=axis))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("n", [10, 1000, 20000])
def test_products_are_within_their_bound(axis: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    for x in (np.full((4, n), 1.0000001), 1 + rng.normal(0, 1e-3, (4, n)), 1 + rng.normal(0, 1e-3, (n, 4))):
        exact = np.asarray(np.prod(x.astype(np.longdouble), axis=axis))
        found = run(lambda x: x.prod(axis), x)
        limit = np.maximum(4 * np.finfo(float).eps * abs(exact), 2 * abs(x.prod(axis) - exact))
        assert (abs(found - exact) <= limit).all()


@pytest.mark.parametrize("special", [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e308])
def test_products_of_special_values(special: float) -> None:
    x = np.linspace(0.5, 2, 100).reshape(4, 25)
    x[1, 3] = x[2, 20] = special
    for axis in (None, 0, 1):
        with np.errstate(all="ignore"):
            expected = x.prod(axis)
        found = run(lambda x, axis=axis: x.prod(axis), x)
        np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-322)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("scalar", [np.longlong(3), np.ulonglong(3), np.int64(3), np.float32(3), np.bool_(True)])
def test_scalars_of_every_type_are_bound_anew_where_arrays_change(scalar: Any) -> None:
    def f(s: Any, y: Any) -> Any:
        before = s
        s += y
        return s, before

    found = kg.kernel_graph(f, device="cpu")(scalar, 2)
    for a, b in zip(found, f(scalar, 2), strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_no_array_cannot_be_written() -> None:
    for where in (True, np.array([True, False])):
        with pytest.raises(TypeError, match="must be arrays"):
            run(lambda x, where=where: np.add(x, x, out=object(), where=where), np.ones(2))


def test_a_number_of_the_call_is_refused_by_select_as_a_known_one() -> None:
    for f, args in ((lambda x: np.select([x == 1], [1], x), ()), (lambda x, s: np.select([x == 1], [s], x), (1,))):
        with pytest.raises(TypeError):
            run(f, np.ones(2, np.uint8), *args)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_interp_takes_the_real_part_of_numpys_complex_scalars() -> None:
    x = np.arange(3.0)
    for f in (
        lambda x: np.interp(np.complex64(1 + 2j), x, x),
        lambda x: np.interp(x + 2, x, x, right=np.complex64(7j)),
    ):
        np.testing.assert_array_equal(run(f, x), f(x))


X = np.array([0.5, -2.0, 3.0, 1.0], np.float32)
WHOLE = np.arange(4, dtype=np.int16)
CALLS = {
    "joined": (lambda x, n: np.concatenate([x, n], axis=None), WHOLE.astype(np.uint8), 300),
    "cast": (lambda x, n: np.concatenate([x, n], axis=None, dtype=np.uint8), WHOLE.astype(np.uint8), -1),
    "rounded up": (lambda x, n: np.tri(n, dtype=x.dtype), X, 1.5),
    "no rows": (lambda x, n: np.tri(n, n, dtype=x.dtype), X, -1.5),
    "beyond its range": (lambda x, n: np.isclose(x, n), X, 1e300),
    "beyond a complex range": (lambda x, n: np.isclose(x, n), X.astype(np.complex64), 1e300),
    "exact": (lambda x, n: np.isclose(n, 2**53 + 1, rtol=0, atol=0) | (x > 9), X, 2**53),
    "wraps": (lambda x, n: np.cov(x, ddof=n), X, np.uint64(2**63)),
    "larger than int64": (lambda x, n: np.cov(x, ddof=n), X, 1e300),
    "on a circle": (lambda x, n: np.geomspace(n, 9, 4) + x, X, 2j),
    "its own negative": (lambda x, n: np.tri(3, k=n) + x[:3], X, np.int8(-128)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function, x, n", CALLS.values(), ids=CALLS)
def test_numbers_that_arrays_meet_are_converted_as_numpy_converts_them(function: Any, x: Any, n: Any) -> None:
    expected = function(x, n)
    assert compared(expected, run(lambda x: function(x, n), x), False) == ("right", "")
    if not isinstance(n, np.generic):  # whose values are known only where NumPy asks for them
        assert compared(expected, run(function, x, n), False) == ("right", "")


BEFORE_2_5 = {
    "k": (lambda x: np.tri(3, k=np.uint64(2**63)), OverflowError),
    "unsigned": (lambda x: np.tril(np.ones((2, 2)), np.uint8(1)), OverflowError),
}
REFUSED = {
    **(BEFORE_2_5 if np.lib.NumpyVersion(np.__version__) < "2.5.0.dev0" else {}),
    "long": (lambda x: np.tri(1e300), ValueError),
    "not a number": (lambda x: np.cov(x, ddof=float("nan")), ValueError),
    "infinite": (lambda x: np.cov(x, ddof=float("inf")), OverflowError),
    "tensors": (lambda x: np.linalg.tensorsolve(x.astype(np.float16), np.float16(1)), np.linalg.LinAlgError),
    "no array": (lambda x: np.copyto(x[0], x), TypeError),
    "equiv": (lambda x: np.add(x.astype(np.float16), 2, casting="equiv"), TypeError),
    "no axis": (lambda x: np.linspace(0, 1, 3, axis=1), np.exceptions.AxisError),
    "short": (lambda x: np.fromiter(iter(x[:2]), float, 3), ValueError),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function, error", REFUSED.values(), ids=REFUSED)
def test_numbers_that_numpy_refuses_are_refused_by_errors_of_the_same_class(function: Any, error: Any) -> None:
    with pytest.raises(error):
        function(X)
    with pytest.raises(error) as caught:
        run(lambda x: (function(x), x)[1], X)
    assert isinstance(caught.value, kg.KernelGraphError)


@pytest.mark.parametrize("zero", [0, np.float64(-0.0), X * 0])
def test_a_zero_in_a_geometric_sequence_is_refused(zero: Any) -> None:
    f = kg.kernel_graph(lambda x, n: np.geomspace(n, x), device="cpu")
    np.testing.assert_allclose(f(2.0, np.float64(1)), np.geomspace(1, 2.0))
    for run in (
        lambda: f(2.0, zero),
        lambda: f(zero, 2.0),
        kg.kernel_graph(lambda: np.geomspace(zero, 3.0), device="cpu"),
    ):
        with pytest.raises(ValueError, match="cannot include zero"):
            np.asarray(run())


def test_equal_options_of_other_types_and_signs_stay_what_they_are() -> None:
    options = (1, 1.0, True, 0.0, 0, -0.0)
    for f, x in (
        (lambda x: [np.quantile(x, q) for q in options], WHOLE),
        (lambda x: [np.nan_to_num(x, nan=v) for v in (0.0, -0.0, 0)], np.array([np.nan, 1])),
        (lambda x: [np.nan_to_num(x * i, nan=(-1) ** i * 0.0) for i in range(1, 9)], np.array([np.nan, 1])),
    ):
        for a, b in zip(kg.kernel_graph(f, device="cpu")(x), f(x), strict=True):
            assert compared(b, np.asarray(a), False) == ("right", "")


@pytest.mark.parametrize("function", [np.quantile, np.percentile, np.nanquantile, np.nanpercentile])
def test_a_quantile_whose_dtype_depends_on_nan_is_refused(function: Any) -> None:
    with pytest.raises(kg.UnsupportedError, match=r"float32 where it finds NaN; write float\(q\), or \[q\]"):
        kg.kernel_graph(lambda x: function(x, np.float64(0.5)), device="cpu", untraceable="refuse")(X)
    for q in (0.5, [np.float64(0.5)], np.float32(0.5)):
        f = lambda x, q=q: function(x, q)  # noqa: E731
        assert compared(f(X), run(f, X), False) == ("right", "")


REDUCTIONS = [np.sum, np.max, np.mean, np.var, np.nanmean, np.cumsum, np.any, np.ptp, np.add.reduce, np.add.accumulate]


@pytest.mark.parametrize("function", [*REDUCTIONS, lambda x, axis: np.apply_over_axes(np.sum, x, [axis])])
def test_a_boolean_is_no_axis_of_a_reduction(function: Any) -> None:
    x = np.ones((2, 2))
    for f in (function, lambda x, axis: run(lambda x: function(x, axis), x)):
        with pytest.raises(TypeError, match="an integer is required"):
            f(x, True)
        assert compared(function(x, -1), f(x, -1), False) == ("right", "")


REARRANGED = [np.flip, np.expand_dims, np.sort, np.median, np.average, lambda x, axis: np.swapaxes(x, 0, axis)]


@pytest.mark.parametrize("function", REARRANGED)
def test_a_boolean_is_an_axis_where_numpy_takes_one(function: Any) -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert compared(function(x, True), run(lambda x: function(x, True), x), False) == ("right", "")


@pytest.mark.parametrize("method", ["accumulate", "reduceat"])
@pytest.mark.parametrize("axis", [0, -1])
def test_methods_of_ufuncs_count_along_an_axis(method: str, axis: int) -> None:
    rest = ([0],) if method == "reduceat" else ()
    with pytest.raises(TypeError, match="on a scalar"):
        getattr(np.add, method)(np.array(1.5), *rest, axis=axis)
    with pytest.raises(TypeError, match="on a scalar"):
        kg.kernel_graph(lambda x: getattr(np.add, method)(x, *rest, axis=axis), device="cpu")(np.array(1.5))
