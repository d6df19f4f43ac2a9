"""A small plan in; a function of its arrays out. Python calls it as it calls its own built-in ones.

The function looks at the arrays itself, in the memory of the objects, and runs the plan in the caller. A self-test says
whether objects lie in memory as it expects; where they do not, there are no such functions, and calls take the ordinary
way.

What must stay as it is about other objects, guards say in words of their memory. Where objects keep these things is
found by looking for them in a sample and changing it there; what is not found has no words, and is looked at by Python.
"""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from struct import Struct
from types import FunctionType, MappingProxyType
from typing import Any

import numpy as np

from ..codegen import word_language
from ..codegen.word_language import (
    DATA_AT,
    DTYPE_AT,
    FLAGS_AT,
    HEAD,
    LENGTH_AT,
    NDIM_AT,
    SHAPE_AT,
    STRIDES_AT,
    TYPE_AT,
    make_builtin_from_machine_code,
    read_memory_word,
)
from ..core.frozen import frozen
from ..core.host_pool import HostMemoryPool
from ..interpret.serial import serial_scalar_argument_bits
from .encode_plan import PlanLayout
from .engine import EngineFunctions, native_engine_functions
from .words import records as e

Words = Sequence[tuple[int, int]]  # addresses, and what is there


def watched_words_of_object_aspect(aspect: str, holder: Any, value: Any) -> Words | None:
    """Words that are there for as long as an aspect of an object is this value. None: there are no such words.

    aspect: a key of `ASPECTS`. What the addresses point to lives as long as the holder and the value."""
    found = ASPECTS[aspect](holder, value) if word_language.machine_code_can_read_bytes_objects() else None
    return found if found and all(read_memory_word(address) == word for address, word in found) else None


def _watched_words_of_function_code(holder: Any, value: Any) -> Words | None:
    at = _watched_function_code_offset() if type(holder) is FunctionType else None
    return None if at is None else [(id(holder) + at, id(value))]


def _function_defaults_words(holder: Any, value: Any) -> Words | None:
    at = _watched_function_defaults_offset() if type(holder) is FunctionType else None
    return None if at is None else [(id(holder) + at, 0 if value is None else id(value))]


def _function_keyword_defaults_words(holder: Any, value: Any) -> Words | None:
    """Where there are none: a dict may change."""
    at = _watched_keyword_defaults_offset() if type(holder) is FunctionType and value is None else None
    return None if at is None else [(id(holder) + at, 0)]


def _object_type_words(holder: Any, value: Any) -> Words | None:
    there = _is_watched_object_attribute(holder, "__class__", object) and _object_type_word_is_present()
    return [(id(holder) + TYPE_AT, id(value))] if there else None


def _watched_class_version_words(holder: Any, value: Any) -> Words | None:
    at = _class_version_offset() if _is_watched_object_attribute(holder, "__mro__", type) else None
    return None if at is None else [(id(holder) + at, id(value))]


def _watched_dict_size_words(holder: Any, value: Any) -> Words | None:
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


def _words_of_containers(holder: Any, value: Any) -> Words | None:
    """Of a list or dict, and those within: how long they are, and what they hold.

    Those within come later: while all before is as it was, they live."""
    words: list[tuple[int, int]] = []
    met = {id(value): value} if containers_lie_as_expected() else {}
    todo = [*met.values()]
    for held in todo:
        words += _words_of_dict(held) if type(held) is dict else _words_of_list(held)
        inner = [held] if type(held) is list else [held.keys(), held.values()]
        new = {id(x): x for part in inner for x in part if type(x) in (list, dict) and id(x) not in met}
        met |= new
        todo += new.values()
    return words or None


def _words_of_list(held: list[Any]) -> Iterator[tuple[int, int]]:
    items = read_memory_word(id(held) + HEAD + 8)
    yield from ((id(held) + LENGTH_AT, len(held)), (id(held) + HEAD + 8, items))
    yield from zip(range(items, items + 8 * len(held), 8), map(id, held), strict=True)


