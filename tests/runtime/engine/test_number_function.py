"""Straight-line arithmetic on numbers, done natively: what Python says, or nothing is done."""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.runtime.engine.engine import native_engine_functions
from kernelgraph.runtime.engine.number_function import LONGEST, make_native_number_function

pytestmark = pytest.mark.skipif(native_engine_functions() is None, reason="the engine cannot be built here")

DECLINED = object()
CONSTANTS: dict[str, Any] = {"k0": 2, "k1": -0.5, "k2": 0.0, "k3": 1 << 60, "k4": True, "abs": operator.abs}
NUMBERS = {
    int: st.one_of(st.integers(-9, 9), st.integers(-(1 << 70), 1 << 70)),
    float: st.floats(),
}
SIGNS = ["+", "-", "*", "/", "//", "%", "**", "<<", ">>", "&", "|", "^", "<", "<=", "==", "!=", ">", ">="]


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[type], list[str], str]:
    """The types of the leaves, statements, and the result."""
    kinds = draw(st.lists(st.sampled_from([int, float, float]), min_size=1, max_size=3))
    names = [f"x{i}" for i in range(len(kinds))] + [k for k in CONSTANTS if k != "abs"]
    statements = []
    for i in range(draw(st.integers(0, 6))):
        a, b, sign = draw(st.sampled_from(names)), draw(st.sampled_from(names)), draw(st.sampled_from(SIGNS))
        forms = [f"{a} {sign} {b}", f"{a} {sign} {b}", f"- {a}", f"+ {a}", f"~ {a}", f"abs({a})"]
        statements.append(f"t{i} = {draw(st.sampled_from(forms))}")
        names.append(f"t{i}")
    items = draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
    inside = ", ".join(items)
    return kinds, statements, draw(st.sampled_from([items[0], f"({inside}, )", f"[{inside}]", "()"]))


def made(kinds: Sequence[type], statements: Sequence[str], result: str, **options: Any) -> Callable[..., Any]:
    leaves = {f"x{i}": ("type", kind) for i, kind in enumerate(kinds)}
    given = {"watched": (), "items": (), **options}
    found = make_native_number_function(statements, result, leaves, CONSTANTS, declined=DECLINED, **given)
    assert found is not None
    return found


def exact(x: Any) -> Any:
    """What tells numbers apart, NaNs and zeros too."""
    return [exact(part) for part in x] if isinstance(x, tuple | list) else (type(x), repr(x))


def is_small(leaves: Sequence[Any], statements: Sequence[str]) -> bool:
    """Whether no power or shift grows beyond all measure."""
    return not any(sign in text for text in statements for sign in ("**", "<<")) or all(
        type(x) is not int or abs(x) < 10 for x in leaves
    )


@given(programs(), st.data())
def test_it_means_what_python_means(program: tuple[list[type], list[str], str], data: st.DataObject) -> None:
    kinds, statements, result = program
    if any(sign in text for text in statements for sign in ("**", "<<")):
        statements = [text.replace("k3", "k0") for text in statements[:3]]
        result = result if not any(f"t{i}" in result for i in range(3, 6)) else "x0"
    function = made(kinds, statements, result)
    for _ in range(3):
        leaves = tuple(data.draw(NUMBERS[kind]) for kind in kinds)
        if not is_small(leaves, statements):
            continue
        scope = {**CONSTANTS, **{f"x{i}": leaf for i, leaf in enumerate(leaves)}}
        try:
            exec("\n".join(statements), scope)
            expected = eval(result, scope)
        except Exception:
            assert function(leaves) is DECLINED
            continue
        found = function(leaves)
        assert exact(found) == exact(expected) and type(found) is type(expected)


def test_other_leaves_are_declined() -> None:
    function = made([float, int], ["t0 = x0 * x1"], "t0")
    assert function((1.5, 2)) == 3.0
    numbers = type("Number", (float,), {})
    for wrong in ((), (1.5,), (1.5, 2, 3), (1.5, True), (1, 2), (float, int), (numbers(1), 2), [1.5, 2], None, "ab"):
        assert function(wrong) is DECLINED


