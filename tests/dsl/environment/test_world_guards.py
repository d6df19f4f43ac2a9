"""What a traced function read outside is guarded at every call; it never writes there."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

import kernelgraph as kg
from tests.dsl import world_helpers
from tests.dsl.core.test_errors import line_in, refused
from tests.dsl.tracing import assert_same
from tests.dsl.world_helpers import smoothed
from tests.dsl.world_objects import GRID, MODEL, Grid, Model, X, cpu

SCALE = 2.0
OFFSETS = np.arange(8.0)
SETTINGS = {"power": 2, "names": ["a", "b"], "table": np.ones(8)}
FUNCTIONS = {"smooth": smoothed, "double": lambda x: x * 2}


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


def test_defaults_of_helpers_are_seen() -> None:
    def added(x: Any, k: Any = 1, *, table: Any = (2, 3)) -> Any:
        return x + k + table[0]

    def from_list(x: Any, weights: Any = [1.0]) -> Any:  # noqa: B006
        return x * weights[0]

    f = cpu(lambda x: from_list(added(x)))
    for change in (
        lambda: None,
        lambda: setattr(added, "__defaults__", (5,)),
        lambda: setattr(added, "__kwdefaults__", {"table": [7]}),
        lambda: added.__kwdefaults__["table"].insert(0, 8),
        lambda: from_list.__defaults__[0].insert(0, 2.0),
    ):
        change()
        assert_same(f(X), from_list(added(X)))
        assert_same(f(X), from_list(added(X)))
    assert f.why().count("traced for") == 5


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


@pytest.mark.usefixtures("refusing")
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
        decorated = kg.kernel_graph(function, device="cpu", untraceable="refuse")
        for _ in range(2):
            refused(lambda f=decorated: f(X), kg.UserError, *words, line=line_in(where, line))  # type: ignore[misc]
    with pytest.raises(kg.TraceError, match=r"world_helpers.py:\d+: .*global 'WIDTH'"):
        cpu(elsewhere)(X)
    assert COUNT == 0 and total == 0.0 and not RESULTS and world_helpers.WIDTH == 3 and GRID.spacing == 0.5
    assert cpu(lambda x: [*RESULTS, x, *list(RESULTS), *sorted(SETTINGS)])(X)[1:] == ["names", "power", "table"]


WRITES_OF_A_GLOBAL = {
    "a number added": "COUNT += 1",
    "a value put": "COUNT = 5",
    "deleted and put anew": "del COUNT; COUNT = x.size",
    "in a loop": "\n    while COUNT < 4: COUNT += 1",
    "by a function within": "\n    def write():\n        global COUNT\n        COUNT = 3\n    write()",
    "a function": "\n    def COUNT(): return 3\n    COUNT = COUNT()",
    "in a branch": "\n    if x.size > 2: COUNT = 7",
    "by a with": "\n    with contextlib.nullcontext(6) as COUNT: pass",
    "by a for": "\n    for COUNT in range(1, 3): pass",
}


@pytest.mark.filterwarnings("ignore::kernelgraph.FallbackWarning")
@pytest.mark.parametrize("write", [*WRITES_OF_A_GLOBAL])
def test_a_global_that_is_put_back_is_read_as_it_was_written(write: str) -> None:
    text = f"def f(x):\n    global COUNT\n    before = COUNT\n    {WRITES_OF_A_GLOBAL[write]}\n    y = x * COUNT\n"
    scope: dict[str, Any] = {"COUNT": 0, "contextlib": contextlib}
    exec(f"{text}    COUNT = before\n    return y\n", scope)
    f = cpu(scope["f"], untraceable="warn")
    for _ in range(2):
        assert_same(f(X), scope["f"](X))
        assert scope["COUNT"] == 0


RNG = np.random.default_rng(0)
DRAW = RNG.normal


@pytest.mark.usefixtures("refusing")
def test_changed_arguments_that_are_read_by_another_name_are_refused() -> None:
    def other(table: Any, grid: Any) -> Any:
        grid.spacing = 2.0
        return GRID.spacing

    with pytest.raises(kg.ArgumentsError, match="reads by another name"):
        cpu(other)({"x": X}, GRID)
    assert GRID.spacing == 0.5
    copied = cpu(lambda table, grid: {**table, "x": table["x"] + grid.spacing})
    assert_same(copied({"x": X, "y": 2}, GRID), {"x": X + 0.5, "y": 2})


ENVIRONMENT_READERS = (
    lambda x: x * float(os.environ["KG_TEST"]),
    lambda x: x * float(os.environ.get("KG_TEST", "1")),
    lambda x: x * float(os.getenv("KG_TEST", "1")),
    lambda x: x * float(os.getenv("KG_OTHER", default="1")),
    lambda x: x * ("KG_OTHER" in os.environ),
    lambda x: x * float({**os.environ}["KG_TEST"]) + float(os.environ.copy()["KG_TEST"]),
    lambda x: x * len(os.environ),
)


@pytest.mark.parametrize("number", range(len(ENVIRONMENT_READERS)))
def test_environment_variables_are_guarded(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    f, x = ENVIRONMENT_READERS[number], np.arange(3.0)
    traced = kg.kernel_graph(f, device="cpu")
    for name, value in (("KG_TEST", "2"), ("KG_TEST", "3"), ("KG_OTHER", "4")):
        monkeypatch.setenv(name, value)
        np.testing.assert_array_equal(traced(x), f(x))


@pytest.mark.usefixtures("refusing")
def test_a_traced_function_does_not_set_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def assign(x: Any) -> Any:
        os.environ["KG_TEST"] = "5"
        return x

    def update(x: Any) -> Any:
        os.environ.update(KG_TEST="5")
        return x

    monkeypatch.setenv("KG_TEST", "2")
    for f in (assign, update):
        with pytest.raises(kg.TraceError, match=r"test_world_guards.py:\d+: .*environ is an _Environ, which"):
            kg.kernel_graph(f, device="cpu")(np.arange(3.0))
    assert os.environ["KG_TEST"] == "2"
