"""`kg.memory_stats`, `kg.memory_limit`, `kg.empty_cache`: what a device's memory holds, how much it may, and less."""

from __future__ import annotations

import gc

from ..core.errors import OptionError
from . import array, in_flight
from .devices import device_named


def memory_stats(device: str | None = None) -> dict[str, int]:
    """Counts of a device (None: the default one).

    Bytes: `in_use` by arrays and by what runs; `cached`, free and kept for reuse; `reserved`, both; `peak`, the most
    ever reserved; `limit` (0: none); `graphs`, in use by replayed graphs; `in_flight`, held by calls that are not known
    to be over, of all devices. Numbers: `arrays`, the kg.Arrays alive; `calls`, those in flight; `executables`, the
    plans that are ready to run; `kernels`, those loaded.
    It walks over all of Python's objects to count them, which takes milliseconds.

    >>> x = kg.array(np.zeros(1 << 20), device="cpu")
    >>> kg.memory_stats("cpu")["in_use"] >= x.nbytes
    True
    """
    found = device_named(device)
    stats = dict(found.statistics())
    stats["limit"] = found.limit
    # Not all objects: one of another thread that is being made must not be held.
    holders = gc.get_referrers(found)
    stats["arrays"] = sum(type(x) is array.Array for x in holders)
    stats["executables"] = sum(type(x).__name__.endswith("Executable") for x in holders)
    del holders
    stats["kernels"] = found.kernels
    stats["graphs"] = found.graph_bytes
    stats["calls"], stats["in_flight"] = in_flight.in_flight_counts()
    return stats


def memory_limit(nbytes: int | None = None, device: str | None = None) -> int:
    """The bytes that a device may hold (0: no limit). They are set first if `nbytes` is given.

    It takes the place of the setting `memory_limit` for that device. A call that would need more gives back what is
    cached, waits for calls in flight, and raises OutOfMemory if that is not enough. Raises OptionError.

    >>> kg.memory_limit(1 << 30, "cpu"), kg.memory_limit(0, "cpu")
    (1073741824, 0)
    """
    found = device_named(device)
    if nbytes is not None:
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or nbytes < 0:
            raise OptionError(f"memory_limit={nbytes!r} is no number of bytes; write 0 for no limit")
        found.limit = nbytes
    return found.limit


def empty_cache(device: str | None = None) -> int:
    """Give a device's free memory back to the system. Returns how many bytes those are.

    It gives back blocks of 256 KiB and more on the CPU, of 1 MiB and more on a GPU. Calls in flight are waited for,
    since what they hold is free after them. A GPU unloads the kernels that no function, call or graph needs.

    >>> kg.empty_cache("cpu") >= 0
    True
    """
    in_flight.waitall()
    found = device_named(device)
    return found.trim()
