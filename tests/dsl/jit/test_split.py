"""Programs that decide on array values: run in parts they give NumPy's answers, and know what they have met before."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.core.test_errors import line_in, refused
from tests.dsl.tracing import assert_same

X = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
LIMIT = 10.0


def split(function: Any) -> Any:
    return kg.kernel_graph(function, device="cpu", untraceable="split")


def same(decorated: Any, *args: Any) -> None:
    """One call, on results and on what becomes of the arguments."""
    function = decorated._function
    mine, reference = ([np.array(a) if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(*reference)
        result = decorated(*mine)
    assert_same(result, expected, 256)
    for a, b in zip(mine, reference, strict=True):
        if isinstance(b, np.ndarray):
            assert_same(a, b, 256)


def decides(x: Any) -> Any:
    if x.sum() > 0:
        return x + 1, "positive"
    return x - 1, "negative"


def iterates(x: Any, rate: float) -> Any:
    count = 0
    while np.abs(x).max() > 0.5:
        x = x * rate
        count += 1
        if count > 20:
            break
    return x, count


def numbers(x: Any) -> Any:
    n = int(x[0, 0]) % 3 + 1
    total = np.zeros_like(x)
    for i in range(n):
        total += x * i
    scale = float(np.round(x[1, 1]))
    return total * scale, n, bool(total[0, 0] > 0), x[: int(x.argmax()) % 3], max(float(x[0, 0]), 2.0) * x.size


def assigns(u: Any, v: Any) -> Any:
    w = u[1:]
    u[0] = 5
    if w.mean() > 0:
        w *= 2
        v[...] = u
    old = u.copy()
    u += 1
    while u[0, 0] < 8:
        u[0] += 1
        old[:, 0] -= 1
    return u, old, w


def shapes(x: Any, y: Any) -> Any:
    m = x > 0
    chosen = x[m]
    found = np.unique(np.round(x))
    z = np.zeros(len(chosen))
    z[:] = chosen[::-1]
    rows, columns = np.nonzero(y > 0.5)
    x[m] = z
    return chosen * 2, found + found.size, np.sort(chosen), x, rows * columns, x[rows, columns].sum(), y[y > 9]


def early(x: Any) -> Any:
    for row in x:
        if not np.isfinite(row).all():
            raise ValueError("not finite")
        if (row > 1.5).any():
            return row
    return None


def bisects(lo: Any, hi: Any) -> Any:
    while hi - lo > 1e-3:
        mid = (lo + hi) / 2
        if np.cos(mid) > mid:
            lo = mid
        else:
            hi = mid
    return lo


PROGRAMS: list[tuple[Any, list[tuple[Any, ...]]]] = [
    (decides, [(X,), (-X,), (X * 2,), (-X * 3,)]),
    (iterates, [(X, 0.5), (X * 9, 0.5), (X, 0.25), (X * 9, 0.5), (X * 0.1, 0.7)]),
    (numbers, [(X,), (X + 4,), (X,), (X * 3,)]),
    (assigns, [(X, X.copy()), (-X * 9, X.copy()), (X * 2, X * 0)]),
    (shapes, [(X, X.T.reshape(3, 4)), (X[::-1], X * 0), (-X, X)]),
    (early, [(X,), (X[::-1],), (X * 0,), (X * 3,)]),
    (bisects, [(np.array(0.0), np.array(1.0)), (np.array(0.5), np.array(1.5))]),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs(number: int) -> None:
    function, calls = PROGRAMS[number]
    f = split(function)
    for _ in range(2):
        for args in calls:
            same(f, *args)
    traced = f.why()
    for args in calls:
        same(f, *args)
    assert f.why() == traced  # all that was met before is known


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=6), st.integers(0, 2**31))
def test_random_paths(steps: list[int], seed: int) -> None:
    """Each value decides what is done next, and to which of several arrays that live on."""
    for factor in (1.0, 0.5, -1.0, 1.0):
        same(_WALK, factor * np.random.default_rng(seed).normal(size=(3, 4)), tuple(steps))


def walk(x: Any, steps: Any) -> Any:
    a, b, c = x * 1, x[::-1], np.arange(4.0)
    views = [a.T, a[1]]
    for i in steps:
        if (a * i).sum() > b.max():
            a += i
            c = c * 2 + b[0]
        elif c[1] > i:
            a[0], b = b[0], a + c
        else:
            views[1][:2] = i
            b = np.where(b > a, b, c)
        views = [views[0] + 0, a[abs(i) % 3]] if a[0, 0] > 0 else views
    return a, b, c, views


_WALK = split(walk)


def test_a_function_that_need_not_be_split_is_not() -> None:
    f = split(lambda x, n: x * n if n > 2 else x)
    for n in (1, 3, 3):
        assert_same(f(X, n), X * n if n > 2 else X)
    assert "split at" not in f.why() and "split at" not in f.explain(X, 3, verbose=True)


def test_parts_of_a_loop_compile_once() -> None:
    f = split(iterates)
    same(f, X * 100.0, 0.5)
    compiled = f.why().count("compiled")
    same(f, X * 10000.0, 0.5)  # more turns
    assert f.why().count("compiled") == compiled <= 5


def test_what_runs_is_what_numpy_would_run() -> None:
    """Each part is run once a call."""
    f = split(iterates)
    same(f, X * 4, 0.5)
    entry = next(iter(f._entries.values()))
    entry = next(e for e in f._entries.values() if hasattr(e, "root"))
    same(f, X * 4, 0.5)
    part, reads = entry.root, []
    while part.line:
        reads.append(part.reads)
        (part,) = part.children.values()
    assert set(reads) == {2}


def test_explain_lists_the_lines() -> None:
    f = split(iterates)
    assert (
        "not run yet" in f.explain(X, 0.5, verbose=True)
        and f.graph(X, 0.5).outputs
        and f.program(kg.spec((3, 4)), 0.5).tasks
    )
    same(f, X, 0.5)
    text = f.explain(X, 0.5, verbose=True)
    line = line_in(iterates, 2)
    assert f"split at test_split.py:{line}: bool[] read in" in text and "True in" in text and "us each" in text
    assert f"split at test_split.py:{line}" in f.why()


def test_guards_hold_for_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = 1.0

    def function(x: Any) -> Any:
        if x.sum() > LIMIT:
            return x * scale
        return x

    f = split(function)
    for value in (X, X * 10):
        same(f, value)
    monkeypatch.setitem(globals(), "LIMIT", 1.0)
    same(f, X)
    scale = 3.0
    same(f, X * 10)
    same(f, X)
    assert f.why().count("traced again") == 2


def test_exceptions_of_the_program_pass() -> None:
    f = split(early)
    same(f, X)
    for _ in range(2):
        with pytest.raises(ValueError, match="not finite"):
            f(X * np.nan)
    same(f, X)


def test_nested_functions_and_methods() -> None:
    class Solver:
        def __init__(self) -> None:
            self.tolerance = 0.1

        @kg.kernel_graph(device="cpu", untraceable="split")
        def solve(self, x: Any) -> Any:
            return self.shrink(x), inner(x)

        def shrink(self, x: Any) -> Any:
            while x.max() > self.tolerance:
                x = x / 2
            return x

    inner = split(decides)
    solver = Solver()
    for value in (X, -X):
        expected = solver.shrink(value), decides(value)
        assert_same(solver.solve(value), expected)
    solver.tolerance = 1.0
    assert_same(solver.solve(X), (solver.shrink(X), decides(X)))


def test_kg_arrays_and_other_layouts() -> None:
    f = split(iterates)
    for x in (X.T, X[::-1, ::2], kg.asarray(X, device="cpu")):
        result = f(x, 0.5)
        assert_same(result, iterates(np.asarray(x), 0.5))


def test_other_numpy_functions_run_on_the_host() -> None:
    def function(x: Any) -> Any:
        values, counts = np.unique(np.round(x), return_counts=True)
        where = np.argwhere(x > 0)
        return values * 2, counts.sum(), where + 1, np.trim_zeros(np.round(x[0])), len(np.flatnonzero(x > 1))

    f = split(function)
    for x in (X, X * 1.01, X * 1.02):
        same(f, x)
    compiled = f.why().count("compiled")
    same(f, X * 1.03)  # of the same shapes: no part is new
    assert f.why().count("compiled") == compiled


def test_places_that_values_decide() -> None:
    def function(x: Any) -> Any:
        rows, columns = np.where(x > 0.5)
        return x[np.where(x > 0)], rows, x[rows, columns], np.where(x[0] > 0)[0], (x < 0).nonzero(), np.where(x > 9)

    same(split(function), X)
    whole = kg.kernel_graph(function, device="cpu", untraceable="refuse")
    refused(lambda: whole(X), kg.UnsupportedError, "np.nonzero", "np.where(mask)", line=line_in(function))


def test_many_values_warn() -> None:
    f = split(lambda x: x * float(x[0, 0]))
    for i in range(8):
        same(f, X + i)
    with pytest.warns(UserWarning, match=r"more than 8 values read at test_split.py:\d+"):
        f(X + 9)


def held(f: Any) -> list[Any]:
    """The parts that a split function keeps."""
    entry = next(e for e in f._entries.values() if hasattr(e, "root"))
    parts = [entry.root]
    for part in parts:
        parts += part.children.values()
    assert entry.parts == len(parts) and entry.plans == len({id(p.entry) for p in parts})
    return parts


@pytest.mark.filterwarnings("ignore:.*more than 8 values")
def test_what_was_not_used_lately_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgraph.dsl.jit.specializations.MAX_SPECIALIZATIONS", 20)
    f, traces = split(lambda x: x * float(x[0, 0])), []
    for i in range(60):
        same(f, X + i)
        same(f, X + 0.5)  # used all the time
        traces.append(f.why().count("compiled"))
        parts = held(f)
        assert len({id(p.entry) for p in parts}) <= 21
    f(X + 0.5), f(X + 59)
    assert f.why().count("compiled") == traces[-1] == 62  # neither was forgotten; the others were compiled once


def test_a_call_may_be_longer_than_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any, start: int) -> Any:
        for i in range(30):
            if x[0, 0] > i + start:
                x = x * (i + 2)
        return x

    monkeypatch.setattr("kernelgraph.dsl.jit.specializations.MAX_SPECIALIZATIONS", 8)
    f = split(function)
    for start in (0, 5, 0, 9):
        for _ in range(2):
            same(f, X, start)
        same(f, -X, start)


def test_a_part_is_given_what_it_was_traced_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one part leaves behind and the next one takes are of one type, or nothing runs."""
    from kernelgraph.dsl.jit import segments as parts

    made = parts._segment_result_on_device
    shorter = lambda result, device: (made(result, device)[0], made(result[:-1], device)[1])  # noqa: E731
    monkeypatch.setattr(parts, "_segment_result_on_device", shorter)
    with pytest.raises(kg.PlanError, match=r"traced for int64\[3\] and is given int64\[2\]"):
        split(lambda x: np.unique(x) + 1)(np.array([3, 1, 3, 2]))


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(st.sampled_from(["argument", "made", "captured", "computed"]), min_size=2, max_size=5), st.randoms())
def test_what_a_part_takes_comes_in_any_order(kinds: list[str], random: Any) -> None:
    """Arguments, arrays of earlier parts and global ones, of types of their own, are given to a part in their order."""
    dtypes = ["f4", "i8", "?", "f8", "i2"]
    tables = [np.arange(n + 1).astype(dtypes[n]) for n in range(len(kinds))]
    order = random.sample(range(len(kinds)), len(kinds))

    def function(*args: Any) -> Any:
        found = []
        for n, kind in enumerate(kinds):
            a = tables[n] if kind == "captured" else args[n]
            found.append(np.unique(a) if kind == "made" else a * 2 if kind == "computed" else a)
        if found[0].sum() > -1:
            found = [found[n] for n in order]
        return found, [np.concatenate([v, v]) for v in reversed(found)]

    same(split(function), *(np.arange(n + 2).astype(dtypes[-n]) for n in range(len(kinds))))


def test_threads_agree() -> None:
    f, errors = split(iterates), []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(10):
            x = 3 * rng.normal(size=(3, 4))
            try:
                assert_same(f(x, 0.5), iterates(x, 0.5), 64)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_a_function_that_does_not_do_the_same_twice() -> None:
    def function(x: Any) -> Any:
        y = x * int(threading._newname("%d"))  # type: ignore[attr-defined]  # a library's counter, which nothing sees
        if y.sum() > 0:
            y = y + x.max()
        return x if (y * 0 + x).sum() > 1 else -x

    f = split(function)
    for x in (X, -X, X * 0.01, X):
        assert_same(f(x), x if x.sum() > 1 else -x)


def test_the_option() -> None:
    refused(lambda: kg.kernel_graph(decides, untraceable="run"), kg.OptionError, "'run'", "'split'")
    refused(
        lambda: kg.kernel_graph(decides, device="cpu", untraceable="refuse")(X),
        kg.TraceError,
        "only arrays and numbers",
        line=line_in(decides) + 2,
    )
