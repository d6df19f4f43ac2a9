"""What a thread is in the middle of: a trace, a stream that its calls are put on."""

from __future__ import annotations

import threading
from typing import Any


class Context(threading.local):
    """What calls of this thread are part of. busy: whether that is anything at all."""

    trace: Any = None  # the Trace in progress
    stream: Any = None  # the kg.Stream that calls are put on
    busy = False

    def put(self, stream: Any) -> None:
        self.stream = stream
        self.busy = stream is not None or self.trace is not None


context = Context()
