"""Derivatives of `@kg.elementwise` functions: against differences, to the second order, on both targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph import UnsupportedError
from kernelgraph.compiler.pipeline import compile_graph_to_program

from .derivatives import check_function

rng = np.random.default_rng(0)


def helper(x):
    return math.exp(x) if x < 0.5 else x * x


@kg.elementwise
def root(a, b):
    """Newton's method, which stops where it has come close enough, and another result."""
    x = 1.0
    for _ in range(60):
        step = (x**3 + a * x - b) / (3 * x * x + a)
        x -= step
        if abs(step) < 1e-15:
            break
    if b < 0:
        return x, helper(a)
    return x, math.exp(-a) * b


@kg.elementwise
def polynomial(a, n):
    """Of whole numbers there is no derivative; the second result is one."""
    total = 0.0
    for i in range(n):
        total = total * a + i
    return total + a**n, n * 2, int(a)


@kg.elementwise
def chosen(x, y, z):
    low, high = min(x, y, z), max(x * y, 0.1)
    return (low if x > y else high) * float(z)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x, y: math.sqrt(x + 2) + np.sqrt(y + 2.0),
    "exp": lambda x, y: math.exp(x) - np.exp(y) * math.expm1(x),
    "log": lambda x, y: math.log(x + 2) * np.log(y + 2.0) + math.log2(x + 3) - math.log10(y + 3) + math.log1p(x * x),
    "circular": lambda x, y: math.sin(x) * np.cos(y) + math.tan(x) / 3,
    "inverse": lambda x, y: math.asin(x / 2) + np.arccos(y / 2) * math.atan(x) + math.atan2(x, y + 2),
    "hyperbolic": lambda x, y: math.sinh(x) * np.cosh(y) + math.tanh(x),
    "inverse hyperbolic": lambda x, y: math.asinh(x) + np.arccosh(y + 3) * math.atanh(x / 2),
    "power": lambda x, y: (x + 2) ** y + math.pow(y + 2, 3) + x**2 + x**-1 + 2.0**y + pow(x, 3),
    "remainder": lambda x, y: (x + 5.3) % (y + 1.7) + (x + 5.2) // 1.1,
    "division": lambda x, y: x / (y + 3) - 1 / (x + 3) + (-x) + (+y),
    "hypot": lambda x, y: math.hypot(x, y) + abs(x) * math.fabs(y) + math.copysign(x, y),
    "erf": lambda x, y: math.erf(x) * math.erfc(y) + math.degrees(x) * math.radians(y),
    "steps": lambda x, y: math.floor(x) * y + math.ceil(y) * x + round(x) + (x > y) * x + math.trunc(x),
    "in place": lambda x, y: added(x, y),
}


def added(x, y):
    total = 1
    total += x
    total *= y
    total -= 2
    total /= x + 3
    total **= 2
    return total


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_libraries(name: str) -> None:
    x, y = rng.uniform(0.15, 0.9, 5) * [1, -1, 1, -1, 1], rng.uniform(0.15, 0.9, 5) * [1, 1, -1, -1, 1]
    check_function(kg.elementwise(FUNCTIONS[name]), x, y, near=1e-5, order=2 if name in ("exp", "power") else 1)


def test_loops_that_the_values_end() -> None:
    a, b = rng.uniform(0.3, 1, 4), rng.uniform(-1, 1, 4)
    check_function(root, a, b, near=1e-5)


def test_whole_numbers_have_none() -> None:
    n = np.arange(4)
    check_function(lambda n, a: polynomial(a[:, None], n)[0], n, rng.uniform(0.3, 0.9, 4), near=1e-5, order=1)
    assert np.asarray(kg.grad(lambda a: polynomial(a, 3)[0].sum())(np.ones(2, np.float32))).dtype == np.float32


def test_the_least_and_the_greatest() -> None:
    check_function(chosen, *(rng.uniform(0.2, 2, 6) for _ in range(3)), near=1e-5, order=1)


def test_elements_that_a_mask_leaves_out_get_zero() -> None:
    @kg.elementwise
    def logarithm(x):
        return math.log(x)

    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        y[x > 0] = logarithm(x[x > 0])
        return y.sum()

    found = kg.grad(f)(np.array([2.0, -1.0, 0.0, 4.0]))
    np.testing.assert_allclose(found, [0.5, 0, 0, 0.25])


def test_a_derivative_is_a_function_in_a_cuda_kernel() -> None:
    pytest.importorskip("numba_cuda", reason="needs the extra cuda")
    from kernelgraph.runtime.devices.cuda.compile.compile import compile_ptx

    a, b = np.ones(64), np.ones(64)
    first = kg.grad(lambda a, b: root(a, b)[0].sum())
    second = kg.grad(lambda a, b: first(a, b).sum())
    for function in (first, second):
        (task,) = compile_graph_to_program(function.graph(a, b), "cuda").tasks
        assert task.kernel.functions
        text = compile_ptx(task.kernel, (9, 0))
        assert "fma.rn.f64" in text


@pytest.mark.parametrize("function", [math.gamma, math.lgamma, lambda x: abs(x * 1j)])
def test_what_has_none_is_refused_at_the_line(function: Any) -> None:
    @kg.elementwise
    def scalar(x):
        return function(x) + x

    with pytest.raises(
        UnsupportedError, match=r"test_user_function_rules.py:\d+: scalar has no derivative.*custom_jvp"
    ):
        kg.grad(lambda x: scalar(x).sum())(np.ones(3))


def test_complex_arguments_are_refused() -> None:
    @kg.elementwise
    def length(z):
        return z.real * z.imag

    with pytest.raises(UnsupportedError, match="two reals"):
        kg.grad(lambda z: length(z).sum())(np.ones(3, complex))
