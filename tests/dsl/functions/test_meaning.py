"""Every function, method and operator that can be traced means what NumPy means: interpreted trace against NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.agreement import agrees
from tests.dsl.tracing import check

rng = np.random.default_rng(0)
A = rng.normal(size=(3, 4, 5)).astype(np.float32)
B = rng.normal(size=(4, 5))
C = (rng.normal(size=(3, 1, 5)) + 1j * rng.normal(size=(3, 1, 5))).astype(np.complex64)
I = rng.integers(-100, 100, (4, 5)).astype(np.int8)  # noqa: E741
U = rng.integers(1, 60000, (4, 5)).astype(np.uint16)
H = rng.normal(size=(4, 5)).astype(np.float16)
M = rng.random((4, 5)) < 0.5
V = rng.normal(size=5)
Z = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0])

OPERATORS: list[Any] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y),
    lambda x, y: (-x, +x, abs(x)),
    lambda x, y: (x + 1, 1 - x, 2 * x, x * 1.5, 1 / x),
    lambda x, y: (x + np.float32(1), np.float64(2) * x, np.int8(3) + x),
    lambda x, y: (x + np.ones(5, np.float32), np.ones(5) * x),
    lambda x, y: (x * [1, 2, 3, 4, 5], (1, 2, 3, 4, 5) * x),
]


@pytest.mark.parametrize("number", range(len(OPERATORS)))
@pytest.mark.parametrize("pair", [(A, B), (B, I), (I, I), (I, U), (H, H), (H, A), (A, V), (V, V)], ids=lambda p: "")
def test_operators(number: int, pair: Any) -> None:
    check(OPERATORS[number], *pair)


@pytest.mark.parametrize("pair", [(A, B), (I, I), (I, U), (H, H), (V, V)], ids=lambda p: "")
def test_whole_division(pair: Any) -> None:
    check(lambda x, y: (x // y, x % y, divmod(x, y), 7 // x, x % 3, divmod(7, y)), *pair)


def test_bits_and_shifts() -> None:
    check(lambda x, m: (x & 3, x | x, x ^ 5, ~x, x << 2, x >> 1, 1 << (x & 7), ~m, m & m, m | m, m ^ m), I, M)
    check(lambda x, m: (m & True, False | m, x & m), I, M)


def test_complex_operators() -> None:
    check(lambda z, x: (z + x, z * z, z / (x + 2), z - 1j, abs(z), z.real, z.imag, z.conj(), z == z), C, B)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, -0.5, 2.0, 2.5])
def test_power_takes_numpys_paths(exponent: Any) -> None:
    check(lambda x, y: (x**exponent, np.power(y, exponent), x ** np.float32(exponent)), Z, np.abs(A))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 1.0, 2.0, 3.0, 2 + 0j, complex(3, -0.0)])
def test_signs_of_powers_of_complex_zeros(exponent: Any) -> None:
    z = np.array([complex(x, y) for x in (0.0, -0.0) for y in (0.0, -0.0)])
    for values in (z, z.astype(np.complex64)):
        array = np.full(4, exponent, values.dtype)
        expected = [values**exponent, np.power(values, exponent), values**array]
        found = kg.kernel_graph(lambda z, n: (z**exponent, np.power(z, exponent), z**n), device="cpu")(values, array)
        for want, got in zip(expected, map(np.asarray, found), strict=True):
            np.testing.assert_array_equal(np.signbit([got.real, got.imag]), np.signbit([want.real, want.imag]))


def powers_of_numbers(x: Any, exponent: Any, out: Any) -> Any:
    return x[0] ** exponent, x[-1] ** exponent, np.power(x[0], exponent), x**exponent, np.power(x, exponent)


def powers_in_loops(x: Any, exponent: Any, out: Any) -> Any:
    for i in range(len(x)):
        for j in range(i + 1):
            out[0, i] = x[i] ** exponent
            out[1, i] = np.power(x[i], exponent)
            out[2, j:] = x[j:] ** exponent
            out[3, j:] = np.power(x[j:], exponent)
    return out


@pytest.mark.parametrize("exponent", [2, 0.5, np.float64(0.5), -1, -1.0, 3], ids=repr)
@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "c16", "i8"])
@pytest.mark.parametrize("function", [powers_of_numbers, powers_in_loops])
def test_powers_of_numbers_and_of_arrays(function: Any, dtype: str, exponent: Any) -> None:
    """NumPy's numbers have C's power, its arrays a root or a square, with other signs of zeros and infinities."""
    values = [-np.inf, 3, 0.0, 1.5, -0.0] if np.dtype(dtype).kind == "f" else [-2, 3, 1, 4, 3]
    x = np.array(values, dtype)
    if dtype == "i8" and exponent == -1 and type(exponent) is int:
        for f in (function, kg.kernel_graph(function, device="cpu")):
            with pytest.raises(ValueError, match="negative integer powers"):
                f(x, exponent, np.zeros((4, 5)))
        return
    with np.errstate(all="ignore"):
        out = np.zeros((4, 5), (x**exponent).dtype)
        expected = function(x, exponent, out.copy())
        found = kg.kernel_graph(lambda x, out: function(x, exponent, out), device="cpu")(x, out)
    for want, got in zip(expected, found, strict=True):
        assert np.asarray(got).dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(want.dtype).eps if want.dtype.kind in "fc" else 0)
        zeros = want == 0
        np.testing.assert_array_equal(np.signbit(np.real(got)[zeros]), np.signbit(np.real(want)[zeros]))


def test_power_of_arrays_and_integers() -> None:
    check(lambda x, y, n: (x**y, n**2, n**3, 2**n, 2.0**x), Z, Z, np.abs(I) % 5)


def test_python_numbers_are_weak_and_numpys_are_not() -> None:
    check(lambda x, n, r: (x + n, x + r, n + x, n * r, x * np.float64(1), x + np.float32(r)), H, 3, 0.1)


@pytest.mark.parametrize("limit", [127, 128, -129, 1000, 2**70, -(2**70)])
def test_comparisons_with_numbers_out_of_range(limit: int) -> None:
    check(lambda x: (x < limit, x >= limit, limit == x, x != limit, limit > x), I)


INDEXING: list[Any] = [
    lambda x: (x[0], x[-1], x[1, 2], x[1, 2, 3], x[..., 0], x[:, 1]),
    lambda x: (x[1:], x[:-1], x[::2], x[::-1], x[2:0:-1], x[5:1], x[:, ::-2], x[-2:, 1:3, ::3]),
    lambda x: (x[None], x[:, None], x[..., None], x[None, 0, ..., None, 1], x[()], x[...]),
    lambda x: (x[np.int64(1)], x[np.newaxis, 1:], x[:, np.uint8(2)], x[100:], x[:-100:-1]),
    lambda x: x[1:][::-1][:1, 2][..., 1:4:2],
    lambda x: (len(x), x.shape, x.ndim, x.size, x.itemsize, x.nbytes, str(x.dtype)),
    lambda x: [row * i for i, row in enumerate(x)],
    lambda x: sum(row for row in x),
]


@pytest.mark.parametrize("number", range(len(INDEXING)))
def test_indexing(number: int) -> None:
    check(INDEXING[number], A)


VIEWS: list[Any] = [
    lambda x: (x.reshape(12, 5), x.reshape((4, -1)), np.reshape(x, (5, 12)), x.ravel(), x.flatten(), np.ravel(x)),
    lambda x: (x.T, x.transpose(1, 0, 2), x.transpose((2, 0, 1)), np.transpose(x), x.mT, x.swapaxes(0, -1)),
    lambda x: (
        np.moveaxis(x, range(2), range(1, 3)),
        np.flip(x, range(2)),
        x.transpose(range(3)),
        np.rot90(x, 1, range(2)),
    ),
    lambda x: (
        x.reshape(range(60, 61)),
        np.roll(x, range(2), range(2)),
        np.tile(x, range(1, 3)),
        np.zeros(range(1, 3)),
    ),
    lambda x: (np.tensordot(x, x, (range(1), range(1))), np.lib.stride_tricks.sliding_window_view(x, (2, 2), range(2))),
    lambda x: (np.moveaxis(x, 0, -1), np.moveaxis(x, (0, 1), (2, 0)), np.swapaxes(x, 1, 2), np.rollaxis(x, 2)),
    lambda x: (np.expand_dims(x, 1), np.expand_dims(x, (0, -1)), np.squeeze(x[:1]), x[:1].squeeze(0)),
    lambda x: (np.broadcast_to(x, (2, 3, 4, 5)), np.broadcast_arrays(x, x[:1]), np.atleast_1d(x[0, 0, 0])),
    lambda x: (np.flip(x), np.flip(x, 1), np.flip(x, (0, 2)), np.flipud(x), np.fliplr(x), np.rot90(x)),
    lambda x: tuple(np.rot90(x, k, axes) for k in range(-2, 4) for axes in ((0, 1), (2, 0))),
    lambda x: (np.concatenate([x, x[:1]]), np.concatenate([x, x], axis=-1), np.concatenate([x, x], axis=None)),
    lambda x: (np.concatenate([x, x.astype(np.int32)], 1), np.concatenate((x, np.zeros((1, 4, 5)))), np.concat([x, x])),
    lambda x: (np.stack([x, x]), np.stack((x, 2 * x), axis=-1), np.vstack([x[0], x[1]]), np.hstack([x, x])),
    lambda x: (np.hstack([x[0, 0], x[1, 1]]), np.column_stack([x[0, 0], x[1, 1]]), np.vstack([x[0, 0], x[0, 1]])),
    lambda x: (np.split(x, 2, 1), np.split(x, [1, 3], axis=-1), tuple(np.unstack(x))),
    lambda x: (np.roll(x, 2), np.roll(x, -1, 1), np.roll(x, (1, 2), (0, 2)), np.roll(x, 7, 0)),
    lambda x: (np.tile(x, 2), np.tile(x, (2, 1, 3)), np.tile(x[0, 0], (2, 2)), np.repeat(x, 2), x.repeat(3, axis=1)),
    lambda x: (np.pad(x, 1), np.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=7), np.pad(x, 2, mode="edge")),
    lambda x: (np.pad(x, 7, mode="wrap"), np.pad(x, 6, mode="reflect"), np.pad(x, 9, mode="symmetric")),
    lambda x: (np.diagonal(x), x.diagonal(1), np.diagonal(x, -1, 1, 2), x.trace(), np.trace(x, 1)),
    lambda x: (np.tril(x), np.triu(x, 1), np.tril(x, -1), np.diff(x), np.diff(x, 2, axis=0)),
    lambda x: (x.copy(), x.astype(np.float64), x.astype(int), x.astype("f2"), np.astype(x, np.complex64)),
    lambda x: (
        np.shape(x),
        np.ndim(x),
        np.size(x),
        np.size(x, 1),
        np.result_type(x, 1.5),
        np.result_type(x, np.float64),
    ),
    lambda x: (np.zeros_like(x), np.ones_like(x, dtype=int), np.full_like(x, 3), np.zeros_like(x, shape=(2,))),
    lambda x: tuple(np.meshgrid(x[0, 0], x[0, :, 0])) + tuple(np.meshgrid(x[0, 0], x[0, :, 0], indexing="ij")),
]


@pytest.mark.parametrize("number", range(len(VIEWS)))
def test_views(number: int) -> None:
    check(VIEWS[number], A)


REDUCTIONS: list[Any] = [
    lambda x: (x.sum(), x.sum(0), x.sum(-1), x.sum((0, -1)), np.sum(x, keepdims=True), x.sum(1, keepdims=True)),
    lambda x: (x.min(), x.max(1), np.min(x, axis=(0, 1)), np.amax(x, 0, keepdims=True), np.ptp(x, 0)),
    lambda x: (x.any(), x.all(0), np.any(x > 0, axis=1), np.all(x == x, keepdims=True)),
    lambda x: (x.argmin(), x.argmax(0), np.argmin(x, axis=-1), x.argmax(1, keepdims=True), x.argmin(keepdims=True)),
    lambda x: (np.count_nonzero(x), np.count_nonzero(x, axis=0), x.sum(axis=()), x.max(axis=())),
    lambda x: (x.sum(initial=5), x.max(0, initial=3), x.min(initial=-1000), np.sum(x, where=x > 0)),
    lambda x: (np.add.reduce(x), np.maximum.reduce(x, axis=1), np.logical_and.reduce(x, axis=None)),
]


@pytest.mark.parametrize("number", range(len(REDUCTIONS)))
@pytest.mark.parametrize("x", [A, B, I, U, M, V, A[:, :, 0]], ids=lambda x: f"{x.dtype}{x.ndim}")
def test_reductions(number: int, x: Any) -> None:
    if (x.ndim < 2 and number < 6) or (number == 5 and x.dtype.kind in "biu"):
        return
    if x.dtype == bool and number == 1:
        return
    if x.ndim == 1 and number == 6:
        return
    check(REDUCTIONS[number], x, ulps=40)


@pytest.mark.parametrize("x", [A, B, I, U, M, C, Z], ids=lambda x: str(x.dtype))
def test_means_and_variances(x: Any) -> None:
    check(
        lambda x: (x.mean(), np.mean(x, axis=0), np.mean(x, -1, keepdims=True), np.mean(x, dtype=np.complex128)),
        x,
        ulps=40,
    )
    check(
        lambda x: (x.var(), x.std(0), np.var(x, -1, ddof=1), np.std(x, keepdims=True), np.var(x, correction=1)),
        x,
        ulps=40,
    )


def test_float16_means() -> None:
    check(lambda x: (x.mean(), x.mean(0), x.var(1), x.std(), x.mean(dtype=np.float32)), H)


def test_masked_means() -> None:
    check(lambda x, m: (x.mean(where=m), x.var(0, where=m), np.std(x, axis=1, where=m), x.sum(where=m)), B, M, ulps=40)
    check(lambda x, m: (x.max(where=m, initial=-1), x.min(1, where=m, initial=9), x.prod(0, where=m)), B, M, ulps=40)


def test_reductions_with_dtypes() -> None:
    check(lambda x: (x.sum(dtype=np.int64), x.sum(dtype=float), np.prod(x % 3, dtype=np.uint8), x.sum(1, np.int16)), I)


def test_reductions_without_nan() -> None:
    x = A.copy()
    x[0, 1] = np.nan
    x[:, 2, 3] = np.nan
    check(
        lambda x: (np.nansum(x, 0), np.nanprod(x), np.nanmax(x, axis=2), np.nanmin(x, axis=0), np.nanmean(x, 1)),
        x,
        ulps=40,
    )


def test_averages_and_norms() -> None:
    check(lambda x: (np.average(x), np.average(x, axis=1), np.average(x, weights=abs(x))), B, ulps=40)
    check(lambda x, w: np.average(x, axis=1, weights=w, returned=True), B, V, ulps=40)
    check(lambda x: (np.linalg.norm(x), np.linalg.norm(x, axis=1), np.linalg.norm(x, ord=1, axis=0)), B, ulps=40)
    check(lambda x: (np.linalg.norm(x, np.inf, -1, True), np.linalg.norm(x[0], 3), np.linalg.norm(x[0], 0)), B, ulps=40)
    check(lambda z: np.linalg.norm(z), C, ulps=40)


ELEMENTWISE: list[Any] = [
    lambda x: (np.exp(x), np.log(abs(x)), np.sin(x), np.sqrt(abs(x)), np.tanh(x), np.square(x), np.sign(x)),
    lambda x: (np.maximum(x, 0.5), np.minimum(0, x), np.hypot(x, 3), np.arctan2(x, x + 1), np.fmod(x, 2)),
    lambda x: (np.isnan(x), np.isfinite(x), np.signbit(x), np.copysign(x, -1), np.nextafter(x, 1), np.floor(x)),
    lambda x: (np.modf(x), np.frexp(x), np.ldexp(x, 3), np.divmod(x, 2)),
    lambda x: (x.clip(-1, 1), np.clip(x, 0, None), np.clip(x, None, 0.5), x.clip(max=0), np.clip(x, x - 1, x[0])),
    lambda x: (x.round(), np.round(x, 2), np.round(x * 1000, -2), np.rint(x), np.around(x, 1)),
    lambda x: (np.where(x > 0, x, 0), np.where(x > 0, 1, 2.5), np.where(True, x, 1), np.where(x > 0, x[0], x)),
    lambda x: (np.real(x), np.imag(x), np.angle(x), np.isclose(x, x + 1e-9), np.isclose(x, 0, atol=1)),
    lambda x: (np.nan_to_num(x), np.nan_to_num(x / 0, nan=1.0, posinf=5.0)),
    lambda x: (np.logical_and(x > 0, x < 1), np.logical_not(x > 0), np.equal(x, x), np.not_equal(x, 1)),
    lambda x: (np.add.outer(x[0, :2], x[0, :3]), np.outer(x[0], x[1]), np.multiply.outer(x[0], 2)),
]


@pytest.mark.parametrize("number", range(len(ELEMENTWISE)))
@pytest.mark.parametrize("x", [A[0], B], ids=lambda x: str(x.dtype))
def test_elementwise_functions(number: int, x: Any) -> None:
    check(ELEMENTWISE[number], x)


def test_rounding_to_tens_and_beyond_all_digits() -> None:
    for dtype in (np.int8, np.uint8, np.int64):
        whole = np.array([0, 4, 5, 6, 15, 25, 26, 127], dtype)
        check(lambda x: (np.round(x, -1), x.round(-2), np.around(x, -30), np.round(x, 400)), whole)
    check(lambda x: (np.round(x, 400), np.round(x, -400)), A)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_rounding_into_another_dtype(dtype: str) -> None:
    x = (np.arange(8) * 1.37 - 4).astype(dtype)
    for held, decimals in product(("f2", "f4", "f8", "c16"), (-1, 0, 1, 3)):
        if np.can_cast(dtype, held, "same_kind"):
            check(lambda x, n=decimals, held=held: np.round(x, n, out=np.zeros(8, held)), x)


@pytest.mark.parametrize("shape", [-12, (-3,), (4, -1), (-2, 3), (2, -7, 3), (-1, -2), (5, -1), (3, -1, -1)])
def test_one_length_of_a_new_shape_may_be_any_negative_number(shape: Any) -> None:
    try:
        check(lambda x: (x.reshape(shape), np.reshape(x, shape)), np.arange(12.0))
    except ValueError:
        with pytest.raises(ValueError):
            np.arange(12.0).reshape(shape)


def test_ufunc_options() -> None:
    check(lambda x: (np.add(x, 1, dtype=np.float64), np.add(x, x, casting="safe"), np.exp(x, dtype=np.float64)), A)
    check(
        lambda x: (np.add(x, 1.7, dtype=np.int32, casting="unsafe"), np.sqrt(x, dtype=np.float32, casting="unsafe")), I
    )
    check(lambda x: np.multiply(x, 2, out=x + 1), A)
    check(lambda x: np.divide(1, x, out=x * 0, where=x > 0.5), A)
    check(lambda x: np.add(x, x, signature="dd->d"), A)


def test_assignment_operators_on_own_values() -> None:
    def function(x: Any) -> Any:
        total = x * 0
        same = total
        for i in range(3):
            total += x * i
        total *= 2
        return total, same

    check(function, A)


PRODUCTS: list[Any] = [
    lambda a, b: (a @ b, np.matmul(a, b), a.dot(b), np.dot(a, b), np.tensordot(a, b, 1)),
    lambda a, b: (a[0] @ b, a @ b[:, 0], a[0] @ b[:, 0], np.vdot(a[0], b[:, 0]), np.inner(a[0], b[:, 1])),
    lambda a, b: (np.tensordot(a, b, ([1], [0])), np.tensordot(a, a, 2), np.inner(a, a), np.tensordot(a, b, 0)),
    lambda a, b: (np.matmul(a[None, None], b), a[None] @ np.stack([b, b, b]), np.vecdot(a, a), np.outer(a, b)),
    lambda a, b: (np.dot(a, 2), np.dot(a[None], np.stack([b, b])), 3 * a @ b),
]


@pytest.mark.parametrize("number", range(len(PRODUCTS)))
@pytest.mark.parametrize("dtypes", ["dd", "ff", "df", "ii", "FF", "ee"])
def test_products(number: int, dtypes: str) -> None:
    a = (rng.normal(size=(3, 4)) * 3).astype(dtypes[0])
    b = (rng.normal(size=(4, 2)) * 3).astype(dtypes[1])
    check(PRODUCTS[number], a, b, ulps=40, products=True)


def test_new_arrays_inside_a_trace() -> None:
    import kernelgraph as kg

    def new(np: Any) -> Any:
        def function(x: Any) -> Any:
            return (
                x + np.zeros(5),
                x * np.ones((4, 5), np.float32),
                np.full((2, 2), 3.5),
                np.arange(5),
                np.arange(1, 7, 2) + np.arange(3.0),
                np.arange(0, 1, 0.1),
                np.linspace(0, 1, 7),
                np.linspace(2, 5, 4, endpoint=False, dtype=np.float32),
                np.linspace(0, 10, 5, dtype=int),
                np.linspace(3, 4, 1),
                np.eye(3),
                np.eye(2, 4, k=1, dtype=np.int8),
                np.empty((0, 3)),
            )

        return function

    from tests.dsl.tracing import assert_same, interpreted

    assert_same(interpreted(new(kg), B), new(np)(B))


def test_functions_of_our_own() -> None:
    import kernelgraph as kg
    from tests.dsl.tracing import interpreted

    erf, relu, gelu = interpreted(lambda x: (kg.erf(x), kg.relu(x), kg.gelu(x, approximate=True)), B)
    np.testing.assert_allclose(erf, np.vectorize(__import__("math").erf)(B), rtol=1e-14)
    np.testing.assert_array_equal(relu, np.maximum(B, 0))
    assert gelu.shape == B.shape


@pytest.mark.parametrize(
    "name", ["sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "mean", "count_nonzero"]
)
def test_axes_of_a_number(name: str) -> None:
    """A ufunc's reduce takes axis 0 and -1 of a 0-d array; mean does not, and none takes 1."""
    x = np.float64(-0.5)
    for axis in (0, -1, 1, (0,)):
        try:
            getattr(np, name)(x, axis=axis)
        except (np.exceptions.AxisError, TypeError):
            with pytest.raises((np.exceptions.AxisError, TypeError)):
                check(lambda x, axis=axis: getattr(np, name)(x, axis=axis), x)
        else:
            check(lambda x, axis=axis: getattr(np, name)(x, axis=axis), x)


