"""What a thread is in the middle of: a trace, a stream that its calls are put on."""

from __future__ import annotations

import threading
from threading import get_ident
from typing import Any

# The threads whose context is busy, and such as have ended so: while there is none, no call asks for its thread's own.
busy_threads: set[int] = set()


class Context(threading.local):
    """What calls of this thread are part of. busy: whether that is anything at all."""

    trace: Any = None  # the Trace in progress
    stream: Any = None  # the kg.Stream that calls are put on
    busy = False

    def put(self, stream: Any) -> None:
        self.stream = stream
        self.busy = stream is not None or self.trace is not None
        (busy_threads.add if self.busy else busy_threads.discard)(get_ident())


context = Context()
