"""`@kg.elementwise`: what a scalar function means for arrays, its dtypes, its guards and its refusals."""

from __future__ import annotations

import cmath
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.agreement import arrays

few = settings(max_examples=examples(25), deadline=None)
SCALE = 3.0


def clamped(x, low, high):
    return low if x < low else high if x > high else x


@kg.elementwise
def escape(c, most=30):
    """How many steps z*z + c takes to leave the circle of radius 2 (Mandelbrot 1980)."""
    z = 0j
    for step in range(most):
        if z.real * z.real + z.imag * z.imag > 4.0:
            return step
        z = z * z + c
    return most


@kg.elementwise
def collatz(n):
    """Steps to 1; it never ends for 0."""
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@kg.elementwise
def root(a, b):
    """Newton's square root of a*a + b, how many steps it took, and whether it is above 1."""
    goal = abs(a * a + b)
    x, steps = goal + 1.0, 0
    while abs(x * x - goal) > 1e-6 * (goal + 1.0) and steps < 60:
        x = 0.5 * (x + goal / x)
        steps += 1
    return x, steps, x > 1.0


@kg.elementwise
def piecewise(x, y):
    if x < 0:
        return clamped(x, -1.5, 1.5) * SCALE + y
    return math.sqrt(x) - y * 0.5


@kg.elementwise
def turned(z, angle):
    return z * cmath.exp(1j * angle) + 2.0


@kg.elementwise
def parity(a, b):
    return (a % 2 == 0) != b


def by_hand(function: kg.Elementwise, part: int | None, *args: Any) -> Any:
    """np.vectorize of the Python function."""
    plain = function.function if part is None else lambda *xs: function.function(*xs)[part]
    return np.vectorize(plain, otypes=[float if part == 0 else object])(*args)


def near(got: Any, wanted: Any, dtype: str) -> None:
    got = np.asarray(got)
    assert got.dtype == dtype
    wanted = np.asarray(wanted).astype(dtype)
    if np.dtype(dtype).kind in "fc":
        np.testing.assert_allclose(got, wanted, rtol=2e-5 if dtype in ("f4", "c8") else 1e-12, atol=1e-5)
    else:
        np.testing.assert_array_equal(got, wanted)


PIECES = kg.kernel_graph(lambda x, y: piecewise(x, y))
ROOTS = kg.kernel_graph(lambda x, y: root(x[::-1], y))
TURNS = kg.kernel_graph(lambda z, angle: turned(z, angle))
WHOLE = kg.kernel_graph(lambda a: (parity(a, a > 1), parity(a.T, True)))


@few
@given(arrays(("f4", "f8", "i4", "?"), (0, 3)), st.data())
def test_agrees_with_vectorize(x, data):
    y = data.draw(arrays(("f4", "f8", "i1"), shape=x.shape[data.draw(st.integers(0, x.ndim)) :]))
    kind = "f4" if np.result_type(x, y) == np.float32 else "f8"
    if {x.dtype.kind, y.dtype.kind} & {"i", "b"} and "f4" in (x.dtype.str[1:], y.dtype.str[1:]):
        kind = "f8"  # numba: an integer and a float32 make a float64
    got = np.asarray(PIECES(x, y))
    assert got.dtype.kind == "f" and got.shape == np.broadcast_shapes(x.shape, y.shape)
    np.testing.assert_allclose(got, by_hand(piecewise, None, x, y).astype(float), rtol=2e-5, atol=1e-5)
    if x.dtype == y.dtype and x.dtype.kind == "f":
        assert got.dtype == kind


@few
@given(arrays(("f4", "f8"), (1, 2), 1, 9), st.data())
def test_several_results(x, data):
    y = data.draw(arrays((x.dtype.str[1:],), shape=x.shape))
    value, steps, above = ROOTS(x, y)
    dtype = x.dtype.str[1:]
    near(value, by_hand(root, 0, x[::-1], y), dtype)
    assert np.asarray(steps).dtype == np.int64 and np.asarray(above).dtype == bool
    if dtype == "f8":
        near(steps, by_hand(root, 1, x[::-1], y), "i8")


@few
@given(arrays(("c8", "c16"), (0, 2)), st.floats(-3, 3))
def test_complex(z, angle):
    """A Python float has the arrays' precision, and so have constants."""
    near(TURNS(z, angle), turned.function(z.astype("c16"), 0.0) * 0 + z * np.exp(1j * angle) + 2.0, z.dtype.str[1:])


@few
@given(arrays(("i1", "u2", "i8"), (0, 2)))
def test_integers_and_bools(a):
    got, other = WHOLE(a)
    near(got, by_hand(parity, None, a, a > 1), "?")
    near(other, by_hand(parity, None, a.T, True), "?")


@pytest.mark.parametrize("n", [1, 5, 16, 31, 1000, 4097])
def test_only_elements_that_exist_are_computed(n):
    """`collatz(0)` never returns: lanes beyond the end must not be computed, nor in rows, strides and transposes."""
    a = np.arange(1, 3 * n + 1).reshape(3, n)
    wanted = np.vectorize(collatz.function)(a)
    f = kg.kernel_graph(lambda a: (collatz(a), collatz(a).sum(1), collatz(a).max(0), collatz(a[:, ::-2]).T))
    for got, want in zip(f(a), (wanted, wanted.sum(1), wanted.max(0), wanted[:, ::-2].T), strict=True):
        np.testing.assert_array_equal(got, want)


