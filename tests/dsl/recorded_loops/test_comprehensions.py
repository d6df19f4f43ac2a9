"""Comprehensions as recorded loops: what Python and NumPy give, and a trace that is as long for any number of turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded


def pairs(a: Any, x: Any) -> Any:
    return np.array([[np.sum((u - v) ** 2) for v in a] for u in a]), len(x)


def flat(a: Any, x: Any) -> Any:
    return np.array([a[i, j] * x[i] for i in range(len(x)) for j in range(a.shape[1])])


def ragged(a: Any, x: Any) -> Any:
    return np.array([x[i] * a[j, 0] for i in range(len(x)) for j in range(i)]), sum(
        [v for i in range(3) for v in x[i:]]
    )


def numbers(a: Any, x: Any) -> Any:
    made = [float(v) * i for i, v in enumerate(x)]
    return made[2] * np.float32(2), np.array(made), sum(made), max(made), min(made), len(made), made[-2:]


def whole(a: Any, x: Any) -> Any:
    made = [int(v) + i for i, v in enumerate(x)]
    return np.array(made), sum(made), max(made) / 3


def arrays(a: Any, x: Any) -> Any:
    made = [row * v + 1 for row, v in zip(a, x, strict=False)]
    made[1][0] = 7.0  # an array of its own
    before = np.stack(made, axis=1)
    made[0] += made[1]
    made[2] = made[1]
    made[2][1] = 9.0
    return before, np.array(made), made[1], sum(made)


def chosen(a: Any, x: Any) -> Any:
    return sum(v * i for i, v in enumerate(x) if v > 1 and i < 7), sum([v for v in x if v < 0])


def truths(a: Any, x: Any) -> Any:
    some = any(v > 2 for v in x), any(v > 90 for v in x), all(v > -90 for v in x), all(v > 2 for v in x)
    return [1 if t else 0 for t in some], 2 if any(p > 3 for row in a for p in row) else 3


def in_loops(a: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(len(x)):
        made = [x[j] * x[i] for j in range(i + 1)]
        out[i] = sum(made) + max(made) - made[i] + np.array(made).max() + sum(x[k] for k in range(i) if x[k] > 1)
        if any(v > 5 for v in made):
            out[i] += 1
    return out


def lists_of_lists(a: Any, x: Any) -> Any:
    made = [[p + v for p in row] for row, v in zip(a, x, strict=False)]
    return made[3][1], made[-1], np.array(made), len(made[0])


def views(a: Any, x: Any) -> Any:
    made = [a[i] for i in range(len(x))]  # which share their memory with a
    a[2] = 5.0
    made[1][0] = 6.0
    return np.array(made), a[1, 0]


def one_array(a: Any, x: Any) -> Any:
    y = x * 2
    made = [y for _ in range(len(x))]
    made[0][1] = 8.0
    return np.array(made), y


def names(a: Any, x: Any) -> Any:
    i = 3
    made = [x[i] * j for i in range(len(x)) for j in (1, 2)]
    later = [(last := v * 2) for v in x]
    return np.array(made), i, last, later[0]


def plain(a: Any, x: Any) -> Any:
    squares = [i * i for i in range(100)]
    return x + squares[squares[3]], sum(i for i in range(100)), {i: v for i, v in enumerate(x)}[1]


def of_nothing(a: Any, x: Any) -> Any:
    empty = [v * 2 for v in x[:0]]
    return len(empty), sum(v for v in x[:0]), any(v > 0 for v in x[:0]), all(v > 0 for v in x[:0]), x


def minus_zeros(a: Any, x: Any) -> Any:
    made = [-0.0 * abs(v) for v in x]
    return np.signbit(sum(made)), np.array(made)


def kept_names(a: Any, x: Any) -> Any:
    doubled, products = [lambda: v * 2 for v in x], [(u * v for u in x) for v in x]  # noqa: B023  all of the last v
    return doubled[0](), sum(products[0]), sum([(lambda: v)() for v in x]), [tuple(u * v for u in x) for v in x][2]


def own_functions(a: Any, x: Any) -> Any:
    def sum(values: Any) -> int:
        return len([*values])

    def max(values: Any) -> Any:
        values.append(1)
        return values[-2]

    return sum(v for v in x), sum([v for v in x]), max([v * 2 for v in x]), np.max([v * 2 for v in x])


def two_kinds(a: Any, x: Any) -> Any:
    made = [v if i % 2 else 3 for i, v in enumerate(x)]
    return np.array(made), made[0] * np.float32(2), sum(made)


PROGRAMS = (
    pairs, flat, ragged, numbers, whole, arrays, chosen, truths, in_loops, lists_of_lists, views, one_array, names,
    plain, of_nothing, minus_zeros, kept_names, own_functions, two_kinds,
)  # fmt: skip


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [type(value), *(x for v in value for x in leaves(v))]
    return [np.asarray(value)]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gives_what_python_gives(program: Callable[..., Any], dtype: str) -> None:
    """Recorded and not; lists are lists."""
    a = np.random.default_rng(3).integers(-4, 5, (12, 3)).astype(dtype)
    x = np.random.default_rng(4).integers(-4, 5, 12).astype(dtype)
    b, y = a.copy(), x.copy()
    want = leaves(program(b, y))
    ours = kg.kernel_graph(program, device="cpu")
    mine = a.copy(), x.copy()
    with recorded():
        got = leaves(ours(*mine))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        if isinstance(w, type):
            assert g is w
            continue
        assert g.shape == w.shape and (g.dtype == w.dtype or not w.ndim)
        np.testing.assert_array_equal(g, w)
    np.testing.assert_array_equal(mine[0], b)
    np.testing.assert_array_equal(mine[1], y)


@pytest.mark.parametrize("program", [pairs, flat, ragged, numbers, in_loops])
def test_a_trace_is_as_long_for_any_number_of_turns(program: Callable[..., Any]) -> None:
    ours = kg.kernel_graph(program, device="cpu")
    with recorded():
        sizes = {len(ours.graph(np.ones((n, 3)), np.ones(n)).nodes) for n in (20, 200)}
    assert len(sizes) == 1 or program is numbers


def test_long_ones_are_recorded_by_themselves() -> None:
    a = np.random.default_rng(1).random((60, 4))
    ours = kg.kernel_graph(pairs, device="cpu")
    assert len(ours.graph(a, a[0]).nodes) < 10
    np.testing.assert_allclose(np.asarray(ours(a, a[0])[0]), pairs(a, a[0])[0])


def test_gradients() -> None:
    def loss(x: Any) -> Any:
        return sum([x[i] * x[i - 1] for i in range(len(x))]) + np.array([x[i] ** 3 for i in range(len(x))]).sum()

    x = np.arange(12.0)
    with recorded():
        found = np.asarray(kg.grad(loss)(x))
    np.testing.assert_allclose(found, np.roll(x, 1) + np.roll(x, -1) + 3 * x**2)


def out_of_range(x: Any) -> Any:
    return np.array([x[i + 1] for i in range(len(x))])


def test_errors_stand_at_the_line(tmp_path: Path) -> None:
    ours = kg.kernel_graph(out_of_range, device="cpu")
    with recorded(), pytest.raises(IndexError, match="index 12 is out of bounds for axis 0 with size 12"):
        np.asarray(ours(np.ones(12)))


def positive_counted(x: Any) -> Any:
    def sum(values: Any) -> int:
        return len([*values])

    return x * sum(v for v in x if v > 0)


def test_what_a_function_of_the_users_is_given_is_not_filled_up() -> None:
    x = np.arange(-3.0, 9)
    with pytest.warns(UserWarning, match="cannot decide"):
        np.testing.assert_array_equal(kg.kernel_graph(positive_counted, device="cpu")(x), x * 8)
