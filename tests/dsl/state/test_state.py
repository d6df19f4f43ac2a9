"""What a call writes to objects, dicts and lists that its arguments hold: when, where, and at what cost."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import types
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.core.test_errors import refused


class Body:
    def __init__(self) -> None:
        self.x, self.v = np.arange(3.0), np.ones(3)
        self.steps, self.time = 0, 0.0
        self.weights = {"w": np.ones(2), "b": np.zeros(2)}

    @kg.kernel_graph(device="cpu")
    def step(self, dt: float) -> Any:
        self.x = self.x + self.v * dt
        self.steps += 1
        self.time += dt
        self.weights["w"] -= 0.5 * self.weights["w"]
        return self.x.sum()


def traces(f: Any) -> int:
    return str(f.why()).count("traced for")


def test_a_method_steps_its_object() -> None:
    body, before = Body(), traces(Body.step)
    x, w = body.x, body.weights["w"]
    for n in range(1, 6):
        assert float(body.step(0.5)) == 3 + 1.5 * n
        assert body.x.tolist() == [0.5 * n, 1 + 0.5 * n, 2 + 0.5 * n]
        assert (body.steps, body.time) == (n, 0.5 * n) and type(body.steps) is int and type(body.time) is float
    assert x.tolist() == [0, 1, 2] and body.weights["w"] is w and w.tolist() == [0.5**5] * 2
    assert traces(Body.step) - before <= 1  # whatever the numbers, and whether an array is NumPy's or ours


def test_the_fast_way_reads_and_writes_the_holders() -> None:
    body = Body()
    for _ in range(4):
        body.step(0.5)
    fast = Body.step._fast
    assert fast.__code__.co_filename == "<kernelgraph entry>"
    result = fast((body, 0.5))
    assert float(result) == 3 + 1.5 * 5 and body.steps == 5
    body.weights = dict(reversed(body.weights.items()))  # another order of names is another structure
    assert fast((body, 0.5)) is not result and body.steps == 5
    body.step(0.5)
    assert body.steps == 6


def test_two_names_of_one_array_or_holder() -> None:
    @kg.kernel_graph(device="cpu")
    def f(a: Any, b: Any) -> Any:
        a["x"] += 1
        b["x"] = b["x"] * 2
        return a["x"]

    x = np.ones(3)
    one, other = {"x": x}, {"x": x}
    assert f(one, other).tolist() == [2, 2, 2]
    assert one["x"] is x and x.tolist() == [2, 2, 2] and other["x"].tolist() == [4, 4, 4]
    same = {"x": np.ones(3)}
    assert f(same, same).tolist() == [4, 4, 4] and same["x"].tolist() == [4, 4, 4]
    assert f({"x": np.ones(3)}, {"x": np.ones(3)}).tolist() == [2, 2, 2]


def test_what_is_stored_is_what_was_given() -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any, x: Any) -> Any:
        state.before, state.x = state.x, x
        state.made = state.again = x + 1
        state.own = state
        return state

    state, x, y = types.SimpleNamespace(x=np.zeros(2)), np.ones(2), np.ones(2)
    old = state.x
    assert f(state, x) is state and state.before is old and state.x is x and state.own is state
    assert state.made is state.again
    assert f(state, y) is state and state.before is x and state.x is y


# what is done with arrays of which a value decides whether they stay: `c` is that value
CHOSEN_ARRAYS = (
    "s.l = [s.x, s.y]\nif c:\n    s.x = x + 1",
    "if c:\n    s.x = x + 1\ns.l = [s.x, s.y]",
    "s.l[0] = s.x\nif c:\n    s.x = x + 1\nreturn s.x",
    "if c:\n    s.x, s.y = s.y, s.x\ns.d['k'] = s.x",
    "v = x * 2\ns.y = s.x = v\nif c:\n    s.x = x + 1",
    "v = x * 2\ns.y = v\nif c:\n    v = x + 1\ns.x = v\nv += 1",
    "s.d = {'a': s.x}\nif c:\n    s.x = s.d['a'] = x + 1",
    "s.x = x + 1 if c else s.x\ns.q = s.x\nreturn s.l",
    "for i in range(2):\n    s.l[0] = s.x\n    if c:\n        s.x = s.x + 1",
    "if c:\n    if x[0] > 0:\n        s.x = s.y\n    else:\n        s.x = x * 3\ns.l.append(s.x)",
    "s.x = s.l[0] if c else s.y\ns.x += 1\ns.y = x",
    "s.l[:] = [s.y, s.x] if c else [s.x, s.x]",
    "v = s.x\nwhile v.sum() + x.sum() < 4:\n    v = v + 1\ns.y = v",
    "v = s.x\nwhile v.sum() + x.sum() < 4:\n    v = v + 1\nv += 1\ns.y = v",
    "v = w = s.x\nwhile v.sum() + x.sum() < 4:\n    v, w = v + 1, w / 2\ns.y, s.x, s.q = v, w, v",
    "v = s.x\nfor i in range(20):\n    if c:\n        break\n    v = v * 0.5 + i\ns.y = v",
    "v = s.x\nwhile v.sum() + x.sum() < 4:\n    v = v + 1\nwhile v[0] < 9:\n    v = v + 2\ns.y = v",
)


def _state_with_names() -> tuple[Any, Any]:
    state = types.SimpleNamespace(x=np.array([1.0, -2.0]), y=np.array([3.0, 4.0]), l=[np.ones(2), np.zeros(2)], d={})
    return state, [state.x, state.y, *state.l]


def _which_are_one(state: Any, names: list[Any], arrays: list[Any]) -> list[Any]:
    held = [*names, *arrays, state.x, state.y, *state.l, *state.d.values(), *([state.q] if hasattr(state, "q") else [])]
    return [(next(i for i, x in enumerate(held) if x is each), np.asarray(each).tolist()) for each in held]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize("text", CHOSEN_ARRAYS)
def test_an_array_that_stays_where_a_value_decides_is_itself(text: str, tmp_path: Any) -> None:
    """Whatever else holds it: arguments, what the call puts there, the caller."""
    path = tmp_path / "chosen.py"
    body = "".join(f"    {line}\n" for line in text.split("\n"))
    path.write_text(f"def f(s, x):\n    c = x.sum() > 0\n{body}")
    scope: dict[str, Any] = {"__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    traced = kg.kernel_graph(scope["f"], device="cpu")
    for signs in itertools.product((1, -1), repeat=3):
        found = []
        for f in (traced, scope["f"]):
            (state, names), arrays = _state_with_names(), [sign * np.array([1.0, 2.0]) for sign in signs]
            for x in arrays:
                f(state, x)
            names[0][0] = 7.0
            found.append(_which_are_one(state, names, arrays))
        assert found[0] == found[1]


def test_scalars_stay_scalars() -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any, x: Any) -> Any:
        state["last"] = state["loss"]
        state["loss"] += x.sum()
        return state["loss"]

    state: Any = {"loss": 0.0, "last": None}
    for n in range(1, 4):
        assert float(f(state, np.ones(2))) == 2 * n
        assert float(state["loss"]) == 2 * n and float(state["last"]) == 2 * n - 2


def test_containers_grow_and_shrink() -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any, x: Any) -> Any:
        state["list"].append(x + 1)
        state["list"].pop(0)
        del state["gone"]
        state["new"] = {"x": x, "pair": (x, 2)}
        state["first"] = state.pop("first")  # which comes last now
        return x

    x, first = np.ones(2), np.zeros(2)
    items = [np.zeros(2), np.ones(2)]
    kept = items[1]
    state = {"first": first, "list": items, "gone": 1}
    f(state, x)
    assert [*state] == ["list", "new", "first"] and state["first"] is first and state["list"] is items
    assert items[0] is kept and items[1].tolist() == [2, 2] and len(items) == 2
    assert state["new"]["x"] is x and state["new"]["pair"][0] is x  # type: ignore[index,call-overload]


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any


class Ruled:
    __slots__ = ("_x", "writes")

    def __init__(self, x: Any) -> None:
        self._x, self.writes = x, 0

    @property
    def x(self) -> Any:
        return self._x

    @x.setter
    def x(self, value: Any) -> None:
        self._x = value * SCALE
        self.writes += 1


SCALE = 2.0


def test_classes_have_their_say(monkeypatch: pytest.MonkeyPatch) -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any) -> Any:
        state.x = state.x + 1
        return state.x

    with pytest.raises(dataclasses.FrozenInstanceError):
        f(Frozen(np.ones(2)))
    state = Ruled(np.ones(2))
    assert f(state).tolist() == [4, 4] and state.x.tolist() == [4, 4] and state.writes == 1
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert f(state).tolist() == [15, 15] and state.writes == 2


def test_a_call_that_raises_has_written_what_came_before() -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any, last: bool) -> Any:
        state["x"] = state["x"] + 1
        if last:
            raise KeyError("over")
        state["n"] += 1

    state = {"x": np.ones(2), "n": 0}
    f(state, False)
    with pytest.raises(KeyError, match="over"):
        f(state, True)
    assert state["x"].tolist() == [3, 3] and state["n"] == 1  # type: ignore[attr-defined]


def test_decisions_and_loops() -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any) -> Any:
        if state.x.sum() > 5:
            state.x = state.x / 2
            state.halved += 1
        while state.x.max() < 4:
            state.x = state.x * 3
            state.tripled += 1

    def run(function: Any) -> list[Any]:
        state = types.SimpleNamespace(x=np.array([1.0, 5.0]), halved=0, tripled=0)
        seen = []
        for _ in range(5):
            function(state)
            seen.append((state.x.tolist(), int(state.halved), int(state.tripled)))
        return seen

    assert run(f) == run(f.__wrapped__)


@pytest.mark.usefixtures("refusing")
def test_what_cannot_be_kept_is_refused_where_it_is_assigned() -> None:
    def view(state: Any, x: Any) -> Any:
        state.part = x[1:]

    def either(state: Any, x: Any) -> Any:
        v = state.x if x.sum() > 0 else state.y
        state.x = v[1:]

    def later(state: Any, x: Any) -> Any:
        state.rows = (row + 1 for row in x)

    for function, line in ((view, 1), (either, 2), (later, 1)):
        state = types.SimpleNamespace(x=np.ones(2), y=np.ones(2))
        f = kg.kernel_graph(function, device="cpu")
        at = function.__code__.co_firstlineno + line
        refused(lambda: f(state, np.ones(2)), kg.TraceError, "SimpleNamespace.", line=at)  # noqa: B023
        assert vars(state).keys() == {"x", "y"}


@pytest.mark.usefixtures("refusing")
def test_what_is_no_argument_is_refused() -> None:
    outside = Body()

    @kg.kernel_graph(device="cpu")
    def f(state: Any) -> Any:
        state.x = state.x + 1
        outside.x = state.x

    state = types.SimpleNamespace(x=np.ones(2))
    with pytest.raises(kg.TraceError, match="'x' of an object of Body"):
        f(state)
    assert state.x.tolist() == [1, 1] and outside.x.tolist() == [0, 1, 2]


def test_default_and_named_arguments() -> None:
    @kg.kernel_graph(device="cpu")
    def f(x: Any, seen: Any = {"n": 0}) -> Any:  # noqa: B006
        seen["n"] += 1
        return x * seen["n"]

    assert [float(f(np.ones(1))[0]) for _ in range(3)] == [1, 2, 3]
    own = {"n": 5}
    assert float(f(np.ones(1), seen=own)[0]) == 6 and own == {"n": 6}


def test_looking_writes_nothing() -> None:
    body = Body()
    assert "add" in str(Body.step.graph(body, 0.5)) and Body.step.compile(body, 0.5) is not None
    assert body.steps == 0 and body.x.tolist() == [0, 1, 2]


def test_a_function_in_parts() -> None:
    @kg.kernel_graph(device="cpu", untraceable="split")
    def f(state: Any, x: Any) -> Any:
        state["x"] = state["x"] + x
        count = int((state["x"] > 1).sum())
        state["n"] += count
        return state["x"][:count]

    state: Any = {"x": np.zeros(3), "n": 0}
    for n, length in ((1, 1), (2, 2), (3, 3)):
        assert f(state, np.array([0.5, 0.75, 1.5])).shape == (length,)
        assert state["x"].tolist() == [0.5 * n, 0.75 * n, 1.5 * n]
    assert state["n"] == 6


def test_a_report_writes_nothing() -> None:
    def f(state: Any, x: Any) -> Any:
        state["x"] = state["x"] + x
        return x

    state: Any = {"x": np.zeros(3)}
    report = kg.kernel_graph(f, device="cpu").report(state, np.ones(3))
    assert report is not None and state["x"].tolist() == [0, 0, 0]


class Pair(NamedTuple):
    a: Any
    b: Any = 2


def test_a_named_tuple_whose_class_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    @kg.kernel_graph(device="cpu")
    def f(state: Any, x: Any) -> Any:
        state["n"] += 1
        return x * state["pair"].a

    state: Any = {"n": 0, "pair": Pair(np.full(2, 3.0))}
    assert f(state, np.ones(2)).tolist() == [3, 3]
    monkeypatch.setattr(Pair, "a", property(lambda self: 8.5))
    assert f(state, np.ones(2)).tolist() == [8.5, 8.5] and state["n"] == 2


def test_what_is_not_compiled_writes_to_the_users_own() -> None:
    def adding(held: dict[str, Any], seen: list[int]) -> Any:
        held["w"] = held["w"] * 2
        seen.append(1)
        return held["w"]

    f = kg.kernel_graph(adding, device="cpu")
    held, seen = {"w": np.ones(2)}, [0]
    with kg.override(disable=True):
        assert np.asarray(f(held, seen)).tolist() == [2, 2]
        assert np.asarray(f({"w": kg.asarray(np.ones(2))}, seen)).tolist() == [2, 2]
    assert held["w"].tolist() == [2, 2] and seen == [0, 1, 1]


class Holder:
    held: Any = None


LIST, DICT, SET, BYTES, NESTED, OBJECT = [1.0], {"a": 1}, {1}, bytearray(b"a"), ([1],), Holder()


@pytest.mark.parametrize("name", ["LIST", "DICT", "SET", "BYTES", "NESTED", "OBJECT"])
def test_what_was_there_before_is_stored_itself(name: str) -> None:
    names = {name: globals()[name], "__name__": __name__}
    exec(compile(f"def store(holder, x):\n    holder.held = {name}\n    return x + 1", __file__, "exec"), names)
    store, holder = kg.kernel_graph(names["store"], device="cpu"), Holder()
    for _ in range(3):
        store(holder, np.ones(2))
        assert holder.held is names[name]
        names[name] = copy.deepcopy(names[name])  # an equal one is another


def test_a_set_of_an_argument_is_stored_itself() -> None:
    def store(holder: Any, x: Any) -> Any:
        holder.held = holder.found
        return x + 1

    traced = kg.kernel_graph(store, device="cpu")
    for _ in range(3):
        holder = Holder()
        holder.found = {1}  # type: ignore[attr-defined]
        traced(holder, np.ones(2))
        assert holder.held is holder.found  # type: ignore[attr-defined]


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(
    "change", [lambda r: dict.__setitem__(r, "j", 3), lambda r: dict.pop(r, "k"), lambda r: dict.clear(r)]
)
def test_an_ordered_dict_is_not_changed_past_its_class(change: Any) -> None:
    def f(x: Any, r: Any) -> Any:
        change(r)
        return x * 2

    given = OrderedDict(k=2.0)
    with pytest.raises(kg.TraceError, match=r"test_\w+.py:\d+: an OrderedDict was changed past its class"):
        kg.kernel_graph(f, device="cpu")(np.ones(2), given)
    assert [*given.items()] == [("k", 2.0)] and len(given) == 1


def test_an_array_that_stays_on_a_gpu_is_itself(gpu: Any) -> None:
    """Which one it is comes with the call's work."""

    @kg.kernel_graph(device="cuda")
    def accepted(state: Any, x: Any) -> Any:
        if x.sum() > state.x.sum():
            state.before, state.x = state.x, x
        return state.x * 1

    zeros = kg.asarray(np.zeros(2), device="cuda")
    state, kept = types.SimpleNamespace(x=zeros, before=zeros), list[float]()
    for value in (-1.0, 2.0, 1.0, 3.0):
        x, held = kg.asarray(np.full(2, value), device="cuda"), state.x
        assert accepted(state, x).numpy().tolist() == [max(value, *kept, 0.0)] * 2
        assert state.x is (x if value in (2.0, 3.0) else held)
        kept.append(value)
