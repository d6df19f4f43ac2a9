"""Sorts, orders and medians of windows in recorded loops: a table of calls by windows, and random values in them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.recorded_loops.short_sorts import sorting_network
from tests.random_cases import names_in_file
from tests.turn_programs import recorded

CALLS = {
    "np.sort({w}, axis=None)[1:].max()": "one",
    "np.sort({w}.ravel())[::-1][0]": "one",
    "np.sort({w}.flatten())[-1]": "one",
    "np.median({w})": "one",
    "np.argsort({w}.reshape(-1), kind='stable')[0]": "one",
    "np.argsort({w}.ravel())[-1]": "one",
    "np.median(np.abs({w} - np.median({w})))": "one",
    "sorted([{w}[0], {w}[-1], x[i, 3], x[i, 1]])[1]": "row",
    "np.sort({w})[1]": "row",
    "np.sort({w}, axis=0)[0, 0]": "two",
    "np.median({w}, axis=0)[-1]": "two",
    "np.median({w}, axis=1).max()": "two",
    "np.argsort({w}, axis=1, kind='stable')[0, -1]": "two",
}
WINDOWS = {
    "x[i, 2:7]": "row",
    "x[i]": "row",
    "x[max(i - 2, 0) : i + 3, 4]": "clipped row",
    "x[i - 1 : i + 2, 3:6]": "two",
    "x[i : i + 2, ::3]": "two",
    "x[max(i - 1, 0) : i + 2, 1:4]": "clipped two",
    "(x[i, :5] * 2 - x[0, 1:6])": "row",
}
TABLE = [
    (call, window)
    for (call, needs), (window, has) in itertools.product(CALLS.items(), WINDOWS.items())
    if (needs == "one" and not ("clipped" in has and "median" not in call)) or needs == has
]
TEXT = """
import numpy as np
def f(x):
    y = np.zeros(len(x))
    for i in range(1, len(x) - 1):
        y[i] = {call}
    return y
"""


def _values(rng: np.random.Generator, dtype: str) -> Any:
    x = rng.integers(-4, 5, (14, 9)).astype(dtype)
    if dtype.startswith("f"):
        x[rng.random(x.shape) < 0.02] = np.nan
        x[rng.random(x.shape) < 0.05] = np.inf
        x += rng.random(x.shape).astype(dtype) * (rng.random(x.shape) < 0.6)
    return x


@pytest.mark.parametrize(("call", "window"), TABLE)
def test_calls_on_windows_give_what_numpy_gives(call: str, window: str, tmp_path: Path) -> None:
    function = names_in_file([TEXT.format(call=call.format(w=window))], tmp_path, "windows")["f"]
    with recorded() as notes:
        ours = kg.kernel_graph(function, device="cpu")
        for seed, dtype in enumerate(("f8", "f4", "i8", "f8")):
            x = _values(np.random.default_rng(seed), dtype)
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(ours(x.copy()), function(x.copy()))
    assert not [reason for known in notes for reason in known.reasons.values()]


@pytest.mark.parametrize("n", range(14))
def test_the_network_sorts_all_flags(n: int) -> None:
    """Which proves that it sorts all numbers."""
    for flags in itertools.product((0, 1), repeat=n):
        found = [*flags]

        def exchange(i: int, j: int, found: list[int] = found) -> None:
            assert i < j
            found[i], found[j] = sorted((found[i], found[j]))

        sorting_network(n, exchange)
        assert found == sorted(flags)


def test_windows_that_are_long_are_left_to_numpy() -> None:
    def medians(x: Any) -> Any:
        y = np.zeros(20)
        for i in range(20):
            y[i] = np.median(x[i : i + 100])
        return y

    x = np.random.default_rng(0).random(120)
    with recorded() as notes:
        np.testing.assert_array_equal(kg.kernel_graph(medians, device="cpu")(x), medians(x))
    assert "np.median of more than 64 elements is called in it" in [*notes[0].reasons.values()]


def test_a_ravelled_array_is_a_view_that_is_not_written_to() -> None:
    def written(x: Any) -> Any:
        for i in range(1, 20):
            flat = x[:2].ravel()
            flat[i] = flat[i - 1] + 1
        return x

    x = np.random.default_rng(0).random((3, 12))
    want = written(x.copy())
    with recorded():
        np.testing.assert_array_equal(kg.kernel_graph(written, device="cpu")(x.copy()), want)
