"""`KERNELGRAPH_VERIFY=1`: each call is traced again, and what a trace froze without a guard is found."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import refused
from tests.dsl.functions.test_refusals import here

X = np.arange(6.0)
NAN = float("nan")


def count() -> int:
    """A library's own counter, which nothing sees."""
    return int(threading._newname("%d"))  # type: ignore[attr-defined]


def scaled(x: Any) -> Any:
    return x * count()  # here


def added(x: Any) -> Any:
    y = x + 1
    return y + count()  # here


def number_of_turns(x: Any) -> Any:
    for _ in range(count() % 97):
        x = x + 1  # here
    return x


@pytest.mark.parametrize("function", [scaled, added, number_of_turns])
def test_what_is_frozen_is_found(function: Any) -> None:
    decorated = kg.kernel_graph(function, device="cpu")
    decorated(X)  # without the setting nobody notices
    with kg.override(verify=True):
        refused(lambda: decorated(X), kg.TraceError, "traced again", "pass it as an argument", line=here(function))


def test_a_frozen_result_is_found() -> None:
    decorated = kg.kernel_graph(lambda x: (x + 1, count()), device="cpu")
    with kg.override(verify=True), pytest.raises(kg.TraceError, match=r"returns \d+ where it returned \d+"):
        decorated(X)


def test_a_frozen_array_is_found() -> None:
    def draws(x: Any) -> Any:
        return x + np.full(6, float(count()))

    decorated = kg.kernel_graph(draws, device="cpu")
    with kg.override(verify=True), pytest.raises(kg.TraceError, match="traced again"):
        decorated(X)


def steady(x: Any, n: int, flag: bool = True) -> Any:
    table = np.array([1.0, NAN, -0.0])
    y = x * n + table[0] + (NAN if flag else 0.0)
    x[1:] += 1
    return {"y": y, "n": n + 1, "flag": flag, "f": steady, "object": NAN}


def test_what_is_not_frozen_passes() -> None:
    decorated = kg.kernel_graph(steady, device="cpu")
    with kg.override(verify=True):
        for n in (1, 5, 1 << 70, 2):  # one of them fits no array, and is taken by value
            mine, theirs = X.copy(), X.copy()
            try:
                expected = steady(theirs, n)
            except OverflowError:
                continue
            found = decorated(mine, n)
            np.testing.assert_array_equal(found["y"], expected["y"].astype(float))
            np.testing.assert_array_equal(mine, theirs)
            assert found["n"] == n + 1


def test_programs_in_parts_pass() -> None:
    @kg.kernel_graph(device="cpu", untraceable="split")
    def halved(x: Any) -> Any:
        while x.max() > 1:
            x = x / 2
        return x

    with kg.override(verify=True):
        for _ in range(2):
            np.testing.assert_array_equal(halved(X), X / 8)


def test_a_guarded_global_is_no_error() -> None:
    names = {"scale": 2.0}
    exec("def f(x): return x * scale", names)
    decorated = kg.kernel_graph(names["f"], device="cpu")
    with kg.override(verify=True):
        np.testing.assert_array_equal(decorated(X), X * 2)
        names["scale"] = 3.0
        np.testing.assert_array_equal(decorated(X), X * 3)


def test_random_numbers_of_a_key_pass() -> None:
    decorated = kg.kernel_graph(lambda x: x + kg.random.uniform(kg.random.key(3), (6,)))
    with kg.override(verify=True):
        np.testing.assert_array_equal(decorated(X), decorated(X))