def _words_of_dict(held: dict[Any, Any]) -> Iterator[tuple[int, int]]:
    """Its length, where its table is, that it is no table of keys alone, and each key and value there."""
    table = read_memory_word(id(held) + HEAD + 16)
    yield from ((id(held) + HEAD, len(held)), (id(held) + HEAD + 16, table), (id(held) + HEAD + 24, 0))
    if read_memory_word(id(held) + HEAD + 24):
        return
    index, is_of_text = read_memory_word(table + 8) >> 8 & 255, read_memory_word(table + 8) >> 16 & 1
    size = 16 if is_of_text else 24  # each item's hash comes first, where keys are no text
    at = table + 32 + (1 << index) + size - 16
    for key, value in held.items():
        while not read_memory_word(at + 8):  # an item was deleted here
            at += size
        yield from ((at, id(key)), (at + 8, id(value)))
        at += size


@cache
def containers_lie_as_expected() -> bool:
    """Whether what a list holds, and a dict, is where machine code looks for it."""
    usual = word_language.machine_code_can_read_bytes_objects() and sys.version_info < (3, 15)
    if not usual or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return False
    sample = [None, Words]
    others: list[dict[Any, Any]] = [{"a": None, "b": Words}, {1: None, "b": Words}, dict.fromkeys(range(999))]
    expected = [*_words_of_list(sample), *(pair for other in others for pair in _words_of_dict(other))]
    return all(read_memory_word(address) == word for address, word in expected)


ASPECTS: dict[str, Callable[[Any, Any], Words | None]] = {
    "code": _watched_words_of_function_code,
    "defaults": _function_defaults_words,
    "keyword defaults": _function_keyword_defaults_words,
    "type": _object_type_words,
    "classes": _watched_class_version_words,
    "size": _watched_dict_size_words,
    "bare": _empty_function_dict_words,
    "item": _words_of_containers,
}


def _is_watched_object_attribute(holder: Any, name: str, kind: type) -> bool:
    """Whether an attribute is what `kind` says: no other class of the object's has one of this name."""
    return not any(name in vars(base) for base in type(holder).__mro__ if base is not kind)


def _find_offset_of_watched_word(holder: Any, read: Callable[[], int], change: Callable[[], object]) -> int | None:
    """The only place, after its head, where an object has the word that `read` gives, before and after a change."""
    before = read()
    places = [i for i in range(HEAD, type(holder).__basicsize__, 8) if read_memory_word(id(holder) + i) == before]
    change()
    places = [i for i in places if read_memory_word(id(holder) + i) == read() != before]
    return places[0] if len(places) == 1 else None


@cache
def _watched_function_code_offset() -> int | None:
    def sample_function() -> int:
        return 0

    def other_function() -> int:
        return 1

    return _find_offset_of_watched_word(
        sample_function,
        lambda: id(sample_function.__code__),
        lambda: setattr(sample_function, "__code__", other_function.__code__),
    )


@cache
def _watched_function_defaults_offset() -> int | None:
    def sample_function(n: int = 1) -> int:
        return n

    return _find_offset_of_watched_word(
        sample_function,
        lambda: id(sample_function.__defaults__),
        lambda: setattr(sample_function, "__defaults__", (2, 3)),
    )


@cache
def _watched_keyword_defaults_offset() -> int | None:
    def sample_function(*, n: int = 1) -> int:
        return n

    return _find_offset_of_watched_word(
        sample_function,
        lambda: id(sample_function.__kwdefaults__),
        lambda: setattr(sample_function, "__kwdefaults__", {"n": 2}),
    )


