"""What lies outside of a traced function: it is traced where it computes, guarded where it is read, never written."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.linalg as la
import pytest
from numpy import arange, zeros
from numpy.random import default_rng

import kernelgraph as kg

from . import world_helpers
from .test_errors import line_in, refused
from .tracing import assert_same, interpreted
from .world_helpers import blank, smoothed

X = np.linspace(0.5, 2.0, 8)
SCALE = 2.0
OFFSETS = np.arange(8.0)
SETTINGS = {"power": 2, "names": ["a", "b"], "table": np.ones(8)}
FUNCTIONS = {"smooth": smoothed, "double": lambda x: x * 2}


def cpu(function: Any) -> Any:
    return kg.kernel_graph(function, device="cpu")


def agree(function: Callable[..., Any], *args: Any) -> Any:
    """Interpreted, compiled and NumPy agree. Returns the decorated function."""

    def fresh() -> list[Any]:
        return [a.copy() if isinstance(a, np.ndarray) else a for a in args]

    expected = function(*fresh())
    decorated = cpu(function)
    assert_same(interpreted(function, *fresh()), expected)
    assert_same(decorated(*fresh()), expected)
    return decorated


# arrays made inside


def every_maker(x: Any, n: int) -> Any:
    made = [
        np.zeros(n),
        np.zeros((n, 2), dtype=int),
        np.zeros(shape=(2, n), dtype=np.float32, order="F"),
        np.ones((n,), bool),
        np.full(n, 2.5),
        np.full((2, n), 7, dtype="i2"),
        np.full(n, x[:n]),
        np.empty((n, n)) * 0,
        np.arange(n),
        np.arange(1, n, 2),
        np.arange(0.0, 1.0, 0.25),
        np.arange(start=2, stop=9, step=3),
        np.arange(n, dtype=np.float32),
        np.linspace(0, 1, n),
        np.linspace(0, 1, n, endpoint=False, dtype=np.float32),
        np.eye(n),
        np.eye(n, n + 1, k=1, dtype=int),
        np.eye(n, M=2),
        np.identity(n),
        np.tri(n),
        np.zeros_like(x),
        np.ones_like(x, dtype=int),
        np.full_like(x, 3),
        np.zeros_like([1, 2, 3]),
        np.array([1, 2, 3]),
        np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32),
        np.array([x[0], x[1] * 2, 1]),
        np.array([[x[0], 1], [2, x[1]]]),
        np.array([x, x + 1]),
        np.array(x),
        np.array(5.0),
        np.array(x[:2], ndmin=2),
        np.asarray([x[0], 2.0]),
        np.ascontiguousarray(x[::2]),
        np.copy(x),
        np.fromiter((x[i] for i in range(n)), float),
        np.indices((2, n)),
        np.mgrid[0:n, 0:2],
        np.mgrid[-1:1:5j],
        np.ogrid[0:n],
        np.meshgrid(np.arange(n), np.arange(2.0))[0],
        np.r_[x[:2], 1.0, 2:4],
        np.c_[x[:3], x[1:4]],
        np.tile([1, 0], n),
        np.hanning(n),
        np.cumsum([1, 2, 3]),
        np.repeat([1, 2], 2),
        np.fft.fftfreq(n),
        np.logspace(0, 2, n),
        np.diag([1, 2, 3]),
        np.fromfunction(lambda i, j: i + j, (n, 2)),
        np.add.outer([1, 2], [3, 4]),
        zeros(n),
        arange(n),
        la.inv(np.eye(2) * 2),
    ]
    return made


def test_every_function_that_makes_arrays() -> None:
    agree(every_maker, X, 4)


def test_what_is_made_can_be_assigned_to() -> None:
    def function(x: Any, n: int) -> Any:
        made = every_maker(x, n)
        for array in made:
            array[...] = 4
            if array.dtype != bool:
                array += 1
        return made

    agree(function, X, 4)


def test_numpys_own_programs() -> None:
    def stack(x: Any) -> Any:
        rows = np.zeros((3, x.size))
        for i in range(3):
            rows[i] = x**i
        total = np.zeros(())
        for row in rows:
            total += row.sum()
        return rows, total

    def stencil(x: Any, steps: int) -> Any:
        new = np.empty_like(x)
        for _ in range(steps):
            new[1:-1] = (x[2:] + x[:-2]) / 2
            new[0] = new[-1] = 0
            x, new = new.copy(), x
        return x

    agree(stack, X)
    agree(stencil, X, 3)


def test_imports_inside() -> None:
    def function(x: Any) -> Any:
        import numpy
        import numpy.linalg as inner
        from numpy import full as filled

        from . import world_helpers as helpers
        from .world_helpers import smoothed as smooth

        out = numpy.zeros(x.shape)
        out[:] = filled(x.shape, 3.0) + smooth(x) * helpers.WIDTH + helpers.blank(8) * 0
        return out, inner.norm(out)

    agree(function, X)


# values that no argument decides are known


def test_known_values_decide() -> None:
    directions = np.array([[0, 1], [1, 0], [-2, 0]])

    def function(x: Any) -> Any:
        shifts = np.array([0, 1, -1])
        out = np.zeros_like(x)
        for shift, weight in zip(shifts, np.linspace(0, 1, 3), strict=True):
            if weight > 0.1 and shift in (0, 1, -1):
                out += weight * np.roll(x, shift)
        for along, _ in directions:
            out = out + np.roll(x, along)
        count = int(np.arange(5).sum())
        table = {int(s): i for i, s in enumerate(shifts)}
        parts = out[: int(shifts.max()) + 3], x[shifts[1] :], np.zeros(np.array([2, 3]))
        return *parts, count, table[1], shifts.tolist()

    f = agree(function, X)
    directions[0] = 3
    assert_same(f(X), function(X))  # the contents decided how the trace went: traced again
    assert f.why().count("traced again") == 1
    assert_same(f(X), function(X))
    assert f.why().count("traced again") == 1


def test_a_captured_array_is_read_at_every_call() -> None:
    table = np.ones(8)
    f = cpu(lambda x: x * np.exp(table) + np.cumsum(table)[-1])
    for value in (1, 2, 3):
        table[:] = value
        assert_same(f(X), X * np.exp(table) + np.cumsum(table)[-1])
    assert f.why().count("traced for") == 1


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


@dataclass
class Grid:
    n: int
    spacing: float = 0.5
    weights: Any = field(default_factory=lambda: np.ones(8))
    order: ClassVar[int] = 2

    @property
    def inverse(self) -> float:
        return 1 / self.spacing

    @functools.cached_property
    def ramp(self) -> Any:
        out = np.zeros(self.n)
        out[1:] = np.arange(self.n - 1)
        return out

    def gradient(self, x: Any) -> Any:
        out = np.zeros(self.n)
        out[1:-1] = (x[2:] - x[:-2]) / (2 * self.spacing) ** self.order
        return out * self.weights

    @classmethod
    def unit(cls, n: int) -> Grid:
        return cls(n, 1.0)

    @staticmethod
    def blank(n: int) -> Any:
        return np.zeros(n)


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any = 2.0

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.left + other.left, self.right + other.right)

    def summed(self) -> Any:
        out = np.zeros_like(self.left)
        out += self.left
        out += self.right
        return out


class Base(abc.ABC):
    gain = 3.0

    def __init__(self, n: int) -> None:
        self.n = n

    @abc.abstractmethod
    def apply(self, x: Any) -> Any: ...

    def padded(self, x: Any) -> Any:
        out = np.zeros(self.n)
        out[: x.size] = x * self.gain
        return out


class Model(Base):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.bias = np.zeros(n)

    def apply(self, x: Any) -> Any:
        return self.padded(x) + self.bias

    def padded(self, x: Any) -> Any:
        return super().padded(x) + 1

    def __call__(self, x: Any) -> Any:
        return [self.apply(x) for _ in range(2)]


class Point(NamedTuple):
    x: Any
    y: Any

    def norm(self) -> Any:
        out = np.zeros(8)
        out += self.x * self.x + self.y * self.y
        return np.sqrt(out)


GRID = Grid(8)
MODEL = Model(8)


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
    assert f.why().count("traced again") == 1 and "Plain.rate has changed" in f.why()
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


# guards


def test_changes_outside_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: Any) -> Any:
        x = x * SCALE + OFFSETS if MODEL.n == 8 else x
        x = x ** SETTINGS["power"] + SETTINGS["table"] + world_helpers.WIDTH + GRID.spacing + Grid.order
        return FUNCTIONS["smooth"](x) + helper(x) + Model.gain

    def other(x: Any) -> Any:
        return -x

    helper: Any = abs
    f = cpu(function)
    scope = globals()

    def same(word: str) -> None:
        before = f.why().count("traced again")
        for _ in range(2):
            assert_same(f(X), function(X))
        assert f.why().count("traced again") == before + bool(word)
        assert not word or f"{word} has changed" in "".join(f.why().splitlines()[-3:])

    f(X)
    monkeypatch.setitem(scope, "SCALE", float("2.0"))  # equal plain data
    same("")
    monkeypatch.setitem(scope, "SCALE", 2)
    same("SCALE")
    monkeypatch.setitem(scope, "SCALE", -0.0)
    same("SCALE")
    monkeypatch.setitem(scope, "OFFSETS", OFFSETS.copy())
    same("OFFSETS")
    monkeypatch.setitem(SETTINGS, "power", 3)
    same("SETTINGS")
    monkeypatch.setitem(SETTINGS, "table", np.full(8, 2.0))
    same("SETTINGS")
    monkeypatch.setattr(world_helpers, "WIDTH", 4)
    same("WIDTH")
    monkeypatch.setattr(GRID, "spacing", 0.25)
    same("Grid.spacing")
    monkeypatch.setattr(Grid, "order", 1)
    same("Grid.order")
    monkeypatch.setattr(Model, "gain", 1.0)
    same("Model.gain")
    monkeypatch.setitem(FUNCTIONS, "smooth", other)
    same("FUNCTIONS")
    helper = other
    same("helper")
    monkeypatch.setattr(MODEL, "n", 9)
    same("Model.n")
    monkeypatch.setitem(scope, "np", FakeNumpy())
    same("")  # np was not read


class FakeNumpy:
    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def test_guards_of_nan_and_of_containers_that_hold_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: list[Any] = [1.0]
    loop.append(loop)
    odd = (float("nan"), [1, (2, {"a": 0.0})], {1, 2})
    f = cpu(lambda x: x + loop[0] + odd[1][1][1]["a"] + len(odd[2]))
    for _ in range(2):
        f(X)
    assert "traced again" not in f.why()
    odd[1][1][1]["a"] = -0.0
    f(X)
    odd[2].add(3)
    assert_same(f(X), X + 4.0)
    assert f.why().count("odd has changed") == 2


def test_the_shape_of_a_captured_array_may_change() -> None:
    table = np.arange(8.0)
    f = cpu(lambda x: x * table.sum(axis=-1) if table.ndim == 1 else x * table.sum(axis=-1)[0])
    assert_same(f(X), X * 28)
    table.shape = (2, 4)
    assert_same(f(X), X * 6)


# what is refused

RESULTS: list[Any] = []
COUNT = 0


def _rebinds(x: Any) -> Any:
    global COUNT
    COUNT = COUNT + 1
    return x


def _deletes(x: Any) -> Any:
    global SCALE
    del SCALE
    return x


def test_writes_to_the_outside_are_refused() -> None:
    total = 0.0

    def outer(x: Any) -> Any:
        nonlocal total
        total += 1.0
        return x

    def nested(x: Any) -> Any:
        y = x * 2
        return _rebinds(y)

    def elsewhere(x: Any) -> Any:
        world_helpers.rebind()
        return x

    refusals: list[tuple[Any, Any, int, tuple[str, ...]]] = [
        (_rebinds, _rebinds, 2, ("global 'COUNT'", "return the value")),
        (_deletes, _deletes, 2, ("global 'SCALE'", "return the value")),
        (nested, _rebinds, 2, ("global 'COUNT'", "return the value")),
        (outer, outer, 2, ("'total'", "return the value")),
    ]
    changes: list[tuple[Any, tuple[str, ...]]] = [
        (lambda x: RESULTS.append(x), ("the list RESULTS", "return the value")),
        (lambda x: SETTINGS.update(a=x), ("the dict SETTINGS", "return the value")),
        (lambda x: SETTINGS["names"].sort(), ("the list SETTINGS", "change a copy")),
        (lambda x: setattr(GRID, "spacing", 1.0), ("the attribute 'spacing' of an object of Grid",)),
        (lambda x: delattr(GRID, "spacing"), ("the attribute 'spacing' of an object of Grid",)),
        (lambda x: setattr(world_helpers, "WIDTH", 1.0), ("world_helpers.WIDTH",)),
        (lambda x: setattr(np, "pi", 3), ("numpy.pi",)),
        (lambda x: OFFSETS.__setitem__(0, 1), ("no argument", "pass it as an argument")),
        (lambda x: np.random.rand(3), ("np.random.rand", "pass the random numbers as an argument")),
        (lambda x: np.random.default_rng(0).normal(size=3), ("np.random", "as an argument")),
        (lambda x: RNG.normal(size=3), ("RNG.normal", "as an argument")),
        (lambda x: DRAW(3), ("DRAW", "as an argument")),
        (lambda x: x + default_rng().normal(), ("default_rng", "as an argument")),
    ]
    refusals += [(f, f, 0, words) for f, words in changes]
    for function, where, line, words in refusals:
        decorated = cpu(function)
        for _ in range(2):
            refused(lambda f=decorated: f(X), kg.UserError, *words, line=line_in(where, line))  # type: ignore[misc]
    with pytest.raises(kg.TraceError, match=r"world_helpers.py:\d+: .*global 'WIDTH'"):
        cpu(elsewhere)(X)
    assert COUNT == 0 and total == 0.0 and not RESULTS and world_helpers.WIDTH == 3 and GRID.spacing == 0.5
    assert cpu(lambda x: [*RESULTS, x, *list(RESULTS), *sorted(SETTINGS)])(X)[1:] == ["names", "power", "table"]


RNG = np.random.default_rng(0)
DRAW = RNG.normal


def test_changed_arguments_are_refused() -> None:
    def function(table: Any, grid: Any) -> Any:
        table["x"] = table["x"] + 1
        return table

    def other(table: Any, grid: Any) -> Any:
        grid.spacing = 2.0
        return table

    refused(lambda: cpu(function)({"x": X}, GRID), kg.TraceError, "the dict", "change a copy", line=line_in(function))
    refused(lambda: cpu(other)({"x": X}, GRID), kg.TraceError, "'spacing'", line=line_in(other))
    copied = cpu(lambda table, grid: {**table, "x": table["x"] + grid.spacing})
    assert_same(copied({"x": X, "y": 2}, GRID), {"x": X + 0.5, "y": 2})


# the rest


def test_isinstance_sees_arrays_and_scalars() -> None:
    def function(x: Any) -> Any:
        assert isinstance(x, np.ndarray) and isinstance(np.zeros(3), np.ndarray) and not np.isscalar(x)
        assert isinstance(x[0], np.float64) and isinstance(x[0], float) and np.isscalar(x.sum())
        assert isinstance(np.sin, np.ufunc) and np.sin == np.sin and {np.sin: 1}[np.sin] == 1
        assert np.shape([x, x]) == (2, 8) and np.ndim(x) == 1 and np.size(x) == 8 and np.size([x, x], 0) == 2
        return np.sin(x)

    agree(function, X)


def test_a_class_made_inside() -> None:
    def function(x: Any) -> Any:
        class Local:
            size = x.size

            def __init__(self, start: Any) -> None:
                self.value = start

            def grown(self) -> Any:
                return np.ones(self.size) * self.value

        class Derived(Local):
            def grown(self) -> Any:
                return super().grown() + 1

        @dataclass
        class Wider(Grid):
            more: Any = 2.0

            def gradient(self, y: Any) -> Any:
                return super().gradient(y) * self.more

        wider = Wider(8)
        assert isinstance(wider, Grid) and isinstance(wider, Wider) and not isinstance(x, Wider)
        return Derived(x).grown(), wider.gradient(x)

    agree(function, X)


def test_ordered_dicts_and_default_arguments() -> None:
    table = OrderedDict(b=X, a=2.0)
    agree(lambda x, w=OFFSETS: [x * v + w for v in table.values()], X)


def test_a_python_without_such_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelgraph.dsl import capture

    assert isinstance(smoothed, FunctionType)
    monkeypatch.setattr(capture, "works", lambda: False)
    weights = [1.0, 2.0]
    f = cpu(lambda x: x * SCALE + weights[0])
    assert_same(f(X), X * 2 + 1)
    weights[0] = 5.0
    assert_same(f(X), X * 2 + 5)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert_same(f(X), X * 3 + 5)
    assert f.why().count("traced again") == 2
