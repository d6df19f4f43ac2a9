"""Results of loops and branches that are changed and joined, each row of a batch: as NumPy does it row by row."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.counts import examples

W = np.array([0.5, -1.0, 2.0, 0.25])


def _python_loop(x: Any) -> Any:
    for _ in range(24):
        x = np.sin(x[::-1]) + W
    return x


def _recurrence(x: Any) -> Any:
    y = x.copy()
    for i in range(1, 4):
        y[i] += 0.5 * y[i - 1]
    return y


def _turn(_: Any, c: Any) -> Any:
    return np.sin(c[::-1]) + W


LOOPS: dict[str, Callable[[Any], Any]] = {
    "python": _python_loop,
    "recurrence": _recurrence,
    "fori": lambda x: kg.fori_loop(0, 5, _turn, x),
    "counted by a value": lambda x: kg.fori_loop(0, (x[0] > 0).astype(int) + 2, _turn, x),
    "while": lambda x: kg.while_loop(lambda c: c.sum() < 9, lambda c: abs(c) + 1, x),
    "scan, carried": lambda x: kg.scan(lambda c, a: (c * 0.5 + a, c), x, np.outer(W, W))[0],
    "scan, stacked": lambda x: kg.scan(lambda c, a: (c * 0.5 + a, c), x, np.outer(W, W))[1][1],
    "branch": lambda x: kg.cond(x.sum() > 0, lambda x: x**2, lambda x: x - 1, x),
    "sort": lambda x: np.sort(x),
}


def _set(y: Any) -> Any:
    y[2] *= y[3]
    return y


def _set_part(y: Any) -> Any:
    y[1:3] = y[:2] + 1
    return y


def _set_twice(y: Any) -> Any:
    y[0] = 1
    y[::2] *= y[1]
    return y


CHANGES: dict[str, Callable[[Any], Any]] = {
    "as it is": lambda y: y,
    "an element": _set,
    "some": _set_part,
    "twice": _set_twice,
    "reversed": lambda y: y[::-1],
    "reshaped": lambda y: y.reshape(2, 2),
}
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "concatenate": lambda x, y: np.concatenate([x.reshape(-1), y.reshape(-1)]),
    "before": lambda x, y: np.concatenate([y.reshape(-1), x]),
    "itself": lambda x, y: np.concatenate([y, y, y * 2]),
    "stack": lambda x, y: np.stack([x, y.reshape(4)], 1),
    "pad": lambda x, y: np.pad(y.reshape(-1), 1),
    "assigned": lambda x, y: _assigned(x, y),
    "beside": lambda x, y: (y, np.concatenate([x, y.reshape(4)])),
}


def _assigned(x: Any, y: Any) -> Any:
    out = np.zeros((3, 4))
    out[1] = y.reshape(4)
    out[2, :2] = x[:2]
    return out


ROWS = np.sin(np.arange(12.0)).reshape(3, 4)


@pytest.mark.parametrize("loop", LOOPS)
def test_joined_results_of_loops_for_each_row(loop: str) -> None:
    """A third of the changes and joins; all with KERNELGRAPH_TEST_EXAMPLES=3 or more."""
    pairs = [*product(CHANGES, JOINS)]
    for change, join in Random(loop).sample(pairs, min(len(pairs), examples(28))):

        def one(x: Any, change: Any = CHANGES[change], join: Any = JOINS[join]) -> Any:
            return join(x, change(LOOPS[loop](x).copy()))

        expected = [one(row.copy()) for row in ROWS]
        found = kg.vmap(one)(ROWS)
        parts = found if isinstance(found, tuple) else (found,)
        for i, part in enumerate(parts):
            wanted = np.stack([np.asarray(e[i] if isinstance(found, tuple) else e) for e in expected])
            np.testing.assert_allclose(part, wanted, rtol=1e-12, atol=1e-12, err_msg=f"{loop}, {change}, {join}")


def _written_and_bound_anew(x: Any, turns: Any) -> Any:
    x, turn = x * 1.0, 0
    while turn < turns:
        turn = turn + 1
        x[2] = 5.0
        x = x * 2.0
    return x


def test_what_a_loop_writes_waits_for_its_first_turn() -> None:
    """Where a name has another array later, and a row takes no turn."""
    turns = np.array([0, 1, 2])
    found = kg.vmap(_written_and_bound_anew)(ROWS, turns)
    np.testing.assert_array_equal(found, [_written_and_bound_anew(*row) for row in zip(ROWS, turns, strict=True)])


def _counted_down(b: Any) -> Any:
    turns = 0
    while b:
        b, turns = b - 1, turns + 1
    return turns


def _with_a_break(b: Any) -> Any:
    turns = 0
    while b:
        b, turns = b - 1, turns + 1
        if turns == 3:
            break
    return turns, b


def _greatest_common_divisor(b: Any) -> Any:
    a = b * 0 + 12
    while b:
        a, b = b, a % b
    return a


def _while_either(b: Any) -> Any:
    while b or 0:
        b = b // 2
    return b


@pytest.mark.parametrize("dtype", ["int64", "int8", "float64"])
@pytest.mark.parametrize("function", [_counted_down, _with_a_break, _greatest_common_divisor, _while_either])
def test_a_number_may_be_what_a_loop_tests(function: Callable[..., Any], dtype: str) -> None:
    rows = np.arange(7, dtype=dtype)
    got = kg.vmap(function)(rows)
    want = [np.asarray(x) for x in zip(*(np.atleast_1d(function(row)) for row in rows), strict=True)]
    for ours, theirs in zip(got if type(got) is tuple else (got,), want, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    one = kg.kernel_graph(function, device="cpu", untraceable="refuse")(rows[5:6])
    np.testing.assert_array_equal(np.ravel(np.asarray(one[0] if type(one) is tuple else one)), want[0][5:6])
