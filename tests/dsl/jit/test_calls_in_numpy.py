"""Calls in NumPy beside the function itself: values, types, identities, writes and errors, by why they run there and by
the kinds of argument and result, at each of the first calls. What they cost is counted in Python's calls."""

from __future__ import annotations

import operator
import sys
import traceback
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.array import Array
from kernelgraph.dsl.jit.in_numpy import NumPyLauncher
from kernelgraph.dsl.jit.kernel_graph import begin_calls_natively
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.tune import rivals
from kernelgraph.runtime.tune.rivals import PLAIN, Contest

Pair = namedtuple("Pair", "first second")
HERE = "test_calls_in_numpy.py"
CALLS = 4  # the first, the one after it, and known ones


@dataclass
class Held:
    x: Any
    note: str = "as it was"


class Thing:
    def __init__(self, x: Any) -> None:
        self.x, self.count = x, 0


# how the array that the function works on is passed: what makes the argument of it, and what gets it back
ARGUMENTS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda x: x, lambda a: a),
    "list": (lambda x: [x, 3], lambda a: a[0]),
    "tuple": (lambda x: (1.5, x), lambda a: a[1]),
    "dict": (lambda x: {"x": x}, lambda a: a["x"]),
    "nested": (lambda x: {"of": [(x, None)]}, lambda a: a["of"][0][0]),
    "dataclass": (Held, lambda a: a.x),
    "object": (Thing, lambda a: a.x),
    "object in an object": (lambda x: Thing({"of": [Thing(x)]}), lambda a: a.x["of"][0].x),
}
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "numpy": np.copy,
    "kg": lambda x: kg.array(x, device="cpu"),
    "strided": lambda x: np.repeat(x, 2)[::2],
}
# x: the array; a: the argument that it was passed in
RESULTS: dict[str, Callable[[Any, Any], Any]] = {
    "new": lambda x, a: x * 2 + 1,
    "part": lambda x, a: x[1:],
    "part of new": lambda x, a: (x + 1)[::-1],
    "argument": lambda x, a: x,
    "its container": lambda x, a: a,
    "both": lambda x, a: (x, x * 2, a),
    "twice": lambda x, a: [y := x - 1, y],
    "named": lambda x, a: Pair(x.min(), x + 3),
    "list of numbers": lambda x, a: x.tolist(),
    "containers of numbers": lambda x, a: ({"rows": [x.tolist(), (1, None)]}, [], ()),
    "one list twice": lambda x, a: (y := x.tolist(), [y], {"y": y}),
    "mixed list": lambda x, a: [1, "two", x.sum(), x + 1, None],
    "dict": lambda x, a: {"sum": x.sum(), "parts": [x[:2], (x[2:],)]},
    "number": lambda x, a: len(x),
    "scalar": lambda x, a: x.mean(),
    "none": lambda x, a: None,
    "text": lambda x, a: f"{x.size} values",
    "view of another type": lambda x, a: x.view(np.int64),
    "write": lambda x, a: x.__setitem__(slice(0, 2), 7.0),
    "write and result": lambda x, a: (x.__iadd__(1.0), x.max())[1],
    "made and then changed": lambda x, a: [y := x + 1, operator.isub(y, 3)][0],
    "error": lambda x, a: x[100],
    "error after a write": lambda x, a: (x.fill(3.0), {}["none"]),
}


def written(get: Callable[[Any], Any], result: Callable[[Any, Any], Any], refuses: bool) -> Callable[[Any], Any]:
    if refuses:

        def by_values(a: Any, least: float = 1e9) -> Any:
            x = get(a)
            if len(np.flatnonzero(x > least)):
                return None
            return result(x, a)

        return by_values

    def by_clock(a: Any, least: float = 1e9) -> Any:
        return result(np.sort(get(a)) if least < 0 else get(a), a)

    return by_clock


def outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, Exception | None]:
    try:
        return function(*args), None
    except Exception as error:
        return None, error


def check_same(got: Any, want: Any, met: dict[int, Any]) -> None:
    """met: what of ours stands for NumPy's, by the identity of that: one thing for one."""
    if isinstance(want, (np.ndarray, np.generic)):
        assert type(got) in (Array, np.ndarray)
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_array_equal(np.asarray(got), want)
        assert met.setdefault(id(want), got) is got
        return
    assert type(got) is type(want)
    if isinstance(want, (list, tuple)):
        for a, b in zip(got, want, strict=True):
            check_same(a, b, met)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        check_same(list(got.values()), list(want.values()), met)
    elif isinstance(want, (Held, Thing)):
        check_same({**vars(got)}, {**vars(want)}, met)
    else:
        assert got == want


