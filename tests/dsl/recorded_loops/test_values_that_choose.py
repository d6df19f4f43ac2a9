"""Recorded loops whose slices, masks and indices values decide: what NumPy gives, its errors, and what is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded

Array = np.ndarray[Any, Any]
N = 12


def spmv(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    y = np.empty(len(rows) - 1, a.dtype)
    for i in range(len(rows) - 1):
        here = cols[rows[i] : rows[i + 1]]
        y[i] = a[0, rows[i] : rows[i + 1]] @ x[here]
    return y


def scattered(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    y = np.zeros(N)
    for i in range(len(rows) - 1):
        here = cols[rows[i] : rows[i + 1]]
        y[here] = x[here] * i + y[here]
        y[here] += a[i, here]
    return y


def masked(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    total = np.zeros(N)
    for i in range(N):
        chosen = a[i][a[i] > x[i]]
        total[i] = chosen.sum() + len(chosen)
        a[i, a[i] < 0] = 7
        a[i][a[i] > 2] *= 2
    return total


def masks_of_before(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    """Masks are what they were, whatever is assigned to what they were computed from."""
    total = np.zeros(N)
    for i in range(N):
        row = a[i]
        above, between = row > 0, (row > -2) & (x < 1)
        row[above] = 0
        row[~above] += 1
        x[between] = row[between] - i
        row[row == 2] = 7
        total[i] = above.sum() * between.sum() + row[above & between].sum()
    return total


def found(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    out = np.zeros((N, 4))
    for i in range(N):
        (here,) = np.nonzero(a[i] > 0)
        out[i, 0] = here.sum()
        out[i, 1] = x[np.flatnonzero(a[:, i] == 1)].sum()
        out[i, 2] = np.compress(a[i] > 0, a[:, i]).sum()
        out[i, 3] = np.extract(a[i] > 1, x).sum() + np.count_nonzero(a[i])
        if len(here) > 2:
            out[i, 0] = here[-1] - here[0]
    return out


def of_two_axes(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    out = np.zeros(N)
    for i in range(N):
        p, q = np.where(a > i - 4)
        out[i] = a[p, q].sum() + (a[a < 0] * 2).sum()
        a[cols[:3], cols[3:6]] += 1
        a[i, cols[:5]] = x[cols[:5]]
        out[i] += a[cols[:4], :][:, cols[:2]].sum()
        a[a == 3] = i
    return out


def assigned_by_mask(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    for i in range(N):
        m = a[i] > 0
        a[i, m] = x[m] + a[i, m]
        x[a[:, i] > 1] = a[i, a[:, i] > 1][::-1]
    return x


def last_stays(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    for i in range(N):
        x[cols % 4] = a[i, : len(cols)] if len(cols) <= N else a.ravel()[: len(cols)]
        x[i] += 1
    return x


def kept_apart(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    """What an array of indices gives is a copy."""
    out = np.zeros(N)
    for i in range(N):
        some = x[cols[:5]]
        x[cols[0]] = i
        out[i] = some.sum()
        some[0] = 100
        out[i] += some[0] + x[cols[0]]
    return out


def until_nothing_is_left(rows: Any, cols: Any, x: Any, a: Any) -> Any:
    count = 0
    for i in range(N):
        rest = np.flatnonzero(x > i - 5)
        if len(rest) == 0:
            break
        x[rest] -= 1
        count += 1
    return count


PROGRAMS = [
    spmv, scattered, masked, masks_of_before, found, of_two_axes, assigned_by_mask, last_stays, kept_apart,
    until_nothing_is_left,
]  # fmt: skip


def arguments(seed: int, index: str = "i8") -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, N, N + 1)).astype(index)
    cols = rng.integers(0 if index[0] == "u" else -N, N, N).astype(index)
    return rows, cols, rng.integers(-4, 5, N).astype("f8"), rng.integers(-4, 5, (N, N)).astype("f8")


@pytest.mark.parametrize("index", ["i8", "u4", "i4"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gives_what_numpy_gives(program: Callable[..., Any], index: str) -> None:
    compiled = kg.kernel_graph(program, device="cpu")
    for seed in range(4):
        ours, theirs = arguments(seed, index), arguments(seed, index)
        np.testing.assert_array_equal(np.asarray(compiled(*ours)), program(*theirs))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def test_masks_that_are_used_after_assignments_are_recorded() -> None:
    with recorded() as notes:
        kg.kernel_graph(masks_of_before, device="cpu").graph(*arguments(0))
    assert not [reason for known in notes for reason in known.reasons.values()]


def test_one_kernel_serves_all_rows() -> None:
    compiled = kg.kernel_graph(spmv, device="cpu")
    given = arguments(1)
    compiled(*given)
    assert len(compiled.graph(*given).nodes) < 10
    assert compiled.why().count("compiled") == 1
    compiled(*arguments(2))
    assert compiled.why().count("compiled") == 1


@pytest.mark.parametrize("bad", [N, -N - 1, 500])
def test_an_index_out_of_range_raises_numpys_error(bad: int) -> None:
    def one(x: Any, cols: Any) -> Any:
        out = np.zeros(N)
        for i in range(N):
            out[i] = x[cols[x[i] : x[i] + 5]].sum()
        return out

    x, cols = np.arange(N), np.arange(N)
    cols[7] = bad
    with pytest.raises(IndexError) as want:
        one(x, cols)
    with pytest.raises(IndexError, match=str(want.value)):
        np.asarray(kg.kernel_graph(one, device="cpu")(x, cols))


def test_values_of_another_number_raise() -> None:
    def one(x: Any, y: Any) -> Any:
        for i in range(N):
            x[x > i] = y[: int(y[i])]
        return x

    def good(x: Any, y: Any) -> Any:
        for i in range(N):
            x[x > i] = y[: int(y[0])]
        return x

    x, y = np.arange(float(N)), np.full(N, 1.0)
    np.testing.assert_array_equal(np.asarray(kg.kernel_graph(good, device="cpu")(x.copy(), y)), good(x.copy(), y))
    y[3] = 4
    with pytest.raises(ValueError):
        one(x.copy(), y)
    with pytest.raises(ValueError, match="cannot assign 4 input values"):
        np.asarray(kg.kernel_graph(one, device="cpu")(x.copy(), y))


def multiplied(x: Any, y: Any, m: Any, s: Any, t: Any) -> Any:
    out = np.zeros(N)
    for i in range(N):
        out[i] = np.sum(x[s[i, 0] : s[i, 1]] * y[t[i, 0] : t[i, 1]] + m[i, s[i, 0] : s[i, 1]])
    return out


def assigned(x: Any, y: Any, m: Any, s: Any, t: Any) -> Any:
    for i in range(N):
        x[s[i, 0] : s[i, 1]] = y[t[i, 0] : t[i, 1]]
        m[i, s[i, 0] : s[i, 1]] += x[t[i, 0] : t[i, 1]]


def moved_within_itself(x: Any, y: Any, m: Any, s: Any, t: Any) -> Any:
    for i in range(N):
        x[s[i, 0] : s[i, 1]] = 2 * x[t[i, 0] : t[i, 1]] - y[s[i, 0] : s[i, 1]]
        m[s[i, 0] : s[i, 1]] = m[t[i, 0] : t[i, 1]] + x
    return x[::2]


def of_two_axes_each(x: Any, y: Any, m: Any, s: Any, t: Any) -> Any:
    for i in range(N):
        rows, columns = slice(s[i, 0], s[i, 1]), slice(t[i, 0], t[i, 1])
        m[rows, columns] -= m[columns, rows] + x[rows] + y[columns]


@pytest.mark.parametrize("program", [multiplied, assigned, moved_within_itself, of_two_axes_each])
def test_lengths_that_values_decide_are_broadcast_as_numpy_does(program: Callable[..., Any]) -> None:
    """Of equal lengths, of one element, of none; and NumPy's errors for others."""
    compiled = kg.kernel_graph(program, device="cpu", untraceable="refuse")
    outcomes = set()
    for seed in range(40):
        rng = np.random.default_rng(seed)
        starts = rng.integers(0, N - 4, (2, N, 1))
        s, t = np.concatenate(
            (starts, starts + np.array(rng.choice([[0, 1], [1, 3], [3, 3], [3, 1]])).reshape(2, 1, 1)), 2
        )
        if seed % 4 == 0:
            t[rng.integers(N), 1] += 2
        ours = [rng.integers(-4, 5, shape).astype("f8") for shape in (N, N, (N, N))]
        theirs = [x.copy() for x in ours]
        error: type[Exception] | None = None
        try:
            want = program(*theirs, s, t)
        except ValueError:
            error = ValueError
        outcomes.add(error)
        if error is not None:
            with pytest.raises(error, match="broadcast"):
                compiled(*ours, s, t)
                kg.synchronize()
            continue
        got = compiled(*ours, s, t)
        for a, b in zip([got, *ours], [want, *theirs], strict=True):
            if b is not None:
                np.testing.assert_array_equal(np.asarray(a), b)
    assert outcomes == {None, ValueError}
    assert "runs in NumPy" not in compiled.why()