@cache
def _function_dict_offset() -> int | None:
    def sample_function() -> int:
        return 0

    return _find_offset_of_watched_word(
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
    return _find_offset_of_watched_word(
        sample, lambda: id(sample.__mro__), lambda: setattr(sample, "__bases__", (second,))
    )


@cache
def _dict_size_offset() -> int | None:
    sample = dict.fromkeys(range(1057))
    return _find_offset_of_watched_word(sample, lambda: len(sample), lambda: sample.update(dict.fromkeys(range(2057))))


@cache
def _class_dict_offset() -> int | None:
    mapping: dict[str, int] = {}
    sample = MappingProxyType(mapping)
    places = [i for i in range(HEAD, type(sample).__basicsize__, 8) if read_memory_word(id(sample) + i) == id(mapping)]
    return places[0] if len(places) == 1 else None


ARENA = -1
STACK_ARENA_BYTES = 4096  # an arena of so many bytes is taken from the caller's stack

_FORMATS = {
    "bool": "?7x", "int8": "b7x", "int16": "h6x", "int32": "i4x", "int64": "q", "uint8": "B7x", "uint16": "H6x",
    "uint32": "I4x", "uint64": "Q", "float16": "e6x", "float32": "f4x", "float64": "d",
}  # fmt: skip

Direct = Callable[..., bool]


def direct_call_table_packers(heads: int, scalars: Sequence[str]) -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Two functions from addresses and scalars to a call's table. One is fast and choosy, one takes any number."""
    words = Struct(f"={heads + len(scalars)}Q").pack

    def convert_and_pack_call_table(*values: Any) -> bytes:
        bits = (serial_scalar_argument_bits(v, s) for v, s in zip(values[heads:], scalars, strict=True))
        return words(*values[:heads], *bits)

    if all(s in _FORMATS for s in scalars):
        return Struct("=" + "Q" * heads + "".join(_FORMATS[s] for s in scalars)).pack, convert_and_pack_call_table
    return convert_and_pack_call_table, convert_and_pack_call_table


@frozen
class DirectArgument:
    """An argument: which buffer it is (or `ARENA`), and an array or NumPy scalar that it has to be like (None: a block
    of memory).

    low: bytes from the first element to the lowest one; 0 or negative. assigned: whether the array is written to after
    the plan has run, and so has to be writeable, and apart from the others."""

    buffer: int
    like: np.ndarray[Any, Any] | np.generic | None = None
    low: int = 0
    assigned: bool = False


def make_engine_direct_call(
    layout: PlanLayout,
    taken: Sequence[DirectArgument],
    keep: Any = None,
    watched: Words = (),
    scalars: Sequence[str] = (),
    stack_bytes: int = 0,
) -> Direct | None:
    """f(*arguments): if each is like the one in `taken`, the plan runs here and now, and the answer is True; else it is
    False. None where objects are not as expected. keep: what has to live as long. watched: words of memory, and what
    has to be there too. scalars: the dtypes of those of the plan; they come last, in one argument of
    `direct_call_table_packers`. stack_bytes: of the arena, where that is not taken."""
    found = native_engine_functions()
    usual = found is not None and direct_call_self_test()
    if found is None or not usual or not all(_holds_its_value(t.like) for t in taken if isinstance(t.like, np.generic)):
        return None
    return _build_direct_call_function(found, layout, taken, keep, watched, scalars, stack_bytes)


def _holds_its_value(scalar: np.generic) -> bool:
    """Whether a NumPy scalar lies in memory as most do: the head of any object, then the value."""
    fits = type(scalar).__basicsize__ >= HEAD + scalar.itemsize
    return fits and ctypes.string_at(id(scalar) + HEAD, scalar.itemsize) == scalar.tobytes()


@cache
def direct_call_self_test() -> bool:
    """The self-test: whether objects lie in memory as `words.records` says."""
    found = native_engine_functions()
    if found is None or not word_language.machine_code_can_read_bytes_objects() or not _direct_call_reads_pool_blocks():
        return False
    base = np.arange(24, dtype=np.float32)
    samples: list[np.ndarray[Any, Any]]
    fixed = np.zeros(5)
    fixed.flags.writeable = False
    samples = [base, fixed, base.reshape(4, 6)[1:, ::-2], np.zeros(()), np.zeros((0, 3), np.int8), base[1:]]
    return all(_direct_call_reads_numpy_arrays(s) for s in samples) and _direct_call_tells_samples_apart(found, samples)


def _direct_call_reads_pool_blocks() -> bool:
    block = HostMemoryPool().allocate(64)
    return read_memory_word(id(block) + DATA_AT) == int(block.address)


def _direct_call_reads_numpy_arrays(array: np.ndarray[Any, Any]) -> bool:
    at, n = id(array), array.ndim
    if read_memory_word(at + TYPE_AT) != id(np.ndarray) or read_memory_word(at + NDIM_AT) & e.LOW_HALF != n:
        return False
    shape = tuple((ctypes.c_int64 * n).from_address(read_memory_word(at + SHAPE_AT))) if n else ()
    strides = tuple((ctypes.c_int64 * n).from_address(read_memory_word(at + STRIDES_AT))) if n else ()
    same = read_memory_word(at + DATA_AT) == array.ctypes.data and read_memory_word(at + DTYPE_AT) == id(array.dtype)
    same = same and read_memory_word(at + FLAGS_AT) & e.LOW_HALF == array.flags.num
    return same and shape == array.shape and strides == array.strides


def _direct_call_tells_samples_apart(native: EngineFunctions, samples: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether functions of a plan that does nothing know their samples from each other."""
    plan = (ctypes.c_uint64 * 8)()
    layout = PlanLayout(ctypes.addressof(plan), (), 0, (), (), {}, {}, {}, (), False, 0, (), {}, (), (plan,))
    for sample in samples:
        try:
            function = _build_direct_call_function(native, layout, [DirectArgument(0, sample)], None)
        except (AttributeError, ctypes.ArgumentError):
            return False
        answers = [function(s) for s in samples] + [function(None), function(), function(sample, sample)]
        if answers != [s is sample for s in samples] + [False, False, False]:
            return False
    return True


def _build_direct_call_function(
    native: EngineFunctions,
    layout: PlanLayout,
    taken: Sequence[DirectArgument],
    keep: Any,
    watched: Words = (),
    scalars: Sequence[str] = (),
    stack_bytes: int = 0,
) -> Direct:
    columns = (*layout.order, ARENA) if layout.uses_arena else layout.order
    place = {buffer: 8 * i for i, buffer in enumerate(columns)}
    packed = 8 * len(place)
    spare = packed + 8 * len(scalars)  # for what no kernel reads
    immortal = sys.version_info >= (3, 12)
    answers = [id(True), id(False), 0 if immortal else 1]
    head = [layout.plan, spare + 8, len(taken) + bool(scalars), id(np.ndarray), *answers, len(watched)]
    head += [stack_bytes, place.get(ARENA, spare), any(t.assigned for t in taken)]
    head += [word for pair in watched for word in pair]
    rows = [word for t in taken for word in _direct_call_argument_row(t, place.get(t.buffer, spare))]
    rows += [e.PACKED, id(bytes), 8 * len(scalars), packed, 0, 0, 0] if scalars else []
    held = (layout, [t.like.dtype for t in taken if t.like is not None], keep)
    return make_builtin_from_machine_code(native.direct, head + rows, held)


def _direct_call_argument_row(taken: DirectArgument, place: int) -> list[int]:
    array = taken.like
    if array is None:
        return [0, 0, 0, place, 0, 0, 0]
    if isinstance(array, np.generic):
        return [e.BOXED, id(type(array)), HEAD, place, 0, 0, 0]
    sizes = [word for pair in zip(array.shape, array.strides, strict=True) for word in pair]
    reach = sum(abs(s) * (n - 1) for n, s in zip(array.shape, array.strides, strict=True))
    extent = reach + array.itemsize if array.size else 0
    return [id(array.dtype), array.ctypes.data & 15, taken.low, place, extent, taken.assigned, array.ndim, *sizes]
