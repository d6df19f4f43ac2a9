"""Addresses of the driver's functions in, quick Python functions out. A call takes 0.1 us, where ctypes takes 0.4."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ....codegen import llvm_jit, word_language
from ....core.disk_cache import sha256_digest
from ....core.errors import CompileError
from . import words as w

ENTRIES = (
    "call_driver_function",
    "call_driver_status_function",
    "launch_driver_graph_from_python",
    "start_driver_graph_from_python",
    "prepare_driver_graph_record",
)
_PYTHON = ("PyLong_AsUnsignedLongLong", "PyLong_FromLong", "PyEval_SaveThread", "PyEval_RestoreThread")


class NativeDriverCalls:
    """The functions of `driver.words`. Raises CompileError where they cannot be built."""

    def __init__(self) -> None:
        if not word_language.machine_code_can_read_bytes_objects():
            raise CompileError("this Python has no place for them")
        sources = [word_language.word_module_source_text(m) for m in (word_language, w)]
        self._code = llvm_jit.compile_llvm_ir_lazily(
            sha256_digest("cuda calls", *sources, *ENTRIES, word_language.HEAD),
            lambda: word_language.translate_word_language_to_llvm([w], ENTRIES, platform.machine()),
            "cuda_calls",
        )
        self._python = [_address_of_ctypes_function(getattr(ctypes.pythonapi, name)) for name in _PYTHON]
        self._prepare = self._code.function("prepare_driver_graph_record", ctypes.c_int64, ctypes.c_uint64)

    def function(self, ctypes_function: Any, takes_long: bool) -> Callable[..., int]:
        """A ctypes function of at most four integers (a pointer is one) that gives a result code, as a quick one.

        takes_long: the interpreter lock is given back during the call."""
        words = [*self._python, _address_of_ctypes_function(ctypes_function), int(takes_long)]
        return word_language.make_builtin_from_machine_code(
            self._code.functions["call_driver_function"], words, (self._code, ctypes_function)
        )

    def make_status_function(self, ctypes_function: Any) -> Callable[[int], int]:
        """A ctypes function of an integer and of where a 32-bit answer goes, as a quick one that gives the result code
        or, where that is 0, the answer."""
        words = [*self._python, _address_of_ctypes_function(ctypes_function)]
        return word_language.make_builtin_from_machine_code(
            self._code.functions["call_driver_status_function"], words, (self._code, ctypes_function)
        )

    def graph_record(
        self,
        handles: dict[int, int],
        bound: Sequence[tuple[int, int, int]],
        nodes: Sequence[tuple[int, int, Sequence[tuple[int, int, int]]]],
    ) -> Any:
        """What `launch_graphs` takes of a graph. handles: the words of its record, by offset. bound: addresses of a
        call, by number, of which some bits have to be these. nodes: of each its handle, its parameters and, for each
        address of its kernel that a call brings, where it lies, which of a call's it is, and what to add to it."""
        words = [word for row in bound for word in row]
        for handle, parameters, rows in nodes:
            words += [handle, parameters, len(rows), *(word for row in rows for word in row)]
        record = (ctypes.c_uint64 * (w.ROWS // 8 + len(words)))()
        for offset, word in (handles | {w.BOUND: len(bound), w.COUNT: len(nodes)}).items():
            record[offset // 8] = word
        for place, word in enumerate(words, w.ROWS // 8):
            record[place] = word
        self._prepare(ctypes.addressof(record))
        return record

    def launch_graphs(self, records: Sequence[Any], held: Any) -> Callable[..., int]:
        """f(*events, *addresses): graphs, launched one after the other; the result code. Any thread may call it."""
        return word_language.make_builtin_from_machine_code(
            self._code.functions["launch_driver_graph_from_python"],
            [*self._python, len(records), *map(ctypes.addressof, records)],
            (self._code, records, held),
        )

    def start_graph(self, record: Any, take: Any, make: Any, note: Any, held: Any) -> Callable[..., Any]:
        """f(*addresses): a graph launched; the event after it, made of a handle that was free and noted. None where
        that could not be. Any thread may call it."""
        words = [*self._python, ctypes.addressof(record), id(take), id(make), id(note), id(None)]
        code = self._code.functions["start_driver_graph_from_python"]
        return word_language.make_builtin_from_machine_code(code, words, (self._code, record, take, make, note, held))


def _address_of_ctypes_function(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def native_driver_calls() -> NativeDriverCalls | None:
    """The process' functions, or None where they cannot be built: then ctypes serves."""
    try:
        return NativeDriverCalls()
    except (CompileError, OSError, ImportError, SyntaxError, KeyError):
        return None