def copied(a: Any, where: Any, out: Any) -> Any:
    np.copyto(out, a, where=where)
    return out + 0


def placed(a: Any, where: Any, out: Any) -> Any:
    np.putmask(out, where, a)
    return out + 0


MASKED_CALLS: list[Any] = [
    copied,
    placed,
    lambda a, where, out: copied(5, where, out),
    lambda a, where, out: np.add(a, 1, out=out, where=where) + 0,
    *(
        lambda a, where, out, _f=f: _f(a, where=where)
        for f in (np.sum, np.mean, np.var, np.any, np.nansum, np.nanmean, np.add.reduce, np.bitwise_or.reduce)
    ),
    lambda a, where, out: a.max(initial=2, where=where),
    lambda a, where, out: np.hypot.reduce(a, axis=None, initial=3, where=where),
]
MASK_SHAPES = [(), (1,), (3,), (1, 1), (1, 3), (2, 3), (2, 1), (1, 1, 1), (0,)]


@pytest.mark.parametrize("number", range(len(MASKED_CALLS)))
def test_a_mask_makes_nothing_larger(number: int) -> None:
    for shape in ((), (1,), (3,), (1, 1), (2, 3)):
        for mask in MASK_SHAPES:
            a, where = np.arange(np.prod(shape, dtype=int)).reshape(shape), np.arange(np.prod(mask)).reshape(mask) % 2
            agrees(MASKED_CALLS[number], a, where == 0, np.zeros(shape, int))


