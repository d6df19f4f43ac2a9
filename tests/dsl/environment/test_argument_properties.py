"""A cached property of an argument is computed once, by Python, and kept in the argument."""

from __future__ import annotations

import dataclasses
import functools
import weakref
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import refused
from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import cpu

X = np.linspace(0.5, 2.0, 3)
counted: list[str] = []


class Inner:
    def __init__(self, k: Any) -> None:
        self.k = k

    @functools.cached_property
    def squared(self) -> Any:
        counted.append("squared")
        return self.k**2

    @functools.cached_property
    def missing(self) -> Any:
        return self.nothing  # type: ignore[attr-defined]


class Model:
    def __init__(self, k: Any) -> None:
        self.inner, self.listed, self.named = Inner(k), [Inner(k), k], {"p": Inner(k)}

    @functools.cached_property
    def weights(self) -> Any:
        return np.arange(3.0) * self.inner.k

    def direct(self, x: Any) -> Any:
        return x * self.weights

    def deep(self, x: Any) -> Any:
        return x * self.inner.squared + self.listed[0].squared * self.named["p"].squared

    def twice(self, x: Any) -> Any:
        return x * self.weights[0] + self.weights + self.inner.squared

    def caught(self, x: Any) -> Any:
        try:
            return x * self.inner.missing
        except AttributeError:
            return x * 7

    def chosen(self, x: Any, n: int) -> Any:
        return x * self.weights if n > 2 else x * n

    def swallowed(self, x: Any) -> Any:
        try:
            return x * self.weights
        except BaseException:
            return x


@pytest.mark.parametrize("name", ["direct", "deep", "twice", "caught", "swallowed"])
@pytest.mark.parametrize("k", [2.0, 3, np.array([1.0, 2.0, 4.0])])
def test_it_is_kept_in_self(name: str, k: Any) -> None:
    function = getattr(Model, name)
    f = cpu(function)
    for _ in range(3):  # new objects
        mine, its = Model(k), Model(k)
        for change in range(3):
            assert_same(f(mine, X), function(its, X))
            assert [*vars(mine)] == [*vars(its)] and [*vars(mine.inner)] == [*vars(its.inner)]
            mine.inner.k = its.inner.k = k + change  # what was computed stays
        vars(mine).pop("weights", None), vars(its).pop("weights", None)
        assert_same(f(mine, X), function(its, X))


def test_it_is_computed_once() -> None:
    f = cpu(Model.deep)
    model = Model(2.0)
    counted.clear()
    for _ in range(3):
        f(model, X)
    assert counted.count("squared") <= 4  # each of three by Python, and once by the trace that found it missing


def test_another_number_needs_it_or_not() -> None:
    f = cpu(Model.chosen)
    for n in (3, 1, 4, 2, 5):
        mine, its = Model(2.0), Model(2.0)
        assert_same(f(mine, X, n), Model.chosen(its, X, n))
        assert [*vars(mine)] == [*vars(its)]


@dataclasses.dataclass
class Grid:
    n: int

    @functools.cached_property
    def ramp(self) -> Any:
        return np.arange(float(self.n))


def test_of_a_dataclass() -> None:
    def function(x: Any, grids: Any) -> Any:
        return x * grids[0].ramp

    f = cpu(function)
    grid = Grid(3)
    for _ in range(3):
        assert_same(f(X, [grid]), X * np.arange(3.0))
    assert_same(grid.ramp, np.arange(3.0))
    assert "1 tasks" in f.explain(X, [Grid(3)])


@pytest.mark.usefixtures("refusing")
def test_a_refused_call_leaves_nothing() -> None:
    def function(self: Any, x: Any) -> Any:
        y = x * self.weights
        OUTSIDE.b = 2  # type: ignore[attr-defined]
        return y

    model: Any = type("Kind", (Model,), {"f": cpu(function)})(2.0)
    refused(lambda: model.f(X.copy()), kg.TraceError, line=function.__code__.co_firstlineno + 2)
    assert "weights" not in vars(model)


def test_one_that_is_read_after_something_was_written_is_kept_too() -> None:
    def before(self: Any, x: Any) -> Any:
        self.b = 3.0
        return x * self.weights

    def late(self: Any, x: Any) -> Any:
        x[0] = 5.0
        return x * self.weights

    for function in (before, late):
        model, other = (type("Kind", (Model,), {"f": f})(2.0) for f in (cpu(function), function))
        for _ in range(3):
            assert_same(model.f(X.copy()), other.f(X.copy()))
            assert_same(model.weights, other.weights)
            assert vars(model).keys() == vars(other).keys()


OUTSIDE = Inner(2.0)


def test_what_raises_outside_is_watched() -> None:
    def function(x: Any) -> Any:
        try:
            return x * OUTSIDE.missing
        except AttributeError:
            return x * 7

    f = cpu(function)
    assert_same(f(X), X * 7)
    OUTSIDE.nothing = 3.0  # type: ignore[attr-defined]
    assert_same(f(X), X * 3)


class Counted:
    def __init__(self) -> None:
        self.times = [0.0]

    @functools.cached_property
    def inside(self) -> float:
        self.times.append(1.0)
        return 2.0

    @functools.cached_property
    def gain(self) -> float:
        return self.inside + 1


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("outside", [False, True])
def test_what_a_property_computes_besides_goes_where_the_call_is_refused_and_stays_once_where_it_is_not(
    outside: bool,
) -> None:
    counts = Counted()

    def decided(x: Any, given: Any) -> Any:
        y = x * (held or given)[0].gain
        if x.sum() > 0:
            y = y + 1
        return y

    def changing(x: Any, given: Any) -> Any:
        y = x * (held or given)[0].gain
        OUTSIDE.b = 2  # type: ignore[attr-defined]
        return y

    held, given = ([counts], [None]) if outside else ([], [counts])
    refused(lambda: cpu(changing)(X.copy(), given), kg.TraceError, line=changing.__code__.co_firstlineno + 2)
    assert vars(counts) == {"times": [0.0]}
    assert_same(cpu(decided)(X, given), X * 3 + 1)
    assert vars(counts) == {"times": [0.0, 1.0], "inside": 2.0, "gain": 3.0}


class Weak:
    def __init__(self) -> None:
        self.held = weakref.WeakKeyDictionary[Any, float]()

    @functools.cached_property
    def squared(self) -> Any:
        return self.held**2  # type: ignore[operator]


FAILING = Weak()


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
def test_one_of_an_object_outside_that_no_trace_follows_raises_its_error_at_each_call() -> None:
    f = cpu(lambda x: x * FAILING.squared)
    for _ in range(3):
        with pytest.raises(TypeError, match="unsupported operand"):
            f(X)
