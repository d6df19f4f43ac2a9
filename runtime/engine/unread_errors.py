"""Errors of calls in flight that nobody has seen, in words: they are printed when the interpreter ends."""

from __future__ import annotations

import itertools
import sys

MOST = 100  # what goes wrong after that often is not kept
_numbers = itertools.count(1)
_texts: dict[int, str] = {}


def keep(error: BaseException) -> int:
    """Remember an error that a call in flight has raised; its number is for `forget`."""
    number = next(_numbers)
    if len(_texts) < MOST:
        where = "; ".join(getattr(error, "__notes__", ())[-1:])
        text = f"{type(error).__name__}: {error}".replace("\n", " ")
        _texts[number] = f"kernelgraph: nobody read the result that failed {where}: {text}".replace(" :", ":")
    return number


def forget(number: int) -> str:
    """Somebody sees the error; what `put_back` takes."""
    return _texts.pop(number, "")


def put_back(number: int, text: str) -> None:
    """Nobody saw it after all."""
    if text:
        _texts[number] = text


def clear() -> None:
    """Forget all of them, as a process does that was forked: they are its parent's."""
    _texts.clear()


def tell() -> None:
    """Print a line for each to stderr."""
    if sys.stderr is not None:
        for text in _texts.values():
            print(text, file=sys.stderr)
    _texts.clear()
