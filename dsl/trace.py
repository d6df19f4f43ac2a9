"""A trace in progress: the graph being built, the caller's numbers, and arrays that the function brought along."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..compiler.graph import Builder, Value
from ..compiler.types import type_of
from .numbers import HostCode


class NeedValue(BaseException):
    """The trace needs to know these numbers of the call; it is run again with them known.

    Not an Exception, so that a user's `except Exception` does not swallow it."""

    def __init__(self, leaves: Iterable[int]) -> None:
        super().__init__()
        self.leaves = frozenset(leaves)


class Trace:
    """What one run of the user's function leaves behind."""

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)
        self.host = HostCode()
        self.alive = True
        self.needed: set[int] = set()  # also those whose NeedValue was swallowed
        self.captured: list[np.ndarray[Any, Any]] = []
        self.scalars: list[tuple[str, type]] = []  # host names of the graph's numbers, and their types
        self.checks: list[str] = []  # what must hold of a call's numbers for the trace to serve it
        self.assigned: dict[int, Any] = {}  # the arguments that were assigned to: leaf -> Tracer
        self._captured_values: dict[int, Value] = {}
        self._scalar_values: dict[str, Value] = {}

    def capture(self, array: np.ndarray[Any, Any]) -> Value:
        """An array that is no argument: it is read, as it then is, at every call."""
        value = self._captured_values.get(id(array))
        if value is None:
            value = self._captured_values[id(array)] = self.builder.input(type_of(array))
            self.captured.append(array)
        return value

    def scalar(self, name: str, kind: type) -> Value:
        """The number that the host calls `name`, as a node."""
        value = self._scalar_values.get(name)
        if value is None:
            value = self._scalar_values[name] = self.builder.scalar(kind)
            self.scalars.append((name, kind))
        return value

    def need(self, leaves: Iterable[int]) -> NeedValue:
        """To be raised where a number's value decides how the trace goes on."""
        self.needed.update(leaves)
        return NeedValue(leaves)


class _Local(threading.local):
    trace: Trace | None = None


_local = _Local()


def current() -> Trace | None:
    """This thread's trace in progress, if any."""
    return _local.trace


@contextmanager
def tracing(trace: Trace | None) -> Iterator[None]:
    """Makes `trace` the current one; None suspends tracing."""
    before, _local.trace = _local.trace, trace
    try:
        yield
    finally:
        _local.trace = before
        if trace is not None:
            trace.alive = False