def test_items_and_single_values_are_looked_at() -> None:
    there, scope = object(), {}
    scope["name"] = there
    leaves = {"x0": ("itself", None), "x1": ("type", float)}
    items = [(scope, "name", there), (scope, "other", DECLINED)]
    function = make_native_number_function(["t0 = x1 + x1"], "(t0, x0)", leaves, {}, (), items, DECLINED)
    assert function is not None
    assert function((None, 1.0)) == (2.0, None)
    assert function((0, 1.0)) is DECLINED
    scope["other"] = 1
    assert function((None, 1.0)) is DECLINED
    del scope["other"]
    scope["name"] = object()
    assert function((None, 1.0)) is DECLINED
    scope.clear()
    assert function((None, 1.0)) is DECLINED


def test_a_key_that_cannot_be_compared_is_declined() -> None:
    class Key(str):
        def __eq__(self, other: object) -> bool:
            raise ValueError

        def __hash__(self) -> int:
            return hash("name")

    scope: dict[str, Any] = {}
    function = make_native_number_function(
        [], "x0", {"x0": ("type", float)}, {}, (), [(scope, "name", DECLINED)], DECLINED
    )
    assert function is not None
    scope[Key("other")] = 1
    assert function((1.5,)) is DECLINED


@pytest.mark.parametrize("statement", ["t0 = f(x0)", "t0 = x0.real", "t0 = x0 if x0 else 1", "if x0: t0 = 1"])
def test_what_is_no_arithmetic_stays_pythons(statement: str) -> None:
    leaves = {"x0": ("type", float)}
    assert make_native_number_function([statement], "x0", leaves, CONSTANTS, (), (), DECLINED) is None
    assert make_native_number_function(["t = x0 + x0"] * LONGEST, "t", leaves, CONSTANTS, (), (), DECLINED) is None


def test_an_error_that_is_no_exception_comes_out() -> None:
    """Python's arithmetic on whole numbers looks for signals; what a handler raises is the caller's."""

    class Stop:
        def __getitem__(self, i: int) -> Any:
            raise KeyboardInterrupt if i == 1 else ValueError

    function = make_native_number_function(
        ["t0 = x0 + x0", "t1 = k[x0]"], "[t0, t1]", {"x0": ("type", int)}, {"k": Stop()}, (), (), DECLINED
    )
    assert function is not None
    assert function((0,)) is DECLINED
    with pytest.raises(KeyboardInterrupt):
        function((1,))


@pytest.mark.skipif(not hasattr(sys, "getrefcount"), reason="counts of references")
def test_no_reference_is_kept_or_lost() -> None:
    function = made([float, int], ["t0 = x0 * x1", "t1 = x1 * k3", "t2 = t1 < x1", "t3 = t0 / x0"], "[t3, t1, x0, t2]")
    failing = made([int, int], ["t0 = x0 * k3", "t1 = x0 // x1"], "(t0, t1)")
    number, whole = float("1.5"), int("123456789123")
    things = [number, whole, DECLINED, CONSTANTS["k3"], function, failing]

    def call_often() -> list[int]:
        for _ in range(200):
            for leaves in ((number, whole), (0.0, whole), (whole, number)):
                function(leaves)
            failing((whole, 0))
        return [sys.getrefcount(thing) for thing in things]

    assert call_often() == call_often()


def test_threads_call_it_at_once() -> None:
    function = made([float, int], ["t0 = x0 * x1", "t1 = x1 * k3"], "(t0, t1)")
    wrong: list[Any] = []

    def call_it(n: int) -> None:
        for i in range(2000):
            found = function((0.5, n + i))
            if found != (0.5 * (n + i), (n + i) << 60):
                wrong.append(found)

    threads = [threading.Thread(target=call_it, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
