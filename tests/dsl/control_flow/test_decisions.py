"""Functions that decide on traced values: one compiled program for all values, with NumPy's results and errors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.environment.value_kinds import environment_of
from kernelgraph.dsl.trace.trace import Trace
from kernelgraph.dsl.trace.tracer import Tracer

X = np.arange(4.0)


def decides_if(x: Any) -> Any:
    y = x * 2
    if y.sum() > 0:
        return y
    return x


def decides_while(x: Any) -> Any:
    while np.abs(x).max() > 1:
        x = x / 2
    return x


def as_bool(x: Any) -> Any:
    return bool(x[1])


def as_int(x: Any) -> Any:
    return int(x[1] * 2.5)


def as_float(x: Any) -> Any:
    return x.astype(np.float32) * float(x[1])


def takes_a_view_or_another(x: Any) -> Any:
    """What a name is on a side is what it is at the side's end."""
    u, v = x, x[::-1] * 3
    if x.sum() > 0:
        u = v
    else:
        x[::2] = 7
    return u, x


def returns_a_list_that_changes_later(x: Any) -> Any:
    p = [x * 1, 2]
    if x.sum() > 0:
        return x, p
    p[1] += 1.5
    p[0][0] = 9
    return -x, p


def names_of_one_array(x: Any) -> Any:
    """Two names of one array, given on both sides, are still of one."""
    if x.sum() > 0:
        u = v = x * 2
    else:
        u = v = x - 1
    u[0] = 5
    return u, v


def ends_a_loop(x: Any) -> Any:
    for i in range(100):  # noqa: B007
        x = x / 2
        if np.abs(x).sum() < 1:
            break
    else:
        i = -1
    return x, i


FUNCTIONS = [f for f in [*globals().values()] if getattr(f, "__module__", "") == __name__]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_decisions(function: Any) -> None:
    compiled = kg.kernel_graph(function, device="cpu")
    for x in (X, -X, X * 0, X - 2):
        ours, theirs = x.copy(), x.copy()
        got, want = compiled(ours), function(theirs)
        _same(got, want)
        _same(ours, theirs)
    assert str(compiled.why()).count("traced") == 1


def _same(got: Any, want: Any) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _same(g, w)
        return
    assert np.asarray(got).dtype == np.result_type(np.asarray(want), np.asarray(got)[()])
    np.testing.assert_array_equal(got, want)


def picks(x: Any) -> Any:
    return x[9] if x.sum() > 0 else x[0]


def shapes(x: Any) -> Any:
    if x.sum() > 0:
        x = x + np.zeros(3)
    return x * 2


def of_nothing(x: Any) -> Any:
    return x.sum() > 0 and x[4:].max()


def no_axis(x: Any) -> Any:
    if x.sum() > 0:
        return x.sum(axis=3)
    return x


@pytest.mark.parametrize("function", [picks, shapes, of_nothing, no_axis], ids=lambda f: f.__name__)
def test_what_numpy_raises_on_one_side_is_raised_by_calls_that_take_it(function: Any) -> None:
    compiled = kg.kernel_graph(function, device="cpu")
    for x in (-X, X, -X, X * 0, X):
        try:
            want = function(x)
        except (IndexError, ValueError) as error:
            with pytest.raises(type(error)):
                compiled(x).wait()
        else:
            _same(compiled(x), want)


def raises_first(x: Any) -> Any:
    if x.sum() > 0:
        raise KeyError("positive")
    return x[9]


def test_which_of_two_errors_comes_first_is_not_guessed() -> None:
    with pytest.raises(kg.UnsupportedError, match="return for one of the two"):
        kg.kernel_graph(raises_first, device="cpu", untraceable="refuse")(X)
    in_numpy = kg.kernel_graph(raises_first, device="cpu", untraceable="numpy")
    for x, kind in ((X, KeyError), (-X, IndexError)):
        with pytest.raises(kind):
            in_numpy(x + np.sign(x.sum()))


def test_arrays_that_may_be_one_are_noted_once() -> None:
    """However often it is said: a program of 12 turns that decide did not end."""
    trace = Trace("t")
    trace.world = environment_of(trace)
    arrays = [Tracer(trace, trace.builder.const(float(i))) for i in range(6)]
    for _ in range(3):
        for before, array in pairwise(arrays):
            trace.note_possible_aliases([(array, before)])
    for i, array in enumerate(arrays):
        found = trace.possible_aliases(array)
        assert len(found) == 5 and all(any(x is other for x in found) for other in arrays[:i] + arrays[i + 1 :])


def clipped_turns(x: Any) -> Any:
    t = 1
    for i in range(3):
        t = np.clip(t + max(x[i], 1), -9, 9)
    return t


def logarithm(x: Any) -> Any:
    return np.log(max(x[0], 1e-7))


def one_sum_or_none(x: Any) -> Any:
    s = 0.0
    if x[0] > 0:
        s = x.sum()
    return np.exp(-abs(s))


def scaled(x: Any) -> Any:
    s = 1 if x[0] > 0 else 0.5
    return np.arange(3) * s


def operators_alone(x: Any) -> Any:
    m = max(x[0], 0.5)
    m += 1
    return (m * 2 - 1) / 3 * x


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("function", [clipped_turns, logarithm, one_sum_or_none, scaled, operators_alone])
def test_a_number_of_pythons_or_numpys_gives_the_dtype_that_numpy_gives(function: Any, dtype: str) -> None:
    """As values decide: where the dtype of what is made of it depends on that, NumPy does it."""
    compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
    for x in (X + 1, -1 - X):
        got, want = np.asarray(compiled(x.astype(dtype))), function(x.astype(dtype))
        assert got.dtype == np.asarray(want).dtype or np.asarray(want).dtype.kind != "f"
        np.testing.assert_allclose(got, want, 1e-6)


def test_the_line_of_a_number_of_two_dtypes_is_named() -> None:
    with pytest.raises(kg.UnsupportedError, match=r"test_decisions\.py:\d+: this is float32 or float64"):
        kg.kernel_graph(one_sum_or_none, device="cpu", untraceable="refuse")(X.astype("float32"))
