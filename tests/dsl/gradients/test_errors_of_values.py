"""Errors that values decide: gradients raise what Python raises of the function that is differentiated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg


def divided(x: Any) -> Any:
    return x[0] * 2.0 / float(x[1]) + float(x[0]) / float(x[1])


def floor_divided(x: Any) -> Any:
    return x.sum() * (5 // int(x[1]))


def remainder(x: Any) -> Any:
    return x.sum() * (5 % int(x[1]))


def power(x: Any) -> Any:
    return x[0] * float(x[1]) ** -1


def root(x: Any) -> Any:
    return x[0] * math.sqrt(float(x[1]) - 1)


def raised(x: Any) -> Any:
    if x[1] == 0:
        raise ValueError("zero")
    return x[0] / x[1]


def asserted(x: Any) -> Any:
    if x[1] <= 0:  # pytest writes assertions anew
        raise AssertionError("positive")
    return x[0] / x[1]


def of_a_turn(x: Any) -> Any:
    s = 0.0
    for i in range(30):
        s += x[0] / float(x[i % 2])
        if s < 0:
            raise OverflowError("small")
        s = s + 1.0 / float(x[i % 2])
    return s


def of_a_while(x: Any) -> Any:
    s, i = 0.0, 0
    while i < int(x[0]):
        s += 1.0 / float(x[1])
        i += 1
    return s * x[0]


def of_a_branch(x: Any) -> Any:
    return 1.0 / float(x[1]) if x[0] > 2 else x[0]


def of_a_second(x: Any) -> Any:
    y = 1.0 / float(x[1])
    if x[0] >= 4:
        raise LookupError(4)
    return y * x[0]


def indexed(x: Any) -> Any:
    return x[int(x[1])] * 2.0


def indexed_in_turns(x: Any) -> Any:
    s = 0.0
    for i in range(3):
        s += x[int(x[1]) + 0 * i] * 2.0
    return s


def indexed_in_a_branch(x: Any) -> Any:
    return x[int(x[1])] * 3.0 if x[0] > 2 else x[0]


FUNCTIONS = [
    *(divided, floor_divided, remainder, power, root, raised, asserted, of_a_turn, of_a_while, of_a_branch),
    *(of_a_second, indexed, indexed_in_turns, indexed_in_a_branch),
]
WAYS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": kg.grad,
    "grad in a trace": lambda f: kg.kernel_graph(lambda x: kg.grad(f)(x) * 2.0, device="cpu"),
    "grad in a branch": lambda f: kg.kernel_graph(lambda x: kg.grad(f)(x) if x[0] > 1 else x, device="cpu"),
    "value and grad": kg.value_and_grad,
    "vjp": lambda f: lambda x: kg.vjp(f, x)[1](np.float64(1.0)),
    "jvp": lambda f: lambda x: kg.jvp(f, (x,), (np.ones(2),)),
    "jacobian": kg.jacobian,
    "hessian": kg.hessian,
}


def error_of(function: Callable[[Any], Any], x: Any) -> type | None:
    try:
        found = function(x)
        for leaf in found if isinstance(found, tuple) else (found,):
            np.asarray(leaf)
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", [*WAYS])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_raise_what_the_function_raises(function: Any, way: str) -> None:
    derived = WAYS[way](function)
    for x in ([3.0, 2.0], [3.0, 0.0], [2.0, 0.0], [5.0, 1.0], [3.0, -1.0]):
        if error_of(lambda v: float(function(v)), np.array(x)) is None and function(np.array(x)) is not None:
            assert error_of(derived, np.array(x)) is None, x
        else:
            assert error_of(derived, np.array(x)) is error_of(function, np.array(x)), x


def test_gradients_beside_a_check_are_right() -> None:
    x = np.array([3.0, 2.0])
    np.testing.assert_allclose(np.asarray(kg.grad(of_a_second)(x)), [0.5, -0.75])
    np.testing.assert_allclose(np.asarray(kg.grad(asserted)(x)), [0.5, -0.75])


@pytest.mark.filterwarnings("ignore")
def test_a_caught_error_is_refused() -> None:
    def caught(x: Any) -> Any:
        try:
            return x[0] / float(x[1])
        except ZeroDivisionError:
            return x[0] * 0.0

    def caught_number(x: Any) -> Any:
        try:
            return float(x[0]) / float(x[1])
        except ZeroDivisionError:
            return x[0] * 0.0

    np.asarray(kg.grad(caught)(np.array([3.0, 2.0])))
    with pytest.raises(NotImplementedError, match="cannot be caught"):
        kg.grad(caught_number)(np.array([3.0, 0.0]))
