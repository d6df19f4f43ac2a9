"""A function in Python that may take too long, and is then broken off between two of Python's instructions."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any


class _TimeIsUp(BaseException):
    """A run was broken off."""


def ends_within_seconds(seconds: float, run: Callable[[], Any]) -> bool:
    """Whether a run ends in time; a longer one is broken off at an instruction of Python's."""
    thread, lock, done = ctypes.c_ulong(threading.get_ident()), threading.Lock(), threading.Event()
    raised: list[bool] = []

    def break_off() -> None:
        if done.wait(seconds):
            return
        with lock:
            if not done.is_set():
                raised.append(True)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_TimeIsUp))

    ends, error = False, None
    try:
        threading.Thread(target=break_off, daemon=True).start()
        try:
            copy_context().run(run)  # what it has set there, and may not set back, is left behind
            ends = True
        except Exception as raised_by_run:
            error = raised_by_run
        with lock:
            done.set()
        while raised:  # it is on its way: taking it back would leave the interpreter looking for it
            pass
    except _TimeIsUp:
        pass
    finally:
        done.set()
    if error is not None:
        raise error
    return ends
