"""Helpers, classes and objects from outside or made inside are traced with the function."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl import world_helpers
from tests.dsl.core.test_errors import line_in, refused
from tests.dsl.tracing import assert_same
from tests.dsl.world_helpers import blank, smoothed
from tests.dsl.world_objects import GRID, MODEL, Base, Grid, Model, Pair, Point, X, agree, cpu

SCALE = 2.0
OFFSETS = np.arange(8.0)
SETTINGS = {"power": 2, "names": ["a", "b"], "table": np.ones(8)}
FUNCTIONS = {"smooth": smoothed, "double": lambda x: x * 2}


# functions


def fib(n: int, x: Any) -> Any:
    return x if n < 2 else fib(n - 1, x) + fib(n - 2, x * 2)


def shift_all(x: Any) -> Iterator[Any]:
    for i in range(3):
        buffer = np.zeros(x.size)
        buffer[i:] = x[: x.size - i]
        yield buffer


def twice(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(x: Any, *, times: int = 2) -> Any:
        out = np.zeros_like(x)
        for _ in range(times):
            out += function(x)
        return out

    return wrapper


@twice
def squared(x: Any) -> Any:
    return np.array([1.0])[0] * x**2


@kg.kernel_graph(device="cpu")
def decorated_helper(x: Any) -> Any:
    out = np.zeros(x.shape)
    out[1:] = x[1:] - x[:-1]
    return out


def test_helpers() -> None:
    def outer(x: Any) -> Any:
        def inner(y: Any, depth: int = 3) -> Any:
            made = np.zeros_like(x)
            made[::2] = y[::2]
            return made if depth == 0 else inner(made + x, depth - 1)

        return inner(x * 2)

    def gathered(x: Any) -> Any:
        listed = [np.zeros(3) + x[i] for i in range(3)]
        generated = sum(np.ones(2) * x[i] for i in range(3))
        named = {k: f(x) for k, f in FUNCTIONS.items()}
        return listed, generated, named, list(shift_all(x)), [*map(np.sin, [x, x + 1])]

    def called(x: Any) -> Any:
        return (
            fib(5, x),
            smoothed(x),
            world_helpers.smoothed(x),
            world_helpers.TABLE["weights"] * world_helpers.TABLE["scale"],
            blank(3) * 0,
            squared(x),
            squared(x, times=3),
            functools.reduce(np.add, [x, x, x]),
            functools.partial(np.full, 3)(x[0]),
            functools.partial(smoothed, x)(),
            (lambda y, w=OFFSETS: np.cos(w) + y)(x),
            max([x.size, 3]),
            math.sqrt(16),
        )

    for function in (outer, gathered, called):
        agree(function, X)


def test_decorated_functions_are_traced_with_the_rest_and_fuse() -> None:
    def function(x: Any) -> Any:
        return decorated_helper(np.exp(x)) * 2 + np.zeros(8)

    f = cpu(function)
    e = np.exp(X)
    assert_same(f(X), np.concatenate([[0.0], e[1:] - e[:-1]]) * 2)
    assert len(f.program(X).tasks) <= 3


def test_helpers_fuse() -> None:
    def normed(x: Any) -> Any:
        out = np.zeros_like(x)
        out[:] = np.exp(x)
        return out

    f = agree(lambda x: normed(normed(x) * SCALE) + 1, X)
    assert len(f.program(X).tasks) == 1


# classes and objects


def test_objects_from_outside() -> None:
    def function(x: Any) -> Any:
        return GRID.gradient(x) * GRID.inverse + GRID.ramp, MODEL(x), MODEL.gain, Grid.order, Grid.blank(3), GRID.n

    agree(function, X)


def test_objects_made_inside() -> None:
    def function(x: Any) -> Any:
        grid = Grid.unit(8)
        grid.weights = x
        grid.weights = grid.weights * 2
        model = Model(8)
        model.bias[2:] = x[2:]
        pair = Pair(x) + Pair(x, x)
        moved = dataclasses.replace(pair, right=1.0)
        assert isinstance(grid, Grid) and isinstance(model, Base) and type(pair) is Pair
        return grid.gradient(x), model(x), pair, moved.summed(), Point(x, x).norm(), Point(x, 1.0), pair.summed()

    result = agree(function, X)(X)
    assert type(result[2]) is Pair and type(result[5]) is Point


def test_objects_as_arguments() -> None:
    class Plain:
        def __init__(self, rate: float) -> None:
            self.rate = rate
            self.history = [1.0, 2.0]

        def step(self, x: Any) -> Any:
            return np.ones(x.size) * self.rate * x + self.history[0]

    def function(grid: Grid, pair: Pair, point: Point, plain: Plain, rule: Any, x: Any) -> Any:
        made = grid.gradient(x) + pair.summed() + point.norm()
        return made, plain.step(x), rule(x), isinstance(pair, Pair), grid, point._replace(y=x)

    plain = Plain(0.5)
    grid, pair, point = Grid(8, weights=X + 1), Pair(X, X), Point(X, X)
    f = cpu(function)
    for rate in (0.5, 0.25):
        plain.rate = rate
        for _ in range(2):
            assert_same(f(grid, pair, point, plain, smoothed, X), function(grid, pair, point, plain, smoothed, X))
    assert f.why().count("traced") == 1
    plain.history.append(3.0)
    plain.history[0] = 9.0
    assert_same(f(grid, pair, point, plain, smoothed, X), function(grid, pair, point, plain, smoothed, X))


def test_decorated_methods_use_others() -> None:
    class Solver(Model):
        def __init__(self) -> None:
            super().__init__(8)
            self.grid = Grid(8)

        @kg.kernel_graph(device="cpu")
        def solve(self, x: Any) -> Any:
            return self.apply(x) + self.grid.gradient(x) + self.twice(x)

        @kg.kernel_graph
        def twice(self, x: Any) -> Any:
            out = np.zeros_like(x)
            out += 2 * x
            return out

    solver = Solver()
    expected = solver.apply(X) + solver.grid.gradient(X) + 2 * X
    assert_same(solver.solve(X), expected)
    solver.bias = X
    assert_same(solver.solve(X), expected + X)


def test_returned_functions_and_containers_are_the_users_own() -> None:
    def function(x: Any, named: Any) -> Any:
        return smoothed, Grid, FUNCTIONS["smooth"], np.sin, named, SETTINGS["names"], x

    f = cpu(function)
    result = f(X, {"a": [X, 1]})
    assert result[:3] == (smoothed, Grid, smoothed) and result[3] is np.sin
    assert type(result[4]) is dict and type(result[4]["a"]) is list and type(result[5]) is list


class Emptied:
    __slots__ = ("a",)


class Holding:
    def __init__(self, held: Any) -> None:
        self.held = held

    @functools.cached_property
    def found(self) -> Any:
        return self.held

    @property
    def failing(self) -> Any:
        raise AttributeError("nothing here")


def test_an_empty_slot_and_a_failing_property_raise_as_in_python() -> None:
    holding = Holding(Emptied())

    def read(x: Any) -> Any:
        return x * holding.found.a

    with pytest.raises(AttributeError, match="has no attribute 'a'") as found:
        cpu(read)(X)
    assert not isinstance(found.value, kg.KernelGraphError)
    assert holding.__dict__["found"] is holding.held  # as Python leaves it
    with pytest.raises(AttributeError, match="nothing here"):
        cpu(lambda x: x * holding.failing)(X)


class Plain:
    gain = 2.0


class Louder(Plain):
    gain = 3.0


PLAIN = Plain()


@pytest.mark.usefixtures("refusing")
def test_no_way_to_change_the_class_of_an_object_is_lost() -> None:
    def of_outside(x: Any) -> Any:
        object.__setattr__(PLAIN, "__class__", Louder)
        return x * PLAIN.gain

    def of_argument(o: Any, x: Any) -> Any:
        object.__setattr__(o, "__class__", Louder)
        return x * o.gain

    def assigned(o: Any, x: Any) -> Any:
        o.__class__ = Louder
        return x * o.gain

    refused(lambda: cpu(of_outside)(X), kg.TraceError, "cannot change")
    refused(lambda: cpu(of_argument)(Plain(), X), kg.TraceError, "cannot change the class")
    refused(lambda: cpu(assigned)(Plain(), X), kg.TraceError, "cannot change the class", line=line_in(assigned))


class Ending:
    ended = 0

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def __del__(self) -> None:
        type(self).ended += 1


KEPT = Ending(2.0)


@pytest.mark.usefixtures("refusing")
def test_an_object_that_ends_in_a_traced_function_is_no_object_whose_end_is_lost() -> None:
    def makes(x: Any) -> Any:
        return x * Ending(3.0).gain

    refused(lambda: cpu(makes)(X), kg.TraceError, "__del__", line=line_in(makes))
    agree(lambda x: x * KEPT.gain, X)
    assert not Ending.ended


class KeptByObject:
    """A descriptor that keeps values by the object, weakly."""

    def __init__(self) -> None:
        self.held: Any = weakref.WeakKeyDictionary()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else self.held[instance]

    def __set__(self, instance: Any, value: Any) -> None:
        self.held[instance] = value


class Kept:
    a = KeptByObject()

    def __init__(self, a: float) -> None:
        self.a = a


kept_by_name: Any = None


def scaled_by_global(x: np.ndarray[Any, Any], box: Any) -> Any:
    return x * kept_by_name.a


def scaled_by_argument(x: np.ndarray[Any, Any], box: Any) -> Any:
    return x * box.kept.a


@pytest.mark.parametrize("function", [scaled_by_global, scaled_by_argument])
def test_what_a_refused_trace_met_ends_with_its_last_name(function: Any) -> None:
    global kept_by_name
    f, box = kg.kernel_graph(function, device="cpu"), SimpleNamespace()
    kept_by_name = box.kept = Kept(2.0)
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert f(np.ones(2), box).tolist() == [2.0, 2.0]
        old = weakref.ref(kept_by_name)
        kept_by_name = box.kept = Kept(3.0)
        assert old() is None and len(Kept.a.held) == 1
    finally:
        gc.enable()
    assert f(np.ones(2), box).tolist() == [3.0, 3.0]
