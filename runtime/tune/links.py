"""What copies between two devices take, measured: devices in, microseconds out, kept on disk under both identities.

A machine that is busy makes a link look slow, and other work may last. So links are timed again, when what is known has
become twice as old, at least a minute; the least of the last times counts.
"""

from __future__ import annotations

import math
import struct
import time

from ..core.disk_cache import DiskCache, sha256_digest
from ..core.frozen import dataclass
from ..program.device import Device

SIZES = 1 << 12, 1 << 22  # bytes of the copies that are timed
ROUNDS = 6  # of which the least counts
FRESH_SECONDS = 60.0  # a link is not timed again before
KEPT = 8  # so many times of each size are kept
_NUMBERS = struct.Struct("<d")
_cache = DiskCache("link")
_known: dict[str, LinkTimes] = {}


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """first, last: when a link was timed, in seconds since 1970. least: of each time the least microseconds of each of
    `SIZES`, the last times alone."""

    first: float
    last: float
    least: tuple[tuple[float, float], ...]

    def is_due(self, now: float) -> bool:
        """Whether to time the link again. A clock that was set back is no reason to wait."""
        return not 0 <= now - self.last < max(FRESH_SECONDS, self.last - self.first)

    def with_times(self, now: float, least: tuple[float, float]) -> LinkTimes:
        return LinkTimes(min(self.first, now), now, (*self.least, least)[-KEPT:])

    def latency_and_byte_time(self) -> tuple[float, float]:
        small, large = map(min, zip(*self.least, strict=True))
        return small, max(0.0, large - small) / (SIZES[1] - SIZES[0])

    def to_bytes(self) -> bytes:
        numbers = (self.first, self.last, *(n for pair in self.least for n in pair))
        return b"".join(map(_NUMBERS.pack, numbers))


def _link_times_from_bytes(kept: bytes) -> LinkTimes:
    first, last, *least = (n for (n,) in _NUMBERS.iter_unpack(kept))
    return LinkTimes(first, last, tuple(zip(least[::2], least[1::2], strict=True)))


def measured_copy_times(source: Device, target: Device) -> tuple[float, float]:
    """Microseconds of a copy of nearly nothing, and of each byte more.

    Raises what devices raise."""
    key = sha256_digest("link times", source.identity, source.index, target.identity, target.index)
    found, now = _known.get(key), time.time()
    if found is None and (kept := _cache.get(key)) is not None:
        found = _known[key] = _link_times_from_bytes(kept)
    if found is None or found.is_due(now):
        least = _least_copy_times(source, target)
        found = LinkTimes(now, now, (least,)) if found is None else found.with_times(now, least)
        _known[key] = found
        latency, each_byte = found.latency_and_byte_time()
        _cache.put(key, found.to_bytes(), {"latency us": latency, "us a byte": each_byte, "timed": len(found.least)})
    return found.latency_and_byte_time()


def _least_copy_times(source: Device, target: Device) -> tuple[float, float]:
    """Microseconds of a copy of each of `SIZES`."""
    small, large = (_least_copy_time(source, target, nbytes) for nbytes in SIZES)
    return small, large


def _least_copy_time(source: Device, target: Device, nbytes: int) -> float:
    given, taken = source.allocate(nbytes), target.allocate(nbytes)
    least = math.inf
    for _ in range(ROUNDS):
        start = time.perf_counter()
        target.copy_from(source, given, taken, nbytes, None).wait()
        least = min(least, time.perf_counter() - start)
    return least * 1e6
