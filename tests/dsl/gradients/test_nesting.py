"""Transformations of transformations: grad, jvp, vjp, hessian and vmap up to three deep, of functions of each kind.

None ends in an error, and all agree with differences. Each makes a number of a vector of such a function: so the
nestings are words of five letters.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.counts import examples

Array = np.ndarray[Any, Any]
W = np.array([0.5, -1.0, 2.0])
M = np.array([[0.5, 1.0, -0.5], [0.25, -1.0, 1.0], [1.0, 0.5, 0.75]])
ROWS = np.array([[1.0], [0.5]])


def _loop(v: Any) -> Any:
    for i in range(4):
        v = np.sin(v) * W[i % 3] + v[::-1] * 0.5
    return v.sum()


def _recurrence(v: Any) -> Any:
    out = np.zeros_like(v)
    for i in range(3):
        out[i] = v[i] ** 3 + (out[i - 1] * v[i] if i else 0)
    return out.sum()


def _joined_loop(v: Any) -> Any:
    x, y = v * 0.25, v * v * 0.1
    for i in range(1, 3):
        for j in range(i):
            y = 0.5 * np.sin(y[::-1]) + 0.1 * np.tanh(y[j % 3] + x[i - 1])
            y[2] *= x[1]
            x[::-1] += x[::-1] * 0.1
    return (np.concatenate([x, y]) ** 2).sum()


def _branch(v: Any) -> Any:
    if v.sum() > 0:
        return (v**3 * W).sum()
    return np.exp(v).sum()


def _while(v: Any) -> Any:
    n = 0
    while n < 3:
        v = v * v * 0.5 + W
        n += 1
    return v.sum()


def _assigned(v: Any) -> Any:
    v[0] = v[1] * v[2]
    v[1:] *= v[:2]
    return (v * v).sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "power": lambda v: (v**4).sum(),
    "elementwise": lambda v: (np.sin(v) * np.exp(v * 0.5)).sum(),
    "masked": lambda v: np.where(v > 0, v**3, v**2).sum(),
    "absolute": lambda v: (np.abs(v) ** 3).sum(),
    "maximum": lambda v: (np.maximum(v, 0.5) ** 3).sum(),
    "mask": lambda v: (v[v > 0] ** 3).sum(),
    "cumulative": lambda v: (np.cumsum(v) ** 3).sum(),
    "product": lambda v: np.prod(v) + np.cumprod(v).sum(),
    "reduction": lambda v: v.var() * v.sum() + np.linalg.norm(v + 3),
    "matmul": lambda v: (M @ (v * v)) @ v,
    "solve": lambda v: np.linalg.solve(M + 3 * np.eye(3), v * v) @ v,
    "indexing": lambda v: (v[np.array([0, 2, 2, 1])] ** 3).sum() * v[1],
    "softmax": lambda v: kg.nn.softmax(v * v) @ W,
    "sort": lambda v: (np.sort(v) ** 3 * W).sum(),
    "assigned": _assigned,
    "loop": _loop,
    "recurrence": _recurrence,
    "joined loop": _joined_loop,
    "branch": _branch,
    "while": _while,
    "scan": lambda v: kg.fori_loop(0, 3, lambda i, c: c * c * 0.5 + W, v).sum(),
    "cond": lambda v: kg.cond(v.sum() > 0, lambda v: (v**3).sum(), lambda v: v.sum(), v),
}
U = np.array([0.5, 1.0, -0.75])


def _grad(f: Any) -> Any:
    return lambda v: (kg.grad(f)(v) * U).sum()


def _jvp(f: Any) -> Any:
    return lambda v: kg.jvp(f, (v,), (U,))[1]


def _vjp(f: Any) -> Any:
    return lambda v: (kg.vjp(f, v)[1](1.0)[0] * U).sum()


def _hessian(f: Any) -> Any:
    return lambda v: (kg.hessian(f)(v) * np.outer(U, U)).sum()


def _vmap(f: Any) -> Any:
    return lambda v: (kg.vmap(f)(v * ROWS)).sum()


LETTERS: dict[str, Any] = {"g": _grad, "j": _jvp, "v": _vjp, "h": _hessian, "m": _vmap}
ORDERS = {"g": 1, "j": 1, "v": 1, "h": 2}
WORDS = ["".join(word) for n in (1, 2, 3) for word in product(LETTERS, repeat=n)]
WORDS = [word for word in WORDS if sum(ORDERS.get(letter, 0) for letter in word) <= 4]
X = np.array([0.3, -0.7, 1.3])
NEAR = 2e-3  # of differences of differences


def expected(f: Any, word: str, x: Array) -> float:
    """What a word gives, its last letter outermost: differences along U of sums over rows."""
    if not word:
        return float(f(x.copy()))
    rest, letter = word[:-1], word[-1]
    if letter == "m":
        return sum(expected(f, rest, x * row) for row in ROWS)
    return _difference(lambda t: expected(f, rest, x + t * U), ORDERS[letter])


def _difference(f: Callable[[float], float], order: int) -> float:
    """A derivative at 0 by sixth-order central differences."""
    h = 0.02
    weights = {1: {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}, 2: {1: 3 / 2, 2: -3 / 20, 3: 1 / 90}}[order]
    if order == 1:
        return sum(w * (f(k * h) - f(-k * h)) for k, w in weights.items()) / h
    return (-49 / 18 * f(0.0) + sum(w * (f(k * h) + f(-k * h)) for k, w in weights.items())) / h**2


def nested(f: Any, word: str) -> Any:
    for letter in word:
        f = LETTERS[letter](f)
    return f


CASES = [(name, word) for name in FUNCTIONS for word in WORDS]
SAMPLE = Random(0).sample(CASES, min(len(CASES), examples(100)))  # all with KERNELGRAPH_TEST_EXAMPLES=60


@pytest.mark.parametrize("name, word", SAMPLE)
def test_nestings(name: str, word: str) -> None:
    function = FUNCTIONS[name]
    found = float(kg.kernel_graph(nested(function, word))(X.copy()))
    wanted = expected(function, word, X)
    assert abs(found - wanted) <= NEAR * (1 + abs(wanted)), f"{word} of {name}: {found}, not {wanted}"
