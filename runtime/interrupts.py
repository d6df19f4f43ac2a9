"""Ctrl-C put off: a function in; it is called, and KeyboardInterrupt is raised after it, not within it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

try:  # without the wrappers that make enumerations of numbers: they take 10 times as long as the rest
    _bare: Any = importlib.import_module("_signal")
except ImportError:
    _bare = importlib.import_module("signal")
_getsignal, _signal, SIGINT = _bare.getsignal, _bare.signal, int(_bare.SIGINT)


def uninterrupted(function: Callable[[], T]) -> T:
    """What the function gives; SIGINT's handler runs after it. Other threads than the main one never run handlers."""
    if threading.get_ident() != threading.main_thread().ident or not callable(_getsignal(SIGINT)):
        return function()
    came: list[Any] = []
    handler = _signal(SIGINT, lambda number, frame: came.append(frame))
    try:
        return function()
    finally:
        _signal(SIGINT, handler)
        if came:
            handler(SIGINT, came[0])
