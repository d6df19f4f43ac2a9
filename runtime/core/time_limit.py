"""A function in Python that may take too long, and is then broken off between two of Python's instructions."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any


class _TimeIsUp(BaseException):
    """A run was broken off."""


def ends_within_seconds(seconds: float, run: Callable[[], Any]) -> bool:
    """Whether a run ends in time; a longer one is broken off at an instruction of Python's."""
    with suppress(_TimeIsUp), _broken_off_after_seconds(seconds):
        copy_context().run(run)  # what it has set there, and may not set back, is left behind
        return True
    return False


@contextmanager
def _broken_off_after_seconds(seconds: float) -> Iterator[None]:
    thread, lock, done = ctypes.c_ulong(threading.get_ident()), threading.Lock(), threading.Event()
    raise_in_thread = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def break_off() -> None:
        if done.wait(seconds):
            return
        with lock:  # once: it may arrive where the other thread leaves, before that has said so
            if not done.is_set():
                raise_in_thread(thread, ctypes.py_object(_TimeIsUp))

    watcher = threading.Thread(target=break_off, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            done.set()
            raise_in_thread(thread, None)  # one on its way is not for what comes next
        watcher.join()
