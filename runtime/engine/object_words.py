"""What must stay as it is about a Python object in; words of its memory that say whether it does, for native code, out.

Where objects keep these things is found by looking for them in a sample and changing it there; what is not found has no
words, and is looked at by Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType, MappingProxyType
from typing import Any

from ..codegen import native_callable
from ..codegen.native_callable import HEAD, TYPE_AT, read_memory_word

Words = Sequence[tuple[int, int]]  # addresses, and what is there


def memory_words_of_object_aspect(aspect: str, holder: Any, value: Any) -> Words | None:
    """Words that are there for as long as an aspect of an object is this value. None: there are no such words.

    aspect: a key of `ASPECTS`. What the addresses point to lives as long as the holder and the value."""
    found = ASPECTS[aspect](holder, value) if native_callable.machine_code_can_read_bytes_objects() else None
    return found if found and all(read_memory_word(address) == word for address, word in found) else None


def _function_code_words(holder: Any, value: Any) -> Words | None:
    at = _function_code_offset() if type(holder) is FunctionType else None
    return None if at is None else [(id(holder) + at, id(value))]


def _function_defaults_words(holder: Any, value: Any) -> Words | None:
    at = _function_defaults_offset() if type(holder) is FunctionType else None
    return None if at is None else [(id(holder) + at, 0 if value is None else id(value))]


def _function_keyword_defaults_words(holder: Any, value: Any) -> Words | None:
    """Where there are none: a dict may change."""
    at = _function_keyword_defaults_offset() if type(holder) is FunctionType and value is None else None
    return None if at is None else [(id(holder) + at, 0)]


def _object_type_words(holder: Any, value: Any) -> Words | None:
    there = _object_attribute_words(holder, "__class__", object) and _object_type_word_is_present()
    return [(id(holder) + TYPE_AT, id(value))] if there else None


def _class_version_words(holder: Any, value: Any) -> Words | None:
    at = _class_version_offset() if _object_attribute_words(holder, "__mro__", type) else None
    return None if at is None else [(id(holder) + at, id(value))]


def _dict_size_words(holder: Any, value: Any) -> Words | None:
    """Of a dict, or of the one behind a class's `__dict__`."""
    place, at, behind = id(holder), _dict_size_offset(), _class_dict_offset()
    if type(holder) is MappingProxyType and behind is not None:
        place = read_memory_word(place + behind)
    return None if at is None or read_memory_word(place + TYPE_AT) != id(dict) else [(place + at, value)]


def _empty_function_dict_words(holder: Any, value: Any) -> Words | None:
    """Of a function: the dict is there, and empty."""
    at, size = (_function_dict_offset(), _dict_size_offset()) if type(holder) is FunctionType else (None, None)
    if at is None or size is None:
        return None
    return [(id(holder) + at, id(holder.__dict__)), (id(holder.__dict__) + size, 0)]


ASPECTS: dict[str, Callable[[Any, Any], Words | None]] = {
    "code": _function_code_words,
    "defaults": _function_defaults_words,
    "keyword defaults": _function_keyword_defaults_words,
    "type": _object_type_words,
    "classes": _class_version_words,
    "size": _dict_size_words,
    "bare": _empty_function_dict_words,
}


def _object_attribute_words(holder: Any, name: str, kind: type) -> bool:
    """Whether an attribute is what `kind` says: no other class of the object's has one of this name."""
    return not any(name in vars(base) for base in type(holder).__mro__ if base is not kind)


def _find_offset_of_object_word(holder: Any, read: Callable[[], int], change: Callable[[], object]) -> int | None:
    """The only place, after its head, where an object has the word that `read` gives, before and after a change."""
    before = read()
    places = [i for i in range(HEAD, type(holder).__basicsize__, 8) if read_memory_word(id(holder) + i) == before]
    change()
    places = [i for i in places if read_memory_word(id(holder) + i) == read() != before]
    return places[0] if len(places) == 1 else None


@cache
def _function_code_offset() -> int | None:
    def sample_function() -> int:
        return 0

    def other_function() -> int:
        return 1

    return _find_offset_of_object_word(
        sample_function,
        lambda: id(sample_function.__code__),
        lambda: setattr(sample_function, "__code__", other_function.__code__),
    )


@cache
def _function_defaults_offset() -> int | None:
    def sample_function(n: int = 1) -> int:
        return n

    return _find_offset_of_object_word(
        sample_function,
        lambda: id(sample_function.__defaults__),
        lambda: setattr(sample_function, "__defaults__", (2, 3)),
    )


@cache
def _function_keyword_defaults_offset() -> int | None:
    def sample_function(*, n: int = 1) -> int:
        return n

    return _find_offset_of_object_word(
        sample_function,
        lambda: id(sample_function.__kwdefaults__),
        lambda: setattr(sample_function, "__kwdefaults__", {"n": 2}),
    )


@cache
def _function_dict_offset() -> int | None:
    def sample_function() -> int:
        return 0

    return _find_offset_of_object_word(
        sample_function, lambda: id(sample_function.__dict__), lambda: setattr(sample_function, "__dict__", {"a": 1})
    )


@cache
def _object_type_word_is_present() -> bool:
    first, second = (type(name, (), {}) for name in ("First", "Second"))
    sample = first()
    before = read_memory_word(id(sample) + TYPE_AT)
    sample.__class__ = second
    return before == id(first) and read_memory_word(id(sample) + TYPE_AT) == id(second)


@cache
def _class_version_offset() -> int | None:
    first, second = (type(name, (), {}) for name in ("First", "Second"))
    sample = type("Sample", (first,), {})
    return _find_offset_of_object_word(
        sample, lambda: id(sample.__mro__), lambda: setattr(sample, "__bases__", (second,))
    )


@cache
def _dict_size_offset() -> int | None:
    sample = dict.fromkeys(range(1057))
    return _find_offset_of_object_word(sample, lambda: len(sample), lambda: sample.update(dict.fromkeys(range(2057))))


@cache
def _class_dict_offset() -> int | None:
    mapping: dict[str, int] = {}
    sample = MappingProxyType(mapping)
    places = [i for i in range(HEAD, type(sample).__basicsize__, 8) if read_memory_word(id(sample) + i) == id(mapping)]
    return places[0] if len(places) == 1 else None
