"""What copies and collectives between devices take, measured: devices in, microseconds out, kept under all identities.

A machine that is busy makes a link look slow, and other work may last. So links are timed again, when what is known has
become twice as old, at least a minute; the least of the last times counts.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Sequence

from ..core.disk_cache import DiskCache, sha256_digest
from ..core.frozen import frozen
from ..program.device import Device, Event

SIZES = 1 << 12, 1 << 22  # bytes of the copies that are timed
ROUNDS = 6  # of which the least counts
FRESH_SECONDS = 60.0  # a link is not timed again before
KEPT = 8  # so many times of each size are kept
_NUMBERS = struct.Struct("<d")
_cache = DiskCache("link")
_known: dict[str, LinkTimes] = {}
Start = Callable[[], Sequence[Event]]


@frozen
class LinkTimes:
    """first, last: when a link was timed, in seconds since 1970. least: of each time the least microseconds of each of
    the two sizes, the last times alone."""

    first: float
    last: float
    least: tuple[tuple[float, float], ...]

    def is_due(self, now: float) -> bool:
        """Whether to time the link again. A clock that was set back is no reason to wait."""
        return not 0 <= now - self.last < max(FRESH_SECONDS, self.last - self.first)

    def with_times(self, now: float, least: tuple[float, float]) -> LinkTimes:
        return LinkTimes(min(self.first, now), now, (*self.least, least)[-KEPT:])

    def latency_and_byte_time(self, sizes: tuple[int, int]) -> tuple[float, float]:
        small, large = map(min, zip(*self.least, strict=True))
        return small, max(0.0, large - small) / (sizes[1] - sizes[0])

    def to_bytes(self) -> bytes:
        numbers = (self.first, self.last, *(n for pair in self.least for n in pair))
        return b"".join(map(_NUMBERS.pack, numbers))


def _link_times_from_bytes(kept: bytes) -> LinkTimes:
    first, last, *least = (n for (n,) in _NUMBERS.iter_unpack(kept))
    return LinkTimes(first, last, tuple(zip(least[::2], least[1::2], strict=True)))


def measured_copy_times(source: Device, target: Device) -> tuple[float, float]:
    """Microseconds of a copy of nearly nothing, and of each byte more.

    Raises what devices raise."""
    return measured_times(["link times"], [source, target], SIZES, lambda: _least_copy_times(source, target))


def measured_times(
    what: Sequence[str], devices: Sequence[Device], sizes: tuple[int, int], measure: Callable[[], tuple[float, float]]
) -> tuple[float, float]:
    """Microseconds of the first of two sizes in bytes, and of each byte more, of what `what` says.

    measure: the microseconds of each of the sizes. Raises what it raises."""
    key = sha256_digest(*what, *(x for device in devices for x in (device.identity, device.index)))
    found, now = _known.get(key), time.time()
    if found is None and (kept := _cache.get(key)) is not None:
        found = _known[key] = _link_times_from_bytes(kept)
    if found is None or found.is_due(now):
        least = measure()
        found = LinkTimes(now, now, (least,)) if found is None else found.with_times(now, least)
        _known[key] = found
        latency, each_byte = found.latency_and_byte_time(sizes)
        _cache.put(key, found.to_bytes(), {"latency us": latency, "us a byte": each_byte, "timed": len(found.least)})
    return found.latency_and_byte_time(sizes)


def _least_copy_times(source: Device, target: Device) -> tuple[float, float]:
    """Microseconds of a copy of each of `SIZES`."""
    small, large = (_least_time(_prepare_copies([(source, target)], nbytes)) for nbytes in SIZES)
    return small, large


def _prepare_copies(pairs: Sequence[tuple[Device, Device]], nbytes: int) -> Start:
    ends = [(a, b, a.allocate(nbytes), b.allocate(nbytes)) for a, b in pairs]
    return lambda: [b.copy_from(a, given, taken, nbytes, None) for a, b, given, taken in ends]


def _least_time(start: Start) -> float:
    least = math.inf
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for event in start():
            event.wait()
        least = min(least, time.perf_counter() - began)
    return least * 1e6
