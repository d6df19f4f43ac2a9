"""What a function has assigned to its arguments before it raises is in them, as in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit import trace_function
from tests.dsl.core.test_errors import refused
from tests.dsl.world_objects import cpu


def failing(x: Any, y: Any) -> Any:
    x[0] = 9
    y += x.sum()
    if y.ndim == 1:
        raise LookupError("no such thing")
    return x * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.arange(6.0)[:3],
        lambda: np.arange(6.0)[::2],
        lambda: np.arange(3.0).astype(">f8"),
        lambda: np.arange(3),
    ],
)
def test_what_was_assigned_before_an_error(make: Any) -> None:
    f = cpu(failing)
    mine, its = make(), make()
    for _ in range(3):  # it is so at each call
        other, same = np.ones(2), np.ones(2)
        with pytest.raises(LookupError, match="no such thing"):
            f(mine, other)
        with pytest.raises(LookupError):
            failing(its, same)
        assert mine.tolist() == its.tolist() and other.tolist() == same.tolist()
    assert f(mine, np.ones((1, 1))).shape == (3,)
    with pytest.raises(LookupError):
        f.explain(mine, np.ones(2))


def index(x: Any) -> Any:
    x[0] = 9
    return x[10]


def axis(x: Any) -> Any:
    x += 1
    return x.sum(axis=3)


@pytest.mark.parametrize("function", [index, axis])
def test_what_was_assigned_before_an_error_of_numpys(function: Any) -> None:
    f = cpu(function)
    for _ in range(3):
        mine, its = np.arange(3.0), np.arange(3.0)
        with pytest.raises((IndexError, ValueError), match=r"test_errors_after_writes.py:\d+: "):
            f(mine)
        with pytest.raises((IndexError, ValueError)):
            function(its)
        assert mine.tolist() == its.tolist()


@pytest.mark.usefixtures("refusing")
def test_a_name_outside_that_is_assigned_before_an_error_of_numpys_is_refused() -> None:
    count = 0

    def function(x: Any) -> Any:
        nonlocal count
        count += 1
        return x[10]

    refused(lambda: cpu(function)(np.ones(2)), kg.TraceError, "'count'", line=function.__code__.co_firstlineno + 2)
    assert count == 0


def test_arrays_on_the_device() -> None:
    f = cpu(failing)
    x, y = kg.asarray(np.arange(3.0), device="cpu"), kg.asarray(np.ones(2), device="cpu")
    with pytest.raises(LookupError):
        f(x, y)
    assert x.numpy().tolist() == [9, 1, 2] and y.numpy().tolist() == [13, 13]


def test_a_refusal_assigns_nothing() -> None:
    def function(x: Any) -> Any:
        x[0] = 9
        return x * len(str(x))

    x = np.arange(3.0)
    decorated = kg.kernel_graph(function, device="cpu", untraceable="refuse")
    refused(lambda: decorated(x), kg.TraceError, line=function.__code__.co_firstlineno + 2)
    assert x.tolist() == [0, 1, 2]


def test_in_parts() -> None:
    def function(x: Any, y: Any) -> Any:
        x[0] = 9
        if x.sum() > 5:
            y[1] = x[0]
        if y.sum() > 3:
            y += 1
            raise LookupError("no such thing")
        return x * 2

    for plain in (function, failing):
        f = kg.kernel_graph(plain, device="cpu", untraceable="split")
        for scale in (1, 1, -100, 1, -100):  # each way the first time, and again
            mine, its = [np.ones(3), np.full(2, scale * 1.0)], [np.ones(3), np.full(2, scale * 1.0)]
            if scale < 0 and plain is function:
                assert f(*mine).numpy().tolist() == plain(*its).tolist()
            else:
                with pytest.raises(LookupError, match="no such thing"):
                    f(*mine)
                with pytest.raises(LookupError):
                    plain(*its)
            assert [a.tolist() for a in mine] == [a.tolist() for a in its]


def no_axis_of(x: Any, y: Any) -> Any:
    kept = y[0] + 0
    x[0] = 9
    y[1] += kept + np.nonzero(kept)[0].sum()
    return x * 2


def caught(x: Any, y: Any) -> Any:
    kept = y[0] + 0
    x[1] += kept
    try:
        found = np.nonzero(kept)[0].sum()
    except ValueError:
        found = -1
    y[1] += found + kept
    return x * 2


@pytest.mark.parametrize("plain", [no_axis_of, caught])
def test_an_error_of_numpys_between_two_parts(plain: Any) -> None:
    f = kg.kernel_graph(plain, device="cpu", untraceable="split")
    for start in (3, 3, -7, 3, -7, -9, 3):
        found: list[Any] = []
        for function in (f, plain):
            x, y = np.ones(3), np.array([start, 2.0])
            try:
                result = np.asarray(function(x, y)).tolist()
            except ValueError as error:
                result = str(error)
            found.append((result, x.tolist(), y.tolist()))
        assert found[0] == found[1]


def test_a_long_trace_that_ends_in_an_error_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls after it run in NumPy: each would be traced to its end."""
    attempts = []
    run = trace_function.TraceAttempt.run
    monkeypatch.setattr(trace_function.TraceAttempt, "run", lambda self: (attempts.append(self), run(self))[1])

    def grow(x: Any, end: float, step: float) -> Any:
        i = 0.0
        while i != end:
            x = x + i
            i += step
            if i > 1500:
                raise OverflowError(i)
        return x

    f = kg.kernel_graph(grow, device="cpu", untraceable="numpy")
    counts = []
    for _ in range(3):
        with pytest.raises(OverflowError, match=r"1500\.25"):
            f(np.ones(3), 1.55, 0.25)
        counts.append(len(attempts))
    assert counts[0] == counts[2] <= 4
