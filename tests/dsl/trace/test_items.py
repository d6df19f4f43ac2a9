"""Numbers assigned to elements in every way that NumPy has: checked, cast or refused as NumPy does."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.scalar_rows import ASSIGNMENTS
from tests.scalars import Case, cases, function_of, judge

MADE = ["np.full", "np.full_like", "np.pad", "np.insert", "np.array", "np.asarray", "np.fromiter", "np.max", "np.add"]
EVERY = cases(lambda name: name in ASSIGNMENTS or function_of(name) in MADE)


@pytest.mark.parametrize("seed", range(2))
def test_a_sample_of_the_ways(seed: int) -> None:
    wrong = [(c[::2], c.given, why) for c in random.Random(seed).sample(EVERY, 150)
             for verdict, why in [judge(c)] if verdict == "wrong"]  # fmt: skip
    assert not wrong


@pytest.mark.parametrize("name", ASSIGNMENTS)
def test_numpy_scalars_beyond_the_range(name: str) -> None:
    for dtype in ("i1", "u1"):
        for scalar in (np.int64(300), np.float64("nan"), np.array(300)):
            for given in (False, True):
                assert judge(Case(name, ASSIGNMENTS[name], dtype, scalar, given))[0] != "wrong", (dtype, scalar)


def outcomes(function: Any, x: Any, numbers: Any) -> list[Any]:
    found = []
    for number in numbers:
        y = x.copy()
        try:
            function(y, number)
            found.append(y.tolist())
        except (OverflowError, ValueError, TypeError) as error:
            found.append(next(k for k in type(error).__mro__ if k.__module__ == "builtins"))
    return found


@pytest.mark.parametrize("kind", [np.int64, np.float64, float, np.array])
def test_scalars_of_the_call_are_checked_at_each_call(kind: Any) -> None:
    def put(x: Any, s: Any) -> None:
        x[1:] = s

    def pad(x: Any, s: Any) -> None:
        x[:] = np.pad(x, 1, constant_values=s)[:3]

    for function in (put, pad):
        for dtype in ("i1", "u1"):
            x, numbers = np.zeros(3, dtype), [kind(n) for n in (1, 127, 128, 255, 256, 2)]
            mine = outcomes(kg.kernel_graph(function, device="cpu"), x, numbers)
            assert mine == outcomes(function, x, numbers), (function.__name__, dtype)


def test_a_scalar_that_fits_compiles_nothing_new() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, s: Any) -> None:
        x[...] = s

    x = np.zeros(4, np.int8)
    for number in (1, 2, 100, -128):
        f(x, np.int64(number))
        assert (x == number).all()
    assert sum("traced for" in line for line in str(f.why()).splitlines()) == 1


def test_one_element_takes_one_value() -> None:
    for function in (lambda x: x.__setitem__(0, np.array([5])), lambda x: x.fill([1]), lambda x: x.__setitem__(0, [1])):
        with pytest.raises(ValueError, match="sequence"):
            kg.kernel_graph(lambda x, f=function: (f(x), x)[1], device="cpu")(np.zeros(3))


@pytest.mark.parametrize(
    "x", [np.ones(2, "c8"), np.ones(2, bool), np.ones(2), np.ones(2, "i4")], ids=lambda x: x.dtype.name
)
@pytest.mark.parametrize("read", [lambda x: x[0], lambda x: x[0, ...], lambda x: x], ids=["scalar", "no axis", "array"])
def test_what_has_no_round_in_numpy_has_none(x: Any, read: Any) -> None:
    def rounded(x: Any) -> Any:
        return round(read(x), 1)

    try:
        want = rounded(x)
    except TypeError:
        with pytest.raises(TypeError, match=r"no round\(\)"):
            kg.kernel_graph(rounded, device="cpu")(x)
    else:
        np.testing.assert_array_equal(kg.kernel_graph(rounded, device="cpu")(x), want)