def check_call(ours: Callable[..., Any], plain: Callable[..., Any], make: Any, array: Any) -> None:
    values = np.array([0.5, -2.0, 4.0, 1.0, 3.0])
    x, y = array(values), values.copy()
    a, b = make(x), make(y)
    got, error = outcome(ours, a)
    want, wanted = outcome(plain, b)
    check_same(got, want, {id(y): x})
    check_same(a, b, {id(y): x})
    assert isinstance(error, type(wanted))
    if error is not None:  # from the user's line, which a refusal of the trace begins with
        assert str(error).endswith(str(wanted))
        places = [entry.filename for entry in traceback.extract_tb(error.__traceback__)]
        assert any(HERE in text for text in (str(error), *places[1:]))
    if want is b and not (type(a) is tuple and array is ARRAYS["kg"]):  # no tuple can hold others for a while
        assert got is a


@pytest.mark.parametrize("passed", ARGUMENTS)
@pytest.mark.parametrize("array", ARRAYS)
def test_calls_that_values_send_to_numpy(passed: str, array: str) -> None:
    make, get = ARGUMENTS[passed]
    for name, result in RESULTS.items():
        if name.startswith("view") and array == "strided":
            continue
        function = written(get, result, True)
        ours = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for _ in range(CALLS):
            check_call(ours, function, make, ARRAYS[array])
        assert ours.why().count("runs in NumPy") == 1, (name, ours.why())


@pytest.fixture
def plain_wins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """All programs take part in a contest, which NumPy wins once each rival has run; the names of the programs."""
    said: list[str] = []

    def decide(self: Contest, compiled: Any, plain: Any, untimed: Any, has_plan: Any) -> Any:
        for run in (compiled, plain, compiled, plain, untimed):
            run()
        said.append(self.name)
        return PLAIN, {"compiled": 2.0, "NumPy": 1.0}

    monkeypatch.setattr(Contest, "decide_winner", decide)
    monkeypatch.setattr(Contest, "stored_winner", lambda self: None)
    opened = rivals.open_contest
    small = lambda program, device, direct, function: opened(program, device, False, function)  # noqa: E731
    monkeypatch.setattr("kernelgraph.dsl.jit.specializations.open_contest", small)
    with override(numpy=True):
        yield said


@pytest.mark.parametrize("passed", ARGUMENTS)
@pytest.mark.parametrize("array", ARRAYS)
def test_calls_that_the_clock_sends_to_numpy(passed: str, array: str, plain_wins: list[str]) -> None:
    """The rivals run with copies: what they do to their arguments is not seen."""
    make, get = ARGUMENTS[passed]
    for name, result in RESULTS.items():
        if name.startswith("view") and array == "strided":
            continue
        function = written(get, result, False)
        ours = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for _ in range(CALLS):
            check_call(ours, function, make, ARRAYS[array])
    assert len(plain_wins) > len(RESULTS) // 2


def test_objects_that_a_method_changes(plain_wins: list[str]) -> None:
    def fit(self: Thing, step: float) -> Any:
        self.x = np.sort(self.x) * step
        self.count += 1
        return self

    ours = kg.kernel_graph(fit, device="cpu")
    a, b = Thing(np.array([3.0, 1.0])), Thing(np.array([3.0, 1.0]))
    for i in range(1, 6):
        assert ours(a, 2.0) is a
        fit(b, 2.0)
        np.testing.assert_array_equal(np.asarray(a.x), b.x)
        assert a.count == i
    assert len(plain_wins) >= 1 and "which is faster" in ours.why()
    assert ours.explain(a, 2.0).endswith("Calls like this run in NumPy, as it is written, which is faster.")


class Closing(Thing):
    gone = 0

    def __del__(self) -> None:
        Closing.gone += 1


@pytest.mark.parametrize("kind", [Thing, Closing])
def test_what_a_class_does_as_its_objects_go_is_not_done_for_copies(kind: type[Thing], plain_wins: list[str]) -> None:
    def counted(thing: Any) -> Any:
        thing.count += 1
        return np.sort(thing.x)

    ours = kg.kernel_graph(counted, device="cpu")
    thing = kind(np.array([2.0, 1.0]))
    for _ in range(3):
        np.testing.assert_array_equal(ours(thing), [1.0, 2.0])
    assert (Closing.gone, thing.count) == (0, 3)
    assert len(plain_wins) == (kind is Thing)


