"""What a thread is in the middle of: a trace, a stream that its calls are put on, a default device."""

from __future__ import annotations

import threading
from threading import get_ident
from typing import Any

from ...runtime.core.settings import note_unusual_calls


class CallContext(threading.local):
    """What calls of this thread are part of. busy: whether that is anything at all."""

    trace: Any = None  # the Trace in progress
    stream: Any = None  # the kg.Stream that calls are put on
    device: tuple[str, int] | None = None  # kind and number of the one that stands for the default one
    precision = ""  # that products of float32 may have, see `precision`
    mesh: Any = None  # the kg.Mesh of the function that is being traced
    busy = False

    def put(self, stream: Any, device: tuple[str, int] | None) -> None:
        self.stream, self.device = stream, device
        self._note_whether_busy()

    def put_precision(self, precision: str) -> None:
        self.precision = precision
        self._note_whether_busy()

    def _note_whether_busy(self) -> None:
        given = self.stream is not None or self.device is not None or self.precision != ""
        self.busy = given or self.trace is not None
        note_unusual_calls(get_ident(), self.busy)


context = CallContext()
