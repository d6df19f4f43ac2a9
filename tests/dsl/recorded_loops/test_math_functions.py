"""Functions of `math`, and `complex()`, on traced numbers: what Python gives, and the errors that it raises."""

from __future__ import annotations

import math
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.control_flow.math_functions import MATH_FUNCTIONS
from tests.turn_programs import recorded


@pytest.mark.parametrize("n", [3, 60])
@pytest.mark.parametrize("function", MATH_FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_of_math_are_compiled(function: Any, n: int, tmp_path: Path) -> None:
    name = function.__name__

    source = f"""
def over_elements(x):
    total, out = 0.0, np.zeros(len(x))
    for i in range(len(x)):
        out[i] = math.{name}(x[i]) + total
        total = total + x[i] * 0.25
    return out, math.{name}(total * 0.05) * np.float32(2)
"""
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    scope: dict[str, Any] = {"np": np, "math": math}
    exec(compile(source, str(path), "exec"), scope)
    over_elements = scope["over_elements"]
    x = np.random.default_rng(1).random(n) * 0.5 + 0.1
    ours = kg.kernel_graph(over_elements, device="cpu")
    for a, b in zip(ours(x), over_elements(x), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)


def norms(x: Any) -> Any:
    out = np.zeros(len(x))
    for i in range(len(x)):
        s = 0.0
        for v in x[i]:
            s += v * v
        out[i] = 1.0 - sqrt(s) / math.exp(s)
    return out, sqrt(out.sum() + 100) * np.float32(2)


def test_they_are_recorded_and_give_floats_of_python() -> None:
    x = np.random.default_rng(2).random((50, 3))
    with recorded() as notes:
        got, want = kg.kernel_graph(norms, device="cpu")(x), norms(x)
    assert notes and not any(note.reasons for note in notes)
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-6)


@pytest.mark.parametrize(
    ("bad", "error"), [(-1.0, ValueError), (800.0, OverflowError), (float("nan"), None)], ids=["domain", "range", "nan"]
)
def test_they_raise_the_errors_of_python(bad: float, error: type[Exception] | None) -> None:
    def of_loop(x: Any) -> Any:
        out = np.zeros(len(x))
        for i in range(len(x)):
            out[i] = math.sqrt(x[i]) + math.exp(x[i]) + x[i] * x[i - 1]
        return out

    def of_number(x: Any) -> Any:
        return math.sqrt(x[3]) + math.exp(x[3])

    for function in (of_loop, of_number):
        ours, x = kg.kernel_graph(function, device="cpu"), np.linspace(1, 2, 60)
        np.testing.assert_allclose(np.asarray(ours(x)), function(x))
        x[3] = bad
        if error is None:
            np.testing.assert_allclose(np.asarray(ours(x)), function(x))
            continue
        with pytest.raises(error, match=r"math (domain|range) error"):
            np.asarray(ours(x))


def whole(x: Any) -> Any:
    total = x.sum()
    return round(total), math.floor(total), math.ceil(-total), math.trunc(total * 10) + 1


def complex_number(x: Any) -> Any:
    return complex(x[0]), complex(x[1], 2) * x[2], complex(0, x.sum())


@pytest.mark.filterwarnings("error:.*runs in NumPy")
@pytest.mark.parametrize("function", [whole, complex_number], ids=lambda f: f.__name__)
def test_builtins_outside_of_loops_are_compiled(function: Any) -> None:
    x = np.random.default_rng(4).random(9) * 5
    got, want = kg.kernel_graph(function, device="cpu")(x), function(x)
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_whole_numbers_raise_the_errors_of_python(bad: float) -> None:
    ours, x = kg.kernel_graph(whole, device="cpu"), np.full(3, bad)
    if bad == 1e30:  # an int of Python's of more than 64 bits
        assert ours(x)[0] == whole(x)[0]
        return
    with pytest.raises(ValueError if bad != bad else OverflowError, match="cannot convert float"):
        np.asarray(ours(x)[0])


POWERS = ("2**i", "(-3)**i", "i**i", "k[i]**c", "2**k[i]", "k[i]**k[i-1]", "(k[:i]**k[:i]).sum()", "2.0**(3*i)")


@pytest.mark.parametrize("power", [*POWERS, "k[i]**(k[i]-3)", "(k[:i]**(k[:i]-3)).sum()", "2**(3*i)"])
def test_powers_of_integers_are_recorded(power: str, tmp_path: Path) -> None:
    source = f"""
import numpy as np
def powers(k, c):
    out, s = np.zeros(len(k)), 0.0
    for i in range(1, len(k)):
        s = s * 0.5 + {power}
        out[i] = s
    return out
"""
    path = tmp_path / "powers.py"
    path.write_text(source)
    scope: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), scope)
    powers, k = scope["powers"], np.random.default_rng(1).integers(1, 5, 30)
    ours = kg.kernel_graph(powers, device="cpu")
    if "-3" in power and "(-3)" not in power:
        with pytest.raises(ValueError, match="Integers to negative integer powers"):
            np.asarray(ours(k, 3))
        return
    with recorded() as notes:
        np.testing.assert_allclose(np.asarray(ours(k, 3)), powers(k, 3))
    assert notes and (not any(note.reasons for note in notes) or power == "2**(3*i)")  # which has more than 64 bits


def escapes(w: int, h: int, n: int) -> Any:
    out = np.zeros((h, w), dtype=int)
    for i in range(h):
        for j in range(w):
            c, z = complex(-2 + 3 * j / w, -1 + 2 * i / h), 0j
            for _ in range(n):
                z = z * z + c
                if abs(z) > 2:
                    break
                out[i, j] += 1
    return out


def test_complex_numbers_of_the_turns_are_recorded() -> None:
    with recorded() as notes:
        assert np.array_equal(np.asarray(kg.kernel_graph(escapes, device="cpu")(30, 20, 25)), escapes(30, 20, 25))
    assert notes and not any(note.reasons for note in notes)


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_loops_that_are_not_recorded_are_left_before_they_take_long() -> None:
    def filled(x: Any) -> Any:
        table = [[0.0 for _ in range(len(x))] for _ in range(len(x))]
        for i in range(len(x)):
            for j in range(len(x)):
                s = 0.0
                for k in range(12):
                    s += x[i] * x[j - k]
                table[i][j] = s
        return np.array(table)

    ours, x = kg.kernel_graph(filled, device="cpu"), np.random.default_rng(3).random(60)
    np.testing.assert_allclose(np.asarray(ours(x)), filled(x))


class Logger:
    """A callable that has no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x * 2


def test_others_of_these_names_are_called_as_they_are() -> None:
    def logged(x: Any) -> Any:
        log, total = Logger(), np.zeros(3)
        if x.sum() > 1:
            total = log(x) + np.log(x)
        return total

    x = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(np.asarray(kg.kernel_graph(logged, device="cpu")(x)), logged(x))
