"""Calls in flight: what they use stays alive until their events have happened; a caller never runs too far ahead."""

from __future__ import annotations

from collections import deque
from typing import Any

from ...runtime.program.device import Event, error_of_event

Flight = tuple[tuple[Event, ...], Any, int]  # events, what they use, its bytes
ASKED, MANY_BYTES = 16, 64 << 20  # events are asked once in so many calls, or if calls hold more than this


class Flights:
    """Calls in flight on one kind of device, and the bytes that they hold; threads may leave these a little off, until
    nothing is in flight. ahead: calls that may always be in flight; more only while all hold less than `nbytes`."""

    def __init__(self, ahead: int, nbytes: int) -> None:
        self.ahead, self.nbytes, self.many = ahead, nbytes, min(nbytes, MANY_BYTES)
        self.calls: deque[Flight] = deque()
        self.held = 0

    def track(self, events: tuple[Event, ...], things: Any, size: int) -> None:
        """As `track_memory`, where it costs time to ask whether an event is over. size: bytes of the things."""
        self.held += size
        self.calls.append((events, things, size))
        if not len(self.calls) % ASKED or self.held > self.many:
            self.forget_finished()
            while self.held > self.nbytes and len(self.calls) > self.ahead:
                self.wait_for_oldest()

    def forget_finished(self) -> None:
        """Let go of calls that are over, oldest first: by popping first, threads never drop what another looks at."""
        try:
            while True:
                flight = self.calls.popleft()
                for event in flight[0]:
                    if not event.query():
                        self.calls.appendleft(flight)
                        return
                self.held -= flight[2]
        except IndexError:
            self.held = 0

    def wait_for_oldest(self) -> None:
        """Wait for the oldest call in flight. Errors stay with the arrays that they concern."""
        try:
            flight = self.calls.popleft()
        except IndexError:
            return
        try:
            for event in flight[0]:
                error_of_event(event)
        except BaseException:  # interrupted: it is still in flight
            self.calls.appendleft(flight)
            raise
        self.held -= flight[2]


# On the CPU who runs far ahead is slower: each call in flight has memory of its own, which no cache holds any more.
# With 24 MB 600 calls on 8 MB take as long as with a wait after each, with 64 MB 1.4 times as long (32 MB of cache).
_on_host, _on_devices = Flights(1, 24 << 20), Flights(8, 8 << 30)
track_call = _on_devices.track


def track_memory(events: tuple[Event, ...], things: Any) -> None:
    """Keeps `things` (memory) alive until the events have happened. A caller who runs far ahead of the device waits
    here for the oldest call, so that calls in flight never take all the memory."""
    _on_devices.forget_finished()
    _on_devices.track(events, things, sum([thing.nbytes for thing in things]))


def track_host_memory(events: tuple[Event, ...], things: Any) -> None:
    """`track_memory` of a call on the CPU."""
    _on_host.forget_finished()
    _on_host.track(events, things, sum([thing.nbytes for thing in things]))


def in_flight_counts() -> tuple[int, int]:
    """How many calls are known to be in flight, and the bytes that they hold."""
    return len(_on_host.calls) + len(_on_devices.calls), _on_host.held + _on_devices.held


def is_no_call_in_flight() -> bool:
    """Whether no call is in flight."""
    for flights in (_on_host, _on_devices):
        flights.forget_finished()
    return not (_on_host.calls or _on_devices.calls)


def events_using_memory(memory: Any) -> list[Event]:
    """The events of calls in flight that use some memory."""
    calls = (*_on_host.calls.copy(), *_on_devices.calls.copy())
    return [event for events, things, _ in calls if any(t is memory for t in things) for event in events]


def free_memory_in_flight() -> bool:
    """Wait for all calls in flight, whose memory goes back; whether there were any."""
    found = bool(_on_host.calls or _on_devices.calls)
    waitall()
    return found


def waitall() -> None:
    """Wait for all work in flight. Errors stay with the arrays that they concern.

    >>> x = kg.kernel_graph(lambda x: x + 1)(np.zeros(2))
    >>> kg.waitall()
    >>> x.is_ready()
    True
    """
    for flights in (_on_host, _on_devices):
        while flights.calls:
            flights.wait_for_oldest()
