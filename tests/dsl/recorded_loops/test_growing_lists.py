"""Lists that loops append to: what Python gives, and a trace that is as long for any number of turns."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded


def plain(a: Any, x: Any) -> Any:
    out = []
    for v in x:
        out.append(np.sqrt(v) * 2)
    return np.array(out)


def of_lists(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        row = []
        for j in range(a.shape[1]):
            row.append(a[i, j] * x[i])
        row.append(x[i])
        out.append(row)
    return np.array(out), out[2][1], sum(out[1])


def pairs(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            out.append(abs(x[i] - x[j]))
        out.append(x[i])
    return np.array(out), len(out)


def triples(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        for j in range(3):
            for k in range(i):
                out.append(x[i] * a[k, j])
    return np.array(out)


def recurrence(a: Any, x: Any) -> Any:
    ys, ts = [x[0]], [0.0]
    for i in range(1, len(x)):
        ys.append(ys[i - 1] + 0.5 * ys[-1] * x[i])
        ts.append(ts[-1] + 0.25)
        ys[i] = ys[i] * len(ts)
    return np.array(ys), np.array(ts), ts[0] * np.float32(1), ts[-1]


def of_arrays(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        u = np.array([x[i], 1.0, i])
        out.append(u)
    out[1][0] = 7.0
    return np.stack(out), np.vstack(out), out[1]


def on_both_sides(a: Any, x: Any) -> Any:
    out, other = [], []
    for i in range(len(x)):
        if x[i] > 1:
            out.append(x[i])
            other += [i * x[i]]
        else:
            other.extend([x[i]])
            out.append(0.0)
    return np.array(out), np.array(other)


def elsewhere(a: Any, x: Any) -> Any:
    kept: Any = {"rows": [], "sums": []}
    total = 0.0

    def keep(v: Any) -> None:
        kept["sums"].append(v)

    for i in range(len(x)):
        total = total + x[i]
        keep(total)
        kept["rows"].append(x[i] / 2)
    alias = kept["sums"]
    alias.append(total)
    return np.array(alias), np.array(kept["rows"])


def of_two_kinds_in_a_turn(a: Any, x: Any) -> Any:
    out = np.zeros_like(x)
    for i in range(len(x)):
        numbers, arrays = [], []
        for j in range(6):
            numbers.append(a[i, 0] * j)
            arrays.append(a[j] * x[i])
        out[i] = np.array(numbers).sum() + np.array(arrays)[1, 2]
    return out


def filled(rows: Any, v: Any, n: Any) -> None:
    for j in range(n):
        rows.append(v * j)


def by_functions(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        row = []
        filled(row, x[i], 4)
        out.append(sum(row) + row[2] + len(row))
    return np.array(out)


def of_few(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        out.append([x[i], 1.0])
    more = np.array([[v, v * 2] for v in x])
    return np.array(out), out[3][0], more


def begun(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        if i == 0:
            out.append(x[0])
        else:
            out.append(out[i - 1] * 0.5 + x[i])
    return np.array(out), max(out)


def of_two_names(a: Any, x: Any) -> Any:
    out = [x[0]]
    alias = out
    for i in range(1, len(x)):
        out.append(out[-1] * 0.5 + x[i])
        alias[0] = out[i] + len(alias)
    return np.array(out), np.array(alias)


PROGRAMS = [
    plain,
    of_two_kinds_in_a_turn,
    of_lists,
    pairs,
    triples,
    recurrence,
    of_arrays,
    on_both_sides,
    elsewhere,
    by_functions,
    of_few,
    begun,
    of_two_names,
]


def check(function: Callable[..., Any], *arguments: Any) -> None:
    want = function(*(np.array(a) for a in arguments))
    got = kg.kernel_graph(function, device="cpu")(*(np.array(a) for a in arguments))
    pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
    for w, g in pairs:
        w, g = np.asarray(w), np.asarray(g)
        assert (w.dtype, w.shape) == (g.dtype, g.shape)
        np.testing.assert_allclose(g, w, rtol=1e-12)


def inputs(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    return rng.integers(0, 5, (n, 3)).astype(float), rng.integers(0, 3, n).astype(float)


@pytest.mark.parametrize("function", PROGRAMS)
def test_lists_that_loops_append_to_are_recorded(function: Callable[..., Any]) -> None:
    sizes = []
    for n in (130, 260):
        with recorded() as notes:
            check(function, *inputs(n))
        assert notes and not any(note.reasons for note in notes), [note.reasons for note in notes]
        sizes.append(len(kg.kernel_graph(function, device="cpu").graph(*inputs(n)).nodes))
    assert sizes[0] == sizes[1]


def held_and_changed(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        row = []
        out.append(row)
        for j in range(3):
            row.append(x[i] * j)
    return np.array(out)


def changed_later(a: Any, x: Any) -> Any:
    out = []
    u = np.zeros(3)
    for i in range(len(x)):
        u[i % 3] += x[i]
        out.append(u)
    return np.array(out)


def changed_at_once(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        u = a[i] * 2
        out.append(u)
        u[0] = 5.0
    return np.array(out)


def of_two_dtypes(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        out.append(x[i] if i % 2 else i)
    return np.array(out)


def some(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        if i % 3:
            out.append(x[i])
    return np.array(out)


def popped(a: Any, x: Any) -> Any:
    out = [x[0]]
    for i in range(len(x)):
        out.append(out.pop() + x[i])
    return np.array(out)


def asked(a: Any, x: Any) -> Any:
    steps = []
    for i in range(20):
        steps.append(2 * i + 1)
    for i in range(len(x) - 1):
        x[i] = x[i + 1] * x[i] - a[i, 0] * a[i, 1]
    return x[: steps[3]], steps[-1]


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
@pytest.mark.parametrize(
    "function", [held_and_changed, changed_later, changed_at_once, of_two_dtypes, some, popped, asked]
)
def test_what_is_no_row_of_an_array_is_as_in_python(function: Callable[..., Any]) -> None:
    check(function, *inputs(60))


def unlucky(a: Any, x: Any) -> Any:
    out = []
    for i in range(len(x)):
        out.append(x[i] * x[-i] + a[i, 0] * a[i, 1])
        if i > 500:
            out.append(out[len(out)])
    return np.array(out)


def by_a_method(a: Any, x: Any) -> Any:
    out = []
    add = out.append
    for i in range(len(x)):
        add(a[i, 0] * a[i, 1])
    return np.array(out)


def in_a_tuple(a: Any, x: Any) -> Any:
    out = [x[0]]
    held = (out,)
    for i in range(len(x)):
        out.append(held[0][-1] * 0.5)
        out.append(x[i])
    return np.array(out)


def by_default(a: Any, x: Any) -> Any:
    out = [x[0]]

    def last(of: Any = out) -> Any:
        return of[-1] * len(of)

    for i in range(len(x)):
        out.append(x[i])
        out.append(last() * 0.01)
    return np.array(out)


class Slots:
    __slots__ = ("rows",)


def in_a_slot(a: Any, x: Any) -> Any:
    slots = Slots()
    slots.rows = []
    for i in range(len(x)):
        slots.rows.append(a[i, 0] * a[i, 1])
    return np.array(slots.rows)


def in_a_queue(a: Any, x: Any) -> Any:
    queue = collections.deque([[x[0]]])
    for i in range(len(x)):
        queue[0].append(a[i, 0] * a[i, 1])
    return np.array(queue[0])


def past_the_end_in_a_try(a: Any, x: Any) -> Any:
    out, y = [], np.zeros(len(x))
    for i in range(len(x)):
        try:
            out.append(x[i + 1] * a[i, 0])
            y[i] = x[i + 1]
        except IndexError:
            out.append(-1.0)
    return np.array(out), y


@pytest.mark.parametrize(
    "function", [by_a_method, in_a_tuple, by_default, in_a_slot, in_a_queue, past_the_end_in_a_try]
)
def test_loops_that_are_left_as_they_are(function: Callable[..., Any]) -> None:
    check(function, *inputs(150))


def test_reading_past_the_end_of_a_list_raises() -> None:
    with pytest.raises(IndexError):
        np.asarray(kg.kernel_graph(unlucky, device="cpu")(*inputs(600)))


def test_a_list_of_before_is_the_same_object_after() -> None:
    def appended(x: Any) -> Any:
        out: list[Any] = []
        alias = out
        for i in range(len(x)):
            out.append(x[i] * x[i - 1] + 1)
        return alias is out, np.array(alias)

    (_, x) = inputs(200)
    same, got = kg.kernel_graph(appended, device="cpu")(x)
    assert same
    np.testing.assert_allclose(np.asarray(got), x * np.roll(x, 1) + 1)


def up_to_a_break(x: Any) -> Any:
    out, total = [], 0.0
    for v in x:
        out.append(v)
        total = total + v
        if total > 3.0:
            break
    return total, len(out)


def inner_breaks(x: Any) -> Any:
    count = 0.0
    for i in range(10):
        row = []
        for j in range(10):
            row.append(x[10 * i + j])
            if x[10 * i + j] > 0.9:
                break
        count = count + len(row)
    return count


@pytest.mark.parametrize("function", [up_to_a_break, inner_breaks])
def test_what_a_loop_appended_before_a_break_is_there(function: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).random(100)
    found = kg.kernel_graph(function, device="cpu", untraceable="numpy")(x)
    np.testing.assert_allclose(found, function(x))