PLACE = kg.kernel_graph(lambda x: x + 1, device="cpu")


def nested(x: Any) -> Any:
    return np.sort(PLACE(x))


def said(x: Any) -> Any:
    print(x.sum())
    return np.sort(x)


@pytest.mark.parametrize("function", [nested, said])
def test_what_never_takes_part(function: Callable[[Any], Any], plain_wins: list[str], capsys: Any) -> None:
    """Functions that call decorated ones, and that do more than to write to arguments."""
    ours = kg.kernel_graph(function, device="cpu")
    for _ in range(3):
        np.testing.assert_array_equal(ours(np.array([2.0, 1.0])), [2.0, 3.0] if function is nested else [1.0, 2.0])
    assert not plain_wins
    assert capsys.readouterr().out.count("3.0") == (3 if function is said else 0)


@pytest.mark.parametrize("option", ["split", "refuse"])
def test_who_asks_for_compiled_code_gets_it(option: Any, plain_wins: list[str]) -> None:
    np.testing.assert_array_equal(kg.kernel_graph(np.sort, device="cpu", untraceable=option)(np.ones(2)), np.ones(2))
    assert not plain_wins


# the costs


def python_calls(function: Callable[..., Any], *args: Any) -> int:
    """How many Python functions run in a call."""
    count = 0

    def note(frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count


def masked(x: Any) -> Any:
    return x[x > 2]


def of_list(xs: Any) -> Any:
    return xs[0][xs[1] > 2]


def of_method(self: Thing, least: float) -> Any:
    return self.x[self.x > least]


def three(x: Any) -> Any:
    y = x[x > 2]
    return y, y + 1, y.sum()


def numbers(x: Any) -> Any:
    return x[x > 2].tolist()


def pairs(x: Any) -> Any:
    return [(v, [v]) for v in x[x > 2].tolist()], {v: v for v in range(len(x))}


X = np.arange(6.0)
COSTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], int]] = {  # Python functions at most, beside its own
    "array": (masked, (X,), 12),
    "kg.Array": (masked, (kg.array(X, device="cpu"),), 21),
    "list": (of_list, ([X, X],), 17),
    "method": (of_method, (Thing(X), 2.0), 17),
    "three results": (three, (X,), 24),
    "list of numbers": (numbers, (np.tile(X, 1000),), 9),
    "containers of numbers": (pairs, (np.tile(X, 1000),), 20),
}


@pytest.mark.parametrize("name", COSTS)
def test_a_known_call_in_numpy_costs_few_calls_of_python(name: str) -> None:
    function, args, most = COSTS[name]
    ours = kg.kernel_graph(function, device="cpu", untraceable="numpy")
    for _ in range(3):
        ours(*args)
    values = [a.numpy() if type(a) is Array else a for a in args]
    assert python_calls(ours, *args) - python_calls(function, *values) <= most


@pytest.mark.parametrize(
    "function", [np.exp, np.add, np.divmod, np.logical_not, np.mean, np.average, np.cumsum, np.dot]
)
def test_a_decorated_function_of_numpy_costs_what_a_lambda_of_it_costs(function: Any) -> None:
    args = [np.arange(1.0, 6.0)] * (2 if function is np.dot else getattr(function, "nin", 1))
    ours, wrapped = kg.kernel_graph(function, device="cpu"), kg.kernel_graph(lambda *xs: function(*xs), device="cpu")
    for _ in range(3):
        ours(*args), wrapped(*args)
    begin_calls_natively()  # as the first call does that needs the engine
    assert python_calls(ours, *args) <= python_calls(wrapped, *args)


def test_arguments_of_decorated_functions_of_numpy_by_place_and_by_name() -> None:
    x = np.arange(12.0).reshape(3, 4)
    ours, plain = kg.kernel_graph(np.mean, device="cpu"), np.mean
    for _ in range(3):
        for args, options in (
            ((x,), {}),
            ((x, 0), {}),
            ((x,), {"axis": 1, "keepdims": True}),
            ((x,), {"where": x > 2}),
            ((x, None, "f4"), {}),
        ):
            found, wanted = ours(*args, **options), plain(*args, **options)  # type: ignore[call-overload]
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_keywords_of_decorated_ufuncs_are_numpys() -> None:
    x, mask = np.array([0.25, 2.0, 9.0]), np.array([True, False, True])
    for ufunc, args in ((np.sqrt, (x,)), (np.add, (x, x)), (np.arctan2, (x, 2.0))):
        ours = kg.kernel_graph(ufunc, device="cpu")
        for _ in range(3):
            np.testing.assert_allclose(ours(*args), ufunc(*args), rtol=1e-15)
            for options in ({"where": mask}, {}):
                into, out = np.zeros(3), np.zeros(3)
                assert ours(*args, out=into, **options) is into
                ufunc(*args, out=out, **options)
                np.testing.assert_allclose(into, out, rtol=1e-15)
            found = ours(*args, dtype=np.float32)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, ufunc(*args, dtype=np.float32), rtol=1e-6)
        with pytest.raises(kg.ArgumentsError, match=f"{ufunc.__name__}: missing a required argument"):
            ours()