def test_fuses_with_what_is_around_it():
    f = kg.kernel_graph(lambda x, y: (escape(x[None, :] + 1j * y[:, None]) * 2 + 1).sum(1))
    x, y = np.linspace(-2, 1, 70), np.linspace(-1, 1, 40)
    wanted = np.vectorize(escape.function)(x + 1j * y[:, None]) * 2 + 1
    np.testing.assert_array_equal(f(x, y), wanted.sum(1))
    g = kg.kernel_graph(lambda a: np.sqrt(escape(a + 1j) * 2.0) - a)
    a = np.linspace(-2, 1, 1000)
    (task,) = g.program(a).tasks
    assert "escape" in task.name
    near(g(a), np.sqrt(np.vectorize(escape.function)(a + 1j) * 2.0) - a, "f8")
    assert "user_escape" in g.source(a) and "user_escape" in str(g.graph(a))


def test_outside_of_a_trace():
    x = np.linspace(-2, 2, 11)
    for array in (x, kg.asarray(x), x[::-2], x.reshape(11, 1)):
        got = escape(array + 0.5j, most=9)
        assert isinstance(got, kg.Array)
        near(got, np.vectorize(escape.function)(np.asarray(array) + 0.5j, 9), "i8")
    assert escape(1 + 1j) == escape.function(1 + 1j) and type(escape(0.5)) is int
    with kg.override(disable=True):
        near(kg.kernel_graph(lambda c: escape(c))(x + 0.5j), np.vectorize(escape.function)(x + 0.5j), "i8")


def test_half_floats_come_as_float32():
    x = np.linspace(-2, 2, 9, dtype=np.float16)
    near(kg.kernel_graph(lambda x: piecewise(x, 1.0))(x), by_hand(piecewise, None, x.astype(float), 1.0), "f4")


def test_errors_in_it_give_nan_or_zero():
    @kg.elementwise
    def odd(x, n):
        return 1.0 / x, math.sqrt(x), n // (n - n), (1.5, 2.5)[n]

    x = np.array([-1.0, 0.0, 4.0])
    inverse, square, whole, item = odd(x, np.array([0, 1, 1]))
    np.testing.assert_array_equal(inverse, [-1, np.inf, 0.25])
    np.testing.assert_array_equal(square, [np.nan, 0, 2])
    np.testing.assert_array_equal(whole, 0)
    np.testing.assert_array_equal(item, [1.5, 2.5, 2.5])


def test_traced_again_when_what_it_captured_changes(monkeypatch):
    factor = 2.0

    @kg.elementwise
    def scaled(x):
        return clamped(x, 0.0, 10.0) * factor * SCALE

    f = kg.kernel_graph(lambda x: scaled(x))
    x = np.array([1.0, 20.0])
    np.testing.assert_array_equal(f(x), [6, 60])
    np.testing.assert_array_equal(scaled(x), [6, 60])
    monkeypatch.setitem(globals(), "SCALE", 1.0)
    np.testing.assert_array_equal(f(x), [2, 20])
    np.testing.assert_array_equal(scaled(x), [2, 20])
    factor = 5.0
    np.testing.assert_array_equal(f(x), [5, 50])
    monkeypatch.setitem(globals(), "clamped", lambda x, low, high: x)
    np.testing.assert_array_equal(f(x), [5, 100])


def mathematics(x):
    return x**2 + abs(x) + min(x, 1.0) + math.pi + np.sqrt(x) + math.erf(x) + math.gamma(x + 2) + x**0.5


def polynomial(x):
    total = 0.0
    for c in POWERS:
        total = total * x + c
    for i, c in enumerate(POWERS):
        total += i * c
    return total, divmod(int(x) + 7, 3)[1], (lambda t: t * 2.0)(x)


def endless_but_for_break(x):
    while True:
        x = x * 0.5
        if x < 1e-3:
            break
    else:
        return 0.0
    return x if isinstance(x, float) else 0.0


POWERS = (1.0, 0.5, 0.25)


@pytest.mark.parametrize("function", [mathematics, polynomial, endless_but_for_break], ids=lambda f: f.__name__)
def test_what_functions_may_use(function):
    x = np.array([0.5, 1.5, 2.25])
    got, wanted = kg.elementwise(function)(x), np.vectorize(function)(x)
    for a, b in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, wanted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def line_of(function: Any, text: str) -> str:
    """`file:line` of the line with this text in the function."""
    lines = __import__("inspect").getsourcelines(function)
    return f"{os.path.basename(__file__)}:{lines[1] + next(i for i, s in enumerate(lines[0]) if text in s)}"


def raises(x):
    if x < 0:
        raise ValueError("negative")  # here
    return x


def asserts(x):
    assert x > 0  # here
    return x


def makes_list(x):
    parts = [x, x]  # here
    return parts[0]


