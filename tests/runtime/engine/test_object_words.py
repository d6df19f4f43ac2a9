"""Words of objects: there while an aspect of the object is what it was, and only then."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest

from kernelgraph.runtime.codegen.word_language import read_memory_word
from kernelgraph.runtime.engine.direct_call import ASPECTS, direct_call_self_test, watched_words_of_object_aspect

pytestmark = pytest.mark.skipif(not direct_call_self_test(), reason="objects lie otherwise")


def helper() -> int:
    return 1


def other() -> int:
    return 2


def function() -> Any:
    def made() -> int:
        return 1

    return made


class First:
    pass


class Second:
    pass


def _code(f: Any) -> CodeType:
    return f.__code__  # type: ignore[no-any-return]


def new_class() -> Any:
    return type("New", (First,), {"a": 1})


CHANGES: list[tuple[str, Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("code", function, _code, lambda f: setattr(f, "__code__", other.__code__)),
    ("defaults", function, lambda f: None, lambda f: setattr(f, "__defaults__", (1,))),
    ("keyword defaults", function, lambda f: None, lambda f: setattr(f, "__kwdefaults__", {"n": 1})),
    ("bare", function, lambda f: None, lambda f: setattr(f, "a", 1)),
    ("bare", function, lambda f: None, lambda f: f.__dict__.update(a=1)),
    ("bare", function, lambda f: None, lambda f: setattr(f, "__dict__", {"a": 1})),
    ("type", First, type, lambda x: setattr(x, "__class__", Second)),
    ("classes", new_class, lambda c: c.__mro__, lambda c: setattr(c, "__bases__", (Second,))),
    ("size", lambda: {"a": 1}, len, lambda d: d.update(b=2)),
    ("size", lambda: {"a": 1}, len, lambda d: d.clear()),
    ("size", lambda: vars(helper), len, lambda d: d.update(more=2)),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_change_is_seen(number: int) -> None:
    aspect, make, value_of, change = CHANGES[number]
    made = make()
    value = value_of(made)
    words = watched_words_of_object_aspect(aspect, made, value)
    assert words and all(read_memory_word(at) == word for at, word in words)
    change(made)
    assert not all(read_memory_word(at) == word for at, word in words)
    assert watched_words_of_object_aspect(aspect, made, value) is None


@pytest.mark.parametrize("change", [lambda c: setattr(c, "b", 2), lambda c: delattr(c, "a")])
def test_a_class_that_grows_or_shrinks_is_seen(change: Callable[[Any], None]) -> None:
    made = new_class()
    words = watched_words_of_object_aspect("size", vars(made), len(vars(made)))
    assert words and all(read_memory_word(at) == word for at, word in words)
    made.a = 5
    assert all(read_memory_word(at) == word for at, word in words)
    change(made)
    assert not all(read_memory_word(at) == word for at, word in words)


@pytest.mark.parametrize("change", [
    lambda x: x.append(1), lambda x: x.pop(), lambda x: x.__setitem__(0, 2.5), lambda x: x.clear(),
    lambda x: x[1].append(1), lambda x: x[1].__setitem__(0, 3), lambda x: x[1].__setitem__(slice(None), [7, 8]),
    lambda x: x.__setitem__(1, [2, "a"]), lambda x: x.reverse(), lambda x: x.extend(range(1000)),
])  # fmt: skip
def test_a_change_of_a_list_is_seen(change: Callable[[Any], None]) -> None:
    made: list[Any] = [1.5, [2, "a"], None]
    kept = [*made, *made[1]]  # as a guard does: another object might be at the address of one that is gone
    words = watched_words_of_object_aspect("item", {"made": made}, made)
    assert words and all(read_memory_word(at) == word for at, word in words) and kept
    change(made)
    assert not all(read_memory_word(at) == word for at, word in words)


def _with_holes(made: dict[Any, Any], *keys: Any) -> dict[Any, Any]:
    for key in keys:
        del made[key]
    return made


DICTS: dict[str, Callable[[], dict[Any, Any]]] = {
    "text": lambda: {"a": 1.5, "b": {"c": 2.5}, "z": None},
    "any keys": lambda: {"a": 1.5, 2: "b", "b": {None: 2.5}, "z": 0.0},
    "holes": lambda: _with_holes({"c": 1, "a": 1.5, "d": 2, "b": {"c": 2.5}, "z": 7}, "c", "d"),
    "holes of any keys": lambda: _with_holes({0: 1, "a": 1.5, 1: 2, "b": {"c": 2.5}, "z": 7}, 0, 1),
    "many": lambda: {"a": 1.5, "b": {"c": 2.5}, **{f"k{i}": float(i) for i in range(3000)}, "z": 1.5},
    "many of any keys": lambda: {"a": 1.5, "b": {"c": 2.5}, **dict.fromkeys(range(700)), "z": 1.5},  # type: ignore[dict-item]
    "within a list": lambda: {"a": 1.5, "b": {"c": [{"d": 1.5}]}, "z": 1.5},
}


@pytest.mark.parametrize("change", [
    lambda x: x.update(a=2.5), lambda x: x.pop("z"), lambda x: x.update(new=1), lambda x: x.clear(),
    lambda x: x.__setitem__("z", x.pop("z")), lambda x: x.update(new=x.pop("a")), lambda x: x["b"].update(c=3),
    lambda x: x["b"].clear(), lambda x: x["b"].update(new=3), lambda x: x.update(b={"c": 2.5}),
    lambda x: x.update(dict.fromkeys(range(5000))), lambda x: (x.popitem(), x.update(zz=1.5)),
])  # fmt: skip
@pytest.mark.parametrize("name", DICTS)
def test_a_change_of_a_dict_is_seen(name: str, change: Callable[[Any], None]) -> None:
    made = DICTS[name]()
    kept = [*made, *made.values(), *made["b"].values()]  # as a guard does
    words = watched_words_of_object_aspect("item", {"made": made}, made)
    assert words and all(read_memory_word(at) == word for at, word in words) and kept
    change(made)
    assert not all(read_memory_word(at) == word for at, word in words)


def test_a_change_of_attributes_is_seen_where_dicts_share_a_table() -> None:
    made, same = First(), First()
    for x in (made, same):
        x.a, x.b = 1.5, 2.5  # type: ignore[attr-defined]
    words = watched_words_of_object_aspect("item", made, vars(made))
    made.a = 3.5  # type: ignore[attr-defined]
    assert words is None or not all(read_memory_word(at) == word for at, word in words)


def test_what_answers_itself_has_no_words() -> None:
    class Liar:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            return First

    class Meta(type):
        __mro__ = (First,)  # type: ignore[assignment]

    assert watched_words_of_object_aspect("type", Liar(), Liar) is None
    assert watched_words_of_object_aspect("classes", Meta("Made", (), {}), (First,)) is None
    assert watched_words_of_object_aspect("size", [1, 2], 2) is None
    assert watched_words_of_object_aspect("code", First(), None) is None
    assert watched_words_of_object_aspect("code", helper, other.__code__) is None
    assert watched_words_of_object_aspect("defaults", helper, (1,)) is None
    assert watched_words_of_object_aspect("keyword defaults", helper, {}) is None
    assert set(ASPECTS) == {"item", *(change[0] for change in CHANGES)}
