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
