"""Calls in flight: what they use stays alive until their events have happened; a caller never runs too far ahead.

A call on the CPU that follows another one takes the memory that only that one still holds, as if both were one call: a
queued loop needs what one turn of it needs, and finds it in the caches."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter, deque
from collections.abc import Sequence
from itertools import count, islice
from operator import attrgetter, itemgetter
from sys import getrefcount
from threading import get_ident
from typing import Any

from ...runtime.core import profile
from ...runtime.core.host_pool import physical_memory_bytes
from ...runtime.core.settings import settings
from ...runtime.program.device import H200, Device, Event, GpuProperties, error_of_event
from ...runtime.program.plan import AFTER
from .made_of import forget_all_made_of_memory

ASKED, ASKED_ON_HOST = 64, 16  # whether calls are over is asked once in so many calls, or if they hold many bytes
MOST_CALLS = 4096  # in flight on the CPU: each takes some words of its own
# What nobody but calls in flight holds comes back by a wait while a cache may still hold it. With 24 MB 600 calls on
# 8 MB take as long as with a wait after each, with 64 MB 1.4 times as long (32 MB of cache).
DROPPED_BYTES = 24 << 20
OLDEST = 64  # calls that are looked at for this
ANCESTORS = 8  # calls that a call looks through for memory

_PROBE = [object()]
_ALONE = getrefcount(_PROBE[0])  # of what one list holds: interpreters count temporary references differently


# A call on GPUs, which has to cost little: its events, what it uses, the bytes of that, and whose thread's it is.
Flight = tuple[tuple[Event, ...], Sequence[Any], int, int]


class HostFlight:
    """A call on the CPU. things: what it uses. before: calls that are over when it starts. number: a later one's is
    higher."""

    __slots__ = ("before", "events", "nbytes", "number", "things")

    def __init__(self, events: tuple[Event, ...], things: Sequence[Any], nbytes: int) -> None:
        self.events, self.things, self.nbytes = events, things, nbytes
        self.before: Sequence[HostFlight] = ()
        self.number = next(_numbers)


_numbers, _number_of_flight = count(), attrgetter("number")


class Flights:
    """Calls in flight on one kind of device, and the bytes that they hold; threads may leave these a little off, until
    nothing is in flight. ahead: calls that may always be in flight; more only while all hold less than `nbytes`. many:
    bytes from which on each call looks whether others are over."""

    events_of: Any = attrgetter("events")
    things_of: Any = attrgetter("things")
    nbytes_of: Any = attrgetter("nbytes")

    def __init__(self, ahead: int, nbytes: int, many: int) -> None:
        self.ahead, self.nbytes, self.many = ahead, nbytes, many
        self.calls: deque[Any] = deque()  # `Flight` or `HostFlight`
        self.held = 0

    def keep_within_budget(self) -> None:
        """Let go of calls that are over, and wait for others while they hold too much."""
        self.forget_finished()
        while self.is_too_far_ahead():
            self.wait_for_room()

    @property
    def budget(self) -> int:
        """Bytes that calls in flight may hold."""
        return settings.in_flight_bytes or self.nbytes

    def is_too_far_ahead(self) -> bool:
        return self.held > self.budget and len(self.calls) > self.ahead

    def wait_for_room(self) -> None:
        """Wait for the oldest call; a profile has that as a wait."""
        if (recorder := profile.active) is None:
            self.wait_for_oldest()
            return
        with recorder.host_span("wait", "memory of calls in flight", nbytes=self.held):
            self.wait_for_oldest()

    def forget_finished(self) -> None:
        """Let go of calls that are over, oldest first: by popping first, threads never drop what another looks at."""
        try:
            while True:
                flight = self.calls.popleft()
                for event in self.events_of(flight):
                    if not event.query():
                        self.calls.appendleft(flight)
                        return
                self.forget(flight)
        except IndexError:
            self.held = 0

    def forget(self, flight: Any) -> None:
        """Take a call that is over out of the counts."""
        self.held -= self.nbytes_of(flight)

    def wait_for_oldest(self) -> None:
        """Wait for the oldest call in flight. Errors stay with the arrays that they concern."""
        try:
            flight = self.calls.popleft()
        except IndexError:
            return
        try:
            for event in self.events_of(flight):
                error_of_event(event)
        except BaseException:  # interrupted: it is still in flight
            self.calls.appendleft(flight)
            raise
        self.forget(flight)


class DeviceFlights(Flights):
    """Those on GPUs, where it costs the host a microsecond to ask whether an event has happened."""

    events_of, things_of, nbytes_of = (itemgetter(place) for place in range(3))
    held_at_look = 0  # bytes that were held when a call last looked: the next look is after `many` more

    def track(self, events: tuple[Event, ...], things: Any, size: int) -> None:
        """As `track_memory`, where it costs time to ask whether an event is over. size: bytes of the things."""
        self.calls.append((events, things, size, get_ident()))
        self.held = held = self.held + size
        if held > self.held_at_look + self.many or held > settings.in_flight_bytes > 0 or not len(self.calls) % ASKED:
            self.keep_within_budget()
            self.held_at_look = self.held

    def forget_finished(self) -> None:
        self.finish_in_order()
        calls = self.calls
        try:
            while True:
                flight = calls.popleft()
                for event in flight[0]:
                    if not event.query():
                        calls.appendleft(flight)
                        return
                self.held -= flight[2]
        except IndexError:
            self.held = 0

    def finish_in_order(self) -> None:
        """Ask of each thread's latest call on each stream first: where that is over, so are those before it."""
        try:
            calls = list(islice(self.calls, ASKED))
        except RuntimeError:  # another thread is at it
            return
        latest: dict[Any, Any] = {}  # the events of the latest call where that is over
        for events, _, _, thread in reversed(calls):
            for event in events:
                if (line := getattr(event, "line", None)) is not None:
                    known = latest.get(key := (thread, line))
                    if known is None:
                        latest[key] = events if event.query() and event.error is None else ()
                    elif known and known is not events:  # those of one call tell nothing of each other
                        event.finish()