def makes_dict(x):
    rates = {1: 0.5, 2: 0.4}  # here
    return rates[1] * x


def catches(x):
    try:
        return 1 / x
    except ZeroDivisionError:  # here
        return 0.0


def generates(x):
    return sum(x * i for i in range(3))  # here


def prints(x):  # here
    print(x)
    return x


def draws(x):  # here
    return np.random.rand() * x


def indexes(x):
    return x[0]  # here


def text(x):
    return f"{x}"  # here


def nothing(x):  # here
    if x > 0:
        return x


def unknown_name(x):
    return x + not_there  # here  # noqa: F821


def takes_method(x):
    return x.sum()  # here


def captures_array(x):
    return x + TABLE[0]  # here


def endless(x):
    return endless(x - 1)


def mixes(x):
    return x if x > 0 else (x, x)  # here


def powers(x):
    return 2**100 * x  # here


def shifts(x):
    y = 1 << 300  # here
    return x + y


TABLE = np.arange(3.0)
REFUSED = [
    (raises, "raises an error, which a kernel cannot; return np.nan"),
    (asserts, "asserts"),
    (makes_list, "makes a list"),
    (makes_dict, "makes a dict"),
    (generates, "a generator cannot be compiled; write a loop"),
    (prints, "it uses Python itself, as print does"),
    (draws, "draw them outside, by kg.random"),
    (indexes, "a number has no items"),
    (catches, "catches errors"),
    (text, "makes a string"),
    (nothing, "returns nothing"),
    (unknown_name, "not_there"),
    (takes_method, "has no sum"),
    (captures_array, "TABLE, a ndarray"),
    (endless, "calls itself; write a loop"),
    (powers, r"2 \*\* 100, which has more than 64 bits; write floats: 2.0\*\*100"),
    (shifts, "1 << 300, which has more than 64 bits"),
    (mixes, "one path gives float64, another UniTuple|its paths return different types"),
]


@pytest.mark.parametrize(("function", "message"), REFUSED, ids=[f.__name__ for f, _ in REFUSED])
def test_refusals_name_the_line_and_what_to_write(function, message):
    with pytest.raises(kg.UserError, match=message) as caught:
        kg.elementwise(function)(np.ones(3))
    place = line_of(function, "# here") if function is not endless else line_of(function, "def ")
    assert str(caught.value).startswith(place), caught.value
    assert "numba" not in str(caught.value) and "Traceback" not in str(caught.value)
    frames = [f.filename for f in __import__("traceback").extract_tb(caught.value.__traceback__)]
    assert not any("numba" in f for f in frames)


def test_arguments_that_are_no_numbers():
    with pytest.raises(kg.DTypeError, match="the argument most is a str"):
        escape(np.ones(3), "many")
    with pytest.raises(kg.ArgumentsError, match="missing"):
        escape()
    with pytest.raises(kg.ArgumentsError, match="options"):
        kg.elementwise(lambda x, **options: x)


WARM = """
import sys
import numpy as np, kernelgraph as kg
from tests.counts import examples

@kg.elementwise
def halved(x):
    while x > 1.0:
        x = x * 0.5
    return x

print(np.asarray(halved(np.array([5.0, 3.0]))).tolist(), "numba" in sys.modules)
"""


def test_a_warm_start_imports_no_numba(tmp_path):
    script = tmp_path / "warm.py"
    script.write_text(WARM)
    environment = os.environ | {
        "KERNELGRAPH_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    runs = [
        subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs == ["[0.625, 0.75] True\n", "[0.625, 0.75] False\n"]


@few
@given(arrays(("i8",), (1, 3), 1, 7), st.data())
def test_of_masked_elements_only_the_chosen_are_computed(a, data):
    """`collatz(0)` never returns."""
    mask = (abs(a) > 0).all(axis=tuple(range(data.draw(st.integers(1, a.ndim)), a.ndim)))
    a = abs(a)
    if not a[mask].size:
        return
    wanted = a.copy()
    wanted[mask] = np.vectorize(collatz.function)(a[mask])
    f = kg.kernel_graph(lambda a, m: (collatz(a[m]).sum(), root(a[m] * 1.0, 2.0)[0].max()))
    total, largest = f(a, mask)
    assert total == wanted[mask].sum()
    np.testing.assert_allclose(largest, by_hand(root, 0, a[mask] * 1.0, 2.0).max())
    np.testing.assert_array_equal(CHANGED(a, mask), wanted + 1)


@kg.kernel_graph
def CHANGED(a, m):
    a[m] = collatz(a[m])
    return a + 1


def test_two_functions_may_do_the_same() -> None:
    """Machine code knows a function by its name."""

    @kg.elementwise
    def one(x):
        return x * 7.5 if x > 0.123 else -x

    @kg.elementwise
    def another(x):
        return x * 7.5 if x > 0.123 else -x

    x = np.array([1.0, -1.0])
    np.testing.assert_array_equal(one(x), [7.5, 1.0])
    np.testing.assert_array_equal(another(x), [7.5, 1.0])
    np.testing.assert_array_equal(kg.kernel_graph(lambda x: one(x) + another(x * 2), device="cpu")(x), [22.5, 3.0])
