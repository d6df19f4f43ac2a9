"""Errors of calls in flight that nobody has seen, in words. They are printed when the interpreter ends."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from typing import Any

MOST = 100  # what goes wrong after that often is not kept
_numbers = itertools.count(1)
_texts: dict[int, str] = {}


def keep_unread_error(error: BaseException) -> int:
    """Remember an error that a call in flight has raised; its number is for `forget_read_engine_error`."""
    number = next(_numbers)
    if len(_texts) < MOST:
        where = "; ".join(getattr(error, "__notes__", ())[-1:])
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        _texts[number] = f"kernelgraph: nobody read the result that failed {where}: {text}".replace(" :", ":")
    return number


def forget_read_engine_error(number: int) -> str:
    """Somebody sees the error; what `put_back_unread_error` takes."""
    return _texts.pop(number, "")


def put_back_unread_error(number: int, text: str) -> None:
    """Nobody saw it after all."""
    if text:
        _texts[number] = text


def carry_unread_error(error: Any) -> None:
    """Remember an error that knows itself whether somebody has seen it, however many results it is passed on to."""
    if not hasattr(error, "_unread"):
        error._unread = keep_unread_error(error), ""


def mark_error_read(error: Any) -> None:
    """Somebody sees an error, which may be one of `carry_unread_error`."""
    number, _ = getattr(error, "_unread", (0, ""))
    if number:
        error._unread = number, forget_read_engine_error(number)


def mark_error_unread(error: Any) -> None:
    """Nobody saw it after all."""
    put_back_unread_error(*getattr(error, "_unread", (0, "")))


def clear_unread_errors() -> None:
    """Forget all of them, as a process does that was forked: they are its parent's."""
    _texts.clear()


@atexit.register  # after the engine's end: that registers later
def print_unread_errors() -> None:
    """Print a line for each to stderr."""
    if sys.stderr is not None:
        for text in _texts.values():
            print(text, file=sys.stderr)
    _texts.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=clear_unread_errors)
