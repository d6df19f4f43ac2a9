"""Machine code and words that it reads in; a function that Python calls as it calls its own built-in ones, out.

The byte offsets say where CPython and NumPy keep what machine code reads in their objects."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

_FASTCALL = 0x80  # METH_FASTCALL of methodobject.h
_NEW = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)
_WORD = (1 << 64) - 1


class _MethodDefinition(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)
    )  # fmt: skip


@cache
def _c_method_definition(address: int) -> _MethodDefinition:
    """What all functions of an address share; it lives forever."""
    return _MethodDefinition(b"native", address, _FASTCALL, None)


def make_builtin_from_machine_code(address: int, words: Sequence[int], held: Any) -> Callable[..., Any]:
    """The machine code at `address` as a function. Its first argument is a `bytes` object of the words, its second the
    address of the references to the arguments, its third how many there are; it gives a new reference. held: what lives
    as long as the function."""
    given = (ctypes.c_uint64 * len(words))(*(w & _WORD for w in words))
    # The function's `__module__` is a place to hold on to things.
    made: Callable[..., Any] = _NEW(("PyCFunction_NewEx", ctypes.pythonapi))(
        ctypes.addressof(_c_method_definition(address)), bytes(given), held
    )
    return made


@cache
def machine_code_can_read_bytes_objects() -> bool:
    """Whether the words of a `bytes` object lie where machine code looks for them."""
    usual = sys.implementation.name == "cpython" and sys.byteorder == "little"
    text = b"12345678"
    at = id(text)
    return (
        usual
        and ctypes.string_at(at + BYTES_AT, 8) == text
        and (read_memory_word(at + TYPE_AT), read_memory_word(at + LENGTH_AT)) == (id(bytes), 8)
    )


def read_memory_word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


# CPython 3.11 and later, where the self-tests of `native_callable` and `direct_call` have seen that it is so: any
# object (the head of each ends in its type, and is larger without the interpreter lock), bytes, NumPy's arrays. A
# ctypes object has its address where an array has it.
HEAD = object.__basicsize__
TYPE_AT, LENGTH_AT, BYTES_AT = HEAD - 8, HEAD, HEAD + 16
DATA_AT, NDIM_AT, SHAPE_AT, STRIDES_AT, DTYPE_AT = HEAD, HEAD + 8, HEAD + 16, HEAD + 24, HEAD + 40
