"""Recorded loops whose turns raise errors as values decide, and that ask where the least element of a vector is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.turn_programs import recorded

from .raising_programs import nearest, of_nothing, roots, steps


def outcome(function: Callable[..., Any], x: Any, y: Any) -> tuple[str, Any]:
    """The error in words, or the result."""
    try:
        return "", np.asarray(function(x, y))
    except Exception as error:
        return f"{type(error).__name__}: {error}", None


@pytest.mark.parametrize("case", ["plain", "negative", "equal and NaN"])
@pytest.mark.parametrize("program", [roots, steps, nearest, of_nothing], ids=lambda p: p.__name__)
def test_gives_and_raises_what_numpy_does(program: Callable[..., Any], case: str) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.permutation(40).astype(float), rng.integers(0, 8 if case == "plain" else 10, 40).astype(float)
    if case == "negative":
        x -= 3
    if case == "equal and NaN":
        y[[13, 17]], x[4] = np.nan, x[3]
    (a, b), (c, d) = ((x.copy(), y.copy()) for _ in range(2))
    with recorded() as traces:
        said, got = outcome(kg.kernel_graph(program, device="cpu"), a, b)
    expected, want = outcome(program, c, d)
    assert said == expected or (expected and expected in said)
    for ours, theirs in ((got, want), (a, c), (b, d)):
        np.testing.assert_array_equal(ours, theirs)
    assert not [reason for trace in traces for reason in trace.reasons.values()]
    assert bool(traces)


def past_the_end(x: Any, y: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s += x[int(y[i])]
    return s


def of_no_element(x: Any, y: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s += x[: int(y[i])].max()
    return s


def of_other_lengths(x: Any, y: Any) -> Any:
    for i in range(len(x)):
        least = y > i
        x[:3] += y[least]
    return x


def negative(x: Any, y: Any) -> Any:
    for i in range(len(x)):
        if y[i] >= 0:
            raise ArithmeticError("negative")
        x[i] += 1
    return x


@pytest.mark.parametrize("program", [past_the_end, of_no_element, of_other_lengths, negative], ids=lambda p: p.__name__)
def test_every_error_names_the_line_in_the_loop(program: Callable[..., Any]) -> None:
    x, y = np.arange(40.0), np.full(40, 50.0 if program is past_the_end else 0.0)
    with pytest.raises((IndexError, ValueError, ArithmeticError)) as wanted:
        program(x.copy(), y)
    with recorded() as traces, pytest.raises(wanted.type) as caught:
        np.asarray(kg.kernel_graph(program, device="cpu")(x.copy(), y))
    assert bool(traces)
    line = program.__code__.co_firstlineno + 3
    assert f"test_loops_that_raise.py:{line}" in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def one_after_another(x: Any, y: Any) -> Any:
    for i in range(3000):
        x[i % len(x)] += i
        if i == y:
            raise KeyError(i)
    return x.sum()


@pytest.mark.parametrize("last", [5, 650, 700, 1800, 3000])
def test_what_was_written_before_the_error_stays_however_long_the_trace(last: int) -> None:
    """A trace is asked whether it repeats once it is long; it has values of a body that is being traced then."""
    ours, theirs = np.arange(1.0, 5), np.arange(1.0, 5)
    got = outcome(kg.kernel_graph(one_after_another, device="cpu"), ours, last)
    assert got == outcome(one_after_another, theirs, last)
    np.testing.assert_array_equal(ours, theirs)
