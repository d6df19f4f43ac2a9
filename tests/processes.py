"""Children that end whatever happens in them, and signals sent when a thread is where it is to be interrupted."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType


def forked(body: Callable[[], int | None]) -> int:
    """The exit status of a child that does this and nothing else: 1 where it raises, a signal's where it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(120)
            status = body() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def interrupt(number: int = signal.SIGINT, looks: int = 4) -> None:
    """Sends a signal once the main thread has been seen in one call of its script's so many times in a row; and again
    every 5 s that the call goes on.

    To be called by the main thread. Python does not listen to SIGINT in what a shell has started in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def watch() -> None:
        seen, call, count = None, None, 0
        while count < looks:
            time.sleep(0.01)
            call = _call_of_the_script()
            count = count + 1 if call is not None and call is seen else 0
            seen = call
        while call is seen:  # Python drops what a handler raises within a finalizer
            os.kill(os.getpid(), number)
            time.sleep(5)
            call = _call_of_the_script()

    threading.Thread(target=watch, daemon=True).start()


def _call_of_the_script() -> FrameType | None:
    call, frame = None, sys._current_frames()[threading.main_thread().ident or 0]
    while frame.f_back is not None:
        call, frame = frame, frame.f_back
    return None if call is None or call.f_code is interrupt.__code__ else call
