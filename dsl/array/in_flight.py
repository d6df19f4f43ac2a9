"""Calls in flight: what they use stays alive until their events have happened; a caller never runs too far ahead."""

from __future__ import annotations

from collections import deque
from typing import Any

from ...runtime.program.device import Event, error_of_event

_flights: deque[tuple[tuple[Event, ...], Any, int]] = deque()
_held = [0]  # bytes that calls in flight hold; threads may leave it a little off, until nothing is in flight

MAX_CALLS_AHEAD = 8  # calls that may always be in flight,
FLIGHT_BYTES = 8 << 30  # beyond them only while all together hold less than this
ASKED, MANY_BYTES = 16, 64 << 20  # `track_call` asks the events once in so many calls, or if calls hold more than this


def track_memory(events: tuple[Event, ...], things: Any) -> None:
    """Keeps `things` (memory) alive until the events have happened. A caller who runs far ahead of the device waits
    here for the oldest call, so that calls in flight never take all the memory."""
    _forget_finished_calls()
    track_call(events, things, sum([thing.nbytes for thing in things]))


def track_call(events: tuple[Event, ...], things: Any, size: int) -> None:
    """As `track_memory`, where it costs time to ask whether an event is over. size: bytes of the things."""
    _held[0] += size
    _flights.append((events, things, size))
    if not len(_flights) % ASKED or _held[0] > MANY_BYTES:
        _forget_finished_calls()
        while _held[0] > FLIGHT_BYTES and len(_flights) > MAX_CALLS_AHEAD:
            _wait_for_oldest_call()


def _forget_finished_calls() -> None:
    """Let go of the calls that are over, oldest first: by popping first, threads never drop what another looks at."""
    try:
        while True:
            flight = _flights.popleft()
            for event in flight[0]:
                if not event.query():
                    _flights.appendleft(flight)
                    return
            _held[0] -= flight[2]
    except IndexError:
        _held[0] = 0


def in_flight_counts() -> tuple[int, int]:
    """How many calls are known to be in flight, and the bytes that they hold."""
    return len(_flights), _held[0]


def is_no_call_in_flight() -> bool:
    """Whether no call is in flight."""
    _forget_finished_calls()
    return not _flights


def events_using_memory(memory: Any) -> list[Event]:
    """The events of calls in flight that use some memory."""
    return [event for events, things, _ in _flights.copy() if any(t is memory for t in things) for event in events]


def _take_oldest_call() -> tuple[tuple[Event, ...], Any, int] | None:
    """Takes out the oldest call: by popping first, threads never drop one that another has looked at."""
    try:
        return _flights.popleft()
    except IndexError:
        return None


def _wait_for_oldest_call() -> None:
    """Wait for the oldest call in flight. Errors stay with the arrays that they concern."""
    flight = _take_oldest_call()
    if flight is None:
        return
    try:
        for event in flight[0]:
            error_of_event(event)
    except BaseException:  # interrupted: it is still in flight
        _flights.appendleft(flight)
        raise
    _held[0] -= flight[2]


def free_memory_in_flight() -> bool:
    """Wait for all calls in flight, whose memory goes back; whether there were any."""
    found = bool(_flights)
    waitall()
    return found


def waitall() -> None:
    """Wait for all work in flight. Errors stay with the arrays that they concern.

    >>> x = kg.kernel_graph(lambda x: x + 1)(np.zeros(2))
    >>> kg.waitall()
    >>> x.is_ready()
    True
    """
    while _flights:
        _wait_for_oldest_call()
