"""Ctrl-C put off. A function is called, and KeyboardInterrupt is raised after it, not within it.

Native code that takes long sees to signals itself (`signals`); the words by which it does are here.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .words.records import ASKED, BROKEN, CTRL_C, KIND, MAIN, SIGNALS_WORDS, TRACE, VALUE

T = TypeVar("T")

try:  # without the wrappers that make enumerations of numbers: they take 10 times as long as the rest
    _bare: Any = importlib.import_module("_signal")
except ImportError:
    _bare = importlib.import_module("signal")
_getsignal, _signal, SIGINT = _bare.getsignal, _bare.signal, int(_bare.SIGINT)

_words = (ctypes.c_uint64 * SIGNALS_WORDS)()
_words[CTRL_C // 8] = id(KeyboardInterrupt)
_words[MAIN // 8] = threading.main_thread().ident or 0
SIGNALS_AT = ctypes.addressof(_words)


class _DeferredHandler:
    """SIGINT's handler while it is put off. ends: whether loops are to end, since the handler raises in any case."""

    __slots__ = ("came", "ends")

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.ends = False

    def __call__(self, number: int, frame: Any) -> None:
        self.came.append(frame)
        if self.ends:
            _words[ASKED // 8] = 1


def call_with_interrupt_deferred(function: Callable[[], T]) -> T:
    """What the function gives; SIGINT's handler runs after it. Other threads than the main one never run handlers."""
    if threading.get_ident() != _words[MAIN // 8] or not callable(_getsignal(SIGINT)):
        return function()
    later = _DeferredHandler()
    handler = _signal(SIGINT, later)
    later.ends = handler is _bare.default_int_handler or (type(handler) is _DeferredHandler and handler.ends)
    try:
        return function()
    finally:
        _signal(SIGINT, handler)
        if later.came:
            _words[ASKED // 8] = 0
            handler(SIGINT, later.came[0])


def interrupt_is_pending() -> bool:
    """Whether Ctrl-C has come while the main thread, the caller, puts it off."""
    return bool(_words[ASKED // 8]) and threading.get_ident() == _words[MAIN // 8]


def signal_handler_has_raised() -> bool:
    """Whether a signal handler that raised has ended what the main thread, the caller, ran natively."""
    return bool(_words[BROKEN // 8]) and threading.get_ident() == _words[MAIN // 8]


def raise_error_of_signal_handler() -> None:
    """Raise what the handler raised."""
    kept = [_words[place // 8] for place in (KIND, VALUE, TRACE)]
    _words[BROKEN // 8] = 0
    restore = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)(("PyErr_Restore", ctypes.pythonapi))
    restore(*kept)


def _reset_signal_words_in_forked_child() -> None:
    """Who forks is the main thread there."""
    _words[MAIN // 8] = threading.get_ident()
    _words[ASKED // 8] = _words[BROKEN // 8] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_signal_words_in_forked_child)
