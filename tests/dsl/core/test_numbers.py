"""Python numbers: runtime arguments with Python's arithmetic, taken by value where the trace needs the value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.tracing import assert_same, check, interpreted

X = np.linspace(-2, 3, 12).astype(np.float32).reshape(3, 4)


def traces(f: kg.KernelGraph) -> int:
    return f.why().count("traced for")


def test_another_value_traces_and_compiles_nothing() -> None:
    f = kg.kernel_graph(lambda x, r, n=2: x * r + (r * r - n) / 3, device="cpu")
    for r in (0.5, 2.5, float("nan"), -0.0, float("inf"), 1e300):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(f(X, r), X * r + (r * r - 2) / 3)
    np.testing.assert_array_equal(f(X, 1.5, 7), X * 1.5 + (1.5 * 1.5 - 7) / 3)
    assert f.why().count("traced for") == 1 and f.why().count("compiled") == 1
    f(X, 3)
    assert traces(f) == 2  # an int is another type


numbers = st.integers(-9, 9) | st.floats(-4, 4) | st.complex_numbers(max_magnitude=3)
OPERATIONS = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a**b,
    lambda a, b: divmod(a, b),
    lambda a, b: (-a, +b, abs(a)),
    lambda a, b: 3 - a,
    lambda a, b: 2.5 / a,
    lambda a, b: 2**a,
    lambda a, b: (a.real, b.imag, a.conjugate()),
    lambda a, b: a & b,
    lambda a, b: (a | 5) ^ (b << 2) >> 1,
    lambda a, b: ~a,
    lambda a, b: math.sqrt(abs(a)) + int(b.real),
    lambda a, b: round(a, 1),
    lambda a, b: [i for i in range(b)],
    lambda a, b: a if a < b else b,
    lambda a, b: {a: b}[a],
    lambda a, b: f"{a:.2f}{b}",
    lambda a, b: (isinstance(a, int), isinstance(b, float)),
    lambda a, b: (a < b, a == b, a != b, not a),
]


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(OPERATIONS), numbers, numbers)
def test_arithmetic_is_pythons(operation: Any, a: Any, b: Any) -> None:
    """Same value, same type, same exception."""

    def function(x: Any, a: Any, b: Any) -> Any:
        return operation(a, b)

    try:
        expected = operation(a, b)
    except (ArithmeticError, TypeError, ValueError, AttributeError) as error:
        with pytest.raises(type(error)):
            kg.kernel_graph(function, device="cpu")(X, a, b)
        return
    assert_same(kg.kernel_graph(function, device="cpu")(X, a, b), expected)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(OPERATIONS[:8]), numbers, numbers, numbers, numbers)
def test_a_trace_serves_every_value_of_its_types(operation: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    f = kg.kernel_graph(lambda x, a, b: operation(a, b), device="cpu")
    for p, q in ((a, b), (c, d), (d, c)):
        try:
            expected = operation(p, q)
        except (ArithmeticError, TypeError) as error:
            with pytest.raises(type(error)):
                f(X, p, q)
        else:
            assert_same(f(X, p, q), expected)


@pytest.mark.parametrize("dtype", ["i1", "u2", "i8", "u8", "f2", "f4", "f8", "c8", "?"])
@pytest.mark.parametrize("number", [3, 0.1, 2 - 1j, True])
def test_weak_promotion(dtype: str, number: Any) -> None:
    x = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    check(lambda x, n: (x + n, n * x, np.where(x > 0, x, n), np.maximum(x, n) if dtype != "c8" else x), x, number)
    check(lambda x, n: (np.sqrt(abs(n)), np.add(n, n), np.exp(n * 1.0), np.float32(2) * n), x, number)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u4", "i8", "u8"])
def test_integers_that_do_not_fit_raise_as_numpy_does(dtype: str) -> None:
    x = np.arange(3, dtype=dtype)
    info = np.iinfo(dtype)
    f = kg.kernel_graph(lambda x, n: x + n, device="cpu")
    g = kg.kernel_graph(lambda x, n: (x < n, x == n, n <= x), device="cpu")
    for n in (0, int(info.max), int(info.min), int(info.max) + 1, int(info.min) - 1, 2**70, 1):
        assert_same(
            g(X.astype(int).astype(dtype), n), (lambda x, n: (x < n, x == n, n <= x))(X.astype(int).astype(dtype), n)
        )
        try:
            expected = x + n
        except OverflowError:
            with pytest.raises(kg.NumberError, match=dtype.replace("i", "int").replace("u", "uint")[:3]):
                f(x, n)
        else:
            assert_same(f(x, n), expected)


def test_large_integers_in_float_arrays() -> None:
    f = kg.kernel_graph(lambda x, n: x + n, device="cpu")
    for n in (1, 2**53 + 1, 2**70 + 1, -(2**60) - 1):
        assert_same(f(X, n), X + n)


def test_values_that_the_trace_needs_join_the_key() -> None:
    def function(x: Any, n: int, flag: bool = True, mode: str = "a") -> Any:
        for _ in range(n):
            x = x + 1
        return x.reshape(n, -1) if flag else x.sum(axis=n - 1)

    f = kg.kernel_graph(function, device="cpu")
    for n, flag in ((2, True), (3, True), (2, False), (2, True), (1, False)):
        assert_same(f(X, n, flag), function(X, n, flag))
    assert traces(f) == 4
    assert "part of the key" in f.explain(X, 2, verbose=True)


def test_numpy_scalars_and_0d_arrays_are_values_where_needed() -> None:
    def function(x: Any, s: Any) -> Any:
        return x * s if s > 1 else x.sum(axis=int(s))

    f = kg.kernel_graph(function, device="cpu")
    for s in (np.float32(2), np.float64(3), np.array(1.5), np.array(1), np.int8(0), np.float64(3)):
        assert_same(f(X, s), function(X, s))
    g = kg.kernel_graph(lambda x, s: (x + s, x * np.sqrt(s)), device="cpu")
    assert_same(g(X, np.float64(2)), (X + np.float64(2), X * np.sqrt(np.float64(2))))
    assert_same(g(X, np.float64(3)), (X + np.float64(3), X * np.sqrt(np.float64(3))))
    assert traces(g) == 1


def test_a_number_of_only_numbers() -> None:
    f = kg.kernel_graph(lambda n: range(int(np.floor(n))).stop + np.float32(1), device="cpu")
    assert_same(f(3.7), 3 + np.float32(1))
    assert_same(f(4.2), 4 + np.float32(1))


def test_static_argnames() -> None:
    f = kg.kernel_graph(lambda x, n: x * n, device="cpu", static_argnames="n")
    assert_same(f(X, 2), X * 2)
    assert_same(f(X, n=2.0), X * 2.0)
    assert_same(f(X, n=-0.0), X * -0.0)
    assert_same(f(X, n=0.0), X * 0.0)
    assert not f.graph(X, 2).numbers and traces(f) == 4
    assert np.signbit(np.asarray(f(X, 0.0))).tolist() == np.signbit(X * 0.0).tolist()


def test_power_with_an_exponent_of_the_call() -> None:
    f = kg.kernel_graph(lambda x, p: x**p, device="cpu")
    z = np.array([-0.0, -np.inf, 4.0, 2.0])
    for p in (2.0, 0.5, 3.0, 0.5):
        with np.errstate(all="ignore"):
            np.testing.assert_array_max_ulp(np.asarray(f(z, p)), z**p, 4)
            assert np.signbit(np.asarray(f(z, p))).tolist()[0] == np.signbit(z**p).tolist()[0]
    n = np.array([1, 2, 3])
    assert_same(f(n, 2), n**2)
    with pytest.raises(kg.ShapeError, match="negative integer powers"):
        f(n, -2)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda n: [1.5] * n, 4),
        (lambda n: n * (1, 2), 3),
        (lambda n: (n == [4], n != (4,)), 4),
        (lambda x: [1.5] * x[1], np.arange(3)),
        (lambda x: x[:2].sum() * (2, 3), np.arange(4)),
    ],
)
def test_whole_numbers_repeat_lists(function: Any, given: Any) -> None:
    """And multiply none of their elements."""
    got, want = kg.kernel_graph(function, device="cpu")(given), function(given)
    assert type(got) is type(want) and [np.asarray(x).item() for x in got] == [*want]


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8", "c8", "c16"])
def test_complex_numbers(dtype: str) -> None:
    f = kg.kernel_graph(lambda x, n: (x * n, n + x), device="cpu")
    for n in (2 - 1j, 0.5j, 2 - 1j):
        assert_same(f(X.astype(dtype), n), (X.astype(dtype) * n, n + X.astype(dtype)))


def test_interpreted_numbers_match() -> None:
    assert_same(interpreted(lambda x, r: (x * r, r * 2), X, 0.25), (X * 0.25, 0.5))


@pytest.mark.parametrize("other", [None, "auto", b"auto"])
@pytest.mark.parametrize("x", [1.5, 3, True, np.float32(2), np.arange(6.0).reshape(2, 3), np.zeros((0, 2))], ids=repr)
def test_no_number_is_equal_to_text_or_none(x: Any, other: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return x == y, x != y, y == x, 1 if y is None and not isinstance(x, np.ndarray) and x == y else 2

    for got, wanted in zip(kg.kernel_graph(f, device="cpu")(x, other), f(x, other), strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted, strict=True)