class HostFlights(Flights):
    """Those on the CPU, where a call takes memory of those that it follows."""

    def __init__(self) -> None:
        super().__init__(1, physical_memory_bytes() // 4, DROPPED_BYTES)
        self.by_event: dict[Event, HostFlight] = {}
        self.lock = threading.RLock()  # objects may die, and call in here, inside any allocation

    def add(self, flight: HostFlight) -> None:
        for event in flight.events:
            self.by_event[event] = flight
        self.held += flight.nbytes
        self.calls.append(flight)
        if not len(self.calls) % ASKED_ON_HOST or self.held > self.many or self.held > self.budget:
            self.keep_within_budget()

    def forget(self, flight: HostFlight) -> None:
        super().forget(flight)
        flight.before = flight.things = ()
        for event in flight.events:
            self.by_event.pop(event, None)

    def is_too_far_ahead(self) -> bool:
        if super().is_too_far_ahead() or len(self.calls) > MOST_CALLS:
            return True
        return self.held > DROPPED_BYTES and len(self.calls) > self.ahead and self.dropped_bytes() > DROPPED_BYTES

    def dropped_bytes(self) -> int:
        """Bytes that only calls in flight hold; the latest one does not count. Of many calls the oldest, and now and
        then all: their chains may have run on unequally."""
        looked_at = len(self.calls) - 1
        try:
            oldest = list(islice(self.calls, min(OLDEST, looked_at) if looked_at % ASKED_ON_HOST else looked_at))
        except RuntimeError:  # another thread is at it
            return 0
        found = [thing for flight in oldest for thing in flight.things]
        holders = Counter(map(id, found))  # calls, each of which `found` repeats
        alone = [i for i in range(len(found)) if getrefcount(found[i]) == _ALONE - 1 + 2 * holders[id(found[i])]]
        return sum({id(found[i]): found[i].nbytes for i in alone}.values())

    def followed(
        self, device: Device, after: Sequence[tuple[int, Event]], roots: Sequence[frozenset[int]]
    ) -> FollowedCalls | None:
        """The calls that a call comes after as a whole, if all that it starts with waits for some of them anyway.

        after: the buffers that it waits for. roots: the buffers of each task that it starts with."""
        events = dict.fromkeys(event for _, event in after)
        flights = {id(flight): flight for event in events if (flight := self.by_event.get(event)) is not None}
        found = [flight for flight in flights.values() if all(event in events for event in flight.events)]
        if not found:
            return None
        waits = {buffer for buffer, event in after if self.by_event.get(event) in found}
        return None if any(root.isdisjoint(waits) for root in roots) else FollowedCalls(self, device, found)


class FollowedCalls:
    """Calls that are over when another one starts, if its plan waits for `gates`; the latest of each chain first."""

    __slots__ = ("device", "flights", "gates", "on_host")

    def __init__(self, on_host: HostFlights, device: Device, flights: list[HostFlight]) -> None:
        self.on_host, self.device, self.flights = on_host, device, flights
        self.gates = [(AFTER, event) for flight in flights for event in flight.events]
        if len(flights) == 1:
            flights += flights[0].before
        else:  # one chain's do not leave the others' out
            others = {id(one): one for flight in flights for one in flight.before if one not in flights}
            flights += sorted(others.values(), key=_number_of_flight, reverse=True)[:ANCESTORS]

    def take(self, nbytes: int) -> Any:
        """A block of so many bytes of the device's which nobody else holds any more, or None."""
        owns = self.device.owns
        with self.on_host.lock:
            for flight in self.flights:
                things = flight.things
                for i in range(len(things)):
                    if getrefcount(things[i]) == _ALONE and things[i].nbytes == nbytes and owns(things[i]):
                        return things[i]
        return None

    def add_follower(self, flight: HostFlight) -> None:
        """Note a call that starts after them; what it uses too they need not hold any more."""
        flight.before = self.flights[:ANCESTORS]
        kept = {*map(id, flight.things)}
        with self.on_host.lock:
            for earlier in self.flights:
                things = [thing for thing in earlier.things if id(thing) not in kept]
                if len(things) < len(earlier.things):
                    earlier.things, before = things, earlier.nbytes
                    earlier.nbytes = sum([thing.nbytes for thing in things])
                    self.on_host.held += earlier.nbytes - before


_on_host, _on_devices = HostFlights(), DeviceFlights(8, H200.memory_bytes // 4, 64 << 20)
track_call, followed = _on_devices.track, _on_host.followed


def _renew_lock_in_forked_child() -> None:
    """Another thread may have held it, and is not here to release it."""
    _on_host.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock_in_forked_child)


def fit_budget_to_gpu(properties: GpuProperties) -> None:
    """Calls on GPUs may hold a quarter of the memory of the smallest one in use."""
    _on_devices.nbytes = min(_on_devices.nbytes, properties.memory_bytes // 4)


def track_memory(events: tuple[Event, ...], things: Any) -> None:
    """Keeps `things` (memory) alive until the events have happened. A caller who runs far ahead of the device waits
    here for the oldest call, so that calls in flight never take all the memory."""
    _on_devices.forget_finished()
    _on_devices.track(events, things, sum([thing.nbytes for thing in things]))


def forget_finished_calls() -> None:
    """Where calls hold much, let go of those that are over: whoever has waited may be idle from now on."""
    for flights in (_on_host, _on_devices):
        if flights.held > flights.many:
            flights.forget_finished()


def track_host_memory(events: tuple[Event, ...], things: Any, before: FollowedCalls | None = None) -> None:
    """`track_memory` of a call on the CPU. before: what it follows as a whole."""
    _on_host.forget_finished()
    flight = HostFlight(events, [*things], sum([thing.nbytes for thing in things]))
    if before is not None:
        before.add_follower(flight)
    _on_host.add(flight)


def in_flight_counts() -> tuple[int, int]:
    """How many calls are known to be in flight, and the bytes that they hold."""
    return len(_on_host.calls) + len(_on_devices.calls), _on_host.held + _on_devices.held


def memory_in_flight() -> list[Any]:
    """What calls in flight use."""
    calls = [(one, flights.things_of) for flights in (_on_host, _on_devices) for one in flights.calls.copy()]
    return [thing for one, things_of in calls for thing in things_of(one)]


def is_no_call_in_flight() -> bool:
    """Whether no call is in flight."""
    for flights in (_on_host, _on_devices):
        flights.forget_finished()
    return not (_on_host.calls or _on_devices.calls)


def events_using_memory(memory: Any) -> list[Event]:
    """The events of calls in flight that use some memory."""
    calls = [(one, flights) for flights in (_on_host, _on_devices) for one in flights.calls.copy()]
    using = [(one, flights) for one, flights in calls if any(t is memory for t in flights.things_of(one))]
    return [event for one, flights in using for event in flights.events_of(one)]


def free_memory_in_flight() -> bool:
    """Wait for all calls in flight, whose memory goes back; whether there were any."""
    found = bool(_on_host.calls or _on_devices.calls)
    waitall()
    return found


def make_room(device: Device) -> bool:
    """Wait for calls in flight, or, where there are none, let Python find what nobody can reach; whether it made room.
    What the device and other libraries keep is given back by the device itself."""
    if forget_all_made_of_memory() | free_memory_in_flight():
        return True
    before = device.statistics()["in_use"]
    gc.collect()
    return device.statistics()["in_use"] < before


def waitall() -> None:
    """Wait for all work in flight. Errors stay with the arrays that they concern.

    Examples
    --------
    >>> x = kg.kernel_graph(lambda x: x + 1)(np.zeros(2))
    >>> kg.waitall()
    >>> x.is_ready()
    True
    """
    for flights in (_on_host, _on_devices):
        while flights.calls:
            flights.wait_for_oldest()