@pytest.mark.parametrize("number", range(len(MASKED_CALLS)))
def test_a_mask_is_of_booleans(number: int) -> None:
    a, out = np.arange(3), np.zeros(3, int)
    for where in (np.array([1, 0, 2]), np.array([1.5, 0, 0]), np.array([True, False, True])):
        agrees(MASKED_CALLS[number], a, where, out)
    for known in ([1, 0, 3], [0.5, 0, 1], 1, np.int64(0), np.False_):
        agrees(lambda a, out, where=known: MASKED_CALLS[number](a, where, out), a, out)


NUMBER_REDUCTIONS: list[Any] = [
    lambda x: np.hypot.reduce(x, axis=0, initial=4),
    lambda x: np.hypot.reduce(x, axis=None, keepdims=True),
    lambda x: np.hypot.reduce(x, axis=0, initial=4, where=x > 0),
    lambda x: [out := np.zeros(()), np.hypot.reduce(x, out=out)][0],
    lambda x: np.hypot.reduce(x.astype(int)),
    lambda x: np.arctan2.reduce(x, dtype="f4"),
]


@pytest.mark.parametrize("number", range(len(NUMBER_REDUCTIONS)))
def test_a_number_is_reduced_as_one_element(number: int) -> None:
    agrees(NUMBER_REDUCTIONS[number], np.array(-3.0))
