"""What a compile is at in; a line about it on the terminal or in the notebook out, if it takes long.

The line comes after `DELAY` seconds, is written anew as time passes, and goes when the work is over. There is none
where the standard error stream is neither a terminal nor a notebook's, nor where `settings.progress` is off.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .settings import settings

DELAY = 2.0  # seconds
BETWEEN = 0.5  # two writings
WIDTH = 79

_phases: list[str] = []  # of the work that goes on, the outermost first
_owner = 0  # the thread that it began in; others are silent


@contextmanager
def progress_phase(text: str) -> Iterator[None]:
    """A part of the work, which may be within another one; the line is about the innermost."""
    if _phases and _owner == threading.get_ident():
        with _pushed_phase(text):
            yield
    elif _phases or not settings.progress or not _is_watched_by_people(sys.stderr):
        yield
    else:
        with _pushed_phase(text), _written_progress_line(sys.stderr):
            yield


@contextmanager
def progress_counter(total: int, what: str) -> Iterator[Callable[[], None]]:
    """Yields what counts one more of `total` as done. It may be called from any thread."""
    done, lock = 0, threading.Lock()
    with progress_phase(what):
        shown = [i for i, phase in enumerate(_phases) if phase is what][-1:]

        def count_one_done() -> None:
            nonlocal done
            with lock:
                done += 1
                for i in shown:
                    _phases[i] = f"{what}, {done} of {total}"

        yield count_one_done


@contextmanager
def _pushed_phase(text: str) -> Iterator[None]:
    depth = len(_phases)
    _phases.append(text)
    try:
        yield
    finally:
        del _phases[depth:]


@contextmanager
def _written_progress_line(screen: Any) -> Iterator[None]:
    """A thread that writes the line, for as long as the block runs."""
    global _owner
    _owner, start, over = threading.get_ident(), time.perf_counter(), threading.Event()

    def write_progress_line_anew() -> None:
        written, waiting = False, DELAY
        while not over.wait(waiting):
            waiting = BETWEEN
            if (text := "; ".join(_phases)) and not _is_debugged(_owner):
                line = f"{text}, {time.perf_counter() - start:.0f} s"
                screen.write(f"\r{line[:WIDTH]:<{WIDTH}}")
                screen.flush()
                written = True
        if written:
            screen.write(f"\r{'':<{WIDTH}}\r")
            screen.flush()

    writer = threading.Thread(target=write_progress_line_anew, daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()


def _is_watched_by_people(screen: Any) -> bool:
    if screen is None:
        return False
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return screen.isatty() or getattr(shell, "kernel", None) is not None


def _is_debugged(thread: int) -> bool:
    """Whether a debugger talks to people in a thread, as after `breakpoint()` in a traced function."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_globals.get("__name__") != "bdb":
        frame = frame.f_back
    return frame is not None