def collatz(n: int, most: int = 1000) -> Any:
    steps = 0
    while n != 1 and steps < most:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps, n


def test_functions_of_numbers_are_not_traced_at_each_new_value() -> None:
    ours = kg.kernel_graph(collatz, device="cpu")
    with pytest.warns(UserWarning, match="collatz was traced for more than 8 values of one number"):
        for n in range(1, 60):
            assert ours(n) == collatz(n)
    assert ours(27, 5) == collatz(27, 5) and ours(27, most=6) == collatz(27, 6)
    assert ours.why().count("traced for") < 12 and "runs in Python" in ours.why()
    assert python_calls(ours, 97) - python_calls(collatz, 97) <= 14
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ours(2**70) == collatz(2**70)
    with pytest.raises(TypeError):
        ours("text")


class Odd:
    """What no trace takes."""

    __hash__ = None  # type: ignore[assignment]


def test_arguments_that_can_be_traced_are_after_others_of_their_kind() -> None:
    def first(xs: Any) -> Any:
        return np.sort(xs[0]) * 2 if type(xs[0]) is not Odd else None

    ours = kg.kernel_graph(first, device="cpu", untraceable="numpy")
    for _ in range(5):
        assert ours([{1: Odd()}.get(1)]) is None
    for _ in range(20):
        np.testing.assert_array_equal(ours([np.array([2.0, 1.0])]), [2.0, 4.0])
    assert "traced for" in ours.why()
    assert python_calls(ours, [np.ones(2)]) < 40


# loops that values end


def merge_sort(x: Any) -> Any:
    if len(x) <= 1:
        return x
    left, right = merge_sort(x[: len(x) // 2]), merge_sort(x[len(x) // 2 :])
    merged = np.empty_like(x)
    i = j = 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged[i + j] = left[i]
            i += 1
        else:
            merged[i + j] = right[j]
            j += 1
    while i < len(left):
        merged[i + j] = left[i]
        i += 1
    while j < len(right):
        merged[i + j] = right[j]
        j += 1
    return merged


@pytest.fixture
def whiles_stay_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those over single elements, which would be routines."""
    monkeypatch.setattr("kernelgraph.dsl.trace.trace.KnownLoops.may_capture", lambda *_: False)


@pytest.mark.usefixtures("whiles_stay_loops")
def test_a_recursion_has_only_so_many_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelgraph.dsl.control_flow.loops.MOST_LOOPS", 5)
    ours = kg.kernel_graph(merge_sort, device="cpu")
    x = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    with pytest.warns(UserWarning, match=r"runs in NumPy, .* more than 5 loops that values end"):
        np.testing.assert_array_equal(ours(x), np.sort(x))
    np.testing.assert_array_equal(ours(x), np.sort(x))
    with pytest.raises(kg.UnsupportedError, match="more than 5 loops"):
        ours.graph(x)


@pytest.mark.usefixtures("whiles_stay_loops")
@pytest.mark.parametrize("wins", [True, False])
def test_many_loops_are_not_compiled_where_python_is_faster(wins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def wins_uncompiled(text: str, loops: int, device: Any, run: Callable[[], Any]) -> bool:
        asked.append(loops)
        run()
        return wins

    monkeypatch.setattr("kernelgraph.dsl.jit.specializations.MANY_LOOPS", 3)
    monkeypatch.setattr("kernelgraph.dsl.jit.specializations.wins_uncompiled", wins_uncompiled)
    ours = kg.kernel_graph(merge_sort, device="cpu")
    for x in (np.array([3.0, 1.0, 2.0]), np.array([2.0, 3.0, 1.0])):
        np.testing.assert_array_equal(ours(x), np.sort(x))
    assert asked == [6]
    assert ("compiled" in ours.why().replace("compiled are", "")) is not wins
    assert any(type(entry) is NumPyLauncher for entry in ours._entries.values()) is wins
