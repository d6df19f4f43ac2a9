"""How many things there are to do in; a function to call after each out. A bar in the terminal if it takes long.

The bar is tqdm's or rich's, whichever is installed. There is none without both, where the standard error stream is not
a terminal, or while less than `DELAY` seconds have passed.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

DELAY = 1.0


@contextmanager
def progress_counter(total: int, what: str) -> Iterator[Callable[[], None]]:
    """Yields what counts one more of `total` as done. It may be called from any thread."""
    start, lock = time.perf_counter(), threading.Lock()
    done, bar = 0, None
    shown = total > 1 and sys.stderr.isatty()

    def count_one_done() -> None:
        nonlocal done, bar, shown
        with lock:
            done += 1
            if shown and bar is None and time.perf_counter() - start > DELAY:
                bar = _tqdm_progress_bar(total, what) or _rich_progress_bar(total, what)
                shown = bar is not None
            if bar is not None:
                bar(done)

    try:
        yield count_one_done
    finally:
        if bar is not None:
            bar(None)


Bar = Callable[[int | None], None]  # shows how many are done; None: it is over


def _tqdm_progress_bar(total: int, what: str) -> Bar | None:
    try:
        made: Any = import_module("tqdm").tqdm(total=total, desc=what, leave=False)
    except ImportError:
        return None

    def show_tqdm_progress(done: int | None) -> None:
        if done is None:
            made.close()
        else:
            made.update(done - made.n)

    return show_tqdm_progress


def _rich_progress_bar(total: int, what: str) -> Bar | None:
    try:
        made: Any = import_module("rich.progress").Progress(
            console=import_module("rich.console").Console(stderr=True), transient=True
        )
    except ImportError:
        return None
    made.start()
    task = made.add_task(what, total=total)

    def show_rich_progress(done: int | None) -> None:
        if done is None:
            made.stop()
        else:
            made.update(task, completed=done)

    return show_rich_progress
